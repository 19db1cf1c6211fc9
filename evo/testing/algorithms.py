"""What every algorithm must do: pytest finds these tests in a class that `algorithm_tests` makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evo.config.experiment import Experiment
from evo.plugins import registry
from evo.run import Session, generations
from evo.store.store import Store
from evo.training.resuming import open_or_begin

GENERATIONS = 4


class AlgorithmTests:
    """The tests; `algorithm` is the name of what is tested, with these options of its section."""

    algorithm: str
    options: Mapping[str, Any]
    policy: Mapping[str, Any] = {"kind": "mlp", "dense": [8]}

    def _experiment(self, seed: int = 1, count: int = GENERATIONS) -> Experiment:
        return Experiment.build(
            run={"algorithm": self.algorithm, "seed": seed, "generations": count},
            environment={"id": "catch"},
            policy=dict(self.policy),
            workers={"backend": "serial"},
            validation={"episodes": 8},
            test={"episodes": 8},
            **{self.algorithm: dict(self.options)},  # type: ignore[arg-type]
        )

    def _hash(self, directory: Path, **how: int) -> str:
        experiment = self._experiment(**how)
        with open_or_begin(experiment, directory) as store, Session(experiment, store) as session:
            for row in generations(session):
                assert row.metrics["frames"] > 0
        return Store.read(directory).state_hash

    def test_the_same_seed_gives_the_same_state(self, tmp_path: Path) -> None:
        """All random numbers come from named streams."""
        assert self._hash(tmp_path / "one") == self._hash(tmp_path / "other")

    def test_another_seed_gives_another_state(self, tmp_path: Path) -> None:
        """The seed of the run counts."""
        assert self._hash(tmp_path / "one") != self._hash(tmp_path / "other", seed=2)

    def test_a_resumed_run_is_the_straight_one(self, tmp_path: Path) -> None:
        """What `state` returns is all that is needed to go on."""
        straight = self._hash(tmp_path / "straight")
        for count in range(1, GENERATIONS + 1):
            resumed = self._hash(tmp_path / "resumed", count=count)
        assert resumed == straight

    def test_there_is_a_champion_of_finite_weights(self, tmp_path: Path) -> None:
        """Finalists are offered, and one of them is chosen."""
        experiment = self._experiment()
        with open_or_begin(experiment, tmp_path / "run") as store, Session(experiment, store) as session:
            rows = list(generations(session))
            assert rows[-1].champion is not None
            assert session.algorithm.best is not None
            assert np.isfinite(session.algorithm.best).all()


def algorithm_tests(module: str, policy: Mapping[str, Any] | None = None, **options: Any) -> type[AlgorithmTests]:
    """Return a class of tests of the algorithm in a module, as --plugin names it, or of ours, with these options.

    `policy` has other options of [policy] than a hidden layer of 8 units.
    """
    name = registry.module_of_file(module).rpartition(".")[2]
    if name not in registry.names("algorithms"):
        registry.load([module])
    members = {"algorithm": name, "options": options, "policy": policy or AlgorithmTests.policy, "__module__": module}
    return type("AlgorithmTests", (AlgorithmTests,), members)
