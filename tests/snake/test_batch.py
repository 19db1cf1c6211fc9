"""The compiled boards, held equal to the readable rules step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.games.catalogue.snake.players import hamiltonian_player
from evo.randomness.philox_compiled import draw as compiled_draw
from evo.records import GOES_ON, TERMINATED, TRUNCATED
from snake.rules import DEFAULT_REWARDS, Game
from tests.helpers.sampling import sampled
from tests.snake.boards import Boards
from tests.snake.reference import Reference


def step_both(game: Any, boards: Boards, b: int, action: int) -> None:
    """Play one action on both and hold them equal in everything that can be seen."""
    reward, terminated, truncated = game.step(action)
    thousandths, status = boards.step(b, action)
    assert (thousandths, status) == (round(1000 * reward), TERMINATED if terminated else TRUNCATED if truncated else 0)
    assert boards.state.over[b] == status
    assert boards.position(b) == (game.body, game.fruit)
    assert (boards.state.heading[b], boards.state.hunger[b], boards.clock.steps[b]) == (
        game.heading,
        game.hunger,
        game.steps,
    )
    if not game.over:
        assert boards.dump(b) == game.state()


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Every option of the rules."""
    size = draw(st.integers(4, 20))
    return {
        "size": size,
        "tail": draw(st.sampled_from(["legal", "fatal"])),
        "starvation": draw(st.sampled_from([0, 1, 5, 60])),
        "max_steps": draw(st.sampled_from([0, 1, 90])),
        "start_length": draw(st.one_of(st.just(1), st.integers(1, size))),
        "rewards": draw(
            st.fixed_dictionaries(
                {}, optional={name: st.integers(-9999, 9999).map(lambda v: v / 1000) for name in DEFAULT_REWARDS}
            )
        ),
        "actions": draw(st.sampled_from(["absolute", "relative"])),
    }


