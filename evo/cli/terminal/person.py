"""A person plays in the terminal: Snake, alone or next to an episode of a champion, or a seat of several players."""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from evo.cli.terminal.playback import Drawing, Read, keys, names
from evo.environment import Shown
from evo.errors import ConfigurationError
from evo.games.catalogue.snake.pictures import board
from evo.games.catalogue.snake.position import Game
from evo.games.catalogue.snake.rules import HEADINGS
from evo.randomness.streams import seeds_of_test_episodes
from evo.rollouts.seatings import Seated, SeatPlayer, play_seats

BEGINNING = "an arrow begins; space pauses, n next game, q leaves"
END = "r again, n next game, q leaves"
MOST_TURNS = 2  # key presses that wait for their step
GAP = "   "
LETTERS = "123456789abcdefghijkmoprstuvwxyz"  # of actions that are no directions; n and q mean other things
ARROWS = ("up", "right", "down", "left")


def play_episodes(play: Callable[[int, Read], str], episode: int) -> None:
    """Have `play` play test episodes until it returns "q"; "n" is the next one, "r" the same one, Ctrl-C leaves."""
    with suppress(KeyboardInterrupt), keys() as read:
        while (answer := play(episode, read)) != "q":
            episode += answer == "n"


def answered(read: Read) -> str:
    """Wait for n, r or q, and return it."""
    while True:
        for key in names(read(60.0)):
            if key in ("n", "r", "q"):
                return key


def require_room(columns: int, lines: int) -> None:
    """Raise a ConfigurationError where the terminal is smaller."""
    there = shutil.get_terminal_size()
    if there.columns < columns or there.lines < lines:
        wanted = f"{columns} columns and {lines} lines"
        raise ConfigurationError(f"evo play: the terminal has {there.columns} x {there.lines}; enlarge it to {wanted}")


class Opponent(NamedTuple):
    """An episode that a champion has played."""

    shown: Sequence[Shown]  # the position before every step, and the last one
    score: int


class Match:
    """One episode: the person's game, turns that wait, and the champion's positions."""

    def __init__(self, game: Game, opponent: Opponent | None) -> None:
        self.game, self.opponent = game, opponent
        self.turns: deque[int] = deque()

    def turn(self, direction: int) -> None:
        """Take a turn. Turning back would be a collision, so it is ignored."""
        heading = self.turns[-1] if self.turns else self.game.heading
        back = direction == (heading + 2) % 4 and len(self.game.body) > 1
        if not back and direction != heading and len(self.turns) < MOST_TURNS:
            self.turns.append(direction)

    def step(self) -> None:
        """Play the next turn, or go straight on."""
        self.game.step(self.turns.popleft() if self.turns else self.game.heading)

    def lines(self, colour: bool) -> list[str]:
        """Return the boards as lines of text, the person's on the left."""
        mine = board(self.game).text(colour).split("\n")
        if self.opponent is None:
            return mine
        theirs = self.opponent.shown[min(self.game.steps, len(self.opponent.shown) - 1)].text(colour).split("\n")
        width = 2 * self.game.size + 2
        titles = f"{'you':<{width}}{GAP}champion"
        rows = [f"{left}{GAP}{right}" for left, right in zip(mine[:-1], theirs[:-1], strict=True)]
        return [titles, *rows, f"{mine[-1]:<{width}}{GAP}{theirs[-1]}"]

    def verdict(self) -> str:
        """Return the result of a game that is over."""
        mine = self.game.score
        if self.opponent is None:
            return f"{mine} of {self.game.size**2 - self.game.start_length} fruits"
        theirs = self.opponent.score
        who = "you win" if mine > theirs else "the champion wins" if mine < theirs else "a draw"
        return f"{who}: {mine} to {theirs}"


def sides(size: int, boards: int) -> tuple[int, int]:
    """Return the columns and lines that a number of boards take."""
    return max(boards * (2 * size + 2) + (boards - 1) * len(GAP), len(BEGINNING)), size + 6


