"""What a player sees, held equal to a slow NumPy drawing of the same position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.errors import TypingError
from numpy.typing import NDArray

from evo.games.game import OptionError
from snake.rules import MASKS, OBSERVATIONS, Game
from tests.helpers.sampling import sampled
from tests.snake.boards import Boards
from tests.snake.reference import Reference

GUARD = 100_000  # values before and behind an observation, more than any wrong place is away


def drawn(state: dict[str, Any], observation: str, window: int = 0) -> NDArray[np.float32]:
    """Draw an observation cell by cell from the state of a game.  # [H, W, C]"""
    size, body = state["size"], state["body"]
    head, inside = np.zeros((size, size), np.float32), np.zeros((size, size), np.float32)
    age, fruit = np.zeros((size, size), np.float32), np.zeros((size, size), np.float32)
    head[body[0]] = 1
    for cell in body[1:]:
        inside[cell] = 1
    for place, cell in enumerate(body):
        steps = np.float32(len(body) - place)
        age[cell] = min(steps / np.float32(50), 1) if observation == "local" else steps / np.float32(size * size)
    if state["fruit"] is not None:
        fruit[state["fruit"]] = 1
    starvation = state["starvation"]
    quotient = np.float32(state["hunger"]) / np.float32(starvation) if starvation else np.float32(0)
    hunger = np.full((size, size), quotient, np.float32)
    if observation == "frame":
        return (head + 2 * fruit + 3 * inside)[..., None]
    if observation == "features":
        return features(state)
    if observation == "planes":
        return np.stack([head, inside, age, fruit, hunger], -1)
    ego = np.rot90(np.stack([head, inside, age, fruit, hunger, np.ones_like(head)], -1), state["heading"])
    if observation == "ego":
        return ego
    half = (window or (7 if observation == "local" else 2 * size - 1)) // 2
    (row,), (column,) = np.nonzero(ego[:, :, 0])
    around = np.pad(ego, ((half, half), (half, half), (0, 0)))
    seen = around[row : row + 2 * half + 1, column : column + 2 * half + 1]
    if observation == "local" and fruit.any():
        (down,), (right,) = np.nonzero(ego[:, :, 3])
        seen[:, :, 3] = 0
        seen[half + np.clip(down - row, -half, half), half + np.clip(right - column, -half, half), 3] = 1
    wall = 1 - seen[:, :, 5]
    return np.stack([wall, seen[:, :, 1], seen[:, :, 2], seen[:, :, 3], np.full_like(wall, quotient)], -1)


def features(state: dict[str, Any]) -> NDArray[np.float32]:
    """Return the features of the state of a game, on a board that is turned so that the head looks up.  # [1, 1, 12]"""
    size, body, turns = state["size"], state["body"], state["heading"]

    def turned(cell: tuple[int, int]) -> tuple[int, int]:
        for _ in range(turns):  # counter-clockwise
            cell = (size - 1 - cell[1], cell[0])
        return cell

    snake, fruit = [turned(cell) for cell in body], None if state["fruit"] is None else turned(state["fruit"])
    (row, column), last = snake[0], snake[-1]
    deadly = set(snake) - ({last} if state["tail"] == "legal" and len(snake) > 1 else set())
    rays = [
        [(row, at) for at in range(column - 1, -1, -1)],
        [(at, column) for at in range(row - 1, -1, -1)],
        [(row, at) for at in range(column + 1, size)],
    ]
    blocked = [not ray or ray[0] in deadly for ray in rays]
    free = [next((k for k, cell in enumerate(ray) if cell in snake), len(ray)) for ray in rays]
    food = (0, 0) if fruit is None else (fruit[1] - column, row - fruit[0])
    counts = np.array([*free, *food, last[1] - column, row - last[0]], np.float32) / np.float32(size)
    hunger = np.float32(state["hunger"]) / np.float32(state["starvation"]) if state["starvation"] else np.float32(0)
    length = np.float32(len(snake)) / np.float32(size * size)
    return np.array([*blocked, *counts, length, hunger], np.float32).reshape(1, 1, 12)


