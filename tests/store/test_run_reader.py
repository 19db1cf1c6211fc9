"""One reader of runs: what it reads is kept, a champion that is newer than the manifest is no other run's."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import evo
from evo.comparison.runs import runs_in
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError, DataError
from evo.store.champion import encode_champion, network_layers
from evo.store.run import Run
from evo.store.store import Store
from tests.helpers.calling import SMALL, called


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of four generations."""
    where = tmp_path_factory.mktemp("read")
    (where / "small.toml").write_text(SMALL)
    called(where, "small.toml", "--run-dir", "run", "--no-report")
    return where / "run"


def test_a_run_is_read_once_and_another_reader_sees_what_was_committed_since(run: Path) -> None:
    before, late = Run(run), Run(run)
    assert late.store.next_generation == 4
    assert (before.store.next_generation, before.curves["mean"].shape) == (4, (4,))
    called(run.parent, "resume", "run", "--generations", "9", "--no-report", program="evo")
    assert (before.store.next_generation, before.curves["mean"].shape) == (4, (4,))
    after = Run(run)
    assert (after.store.next_generation, after.curves["mean"].shape) == (9, (9,))
    assert before.champion.weights.shape == after.champion.weights.shape  # newer than the manifest that was read
    assert before.store.next_generation == 9
    assert not (run / "population" / "gen-000003.h5").exists()  # what `late` has read of
    assert np.array_equal(late.latest.weights, after.latest.weights)
    assert late.store.next_generation == 9
    assert before.notes == []
    assert after.ended
    assert not after.is_running  # though this process, which its lock file names, is there
    with Store.open(run):
        assert after.is_running


def test_a_reader_beside_the_loop_that_trains_sees_every_row_and_its_champion(small: Path) -> None:
    for row in evo.train(evo.Experiment.load(small / "small.toml"), small / "run"):
        found = evo.Run(row.run_dir, trusted=True)
        assert found.store.next_generation == len(found.metrics) == row.generation + 1
        assert row.champion is not None
        assert found.fitness == evo.Run(row.run_dir / "champion.h5", trusted=True).fitness == row.champion.fitness


def test_a_champion_is_the_same_in_every_form(run: Path) -> None:
    whole, file = Run(run), Run(run / "champion.h5")
    assert whole.champion_file is not None
    assert np.array_equal(whole.champion.weights, whole.champion_file.weights)
    assert np.array_equal(file.champion.weights, whole.champion.weights)
    assert file.champion.about == whole.champion.about == whole.champion_file.about
    assert whole.test == whole.score == file.test
    assert whole.fitness == whole.champion.about["fitness"]
    assert whole.config.identity() == whole.store.identity


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("algorithm", ["dqn", "pqn"])
def test_a_champion_has_the_outputs_that_options_of_its_algorithm_gave_it(
    tmp_path: Path, algorithm: str, dueling: bool
) -> None:
    sections = {"environment": {"id": "snake", "size": 5}, "policy": {"kind": "mlp", "dense": [4]}}
    experiment = Experiment.build(run={"algorithm": algorithm}, **sections, **{algorithm: {"dueling": dueling}})
    own = {name: getattr(experiment, name).model_dump() for name in ("environment", "policy")}
    layers = network_layers(experiment.network())
    weights = np.zeros(experiment.network().size, np.float32)
    data, _ = encode_champion(weights, layers, {"algorithm": algorithm, "seed": 1, **own})
    (tmp_path / "champion.h5").write_bytes(data)
    by_itself = Run(tmp_path / "champion.h5", trusted=True)
    assert by_itself.champion.weights.shape == weights.shape
    for changed in (experiment, by_itself.config, by_itself):
        assert network_layers(changed.with_environment(["environment.starvation=30"]).network()) == layers
    with pytest.raises(ConfigurationError, match=r"this one shows .* with 4"):
        by_itself.with_environment(["environment.observation=planes", "environment.actions=absolute"])


def test_a_metric_that_no_generation_has_is_named_with_the_closest(run: Path) -> None:
    read = Run(run)
    with pytest.raises(ConfigurationError, match=r"no generation has a metric 'men' - did you mean `mean`\?"):
        read.column("men")
    for name in ([], {}):
        with pytest.raises(ConfigurationError, match="no generation has a metric"):
            read.column(name)  # type: ignore[arg-type]
    read.metrics[0].pop("mean")
    assert np.isnan(read.column("mean")).nonzero()[0].tolist() == [0]  # of some generations only
    with Store.create(run.parent / "none", "", read.store.identity):
        assert Run(run.parent / "none").column("men").shape == (0,)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("starvation = ", "starvation = 1", "environment.starvation: "),
        ("seed = 1", "seed = 12", "seed: 1 in the run, 12 now"),
        ("dense = [", "dense = [1", "policy.dense: "),
    ],
)
def test_a_champion_is_not_taken_for_one_of_another_game_or_seed(
    run: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other"))
    text = (other / "config.resolved.toml").read_text()
    (other / "config.resolved.toml").write_text(text.replace(old, new, 1))
    assert said in called(tmp_path, "evaluate", "other", "--episodes", "2", program="evo", code=3)[1]
    (compared,) = runs_in([other])
    assert compared.score is None
    assert said in compared.failure


def test_what_is_no_run_and_a_run_without_a_champion_are_refused(run: Path, tmp_path: Path) -> None:
    for wrong in (tmp_path, tmp_path / "nothing"):
        for read in ("config", "store", "champion", "curves", "notes", "elites"):
            with pytest.raises(DataError):
                getattr(evo.Run(wrong), read)
    for number in (3, None, b"run", "a\0b"):
        for reads in (evo.Run, evo.Experiment.load):
            with pytest.raises(ConfigurationError, match="is not the path of a file"):
                reads(number)  # type: ignore[arg-type]
    experiment = evo.Experiment.load(run.parent / "small.toml")
    next(iter(evo.train(experiment, tmp_path / "new"))).metrics.clear()
    (tmp_path / "new" / "champion.h5").unlink()
    new = evo.Run(tmp_path / "new")
    assert (new.champion_file, new.score, new.fitness, new.origin, new.ended) == (None, None, None, None, False)
    with pytest.raises(DataError, match="there is no champion yet"):
        _ = new.champion
