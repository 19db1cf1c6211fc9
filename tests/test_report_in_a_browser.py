"""A report in a real browser: charts are drawn, replays play to the recorded score, keys work, and a phone suffices."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from calling import SMALL, summary_of
from reports import Page

pytestmark = pytest.mark.long

CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
PHONE, DESK = 390, 1100
DRIVER = Path(__file__).parent / "browser_driver.html"  # what is done in the browser; prints what it finds


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    (place / "small.toml").write_text(SMALL)
    summary_of(place, "small.toml", "--generations", 12, "--run-dir", "run")
    return place / "run" / "report.html"


def browse(page: str, width: int, place: Path) -> tuple[dict[str, Any], list[str]]:
    """Open a page in a frame of so many pixels, use it, and return what was found and what the console says."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here (chromium, chromium-browser or google-chrome)")
    driver = place / "driver.html"
    driver.write_text(DRIVER.read_text().replace("WIDTH", str(width)).replace("PAGE", html.escape(page)))
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={place / 'profile'}", "--virtual-time-budget=60000", "--window-size=1300,1600",
            "--dump-dom", f"file://{driver}",
        ],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    text = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert text, done.stderr
    assert text[0], (console, done.stderr)
    found: dict[str, Any] = json.loads(html.unescape(text[0]))
    return found, console


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_report_works_at_a_desk_and_on_a_phone(made: Path, tmp_path: Path, width: int) -> None:
    data = Page(made).data
    found, console = browse(made.read_text(), width, tmp_path)
    assert console == []
    assert found["charts"] == len(data["charts"]) > 10
    assert found["canvases"] == found["charts"] + len(data["replays"])
    assert found["blanks"] == [0, 0]
    assert found["width"] <= width
    scores = [f"score {replay['score']:g} after {replay['steps']} steps" for replay in data["replays"]]
    assert found["ended"] == found["final"] == scores
    assert found["played"]
    assert found["steps"] == ["0", "1", "2", "1"]
    assert found["begun"] != scores
    assert re.search(r"test\d", found["legend"])
    assert found["axis"].startswith("seconds")


def test_what_is_blank_or_forbidden_is_found_out(made: Path, tmp_path: Path) -> None:
    page = made.read_text().replace("</main>", '</main><canvas width="5" height="5"></canvas><script>1</script>')
    found, console = browse(page, DESK, tmp_path)
    assert found["blanks"] == [1, 1]
    assert any("Content Security Policy" in line for line in console)


def test_a_report_of_a_gradient_method_shows_its_losses(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL + "[ppo]\nenvs = 8\nhorizon = 16\nminibatches = 2\n")
    words = ("small.toml", "--algorithm", "ppo", "--run-dir", "run", "--generations", 6)
    summary_of(tmp_path, *words, apart=True)
    page = Page(tmp_path / "run" / "report.html")
    titles = {chart["title"] for chart in page.data["charts"]}
    assert {"policy_loss", "entropy", "approx_kl", "gradient_norm", "Return", "Where the time went"} <= titles
    assert page.sentence.startswith("PPO trained a multilayer perceptron")
    assert "Lineage of the champion" not in titles
    assert "fingerprint.learning" not in page.text  # its updates are exact
    found, console = browse((tmp_path / "run" / "report.html").read_text(), DESK, tmp_path)
    assert console == []
    assert found["blanks"] == [0, 0]