@st.composite
def walks(draw: st.DrawFn, **options: Any) -> Game:
    """A board with a snake that came about by a random walk, so of any legal form, on the way to a fruit."""
    size = draw(st.integers(4, 20))
    walk = [(draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1)))]
    for turn in draw(st.lists(st.integers(0, 3), max_size=3 * size)):
        row, column = walk[-1]
        ahead = [(row - 1, column), (row, column + 1), (row + 1, column), (row, column - 1)]
        free = [cell for cell in ahead if cell not in walk and min(cell) >= 0 and max(cell) < size]
        if not free:
            break
        walk.append(free[turn % len(free)])
    starvation = draw(st.sampled_from([0, 1, 7, 200]))
    return Game(
        size=size,
        body=walk[::-1],
        seed=draw(st.integers(0, 2**64 - 1)),
        starvation=starvation,
        tail=draw(st.sampled_from(["legal", "fatal"])),
        actions=draw(st.sampled_from(["absolute", "relative"])),
        heading=draw(st.integers(0, 3)) if len(walk) == 1 else None,
        hunger=draw(st.integers(0, max(starvation - 1, 0))),
    )


def guarded(shape: tuple[int, ...]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return an array to write to, and the flat one that it is the middle of; both are NaN."""
    size = int(np.prod(shape))
    around = np.full(size + 2 * GUARD, np.nan, np.float32)
    return around[GUARD : GUARD + size].reshape(shape), around


def loaded(game: Game, observation: str = "planes", **options: Any) -> Boards:
    """Return a board that holds the game."""
    rules = ("size", "tail", "starvation", "max_steps", "actions", "rewards")
    options |= {name: game.state()[name] for name in rules}
    if observation in ("planes", "frame"):
        boards = Boards(observation=observation, **options)
    else:  # these have relative actions alone
        boards = Boards(observation=observation, **{**options, "actions": "relative"})
    boards.load(0, {**game.state(), "actions": boards.options.actions})
    return boards


def rows_of(boards: Boards) -> NDArray[np.float32]:
    """Return what every board shows.  # [B, H, W, C]"""
    out = np.full((len(boards.state.length), *boards.game.shape), np.nan, np.float32)
    for b in range(len(out)):
        boards.observe(b, out[b])
    return out


@given(game=walks(), observation=st.sampled_from(OBSERVATIONS), data=st.data())
def test_an_observation_is_the_slow_drawing_of_the_position(game: Game, observation: str, data: st.DataObject) -> None:
    sizes = [0, 1, 3, game.size // 2 * 2 - 1, 2 * game.size - 1, 2 * game.size + 1, 2 * game.size + 9]
    window = data.draw(st.sampled_from(sizes))
    boards = loaded(game, observation, window=window)
    expected = drawn(game.state(), observation, window)
    alone, around = guarded(boards.game.shape)
    boards.observe(0, alone)
    np.testing.assert_array_equal(alone, expected)
    assert np.isnan(around).sum() == len(around) - alone.size
    for lanes in (1, 3, 4, 8, 16):
        out, around = guarded((*boards.game.shape, lanes))
        boards.observe_lanes(np.zeros(lanes, np.int64), out)
        for lane in range(lanes):
            np.testing.assert_array_equal(out[..., lane], expected)
        assert np.isnan(around).sum() == len(around) - out.size


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("lanes", sampled([1, 4, 7, 8, 16, 20], 0, 3, 5))
def test_every_lane_shows_its_own_board_along_whole_games(observation: str, lanes: int) -> None:
    rules: dict[str, Any] = {"size": 7, "starvation": 20, "actions": "relative", "start_length": 3}
    boards = Boards(lanes, observation=observation, **rules)
    games = [Game(seed=s, **rules) for s in range(lanes)]
    for b in range(lanes):
        boards.begin(b, b)
    index = np.arange(lanes)[::-1].copy()
    out = np.full((*boards.game.shape, lanes), np.nan, np.float32)
    for step in range(60):
        boards.observe_lanes(index, out)
        many = rows_of(boards)
        for lane in range(lanes):
            expected = drawn(games[index[lane]].state(), observation)
            np.testing.assert_array_equal(out[..., lane], expected)
            np.testing.assert_array_equal(many[index[lane]], expected)
        for b, game in enumerate(games):
            allowed = game.mask("fatal")
            action = [a for a in range(3) if allowed[a]][(step * 7 + b) % sum(allowed)]
            game.step(action)
            boards.step(b, action)
            if game.over:
                seed = 1000 * step + b
                games[b] = Game(seed=seed, **rules)
                boards.begin(b, seed)


def test_an_array_that_is_not_in_c_order_is_refused() -> None:
    boards = loaded(Game(size=5, seed=1))
    turned = np.zeros((5, 5, 5), np.float32).transpose(1, 0, 2)
    with pytest.raises(TypingError, match="an array in C order is needed"):
        boards.observe(0, turned)
    assert not turned.any()


@pytest.mark.parametrize("observation", sampled(OBSERVATIONS))
def test_every_cell_of_every_size_of_board_is_seen_in_its_place(observation: str) -> None:
    for size in range(4, 65):
        way = [(row, column if row % 2 == 0 else size - 1 - column) for row in range(size) for column in range(size)]
        game = Game(size=size, body=way[:-1], starvation=9, actions="relative")
        np.testing.assert_array_equal(rows_of(loaded(game, observation))[0], drawn(game.state(), observation))


@settings(deadline=None, max_examples=20)
@given(game=walks(), observation=st.sampled_from(OBSERVATIONS))
def test_plain_python_shows_and_allows_the_same(game: Game, observation: str) -> None:
    boards = loaded(game, observation, mask="fatal")
    plain = boards.environment.plain()
    for mine, theirs in zip((*plain.state, *plain.clock), (*boards.state, *boards.clock), strict=True):
        mine[...] = theirs
    np.testing.assert_array_equal(plain.observe(0), rows_of(boards)[0])
    assert plain.mask(0).tolist() == boards.mask(0)


@given(game=walks(), kind=st.sampled_from(MASKS))
def test_the_compiled_mask_is_the_readable_one(game: Game, kind: str) -> None:
    assert loaded(game, mask=kind).mask(0) == Reference(**game.state()).mask(kind) == game.mask(kind)


def test_the_fatal_mask_allows_everything_where_nothing_is_left() -> None:
    coil = [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0)]
    assert Game(size=4, body=coil, fruit=(3, 3)).mask("fatal") == [1, 1, 1, 1]
    assert Game(size=4, body=coil[:4], fruit=(3, 3)).mask("fatal") == [0, 0, 1, 0]
    assert Game(size=4, body=coil[:4], fruit=(3, 3), tail="fatal").mask("fatal") == [1, 1, 1, 1]


def test_the_reverse_mask_forbids_the_neck_only() -> None:
    assert Game(body=[(5, 5), (5, 4)], fruit=(0, 0)).mask("reverse") == [1, 1, 1, 0]
    assert Game(body=[(5, 5)], fruit=(0, 0)).mask("reverse") == [1, 1, 1, 1]
    assert Game(body=[(5, 5), (5, 4)], fruit=(0, 0), actions="relative").mask("reverse") == [1, 1, 1]


def shape(observation: str, size: int, window: int = 0) -> tuple[int, ...]:
    return Boards(observation=observation, size=size, window=window, actions="relative").environment.shape


def test_shapes_and_their_refusals() -> None:
    assert [shape(name, 10) for name in OBSERVATIONS] == [
        (10, 10, 1), (10, 10, 5), (10, 10, 6), (19, 19, 5), (1, 1, 12), (7, 7, 5),
    ]  # fmt: skip
    assert shape("window", 10, 7) == (7, 7, 5)
    with pytest.raises(OptionError, match="not an odd number"):
        shape("window", 10, 8)
    assert shape("window", 10, 127) == (127, 127, 5)
    with pytest.raises(OptionError, match="window: must be at most 127"):
        shape("window", 10, 129)
    with pytest.raises(OptionError, match='"frame", "planes", "ego", "window"'):
        shape("pixels", 10)
