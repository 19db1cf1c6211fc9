"""The page of a champion of any game: episodes as they were played, small, whole, with its facts and its command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from evo.plugins import registry
from tests.helpers.calling import ROOT, called, small_with
from tests.report.reports import Page

GALLERY = ROOT / "docs" / "gallery"
WITHOUT = {"gymnasium", "problem"}  # no games of ours
CATCH = small_with(environment='id = "catch"')


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of Catch and its page."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "catch.toml").write_text(CATCH)
    called(folder, "catch.toml", "--run-dir", "<b>run")
    out, _ = called(folder, "export", "<b>run", "--to", "html", "--episodes", 12, program="evo")
    assert "with the worst, the median and the best of 12 games" in out
    return folder


@pytest.mark.long
def test_a_page_shows_the_worst_the_median_and_the_best_episode_as_they_were_played(where: Path) -> None:
    page = Page(where / "<b>run.html")
    shown = page.data["replays"]
    assert [one["label"] for one in shown] == ["Worst of 12", "Median of 12", "Best of 12"]
    played = []
    for episode in range(12):
        out, _ = called(where, "replay", "<b>run", "--episode", episode, "--json", program="evo")
        played.append(json.loads(out.splitlines()[-1]))
    scores = sorted(one["score"] for one in played)
    assert [one["score"] for one in shown] == [scores[0], scores[5], scores[-1]]
    assert {one["steps"] for one in shown} <= {one["steps"] for one in played}
    assert "python -m evo export '<b>run' --to html" in page.text
    assert "b" not in page.elements


def test_equal_champions_have_equal_pages(where: Path) -> None:
    called(where, "export", "<b>run", "--to", "html", "--episodes", 12, "--output", "again.html", program="evo")
    assert (where / "again.html").read_bytes() == (where / "<b>run.html").read_bytes()


def test_the_gallery_has_a_small_page_of_every_game_with_its_command() -> None:
    rows = re.findall(
        r"^\| \[(\w+)\]\((\w+)\.html\) \| [-\d.]+ \(.* `python -m evo.run ([^\s`]+)", index(), re.MULTILINE
    )
    assert {name for name, _, _ in rows} == {*registry.names("environments")} - WITHOUT
    for name, file, experiment in rows:
        assert (ROOT / experiment).is_file()
        page = (GALLERY / f"{file}.html").read_bytes()
        assert len(page) < (500_000 if b'id="verify"' in page else 150_000), name  # those that play have the network
        assert b"Content-Security-Policy" in page


def index() -> str:
    return (GALLERY / "README.md").read_text("utf-8")
