"""Pages in a headless Chromium of this machine, which Playwright steers: for the README's pictures, and for tests.

Needs a Chromium (Debian's `chromium`, for example) and `python -m pip install playwright`, the extra `browser`.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
COMPLAINTS = ("error", "warning", "assert")  # kinds of messages of the console


def missing() -> str | None:
    """Return what a page cannot be opened for, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed (the extra `browser`)"
    return None if _executable() else "there is no Chromium here"


@cache
def _executable() -> str | None:
    """Return the machine's Chromium, or else the one that `playwright install chromium` has brought."""
    from playwright.sync_api import sync_playwright

    if found := next((path for name in NAMES if (path := shutil.which(name))), None):
        return found
    with sync_playwright() as playwright:
        brought = playwright.chromium.executable_path
    return brought if Path(brought).is_file() else None


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a Chromium of its own, which ends afterwards."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_executable(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Browser, place: Path | str, width: int = 1280, height: int = 900, *, dark: bool = False
) -> Iterator[tuple[Page, list[str]]]:
    """Yield a page and, as it grows, the list of what the browser complains about.

    `place` is a file or an address. Below 500 CSS pixels of width it is a phone, with touch and two pixels a CSS pixel.
    """
    phone: dict[str, Any] = {"is_mobile": True, "has_touch": True, "device_scale_factor": 2} if width < 500 else {}
    size = {"width": width, "height": height}
    context = browser.new_context(viewport=size, color_scheme="dark" if dark else "light", **phone)
    complaints: list[str] = []
    try:
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda told: complaints.append(told.text) if told.type in COMPLAINTS else None)
        page.goto(place if isinstance(place, str) else place.absolute().as_uri())
        yield page, complaints
    finally:
        context.close()


def until(page: Page, condition: str, seconds: float = 60.0) -> None:
    """Wait until an expression is true; TimeoutError says which was not. Pages that forbid `eval` allow it too."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {condition}")
        page.wait_for_timeout(50)
