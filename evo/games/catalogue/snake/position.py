"""One game of Snake to be read and set up: a position, with legal bodies, forced fruits and the moves that are left.

It is played by the functions of `rules` in plain Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, pairwise
from operator import index
from typing import Any

import numpy as np

from evo.games.catalogue.snake import rules
from evo.games.declaration import whole
from evo.games.plain import Numbers, plain_state
from evo.games.primitives import EpisodeClock, Random, clock_of
from evo.randomness.streams import SEED_LIMIT
from evo.records import GOES_ON, TERMINATED, TRUNCATED

Cell = tuple[int, int]  # row, column; (0, 0) is the top left corner

MOVES: tuple[Cell, ...] = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left
TAILS = ("legal", "fatal")
ACTIONS = {"absolute": 4, "relative": 3}  # relative: 0 left, 1 straight, 2 right
KINDS_OF_ACTIONS = ("relative", "absolute")  # as the options have them
MASKS = ("none", "reverse", "fatal")
DEFAULT_REWARDS = {"fruit": 1.0, "death": -1.0, "win": 10.0, "starved": 0.0, "step": 0.0}
SMALLEST, LARGEST = 4, 64
STEP_LIMIT = 1 << 31
REWARD_LIMIT = 1e9


def _read(of_game: Callable[[Any], Any], about: str) -> Any:
    """Return a property that is read from the arrays of a game."""
    return property(of_game, doc=about)


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
        hunger = whole("hunger", hunger, 0, (self.starvation or STEP_LIMIT) - 1)
        steps = whole("steps", steps, 0, (self.max_steps or STEP_LIMIT) - 1)
        self.forced = self._cells("fruits", "a forced fruit", () if fruits is None else fruits)
        self.options = Numbers(
            size=self.size,
            tail=TAILS.index(self.tail),
            starvation=self.starvation,
            max_steps=self.max_steps,
            start_length=self.start_length,
            actions=KINDS_OF_ACTIONS.index(self.actions),
            mask=0,
            **{f"rewards_{name}": value / 1000 for name, value in self.thousandths.items()},
        )
        self.board: Any = plain_state(rules.arrays(self.options), 1)
        self.clock = clock_of(1)
        self.clock.seed[0], self.clock.steps[0] = self.seed, steps
        self._random = Random(self.clock, 0)
        if body is None:
            rules.begin(self.board, self.options, 0, self._random)
        else:
            self._place(self._legal_body(body))
        self.board.heading[0], self.board.hunger[0] = self._legal_heading(heading), hunger
        self.board.over[0] = TERMINATED if self.won else GOES_ON
        if fruit is not None:
            self._place_fruit("the fruit", self._on_board("the fruit", fruit))
        elif self.forced and not self.won:
            self._place_fruit("a forced fruit", self.forced.pop(0))
        elif body is not None:
            rules.place_fruit(self.board, self.options, 0, self._random)

    body: list[Cell] = _read(lambda game: cells_of_body(game.board, game.size, 0), "The cells of the body, head first.")
    head: Cell = _read(lambda game: divmod(int(rules.head_cell(game.board, 0)), game.size), "The cell of the head.")
    heading: int = _read(lambda game: int(game.board.heading[0]), "Where it looks: 0 up, 1 right, 2 down, 3 left.")
    hunger: int = _read(lambda game: int(game.board.hunger[0]), "Steps since the last fruit.")
    steps: int = _read(lambda game: int(game.clock.steps[0]), "Steps played.")
    score: int = _read(lambda game: int(game.board.length[0]) - game.start_length, "Fruits eaten so far.")
    won: bool = _read(lambda game: bool(game.board.length[0] == game.size**2), "Whether the body fills the board.")
    terminated: bool = _read(lambda game: bool(game.board.over[0] == TERMINATED), "Whether it has ended by the rules.")
    truncated: bool = _read(lambda game: bool(game.board.over[0] == TRUNCATED), "Whether it was cut off.")
    over: bool = _read(lambda game: bool(game.board.over[0] != GOES_ON), "Whether the episode has ended.")

    @property
    def fruit(self) -> Cell | None:
        """Where the fruit is; None on a full board."""
        number = self.board.fruit[0]
        return None if number < 0 else divmod(number, self.size)

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Play one action; return (reward, terminated, truncated).

        Raises ValueError for an action that there is not, RuntimeError after the end of the episode.
        """
        number = whole("action", action, 0, ACTIONS[self.actions] - 1)
        if self.over:
            raise RuntimeError("the episode is over: a step after its end is not possible")
        length = self.board.length[0]
        reward, status = rules.step(self.board, self.options, 0, number, self._random)
        self.clock.steps[0] += 1
        if self.forced and self.board.length[0] > length and not self.won:
            self._place_fruit("a forced fruit", self.forced.pop(0))
        return round(1000 * reward) / 1000, status == TERMINATED, status == TRUNCATED

    def direction(self, action: int) -> int:
        """Return where an action moves the head: 0 up, 1 right, 2 down, 3 left."""
        number = whole("action", action, 0, ACTIONS[self.actions] - 1)
        return int(rules.direction_of(self.board, self.options, 0, number))

    def fatal(self, direction: int) -> bool:
        """Return whether moving the head in a direction ends the episode by wall or body."""
        head = rules.head_cell(self.board, 0)
        return bool(rules.blocked(self.board, self.options, 0, rules.cell_ahead(self.size, head, direction)))

    def mask(self, kind: str) -> list[int]:
        """Return 1 for every action that the mask allows, else 0: `none`, `reverse` (into the neck), `fatal`."""
        self.options.mask = MASKS.index(one_of("mask", kind, MASKS))
        allowed = np.ones(ACTIONS[self.actions], np.int8)
        rules.mask(self.board, self.options, 0, allowed)
        return [int(one) for one in allowed]

    def state(self) -> dict[str, Any]:
        """Return the arguments that build an equal game; RuntimeError after the end of the episode."""
        if self.over:
            raise RuntimeError("the episode is over: it has no state to go on from")
        return self._description()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Game):
            return NotImplemented
        one, another = ((game._description(), game.terminated, game.truncated) for game in (self, other))
        return one == another

    __hash__ = None  # type: ignore[assignment]  # a game changes with every step

    def __repr__(self) -> str:
        return f"Game({', '.join(f'{name}={value!r}' for name, value in self._description().items())})"

    def _description(self) -> dict[str, Any]:
        return description(self.options, self.board, self.clock, 0) | {"fruits": list(self.forced)}

    def _number(self, cell: Cell) -> int:
        return cell[0] * self.size + cell[1]

    def _place(self, body: list[Cell]) -> None:
        rules.clear(self.board, self.options, 0)
        for place, cell in enumerate(body):
            self.board.body[0, place] = self._number(cell)
            rules.occupy(self.board, 0, self._number(cell))
        self.board.length[0] = len(body)

    def _place_fruit(self, what: str, cell: Cell) -> None:
        if rules.on_body(self.board, 0, self._number(cell)):
            raise ValueError(f"{what} at {cell} is on the body")
        self.board.fruit[0] = self._number(cell)

    def _on_board(self, what: str, cell: Cell) -> Cell:
        try:
            row, column = (index(part) for part in cell)
        except (TypeError, ValueError):
            raise ValueError(f"{what} is a (row, column), not {cell!r}") from None
        if not (0 <= row < self.size and 0 <= column < self.size):
            raise ValueError(f"{what} at {(row, column)} is off the board of {self.size} x {self.size}")
        return row, column

    def _cells(self, name: str, what: str, cells: Iterable[Cell]) -> list[Cell]:
        most = self.size**2
        try:
            read = list(islice(cells, most + 1))  # not all of them: they may have no end
        except TypeError:
            raise ValueError(f"{name} is a list of (row, column), not {cells!r:.60}") from None
        if len(read) > most:
            raise ValueError(f"{name} has more cells than the {most} of the board of {self.size} x {self.size}")
        return [self._on_board(what, cell) for cell in read]

    def _legal_body(self, cells: Iterable[Cell]) -> list[Cell]:
        body = self._cells("body", "the body", cells)
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
        body = self.body
        if len(body) == 1:
            return 0 if heading is None else heading
        (row, column), (neck_row, neck_column) = body[:2]
        looks = MOVES.index((row - neck_row, column - neck_column))
        if heading not in (None, looks):
            raise ValueError(
                f"heading {heading} does not agree with the body, which looks {rules.HEADINGS[looks]} ({looks})"
            )
        return looks


