"""Several runs in one process, in turn or in threads: each computes what it computes alone."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import evo
from evo.config.experiment import Experiment

KINDS = {
    "ga": {"population": 6, "parents": 3, "elites": 1, "episodes": 3},
    "ppo": {"envs": 1, "horizon": 8, "minibatches": 1},
}


class Drawing(gymnasium.Env):
    """Seeds the random numbers that all share, and draws from them in every step."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        random.seed(seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float((self.x[0] > 0) == bool(action)) + 0.01 * random.gauss()
        self.steps += 1
        time.sleep(0)
        return self._seen(), reward, False, self.steps >= 10 + random.randrange(5), {}

    def _seen(self) -> Any:
        self.x = np.array([random.uniform(-1, 1), random.uniform(-1, 1)], np.float32)
        return self.x


class Paying(gymnasium.Env):
    """Pays the same in each of eight steps, as long as it is open."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)
    alive = 0

    def __init__(self, pay: float = 1.0, alone: bool = False) -> None:
        if alone and Paying.alive:
            raise RuntimeError("one at a time")
        self.pay, self.is_open = pay, True
        Paying.alive += alone

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.is_open
        self.steps += 1
        time.sleep(1e-4)
        seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return seen, self.pay * (1 + int(action)), False, self.steps >= 8, {}

    def close(self) -> None:
        Paying.alive, self.is_open = 0, False


gymnasium.register("Drawing-v0", Drawing)
gymnasium.register("Paying-v0", Paying)


def experiment(name: str, algorithm: str = "ga", generations: int = 3, **arguments: Any) -> Experiment:
    return Experiment.build(
        run={"algorithm": algorithm, "generations": generations},
        environment={"id": f"gymnasium:{name}", "kwargs": arguments},
        policy={"kind": "linear"},
        validation={"every": 2, "episodes": 2},
        test={"episodes": 2},
        workers={"backend": "serial"},
        **{algorithm: KINDS[algorithm]},
    )


def trained(wanted: Experiment, place: Path) -> tuple[str, list[float]]:
    """Train to the end; return the hash of the state, and the mean return of every generation."""
    means = [row.metrics["mean"] for row in evo.train(wanted, place)]
    return evo.Run(place).store.state_hash, means


def in_turn(place: Path, *wanted: Experiment) -> list[str]:
    """Train runs whose rows are taken in turn; return the hashes of their states."""
    places = [place / str(number) for number in range(len(wanted))]
    rows = [evo.train(one, there) for one, there in zip(wanted, places, strict=True)]
    for _ in zip(*rows, strict=True):
        pass
    return [evo.Run(there).store.state_hash for there in places]


def in_threads(place: Path, *wanted: Experiment) -> list[tuple[str, list[float]]]:
    """Train runs in a thread each; return as `trained`."""
    found = dict[int, tuple[str, list[float]]]()

    def train(number: int) -> None:
        found[number] = trained(wanted[number], place / str(number))

    threads = [threading.Thread(target=train, args=(number,)) for number in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(wanted))]


def test_runs_whose_rows_are_taken_in_turn_are_as_alone(tmp_path: Path) -> None:
    drawing = experiment("Drawing-v0", generations=2)
    alone = trained(drawing, tmp_path / "alone")[0]
    assert in_turn(tmp_path, drawing, experiment("Paying-v0", generations=2))[0] == alone


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ga", "ppo"])
def test_runs_in_threads_play_environments_of_their_own(tmp_path: Path, algorithm: str) -> None:
    wanted = [experiment("Paying-v0", algorithm, 8, pay=pay) for pay in (1.0, 1000.0)]
    alone = [trained(one, tmp_path / f"alone{number}") for number, one in enumerate(wanted)]
    for number in range(3):
        assert in_threads(tmp_path / f"together{number}", *wanted) == alone


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ga", "ppo"])
def test_runs_in_threads_that_draw_from_one_source_take_turns(tmp_path: Path, algorithm: str) -> None:
    drawing = experiment("Drawing-v0", algorithm, 6)
    alone = trained(drawing, tmp_path / "alone")[0]
    assert [state for state, _ in in_threads(tmp_path, drawing, drawing)] == [alone, alone]


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ga", "ppo"])
def test_an_environment_that_can_be_made_once_is_closed_for_the_run_whose_turn_it_is(
    tmp_path: Path, algorithm: str
) -> None:
    single = experiment("Paying-v0", algorithm, alone=True)
    alone = trained(single, tmp_path / "alone")[0]
    assert in_turn(tmp_path, single, single) == [alone, alone]
    assert not Paying.alive
