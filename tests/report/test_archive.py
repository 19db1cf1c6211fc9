"""The archive in a report is that of the run, and a damaged one is left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.report.records import Archived, archive_section, archived
from evo.store.run import Run
from evo.store.store import Store
from tests.helpers.calling import SMALL, called, summary_of

GRIDS = {
    "bars": {"map_elites.high": "[60.0]", "map_elites.bins": "[30]"},
    "squares": {
        "map_elites.descriptors": '["length", "score"]',
        "map_elites.low": "[0.0, 0.0]",
        "map_elites.high": "[60.0, 4.0]",
        "map_elites.bins": "[30, 8]",
    },
}


@pytest.fixture(scope="module", params=GRIDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp(request.param)
    (where / "small.toml").write_text(SMALL)
    sets = {"map_elites.population": 60, "map_elites.reevaluated": 20, "map_elites.episodes": 2, **GRIDS[request.param]}
    words = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    check = ("--set", "map_elites.check_every=3", "--set", "map_elites.check_episodes=4")
    summary_of(where, "small.toml", "--algorithm", "map_elites", *words, *check, "--generations", 6, "--run-dir", "run")
    return where / "run"


def test_the_elites_of_a_report_are_those_of_the_last_checkpoint(run: Path) -> None:
    found = archived(Run(run))
    state = Store.read(run).read_state(5)
    assert found is not None
    assert len(found.cells) > 5
    assert found.cells.tolist() == state["cells"].tolist()
    np.testing.assert_allclose(found.fitness, state["fitness"] / 2000)


def test_every_elite_is_drawn_with_its_place_and_the_page_says_what_the_last_check_found(run: Path) -> None:
    called(run.parent, "report", "run", program="evo")
    page = (run / "report.html").read_text()
    (drawn,) = re.findall(r'<svg[^>]*role="img".*?</svg>', page)
    state = Store.read(run).read_state(5)
    assert drawn.count("<rect") == len(state["cells"])
    best = int(np.argmax(state["fitness"]))
    low = 2 * int(state["cells"][best] // (8 if "score" in drawn else 1))
    assert (
        f"The best elite has a fitness of {state['fitness'][best] / 2000:.3g}, with length {low} to {low + 2}" in page
    )
    assert f"<title>length {low} to {low + 2}" in drawn
    assert "on fresh episodes" in page
    assert "Elites</b>, fitness, " in page


def test_no_other_run_has_an_archive_and_a_damaged_record_draws_none(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Run(run)
    whole = list(source.newest_records([]))

    def archive_of(records: Any) -> Archived | None:
        monkeypatch.setattr(Run, "newest_records", lambda source, notes: iter(records))
        return archived(source)

    for changed in (
        whole[:-1],  # the first generation is missing
        [(generation, {**record, "elites": record["elites"] + 1000}) for generation, record in whole],
        [(generation, {**record, "cell": record["cell"] + 1000}) for generation, record in whole],
        [(generation, {"cell": record["cell"]}) for generation, record in whole],
    ):
        assert archive_of(changed) is None
    assert archive_of(whole) is not None
    (run.parent / "small.toml").write_text(SMALL)
    summary_of(run.parent, "small.toml", "--generations", 1, "--run-dir", "other")
    assert archive_section(Run(run.parent / "other")) == ""
