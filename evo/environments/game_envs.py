"""A compiled game as a Gymnasium `Env` and as a `VectorEnv`, which steps many environments in one compiled pass."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled import game as contract
from evo.environments.plain import action_space
from evo.randomness.philox_compiled import episode_seed
from evo.randomness.streams import SEED_LIMIT
from evo.records import GOES_ON, TERMINATED, TRUNCATED

if TYPE_CHECKING:
    from evo.environments.game import GameEnvironment

kernel_cache.use(__name__)

Observation = NDArray[np.float32]
Info = dict[str, Any]
NEXT_STEP, SAME_STEP, DISABLED = range(3)  # what happens to an environment whose episode is over
MODES = {AutoresetMode.NEXT_STEP: NEXT_STEP, AutoresetMode.SAME_STEP: SAME_STEP, AutoresetMode.DISABLED: DISABLED}
NEVER_BEGUN = -1


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def begin_next(state, rules, chosen, first, episode, status):  # type: ignore[no-untyped-def]
    """Begin the next episode of every environment that is chosen.  # all [B]"""
    for b in range(chosen.shape[0]):
        if chosen[b]:
            episode[b] += 1
            status[b] = GOES_ON
            contract.begin(state, rules, b, episode_seed(first[b], episode[b]))


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def show(state, rules, out, masks):  # type: ignore[no-untyped-def]
    """Write what every environment shows, and which actions it allows.  # [B, *shape], [B, A]"""
    for b in range(out.shape[0]):
        contract.observe(state, rules, b, out[b])
        contract.mask(state, rules, b, masks[b])


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def advance(state, rules, mode, actions, first, episode, rewards, status, metrics, final, final_masks):  # type: ignore[no-untyped-def]  # fmt: skip
    """Play actions[b] in every environment b, int64 [B] or float64 [B, D].

    Writes rewards, status and, where an episode ends, its metrics [B, M]. An environment whose episode is over begins
    its next one in this step (SAME_STEP; `final` and `final_masks` are what it showed before), or in the next one,
    whose action is not played (NEXT_STEP), or never (DISABLED).
    """
    for b in range(actions.shape[0]):
        if mode == NEXT_STEP and status[b] != GOES_ON:
            episode[b] += 1
            contract.begin(state, rules, b, episode_seed(first[b], episode[b]))
            rewards[b] = 0.0
            status[b] = GOES_ON
            continue
        thousandths, status[b] = contract.step(state, rules, b, actions[b])
        rewards[b] = thousandths / 1000.0
        if status[b] == GOES_ON:
            continue
        contract.metrics(state, rules, b, metrics[b])
        if mode == SAME_STEP:
            contract.observe(state, rules, b, final[b])
            contract.mask(state, rules, b, final_masks[b])
            episode[b] += 1
            contract.begin(state, rules, b, episode_seed(first[b], episode[b]))


