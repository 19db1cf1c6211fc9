"""CartPole and Acrobot against Gymnasium's own, and 2048 against a slow one that turns its board."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from evo.games.catalogue import acrobot, cartpole, game_2048
from evo.games.plain import PlainGame
from evo.randomness.streams import Purpose, draw
from evo.records import GOES_ON, TERMINATED, TRUNCATED

ULP = float(np.finfo(np.float32).eps)


def plain(module: Any, **options: Any) -> PlainGame:
    game: PlainGame = module.make(module.Options(id=module.__name__.rpartition(".")[2], **options)).plain()
    return game


def theirs(name: str) -> tuple[Any, Any]:
    """Return one of Gymnasium's environments, with its limit of steps, and the same one without wrappers."""
    env = gymnasium.make(name)
    env.reset(seed=0)
    return env, env.unwrapped


def state_of(game: PlainGame) -> np.ndarray:
    return np.array([float(part[0]) for part in game.state])


def balancing(state: np.ndarray) -> int:
    return int(state[2] + 0.3 * state[3] + 0.02 * state[0] + 0.1 * state[1] > 0)


def pumping(state: np.ndarray) -> int:
    return 2 if state[3] > 0 else 0


def at_random(seed: int, actions: int) -> Callable[[np.ndarray], int]:
    random = np.random.default_rng(seed)
    return lambda state: int(random.integers(actions))


