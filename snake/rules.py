"""The rules of Snake in plain Python, to be read; tests hold the compiled boards equal to them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from operator import index
from typing import Any

from evo.compiled.arguments import whole
from evo.randomness.philox import draw
from evo.randomness.philox import episode_seed as episode_seed

Cell = tuple[int, int]  # row, column; (0, 0) is the top left corner

MOVES: tuple[Cell, ...] = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left
HEADINGS = ("up", "right", "down", "left")
TAILS = ("legal", "fatal")
ACTIONS = {"absolute": 4, "relative": 3}  # relative: 0 left, 1 straight, 2 right
MASKS = ("none", "reverse", "fatal")
OBSERVATIONS = ("frame", "planes", "ego", "window", "features", "local")
FRAME, PLANES, EGO, WINDOW, FEATURES, LOCAL = range(6)
LOCAL_AGE = 50  # local: steps until a cell is free that are seen as 1, and more as well
LOCAL_SIDE = 7  # local: of the window, where none is given
FEATURE_NAMES = (
    "blocked_left", "blocked_ahead", "blocked_right", "free_left", "free_ahead", "free_right",
    "fruit_right", "fruit_ahead", "tail_right", "tail_ahead", "length", "hunger",
)  # fmt: skip
CHANNELS = (1, 5, 6, 5, len(FEATURE_NAMES), 5)  # planes of an observation
EPISODE_METRICS = ("score", "won", "starved")
DEFAULT_REWARDS = {"fruit": 1.0, "death": -1.0, "win": 10.0, "starved": 0.0, "step": 0.0}
SMALLEST, LARGEST = 4, 64
WIDEST = 2 * LARGEST - 1  # window: all of the largest board, wherever the head is
SEED_LIMIT = 1 << 64
STEP_LIMIT = 1 << 31
REWARD_LIMIT = 1e9


class Game:
    """One episode of Snake on a board of `size` x `size` cells.

    `body` is a list of (row, column), head first; without it the episode of `seed` begins: a straight body of
    `start_length` cells below a random head, looking up. `fruits` are positions that are forced, one after the other,
    before the stream of the seed goes on. With `tail="legal"` the cell that the tail leaves may be entered in the
    same step. `starvation` (steps since the last fruit) and `max_steps` truncate; 0 means never. `rewards` may name
    some of fruit, death, win, starved and step only. `Game(**game.state())` equals `game`.

    Raises ValueError, naming what is wrong, for a position or an option that is not legal.
    """

    def __init__(
        self,
        size: int = 10,
        body: Iterable[Cell] | None = None,
        fruit: Cell | None = None,
        fruits: Iterable[Cell] | None = None,
        seed: int = 0,
        tail: str = "legal",
        starvation: int = 0,
        max_steps: int = 0,
        start_length: int = 1,
        rewards: Mapping[str, float] | None = None,
        actions: str = "absolute",
        heading: int | None = None,
        hunger: int = 0,
        steps: int = 0,
    ) -> None:
        self.size = whole("size", size, SMALLEST, LARGEST)
        self.seed = whole("seed", seed, 0, SEED_LIMIT - 1)
        self.tail = one_of("tail", tail, TAILS)
        self.starvation = whole("starvation", starvation, 0, STEP_LIMIT - 1)
        self.max_steps = whole("max_steps", max_steps, 0, STEP_LIMIT - 1)
        self.start_length = whole("start_length", start_length, 1, self.size)
        self.thousandths = reward_thousandths(rewards)
        self.actions = one_of("actions", actions, tuple(ACTIONS))
        self.hunger = whole("hunger", hunger, 0, (self.starvation or STEP_LIMIT) - 1)
        self.steps = whole("steps", steps, 0, (self.max_steps or STEP_LIMIT) - 1)
        self.body: list[Cell] = self._start() if body is None else self._legal_body(body)
        self.heading = self._legal_heading(heading)
        self._forced = [self._on_board("a forced fruit", cell) for cell in fruits or ()]
        self.terminated, self.truncated = self.won, False
        self.fruit: Cell | None
        if fruit is None:
            self.fruit = self._next_fruit()
        else:
            self.fruit = self._free("the fruit", self._on_board("the fruit", fruit))

    @property
    def score(self) -> int:
        """Fruits eaten so far."""
        return len(self.body) - self.start_length

    @property
    def won(self) -> bool:
        """Whether the body fills the board."""
        return len(self.body) == self.size * self.size

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Play one action; return (reward, terminated, truncated).

        Raises ValueError for an action that there is not, RuntimeError after the end of the episode.
        """
        direction = self.direction(action)
        if self.over:
            raise RuntimeError("the episode is over: a step after its end is not possible")
        self.steps += 1
        self.hunger += 1
        if self.fatal(direction):
            self.terminated = True
            return self.thousandths["death"] / 1000, True, False
        reward = 0
        target = self._ahead(direction)
        self.heading = direction
        self.body.insert(0, target)
        if target == self.fruit:
            self.hunger = 0
            self.terminated = self.won
            reward = self.thousandths["fruit"] + (self.thousandths["win"] if self.won else 0)
            self.fruit = self._next_fruit()
        else:
            self.body.pop()
            reward = self.thousandths["step"]
        starved = 0 < self.starvation <= self.hunger
        out_of_time = 0 < self.max_steps <= self.steps
        self.truncated = (starved or out_of_time) and not self.terminated
        if starved:  # no fruit was eaten, so the board is not full
            reward += self.thousandths["starved"]
        return reward / 1000, self.terminated, self.truncated

    def direction(self, action: int) -> int:
        """Return where an action moves the head: 0 up, 1 right, 2 down, 3 left."""
        number = whole("action", action, 0, ACTIONS[self.actions] - 1)
        return (self.heading + number - 1) % 4 if self.actions == "relative" else number

    def fatal(self, direction: int) -> bool:
        """Return whether moving the head in a direction ends the episode by wall or body."""
        row, column = target = self._ahead(direction)
        if not (0 <= row < self.size and 0 <= column < self.size):
            return True
        # The fruit never lies on the body, so whoever enters the tail's cell does not eat and the tail moves on.
        tail_leaves = self.tail == "legal" and target == self.body[-1] and len(self.body) > 1
        return target in self.body and not tail_leaves

    def mask(self, kind: str) -> list[int]:
        """Return 1 for every action that the mask allows, else 0: `none`, `reverse` (into the neck), `fatal`."""
        one_of("mask", kind, MASKS)
        count = ACTIONS[self.actions]
        if kind == "none":
            return [1] * count
        if kind == "reverse":
            back = (self.heading + 2) % 4
            return [int(len(self.body) == 1 or self.direction(action) != back) for action in range(count)]
        allowed = [int(not self.fatal(self.direction(action))) for action in range(count)]
        return allowed if any(allowed) else [1] * count

    def state(self) -> dict[str, Any]:
        """Return the arguments that build an equal game; RuntimeError after the end of the episode."""
        if self.over:
            raise RuntimeError("the episode is over: it has no state to go on from")
        return self._description()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Game):
            return NotImplemented
        return (self._description(), self.terminated, self.truncated) == (
            other._description(),
            other.terminated,
            other.truncated,
        )

    __hash__ = None  # type: ignore[assignment]  # a game changes with every step

    def __repr__(self) -> str:
        return f"Game({', '.join(f'{name}={value!r}' for name, value in self._description().items())})"

    def _description(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "body": list(self.body),
            "fruit": self.fruit,
            "fruits": list(self._forced),
            "seed": self.seed,
            "tail": self.tail,
            "starvation": self.starvation,
            "max_steps": self.max_steps,
            "start_length": self.start_length,
            "rewards": {name: value / 1000 for name, value in self.thousandths.items()},
            "actions": self.actions,
            "heading": self.heading,
            "hunger": self.hunger,
            "steps": self.steps,
        }

    def _start(self) -> list[Cell]:
        """Return the first body: draw 0 of the episode is its head, among the cells with enough rows below."""
        heads = (self.size - self.start_length + 1) * self.size
        row, column = divmod(draw(self.seed, 0, heads), self.size)
        return [(row + below, column) for below in range(self.start_length)]

    def _next_fruit(self) -> Cell | None:
        """Return a forced position, or draw number len(body) of the episode: a free cell, counted row by row."""
        if self.won:
            return None
        if self._forced:
            return self._free("a forced fruit", self._forced.pop(0))
        occupied = set(self.body)
        cells = ((row, column) for row in range(self.size) for column in range(self.size))
        free = [cell for cell in cells if cell not in occupied]
        return free[draw(self.seed, len(self.body), len(free))]

    def _ahead(self, direction: int) -> Cell:
        (row, column), (down, right) = self.body[0], MOVES[direction]
        return row + down, column + right

    def _on_board(self, what: str, cell: Cell) -> Cell:
        try:
            row, column = (index(part) for part in cell)
        except (TypeError, ValueError):
            raise ValueError(f"{what} is a (row, column), not {cell!r}") from None
        if not (0 <= row < self.size and 0 <= column < self.size):
            raise ValueError(f"{what} at {(row, column)} is off the board of {self.size} x {self.size}")
        return row, column

    def _free(self, what: str, cell: Cell) -> Cell:
        if cell in self.body:
            raise ValueError(f"{what} at {cell} is on the body")
        return cell

    def _legal_body(self, cells: Iterable[Cell]) -> list[Cell]:
        body = [self._on_board("the body", cell) for cell in cells]
        if len(body) < self.start_length:
            raise ValueError(f"the body has {len(body)} cells, fewer than start_length {self.start_length}")
        seen: set[Cell] = set()
        for cell in body:
            if cell in seen:
                raise ValueError(f"the body overlaps itself at {cell}")
            seen.add(cell)
        for one, other in pairwise(body):
            if abs(one[0] - other[0]) + abs(one[1] - other[1]) != 1:
                raise ValueError(f"the body has a gap between {one} and {other}")
        return body

    def _legal_heading(self, heading: int | None) -> int:
        if heading is not None:
            heading = whole("heading", heading, 0, 3)
        if len(self.body) == 1:
            return 0 if heading is None else heading
        (row, column), (neck_row, neck_column) = self.body[:2]
        looks = MOVES.index((row - neck_row, column - neck_column))
        if heading not in (None, looks):
            raise ValueError(f"heading {heading} does not agree with the body, which looks {HEADINGS[looks]} ({looks})")
        return looks


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """Return `value`; ValueError where it is not among `known`."""
    if value not in known:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(known)}")
    return value


