"""Baseline players that need no learning: random, greedy, shortest path and Hamiltonian cycle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from evo.games.catalogue.snake.position import ACTIONS, MOVES, Cell, Game, one_of
from evo.randomness.streams import draw

RANDOM_MOVES = 1  # the purpose of these draws in an episode's stream; the game's own is 0

Body = list[Cell]


def random_player(game: Game) -> int:
    """Draw an action uniformly, fatal ones too; step s of an episode always draws the same."""
    return draw(game.seed, game.steps, ACTIONS[game.actions], RANDOM_MOVES)


def greedy_player(game: Game) -> int:
    """Move closest to the fruit, among the moves that are not fatal at once."""
    if game.fruit is None:
        return 0
    row, column = game.fruit
    moves = [(abs(row - cell[0]) + abs(column - cell[1]), action) for action, cell in living_moves(game)]
    return min(moves, default=(0, 0))[1]


def shortest_path_player(game: Game) -> int:
    """Follow a shortest path to the fruit if the tail is reachable from its end; else keep the tail reachable.

    A cell of the body is free from the step in which the tail leaves it.
    """
    path, moves, present = path_to_fruit(game), living_moves(game), game.body
    if path and can_escape(game, path[::-1] + present):
        return next(action for action, cell in moves if cell == path[0])
    best = (-1, -1, 0)
    for action, cell in moves:
        body = [cell, *present[:-1]]
        distances = reachable(game, body)
        best = max(best, (distances.get(body[-1], -1), len(distances), -action))
    return -best[2]


def hamiltonian_player(game: Game) -> int:
    """Follow a Hamiltonian cycle, which fills the board if nothing truncates the episode.

    A board of odd size has no such cycle. There the tour leaves out one corner, and passes through it instead of one of
    its neighbours when the fruit lies there. That fills the board too, unless `tail` is fatal: then the last fruit may
    be out of reach.
    """
    body, fruit = game.body, game.fruit
    (row, column), (down, right) = body[0], MOVES[game.heading]
    behind = (row - down, column - right)
    onward, back = tour(game.size)[body[0]]
    ahead = back if behind in onward else onward  # a snake may go round either way, but not turn on the spot
    ahead = sorted(ahead, key=lambda cell: (cell != fruit, cell in body[:-1]))
    moves = {cell: action for action, cell in living_moves(game)}
    return next((moves[cell] for cell in ahead if cell in moves), next(iter(moves.values()), 0))


PLAYERS: dict[str, Callable[[Game], int]] = {
    "random": random_player,
    "greedy": greedy_player,
    "shortest": shortest_path_player,
    "hamiltonian": hamiltonian_player,
}


def play(player: str, seed: int, **options: Any) -> int:
    """Return a player's score in the episode `seed`, of `Game`'s options; without a limit, starvation is 2 size^2."""
    choose = PLAYERS[one_of("player", player, tuple(PLAYERS))]
    if not (options.get("starvation") or options.get("max_steps")):
        options["starvation"] = 2 * options.get("size", 10) ** 2
    game = Game(seed=seed, **options)
    while not game.over:
        game.step(choose(game))
    return game.score


@lru_cache(maxsize=1 << 16)  # a report and the next run in this process ask for the same
def score_of(player: str, options: Any, seed: int) -> int:
    """Return the score of a player in the episode `seed` of an experiment's options."""
    return play(player, seed, **options.of_rules)


def living_moves(game: Game) -> list[tuple[int, Cell]]:
    """Return (action, the head's next cell) for every action that is not fatal at once, lowest action first."""
    body, near = game.body, neighbours_on(game.size)
    row, column = body[0]
    stays = body if game.tail == "fatal" or len(body) == 1 else body[:-1]
    first = game.heading + 3 if game.actions == "relative" else 0
    moves = [MOVES[(first + action) % 4] for action in range(ACTIONS[game.actions])]
    cells = enumerate((row + down, column + right) for down, right in moves)
    return [(action, cell) for action, cell in cells if cell in near and cell not in stays]


def path_to_fruit(game: Game) -> Body:
    """Return the cells of a shortest path from the head (excluded) to the fruit, or an empty list."""
    late = int(game.tail == "fatal")
    body, head, fruit = game.body, game.head, game.fruit
    free_after = {cell: place + late for place, cell in enumerate(reversed(body), start=1)}
    frontier = [cell for _, cell in living_moves(game)]
    came_from = {head: head, **dict.fromkeys(frontier, head)}  # no path returns to its start
    neighbours, step = neighbours_on(game.size), 1
    while frontier and fruit not in came_from:
        step += 1
        reached = []
        for cell in frontier:
            for ahead in neighbours[cell]:
                if ahead not in came_from and free_after.get(ahead, 0) <= step:
                    came_from[ahead] = cell
                    reached.append(ahead)
        frontier = reached
    path: Body = []
    place = fruit
    while place in came_from and place != head:
        path.append(place)
        place = came_from[place]
    return path[::-1]


def can_escape(game: Game, trail: Body) -> bool:
    """Return whether the tail is reachable after eating the fruit at the start of `trail`, or the board is full."""
    body = trail[: len(game.body) + 1]
    if len(body) == game.size**2:
        return True
    stays = game.tail == "fatal" and len(body) > 2  # the tail's cell must not be entered in the next step
    return reachable(game, body).get(body[-1], 0) > int(stays)


def reachable(game: Game, body: Body) -> dict[Cell, int]:
    """Return the distance from the head to every reachable cell, with only the tail of the body free."""
    blocked, neighbours = set(body[:-1]), neighbours_on(game.size)
    distances = {body[0]: 0}
    queue = deque([body[0]])
    while queue:
        cell = queue.popleft()
        for ahead in neighbours[cell]:
            if ahead not in distances and ahead not in blocked:
                distances[ahead] = distances[cell] + 1
                queue.append(ahead)
    return distances


@lru_cache
def neighbours_on(size: int) -> dict[Cell, list[Cell]]:
    """Return the neighbours of every cell on the board: up, right, down, left."""
    cells = [(row, column) for row in range(size) for column in range(size)]
    around = {cell: [(cell[0] + down, cell[1] + right) for down, right in MOVES] for cell in cells}
    return {cell: [near for near in around[cell] if near in around] for cell in cells}


@lru_cache
def tour(size: int) -> dict[Cell, tuple[Body, Body]]:
    """Return (next cells, previous cells) of every cell on a closed tour of the board.

    Along the top row to the left, down and up the columns to the right. On an odd board the last two columns are
    climbed row by row, and two cells take turns: the top right corner, and its neighbour that the climb ends with.
    """
    last = size - 1
    way: Body = [(0, column) for column in range(last, -1, -1)]
    columns = size if size % 2 == 0 else size - 2
    for column in range(columns):
        way += [(row if column % 2 == 0 else size - row, column) for row in range(1, size)]
    for row in range(last, 0, -1) if size % 2 else ():
        way += [(row, last - 1), (row, last)] if (last - row) % 2 == 0 else [(row, last), (row, last - 1)]
    stops = [[cell] for cell in way]
    if size % 2:
        stops = [*stops[1:-1], [(1, last - 1), (0, last)]]
    after = [*stops[1:], stops[0]]
    before = [stops[-1], *stops[:-1]]
    return {cell: (onward, back) for stop, onward, back in zip(stops, after, before, strict=True) for cell in stop}