class Batch:
    """So many environments of a game, with the arrays that its kernels write."""

    def __init__(self, environment: GameEnvironment, count: int, mode: int = DISABLED, fresh: bool = False) -> None:
        game = environment.game
        self.names, self.masked, self.rules, self.mode = game.episode_metrics, game.masked, game.rules, mode
        self.state, self.actions, self.continuous = game.make_state(count), game.actions, game.continuous
        self.sides = (count, game.actions) if game.continuous else (count,)
        self.first, self.episode = np.zeros(count, np.uint64), np.full(count, NEVER_BEGUN, np.int64)
        self.rewards, self.status = np.zeros(count, np.float64), np.zeros(count, np.int64)
        self.metrics = np.zeros((count, len(self.names)), np.int32)
        self.out, self.masks = np.empty((count, *game.shape), np.float32), np.ones((count, game.actions), np.int8)
        self.final, self.final_masks = np.empty_like(self.out), np.ones_like(self.masks)
        self.fresh = fresh  # whether observations are written to a new array each time

    def begin(self, chosen: NDArray[np.bool_], seeds: Sequence[int | None], random: np.random.Generator) -> None:
        """Begin an episode in the environments that are chosen: that of its seed, or the next one of its sequence."""
        for b in np.flatnonzero(chosen).tolist():
            if seeds[b] is not None or self.episode[b] == NEVER_BEGUN:
                seed = seeds[b]
                self.first[b] = int(random.integers(SEED_LIMIT, dtype=np.uint64)) if seed is None else seed
                self.episode[b] = NEVER_BEGUN
        begin_next(self.state, self.rules, chosen, self.first, self.episode, self.status)
        self._show()

    def step(self, actions: NDArray[Any]) -> None:
        """Play an action in every environment; ValueError where there is no such action."""
        given = np.asarray(actions)
        kinds = "buif" if self.continuous else "ui"
        if given.shape != self.sides or given.dtype.kind not in kinds:
            what = "numbers" if self.continuous else "whole numbers"
            raise ValueError(f"actions are {what} {self.sides}, not {given.dtype} {given.shape}")
        chosen = given.astype(np.float64 if self.continuous else np.int64)  # a copy, for a game may write to its action
        if (self.episode == NEVER_BEGUN).any() or (self.mode == DISABLED and self.status.any()):
            raise RuntimeError("an episode is over, or has not begun: call reset")
        if not self.continuous and (chosen.min() < 0 or chosen.max() >= self.actions):
            raise ValueError(f"an action is not between 0 and {self.actions - 1}")
        advance(
            self.state, self.rules, self.mode, chosen, self.first, self.episode, self.rewards, self.status,
            self.metrics, self.final, self.final_masks,
        )  # fmt: skip
        self._show()

    def pictures(self, environment: GameEnvironment) -> tuple[NDArray[np.uint8], ...]:
        """Return what the author draws of every environment, uint8 [H, W, 3] each."""
        plain = environment.plain(len(self.status))
        for mine, theirs in zip(plain.state, self.state.state, strict=True):
            mine[...] = theirs
        return tuple(plain.picture(b) for b in range(len(self.status)))

    def _show(self) -> None:
        if self.fresh:
            self.out = np.empty_like(self.out)
        show(self.state, self.rules, self.out, self.masks)


def _metadata(environment: GameEnvironment, render_mode: str | None) -> dict[str, Any]:
    """Return what Gymnasium should know of a game; ValueError where there is no such `render_mode`."""
    modes = ["rgb_array"] if environment.visible else []
    if render_mode is not None and render_mode not in modes:
        raise ValueError(f'render_mode "{render_mode}" is none of {modes}')
    return {"render_modes": modes, "render_fps": 10}


def _whole(name: str, value: Any, lowest: int, highest: int) -> int:
    """Return `value` as an int; ValueError where it is no integer or lies outside [lowest, highest]."""
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"{name} is a whole number, not {value!r}") from None
    if not lowest <= number <= highest:
        raise ValueError(f"{name} is {number}, not between {lowest} and {highest}")
    return number


