"""Pages hold up to axe-core: in a window and on a phone, light and dark, it finds nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.browser import chromium, missing, opened, until
from tests.helpers.calling import ROOT, SMALL, called

AXE = Path(os.environ.get("AXE_CORE") or "node_modules/axe-core/axe.min.js")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not there (AXE_CORE, or npm install axe-core)"),
]
BARRIERS = "axe.run().then(({violations}) => violations.map((v) => [v.impact, v.id, v.nodes[0].html.slice(0, 200)]))"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    where = tmp_path_factory.mktemp("pages")
    (where / "small.toml").write_text(SMALL)
    called(where, "small.toml", "--generations", 12, "--run-dir", "run")
    called(where, "small.toml", "--seed", 2, "--run-dir", "other", "--no-report")
    called(where, "report", "run", "other", "--output", "both.html", program="evo")
    called(where, "compare", "run", "other", "--page", "comparison.html", program="evo")
    called(where, "export", ROOT / "champions" / "pqn_snake.h5", "--to", "html", "champion.html", program="evo")
    return [where / "run" / "report.html", where / "both.html", where / "comparison.html", where / "champion.html"]


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_stands_in_the_way_of_anybody(pages: list[Path], size: tuple[int, int], dark: bool) -> None:
    with chromium() as browser:
        for path in pages:
            with opened(browser, path, *size, dark=dark) as (page, _):
                if path.name != "champion.html":  # reports are drawn by scripts
                    until(page, "document.body.dataset.charts")
                page.evaluate(f"{AXE.read_text(encoding='utf-8')}; 1")
                assert page.evaluate(BARRIERS) == [], path.name


def test_a_button_without_a_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html><html lang=en><title>A page</title><main><button></button>")
    with chromium() as browser, opened(browser, tmp_path / "page.html") as (page, _):
        page.evaluate(f"{AXE.read_text(encoding='utf-8')}; 1")
        assert "button-name" in [rule for _, rule, _ in page.evaluate(BARRIERS)]
