"""Any candidate that ever lived is rebuilt from the records of its ancestors, though old checkpoints are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.algorithms.ga import GeneticAlgorithm
from evo.config.experiment import Experiment
from evo.errors import DataError
from evo.records import Algorithm
from evo.run import train
from evo.store.store import Store
from evo.verify.candidate import SOUND, replay_candidate

GENERATIONS = 14
OPTIONS = {
    "ga": {"population": 12, "parents": 4, "elites": 2, "crossover": "uniform", "sigma_spread": 1.0},
    "islands": {"population": 12, "parents": 6, "elites": 4, "islands": 2, "migration_every": 3},
    "nsga2": {"population": 12, "survivors": 4},
    "map_elites": {"population": 12, "reevaluated": 4},
    "cma_me": {"population": 14, "reevaluated": 4, "emitters": 2},
    "sep_cma_es": {"population": 12},
    "openai_es": {"population": 12},
    "gp": {"population": 12, "elites": 3},
}


@pytest.mark.long
@pytest.mark.parametrize("algorithm", OPTIONS)
def test_a_candidate_of_any_generation_plays_as_it_did(algorithm: str, tmp_path: Path) -> None:
    store = trained("ga" if algorithm == "islands" else algorithm, tmp_path / "run", **OPTIONS[algorithm])
    with pytest.raises(DataError, match="not kept"):
        store.read_state(4)
    for generation, candidate in ((0, 3), (5, 7)):
        record = store.read_record(generation)
        told = replay_candidate(store.directory, generation, 0, candidate).outcome
        mean = record["return"][candidate] / 1000 / 4
        assert told == (f"mean return {mean:.3f} over 4 episodes, {record['frames'][candidate]} frames; {SOUND}")


def test_an_algorithm_that_keeps_no_lineage_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GeneticAlgorithm, "retrace", Algorithm.retrace)
    store = trained("ga", tmp_path / "run", **OPTIONS["ga"])
    with pytest.raises(DataError, match="the checkpoint of generation 4 is not kept"):
        replay_candidate(store.directory, 5, 0, 0)


def trained(algorithm: str, directory: Path, **options: object) -> Store:
    experiment = Experiment.build(
        run={"algorithm": algorithm, "generations": GENERATIONS},
        environment={"id": "catch"},
        policy={"layers": ["tree 3"]} if algorithm == "gp" else {"kind": "mlp", "dense": [8]},
        workers={"backend": "serial"},
        validation={"episodes": 8, "every": 20},
        test={"episodes": 8, "every": 20},
        **{algorithm: {"episodes": 4, **options}},
    )
    for _ in train(experiment, directory):
        pass
    return Store.read(directory)
