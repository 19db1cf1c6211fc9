"""A person plays Snake in the terminal, alone or next to an episode of a champion."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from evo.cli.terminal.playback import Drawing, Read, keys, names
from evo.environment import Shown
from evo.games.catalogue.snake.pictures import board
from evo.games.catalogue.snake.position import Game
from evo.games.catalogue.snake.rules import HEADINGS

BEGINNING = "an arrow begins; space pauses, n next game, q leaves"
END = "r again, n next game, q leaves"
MOST_TURNS = 2  # key presses that wait for their step
GAP = "   "


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


def play(begin: Callable[[int], Match], episode: int, steps_per_second: float) -> None:
    """Play test episodes from `episode` on, until the person leaves with q or Ctrl-C."""
    with suppress(KeyboardInterrupt), keys() as read:
        while (answer := _play_one(begin(episode), episode, steps_per_second, read)) != "q":
            episode += answer == "n"


def _play_one(match: Match, episode: int, steps_per_second: float, read: Read) -> str:
    """Play one episode; return "n" for the next one, "r" for the same one, "q" to leave."""
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
    while True:
        for key in names(read(60.0)):
            if key in ("n", "r", "q"):
                return key
