"""The rules of Snake, one by one, on boards small enough to check by eye."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.randomness.streams import draw
from snake.rules import MOVES, Cell, Game

UP, RIGHT, DOWN, LEFT = range(4)
LEFTWARDS, STRAIGHT, RIGHTWARDS = range(3)


def spiral(size: int) -> list[Cell]:
    """The whole board, row by row, there and back."""
    return [(row, column if row % 2 == 0 else size - 1 - column) for row in range(size) for column in range(size)]


def test_an_episode_starts_as_its_stream_says() -> None:
    for seed in range(50):
        game = Game(size=6, seed=seed)
        assert game.body == [divmod(draw(seed, 0, 36), 6)]
        free = [(row, column) for row in range(6) for column in range(6) if (row, column) not in game.body]
        assert game.fruit == free[draw(seed, 1, 35)]
        assert (game.heading, game.score, game.hunger, game.steps) == (UP, 0, 0, 0)
        assert (game.won, game.over) == (False, False)


def test_the_first_fruit_is_the_same_whatever_the_player_does() -> None:
    for seed in range(20):
        straight, turning = Game(seed=seed), Game(seed=seed, actions="relative", tail="fatal", starvation=9)
        assert straight.fruit == turning.fruit


def test_a_long_start_is_a_straight_body_below_the_head() -> None:
    heads = set()
    for seed in range(400):
        game = Game(size=5, seed=seed, start_length=4)
        row, column = game.body[0]
        assert game.body == [(row + below, column) for below in range(4)]
        assert game.heading == UP
        assert game.score == 0
        heads.add((row, column))
    assert heads == {(row, column) for row in range(2) for column in range(5)}


@pytest.mark.parametrize("action", range(4))
def test_absolute_actions_move_up_right_down_left(action: int) -> None:
    game = Game(body=[(5, 5)], fruit=(0, 0))
    assert game.step(action) == (0.0, False, False)
    assert game.body == [(5 + MOVES[action][0], 5 + MOVES[action][1])]
    assert game.heading == action


@pytest.mark.parametrize("heading", range(4))
@pytest.mark.parametrize("action", range(3))
def test_relative_actions_turn_left_go_straight_turn_right(heading: int, action: int) -> None:
    game = Game(body=[(5, 5)], fruit=(0, 0), heading=heading, actions="relative")
    game.step(action)
    assert game.heading == (heading + action - 1) % 4
    assert game.body == [(5 + MOVES[game.heading][0], 5 + MOVES[game.heading][1])]


def test_the_body_follows_and_a_fruit_makes_it_longer() -> None:
    game = Game(size=5, body=[(2, 2), (2, 1)], fruit=(2, 3), fruits=[(0, 0)])
    assert game.step(RIGHT) == (1.0, False, False)
    assert game.body == [(2, 3), (2, 2), (2, 1)]
    assert (game.fruit, game.score) == ((0, 0), 2)
    assert game.step(UP) == (0.0, False, False)
    assert game.body == [(1, 3), (2, 3), (2, 2)]


@pytest.mark.parametrize(("cell", "action"), [((0, 2), UP), ((2, 4), RIGHT), ((4, 2), DOWN), ((2, 0), LEFT)])
def test_a_wall_is_fatal_and_leaves_body_and_fruit_as_they_were(cell: Cell, action: int) -> None:
    game = Game(size=5, body=[cell], fruit=(3, 3))
    assert game.step(action) == (-1.0, True, False)
    assert (game.body, game.fruit, game.won) == ([cell], (3, 3), False)


def test_the_body_is_fatal() -> None:
    body = [(1, 1), (1, 2), (2, 2), (2, 1), (2, 0)]
    game = Game(size=5, body=body, fruit=(4, 4))
    assert game.step(DOWN) == (-1.0, True, False)
    assert (game.body, game.fruit) == (body, (4, 4))


def test_the_cell_of_the_tail_may_be_entered_where_it_is_legal() -> None:
    square = [(1, 1), (1, 2), (2, 2), (2, 1)]
    game = Game(size=5, body=square, fruit=(4, 4))
    assert game.step(DOWN) == (0.0, False, False)
    assert game.body == [(2, 1), (1, 1), (1, 2), (2, 2)]
    assert Game(size=5, body=square, fruit=(4, 4), tail="fatal").step(DOWN) == (-1.0, True, False)


def test_turning_back_into_the_neck_is_fatal_where_the_cell_stays_occupied() -> None:
    assert Game(size=5, body=[(2, 2), (2, 1), (2, 0)], fruit=(4, 4)).step(LEFT) == (-1.0, True, False)
    two = Game(size=5, body=[(2, 2), (2, 1)], fruit=(4, 4))
    assert two.step(LEFT) == (0.0, False, False)
    assert two.body == [(2, 1), (2, 2)]
    assert Game(size=5, body=[(2, 2), (2, 1)], fruit=(4, 4), tail="fatal").step(LEFT)[1]
    assert not Game(size=5, body=[(2, 2)], fruit=(4, 4), heading=RIGHT).step(LEFT)[1]


def test_starvation_truncates_and_a_fruit_stills_hunger() -> None:
    game = Game(size=6, body=[(3, 0)], fruit=(3, 2), fruits=[(0, 0)], starvation=3)
    assert [game.step(RIGHT) for _ in range(2)] == [(0.0, False, False), (1.0, False, False)]
    assert game.hunger == 0
    assert [game.step(RIGHT) for _ in range(3)] == [(0.0, False, False), (0.0, False, False), (0.0, False, True)]
    assert (game.hunger, game.steps, game.truncated, game.terminated) == (3, 5, True, False)


def test_a_fruit_in_the_last_moment_saves() -> None:
    game = Game(size=6, body=[(3, 0)], fruit=(3, 2), fruits=[(0, 0)], starvation=2)
    assert [game.step(RIGHT) for _ in range(2)] == [(0.0, False, False), (1.0, False, False)]


def test_max_steps_truncates_even_with_a_fruit_but_never_where_it_terminated() -> None:
    game = Game(size=6, body=[(3, 0)], fruit=(3, 1), max_steps=1)
    assert game.step(RIGHT) == (1.0, False, True)
    assert Game(size=6, body=[(3, 0)], fruit=(3, 1), max_steps=1).step(LEFT) == (-1.0, True, False)
    assert Game(size=6, body=[(3, 0)], fruit=(3, 1), starvation=1).step(LEFT) == (-1.0, True, False)


def test_the_last_fruit_wins_and_its_reward_is_added() -> None:
    way = spiral(4)
    game = Game(size=4, body=way[1:], fruit=way[0], max_steps=1)
    assert game.step(LEFT) == (11.0, True, False)
    assert (game.won, game.fruit, game.score) == (True, None, 15)
    with pytest.raises(RuntimeError, match="episode is over"):
        game.step(LEFT)


def test_rewards_are_configurable_one_by_one() -> None:
    way = spiral(4)
    rewards = {"fruit": 0.25, "win": 2}
    game = Game(size=4, body=way[1:], fruit=way[0], rewards=rewards)
    assert game.state()["rewards"] == {"fruit": 0.25, "death": -1.0, "win": 2.0, "starved": 0.0, "step": 0.0}
    assert game.step(LEFT)[0] == 2.25
    assert Game(size=4, body=[(0, 0)], fruit=(3, 3), rewards={"death": -0.001}).step(UP)[0] == -0.001


def test_starving_has_a_reward_of_its_own_and_running_out_of_time_has_none() -> None:
    options: dict[str, Any] = {"size": 6, "body": [(3, 0)], "fruit": (0, 5), "rewards": {"starved": -0.5}}
    assert Game(**options, starvation=1).step(RIGHT) == (-0.5, False, True)
    assert Game(**options, starvation=2, max_steps=1).step(RIGHT) == (0.0, False, True)
    assert Game(**options, starvation=1, max_steps=1).step(RIGHT) == (-0.5, False, True)
    assert Game(**options, starvation=1).step(LEFT) == (-1.0, True, False)


def test_a_step_that_neither_eats_nor_collides_has_a_reward_of_its_own() -> None:
    rewards = {"step": -0.01, "starved": -0.5}
    options: dict[str, Any] = {"size": 6, "body": [(3, 0)], "fruit": (3, 2), "rewards": rewards}
    game = Game(**options)
    assert [game.step(RIGHT)[0] for _ in range(3)] == [-0.01, 1.0, -0.01]
    assert Game(**options).step(LEFT)[0] == -1.0
    assert Game(**options, starvation=1).step(RIGHT) == (-0.51, False, True)


def test_forced_fruits_come_first_and_use_no_draw() -> None:
    game = Game(size=6, body=[(0, 0)], fruits=[(0, 1), (0, 2)], seed=5)
    assert game.fruit == (0, 1)
    assert game.state()["fruits"] == [(0, 2)]
    game.step(RIGHT)
    assert game.fruit == (0, 2)
    game.step(RIGHT)
    free = [cell for cell in ((row, column) for row in range(6) for column in range(6)) if cell not in game.body]
    assert game.fruit == free[draw(5, 3, 33)]  # the body has three cells: draw number 3
    assert game.state()["fruits"] == []


def test_as_many_fruits_as_cells_may_be_forced() -> None:
    assert len(Game(size=4, body=[(0, 0)], fruits=iter([(0, 1)] * 16)).state()["fruits"]) == 15


def test_the_fruit_depends_on_seed_and_length_only() -> None:
    slow, fast = Game(size=6, body=[(2, 2)], fruit=(2, 3), seed=9), Game(size=6, body=[(2, 2)], fruit=(2, 3), seed=9)
    for action in (LEFT, RIGHT, RIGHT):
        slow.step(action)
    fast.step(RIGHT)
    assert slow.fruit == fast.fruit


def test_a_full_body_is_legal_and_won() -> None:
    game = Game(size=4, body=spiral(4))
    assert (game.won, game.terminated, game.fruit, game.score) == (True, True, None, 15)
    for forbidden in (game.state, lambda: game.step(UP)):
        with pytest.raises(RuntimeError):
            forbidden()


def test_after_the_end_there_is_no_state_and_no_step() -> None:
    game = Game(size=4, body=[(0, 0)], fruit=(3, 3))
    game.step(UP)
    with pytest.raises(RuntimeError, match="no state"):
        game.state()
    with pytest.raises(RuntimeError, match="after its end"):
        game.step(UP)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), data=st.data())
def test_a_game_rebuilt_from_its_state_goes_on_in_the_same_way(seed: int, data: st.DataObject) -> None:
    options: dict[str, Any] = {
        "size": data.draw(st.integers(4, 7)),
        "tail": data.draw(st.sampled_from(["legal", "fatal"])),
        "actions": data.draw(st.sampled_from(["absolute", "relative"])),
        "starvation": data.draw(st.sampled_from([0, 12])),
        "max_steps": data.draw(st.sampled_from([0, 40])),
        "start_length": data.draw(st.integers(1, 4)),
        "rewards": data.draw(st.sampled_from([None, {"death": -0.5}])),
    }
    game = Game(seed=seed, **options)
    for _ in range(60):
        copy = Game(**game.state())
        assert copy == game
        assert copy.state() == game.state()
        allowed = game.mask("fatal")
        action = data.draw(st.sampled_from([action for action, allows in enumerate(allowed) if allows]))
        assert copy.step(action) == game.step(action)
        assert copy == game
        if game.over:
            break
        assert copy != Game(**{**game.state(), "seed": seed ^ 1})


def test_numpy_integers_are_integers() -> None:
    game = Game(size=np.int64(5), body=np.array([[2, 2], [2, 1]]), seed=np.uint64(2**64 - 1))  # type: ignore[arg-type]
    game.step(np.int8(1))  # type: ignore[arg-type]
    assert game.body == [(2, 3), (2, 2)]
    assert all(type(part) is int for cell in game.body for part in cell)


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ({"body": [(1, 1), (1, 2), (1, 1)]}, r"overlaps itself at \(1, 1\)"),
        ({"body": [(1, 1), (1, 3)]}, r"gap between \(1, 1\) and \(1, 3\)"),
        ({"body": [(1, 1), (2, 2)]}, "gap between"),
        ({"body": [(0, 9), (0, 10)]}, r"the body at \(0, 10\) is off the board"),
        ({"body": [(-1, 0)]}, r"the body at \(-1, 0\) is off the board"),
        ({"body": [(1, 1, 1)]}, "is a \\(row, column\\)"),
        ({"body": [(1.5, 1)]}, "is a \\(row, column\\)"),
        ({"body": []}, "0 cells, fewer than start_length 1"),
        ({"body": [(1, 1)], "start_length": 2}, "1 cells, fewer than start_length 2"),
        ({"body": [(1, 1)], "fruit": (1, 1)}, r"the fruit at \(1, 1\) is on the body"),
        ({"body": [(1, 1)], "fruit": (10, 1)}, r"the fruit at \(10, 1\) is off the board"),
        ({"body": [(1, 1)], "fruits": [(1, 1)]}, r"a forced fruit at \(1, 1\) is on the body"),
        ({"body": [(1, 1)], "fruits": [(2, 2), (0, 10)]}, r"a forced fruit at \(0, 10\) is off the board"),
        ({"fruits": itertools.cycle([(1, 1)])}, "fruits has more cells than the 100 of the board of 10 x 10"),
        ({"fruits": [(1, 1)] * 101}, "fruits has more cells than the 100"),
        ({"fruits": itertools.count()}, "fruits has more cells than the 100"),
        ({"fruits": 3}, r"fruits is a list of \(row, column\), not 3"),
        ({"fruits": [3]}, r"a forced fruit is a \(row, column\), not 3"),
        ({"size": 4, "body": itertools.repeat((1, 1))}, "body has more cells than the 16 of the board of 4 x 4"),
        ({"body": 3}, r"body is a list of \(row, column\), not 3"),
        ({"body": [(1, 1), (1, 2)], "heading": 1}, "does not agree with the body, which looks left"),
        ({"body": [(1, 1)], "heading": 4}, "heading is 4, not between 0 and 3"),
        ({"size": 4, "body": spiral(4), "fruit": (0, 0)}, "is on the body"),
        ({"hunger": 5, "starvation": 5}, "hunger is 5, not between 0 and 4"),
        ({"steps": 5, "max_steps": 5}, "steps is 5, not between 0 and 4"),
        ({"hunger": -1}, "hunger is -1"),
    ],
)
def test_an_illegal_position_is_refused_by_name(position: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Game(**position)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 3}, "size is 3, not between 4 and 64"),
        ({"size": 65}, "size is 65"),
        ({"size": 10.0}, "size is a whole number"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is"),
        ({"tail": "soft"}, "tail is 'soft', not one of legal, fatal"),
        ({"actions": "polar"}, "actions is 'polar', not one of absolute, relative"),
        ({"starvation": -1}, "starvation is -1"),
        ({"start_length": 11}, "start_length is 11, not between 1 and 10"),
        ({"start_length": 0}, "start_length is 0"),
        ({"rewards": {"fruits": 1}}, "a reward is 'fruits', not one of fruit, death, win"),
        ({"rewards": {"fruit": 0.0005}}, "reward fruit is 0.0005, not a multiple of 0.001"),
        ({"rewards": {"fruit": float("nan")}}, "reward fruit is nan"),
        ({"rewards": {"death": "much"}}, "reward death is 'much'"),
    ],
)
def test_an_illegal_option_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Game(**options)


@pytest.mark.parametrize("action", [-1, 4, 1.0, None])
def test_an_action_that_there_is_not_is_refused(action: Any) -> None:
    with pytest.raises(ValueError, match="action is"):
        Game().step(action)
    with pytest.raises(ValueError, match="action is 3, not between 0 and 2"):
        Game(actions="relative").step(3)
