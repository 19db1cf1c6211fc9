"""An episode in the terminal: watched, or gone through step by step, with the keys that a person presses."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from evo.cli.terminal.display import HIDE, SHOW, in_foreground
from evo.environment import Environment, Shown
from evo.store.policy import Policy
from evo.training.testing import Recording

MOST = 24  # squares a side; those of a larger picture are more than a pixel wide
STRONGEST = 12  # inputs that are listed
BAR = 10  # characters of the longest bar of a score
SHADES = " ░▒▓█"
MOVES = {"right": 1, "n": 1, "left": -1, "b": -1, "up": 10, "down": -10}
HELP = "right and left: a step; up and down: ten; space plays; q leaves"
GAP = "   "
TITLE = " what the outputs depend on "
UP = "\x1b[{}A\r"
KEY = re.compile(rb"\x1b[\[O]([A-D])|\x1b\[[0-9;]*[~A-Z]|([ -~])")  # an arrow, another key with a sequence, a letter
ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}

Read = Callable[[float], bytes]


@contextmanager
def keys() -> Iterator[Read]:
    """Yield a function that returns what was typed within seconds, see `names`; without a terminal, it only waits."""
    with ExitStack() as stack:
        read = _wait
        with suppress(OSError, ValueError, termios.error):
            if in_foreground(sys.stdin):
                stack.enter_context(_key_by_key())
                read = _typed
        sys.stdout.write(HIDE)
        try:
            yield read
        finally:
            Drawing.newest = None
            sys.stdout.write(SHOW)
            sys.stdout.flush()


@contextmanager
def _key_by_key() -> Iterator[None]:
    """Have the terminal give keys as they are pressed; termios.error: there is none.

    While Ctrl-Z has stopped this process, the terminal is as before. Where it goes on, the drawing is drawn again.
    """
    terminal, is_main = sys.stdin.fileno(), threading.current_thread() is threading.main_thread()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def resume(*_: object) -> None:
        if in_foreground(sys.stdin):
            tty.setcbreak(terminal)
            os.write(sys.stdout.fileno(), HIDE.encode())
            if Drawing.newest is not None:
                Drawing.newest.again()

    def suspend(number: int, _: object) -> None:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        os.write(sys.stdout.fileno(), SHOW.encode())
        for one in mine:
            signal.signal(one, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # it goes on here
        for one, handler in mine.items():
            signal.signal(one, handler)
        resume()

    mine: dict[signal.Signals, Any] = {signal.SIGTSTP: suspend, signal.SIGCONT: resume} if is_main else {}
    handlers = {number: signal.signal(number, handler) for number, handler in mine.items()}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _wait(seconds: float) -> bytes:
    time.sleep(seconds)
    return b""


def _typed(seconds: float) -> bytes:
    if not select.select([sys.stdin], [], [], max(seconds, 0))[0]:
        return b""
    return os.read(sys.stdin.fileno(), 64) or b"q"  # nothing: the terminal is gone, so it is time to leave


def names(typed: bytes) -> list[str]:
    """Return the keys of what was typed: "up", "down", "left", "right", or a letter."""
    found = []
    for arrow, letter in KEY.findall(typed):
        if arrow or letter:
            found.append(ARROWS[arrow] if arrow else letter.decode("ascii"))
    return found


class Drawing:
    """Lines that are drawn again and again in one place of the terminal."""

    newest: ClassVar[Drawing | None] = None  # the one that the terminal shows

    def __init__(self) -> None:
        self._height, self._text = 0, ""

    def show(self, lines: Sequence[str]) -> None:
        """Draw these lines over the last ones."""
        below = max(self._height - len(lines), 0)  # lines of a longer drawing before
        self._text = "\x1b[K\n".join([*lines, *[""] * below]) + "\x1b[K\n"
        Drawing.newest = self
        sys.stdout.write((UP.format(self._height) if self._height else "") + self._text)
        sys.stdout.flush()
        self._height = max(self._height, len(lines))

    def again(self) -> None:
        """Draw the same lines, below what else has been written; a handler calls this, in the middle of any write."""
        os.write(sys.stdout.fileno(), self._text.encode())


def walk(lines: Callable[[int], list[str]], last: int, first: int, steps_per_second: float, caption: str) -> None:
    """Show steps in the terminal, from `first` on, until the person leaves with q or Ctrl-C."""
    step, plays, drawing = first, False, Drawing()
    with suppress(KeyboardInterrupt), keys() as read:
        while True:
            drawing.show([caption, *lines(step), HELP])
            pressed = names(read(1 / steps_per_second if plays else 60.0))
            if "q" in pressed:
                return
            plays = plays != (" " in pressed) and step < last
            step += sum(MOVES.get(key, 0) for key in pressed) + (1 if plays and not pressed else 0)
            step = min(max(step, 0), last)


def watch(positions: Sequence[Shown], frames_per_second: float, caption: str = "") -> bool:
    """Show positions one after the other; return False where a key or Ctrl-C has skipped the rest."""
    colour, drawing = not os.environ.get("NO_COLOR"), Drawing()
    with suppress(KeyboardInterrupt), keys() as read:
        for one in positions:
            drawing.show([*([caption] if caption else []), *one.text(colour).split("\n")])
            if read(1 / frames_per_second):
                return False
        return True
    return False


class EpisodeView:
    """The steps of a recorded episode, from 0; after the last one comes the final position."""

    def __init__(
        self,
        recording: Recording,
        positions: Sequence[Shown],
        environment: Environment,
        policy: Policy,
        colour: bool,
        size: os.terminal_size,
    ) -> None:
        assert recording.steps is not None
        self._size = size  # that lines fit into
        self._recording, self._environment, self._policy, self._colour = recording, environment, policy, colour
        self._steps, self._positions = recording.steps, positions
        self._own = own_moves(recording, environment)
        self._rows = np.cumsum(self._own) - 1  # of the recorded steps, by move
        system: Literal["truecolor"] | None = "truecolor" if colour else None
        self._console = Console(force_terminal=colour, color_system=system, width=400)

    def __len__(self) -> int:
        return len(self._recording.actions)

    def lines(self, step: int) -> list[str]:
        """Return the position before a step, the outputs for its actions, and what they depended on."""
        left = [Text.from_ansi(line) for line in self._positions[step].text(self._colour).split("\n")]
        if step == len(self):
            return [self._ansi(line) for line in [*left, Text(f" the end, after {step} steps")]]
        left += [Text(f" step {step} of {len(self)}"), *map(Text, self._scores(step))]
        right = self._dependence(self._rows[step]) if self._own[step] else []
        across = max(line.cell_len for line in left)
        lines = []
        for row in range(min(max(len(left), len(right)), self._size.lines - 3)):  # less a caption, a help, the cursor
            line = left[row] if row < len(left) else Text()
            line.truncate(across, pad=True)
            if row < len(right):
                line = line.append(GAP).append_text(right[row])
            line.truncate(self._size.columns)
            lines.append(self._ansi(line))
        return lines

    def _scores(self, step: int) -> list[str]:
        count, played = self._environment.actions, self._recording.actions[step]
        titles = self._environment.action_names or tuple(f"action {action}" for action in range(count))
        if not self._own[step]:
            return [f" another player plays {titles[played]}"]
        row = self._rows[step]
        outputs = self._steps.outputs[row].astype(np.float64)  # which has the difference of any two
        width, least, most = max(map(len, titles)), outputs[:count].min(), outputs[:count].max()
        lines, masks = [], self._steps.action_masks
        for action, title in enumerate(titles):
            long = round(BAR * float((outputs[action] - least) / (most - least))) if most > least else 0
            notes = ["played"] if not self._environment.continuous and action == played else []
            notes += ["masked"] if masks is not None and not masks[row, action] else []
            lines.append(f" {title:<{width}} {outputs[action]:8.3f} {'▇' * long:<{BAR}} {', '.join(notes)}".rstrip())
        others = ", ".join(f"{value:.3f}" for value in outputs[count:])
        return lines + ([f" other outputs {others}"] if others else [])

    def _dependence(self, row: int) -> list[Text]:
        """Return a map of the observation of a recorded step, dark where nothing depends on it."""
        game, (snapshots, memories) = self._environment.game, (self._steps.observations, self._steps.memories)
        seen = snapshots[row] if game is None else game.observe(snapshots[row : row + 1])[0]
        state = None if memories is None else memories[row]

        def scores_of(observations: NDArray[np.float32]) -> NDArray[np.float32]:
            states = None if state is None else np.tile(state, (len(observations), 1))
            return self._policy.step(observations, states)[0][:, : self._environment.actions]

        change = occlusion(scores_of, np.asarray(seen, np.float32))
        if len(change) == 1:
            named, count = self._environment.observation_names, len(change[0])
            names = named if len(named) == count else [f"input {k}" for k in range(count)]
            return [Text(TITLE, style="dim"), *(Text(line) for line in _strongest(change[0], names))]
        shares, width = change / max(float(change.max()), 1e-30), 2 * change.shape[1]
        title = TITLE if len(TITLE) <= width else ""
        top, bottom = Text("╭" + title.ljust(width, "─") + "╮"), Text("╰" + "─" * width + "╯")
        rows = [Text("│").append_text(self._shaded(row)).append("│") for row in shares]
        return [*([] if title else [Text(TITLE, style="dim")]), top, *rows, bottom]

    def _shaded(self, shares: NDArray[np.float64]) -> Text:
        text = Text()
        for share in shares.tolist():
            if self._colour:
                red, green, blue = (round(low + share * (high - low)) for low, high in ((24, 255), (28, 176), (38, 0)))
                text.append("  ", style=f"on rgb({red},{green},{blue})")
            else:
                text.append(2 * SHADES[round(share * (len(SHADES) - 1))])
        return text

    def _ansi(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True)
        return captured.get().rstrip(" ")


def own_moves(recording: Recording, environment: Any) -> list[bool]:
    """Return for each move whether the network has played it; in a game of several players, others play as well."""
    if environment.players == 1:
        return [True] * len(recording.actions)
    game, own = environment.plain(), list[bool]()
    game.begin(0, recording.seed)
    for action in recording.actions.tolist():
        own.append(bool(game.state.seats_turn[0] == game.state.seats_mine[0]))
        game.step(0, action)
    return own


def _strongest(change: NDArray[np.float64], names: Sequence[str]) -> list[str]:
    order = np.argsort(-change, kind="stable")[:STRONGEST]
    highest = max(float(change.max()), 1e-30)
    width = max(len(names[index]) for index in order.tolist())
    bars = ("▇" * round(BAR * float(change[index]) / highest) for index in order.tolist())
    return [f" {names[index]:<{width}} {bar}" for index, bar in zip(order.tolist(), bars, strict=True)]


def coloured() -> bool:
    """Return whether the output is a terminal that shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def occlusion(
    scores: Callable[[NDArray[np.float32]], NDArray[np.float32]], observation: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the sum of all changes of the scores where each square of an observation is zero (Zeiler, Fergus, 2014).

    `scores` maps [B, *shape] to [B, A]. Of an observation [H, W, C] it is [ceil(H / side), ceil(W / side)], where all
    channels of a square are hidden together; of [N] and [1, 1, N] it is [1, N], for each number by itself.
    """
    line = observation.shape[:-1] in ((), (1, 1))
    height, width = (1, observation.shape[-1]) if line else observation.shape[:2]
    side = 1 if line else -(-max(height, width) // MOST)
    rows, columns = -(-height // side), -(-width // side)
    hidden = np.repeat(observation[np.newaxis], rows * columns, axis=0)
    cells = hidden.reshape(rows * columns, height, width, -1)  # a view
    for square in range(rows * columns):
        down, right = square // columns * side, square % columns * side
        cells[square, down : down + side, right : right + side] = 0.0
    own, others = (scores(one).astype(np.float64) for one in (observation[np.newaxis], hidden))
    change: NDArray[np.float64] = np.nan_to_num(np.abs(others - own).sum(axis=1))
    return change.reshape(rows, columns)
