"""The page of a champion in a real browser: no error, the recorded games, keys and buttons, phones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.browser import chromium, missing, opened, until
from tests.helpers.calling import ROOT, called

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.long, pytest.mark.skipif(missing() is not None, reason=str(missing()))]
CHAMPION = "pqn_snake"  # with layer normalisation
PHONE = (390, 844)
VERDICT = "document.getElementById('verdict').textContent"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("pages")
    for name in (CHAMPION, "ppo_snake_full"):
        called(where, "export", ROOT / "champions" / f"{name}.h5", "--to", "html", program="evo")
    return where


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser, folder: Path) -> Iterator[Page]:
    """The champion's page, freshly opened; afterwards nothing may have been complained about."""
    with opened(browser, folder / f"{CHAMPION}.html") as (page, complaints):
        assert page.locator("#damaged").count() == 0
        yield page
        page.evaluate("1")  # so that what was reported until now is heard
        assert complaints == []


def number(page: Page, name: str) -> int:
    return int(text(page, name))


def text(page: Page, name: str) -> str:
    return str(page.locator(f"#{name}").text_content())


@pytest.mark.parametrize("name", [CHAMPION, "ppo_snake_full"])
def test_verify_finds_200_games_as_the_trainer_recorded_them(browser: Browser, folder: Path, name: str) -> None:
    with opened(browser, folder / f"{name}.html") as (page, complaints):
        assert page.locator("#games").input_value() == "200"
        page.click("#verify")
        until(page, f"{VERDICT} !== ''", 600)
        told = text(page, "verdict")
        assert told.startswith("200 of 200 games: the same length and score.")
        assert re.search(r"All [\d,]+ outputs of the network have the recorded checksums, bit for bit.$", told)
        assert page.locator("#verdict").get_attribute("class") == "good"
        assert complaints == []


def test_verify_works_where_a_browser_allows_no_workers(page: Page) -> None:
    page.evaluate("void (window.Worker = class { constructor() { throw new Error('no workers'); } })")
    page.locator("#games").fill("3")
    page.click("#verify")
    until(page, f"{VERDICT} !== ''", 120)
    assert text(page, "verdict").startswith("3 of 3 games: the same length and score. All")


def test_verify_says_what_differs_and_stops_when_it_is_told_to(page: Page) -> None:
    page.evaluate("recorded.steps[1] += 1; recorded.checksums[2] ^= 1; document.getElementById('games').value = 4")
    page.click("#verify")
    until(page, f"{VERDICT} !== ''", 120)
    told = text(page, "verdict")
    assert told.startswith("3 of 4 games: the same length and score. The outputs have other checksums in 2.")
    assert "The first is test episode 1:" in told
    assert page.locator("#verdict").get_attribute("class") == "bad"
    page.locator("#games").fill("200")
    page.click("#verify")
    page.click("#verify")
    until(page, f"{VERDICT} === 'Stopped.'")
    assert text(page, "verify") == "Verify"


def test_keys_play_pause_step_change_the_speed_and_begin_the_next_game(page: Page) -> None:
    until(page, "document.getElementById('steps').textContent > 3")
    page.keyboard.press(" ")
    assert text(page, "play") == "Play"
    before = number(page, "steps")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert number(page, "steps") == before + 3
    speed = number(page, "speed")
    page.keyboard.press("+")
    assert number(page, "speed") > speed
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert number(page, "speed") < speed
    page.keyboard.press("n")
    assert page.locator("#episode").input_value() == "1"
    assert number(page, "steps") == 0
    page.keyboard.press(" ")
    until(page, "document.getElementById('steps').textContent > 0")


def test_a_chosen_test_episode_is_the_recorded_one(page: Page) -> None:
    page.evaluate("""(() => {
        const input = document.getElementById("episode");
        input.value = 7;
        input.dispatchEvent(new Event("change"));
        game.playing = true;
        game.speed = SPEEDS.length - 1;
    })()""")
    until(page, "document.getElementById('champion-end').textContent !== ''")
    steps, score = page.evaluate("[recorded.steps[7], recorded.scores[7]]")
    assert (number(page, "steps"), number(page, "fruits")) == (steps, score)
    assert f"after {score} fruits" in text(page, "champion-end") or "Starved" in text(page, "champion-end")


def test_arrows_steer_the_reader_s_snake_beside_the_champion_on_the_same_fruits(page: Page) -> None:
    page.click("#versus")
    assert "Press an arrow key" in text(page, "human-end")
    same = "game.human.fruit === game.episode.board.fruit && game.human.body[0] === game.episode.board.body[0]"
    assert page.evaluate(same)
    page.keyboard.press(" ")  # nothing begins before an arrow
    assert page.evaluate("game.human.steps") == 0
    page.evaluate("void (frame = () => {})")  # from here on, steps are the test's
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    page.evaluate("game.human.body = [55]; game.human.fruit = 0")
    for key, towards in (("ArrowLeft", -1), ("ArrowUp", -10), ("ArrowRight", 1), ("ArrowDown", 10)):
        before = page.evaluate("game.human.body[0]")
        page.keyboard.press(key)
        page.evaluate("tick()")
        assert page.evaluate("game.human.body[0]") == before + towards
    assert page.evaluate("[game.human.steps, game.episode.board.steps]") == [4, 4]
    page.click("#versus")
    assert page.evaluate("game.human === null")


def test_turning_back_is_ignored_where_it_would_be_a_collision(page: Page) -> None:
    page.click("#versus")
    page.evaluate("""(() => {
        game.human = new Board({ ...champion.rules, relative: false, startLength: 3 }, [1, 2]);
        game.human.steps = 1; // it looks up, and has a body below
    })()""")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("game.turns") == []
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("game.turns") == [3, 2]


@pytest.mark.parametrize("versus", [False, True])
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scroll(browser: Browser, folder: Path, versus: bool, dark: bool) -> None:
    with opened(browser, folder / f"{CHAMPION}.html", *PHONE, dark=dark) as (page, _):
        if versus:
            page.tap("#versus")
        width, left = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert (width, left) == (PHONE[0], PHONE[0])
        inside = "(e) => e.getBoundingClientRect().right <= innerWidth + 1"
        beyond = f"[...document.querySelectorAll('body *')].filter((e) => !({inside})(e))"
        assert page.evaluate(f"{beyond}.map((e) => e.tagName + e.id)") == []


def test_every_control_has_a_name_and_colours_follow_the_reader(page: Page) -> None:
    nameless = """[...document.querySelectorAll("button, input, canvas, progress")].filter((e) =>
        !(e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels.length)))"""
    assert page.evaluate(f"{nameless}.length") == 0
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    until(page, f"getComputedStyle(document.body).backgroundColor !== {light!r}")
    until(page, "colours.head === palette().head")
