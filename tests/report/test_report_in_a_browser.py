"""A report in a real browser: charts are drawn, replays play to the recorded score, keys work, and a phone suffices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.browser import chromium, missing, opened, until
from tests.helpers.calling import SMALL, summary_of
from tests.report.reports import Page as Parsed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.long, pytest.mark.skipif(missing() is not None, reason=str(missing()))]
PHONE, DESK = 390, 1100
BLANK = """(canvas) => {
  const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
  if (!copy.width || !copy.height) return true;
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, copy.width, copy.height).data.buffer);
  return pixels.every((pixel) => pixel === pixels[0]);
}"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    (place / "small.toml").write_text(SMALL)
    summary_of(place, "small.toml", "--generations", 12, "--run-dir", "run")
    return place / "run" / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def blanks(page: Page) -> int:
    """Return how many canvases have one colour only, once everything is drawn."""
    until(page, "document.body.dataset.replays")
    return int(page.evaluate(f"[...document.querySelectorAll('canvas')].filter({BLANK}).length"))


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_report_works_at_a_desk_and_on_a_phone(browser: Browser, made: Path, width: int) -> None:
    data = Parsed(made).data
    scores = [f"score {replay['score']:g} after {replay['steps']} steps" for replay in data["replays"]]
    with opened(browser, made, width) as (page, complaints):
        assert blanks(page) == 0
        assert int(page.evaluate("document.body.dataset.charts")) == len(data["charts"]) > 10
        assert page.locator("canvas").count() == len(data["charts"]) + len(data["replays"])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        replays = page.locator("#replays")
        outputs = replays.locator("output")
        assert outputs.all_text_contents() == scores  # every one is shown at its end
        steps = []
        for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft"):
            replays.get_by_role("button").last.press(key)
            steps.append(replays.get_attribute("data-step"))
        assert steps == ["0", "1", "2", "1"]
        assert outputs.all_text_contents() != scores
        replays.locator("select").select_option("240")
        replays.locator("input").press(" ")
        until(page, "document.querySelector('#replays').dataset.step === document.querySelector('#replays input').max")
        page.wait_for_timeout(100)
        assert outputs.all_text_contents() == scores
        chart = page.locator("[data-chart]").first
        chart.press("ArrowRight")
        chart.press("ArrowRight")
        page.wait_for_timeout(100)
        legend = chart.locator(".u-legend")
        assert re.search(r"test\d", str(legend.text_content()))
        page.locator("#axis input").nth(1).click()
        page.wait_for_timeout(100)
        assert str(legend.text_content()).startswith("seconds")
        assert blanks(page) == 0
        assert complaints == []


def test_what_is_blank_or_forbidden_is_found_out(browser: Browser, made: Path, tmp_path: Path) -> None:
    wrong = '</main><canvas width="5" height="5"></canvas><script>1</script>'
    (tmp_path / "wrong.html").write_text(made.read_text().replace("</main>", wrong))
    with opened(browser, tmp_path / "wrong.html", DESK) as (page, complaints):
        assert blanks(page) == 1
        assert any("Content Security Policy" in line for line in complaints)


def test_a_report_of_a_gradient_method_shows_its_losses(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL + "[ppo]\nenvs = 8\nhorizon = 16\nminibatches = 2\n")
    words = ("small.toml", "--algorithm", "ppo", "--run-dir", "run", "--generations", 6)
    summary_of(tmp_path, *words, apart=True)
    page = Parsed(tmp_path / "run" / "report.html")
    titles = {chart["title"] for chart in page.data["charts"]}
    assert {"policy_loss", "entropy", "approx_kl", "gradient_norm", "Return", "Where the time went"} <= titles
    assert page.sentence.startswith("Proximal policy optimisation trained a multilayer perceptron")
    assert "Lineage of the champion" not in titles
    assert "fingerprint.learning" not in page.text  # its updates are exact
    with opened(browser, tmp_path / "run" / "report.html", DESK) as (opened_page, complaints):
        assert blanks(opened_page) == 0
        assert complaints == []
