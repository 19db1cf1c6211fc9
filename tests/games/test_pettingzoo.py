"""PettingZoo's interfaces by its own tests, and rules held to its games and to those of pgx, step by step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="the extra `pettingzoo` is not installed")

from evo.games import pettingzoo as ours

GAMES, TOGETHER = ("tictactoe", "connect_four", "duel", "pong"), ("duel", "pong")
KNOWN = {  # of observations that are dictionaries with a mask, and of boards that are empty at first
    "Observation is not a NumPy array",
    "Observation numpy array is all zeros.",
    "Observation space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
}
PLAYED = 1000  # games that are held to those of others


@pytest.fixture
def checks() -> Iterator[Any]:
    """Yield PettingZoo's own tests, which may warn of what it has in its own games."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        from pettingzoo import test  # imports games in a way that it calls deprecated

        warnings.simplefilter("always")
        yield test
    assert {str(one.message) for one in caught} <= KNOWN


@pytest.mark.long
@pytest.mark.parametrize("game", GAMES)
def test_games_pass_the_tests_of_pettingzoo(game: str, checks: Any) -> None:
    checks.api_test(ours.env(f"evo/{game}-v0"), 300)
    checks.seed_test(partial(ours.env, f"evo/{game}-v0"), 50)
    if game in TOGETHER:
        checks.parallel_api_test(ours.parallel_env(f"evo/{game}-v0"), 300)
        checks.parallel_seed_test(partial(ours.parallel_env, f"evo/{game}-v0"), 50)


class Move(NamedTuple):
    """A move, and what was known before it."""

    seen: np.ndarray
    mask: np.ndarray
    action: int


@cache
def random_games(game: str) -> list[tuple[list[Move], list[float]]]:
    """Return the moves of games of random players, with the last rewards of both."""
    random, env, played = np.random.default_rng(1), ours.env(f"evo/{game}-v0"), []
    for seed in range(PLAYED):
        env.reset(seed=seed)
        moves: list[Move] = []
        while not any(env.terminations.values()):
            assert env.agent_selection == env.possible_agents[len(moves) % 2]
            seen, mask = (env.last()[0][name] for name in ("observation", "action_mask"))
            moves.append(Move(seen, mask, int(random.choice(np.flatnonzero(mask)))))
            env.step(moves[-1].action)
        played.append((moves, [env.rewards[agent] for agent in env.possible_agents]))
    assert {rewards[0] for _, rewards in played} >= {1.0, -1.0}
    return played


@pytest.mark.long
@pytest.mark.parametrize("game", ["tictactoe", "connect_four"])
def test_rules_are_those_of_pettingzoo(game: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its pictures' library
        module = pytest.importorskip(f"pettingzoo.classic.{game}.{game}", reason="pettingzoo[classic] is missing")
        theirs = module.env()
    for moves, rewards in random_games(game):
        theirs.reset()
        for move in moves:
            seen, _, terminated, truncated, _ = theirs.last()
            assert not terminated
            assert not truncated
            np.testing.assert_array_equal(seen["action_mask"], move.mask)
            np.testing.assert_array_equal(seen["observation"], move.seen)
            theirs.step(move.action)
        assert all(theirs.terminations.values())
        assert [theirs.rewards[agent] for agent in theirs.possible_agents] == rewards


@pytest.mark.long
@pytest.mark.parametrize(("game", "name"), [("tictactoe", "tic_tac_toe"), ("connect_four", "connect_four")])
def test_rules_are_those_of_pgx(game: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgx = pytest.importorskip("pgx")
        import jax

        theirs, played = pgx.make(name), random_games(game)
        step = jax.jit(jax.vmap(theirs.step))
        state = jax.jit(jax.vmap(theirs.init))(jax.random.split(jax.random.key(0), PLAYED))
        first, every = np.array(state.current_player), np.arange(PLAYED)
        lengths = np.array([len(moves) for moves, _ in played])
        for number in range(lengths.max()):
            alive = number < lengths
            np.testing.assert_array_equal(~np.array(state.terminated), alive)
            masks = np.array(state.legal_action_mask)
            moves = [one[min(number, len(one) - 1)] for one, _ in played]
            np.testing.assert_array_equal(masks[alive], np.array([move.mask for move in moves])[alive])
            np.testing.assert_array_equal(np.array(state.current_player)[alive], (first ^ number % 2)[alive])
            state = step(state, np.array([move.action for move in moves], np.int32))
            ended = lengths == number + 1
            assert np.array(state.terminated)[ended].all()
            rewards = np.array(state.rewards)
            both = np.stack([rewards[every, first], rewards[every, 1 - first]], axis=1)
            np.testing.assert_array_equal(both[ended], np.array([rewards for _, rewards in played])[ended])


def test_a_seat_gets_what_it_gets_behind_gymnasium() -> None:
    for game in GAMES:
        one, other = gymnasium.make(f"evo/{game}-v0").unwrapped, ours.env(f"evo/{game}-v0")
        _, info = one.reset(seed=3)
        other.reset(seed=3)
        mine, total, got, over, moves = f"player_{info['seat']}", 0.0, 0.0, False, 0
        while not over:
            agent, action = other.agent_selection, moves % one.action_space.n
            seen = other.observe(agent)
            seen = seen["observation"] if isinstance(seen, dict) else seen
            np.testing.assert_array_equal(seen, one.seen_by(one.player)[0])
            _, reward, terminated, truncated, info = one.step(action)
            other.step(action)
            moves, total, over = moves + 1, total + reward, terminated or truncated
            got += other.rewards[mine] if game not in TOGETHER or agent == "player_1" else 0.0
            assert other.truncations[mine] == truncated
        assert got == pytest.approx(total)
        assert other.infos[mine]["won"] == info["won"]
        assert other.infos[mine]["seat"] == int(mine[-1])


def test_an_end_before_all_have_moved_rewards_nobody() -> None:
    env = ours.parallel_env("evo/pong-v0", max_steps=5)
    env.reset(seed=1)
    for last in (False, False, True):
        _, rewards, terminations, truncations, _ = env.step({"player_0": 1, "player_1": 1})
        assert rewards == {"player_0": 0.0, "player_1": 0.0}
        assert truncations == {"player_0": last, "player_1": last}
        assert not any(terminations.values())
    assert env.agents == []


def test_wrong_calls_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="is no game of several players: call gymnasium"):
        ours.env("evo/catch-v0")
    with pytest.raises(ValueError, match="do not move simultaneously"):
        ours.parallel_env("evo/tictactoe-v0")
    with pytest.raises(ValueError, match="sized"):
        ours.env("evo/duel-v0", sized=7)
    env = ours.env("evo/tictactoe-v0")
    env.reset(seed=1)
    with pytest.raises(ValueError, match="between 0 and 8"):
        env.step(9)


@pytest.mark.parametrize("wrong", [{}, {"player_1": -1}, {"player_1": "up"}], ids=str)
def test_nothing_is_played_where_an_agent_has_no_action_or_a_wrong_one(wrong: dict[str, Any]) -> None:
    env, straight = ours.parallel_env("evo/duel-v0"), ours.parallel_env("evo/duel-v0")
    env.reset(seed=3), straight.reset(seed=3)
    with pytest.raises(ValueError, match=r"^actions: .*player_1"):
        env.step({"player_0": 1, **wrong})
    while env.agents:
        actions = dict.fromkeys(env.agents, 1)
        played, other = env.step(actions), straight.step(actions)
        assert played[1:] == other[1:]
