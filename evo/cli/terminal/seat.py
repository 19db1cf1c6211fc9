"""A person at a seat of a game of several players in the terminal, against networks and baselines."""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from evo.cli.terminal.playback import Drawing, Read, keys, names
from evo.errors import ConfigurationError
from evo.randomness.streams import seeds_of_test_episodes
from evo.rollouts.seatings import Seated, SeatPlayer, play_seats

LETTERS = "123456789abcdefghijkmoprstuvwxyz"  # of actions that are no directions; n and q mean other things
ARROWS = ("up", "right", "down", "left")
END = "r again, n next episode, q leaves"


class Left(Exception):
    """The person leaves an episode, by this key."""


class Person(SeatPlayer):
    """The person: scores of 1 for the action whose key is pressed."""

    def __init__(self, environment: Any, seat: int, steps_per_second: float, read: Read) -> None:
        super().__init__("you")
        self._environment, self._seat, self._read, self._drawing = environment, seat, read, Drawing()
        self._waits = 1 / steps_per_second if environment.definition.written.turn is None else 0.0
        self._title, self._due, self._plain = "", 0.0, environment.plain()
        titles = environment.action_names or [f"action {action}" for action in range(environment.actions)]
        self._keys = {name if name in ARROWS else LETTERS[i]: i for i, name in enumerate(titles)}
        self._help = ", ".join(key if key == titles[i] else f"{key} {titles[i]}" for key, i in self._keys.items())
        self._stays = titles.index("stay") if "stay" in titles else None
        self._last, self._pressed = 0, deque[str]()  # keys wait for their move

    def begin(self, episode: int) -> None:
        """Show an episode from now on."""
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


def play(environment: Any, opponent: SeatPlayer, seat: int, episode: int, steps_per_second: float) -> None:
    """Play test episodes from `episode` on, until the person leaves with q or Ctrl-C.

    ConfigurationError: the terminal is too small.
    """
    first = environment.plain()
    first.begin(0, int(seeds_of_test_episodes(1, episode)[0]))
    lines = [Text.from_ansi(line).cell_len for line in first.shown(0).text(colour=False).split("\n")]
    needed, there = (max(lines), len(lines) + 3), shutil.get_terminal_size()
    if there.columns < needed[0] or there.lines < needed[1]:
        wanted = f"{needed[0]} columns and {needed[1]} lines"
        raise ConfigurationError(f"evo play: the terminal has {there.columns} x {there.lines}; enlarge it to {wanted}")
    with suppress(KeyboardInterrupt), keys() as read:
        person = Person(environment, seat, steps_per_second, read)
        seating = np.array([[int(other != seat) for other in range(environment.players)]])
        key = ""
        while key != "q":
            person.begin(episode)
            try:
                seated = play_seats(
                    environment.game, [person, opponent], seating, seeds_of_test_episodes(1, episode), see=person.see
                )
                person.show(f"{verdict(seated, seat)} ({END})")
                while key not in ("n", "r", "q"):
                    key = next(iter(names(read(60.0))), "")
            except Left as left:
                key = str(left)
            episode, key = episode + (key == "n"), key if key == "q" else ""


def verdict(seated: Seated, seat: int) -> str:
    """Return who wins the only episode."""
    mine, best = seated.returns[0, seat], np.delete(seated.returns[0], seat).max()
    return "you win" if mine > best else "you lose" if mine < best else "a draw"
