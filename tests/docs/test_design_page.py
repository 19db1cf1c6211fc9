"""The design page names the files between the training loop and a game's step as a trace finds them."""

from __future__ import annotations

import pytest

from evo.store import store
from tests.docs.hops import ROOT, entered, hops, table


@pytest.mark.long
def test_the_table_of_hops_is_what_a_trace_finds() -> None:
    page = (ROOT / "docs" / "design.md").read_text("utf-8").splitlines()
    lines = table()
    start = page.index(lines[0])
    assert page[start : start + len(lines)] == lines, "python -m tests.docs.hops prints the table"


@pytest.mark.long
def test_a_step_is_six_files_below_the_loop() -> None:
    assert len(hops("GA")) - 1 <= 6


@pytest.mark.long
@pytest.mark.parametrize(("file", "most"), [("ga_snake_6x6", 31), ("ppo_snake_6x6", 40)])
def test_a_generation_is_read_in_few_files(file: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "DURABLE_SECONDS", 0.0)  # else it depends on the time which generation writes
    found = entered(file)
    assert {"evo/run.py", "evo/store/store.py"} < found
    assert len(found) <= most, sorted(found)
