"""Files of every release of this major version are read, verified and resumed, with the bits that they had then."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

import evo
from evo.comparison.file import ComparisonFile
from evo.config.identity import difference
from evo.version import __version__
from tests.helpers.calling import called, summary_of
from tests.helpers.sampling import sampled
from tests.releases.stored import HERE, MORE, RUNS, SWEEP, identities

RELEASES = sorted(HERE.glob(f"{__version__.partition('.')[0]}.*.zip"))
ADVICE = "give the new option a default with the results of before, and leave it out of the identity then (exclude_if)"


@pytest.fixture(scope="module", params=RELEASES, ids=lambda path: path.stem)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert request.param.stat().st_size < 100_000
    place = tmp_path_factory.mktemp("release")
    with zipfile.ZipFile(request.param) as packed:
        packed.extractall(place)
    return place


@pytest.fixture(scope="module")
def about(release: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release / "about.json").read_text())
    return found


def last_line(where: Path, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(called(where, *words, "--json", program="evo")[0].splitlines()[-1])
    return found


def test_this_major_version_has_a_release() -> None:
    assert RELEASES


@pytest.mark.parametrize("algorithm", sampled(RUNS))
def test_a_run_is_read_verified_and_resumed_to_the_bits_of_the_release(
    release: Path, about: dict[str, Any], algorithm: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(release / algorithm, run)
    read = evo.Run(run)
    assert read.notes == []
    assert len(read.column("validation")) == 3
    assert last_line(tmp_path, "verify", run)["ok"]
    score = last_line(tmp_path, "evaluate", run, "--episodes", 32)
    assert read.test is not None
    assert score["mean"] == read.test.mean
    assert (
        summary_of(tmp_path, "--resume", run, "--generations", MORE)["state_hash"] == about["state_hashes"][algorithm]
    )
    assert last_line(tmp_path, "verify", run)["ok"]


def test_a_champion_by_itself_plays_as_it_did(release: Path) -> None:
    champion = evo.Run(release / "champion.h5")
    assert champion.test is not None
    score = last_line(release, "evaluate", "champion.h5", "--episodes", 32, "--backend", "serial")
    assert score["mean"] == champion.test.mean


@pytest.mark.long
def test_a_sweep_goes_on_with_the_decisions_of_its_journal(release: Path, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "place")
    status = last_line(tmp_path / "place", *SWEEP)["status"]
    stages = json.loads((release / "sweep" / "sweep.json").read_bytes())["stages"]
    assert json.loads((tmp_path / "place" / "sweep" / "sweep.json").read_bytes())["stages"] == stages
    assert status == "done"


def test_a_comparison_file_plans_its_runs(release: Path) -> None:
    assert len(ComparisonFile.read(release / "comparison.toml").runs) == 4


def test_options_identify_runs_as_they_did(about: dict[str, Any]) -> None:
    for kind, now in identities().items():
        for name, then in about[kind].items():
            assert not difference(then, now[name]), f"{kind}, {name}: {ADVICE}"
