"""Games of one player whose numbers go wrong, or are very large, after the steps that plain Python has checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evo import errors
from evo.errors import ConfigurationError
from evo.records import Episodes, Result, Segment, Task
from evo.testing.environments import EMPTY, FRESH, Plain, rollout_of
from tests.helpers.games import module_of
from tests.helpers.sampling import sampled

LATE = """
from typing import Any, Literal, NamedTuple

from evo.games import Game, GameOptions


class State(NamedTuple):
    moves: Any


class Options(GameOptions):
    fault: Literal["none", "reward", "end", "observation"] = "none"


def begin(state, options, b, random):
    state.moves[b] = 0


def step(state, options, b, action, random):
    state.moves[b] += 1
    late = state.moves[b] > 210
    if late and options.fault == 2:
        return 1.0, 7
    return 1e300 if late and options.fault == 1 else 1.0, state.moves[b] == 220


def observe(state, options, b, out):
    out[0] = 1e300 if state.moves[b] > 210 and options.fault == 3 else 1.0


def metrics(state, options, b, out):
    out[0] = 3_000_000_000 if state.moves[b] > 210 else 1


make = Game(
    options=Options, arrays=lambda options: State(0), shape=(1,), actions=2, begin=begin, step=step, observe=observe,
    metrics=metrics, episode_metrics=("score",),
)
"""
SEEDS = np.arange(3, 6, dtype=np.uint64)
NOTES = {
    "reward": "step gave a reward that is not finite or beyond two million after 211 steps of the episode of seed 3; "
    "such an episode has no return",
    "observation": "observe wrote inf to out[0] after 211 steps of the episode of seed 3; no action follows from it",
}


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with module_of(tmp_path_factory.mktemp("game"), "late_numbers", LATE) as module:
        yield module


def environment_of(module: Any, fault: str = "none") -> Any:
    environment = module.make(module.Options(id="late_numbers", fault=fault))
    environment.check()  # finds nothing in 200 steps
    return environment


def played(environment: Any) -> Result:
    return rollout_of(environment).play(Task(FRESH, Episodes(SEEDS)), EMPTY)


@pytest.mark.long
def test_a_metric_beyond_32_bits_is_the_same_compiled_or_not(late: Any) -> None:
    environment = environment_of(late)
    for one in (environment, Plain(environment.definition, environment.options)):
        assert played(one).episode_metrics.tolist() == [[[3_000_000_000]] * 3]


@pytest.mark.long
@pytest.mark.parametrize("segment", sampled([False, True]))
def test_what_is_not_finite_is_noted_once_and_an_unknown_end_is_an_error(
    segment: bool, late: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_noticed", set())
    for fault, told in NOTES.items():
        rollout = rollout_of(environment_of(late, fault))
        play = Segment(rollout.environment.game.begin(SEEDS), 215) if segment else Episodes(SEEDS)
        for _ in range(2):
            assert not rollout.play(Task(FRESH, play), EMPTY).finite.any()
        assert capsys.readouterr().err == f"note: game late_numbers: {told}\n"
    rollout = rollout_of(environment_of(late, "end"))
    play = Segment(rollout.environment.game.begin(SEEDS), 215) if segment else Episodes(SEEDS)
    with pytest.raises(ConfigurationError, match="step returned no known end after 211 steps of the episode of seed 3"):
        rollout.play(Task(FRESH, play), EMPTY)