def shape(observation: str, size: int, window: int = 0) -> tuple[int, int, int]:
    """Return (H, W, C) of an observation.

    `window` is the side of what is seen around the head, 0 means 2 size - 1, or LOCAL_SIDE for local.

    Raises ValueError for an unknown observation, and for a window that is even or wider than WIDEST.
    """
    code = OBSERVATIONS.index(one_of("observation", observation, OBSERVATIONS))
    if code == FEATURES:
        return 1, 1, CHANNELS[code]
    if code not in (WINDOW, LOCAL):
        return size, size, CHANNELS[code]
    side = whole("window", window, 0, WIDEST) or (LOCAL_SIDE if code == LOCAL else 2 * size - 1)
    if side % 2 == 0:
        raise ValueError(f"window is {side}, not an odd number")
    return side, side, CHANNELS[code]


def reward_thousandths(rewards: Mapping[str, float] | None) -> dict[str, int]:
    """Return every reward in thousandths; what `rewards` does not name has its default."""
    thousandths = {}
    for name, value in {**DEFAULT_REWARDS, **(rewards or {})}.items():
        one_of("a reward", name, tuple(DEFAULT_REWARDS))
        if not (isinstance(value, (int, float)) and math.isfinite(value) and abs(value) <= REWARD_LIMIT):
            raise ValueError(f"reward {name} is {value!r}, not a number between -1e9 and 1e9")
        thousandths[name] = round(value * 1000)
        if abs(thousandths[name] - value * 1000) > 1e-6 * max(1.0, abs(value)):
            raise ValueError(f"reward {name} is {value!r}, not a multiple of 0.001")
    return thousandths
