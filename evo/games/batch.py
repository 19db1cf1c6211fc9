"""Episodes that follow each other by their seeds, in many environments of a compiled game at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.games import contract
from evo.games.contract import LOST, CompiledGame
from evo.games.declaration import whole
from evo.games.step import Ended, Envs, begin_next, play
from evo.randomness.streams import SEED_LIMIT
from evo.records import GOES_ON

kernel_cache.use(__name__)

NEXT_STEP, SAME_STEP, DISABLED = range(3)  # when an environment of a vector whose episode is over begins the next one
NEVER_BEGUN = -1


@njit(inline="always")
def _show(state, rules, masked, b, out, masks):  # type: ignore[no-untyped-def]
    contract.observe(state, rules, b, out[b])
    if masked:
        contract.mask(state, rules, b, masks[b])


@kernel_cache.with_game
def begin_chosen(state, rules, masked, chosen, envs, status, out, masks):  # type: ignore[no-untyped-def]
    """Begin the next episode in the environments that are chosen, bool [B]; show all. The rest is as in `advance`."""
    for b in range(chosen.shape[0]):
        if chosen[b]:
            status[b] = GOES_ON
            begin_next(state, rules, b, envs)
        _show(state, rules, masked, b, out, masks)


@kernel_cache.with_game
def advance(  # type: ignore[no-untyped-def]
    state, rules, masked, mode, actions, envs, rewards, status, ended, out, masks, final, final_masks
):
    """Play actions[b] in every environment b, int64 [B] or float64 [B, D], and write what all of them show.

    out float32 [B, *shape]; masks int8 [B, A], written where the game is `masked`; rewards float64 [B]; status int64
    [B]; `ended` has a row for each environment. An environment whose episode is over begins its next one in this step
    (SAME_STEP; `final` and `final_masks` are what it showed before), or in the next one, whose action is not played
    (NEXT_STEP), or never (DISABLED).
    """
    for b in range(actions.shape[0]):
        if mode == NEXT_STEP and status[b] != GOES_ON:
            begin_next(state, rules, b, envs)
            rewards[b] = 0.0
            status[b] = GOES_ON
            continue
        reward, status[b] = play(state, rules, b, actions[b], 0, None, 1, 0, None, None, envs, ended, b)
        rewards[b] = np.nan if reward <= LOST else reward / 1000.0
        if status[b] != GOES_ON and mode == SAME_STEP:
            _show(state, rules, masked, b, final, final_masks)
            begin_next(state, rules, b, envs)
    for b in range(actions.shape[0]):
        _show(state, rules, masked, b, out, masks)


@kernel_cache.with_game
def measure(state, rules, metrics):  # type: ignore[no-untyped-def]
    """Write the metrics of every environment as they are now.  # int64 [B, M]"""
    for b in range(metrics.shape[0]):
        contract.metrics(state, rules, b, metrics[b])


class Batch:
    """`num_envs` environments of a game, with the arrays that its kernels write; ValueError where there are none.

    A `single` one is given its action alone.
    """

    def __init__(
        self, game: CompiledGame, num_envs: int, mode: int = DISABLED, fresh: bool = False, single: bool = False
    ) -> None:
        count = whole("num_envs", num_envs, 1, 1 << 31)
        self.game, self.mode, self.state = game, mode, game.make_state(count)
        self.fresh = fresh  # whether observations are written to a new array each time
        self.sides = (*(() if single else (count,)), *((game.actions,) if game.continuous else ()))  # of actions
        self.begun = False  # whether an episode has begun in every environment
        self.envs = Envs.empty(count)
        self.envs.episode[:] = NEVER_BEGUN
        self.rewards, self.status = np.zeros(count, np.float64), np.zeros(count, np.int64)
        self.ended = Ended.empty(count, len(game.episode_metrics))
        self.out, self.masks = self._shown(count)
        self.final, self.final_masks = self._shown(count if mode == SAME_STEP else 0)

    def begin(self, chosen: NDArray[np.bool_], seeds: Sequence[int | None], random: np.random.Generator) -> None:
        """Begin an episode in the environments that are chosen: that of its seed, or the next one of its sequence."""
        first, episode = self.envs.first, self.envs.episode
        for b in np.flatnonzero(chosen).tolist():
            if seeds[b] is not None or episode[b] == NEVER_BEGUN:
                seed = seeds[b]
                first[b] = int(random.integers(SEED_LIMIT, dtype=np.uint64)) if seed is None else seed
                episode[b] = NEVER_BEGUN
        self._renew()
        self._begin_and_show(chosen)
        self.begun = not (episode == NEVER_BEGUN).any()

    def show(self) -> None:
        """Write what every environment shows now."""
        self._begin_and_show(np.zeros(len(self.status), np.bool_))

    def step(self, actions: Any) -> None:
        """Play actions; ValueError where there is no such one, RuntimeError where nothing resets an ended episode."""
        chosen = self.checked(np.asarray(actions))
        if not self.begun or (self.mode == DISABLED and self.status.any()):
            raise RuntimeError("an episode is over, or has not begun: call reset")
        self._renew()
        advance(
            self.state, self.game.rules, self.game.masked, self.mode, chosen, self.envs, self.rewards, self.status,
            self.ended, self.out, self.masks, self.final, self.final_masks,
        )  # fmt: skip

    def live_metrics(self) -> NDArray[np.int64]:
        """Return the metrics of every environment as they are now.  # [B, M]"""
        metrics = np.zeros_like(self.ended.episode_metrics)
        measure(self.state, self.game.rules, metrics)
        return metrics

    def _begin_and_show(self, chosen: NDArray[np.bool_]) -> None:
        begin_chosen(
            self.state, self.game.rules, self.game.masked, chosen, self.envs, self.status, self.out, self.masks
        )

    def checked(self, given: NDArray[Any]) -> NDArray[Any]:
        """Return actions as a game takes them; ValueError where there is no such one.  # -> [B] or [B, A]"""
        continuous, actions = self.game.continuous, self.game.actions
        asked = f"actions are {'numbers' if continuous else 'whole numbers'} {self.sides}"
        if not self.sides:
            asked = "an action is a whole number"
        if given.shape != self.sides or given.dtype.kind not in ("buif" if continuous else "ui"):
            raise ValueError(f"{asked}, not {given.dtype} {given.shape}")
        chosen = given.astype(np.float64 if continuous else np.int64)  # a copy, for a game may write to its action
        if continuous and not np.isfinite(chosen).all():
            raise ValueError(f"{asked}, but not all are finite: {chosen.ravel().tolist()!s:.60}")
        if not continuous and chosen.view(np.uint64).max() >= actions:  # as which negative ones are large
            raise ValueError(f"an action is not between 0 and {actions - 1}")
        return chosen.reshape(len(self.status), *((actions,) if continuous else ()))

    def _shown(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
        return np.empty((count, *self.game.shape), np.float32), np.ones((count, self.game.actions), np.int8)

    def _renew(self) -> None:
        if self.fresh:
            self.out = np.empty_like(self.out)
