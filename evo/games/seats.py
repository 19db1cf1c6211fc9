"""Games of several players as games of one: whoever is on turn moves, and is shown what its seat sees.

Where players move simultaneously, each names its action in turn, and the last one plays the step. So everything that
plays a game of one player plays these too: a step is a move. The reward of a step is that of one seat, `seats_mine`,
which the seed of the episode draws.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from evo.errors import ConfigurationError
from evo.games.declaration import MOST_PLAYERS, Declaration
from evo.games.primitives import draw_number

SEAT = (1 << 32) - 1  # number of the draw of an episode's seat
NOBODY = -1  # is on turn: `turn` returned no player
ITSELF = -2  # in place of the row of an opponent: the candidate plays every seat; -2 - n: the player -n of a lineup
FIELDS = ("seats_turn", "seats_mine", "seats_actions", "seats_rewards", "seats_returns")
METRICS = ("won", "lost", "seat")  # of every game of several players, by the returns of an episode
ALONE = ("continuous", "observe_lanes", "cell", "draw", "save", "load")  # fields that games of one player have


@cache
def played_in_turn(game: Declaration) -> Any:
    """Return the game of one player that stands for a game of several, its `author`; ConfigurationError: it cannot."""
    if not 2 <= game.players <= MOST_PLAYERS:
        raise ConfigurationError(f"game {game.module}: players is {game.players}, and must be 1 to {MOST_PLAYERS}")
    if alone := [name for name in ALONE if getattr(game, name)]:
        raise ConfigurationError(f"game {game.module}: {', '.join(alone)}: only games of one player have these")
    return replace(
        game,
        arrays=_arrays(game),
        **_moves(game),
        **_seen(game),
        turn=None,
        episode_metrics=(*METRICS, *game.episode_metrics),
        live_metrics=("seat", *game.live_metrics),
        baselines=None,
        author=game,
    )


def _arrays(game: Declaration) -> Any:
    players = game.players

    def arrays(options: Any) -> Any:
        state = game.state_of(options)
        author: Any = type(state)
        rewards = np.zeros(players)
        own = np.int8(0), np.int8(0), np.zeros(players, np.int64), rewards, rewards
        return _state_type(author)(*state, *own)

    return arrays


@cache
def _state_type(author: Any) -> Any:
    """Return the type of states of a game of several players; its module keeps it, so that machine code can name it."""
    kind = namedtuple(f"{author.__name__}OfSeats", (*author._fields, *FIELDS), module=author.__module__)  # type: ignore[misc]
    if module := sys.modules.get(author.__module__):
        setattr(module, kind.__name__, kind)
    return kind


def _moves(game: Declaration) -> dict[str, Any]:
    players, author_begins, author_steps = game.players, game.begin, game.step
    turn: Any = game.turn

    def begin_together(state, options, b, random):  # type: ignore[no-untyped-def]
        state.seats_mine[b] = draw_number(random, SEAT, players)
        author_begins(state, options, b, random)

    def player_on_turn(state, options, b):  # type: ignore[no-untyped-def]
        player = turn(state, options, b)
        return player if 0 <= player < players else NOBODY

    begin_game: Any = begin_together
    next_player: Any = player_on_turn

    def begin(state, options, b, random):  # type: ignore[no-untyped-def]
        begin_game(state, options, b, random)
        state.seats_turn[b] = next_player(state, options, b)

    def author_moves(state, options, b, action, random):  # type: ignore[no-untyped-def]
        rewards = state.seats_rewards[b]
        for player in range(players):
            rewards[player] = 0.0
        ended = author_steps(state, options, b, action, rewards, random)
        for player in range(players):
            state.seats_returns[b, player] += rewards[player]
        return ended

    play: Any = author_moves

    def step(state, options, b, action, random):  # type: ignore[no-untyped-def]
        ended = play(state, options, b, action, random)
        if not ended:
            state.seats_turn[b] = next_player(state, options, b)
        return state.seats_rewards[b, state.seats_mine[b]], ended

    def step_together(state, options, b, action, random):  # type: ignore[no-untyped-def]
        player = state.seats_turn[b]
        state.seats_actions[b, player] = action
        if player + 1 < players:
            state.seats_turn[b] = player + 1
            return 0.0, np.int64(0)
        state.seats_turn[b] = 0
        ended = play(state, options, b, state.seats_actions[b], random)
        return state.seats_rewards[b, state.seats_mine[b]], np.int64(ended)

    moves = (begin_together, step_together) if turn is None else (begin, step)
    for function in (*moves, begin_together, author_moves, player_on_turn):
        function.__module__ = game.module
    return dict(zip(("begin", "step"), moves, strict=True))


def _seen(game: Declaration) -> dict[str, Any]:
    players, author_observes = game.players, game.observe
    author_masks: Any = game.mask
    author_measures: Any = game.metrics

    def observe(state, options, b, out):  # type: ignore[no-untyped-def]
        author_observes(state, options, b, state.seats_turn[b], out)

    def mask(state, options, b, out):  # type: ignore[no-untyped-def]
        author_masks(state, options, b, state.seats_turn[b], out)

    def compare(state, options, b, out):  # type: ignore[no-untyped-def]
        returns, mine = state.seats_returns[b], state.seats_mine[b]
        out[0], out[1], out[2] = 1, 0, mine
        for player in range(players):
            if player != mine:
                if returns[player] >= returns[mine]:
                    out[0] = 0
                if returns[player] > returns[mine]:
                    out[1] = 1

    comparison: Any = compare

    def measure(state, options, b, out):  # type: ignore[no-untyped-def]
        comparison(state, options, b, out)
        author_measures(state, options, b, state.seats_mine[b], out[3:])

    measures = compare if author_measures is None else measure
    for function in (observe, mask, compare, measure):
        function.__module__ = game.module
    return {"observe": observe, "mask": None if author_masks is None else mask, "metrics": measures}