def test_cartpole_differs_from_gymnasiums_by_its_sine_alone() -> None:
    """Over whole episodes: what the last bit of a sine changes stays below 1e-12."""
    game, (env, inner) = plain(cartpole), theirs("CartPole-v1")
    lengths, ends = [], set()
    for seed in range(60):
        choose = balancing if seed < 3 else at_random(seed, 2)
        env.reset()
        game.begin(0, seed)
        assert np.abs(state_of(game)).max() <= 0.05
        inner.state, status, length = state_of(game), GOES_ON, 0
        while status == GOES_ON:
            action = choose(state_of(game))
            reward, status = game.step(0, action)
            seen, their_reward, terminated, truncated, _ = env.step(action)
            length += 1
            np.testing.assert_allclose(state_of(game), inner.state, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(game.observe(0), seen, rtol=ULP, atol=1e-12)
            assert (reward, status) == (their_reward, TERMINATED if terminated else TRUNCATED if truncated else GOES_ON)
        ends.add(status)
        lengths.append(length)
    assert ends == {TERMINATED, TRUNCATED}
    assert max(lengths) == 500


def test_acrobot_differs_from_gymnasiums_by_its_sine_alone() -> None:
    """Step by step, each from the same state: in this chaotic game every difference would grow."""
    game, (env, inner) = plain(acrobot), theirs("Acrobot-v1")
    ends = set()
    for seed in range(6):
        choose = pumping if seed < 4 else at_random(seed, 3)
        env.reset()
        game.begin(0, seed)
        assert np.array_equal(state_of(game), state_of(game).astype(np.float32))
        assert np.abs(state_of(game)).max() <= 0.1
        status = GOES_ON
        while status == GOES_ON:
            inner.state = before = state_of(game)
            action = choose(before)
            reward, status = game.step(0, action)
            seen, their_reward, terminated, truncated, _ = env.step(action)
            np.testing.assert_allclose(state_of(game), inner.state, rtol=1e-13, atol=1e-13)
            np.testing.assert_allclose(game.observe(0), seen, rtol=ULP, atol=1e-13)
            assert (reward, status) == (their_reward, TERMINATED if terminated else TRUNCATED if truncated else GOES_ON)
        ends.add(status)
    assert ends == {TERMINATED, TRUNCATED}


def test_acrobot_wraps_angles_and_bounds_spins_as_gymnasium_does() -> None:
    game, (_, inner) = plain(acrobot), theirs("Acrobot-v1")
    random, largest = np.random.default_rng(0), np.array([math.pi, math.pi, acrobot.FASTEST_1, acrobot.FASTEST_2])
    wrapped = bounded = ended = 0
    for number in range(1500):
        inner.state = before = random.uniform(-largest, largest)
        for part, value in zip(game.state, before, strict=True):
            part[0] = value
        reward, status = game.step(0, number % 3)
        _, their_reward, terminated, _, _ = inner.step(number % 3)
        np.testing.assert_allclose(state_of(game), inner.state, rtol=1e-11, atol=1e-11)
        assert (reward, status == TERMINATED) == (their_reward, terminated)
        game.clock.steps[0] = 0
        wrapped += int((np.abs(state_of(game) - before)[:2] > math.pi).any())
        bounded += int((np.abs(state_of(game)) == largest)[2:].any())
        ended += terminated
    assert min(wrapped, bounded, ended) > 100


def turned(board: list[list[int]], quarters: int) -> list[list[int]]:
    """Turn a board to the left."""
    for _ in range(quarters):
        board = [list(line) for line in zip(*board, strict=True)][::-1]
    return board


class Slow2048:
    """A board of lists of numbers, slid to the left only: it is turned before and after."""

    def __init__(self, seed: int) -> None:
        self.seed, self.drawn, self.board = seed, 0, [[0] * 4 for _ in range(4)]
        self.add()
        self.add()

    def below(self, n: int) -> int:
        self.drawn += 1
        return draw(self.seed, self.drawn - 1, n, int(Purpose.GAME))

    def add(self) -> None:
        number = 4 if self.below(10) == 0 else 2
        empty = [(y, x) for y in range(4) for x in range(4) if self.board[y][x] == 0]
        y, x = empty[self.below(len(empty))]
        self.board[y][x] = number

    def slid(self, action: int) -> tuple[list[list[int]], int]:
        """Return the board after an action, without a new tile, and the sum of merged tiles."""
        lines, total = [], 0
        for line in turned(self.board, action + 1):
            tiles, done = [tile for tile in line if tile], []
            while tiles:
                tile = tiles.pop(0)
                if tiles[:1] == [tile]:
                    tile += tiles.pop(0)
                    total += tile
                done.append(tile)
            lines.append(done + [0] * (4 - len(done)))
        return turned(lines, 3 - action), total

    def allowed(self) -> list[int]:
        return [int(self.slid(action)[0] != self.board) for action in range(4)]

    def step(self, action: int) -> int:
        board, total = self.slid(action)
        if board != self.board:
            self.board = board
            self.add()
        return total


@pytest.mark.parametrize("seed", range(8))
def test_2048_equals_a_slow_one(seed: int) -> None:
    game, slow, random = plain(game_2048), Slow2048(seed), np.random.default_rng(seed)
    game.begin(0, seed)
    score, status, blocked = 0, GOES_ON, 0
    while status == GOES_ON:
        exponents = [number.bit_length() - 1 if number else 0 for line in slow.board for number in line]
        assert game.state.board[0].tolist() == exponents
        assert game.mask(0).tolist() == slow.allowed()
        seen = game.observe(0)
        assert seen.sum() == 16
        assert seen.argmax(axis=2).ravel().tolist() == exponents
        action = int(random.integers(4))
        blocked += not slow.allowed()[action]
        reward, status = game.step(0, action)
        assert reward == slow.step(action)
        score += int(reward)
        assert status == (GOES_ON if any(slow.allowed()) else TERMINATED)
    assert game.metrics(0).tolist() == [score, max(max(line) for line in slow.board)]
    assert blocked > 0


@pytest.mark.parametrize(
    ("line", "after", "gained"),
    [
        ([1, 1, 1, 1], [2, 2, 0, 0], 8),
        ([1, 1, 2, 0], [2, 2, 0, 0], 4),
        ([2, 0, 1, 1], [2, 2, 0, 0], 4),
        ([1, 0, 0, 1], [2, 0, 0, 0], 4),
        ([1, 2, 1, 2], [1, 2, 1, 2], 0),
        ([16, 16, 1, 0], [17, 1, 0, 0], 131072),
    ],
)
def test_2048_merges_a_tile_once_a_step(line: list[int], after: list[int], gained: int) -> None:
    board = np.array([line], np.int8)
    assert game_2048.slide(board, 0, 0, 1) == (line != after, gained)
    assert board[0].tolist() == after


def test_2048_shows_the_largest_tiles_in_the_last_plane() -> None:
    game = plain(game_2048)
    game.state.board[0] = [17, 16, 15, 14, *range(12)]
    assert game.observe(0).argmax(axis=2).ravel().tolist() == [15, 15, 15, 14, *range(12)]
    assert game.metrics(0)[1] == 131072


@pytest.mark.parametrize("module", [cartpole, acrobot, game_2048])
def test_pictures_show_what_changes(module: Any) -> None:
    game = plain(module)
    game.begin(0, 3)
    before = game.picture(0)
    for action in (0,) * 9 + (1,):
        game.step(0, action)
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert (before != game.picture(0)).any()
