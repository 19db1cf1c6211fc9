"""What every backend must do: pytest finds these tests in a class that `backend_tests` makes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from evo.config.experiment import Experiment, evaluator_of
from evo.plugins import registry
from evo.randomness.streams import Purpose, candidate_keys, episode_keys
from evo.records import ActionRule, Episodes, Played, Task, WeightSource
from evo.run import Session, generations
from evo.store.store import Store
from evo.training.resuming import open_or_begin
from evo.training.testing import temporary

LEARNERS: Mapping[str, Mapping[str, Any]] = {
    "ga": {"population": 14, "parents": 4, "elites": 2, "episodes": 2},
    "a2c": {"envs": 6, "horizon": 12, "envs_per_task": 4},
}


class BackendTests:
    """The tests; `backend` is the name of what is tested, with these options of [workers]."""

    backend: str
    options: Mapping[str, Any]

    def _experiment(self, algorithm: str = "ga", backend: str = "", count: int = 3) -> Experiment:
        usual = {"candidates_per_task": 3}
        return Experiment.build(
            run={"algorithm": algorithm, "generations": count},
            environment={"id": "catch"},
            policy={"kind": "mlp", "dense": [8]},
            workers={**usual, "backend": backend} if backend else {**usual, **self.options, "backend": self.backend},
            validation={"episodes": 8},
            test={"episodes": 8},
            **{algorithm: LEARNERS[algorithm]},  # type: ignore[arg-type]
        )

    def _hash(self, experiment: Experiment, directory: Path) -> str:
        with open_or_begin(experiment, directory) as store, Session(experiment, store) as session:
            for _ in generations(session):
                pass
        return Store.read(directory).state_hash

    def _played(self, backend: str = "") -> list[Played]:
        """Return what two rounds give: tasks of a few candidates and episodes each, and one task alone."""
        experiment = self._experiment(backend=backend)
        rows, sigmas = np.full(3, -1, np.int32), np.zeros(3, np.float32)
        tasks = [
            Task(
                WeightSource(rows, rows, candidate_keys(1, Purpose.INITIAL, number, 0, 3), sigmas),
                Episodes(episode_keys(1, Purpose.TRAINING, number, 1 + number % 3)),
                ActionRule("greedy"),
            )
            for number in range(7)
        ]
        with temporary() as published, closing(evaluator_of(experiment, published.directory)) as evaluator:
            return [evaluator.map(tasks), evaluator.map(tasks[:1])]

    def test_results_are_in_the_order_of_tasks(self) -> None:
        """`map` returns one result a task, in their order, the same as the serial backend's."""
        for played, expected in zip(self._played(), self._played("serial"), strict=True):
            assert len(played.results) == len(expected.results)
            for one, other in zip(played.results, expected.results, strict=True):
                np.testing.assert_array_equal(one.returns, other.returns)
                np.testing.assert_array_equal(one.lengths, other.lengths)

    def test_runs_are_those_of_the_serial_backend(self, tmp_path: Path) -> None:
        """A run has the same state on every backend, whether candidates play or one network learns."""
        for algorithm in LEARNERS:
            ours = self._hash(self._experiment(algorithm), tmp_path / algorithm)
            assert ours == self._hash(self._experiment(algorithm, "serial"), tmp_path / f"{algorithm}-serial")

    def test_a_run_goes_on_from_another_backend(self, tmp_path: Path) -> None:
        """A run that began on one backend is resumed on another, and ends in the same state."""
        straight = self._hash(self._experiment(backend="serial"), tmp_path / "straight")
        self._hash(self._experiment(backend="serial", count=1), tmp_path / "resumed")
        assert self._hash(self._experiment(), tmp_path / "resumed") == straight

    def test_it_can_be_closed_before_it_has_played(self) -> None:
        """`close` ends it, also where `map` was never called."""
        with temporary() as published:
            evaluator_of(self._experiment(), published.directory).close()


def backend_tests(module: str, **options: Any) -> type[BackendTests]:
    """Return a class of tests of the backend in a module, as --plugin names it, or of ours, with these options.

    `options` are those of [workers].
    """
    name = module.rpartition(".")[2]
    if name not in registry.names("evaluators"):
        registry.load([module])
    return type("BackendTests", (BackendTests,), {"backend": name, "options": options, "__module__": module})
