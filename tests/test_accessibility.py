"""Pages hold up to axe-core: in a window and on a phone, light and dark, it finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from calling import ROOT, SMALL, called
from chromium import axe_core, executable, tab

AXE = axe_core()
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(executable() is None, reason="there is no Chromium to open a page in"),
    pytest.mark.skipif(AXE is None, reason="axe-core is not there (AXE_CORE, or npm install axe-core)"),
]


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
def test_nothing_stands_in_the_way_of_anybody(
    pages: list[Path], size: tuple[int, int], dark: bool, tmp_path: Path
) -> None:
    with tab(tmp_path) as opened:
        opened.screen(*size, dark=dark, mobile=size[0] < 500)
        for page in pages:
            opened.open(page)
            assert opened.barriers(AXE) == [], page.name
