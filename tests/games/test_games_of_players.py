"""Games of several players against independent ones, and the errors of a game that breaks their contract."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.errors import ConfigurationError
from evo.games.catalogue import connect_four, duel, pong, tictactoe
from evo.games.plain import PlainGame
from evo.games.primitives import Random, clock_of
from evo.records import GOES_ON
from evo.testing import game_tests
from tests.helpers.sampling import sampled

Turn = tuple[PlainGame, int, np.ndarray, int]


def plain(module: Any, **options: Any) -> PlainGame:
    game: PlainGame = module.make(module.Options(id=module.__name__.rpartition(".")[2], **options)).plain()
    return game


def played(module: Any, episodes: int) -> Iterator[Turn]:
    """Yield random moves before they are played: the game, the player, the position before, and the action."""
    random = np.random.default_rng(5)
    game = plain(module)
    for seed in range(episodes):
        game.begin(0, seed)
        status = GOES_ON
        while status == GOES_ON:
            action = int(random.choice(np.flatnonzero(game.mask(0))))
            yield game, int(game.state.seats_turn[0]), game.observe(0), action
            _, status = game.step(0, action)
        yield game, -1, game.observe(0), -1


def winner(board: np.ndarray, count: int) -> int:
    """Return who has `count` in a row on a board of 0, 1 and 2; 0: nobody."""
    lines = [*board, *board.T]
    for turned in (board, board[::-1]):
        lines += [turned.diagonal(offset) for offset in range(-board.shape[0], board.shape[1])]
    for line in lines:
        for player in (1, 2):
            if str(player) * count in "".join(map(str, line)):
                return player
    return 0


@pytest.mark.parametrize(("module", "count"), sampled([(tictactoe, 3), (connect_four, 4)]))
def test_rows_win_as_on_a_board_of_numbers(module: Any, count: int) -> None:
    board: np.ndarray | None = None
    ends = set()
    for game, player, seen, action in played(module, 150):
        if board is None:
            board, moves = np.zeros(game.shape[:2], int), 0
        if player < 0:  # what the last one who moved has won
            won = winner(board, count)
            returns, seat = game.state.seats_returns[0].tolist(), int(game.state.seats_mine[0])
            assert returns == {0: [0, 0], 1: [1, -1], 2: [-1, 1]}[won]
            assert won or (board > 0).all()
            assert game.metrics(0).tolist() == [int(won == seat + 1), int(won == 2 - seat), seat]
            ends.add(won)
            board = None
            continue
        assert winner(board, count) == 0
        assert player == moves % 2
        np.testing.assert_array_equal(seen, np.stack([board == player + 1, board == 2 - player], axis=-1))
        if module is tictactoe:
            assert board.flat[action] == 0
            board.flat[action] = player + 1
        else:
            row = int(np.flatnonzero(board[:, action] == 0)[-1])
            board[row, action] = player + 1
        moves += 1
    assert ends >= ({0, 1, 2} if module is tictactoe else {1, 2})


def test_a_move_that_the_mask_rules_out_loses() -> None:
    for module, same in ((tictactoe, 2), (connect_four, 7)):
        game = plain(module)
        game.begin(0, 1)
        for _ in range(same - 1):
            assert game.step(0, 3)[1] == GOES_ON
        assert game.mask(0)[3] == 0
        mover = int(game.state.seats_turn[0])
        assert game.step(0, 3)[1] != GOES_ON
        assert game.state.seats_returns[0, mover] == -1
        assert game.state.seats_returns[0, 1 - mover] == 1


class Snakes:
    """The duel with deques of cells."""

    def __init__(self, size: int) -> None:
        self.size, middle = size, size // 2
        first = [(middle + 1, 1), (middle, 1), (middle - 1, 1)]
        second = [(middle - 2, size - 2), (middle - 1, size - 2), (middle, size - 2)]
        self.bodies = [deque(first), deque(second)]  # the tail first
        self.ticks = 0

    def move(self, actions: list[int], fruit: tuple[int, int], ticks: int) -> tuple[int, bool]:
        """Return who wins, 1, -1 or 0, and whether it is over."""
        heads = []
        for body, action in zip(self.bodies, actions, strict=True):
            row, column = body[-1]
            down, right = ((-1, 0), (0, 1), (1, 0), (0, -1))[action]
            heads.append((row + down, column + right))
            if heads[-1] != fruit:
                body.popleft()
        lost = []
        for head in heads:
            outside = not all(0 <= part < self.size for part in head)
            lost.append(outside or any(head in body for body in self.bodies) or heads[0] == heads[1])
        for body, head in zip(self.bodies, heads, strict=True):
            body.append(head)
        self.ticks += 1
        if any(lost):
            return int(lost[1]) - int(lost[0]), True
        longer = len(self.bodies[0]) - len(self.bodies[1])
        return (longer > 0) - (longer < 0), self.ticks == ticks


def test_the_duel_is_that_of_two_deques() -> None:
    game, ends = plain(duel, size=6, ticks=40), []
    choose, clock = (duel.shortest, duel.greedy), clock_of(1)
    for seed in range(60):
        game.begin(0, seed)
        clock.seed[0] = seed
        snakes, over = Snakes(6), False
        while not over:
            fruit = divmod(int(game.state.fruit[0]), 6)
            assert all(fruit not in body for body in snakes.bodies)
            for player, body in enumerate(snakes.bodies):
                for cell in range(36):
                    assert (game.state.free_at[0, player, cell] > game.state.tick[0]) == (divmod(cell, 6) in body)
            actions = [int(choose[(p + seed) % 2](game.state, game.rules, 0, p, Random(clock, 0))) for p in range(2)]
            assert not game.state.distance.any()
            if seed % 3 == 0:
                actions = [(action + (snakes.ticks > 4) * p) % 4 for p, action in enumerate(actions)]
            assert game.step(0, actions[0]) == (0.0, GOES_ON)
            reward, status = game.step(0, actions[1])
            winner, over = snakes.move(actions, fruit, 40)
            assert over == (status != GOES_ON)
        assert reward == (winner if game.state.seats_mine[0] == 0 else -winner)
        assert game.state.seats_returns[0].tolist() == [winner, -winner]
        ends.append(winner)
    assert set(ends) == {1, 0, -1}


def test_pong_is_the_same_from_both_sides() -> None:
    """A game whose ball and paddles are mirrored gives the mirrored game."""
    one, other = plain(pong, points=3), plain(pong, points=3)
    for seed in range(20):
        one.begin(0, seed)
        other.begin(0, seed)
        other.state.seats_mine[0] = 1 - one.state.seats_mine[0]
        other.state.ball[0, 0] = 2.0 - one.state.ball[0, 0]
        other.state.speed[0, 0] = -one.state.speed[0, 0]
        for step in range(60):
            if one.state.served[0] > 1:
                break
            actions = [(seed + step) // 3 % 3, (seed * step) // 5 % 3]
            seen = one.observe(0)
            one.step(0, actions[0])
            other.step(0, actions[1])
            np.testing.assert_allclose(other.observe(0), seen, atol=1e-6)
            assert one.step(0, actions[1])[0] == other.step(0, actions[0])[0]


def test_paddles_and_the_ball_of_pong_move_as_far_as_their_options_say() -> None:
    game = plain(pong, paddle_speed=0.1, ball_speed=0.3)
    game.begin(0, 1)
    middle = float(game.state.ball[0, 0])
    game.step(0, 0)
    game.step(0, 2)
    assert game.state.paddle[0].tolist() == pytest.approx([0.4, 0.6])
    assert abs(float(game.state.ball[0, 0]) - middle) == pytest.approx(0.3)


def test_who_follows_the_ball_loses_no_point_to_who_stands_still() -> None:
    game = plain(pong, points=5, ball_speed=0.02)
    for seed in range(5):
        game.begin(0, seed)
        status = GOES_ON
        while status == GOES_ON:
            follower = int(game.state.seats_turn[0]) == 0
            action = pong.follow(game.state, game.rules, 0, 0, None) if follower else 1
            _, status = game.step(0, action)
        assert game.state.seats_returns[0, 0] >= 0


BROKEN = {
    "turn returned 2, and players are 0 to 1": ("return state.moves[b] & 1", "return 2"),
    "the reward nan, and it must be a number within two million": (
        "rewards[player], rewards[1 - player] = (options.loss, 1.0) if lost else (1.0, options.loss)",
        "rewards[1] = float('nan')",
    ),
    "step takes (state, options, b, action, random), and must take (state, options, b, action, rewards, random)": (
        "def step(state, options, b, action, rewards, random)", "def step(state, options, b, action, random)",
    ),
    "observe takes (state, options, b, out), and must take (state, options, b, player, out)": (
        "def observe(state, options, b, player, out)", "def observe(state, options, b, out)",
    ),
    "the baseline perfect must take (state, options, b, player, random)": (
        "def perfect(state, options, b, player, random)", "def perfect(state, options)",
    ),
    "turn failed outside of its arrays (broken.py:53)": ("return state.moves[b] & 1", "return state.moves[b + 9] & 1"),
    "as its end: False, True, or TRUNCATED are known": (
        "(1.0, options.loss)\n    return True\n", "(1.0, options.loss)\n    return 1.0, True\n",
    ),
    "players is 9, and must be 1 to 8": ("players=2", "players=9"),
    "continuous: only games of one player have these": ("players=2", "players=2, continuous=True"),
    "step (broken.py:74) uses strange, which is not defined": ("rewards[1 - player] = ", "rewards[strange] = "),
}  # fmt: skip


@pytest.mark.parametrize("told", BROKEN)
def test_who_breaks_the_contract_is_told_how(told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(tictactoe.__file__).read_text()
    assert BROKEN[told][0] in source
    (tmp_path / "broken.py").write_text(source.replace(*BROKEN[told], 1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        game_tests("broken").environment.check()


@pytest.mark.long
def test_the_examples_of_the_page_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "several_players.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        if "pettingzoo" not in block or find_spec("pettingzoo"):
            exec(block, {})


@pytest.mark.parametrize("moves", [(4, 0, 3, 1, 5), (4, 4)])
def test_a_loss_of_tic_tac_toe_may_weigh_more(moves: tuple[int, ...]) -> None:
    game = tictactoe.make(tictactoe.Options(id="tictactoe", loss=-3.0)).plain()
    game.begin(0, 1)
    assert [bool(game.step(0, move)[1]) for move in moves] == [False] * (len(moves) - 1) + [True]
    assert game.state.seats_returns[0].tolist() == [1.0, -3.0]


def test_tic_tac_toe_may_begin_behind_random_moves() -> None:
    game, boards = plain(tictactoe, opening=4), set()
    for seed in range(200):
        game.begin(0, seed)
        crosses, noughts = map(int, game.state.stones[0])
        moves = crosses.bit_count() + noughts.bit_count()
        assert crosses & noughts == 0
        assert moves == game.state.moves[0]
        assert crosses.bit_count() - noughts.bit_count() == game.state.seats_turn[0] == moves % 2
        boards.add((moves, crosses, noughts))
    assert {moves for moves, *_ in boards} == {0, 1, 2, 3, 4}
    assert len({board for board in boards if board[0] == 1}) == 9


def test_a_centred_duel_shows_the_same_board_around_the_own_head() -> None:
    random, whole, centred = np.random.default_rng(1), plain(duel), plain(duel, centred=True)
    for seed in range(20):
        whole.begin(0, seed)
        centred.begin(0, seed)
        status = GOES_ON
        while status == GOES_ON:
            row, column = divmod(int(centred.state.head[0, centred.state.seats_turn[0]]), 8)
            seen = centred.observe(0)
            assert seen.shape == (9, 9, 5)
            assert seen[4, 4, 1] == 1.0
            expected = np.zeros_like(seen)
            expected[:8, :8, 1:] = whole.observe(0)[..., 1:]
            expected[8, :, 0] = expected[:, 8, 0] = 1.0
            assert np.array_equal(np.roll(seen, (row - 4, column - 4), (0, 1)), expected)
            action = int(random.integers(4))
            _, status = centred.step(0, action)
            assert whole.step(0, action)[1] == status


@pytest.mark.parametrize(("second", "returns"), [(1, [-0.5, -0.5]), (2, [-1.0, 1.0])])
def test_two_snakes_that_die_at_once_may_both_lose(second: int, returns: list[float]) -> None:
    game = plain(duel, crash=-0.5)
    game.begin(0, 1)
    assert [bool(game.step(0, move)[1]) for move in (3, second, 3, second)] == [False, False, False, True]
    assert game.state.seats_returns[0].tolist() == returns
