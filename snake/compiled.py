"""Snake as a compiled game: which of its functions stand for those of the contract in `evo.games.contract`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.games.contract import TRUNCATED, CompiledGame, register
from snake import observe, snapshots
from snake.batch import LEAN, Boards, Rules, make_boards, make_rules, reset_board, step_board
from snake.rules import ACTIONS, EGO, EPISODE_METRICS, MASKS, OBSERVATIONS, one_of, shape

kernel_cache.use(__name__)


class Setting(NamedTuple):
    """The rules, and what a player sees and may do."""

    rules: Rules
    observation: int  # a place in OBSERVATIONS
    mask: int  # a place in MASKS


def make_game(
    size: int = 10,
    observation: str = "window",
    window: int = 0,
    actions: str = "relative",
    mask: str = "none",
    starvation: int = 200,
    max_steps: int = 0,
    tail: str = "legal",
    start_length: int = 1,
    rewards: Mapping[str, float] | None = None,
) -> CompiledGame:
    """Return Snake with the options of an experiment's [environment]; ValueError names one that is wrong."""
    rules = make_rules(
        size, tail=tail, starvation=starvation, max_steps=max_steps, start_length=start_length, rewards=rewards,
        actions=actions,
    )  # fmt: skip
    seen = shape(observation, rules.size, window)
    if OBSERVATIONS.index(observation) >= EGO and actions == "absolute":
        raise ValueError(f"observation {observation} looks where the head looks: its actions are relative")
    forbidden = MASKS.index(one_of("mask", mask, MASKS))
    return CompiledGame(
        make_state=partial(make_boards, size=rules.size),
        rules=Setting(rules, OBSERVATIONS.index(observation), forbidden),
        shape=seen,
        actions=ACTIONS[actions],
        episode_metrics=EPISODE_METRICS,
        masked=forbidden > 0,
        snapshot_size=snapshots.row_size(make_boards(1, rules.size)),
    )


@njit(forceinline=True, **LEAN)
def _begin(boards, setting, b, seed):  # type: ignore[no-untyped-def]
    reset_board(boards, setting.rules, b, seed)


@njit(forceinline=True, **LEAN)
def _step(boards, setting, b, action):  # type: ignore[no-untyped-def]
    return step_board(boards, setting.rules, b, action)


@njit(forceinline=True, **LEAN)
def _steps(boards, setting, b):  # type: ignore[no-untyped-def]
    return np.int64(boards.state[b].steps)


@njit(**LEAN)
def _observe(boards, setting, b, out):  # type: ignore[no-untyped-def]
    observe.observe_board(boards, setting.rules, setting.observation, b, out)


@njit(forceinline=True, **LEAN)
def _mask(boards, setting, b, out):  # type: ignore[no-untyped-def]
    observe.mask(boards, setting.rules, setting.mask, b, out)


@njit(forceinline=True, **LEAN)
def _metrics(boards, setting, b, out):  # type: ignore[no-untyped-def]
    state, rules = boards.state[b], setting.rules
    length = np.int64(state.length)
    out[0] = length - rules.start_length
    out[1] = 1 if length == rules.size * rules.size else 0
    out[2] = 1 if state.over == TRUNCATED else 0


register(
    Boards, begin=_begin, step=_step, steps=_steps, observe=_observe, observe_lanes=observe.write, mask=_mask,
    metrics=_metrics, save=snapshots.save, load=snapshots.load,
)  # fmt: skip
