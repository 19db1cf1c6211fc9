"""What every algorithm and every backend must do: tests that pytest finds in a class, by runs of the game catch."""

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
from evo.run import Row, generations
from evo.store.store import Store
from evo.training.beginning import open_or_begin
from evo.training.session import Session
from evo.training.testing import temporary

GENERATIONS = 4
POLICY: Mapping[str, Any] = {"kind": "mlp", "dense": [8]}
LEARNERS: Mapping[str, Mapping[str, Any]] = {
    "ga": {"population": 14, "parents": 4, "elites": 2, "episodes": 2},
    "a2c": {"envs": 6, "horizon": 12, "envs_per_task": 4},
}


def _experiment(run: Mapping[str, Any], workers: Mapping[str, Any], policy: Any, options: Any) -> Experiment:
    sections: dict[str, Any] = {"run": run, "workers": workers, "policy": policy, run["algorithm"]: options}
    return Experiment.build(environment={"id": "catch"}, validation={"episodes": 8}, test={"episodes": 8}, **sections)


def _trained(experiment: Experiment, directory: Path) -> list[Row]:
    with open_or_begin(experiment, directory) as store, Session(experiment, store) as session:
        return list(generations(session))


def _hash(experiment: Experiment, directory: Path) -> str:
    _trained(experiment, directory)
    return Store.read(directory).state_hash


class AlgorithmTests:
    """The tests; `algorithm` is the name of what is tested, with these options of its section."""

    algorithm: str
    options: Mapping[str, Any]
    policy: Mapping[str, Any] = POLICY

    def _experiment(self, seed: int = 1, count: int = GENERATIONS) -> Experiment:
        run = {"algorithm": self.algorithm, "seed": seed, "generations": count}
        return _experiment(run, {"backend": "serial"}, self.policy, self.options)

    def test_the_same_seed_gives_the_same_state(self, tmp_path: Path) -> None:
        """All random numbers come from named streams."""
        assert _hash(self._experiment(), tmp_path / "one") == _hash(self._experiment(), tmp_path / "other")

    def test_another_seed_gives_another_state(self, tmp_path: Path) -> None:
        """The seed of the run counts."""
        assert _hash(self._experiment(), tmp_path / "one") != _hash(self._experiment(seed=2), tmp_path / "other")

    def test_a_resumed_run_is_the_straight_one(self, tmp_path: Path) -> None:
        """What `state` returns is all that is needed to go on."""
        straight = _hash(self._experiment(), tmp_path / "straight")
        for count in range(1, GENERATIONS + 1):
            resumed = _hash(self._experiment(count=count), tmp_path / "resumed")
        assert resumed == straight

    def test_there_is_a_champion_of_finite_weights(self, tmp_path: Path) -> None:
        """Every generation plays; finalists are offered, and one of them is chosen."""
        experiment = self._experiment()
        with open_or_begin(experiment, tmp_path / "run") as store, Session(experiment, store) as session:
            rows = list(generations(session))
            assert all(row.metrics["frames"] > 0 for row in rows)
            assert rows[-1].champion is not None
            assert session.algorithm.best is not None
            assert np.isfinite(session.algorithm.best).all()


class BackendTests:
    """The tests; `backend` is the name of what is tested, with these options of [workers]."""

    backend: str
    options: Mapping[str, Any]

    def _experiment(self, algorithm: str = "ga", backend: str = "", count: int = 3) -> Experiment:
        workers = {"candidates_per_task": 3, **({} if backend else self.options), "backend": backend or self.backend}
        return _experiment({"algorithm": algorithm, "generations": count}, workers, POLICY, LEARNERS[algorithm])

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
            ours = _hash(self._experiment(algorithm), tmp_path / algorithm)
            assert ours == _hash(self._experiment(algorithm, "serial"), tmp_path / f"{algorithm}-serial")

    def test_a_run_goes_on_from_another_backend(self, tmp_path: Path) -> None:
        """A run that began on one backend is resumed on another, and ends in the same state."""
        straight = _hash(self._experiment(backend="serial"), tmp_path / "straight")
        _trained(self._experiment(backend="serial", count=1), tmp_path / "resumed")
        assert _hash(self._experiment(), tmp_path / "resumed") == straight

    def test_it_can_be_closed_before_it_has_played(self) -> None:
        """`close` ends it, also where `map` was never called."""
        with temporary() as published:
            evaluator_of(self._experiment(), published.directory).close()


def algorithm_tests(module: str, policy: Mapping[str, Any] | None = None, **options: Any) -> type[AlgorithmTests]:
    """Return a class of tests of an algorithm, ours or in a module; `policy` has options of a small network."""
    members = {"algorithm": registry.known("algorithms", module), "options": options, "policy": policy or POLICY}
    return type("AlgorithmTests", (AlgorithmTests,), {**members, "__module__": module})


def backend_tests(module: str, **options: Any) -> type[BackendTests]:
    """Return a class of tests of a backend, ours or in a module; `options` are those of [workers]."""
    members = {"backend": registry.known("evaluators", module), "options": options, "__module__": module}
    return type("BackendTests", (BackendTests,), members)
