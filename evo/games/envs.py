"""A compiled game as a Gymnasium `Env` and as a `VectorEnv`, which steps many environments in one compiled pass."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from evo.environment import Shown
from evo.games.batch import DISABLED, NEXT_STEP, SAME_STEP, Batch
from evo.games.declaration import whole
from evo.games.plain import PlainGame, action_space, observation_space
from evo.randomness.streams import SEED_LIMIT
from evo.records import GOES_ON, TERMINATED, TRUNCATED

Observation = NDArray[np.float32]
Info = dict[str, Any]
MODES = {AutoresetMode.NEXT_STEP: NEXT_STEP, AutoresetMode.SAME_STEP: SAME_STEP, AutoresetMode.DISABLED: DISABLED}
RENDER_MODES = ("rgb_array", "ansi", "human")
FRAMES_PER_SECOND = 10


class _Shown:
    """What both of Gymnasium's interfaces have of a game: environments side by side, and what is shown of them."""

    metadata: Info
    render_mode: str | None

    def _set_up(self, environment: Any, batch: Batch, mode: str | None, modes: Sequence[str]) -> None:
        """Of a GameEnvironment; `modes` are those of `render_mode`."""
        self.definition, self._options, self._batch = environment.definition, environment.options, batch
        known = list(modes) if environment.visible else []
        if mode is not None and mode not in known:
            raise ValueError(f'render_mode is "{mode}", not one of {", ".join(known) or "none"}')
        self.metadata, self.render_mode = {"render_modes": known, "render_fps": FRAMES_PER_SECOND}, mode

    def _plain(self) -> PlainGame:
        plain = PlainGame(self.definition, self._options, len(self._batch.status))
        for mine, theirs in zip(plain.state, self._batch.state.state, strict=True):
            mine[...] = theirs
        return plain

    def _positions(self) -> list[Shown]:
        plain = self._plain()
        return [plain.shown(b) for b in range(len(self._batch.status))]

    def _rendered(self) -> list[Any]:
        if self.render_mode != "rgb_array":
            return [shown.text("NO_COLOR" not in os.environ) for shown in self._positions()]
        if self.definition.render is None:
            return [shown.rgb() for shown in self._positions()]
        plain = self._plain()
        return [plain.picture(b) for b in range(len(self._batch.status))]

    def _metrics(self) -> dict[str, NDArray[np.int64]]:
        """Return the metrics of every environment: where there are live ones as they are now, else of the last end."""
        batch, definition = self._batch, self.definition
        values = batch.live_metrics() if definition.live_metrics else batch.ended.episode_metrics
        return {name: values[:, i].astype(np.int64) for i, name in enumerate(definition.episode_metrics)}


