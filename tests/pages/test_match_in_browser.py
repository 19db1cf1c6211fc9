"""Pages of games of several players in a real browser: matches by keys, clicks and taps, and their verification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from benchmarks.browser import chromium, missing, opened, until
from tests.helpers.calling import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.long, pytest.mark.skipif(missing() is not None, reason=str(missing()))]
PLAYED = ["connect_four", "duel"]
GALLERY = ROOT / "docs" / "gallery"
VERDICT = "document.getElementById('verdict').textContent"
STATUS = "document.getElementById('status').textContent"
FINISHED = f"/ wins? after | draw after /.test({STATUS})"
OUTSIDE = """[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
    .map((e) => e.tagName + e.id)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.parametrize("game", PLAYED)
def test_verify_finds_the_recorded_matches(browser: Browser, game: str) -> None:
    with opened(browser, GALLERY / f"{game}.html") as (page, complaints):
        page.click("#verify")
        until(page, f"{VERDICT} !== ''", 300)
        told = page.evaluate(VERDICT)
        assert told.startswith("200 of 200 games: the same length and score. All ")
        assert told.endswith("outputs of the network have the recorded checksums, bit for bit.")
        assert complaints == []


def test_connect_four_is_played_by_keys_and_clicks_from_both_seats(browser: Browser) -> None:
    with opened(browser, GALLERY / "connect_four.html") as (page, complaints):
        page.evaluate("void (shown.speed = SPEEDS.length - 1)")
        page.keyboard.press("4")
        until(page, "shown.match.steps === 2")
        assert page.evaluate("shown.match.game.cells[5 * 7 + 3]") == 0
        width, height = page.evaluate("[board.clientWidth, board.clientHeight]")
        page.locator("#board").click(position={"x": width / 14, "y": height / 2})
        until(page, "shown.match.steps === 4")
        assert page.evaluate("shown.match.game.cells[5 * 7]") == 0
        page.select_option("#seat", "1")
        until(page, "shown.match.steps === 1")
        assert page.evaluate(STATUS) == "Your move"
        for _ in range(21):
            if page.evaluate("shown.match.over"):
                break
            page.keyboard.press(str(1 + page.evaluate("shown.match.game.allowed().indexOf(true)")))
            until(page, "shown.match.over || awaited()")
        assert page.evaluate(FINISHED)
        page.keyboard.press("n")
        assert page.locator("#episode").input_value() == "1"
        assert complaints == []


def test_the_duel_is_steered_by_arrows_and_begins_with_the_first_one(browser: Browser) -> None:
    with opened(browser, GALLERY / "duel.html") as (page, complaints):
        assert page.evaluate(STATUS).startswith("Begin: arrows")
        page.keyboard.press("ArrowDown")  # back into the own neck
        assert page.evaluate("shown.queue.length") == 0
        page.evaluate("void (frame = () => {})")  # from here on, steps are the test's
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        page.evaluate("begin(0)")
        before = page.evaluate("shown.match.game.heads[0]")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowRight")
        page.evaluate("tick()")
        assert page.evaluate("shown.match.game.heads[0]") == before - 8
        page.evaluate("tick()")
        assert page.evaluate("shown.match.game.heads[0]") == before - 7
        page.evaluate("tick()")
        assert page.evaluate("shown.match.game.heads[0]") == before - 6
        page.evaluate("while (!shown.match.over) tick(); show()")
        assert page.evaluate(FINISHED)
        assert complaints == []


@pytest.mark.parametrize("game", PLAYED)
def test_a_recorded_match_is_watched_to_its_end(browser: Browser, game: str) -> None:
    with opened(browser, GALLERY / f"{game}.html") as (page, complaints):
        page.select_option("#seat", "-1")
        page.evaluate("void (shown.speed = SPEEDS.length - 1)")
        until(page, FINISHED)
        steps, score = page.evaluate("[data.recorded.steps[0], data.recorded.scores[0]]")
        assert page.evaluate("[shown.match.steps, shown.match.score]") == [steps, score]
        assert complaints == []


@pytest.mark.parametrize("game", PLAYED)
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_the_board_and_its_buttons(browser: Browser, game: str, dark: bool) -> None:
    with opened(browser, GALLERY / f"{game}.html", 390, 844, dark=dark) as (page, complaints):
        assert page.evaluate(OUTSIDE) == []
        page.evaluate("void (shown.speed = SPEEDS.length - 1)")
        page.locator("#moves button").first.tap()
        until(page, "shown.match.steps >= 2")
        bottom = page.evaluate("document.getElementById('moves').getBoundingClientRect().bottom")
        assert bottom < 844  # without scrolling
        assert complaints == []
