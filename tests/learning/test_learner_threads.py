"""How many threads learn: as many as workers where it changes no result, unless the file says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.comparison.runs import PlannedRun
from evo.comparison.training import at_once
from evo.config.experiment import Experiment
from evo.training.beginning import make_algorithm
from evo.workers import hardware

FILE = "experiments/ppo_snake_6x6.toml"


def experiment(*sets: str) -> Experiment:
    """Return PPO's experiment with other options."""
    return Experiment.load(FILE, *list(sets))


@pytest.mark.parametrize(
    ("sets", "threads"),
    [
        ((), 6),
        (("workers.count=3",), 3),
        (("workers.count=30",), 6),
        (("workers.backend=serial",), 1),
        (("workers.count=3", "learner.threads=5"), 5),
    ],
)
def test_exact_updates_have_a_thread_for_every_worker(
    monkeypatch: pytest.MonkeyPatch, sets: tuple[str, ...], threads: int
) -> None:
    monkeypatch.setattr(hardware, "cores", lambda: 6)
    algorithm = make_algorithm(experiment(*sets)).algorithm
    assert algorithm.setup.learner_threads == threads  # type: ignore[attr-defined]


def test_the_number_is_a_part_of_what_tensorflow_computes_alone() -> None:
    assert experiment("learner.threads=7").identity() == experiment().identity()
    of_tensorflow = "learner.arithmetic=tensorflow"
    assert experiment(of_tensorflow).learner.thread_count == 2
    assert experiment(of_tensorflow, "learner.threads=2").identity() == experiment(of_tensorflow).identity()
    assert experiment(of_tensorflow, "learner.threads=7").identity() != experiment(of_tensorflow).identity()


def test_runs_of_one_worker_train_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "cores", lambda: 6)

    def members(*sets: str) -> list[PlannedRun]:
        return [PlannedRun("ppo", experiment(*sets), Path("ppo"))]

    assert at_once(members("workers.count=1")) == 6
    assert at_once(members("workers.count=1", "learner.threads=3")) == 2
    assert at_once(members("workers.count=1", "learner.arithmetic=tensorflow")) == 3
