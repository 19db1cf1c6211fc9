"""The page about a comparison: who wins, the tables, and charts that are drawn; equal runs have equal pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.browser import chromium, missing, opened
from evo.comparison.formats import METHODS as COLUMNS
from evo.comparison.formats import PAIRS
from evo.comparison.runs import ComparedRun, runs_in
from evo.comparison.tables import comparison_of
from evo.report.comparison import write_comparison_page
from tests.comparison.test_comparison import folder, made  # noqa: F401
from tests.helpers.calling import SMALL, called
from tests.report.reports import Page

METHODS = ("one-ga", "one-es")
COMPARISON = """
[comparison]
experiments = ["one.toml"]
algorithms = ["ga", "es"]
seeds = [1, 2]
set = ["run.generations=3", "test.every=1", "test.episodes=20", "validation.every=1"]
"""
BLANK = """
(canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.every((value) => !value)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("compared")
    (place / "one.toml").write_text(SMALL)
    (place / "both.toml").write_text(COMPARISON)
    called(place, "compare", "both.toml", program="evo")
    return place


def found(trained: Path) -> list[ComparedRun]:
    return runs_in(sorted((trained / "runs" / "both").glob("one-*")))


def page_of(path: Path, runs: Sequence[ComparedRun]) -> Page:
    return Page(write_comparison_page(comparison_of(runs), path))


@pytest.mark.long
def test_a_comparison_ends_with_its_page_beside_the_runs(trained: Path, tmp_path: Path) -> None:
    page = Page(trained / "runs" / "both.html")
    assert page.sentence.startswith("Too few seeds to name a winner on snake (")
    assert all(f"{name}" in page.text for name in (*METHODS, "hamiltonian", "random"))
    titles = [chart["title"] for chart in page.data["charts"]]
    amounts = ["frames", "forward passes", "multiply-adds", "CPU seconds"]
    assert titles == [*(f"Score over {amount}" for amount in amounts), "Performance profile"]
    for chart in page.data["charts"]:
        assert {series["label"] for series in chart["series"]} == {f"{name} (2 seeds)" for name in METHODS}
        for series in chart["series"]:
            assert len(series["x"]) == len(series["values"]) == len(series["low"]) == len(series["high"])
            ends = zip(series["low"], series["values"], series["high"], strict=True)
            assert all(low <= mean <= high for low, mean, high in ends)


@pytest.mark.long
def test_equal_runs_have_equal_pages_and_the_place_can_be_chosen(trained: Path, tmp_path: Path) -> None:
    runs = sorted((trained / "runs" / "both").glob("one-*"))
    called(trained, "compare", *runs, "--page", tmp_path / "here.html", program="evo")
    first = page_of(tmp_path / "again.html", found(trained)).data["charts"]
    assert Page(tmp_path / "here.html").data["charts"] == first


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "said"),
    [("page.txt", "the file name must end with .html"), ("nowhere/page.html", "no file can be written there")],
)
def test_a_place_where_no_page_can_be_written_is_told_before_anything_is_trained(name: str, said: str) -> None:
    (line,) = called(Path.cwd(), "compare", "both.toml", "--page", name, code=2, program="evo")[1].splitlines()
    assert line.startswith(f"--page {name}: {said}")


