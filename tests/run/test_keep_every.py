"""Checkpoints of every N generations stay."""

from pathlib import Path

from evo.config.experiment import Experiment
from evo.run import train


def test_checkpoints_of_every_so_many_generations_are_kept_also_after_a_resume(tmp_path: Path) -> None:
    def experiment(generations: int) -> Experiment:
        return Experiment.build(
            run={"generations": generations, "keep_every": 4},
            environment={"id": "catch", "rows": 5},
            policy={"kind": "linear"},
            workers={"backend": "serial"},
            validation={"every": 100, "episodes": 8},
            ga={"population": 4, "parents": 2, "elites": 1, "episodes": 1},
        )

    for generations in (6, 16):
        for _ in train(experiment(generations), tmp_path / "run"):
            pass
    kept = {int(path.stem[-6:]) for path in (tmp_path / "run" / "population").glob("gen-*.h5")}
    assert {0, 4, 8, 12, 15} <= kept
    assert len(kept) <= 9  # and the best, and the last three of what was durable
