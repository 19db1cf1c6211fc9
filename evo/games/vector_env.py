"""Many environments of any compiled game behind Gymnasium's interface for vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from evo.compiled.arguments import whole
from evo.records import DISABLED, NEXT_STEP, SAME_STEP, TERMINATED, TRUNCATED

if TYPE_CHECKING:
    from evo.games.batch import Batch

Observation = NDArray[np.float32]
Info = dict[str, Any]
LAST_SEED = (1 << 64) - 1
MODES = {AutoresetMode.NEXT_STEP: NEXT_STEP, AutoresetMode.SAME_STEP: SAME_STEP, AutoresetMode.DISABLED: DISABLED}


class CompiledVectorEnv(VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """Many environments of a compiled game, stepped, reset and observed in one compiled call.

    `autoreset_mode` is one of Gymnasium's three. `reset(seed=s)` seeds environment i with s + i; a list names every
    seed (None: the next episode of its sequence). `options["reset_mask"]` resets some. With `copy=False` the arrays
    that `reset` and `step` return may be used again by the next call.
    """

    def __init__(self, batch: Batch, spaces: tuple[Space[Any], Space[Any]], metadata: dict[str, Any]) -> None:
        self.num_envs, self.metadata, self._batch = len(batch.status), metadata, batch
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._everywhere = np.ones(self.num_envs, np.bool_)
        self._masked, self._metrics = batch.game.masked, batch.game.episode_metrics  # in `info`

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin episodes in all environments, or in those of `options["reset_mask"]`.  # [B, *shape], info"""
        chosen, seeds = self._reset_mask((options or {}).get("reset_mask")), self._seeds(seed)
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
        self._batch.begin(chosen, seeds, self.np_random)
        return self._batch.out, _of(chosen, self._now())

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Play one action in every environment.  # [B, *shape], float64 [B], bool [B], bool [B], info

        ValueError where there is no such action; RuntimeError where an episode is over and nothing resets it.
        """
        batch = self._batch
        batch.step(actions)
        terminated, truncated = batch.status == TERMINATED, batch.status == TRUNCATED
        info = _of(self._everywhere, self._now())
        if batch.status.any():
            info |= self._ends(terminated | truncated)
        return batch.out, batch.rewards.copy(), terminated, truncated, info

    def _now(self) -> Info:
        """Return the `info` of all environments as they are now."""
        return {"action_mask": self._batch.masks.copy()} if self._masked else {}

    def _before(self) -> Info:
        """Return the `info` of environments that have been reset in this step, as they were before."""
        return {"action_mask": self._batch.final_masks.copy()} if self._masked else {}

    def _ends(self, ended: NDArray[np.bool_]) -> Info:
        """Return the `info` of episodes that have ended in this step."""
        batch = self._batch
        values = {name: batch.ended.episode_metrics[:, i].astype(np.int64) for i, name in enumerate(self._metrics)}
        if batch.mode == SAME_STEP:
            values |= self._before()
        for value in values.values():
            value[~ended] = 0
        if batch.mode != SAME_STEP:
            return _of(ended, values)
        final = np.empty(self.num_envs, object)
        for b in np.flatnonzero(ended):
            final[b] = batch.final[b].copy()
        return _of(ended, {"final_obs": final, "final_info": _of(ended, values)})

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else seed
        try:
            given = len(seeds)
        except TypeError:
            raise ValueError(f"seed is a whole number, a list of them or None, not {seed!r}") from None
        if given != self.num_envs:
            raise ValueError(f"{given} seeds for {self.num_envs} environments")
        return [None if one is None else whole("seed", one, 0, LAST_SEED) for one in seeds]

    def _reset_mask(self, chosen: Any) -> NDArray[np.bool_]:
        if chosen is None:
            return np.ones(self.num_envs, np.bool_)
        if not isinstance(chosen, np.ndarray) or chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise ValueError(f"reset_mask is a bool array with a place for each of {self.num_envs} environments")
        if not chosen.any():
            raise ValueError("reset_mask chooses no environment")
        return chosen.copy()


def _of(valid: NDArray[np.bool_], values: Mapping[str, Any]) -> Info:
    """Return values as a vector's info has them: with a truth for each environment, whether the value is its own."""
    return {**values, **{f"_{name}": valid.copy() for name in values}}