class GameEnv(_Shown, gymnasium.Env[Observation, Any]):
    """One environment of a game.

    `reset(seed=s)` begins the episode of seed s, and a reset without a seed the next one of that sequence. `info` has
    `action_mask` (int8, 1 for what is allowed) where the game has a mask, its live metrics, and all metrics of an
    episode at its end. A masked action is played all the same.
    """

    def __init__(self, environment: Any, render_mode: str | None = None) -> None:
        self._set_up(environment, Batch(environment.game, 1, single=True), render_mode, RENDER_MODES)
        self.observation_space = observation_space(environment.definition, environment.options)
        self.action_space = action_space(environment.definition, environment.actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode; return the first observation, float32 [*shape], and info."""
        seed = None if seed is None else whole("seed", seed, 0, SEED_LIMIT - 1)
        super().reset(seed=seed, options=options)
        self._batch.begin(np.ones(1, np.bool_), [seed], self.np_random)
        return self._batch.out[0].copy(), self._info(GOES_ON)

    def check(self, action: Any) -> None:
        """Raise ValueError where there is no such action."""
        self._batch.checked(np.asarray(action))

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Play one action; ValueError where there is no such action, RuntimeError after the end of an episode."""
        batch = self._batch
        batch.step(action)
        status = int(batch.status[0])
        info = self._info(status)
        return batch.out[0].copy(), float(batch.rewards[0]), status == TERMINATED, status == TRUNCATED, info

    def render(self) -> Any:
        """Return what `render_mode` asks for: pixels, uint8 [H, W, 3], or text; human is shown at once."""
        return None if self.render_mode in (None, "human") else self._rendered()[0]

    def shown(self) -> Shown:
        """Return the position as it can be shown."""
        return self._positions()[0]

    @property
    def player(self) -> int:
        """Return which of several players is on turn."""
        return int(self._batch.state.state.seats_turn[0])

    def rewards(self) -> list[float]:
        """Return what the last move of a game of several players has brought to each of them."""
        thousandths: list[float] = np.rint(self._batch.state.state.seats_rewards[0] * 1000.0).tolist()
        return [reward / 1000.0 for reward in thousandths]

    def seen_by(self, player: int) -> tuple[Observation, NDArray[np.int8], Info]:
        """Return what one of several players would see if it were on turn, which actions it might take, and metrics."""
        batch, seats = self._batch, self._batch.state.state
        before = seats.seats_turn[0], seats.seats_mine[0]
        seats.seats_turn[0] = seats.seats_mine[0] = player
        batch.show()
        seen = batch.out[0].copy(), batch.masks[0].copy()
        metrics = dict(zip(self.definition.episode_metrics, batch.live_metrics()[0].tolist(), strict=True))
        seats.seats_turn[0], seats.seats_mine[0] = before
        return *seen, metrics

    def _info(self, status: int) -> Info:
        if self.render_mode == "human":
            picture = self._rendered()[0]
            sys.stdout.write(f"\x1b[H\x1b[J{picture}\n" if sys.stdout.isatty() else f"{picture}\n")
            sys.stdout.flush()
            time.sleep(1 / FRAMES_PER_SECOND)
        info: Info = {} if self.definition.mask is None else {"action_mask": self._batch.masks[0].copy()}
        over, live = status != GOES_ON, self.definition.live_metrics
        return info | {name: int(values[0]) for name, values in self._metrics().items() if over or name in live}


class GameVectorEnv(_Shown, VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """Many environments of a game, stepped, reset and observed in one compiled call.

    `autoreset_mode` is one of Gymnasium's three. `reset(seed=s)` seeds environment i with s + i; a list names every
    seed (None: the next episode of its sequence). `options["reset_mask"]` resets some. With `copy=False` the arrays
    that `reset` and `step` return may be used again by the next call. `info` is that of `GameEnv`.
    """

    def __init__(
        self,
        environment: Any,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
    ) -> None:
        mode = AutoresetMode(autoreset_mode)
        batch = Batch(environment.game, num_envs, MODES[mode], fresh=copy)
        self._set_up(environment, batch, render_mode, RENDER_MODES[:2])
        self.num_envs, self.metadata["autoreset_mode"] = num_envs, mode
        self.single_observation_space = observation_space(environment.definition, environment.options)
        self.single_action_space = action_space(environment.definition, environment.actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._everywhere = np.ones(num_envs, np.bool_)

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
            info |= self._at_ends(terminated | truncated)
        return batch.out, batch.rewards.copy(), terminated, truncated, info

    def render(self) -> tuple[Any, ...] | None:
        """Return what `render_mode` asks for of every environment; None without one."""
        return None if self.render_mode is None else tuple(self._rendered())

    def shown(self) -> list[Shown]:
        """Return every position as it can be shown."""
        return self._positions()

    def _now(self) -> Info:
        info: Info = {} if self.definition.mask is None else {"action_mask": self._batch.masks.copy()}
        if self.definition.live_metrics:
            metrics = self._metrics()
            info |= {name: metrics[name] for name in self.definition.live_metrics}
        return info

    def _at_ends(self, ended: NDArray[np.bool_]) -> Info:
        """Return metrics of episodes that have ended in this step; of SAME_STEP, also what they showed last."""
        batch, definition = self._batch, self.definition
        names, same_step = definition.episode_metrics, batch.mode == SAME_STEP
        values: Info = {name: batch.ended.episode_metrics[:, i].astype(np.int64) for i, name in enumerate(names)}
        if same_step and definition.mask is not None:
            values["action_mask"] = batch.final_masks.copy()
        for value in values.values():
            value[~ended] = 0
        if not same_step:
            return _of(ended, {name: value for name, value in values.items() if name not in definition.live_metrics})
        final = np.empty(self.num_envs, object)
        for b in np.flatnonzero(ended):
            final[b] = batch.final[b].copy()
        return _of(ended, {"final_obs": final, "final_info": _of(ended, values)})

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else seed
        try:
            count = len(seeds)
        except TypeError:
            raise ValueError(f"seed is a whole number, a list of them or None, not {seed!r}") from None
        if count != self.num_envs:
            raise ValueError(f"{count} seeds for {self.num_envs} environments")
        return [None if one is None else whole("seed", one, 0, SEED_LIMIT - 1) for one in seeds]

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
