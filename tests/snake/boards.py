"""Many compiled boards of Snake, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.games import contract
from evo.games.catalogue.snake.position import description
from evo.games.contract import CompiledGame, Playing
from evo.games.game import environment_with
from evo.games.plain import Numbers
from evo.records import GOES_ON
from snake.rules import Cell, Game

MODULE = "evo.games.catalogue.snake"
DEFAULTS = {"actions": "absolute", "starvation": 0, "observation": "planes"}


COMPILE = njit(error_model="numpy", _nrt=False)
_begin, _step, _observe, _observe_lanes, _mask = (
    COMPILE(function.py_func)
    for function in (contract.begin, contract.step, contract.observe, contract.observe_lanes, contract.mask)
)


@COMPILE
def _save(state, rules, b, row):
    contract.save(state, rules, b, row)


@COMPILE
def _load(state, rules, b, row):
    return contract.load(state, rules, b, row)


SEEN = ("observation", "window", "mask")  # options that are no rules


def options_of(game: CompiledGame) -> Numbers:
    """Return a game's options as numbers."""
    return Numbers(**{name: game.rules[name].item() for name in game.rules.dtype.names})


def load(game: CompiledGame, boards: Playing, b: int, state: Mapping[str, Any]) -> None:
    """Set board b to a state of `snake.rules.Game`; ValueError where it is illegal or of other rules."""
    position = Game(**state)
    mine, theirs = vars(options_of(game)), vars(position.options)
    if differing := {name for name in mine if name not in SEEN and mine[name] != theirs[name]}:
        raise ValueError(f"the state has other rules than the boards: {', '.join(sorted(differing))}")
    if position.forced:
        raise ValueError("the boards take no forced fruits")
    for array, one in zip((*boards.state, *boards.clock), (*position.board, *position.clock), strict=True):
        array[b] = one[0]


class Boards:
    """`count` boards with these options; actions are absolute unless they are given."""

    def __init__(self, count: int = 1, **options: Any) -> None:
        self.environment = environment_with(MODULE, {**DEFAULTS, **options})
        self.game, self.options = self.environment.game, self.environment.options
        self.playing = self.game.make_state(count)
        self.state, self.clock = self.playing.state, self.playing.clock
        self.row_size = self.game.row_size

    def begin(self, b: int, seed: int) -> None:
        _begin(self.playing, self.game.rules, b, np.uint64(seed))

    def step(self, b: int, action: int) -> tuple[int, int]:
        """Return the reward in thousandths, and how the episode goes on."""
        return _step(self.playing, self.game.rules, b, int(action))

    def observe(self, b: int, out: NDArray[np.float32]) -> None:
        _observe(self.playing, self.game.rules, b, out)

    def observe_lanes(self, index: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        _observe_lanes(self.playing, self.game.rules, index, out)

    def mask(self, b: int) -> list[int]:
        out = np.full(self.game.actions, 9, np.int8)
        _mask(self.playing, self.game.rules, b, out)
        return out.tolist()

    def position(self, b: int) -> tuple[list[Cell], Cell | None]:
        """Return the body, head first, and the fruit; also after the end of an episode."""
        shown = description(options_of(self.game), self.state, self.clock, b)
        return shown["body"], shown["fruit"]

    def dump(self, b: int) -> dict[str, Any]:
        """Return what `Game.state` returns of the same position; RuntimeError after the end of the episode."""
        if self.state.over[b] != GOES_ON:
            raise RuntimeError("the episode is over: it has no state to go on from")
        return description(options_of(self.game), self.state, self.clock, b)

    def load(self, b: int, state: Mapping[str, Any]) -> None:
        load(self.game, self.playing, b, state)

    def snapshots(self, index: Sequence[int]) -> NDArray[np.uint8]:
        rows = np.empty((len(index), self.row_size), np.uint8)
        for row, b in zip(rows, index, strict=True):
            _save(self.playing, self.game.rules, b, row)
        return rows

    def restore(self, index: Sequence[int], rows: NDArray[np.uint8]) -> None:
        for row, b in zip(rows, index, strict=True):
            if not _load(self.playing, self.game.rules, b, row):
                raise ValueError("a snapshot names cells that the board does not have")
