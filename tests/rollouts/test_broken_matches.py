"""Games of several players that break their contract in mid-episode, where no check in plain Python has played them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from evo.errors import ConfigurationError
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import ActionRule, Episodes, Segment, Task, WeightSource
from evo.rollouts.rollout import Rollout
from evo.rollouts.seatings import RANDOM_MOVES, SeatPlayer, play_seats
from tests.helpers.games import module_of

LATE = """
from typing import Any, Literal, NamedTuple

from evo.games import Game, GameOptions, steps_played


class State(NamedTuple):
    moves: Any


class Options(GameOptions):
    fault: Literal["none", "turn", "far", "baseline", "large", "mask", "end"] = "none"


def begin(state, options, b, random):
    state.moves[b] = 0


def turn(state, options, b):
    if state.moves[b] > 210 and options.fault == 1:
        return -3
    if state.moves[b] > 210 and options.fault == 2:
        return 256
    return state.moves[b] % 2


def step(state, options, b, action, rewards, random):
    state.moves[b] += 1
    if state.moves[b] > 210 and options.fault == 4:
        rewards[0] = rewards[1] = 1_500_000.0
    if state.moves[b] == 220 and options.fault == 6:
        return 7
    return state.moves[b] == 220


def observe(state, options, b, player, out):
    out[0] = state.moves[b]


def mask(state, options, b, player, out):
    out[0] = not (options.fault == 5 and player == 1 and state.moves[b] > 210)
    out[1] = 0


def stubborn(state, options, b, player, random):
    return 1 if options.fault == 3 and state.moves[b] > 210 else 0


make = Game(
    options=Options, arrays=lambda options: State(0), players=2, shape=(1,), actions=2, begin=begin, step=step,
    turn=turn, observe=observe, mask=mask, baselines=lambda options: {"stubborn": stubborn},
)
"""
FAULTS = {
    "turn": "turn returned no player after 211 steps",
    "far": "turn returned no player after 211 steps",  # which is player 0 in eight bits
    "baseline": "baseline 1 chose an action that is not allowed after 212 steps",
    "mask": "mask allowed no action after 211 steps",
    "end": "step returned no known end after 220 steps",
}


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with module_of(tmp_path_factory.mktemp("game"), "late_faults", LATE) as module:
        yield module


def played(module: Any, play: Any, **options: Any) -> Any:
    environment = module.make(module.Options(id="late_faults", **options))
    environment.check()  # finds nothing in 200 steps
    network = Network.build(Policy(kind="mlp", dense=[2]), environment.shape, environment.actions)
    none, sigma = np.full(1, -1, np.int32), np.zeros(1, np.float32)
    source = WeightSource(none, none, np.arange(1, 2, dtype=np.uint64), sigma)
    if play is Segment:
        play = Segment(environment.game.begin(np.arange(4, dtype=np.uint64)), 110)
    task = Task(source, play, ActionRule(), record_transitions=True)  # as segments, so that one kernel is compiled
    return Rollout(network, environment).play(task, np.empty((0, network.size), np.float32))


@pytest.mark.parametrize(
    ("fault", "opponent"), [*((fault, "stubborn") for fault in FAULTS), ("mask", "random"), ("mask", "population")]
)
@pytest.mark.long
def test_a_broken_game_is_named(fault: str, opponent: str, late: Any) -> None:
    episodes = Episodes(np.arange(1, 9, dtype=np.uint64))
    with pytest.raises(ConfigurationError, match=re.escape(f"game late_faults: {FAULTS[fault]}")):
        played(late, episodes, fault=fault, opponents={"players": [opponent]})


@pytest.mark.long
def test_a_whole_game_has_no_fault(late: Any) -> None:
    episodes = Episodes(np.arange(1, 9, dtype=np.uint64))
    assert played(late, episodes, opponents={"players": ["stubborn"]}).finite.all()


@pytest.mark.long
def test_rewards_between_two_moves_of_a_seat_add_up(late: Any) -> None:
    """Those of two moves are more thousandths than 32 bits hold."""
    result = played(late, Segment, fault="large", opponents={"players": ["stubborn"]})
    rewards = result.transitions.rewards.reshape(4, 110)
    assert rewards.max() == np.float32(3e6)
    assert rewards.min() == 0


@pytest.mark.long
@pytest.mark.parametrize(("fault", "moves"), [("turn", 211), ("baseline", 211), ("mask", 211), ("end", 220)])
def test_a_broken_game_is_named_in_a_league(fault: str, moves: int, late: Any) -> None:
    game = late.make(late.Options(id="late_faults", fault=fault)).game
    stubborn, seating = SeatPlayer("stubborn", RANDOM_MOVES - 1), np.zeros((3, 2), np.int64)
    with pytest.raises(ConfigurationError, match=rf"game late_faults: {FAULTS[fault][:20]}.* after {moves} steps"):
        play_seats(game, [stubborn], seating, np.arange(3, dtype=np.uint64))
