"""A compiled game as a Gymnasium `Env` and as a `VectorEnv`, which steps many environments in one compiled pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from evo.compiled.arguments import whole
from evo.games.batch import Batch
from evo.games.plain import action_space
from evo.games.vector_env import MODES, CompiledVectorEnv, Info, Observation
from evo.randomness.streams import SEED_LIMIT
from evo.records import GOES_ON, TERMINATED, TRUNCATED

if TYPE_CHECKING:
    from evo.games.game import GameEnvironment


class GameEnv(gymnasium.Env[Observation, Any]):
    """One environment of a game.

    `reset(seed=s)` begins the episode of seed s, and a reset without a seed the next one of that sequence. `info` has
    `action_mask` (int8, 1 for what is allowed) where the game rules actions out, and the metrics of an episode at its
    end. A masked action is played all the same.
    """

    def __init__(self, environment: GameEnvironment, render_mode: str | None = None) -> None:
        self.environment, self.render_mode = environment, render_mode
        self.metadata = _metadata(environment, render_mode)
        self.observation_space, self.action_space = _spaces(environment)
        self._batch = Batch(environment.game, 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode; return the first observation, float32 [*shape], and info."""
        seeds = [None if seed is None else whole("seed", seed, 0, SEED_LIMIT - 1)]
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
            info |= dict(zip(batch.game.episode_metrics, batch.ended.episode_metrics[0].tolist(), strict=True))
        return batch.out[0].copy(), float(batch.rewards[0]), status == TERMINATED, status == TRUNCATED, info

    def render(self) -> Any:
        """Return a picture, uint8 [H, W, 3]; None without a `render_mode`."""
        return None if self.render_mode is None else _pictures(self.environment, self._batch)[0]

    def _info(self) -> Info:
        return {"action_mask": self._batch.masks[0].copy()} if self._batch.game.masked else {}


class GameVectorEnv(CompiledVectorEnv):
    """Many environments of a game, with the metadata and the pictures that its author declares."""

    def __init__(
        self,
        environment: GameEnvironment,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
    ) -> None:
        mode = AutoresetMode(autoreset_mode)
        batch = Batch(environment.game, num_envs, MODES[mode], fresh=copy)
        metadata = {**_metadata(environment, render_mode), "autoreset_mode": mode}
        super().__init__(batch, _spaces(environment), metadata)
        self.render_mode, self._environment = render_mode, environment

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of every environment, uint8 [H, W, 3]; None without a `render_mode`."""
        return None if self.render_mode is None else _pictures(self._environment, self._batch)


def _spaces(environment: GameEnvironment) -> tuple[Space[Any], Space[Any]]:
    """Return Gymnasium's spaces of observations and of actions."""
    definition = environment.definition
    seen = Box(definition.low, definition.high, environment.shape, np.float32)
    return seen, action_space(definition, environment.actions)


def _metadata(environment: GameEnvironment, render_mode: str | None) -> Info:
    """Return what Gymnasium should know of a game; ValueError where there is no such `render_mode`."""
    modes = ["rgb_array"] if environment.visible else []
    if render_mode is not None and render_mode not in modes:
        raise ValueError(f'render_mode "{render_mode}" is none of {modes}')
    return {"render_modes": modes, "render_fps": 10}


def _pictures(environment: GameEnvironment, batch: Batch) -> tuple[NDArray[np.uint8], ...]:
    """Return what the author draws of every environment, uint8 [H, W, 3] each."""
    plain = environment.plain(len(batch.status))
    for mine, theirs in zip(plain.state, batch.state.state, strict=True):
        mine[...] = theirs
    return tuple(plain.picture(b) for b in range(len(batch.status)))
