"""The page of a champion in a real browser: no error, the recorded games, keys and buttons, phones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import ROOT, called
from chromium import Tab, executable, tab

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(executable() is None, reason="there is no Chromium to open a page in"),
]
CHAMPION = "pqn_snake"  # with layer normalisation
PHONE = (390, 844)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("pages")
    for name in (CHAMPION, "ppo_snake_full"):
        called(where, "export", ROOT / "champions" / f"{name}.h5", "--to", "html", program="evo")
    return where


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def page(browser: Tab, folder: Path) -> Iterator[Tab]:
    """The champion's page, freshly opened; afterwards nothing may have been complained about."""
    browser.complaints.clear()
    browser.screen(1280, 900)
    browser.open(folder / f"{CHAMPION}.html")
    yield browser
    browser.value("1")  # so that what was reported until now is read
    assert browser.complaints == []


def number(page: Tab, name: str) -> int:
    return int(page.value(f"document.getElementById('{name}').textContent"))


def text(page: Tab, name: str) -> str:
    return str(page.value(f"document.getElementById('{name}').textContent"))


@pytest.mark.parametrize("name", [CHAMPION, "ppo_snake_full"])
def test_verify_finds_200_games_as_the_trainer_recorded_them(browser: Tab, folder: Path, name: str) -> None:
    browser.complaints.clear()
    browser.open(folder / f"{name}.html")
    assert browser.value("document.getElementById('games').value") == "200"
    browser.click("#verify")
    browser.until("document.getElementById('verdict').textContent !== ''", 600)
    told = text(browser, "verdict")
    assert told.startswith("200 of 200 games: the same length and score.")
    assert re.search(r"All [\d,]+ outputs of the network have the recorded checksums, bit for bit.$", told)
    assert browser.value("document.getElementById('verdict').className") == "good"
    assert browser.complaints == []


def test_verify_works_where_a_browser_allows_no_workers(page: Tab) -> None:
    page.value("window.Worker = class { constructor() { throw new Error('no workers'); } }")
    page.value("document.getElementById('games').value = 3")
    page.click("#verify")
    page.until("document.getElementById('verdict').textContent !== ''", 120)
    assert text(page, "verdict").startswith("3 of 3 games: the same length and score. All")


def test_verify_says_what_differs_and_stops_when_it_is_told_to(page: Tab) -> None:
    page.value("recorded.steps[1] += 1; recorded.checksums[2] ^= 1; document.getElementById('games').value = 4")
    page.click("#verify")
    page.until("document.getElementById('verdict').textContent !== ''", 120)
    told = text(page, "verdict")
    assert told.startswith("3 of 4 games: the same length and score. The outputs have other checksums in 2.")
    assert "The first is test episode 1:" in told
    assert page.value("document.getElementById('verdict').className") == "bad"
    page.value("document.getElementById('games').value = 200")
    page.click("#verify")
    page.click("#verify")
    page.until("document.getElementById('verdict').textContent === 'Stopped.'")
    assert text(page, "verify") == "Verify"


def test_keys_play_pause_step_change_the_speed_and_begin_the_next_game(page: Tab) -> None:
    page.until("document.getElementById('steps').textContent > 3")
    page.press(" ")
    assert text(page, "play") == "Play"
    before = number(page, "steps")
    for _ in range(3):
        page.press("ArrowRight")
    assert number(page, "steps") == before + 3
    speed = number(page, "speed")
    page.press("+")
    assert number(page, "speed") > speed
    page.press("-")
    page.press("-")
    assert number(page, "speed") < speed
    page.press("n")
    assert page.value("document.getElementById('episode').value") == "1"
    assert number(page, "steps") == 0
    page.press(" ")
    page.until("document.getElementById('steps').textContent > 0")


def test_a_chosen_test_episode_is_the_recorded_one(page: Tab) -> None:
    page.value("""(() => {
        const input = document.getElementById("episode");
        input.value = 7;
        input.dispatchEvent(new Event("change"));
        game.playing = true;
        game.speed = SPEEDS.length - 1;
    })()""")
    page.until("document.getElementById('champion-end').textContent !== ''")
    steps, score = page.value("[recorded.steps[7], recorded.scores[7]]")
    assert (number(page, "steps"), number(page, "fruits")) == (steps, score)
    assert f"after {score} fruits" in text(page, "champion-end") or "Starved" in text(page, "champion-end")


def test_arrows_steer_the_reader_s_snake_beside_the_champion_on_the_same_fruits(page: Tab) -> None:
    page.click("#versus")
    assert "Press an arrow key" in text(page, "human-end")
    same = "game.human.fruit === game.episode.board.fruit && game.human.body[0] === game.episode.board.body[0]"
    assert page.value(same)
    page.press(" ")  # nothing begins before an arrow
    assert page.value("game.human.steps") == 0
    page.value("frame = () => {}")  # from here on, steps are the test's
    page.value("game.human.body = [55]; game.human.fruit = 0")
    for key, towards in (("ArrowLeft", -1), ("ArrowUp", -10), ("ArrowRight", 1), ("ArrowDown", 10)):
        before = page.value("game.human.body[0]")
        page.press(key)
        page.value("tick()")
        assert page.value("game.human.body[0]") == before + towards
    assert page.value("[game.human.steps, game.episode.board.steps]") == [4, 4]
    page.click("#versus")
    assert page.value("game.human === null")


def test_turning_back_is_ignored_where_it_would_be_a_collision(page: Tab) -> None:
    page.click("#versus")
    page.value("""(() => {
        game.human = new Board({ ...champion.rules, relative: false, startLength: 3 }, [1, 2]);
        game.human.steps = 1; // it looks up, and has a body below
    })()""")
    page.press("ArrowDown")
    assert page.value("game.turns") == []
    page.press("ArrowLeft")
    page.press("ArrowRight")
    page.press("ArrowDown")
    assert page.value("game.turns") == [3, 2]


@pytest.mark.parametrize("versus", [False, True])
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scroll(page: Tab, versus: bool, dark: bool) -> None:
    page.screen(*PHONE, dark=dark, mobile=True)
    if versus:
        page.click("#versus")
    width, left = page.value("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert (width, left) == (PHONE[0], PHONE[0])
    beyond = "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)"
    assert page.value(f"{beyond}.map((e) => e.tagName + e.id)") == []


def test_every_control_has_a_name_and_colours_follow_the_reader(page: Tab) -> None:
    nameless = """[...document.querySelectorAll("button, input, canvas, progress")].filter((e) =>
        !(e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels.length)))"""
    assert page.value(f"{nameless}.length") == 0
    light = page.value("getComputedStyle(document.body).backgroundColor")
    page.screen(1280, 900, dark=True)
    page.until(f"getComputedStyle(document.body).backgroundColor !== {light!r}")
    page.until("colours.head === palette().head")