def cells_of_body(state: Any, size: int, b: int) -> list[Cell]:
    """Return the cells of the body of board b, head first."""
    ring, head, length = state.body[b].tolist(), int(state.head[b]), int(state.length[b])
    return [divmod(cell, size) for cell in (ring[head : head + length] + ring[: max(0, head + length - len(ring))])]


def description(options: Any, state: Any, clock: EpisodeClock, b: int) -> dict[str, Any]:
    """Return the arguments of the `Game` that equals board b."""
    size, fruit = options.size, int(state.fruit[b])
    return {
        "size": size,
        "body": cells_of_body(state, size, b),
        "fruit": None if fruit < 0 else divmod(fruit, size),
        "fruits": [],
        "seed": int(clock.seed[b]),
        "tail": TAILS[options.tail],
        "starvation": options.starvation,
        "max_steps": options.max_steps,
        "start_length": options.start_length,
        "rewards": {name: getattr(options, f"rewards_{name}") for name in DEFAULT_REWARDS},
        "actions": KINDS_OF_ACTIONS[options.actions],
        "heading": int(state.heading[b]),
        "hunger": int(state.hunger[b]),
        "steps": int(clock.steps[b]),
    }


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """Return `value`; ValueError where it is not among `known`."""
    if value not in known:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(known)}")
    return value


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
