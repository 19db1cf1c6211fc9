"""A person plays Snake in the terminal, alone or beside a champion."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fcntl import ioctl
from pathlib import Path

import numpy as np
import pytest

import evo
from evo.cli.commands import play
from evo.cli.terminal import person
from evo.cli.terminal.display import HIDE, SHOW
from evo.cli.terminal.person import Match, Opponent, sides
from evo.cli.terminal.playback import names
from evo.comparison.league import round_robin_of
from evo.errors import ConfigurationError
from evo.randomness.streams import seeds_of_test_episodes
from evo.store.champion import encode_champion, network_layers
from snake.rules import Game
from tests.helpers.calling import ROOT, SMALL, called

UP, DOWN, LEFT = b"\x1b[A", b"\x1b[B", b"\x1bOD"
CHAMPION = ROOT / "champions" / "dqn_snake.h5"
REMEMBERED = 3  # fruits that the champion with memory eats in test episode 3; 0 with its state zeroed at every step


def with_memory(folder: Path) -> Path:
    """Write the champion.h5 of a network with memory, of weights at random."""
    (folder / "memory.toml").write_text(SMALL.replace("dense = [4]", 'dense = []\nmemory = "gru:8"'))
    experiment = evo.Experiment.load(folder / "memory.toml")
    network, file = experiment.network(), folder / "champion.h5"
    weights = np.random.default_rng(24).normal(size=network.size).astype(np.float32)
    sections = {name: getattr(experiment, name).model_dump() for name in ("environment", "policy")}
    about = {"algorithm": "ga", "seed": 1, **sections}
    file.write_bytes(encode_champion(weights, network_layers(network), about)[0])
    return file


class Terminal:
    """A terminal in which a command runs."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.text, self.before = descriptor, "", termios.tcgetattr(descriptor)

    def until(self, wanted: str, seconds: float = 90) -> str:
        """Read until the screen shows a text that was not there before; return what was shown until then."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(wanted, self.text)):
            left = deadline - time.monotonic()
            assert select.select([self.descriptor], [], [], max(left, 0))[0], self.text
            try:
                self.text += os.read(self.descriptor, 1 << 16).decode()
            except OSError as end:  # the command has ended
                raise AssertionError(self.text) from end
        before, self.text = self.text[: found.end()], self.text[found.end() :]
        return before

    def press(self, keys: bytes) -> None:
        os.write(self.descriptor, keys)


@contextmanager
def terminal(*words: object, columns: int = 80, lines: int = 30) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {**os.environ, "NO_COLOR": "1"}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    line = [sys.executable, "-m", "evo", "play", *map(str, words)]
    process = subprocess.Popen(
        line, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    before = termios.tcgetattr(theirs)
    try:
        yield Terminal(ours), process
        assert termios.tcgetattr(theirs) == before  # the terminal is as it was
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_a_person_plays_alone_and_leaves() -> None:
    with terminal("--speed", 50) as (screen, process):
        assert "champion" not in screen.until("an arrow begins")
        process.send_signal(signal.SIGTSTP)  # Ctrl-Z, which stops no process of a terminal without a shell
        screen.until(re.escape(f"{SHOW}{HIDE}"))
        termios.tcsetattr(screen.descriptor, termios.TCSANOW, screen.before)  # as a shell does
        process.send_signal(signal.SIGCONT)
        screen.until(re.escape(HIDE))
        screen.press(UP)
        screen.until(r"\d of 99 fruits \(r again")  # it runs into the wall
        screen.press(b"n")
        assert "test episode 1" in screen.until("an arrow begins")
        screen.press(b"q")
        screen.until(re.escape(SHOW))  # the cursor is back
        assert process.wait(30) == 0


@pytest.mark.long
@pytest.mark.parametrize("memory", [False, True])
def test_a_person_plays_beside_a_champion_on_the_same_fruits(tmp_path: Path, memory: bool) -> None:
    champion, theirs = (with_memory(tmp_path), REMEMBERED) if memory else (CHAMPION, r"\d\d")
    with terminal(champion, "--episode", 3, "--speed", 30) as (screen, process):
        shown = screen.until("an arrow begins")
        assert "test episode 3" in shown
        assert re.search(r"you +champion", shown)
        for row in re.findall(r"│(.{10,20})│   │(.{10,20})│", shown):
            assert row[0] == row[1]  # the same start
        screen.press(DOWN)
        screen.until(rf"the champion wins: \d+ to {theirs}\b")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.long
def test_a_champion_with_memory_goes_on_from_its_state(tmp_path: Path) -> None:
    run = evo.Run(with_memory(tmp_path), flags={"backend": "serial"})
    with ExitStack() as stack:
        shown, score = play._champion(run, stack)(3)
    seed, policy, env = int(seeds_of_test_episodes(1, 3)[0]), run.champion, run.environment.env()
    for is_kept in (True, False):
        observation, over, actions = env.reset(seed=seed)[0], False, list[int]()
        policy.reset()
        while not over:
            actions.append(policy(observation))
            observation, _, terminated, truncated, _ = env.step(actions[-1])
            over = terminated or truncated
            if not is_kept:
                policy.reset()
        positions, fruits = run.environment.replayed(seed, actions)
        assert ([one.text(False) for one in positions] == [one.text(False) for one in shown]) is is_kept
        assert fruits == (REMEMBERED if is_kept else 0)
    assert score == REMEMBERED


@pytest.mark.long
def test_mistakes_are_a_line(tmp_path: Path) -> None:
    _, error = called(tmp_path, "play", program="evo", code=2)
    assert error == "evo play needs a terminal, in the foreground, to read keys and to show the board\n"
    closed = ["sh", "-c", f"{sys.executable} -m evo play <&-"]
    done = subprocess.run(closed, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, error)
    with terminal(columns=30) as (screen, process):
        screen.until("the terminal has 30 x 30; enlarge it to 52 columns and 16 lines")
        assert process.wait(30) == 2


@pytest.mark.long
def test_another_game_is_refused(tmp_path: Path) -> None:
    catch = re.sub(r"\[environment\][^\[]*", '[environment]\nid = "catch"\n', SMALL)
    (tmp_path / "catch.toml").write_text(catch)
    called(tmp_path, "catch.toml", "--run-dir", "run", "--generations", 1)
    with terminal(tmp_path / "run") as (screen, process):
        screen.until("evo play: catch cannot be played in a terminal, only Snake and games of several")
        assert process.wait(30) == 2


@pytest.mark.long
def test_a_person_has_a_seat_in_a_game_of_several_players(tmp_path: Path) -> None:
    with terminal("tictactoe:perfect", "--seat", 1, "--episode", 3, lines=40) as (screen, process):
        assert "test episode 3, you have seat 1" in screen.until("1 a1, 2 a2, .*9 c3")
        screen.press(b"123456789123456789123456789")
        screen.until(r"(you lose|a draw) \(r again")
        screen.press(b"n")
        screen.until("test episode 4, you have seat 1")
        screen.press(b"q")
        assert process.wait(30) == 0
    with terminal("duel:greedy", "--speed", 50, lines=40) as (screen, process):
        screen.until("up, right, down, left")
        screen.press(UP)  # and it goes on upwards, into the wall
        screen.until(r"you lose \(r again")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    for words, told in (
        (("tictactoe:perfect", "--seat", 2), "--seat: must be a whole number from 0 to 1"),
        (("tictactoe:best",), "tictactoe:best: tictactoe has no baseline best (there are random, perfect)"),
    ):
        with terminal(*words, lines=40, columns=100) as (screen, process):
            screen.until(re.escape(told))
            assert process.wait(30) == 2


def test_a_game_with_more_actions_than_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    games = round_robin_of(["tictactoe:random"])
    monkeypatch.setattr(person, "LETTERS", person.LETTERS[:8])
    with pytest.raises(ConfigurationError, match="there are 9 actions, and keys for 8"):
        person.play_seat(games.environment, games.players[0], 0, 0, 6)


def test_turning_back_is_ignored_and_two_turns_wait() -> None:
    match = Match(Game(10, body=[(5, 5), (6, 5)], fruit=(0, 0)), None)  # it looks up
    for direction in (2, 0, 3, 1, 2, 1):
        match.turn(direction)
    assert list(match.turns) == [3, 2]
    for _ in range(3):
        match.step()
    assert match.game.body[0] == (7, 4)


def test_the_result_names_the_winner() -> None:
    game = Game(6, seed=1)
    for theirs, told in ((0, "a draw: 0 to 0"), (3, "the champion wins: 0 to 3")):
        assert Match(game, Opponent([], theirs)).verdict() == told
    assert Match(game, None).verdict() == "0 of 35 fruits"


def test_keys_are_read_in_both_modes_of_a_terminal() -> None:
    assert names(b"\x1b[A\x1bOBn\x1b[3~ \x1b[D\x07") == ["up", "down", "n", " ", "left"]


def test_two_boards_need_more_room_than_one() -> None:
    assert sides(30, 1) == (62, 36)
    assert sides(30, 2) == (127, 36)
