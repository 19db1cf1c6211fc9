"""The site in a real browser: search, dark colours, phones, and nothing that is loaded from elsewhere or fails."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.browser import chromium, missing, opened, until
from tests.helpers.calling import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.long, pytest.mark.skipif(missing() is not None, reason=str(missing()))]
PHONE = (390, 844)
TOLD = "document.querySelector('.md-search-result__meta').textContent.trim()"
SHOWN = "getComputedStyle(document.body).backgroundColor"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and tells no one."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Build the site and serve it: its search needs a server."""
    subprocess.run(["bash", ".ci/site"], cwd=ROOT, check=True, timeout=900)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=ROOT / "build" / "site")) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def test_the_search_finds_a_word_on_the_page_that_explains_it(browser: Browser, address: str) -> None:
    with opened(browser, address) as (page, complaints):
        until(page, f"{TOLD}.startsWith('Type to start')")
        page.locator("input[name=query]").press_sequentially("sigma")  # its keys are heard
        until(page, "document.querySelectorAll('.md-search-result__item').length > 0")
        found = page.locator(".md-search-result__item > a").evaluate_all("(links) => links.map((one) => one.pathname)")
        assert "/evolution/" in found
        assert complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_the_colours_are_those_of_the_reader_until_a_button_changes_them(
    browser: Browser, address: str, dark: bool
) -> None:
    with opened(browser, address, dark=dark) as (page, complaints):
        before = page.evaluate(SHOWN)
        assert (max(map(int, before[4:-1].split(","))) < 128) == dark
        page.click("label[title=Light]:visible" if dark else "label[title=Dark]:visible")
        until(page, f"{SHOWN} !== {before!r}")
        assert complaints == []


@pytest.mark.parametrize("name", ["", "experiments/", "experiments/results/", "gallery/", "api/", "memory/"])
def test_a_page_fits_a_phone_and_loads_nothing_from_elsewhere(browser: Browser, address: str, name: str) -> None:
    with opened(browser, "about:blank", *PHONE) as (page, complaints):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        page.goto(address + name, wait_until="networkidle")
        width, left = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert (width, left) == (PHONE[0], PHONE[0])
        assert len(asked) > 3
        assert [url for url in asked if not url.startswith((address, "data:"))] == []
        assert complaints == []
