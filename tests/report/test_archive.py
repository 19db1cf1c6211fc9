"""The archive in a report is that of the run, and a damaged one is left out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from evo.report.records import archive_section
from evo.store.checkpoints import population_file
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


def test_a_damaged_checkpoint_leaves_the_archive_before_it_and_no_other_run_has_one(run: Path) -> None:
    file = run / population_file(5)
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    before = Run(run)
    assert archive_section(before).count("<rect") == len(before.elites)
    assert ("cells are taken" if before.elites else "is empty, after 1 generation") in archive_section(before)
    file.write_bytes(whole)
    (run.parent / "small.toml").write_text(SMALL)
    summary_of(run.parent, "small.toml", "--generations", 1, "--run-dir", "other")
    assert archive_section(Run(run.parent / "other")) == ""
