"""The players that need no learning: what each of them is sure to do."""

from __future__ import annotations

import pytest

from evo.games.catalogue.snake.players import (
    PLAYERS,
    can_escape,
    greedy_player,
    hamiltonian_player,
    living_moves,
    path_to_fruit,
    play,
    shortest_path_player,
    tour,
)
from evo.games.catalogue.snake.position import ACTIONS
from snake.rules import Game
from tests.helpers.sampling import sampled


@pytest.mark.parametrize("size", sampled([4, 6, 8, 10], 1))
@pytest.mark.parametrize("tail", ["legal", "fatal"])
@pytest.mark.parametrize("actions", ["absolute", "relative"])
def test_the_hamiltonian_player_fills_every_even_board(size: int, tail: str, actions: str) -> None:
    for seed in range(3):
        for start_length in (1, 2, size):
            score = play("hamiltonian", seed, size=size, tail=tail, actions=actions, start_length=start_length)
            assert score == size * size - start_length


@pytest.mark.parametrize("size", sampled([5, 7, 9], 1))
@pytest.mark.parametrize("actions", ["absolute", "relative"])
def test_on_an_odd_board_the_hamiltonian_player_fills_it_or_misses_the_last_fruit(size: int, actions: str) -> None:
    for seed in range(4):
        for start_length in (1, size):
            options = {"size": size, "actions": actions, "start_length": start_length}
            assert play("hamiltonian", seed, **options) == size * size - start_length
            fatal = play("hamiltonian", seed, tail="fatal", **options)
            assert size * size - 1 <= fatal + start_length <= size * size


@pytest.mark.parametrize("size", range(4, 13))
def test_the_tour_goes_from_cell_to_neighbour_and_misses_none(size: int) -> None:
    ways = tour(size)
    assert len(ways) == size * size
    for cell, (onward, back) in ways.items():
        assert onward
        assert back
        for beside in (*onward, *back):
            assert abs(cell[0] - beside[0]) + abs(cell[1] - beside[1]) == 1
    cell, length = (0, 0), 0
    while (cell, length) != ((0, 0), size * size // 2 * 2):
        cell, length = ways[cell][0][0], length + 1
        assert length <= size * size


@pytest.mark.parametrize("player", sampled(PLAYERS, *range(2)))
def test_an_episode_of_a_player_is_always_the_same_and_another_seed_another(player: str) -> None:
    scores = [play(player, seed, size=5, starvation=30) for seed in range(30)]
    assert scores == [play(player, seed, size=5, starvation=30) for seed in range(30)]
    if player != "hamiltonian":
        assert len(set(scores)) > 1


@pytest.mark.parametrize("actions", ["absolute", "relative"])
@pytest.mark.parametrize("tail", ["legal", "fatal"])
def test_the_shortest_path_player_eats_under_all_rules(tail: str, actions: str) -> None:
    scores = [play("shortest", seed, size=6, tail=tail, actions=actions) for seed in range(8)]
    assert sum(scores) / len(scores) > (25 if tail == "legal" else 15), scores


@pytest.mark.long
def test_the_players_stand_in_their_known_order() -> None:
    means = {player: sum(play(player, seed, size=8) for seed in range(12)) / 12 for player in PLAYERS}
    assert means["random"] < 1 < 8 < means["greedy"] < means["shortest"] <= means["hamiltonian"] == 63
    assert means["shortest"] > 45


def test_the_random_player_takes_every_action() -> None:
    game = Game(seed=3, starvation=0)
    taken = set()
    for steps in range(40):
        taken.add(PLAYERS["random"](Game(body=[(5, 5)], fruit=(0, 0), seed=3, steps=steps)))
    assert taken == {0, 1, 2, 3}
    assert PLAYERS["random"](game) == PLAYERS["random"](game)


@pytest.mark.parametrize("actions", ["absolute", "relative"])
@pytest.mark.parametrize("tail", ["legal", "fatal"])
def test_a_move_is_living_where_the_rules_do_not_end_the_episode_by_it(tail: str, actions: str) -> None:
    for seed in range(6):
        game = Game(size=5, seed=seed, tail=tail, actions=actions, starvation=40)
        while not game.over:
            living = dict(living_moves(game))
            ahead = [game.direction(action) for action in range(ACTIONS[actions])]
            assert [action in living for action in range(len(ahead))] == [not game.fatal(one) for one in ahead]
            game.step(shortest_path_player(game))


def test_the_greedy_player_goes_towards_the_fruit_but_not_into_the_wall_or_itself() -> None:
    assert greedy_player(Game(body=[(5, 5)], fruit=(5, 8))) == 1
    assert greedy_player(Game(body=[(5, 5), (5, 6)], fruit=(5, 8), tail="fatal")) in (0, 2)
    assert greedy_player(Game(body=[(5, 5)], fruit=(5, 8), actions="relative")) == 2


def test_the_shortest_path_leads_through_cells_that_the_body_will_have_left() -> None:
    hook = [(2, 0), (1, 0), (1, 1), (2, 1)]
    assert path_to_fruit(Game(size=5, body=hook, fruit=(2, 2))) == [(2, 1), (2, 2)]
    assert len(path_to_fruit(Game(size=5, body=hook, fruit=(2, 2), tail="fatal"))) == 4
    longer = [*hook[:3], (1, 2), (2, 2), (2, 1)]
    assert len(path_to_fruit(Game(size=5, body=longer, fruit=(2, 3)))) == 3  # its cell (2, 2) is free after two steps


def test_the_shortest_path_player_does_not_enter_a_dead_end_for_a_fruit() -> None:
    pocket = [(1, 1), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (1, 3), (0, 3), (0, 4)]
    game = Game(size=5, body=pocket, fruit=(0, 0))
    path = path_to_fruit(game)
    assert path == [(0, 1), (0, 0)]
    assert not can_escape(game, path[::-1] + pocket)
    while game.fruit == (0, 0):
        game.step(shortest_path_player(game))
    assert can_escape(game, game.body)


def test_a_position_off_the_tour_is_played_on_without_a_fatal_move() -> None:
    game = Game(size=6, body=[(2, 2), (2, 3), (3, 3), (3, 2), (4, 2)], fruit=(5, 5))
    for _ in range(20):
        game.step(hamiltonian_player(game))
    assert not game.over


def test_an_unknown_player_is_refused() -> None:
    with pytest.raises(ValueError, match="random, greedy, shortest, hamiltonian"):
        play("perfect", 0)


def test_the_shortest_way_to_a_fruit_behind_the_head_begins_with_a_move_that_there_is() -> None:
    game = Game(size=6, body=[(3, 3)], fruit=(4, 3), actions="relative")
    path = path_to_fruit(game)
    assert len(path) == 3
    assert path[0] in {(2, 3), (3, 2), (3, 4)}
    assert play("shortest", 12342719042707165035, size=10, actions="relative") > 0
