"""Games of one player whose numbers go wrong, or are very large, after the steps that plain Python has checked."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from evo.records import Episodes, Result, Task
from evo.testing.environments import EMPTY, FRESH, Plain, rollout_of

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


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("game")
    (folder / "late_numbers.py").write_text(LATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield import_module("late_numbers")
    del sys.modules["late_numbers"]


def environment_of(module: Any, fault: str = "none") -> Any:
    environment = module.make(module.Options(id="late_numbers", fault=fault))
    environment.check()  # finds nothing in 200 steps
    return environment


def played(environment: Any) -> Result:
    return rollout_of(environment).play(Task(FRESH, Episodes(SEEDS)), EMPTY)


def test_a_metric_beyond_32_bits_is_the_same_compiled_or_not(late: Any) -> None:
    environment = environment_of(late)
    for one in (environment, Plain(environment.definition, environment.options)):
        assert played(one).episode_metrics.tolist() == [[[3_000_000_000]] * 3]
