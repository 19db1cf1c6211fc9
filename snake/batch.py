"""Many boards in compiled arrays, whose positions are loaded from and dumped as the states of `snake.rules.Game`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evo.games.catalogue.snake.position import Game, description
from evo.games.catalogue.snake.rules import arrays
from evo.games.contract import CompiledGame, Playing, batch_of
from evo.games.plain import Numbers
from evo.records import GOES_ON

SEEN = ("observation", "window", "mask")  # options that are no rules


def make_boards(game: CompiledGame, count: int, forced: int = 0) -> Playing:
    """Return `count` boards, waiting for `begin` of `evo.games.contract`, with places for forced fruits."""
    return batch_of(arrays(options_of(game), forced), count)


def dump(game: CompiledGame, boards: Playing, b: int) -> dict[str, Any]:
    """Return what `snake.rules.Game.state` returns of the same position; RuntimeError after the end of the episode."""
    if boards.state.over[b] != GOES_ON:
        raise RuntimeError("the episode is over: it has no state to go on from")
    return description(options_of(game), boards.state, boards.clock, b)


def load(game: CompiledGame, boards: Playing, b: int, state: Mapping[str, Any]) -> None:
    """Set board b to a state of `snake.rules.Game`; ValueError where it is illegal or of other rules."""
    position = Game(**state)
    mine, theirs = vars(options_of(game)), vars(position.options)
    if differing := {name for name in mine if name not in SEEN and mine[name] != theirs[name]}:
        raise ValueError(f"the state has other rules than the boards: {', '.join(sorted(differing))}")
    forced, places = position.board.forced.shape[1], boards.state.forced.shape[1]
    if forced > places:
        raise ValueError(f"{forced} forced fruits, but the boards were made for {places}")
    for array, one in zip((*boards.state, *boards.clock), (*position.board, *position.clock), strict=True):
        if array is not boards.state.forced:
            array[b] = one[0]
    boards.state.forced[b] = -1
    boards.state.forced[b, :forced] = position.board.forced[0]


def options_of(game: CompiledGame) -> Numbers:
    """Return a game's options as numbers."""
    return Numbers(**{name: game.rules[name].item() for name in game.rules.dtype.names})