@settings(max_examples=150, deadline=None)
@given(chosen=options(), seed=st.integers(0, 2**64 - 1), data=st.data())
def test_the_compiled_board_is_the_readable_one_on_any_play(
    chosen: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    boards, game = Boards(2, **chosen), Reference(seed=seed, **chosen)
    boards.begin(1, seed)
    assert boards.dump(1) == game.state()
    careful = data.draw(st.booleans())
    for choice in data.draw(st.lists(st.integers(0, 11), min_size=100, max_size=100)):
        allowed = [action for action, allows in enumerate(game.mask("fatal" if careful else "none")) if allows]
        step_both(game, boards, 1, allowed[choice % len(allowed)])
        if game.over:
            break
    assert not any(array[0].any() for array in (*boards.state, *boards.clock))  # the neighbour has not been touched


@pytest.mark.parametrize("size", sampled([4, 5, 6, 7, 10, 16, 17], 0, 1, 4))
@pytest.mark.parametrize("tail", ["legal", "fatal"])
@pytest.mark.parametrize("actions", ["absolute", "relative"])
def test_whole_games_to_a_full_board_are_the_same(size: int, tail: str, actions: str) -> None:
    chosen: dict[str, Any] = {"size": size, "tail": tail, "actions": actions, "starvation": 2 * size * size}
    boards, game = Boards(**chosen), Game(seed=size, **chosen)
    boards.begin(0, size)
    while not game.over:
        reward, terminated, truncated = game.step(action := hamiltonian_player(game))
        assert boards.step(0, action) == (round(1000 * reward), terminated + 2 * truncated)
        if game.hunger == 0:
            assert boards.position(0) == (game.body, game.fruit)
    assert game.won or (size % 2 and tail == "fatal")
    assert boards.position(0) == (game.body, game.fruit)
    assert int(boards.state.length[0]) - 1 == game.score


@pytest.mark.parametrize("size", [5, 10])
@pytest.mark.parametrize("length", [1, 2, 20, 24])
def test_every_fruit_is_uniform_over_the_free_cells(size: int, length: int) -> None:
    way = [(row, column if row % 2 == 0 else size - 1 - column) for row in range(size) for column in range(size)]
    body = way[3 : 3 + length] if length < 22 else way[:length]
    ahead = way[3 + length] if length < 22 else way[length]
    boards = Boards(size=size)
    free = size * size - length - 1
    rounds = 60 * free
    fruits: dict[tuple[int, int] | None, int] = {}
    direction = Game(size=size, body=[ahead, *body[::-1]]).heading
    before = Game(size=size, body=body[::-1], fruit=ahead, heading=0 if length == 1 else None)
    boards.load(0, before.state())
    start = boards.snapshots([0])
    for seed in range(rounds):
        boards.restore([0], start)
        boards.clock.seed[0] = seed
        boards.step(0, direction)
        fruit = boards.position(0)[1]
        fruits[fruit] = fruits.get(fruit, 0) + 1
    if free == 0:
        assert fruits == {}
        return
    assert set(fruits) == set(way) - {*body, ahead}
    statistic = sum((count - 60) ** 2 / 60 for count in fruits.values())
    freedom = free - 1
    # The 99.9 % quantile of chi-square, after Wilson and Hilferty.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3 if freedom else 0
    assert statistic <= limit


def test_the_start_is_uniform_over_the_board() -> None:
    boards = Boards(3600, size=6)
    for b in range(3600):
        boards.begin(b, b)
    counts = np.bincount(boards.state.body[:, 0], minlength=36)
    assert ((counts - 100) ** 2 / 100).sum() < 66.6  # chi-square with 35 degrees of freedom: 99.9 %


def test_a_board_that_is_over_has_no_state() -> None:
    boards = Boards(size=4, start_length=4)
    boards.begin(0, 1)
    assert boards.step(0, 0) == (-1000, TERMINATED)
    with pytest.raises(RuntimeError, match="no state"):
        boards.dump(0)


def test_many_boards_step_as_each_alone() -> None:
    options: dict[str, Any] = {"size": 6, "starvation": 6, "actions": "relative"}
    many, alone = Boards(50, **options), [Boards(**options) for _ in range(50)]
    actions = np.random.default_rng(1).integers(0, 3, (7, 50))
    for b in range(50):
        many.begin(b, b)
        alone[b].begin(0, b)
    over = np.zeros(50, np.int64)
    for step in range(7):
        for b in np.flatnonzero(over == GOES_ON):
            played = many.step(b, actions[step, b])
            assert played == alone[b].step(0, actions[step, b])
            over[b] = played[1]
    np.testing.assert_array_equal(many.snapshots(range(50)), [one.snapshots([0])[0] for one in alone])
    assert set(over.tolist()) == {GOES_ON, TERMINATED, TRUNCATED}  # so the play has met every end


@settings(max_examples=60, deadline=None)
@given(chosen=options(), seed=st.integers(0, 2**64 - 1), data=st.data())
def test_dumps_loads_and_snapshots_are_exact_and_equal_positions_have_equal_bytes(
    chosen: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    boards, game = Boards(4, **chosen), Reference(seed=seed, **chosen)
    boards.begin(0, seed)
    for choice in data.draw(st.lists(st.integers(0, 11), max_size=40)):
        allowed = [action for action, allows in enumerate(game.mask("fatal")) if allows]
        step_both(game, boards, 0, allowed[choice % len(allowed)])
        if game.over:
            break
    saved = boards.snapshots([0])
    boards.restore([2], saved)
    np.testing.assert_array_equal(boards.snapshots([2]), saved)
    if game.over:
        return
    boards.load(1, game.state())
    np.testing.assert_array_equal(boards.snapshots([1]), saved)
    copies = [Game(**boards.dump(b)) for b in (0, 1, 2)]
    assert copies == [Game(**game.state())] * 3
    for action in data.draw(st.lists(st.integers(0, 2), max_size=10)):
        for b, copy in enumerate(copies):
            step_both(copy, boards, b, action)
        if copies[0].over:
            break


def test_a_snapshot_of_a_ten_by_ten_board_is_small_and_a_board_too() -> None:
    boards = Boards(1000, size=10)
    assert sum(field.nbytes for field in boards.state) == 128 * 1000
    assert boards.snapshots([0]).shape == (1, 122)
    assert [Boards(size=size).state.body.dtype for size in (16, 17)] == [np.uint8, np.uint16]


def test_forced_fruits_come_first_and_use_no_draw() -> None:
    start = Game(size=6, body=[(0, 0)], fruits=[(0, 1), (0, 2), (0, 3)], seed=5)
    game = Reference(**start.state())
    for action in (1, 1, 1, 2, 2):
        assert game.state() == start.state() == Game(**start.state()).state()
        assert game.step(action) == start.step(action)
    assert game.score == 3
    blocked = Game(size=6, body=[(0, 0)], fruit=(0, 1), fruits=[(0, 0), (0, 1)])
    with pytest.raises(ValueError, match=r"a forced fruit at \(0, 0\) is on the body"):
        blocked.step(1)


def test_what_does_not_fit_the_boards_is_refused() -> None:
    boards = Boards(size=6)
    with pytest.raises(ValueError, match="no forced fruits"):
        boards.load(0, Game(size=6, fruits=[(0, 1), (0, 2)], body=[(3, 3)]).state())
    with pytest.raises(ValueError, match="the state has other rules than the boards: tail"):
        boards.load(0, Game(size=6, tail="fatal").state())
    with pytest.raises(ValueError, match="overlaps itself"):
        boards.load(0, {"size": 6, "body": [(1, 1), (1, 2), (1, 1)]})


def test_a_full_board_is_loaded_as_won() -> None:
    way = [(row, column if row % 2 == 0 else 3 - column) for row in range(4) for column in range(4)]
    boards = Boards(size=4)
    boards.load(0, {"size": 4, "body": way})
    assert (boards.state.over[0], boards.state.length[0], boards.state.fruit[0]) == (TERMINATED, 16, -1)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64 - 1))
def test_the_largest_seeds_start_the_episode_that_they_name(seed: int) -> None:
    boards = Boards(size=64, actions="relative")
    boards.begin(0, seed)
    assert boards.state.body[0, 0] == compiled_draw(np.uint64(seed), 0, 64 * 64, 0)
    assert boards.dump(0) == Reference(size=64, seed=seed, actions="relative").state()


@pytest.mark.parametrize(("at", "value"), [(100, 0), (100, 101), (0, 100), (102, 100), (104, 4)])
def test_a_snapshot_that_names_what_no_board_has_is_refused(at: int, value: int) -> None:
    boards = Boards(2, size=10)
    boards.begin(0, 1)
    saved = boards.snapshots([0])  # 100 cells, then length, fruit, heading
    boards.restore([1], saved)
    saved[0, at] = value
    with pytest.raises(ValueError, match="does not have"):
        boards.restore([1], saved)