def play_snake(match: Match, episode: int, steps_per_second: float, read: Read) -> str:
    """Play one episode; return as `play_episodes` has it."""
    colour, drawing = not os.environ.get("NO_COLOR"), Drawing()
    moving, due = False, 0.0

    def show(below: str) -> None:
        drawing.show([f"test episode {episode}", *match.lines(colour), below])

    while not match.game.over:
        show(BEGINNING if match.game.steps == 0 else "" if moving else "paused")
        waiting = due - time.monotonic() if moving else 60.0
        for key in names(read(waiting)):
            if key in ("n", "q"):
                return key
            if key == " ":
                moving = not moving and match.game.steps > 0
            elif key in HEADINGS:
                match.turn(HEADINGS.index(key))
                moving, due = True, due if moving else time.monotonic()
        if moving and time.monotonic() >= due:
            match.step()
            due = max(due + 1 / steps_per_second, time.monotonic())
    show(f"{match.verdict()} ({END})")
    return answered(read)


class Left(Exception):
    """The person leaves an episode, by this key."""


class Person(SeatPlayer):
    """The person: scores of 1 for the action whose key is pressed."""

    def __init__(self, environment: Any, seat: int, steps_per_second: float) -> None:
        super().__init__("you")
        self._environment, self._seat, self._drawing = environment, seat, Drawing()
        self._waits = 1 / steps_per_second if environment.definition.written.turn is None else 0.0
        self._title, self._due, self._plain = "", 0.0, environment.plain()
        titles = environment.action_names or [f"action {action}" for action in range(environment.actions)]
        self._keys = {name if name in ARROWS else LETTERS[i]: i for i, name in enumerate(titles)}
        self._help = ", ".join(key if key == titles[i] else f"{key} {titles[i]}" for key, i in self._keys.items())
        self._stays = titles.index("stay") if "stay" in titles else None
        self._last, self._pressed = 0, deque[str]()  # keys wait for their move

    def begin(self, episode: int, read: Read) -> None:
        """Show an episode from now on, and read keys."""
        self._read = read
        self._title, self._due = f"test episode {episode}, you have seat {self._seat}", 0.0
        self._pressed.clear()

    def see(self, state: Any) -> None:
        """Remember and show a position."""
        for mine, theirs in zip(self._plain.state, state.state, strict=True):
            mine[...] = theirs
        self.show(self._help)

    def show(self, below: str) -> None:
        """Show the position with a line below it."""
        lines = self._plain.shown(0).text(not os.environ.get("NO_COLOR")).split("\n")
        self._drawing.show([self._title, *lines, below])

    def scores(self, observations: NDArray[np.float32], memory: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Return 1 for the action of the next key, or of the last one where the time of a step is over."""
        action, allowed = None, self._plain.mask(0)
        while action is None:
            begun = self._waits > 0 and self._due > 0
            if not self._pressed:
                self._pressed.extend(names(self._read(self._due - time.monotonic() if begun else 60.0)))
            key = self._pressed.popleft() if self._pressed else ""
            if key in ("n", "q"):
                raise Left(key)
            if key in self._keys and allowed[self._keys[key]]:
                action = self._keys[key]
            elif begun and time.monotonic() >= self._due:
                action = self._last if self._stays is None else self._stays
        wait = self._due - time.monotonic()
        if self._waits and wait > 0:
            time.sleep(wait)
        self._last, self._due = action, time.monotonic() + self._waits
        return np.eye(self._environment.actions, dtype=np.float32)[[action]]


def play_seat(environment: Any, opponent: SeatPlayer, seat: int, episode: int, steps_per_second: float) -> None:
    """Play test episodes from `episode` on; ConfigurationError: the terminal is too small, or has too few keys."""
    if environment.actions > len(LETTERS):
        raise ConfigurationError(f"evo play: there are {environment.actions} actions, and keys for {len(LETTERS)}")
    first = environment.plain()
    first.begin(0, int(seeds_of_test_episodes(1, episode)[0]))
    lines = [Text.from_ansi(line).cell_len for line in first.shown(0).text(colour=False).split("\n")]
    require_room(max(lines), len(lines) + 3)
    person = Person(environment, seat, steps_per_second)
    seating = np.array([[int(other != seat) for other in range(environment.players)]])

    def play(number: int, read: Read) -> str:
        person.begin(number, read)
        try:
            seeds = seeds_of_test_episodes(1, number)
            seated = play_seats(environment.game, [person, opponent], seating, seeds, see=person.see)
        except Left as left:
            return str(left)
        person.show(f"{verdict(seated, seat)} ({END})")
        return answered(read)

    play_episodes(play, episode)


def verdict(seated: Seated, seat: int) -> str:
    """Return who wins the only episode."""
    mine, best = seated.returns[0, seat], np.delete(seated.returns[0], seat).max()
    return "you win" if mine > best else "you lose" if mine < best else "a draw"