@pytest.mark.long
@pytest.mark.usefixtures("folder")
def test_one_seed_has_no_interval_and_hostile_names_are_text(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>"
    page = page_of(tmp_path / "page.html", made(hostile, [3.0]))
    assert len(page.scripts) == 3
    assert hostile in page.text
    assert page.sentence == "There is only one method, so there is nothing to compare."
    assert page.data["charts"][0]["title"] == "Performance profile"  # for nothing was trained
    assert "one seed: no interval, proves little" in page.text


@pytest.mark.long
@pytest.mark.usefixtures("folder")
def test_every_reason_is_said_where_no_winner_is_proven(tmp_path: Path) -> None:
    scores = list(np.arange(6) / 10)
    runs = [*made("one", scores), *made("same", scores), *made("few", [3.0])]
    sentence = page_of(tmp_path / "page.html", runs).sentence
    assert "not distinguishable with these seeds" in sentence
    assert "a verdict needs at least" in sentence
    assert sentence.startswith("No winner is proven on snake")
    assert "ahead" not in sentence
    apart = [*made("one", scores), *made("other", scores, "environment.size=6")]
    sentence = page_of(tmp_path / "page.html", apart).sentence
    assert sentence.startswith("No two of these methods see and play the same")


@pytest.mark.usefixtures("folder")
def test_seeds_that_are_too_few_for_any_winner_are_said_to_be_and_who_is_ahead(tmp_path: Path) -> None:
    scores = [1.0, 2.0, 3.0, 4.0]
    runs = [*made("a", scores), *made("b", [9.0, 9.0, 9.0, 9.0])]
    third = made("c", scores[::-1])
    sentence = page_of(tmp_path / "page.html", [*runs, *third]).sentence
    assert sentence.startswith("Too few seeds to name a winner on snake")
    assert sentence.endswith(": 3 pairs need 5 of each; b is ahead on every seed.")
    sentence = page_of(tmp_path / "page.html", [*runs, *made("c", [0.0, 9.0, 0.0, 0.0])]).sentence
    assert sentence.endswith(": 3 pairs need 5 of each.")  # equal on one seed
    sentence = page_of(tmp_path / "page.html", [*made("a", scores), *made("b", [4.0, 5.0, 6.0, 2.0])]).sentence
    assert sentence.startswith("No winner is proven on snake")
    assert sentence.endswith(": not distinguishable with these seeds.")


@pytest.mark.usefixtures("folder")
def test_a_method_has_one_colour_and_ten_methods_are_told_apart(tmp_path: Path) -> None:
    runs = [run for i in range(10) for run in made(f"method {i}", [float(i)])]
    page = page_of(tmp_path / "page.html", runs)
    series = page.data["charts"][-1]["series"]
    assert len({(one["colour"] % 8, one["dash"]) for one in series}) == 10


@pytest.mark.usefixtures("folder")
def test_who_wins_is_said_first_and_columns_are_explained(tmp_path: Path) -> None:
    scores = np.arange(6) / 10
    runs = [*made("worse", list(1 + scores)), *made("better", list(9 + scores))]
    page = page_of(tmp_path / "page.html", runs)
    for column in (*COLUMNS[1:], *PAIRS[2:]):
        assert f"{column.title}: {column.meaning}" in page.text
    assert page.sentence.startswith("better (9.25) wins over worse (1.25) on snake")
    assert "random player" not in page.text
    page = page_of(tmp_path / "page.html", [*made("worse", list(-9 + scores)), *made("better", list(-1 + scores))])
    assert page.sentence.startswith("better (-0.75) wins over worse (-8.75) on snake")
    heading = page.text[: page.text.index("What the columns mean")]
    assert heading.count("Better and worse do not score above the random player (") == 1


@pytest.mark.long
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("width", [390, 1100])
def test_charts_are_drawn_in_a_browser(trained: Path, width: int) -> None:
    path = trained / "runs" / "both.html"
    with chromium() as browser, opened(browser, path, width) as (page, complaints):
        assert int(page.evaluate("document.body.dataset.charts")) == len(Page(path).data["charts"])
        assert page.evaluate(f"[...document.querySelectorAll('canvas')].filter({BLANK.strip()}).length") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert complaints == []


@pytest.mark.usefixtures("folder")
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("width", [390, 1100])
def test_names_of_sixty_characters_leave_room_for_the_numbers(tmp_path: Path, width: int) -> None:
    names = [f"{start}/{'an_experiment_with_many_words_' * 2}_ga"[:60] for start in ("one", "two")]
    runs = [run for i, name in enumerate(names) for run in made(name, [10.0 * i + seed for seed in range(5)])]
    path = write_comparison_page(comparison_of(runs), tmp_path / "page.html")
    with chromium() as browser, opened(browser, path, width) as (page, complaints):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cells = page.evaluate("[...document.querySelectorAll('.methods td:first-child')].map((one) => one.offsetWidth)")
        assert len(cells) == 2 + 1
        assert max(cells) <= width / 2
        hidden = "[...document.querySelectorAll('.wide')].map((one) => one.scrollWidth - one.clientWidth)"
        assert width < 1000 or page.evaluate(hidden)[1] == 0  # who wins is in sight
        assert complaints == []


@pytest.mark.long
def test_a_page_that_nobody_asked_for_costs_no_result(trained: Path) -> None:
    (trained / "runs" / "both.html").unlink()
    (trained / "runs" / "both.html").mkdir()
    out, err = called(trained, "compare", "both.toml", "--json", program="evo")
    (trained / "runs" / "both.html").rmdir()
    assert json.loads(out.splitlines()[-1])["status"] == "done"
    assert "no page was written" in err