class GameEnv(gymnasium.Env[Observation, Any]):
    """One environment of a game.

    `reset(seed=s)` begins the episode of seed s, and a reset without a seed the next one of that sequence. `info` has
    `action_mask` (int8, 1 for what is allowed) where the game rules actions out, and the metrics of an episode at its
    end. A masked action is played all the same.
    """

    def __init__(self, environment: GameEnvironment, render_mode: str | None = None) -> None:
        definition = environment.definition
        self.environment, self.render_mode = environment, render_mode
        self.metadata = _metadata(environment, render_mode)
        self.observation_space = Box(definition.low, definition.high, environment.shape, np.float32)
        self.action_space = action_space(definition, environment.actions)
        self._batch = Batch(environment, 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode; return the first observation, float32 [*shape], and info."""
        seeds = [None if seed is None else _whole("seed", seed, 0, SEED_LIMIT - 1)]
        super().reset(seed=seed, options=options)
        self._batch.begin(np.ones(1, np.bool_), seeds, self.np_random)
        return self._batch.out[0].copy(), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Play one action; ValueError where there is no such action, RuntimeError after the end of an episode."""
        batch = self._batch
        batch.step(np.asarray(action)[None])
        status = int(batch.status[0])
        info = self._info()
        if status != GOES_ON:
            info |= dict(zip(batch.names, batch.metrics[0].tolist(), strict=True))
        return batch.out[0].copy(), float(batch.rewards[0]), status == TERMINATED, status == TRUNCATED, info

    def render(self) -> Any:
        """Return a picture, uint8 [H, W, 3]; None without a `render_mode`."""
        if self.render_mode is None:
            return None
        return self._batch.pictures(self.environment)[0]

    def _info(self) -> Info:
        return {"action_mask": self._batch.masks[0].copy()} if self._batch.masked else {}


class GameVectorEnv(VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """Many environments of a game, stepped, reset and observed in one compiled call.

    `autoreset_mode` is one of Gymnasium's three. `reset(seed=s)` seeds environment i with s + i; a list names every
    seed (None: the next episode of its sequence). `options["reset_mask"]` resets some. With `copy=False` the arrays
    that `reset` and `step` return are used again by the next call.
    """

    def __init__(
        self,
        environment: GameEnvironment,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
    ) -> None:
        definition, mode = environment.definition, AutoresetMode(autoreset_mode)
        self.num_envs, self.render_mode = _whole("num_envs", num_envs, 1, 1 << 31), render_mode
        self.metadata, self._environment = {**_metadata(environment, render_mode), "autoreset_mode": mode}, environment
        self.single_observation_space = Box(definition.low, definition.high, environment.shape, np.float32)
        self.single_action_space = action_space(definition, environment.actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._batch = Batch(environment, num_envs, MODES[mode], fresh=copy)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin episodes in all environments, or in those of `options["reset_mask"]`.  # [B, *shape], info"""
        chosen, seeds = self._reset_mask((options or {}).get("reset_mask")), self._seeds(seed)
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
        self._batch.begin(chosen, seeds, self.np_random)
        return self._batch.out, self._masks(self._batch.masks, chosen)

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Play one action in every environment.  # [B, *shape], float64 [B], bool [B], bool [B], info

        ValueError where there is no such action; RuntimeError where an episode is over and nothing resets it.
        """
        batch = self._batch
        batch.step(actions)
        status = batch.status.copy()
        ended = status != GOES_ON
        info = self._masks(batch.masks, np.ones(self.num_envs, np.bool_))
        if ended.any():
            at_end = {
                name: np.where(ended, batch.metrics[:, i].astype(np.int64), 0) for i, name in enumerate(batch.names)
            }
            at_end |= {f"_{name}": ended.copy() for name in batch.names}
            if batch.mode == SAME_STEP:
                final = np.empty(self.num_envs, object)
                for b in np.flatnonzero(ended):
                    final[b] = batch.final[b].copy()
                at_end |= self._masks(np.where(ended[:, None], batch.final_masks, np.int8(0)), ended)
                info |= {"final_obs": final, "_final_obs": ended, "final_info": at_end, "_final_info": ended.copy()}
                batch.status[:] = GOES_ON
            else:
                info |= at_end
        rewards = batch.rewards.copy()
        return batch.out, rewards, status == TERMINATED, status == TRUNCATED, info

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of every environment, uint8 [H, W, 3]; None without a `render_mode`."""
        return None if self.render_mode is None else self._batch.pictures(self._environment)

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        return [None if one is None else _whole("seed", one, 0, SEED_LIMIT - 1) for one in seeds]

    def _reset_mask(self, chosen: Any) -> NDArray[np.bool_]:
        if chosen is None:
            return np.ones(self.num_envs, np.bool_)
        if not isinstance(chosen, np.ndarray) or chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise ValueError(f"reset_mask is a bool array with a place for each of {self.num_envs} environments")
        if not chosen.any():
            raise ValueError("reset_mask chooses no environment")
        return chosen.copy()

    def _masks(self, masks: NDArray[np.int8], valid: NDArray[np.bool_]) -> Info:
        return {"action_mask": masks.copy(), "_action_mask": valid.copy()} if self._batch.masked else {}
