"""A game by its functions in plain Python: the reference of the compiled one, and where its mistakes are found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from evo.environment import Shown
from evo.errors import did_you_mean
from evo.games.declaration import Declaration, GameOptions
from evo.games.faults import nothing_allowed
from evo.games.pictures import Picture
from evo.games.primitives import Random, clock_of
from evo.randomness.streams import Purpose, draw
from evo.records import GOES_ON, TERMINATED, TRUNCATED

ACTION = int(Purpose.ACTION)


class PlainArray(np.ndarray[Any, Any]):
    """An array whose single values are Python's numbers, so that arithmetic is in 64 bits as in compiled code."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return found.item() if isinstance(found, np.generic) else found


class Numbers(SimpleNamespace):
    """The options of a game, as its functions are given them."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"options have no {name}{did_you_mean(name, vars(self))}")


def plain_state(example: Any, count: int) -> Any:
    """Return the state of `count` environments as zeros, of the types and shapes of `example`."""
    arrays = [np.zeros((count, *np.shape(part)), np.asarray(part).dtype) for part in example]
    return type(example)(*(array.view(PlainArray) for array in arrays))


class PlainGame:
    """A number of environments of a game, played one at a time."""

    def __init__(self, definition: Declaration, options: GameOptions, count: int = 1) -> None:
        self.definition, self.options = definition, options
        self.shape: tuple[int, ...] = definition.of(definition.shape, options)
        self.actions: int = definition.of(definition.actions, options)
        self.rules = Numbers(**options.numbers)
        self.state, self.clock = plain_state(definition.arrays(options), count), clock_of(count)

    def begin(self, b: int, seed: int) -> None:
        """Begin the episode of `seed`."""
        for array in (*self.state, *self.clock):
            array[b] = 0
        self.clock.seed[b] = seed
        self.definition.begin(self.state, self.rules, b, Random(self.clock, b))

    def playable(self, action: Any) -> Any:
        """Return an action as the game takes it: continuous ones within their bounds."""
        definition = self.definition
        if not definition.continuous:
            return int(action)
        return np.clip(np.array(action, np.float64), definition.action_low, definition.action_high).view(PlainArray)

    def step(self, b: int, action: Any) -> tuple[float, int]:
        """Play an action; return the reward, and GOES_ON, TERMINATED or TRUNCATED."""
        taken, random = self.playable(action), Random(self.clock, b)
        reward, ended = self.definition.step(self.state, self.rules, b, taken, random)
        self.clock.steps[b] += 1
        status = int(ended)
        if status == GOES_ON and 0 < self.rules.max_steps <= self.clock.steps[b]:
            status = TRUNCATED
        return float(reward), status

    def observe(self, b: int) -> NDArray[np.float32]:
        """Return what environment b shows."""
        out = np.zeros(self.shape, np.float32)
        self.definition.observe(self.state, self.rules, b, out)
        return out

    def mask(self, b: int) -> NDArray[np.int8]:
        """Return 1 for every action that is allowed, else 0."""
        out = np.ones(self.actions, np.int8)
        if self.definition.mask is not None:
            self.definition.mask(self.state, self.rules, b, out)
        return out

    def metrics(self, b: int) -> NDArray[np.int32]:
        """Return the metrics of an episode that has ended."""
        out = np.zeros(len(self.definition.episode_metrics), np.int32)
        if self.definition.metrics is not None:
            self.definition.metrics(self.state, self.rules, b, out)
        return out

    def picture(self, b: int) -> NDArray[np.uint8]:
        """Return what the author draws of environment b; ValueError where that is nothing."""
        if self.definition.render is None:
            raise ValueError(f"{self.definition.module} has no render")
        return np.asarray(self.definition.render(self.state, self.rules, b), np.uint8)

    def shown(self, b: int, caption: str = "") -> Shown:
        """Return environment b as a position that can be shown."""
        if self.definition.shown is None:
            return Picture(self.picture(b), caption)
        return self.definition.shown(self.state, self.rules, b)


def observation_space(definition: Declaration, options: GameOptions) -> Any:
    """Return Gymnasium's space of a game's observations."""
    low, high, shape = (definition.of(value, options) for value in (definition.low, definition.high, definition.shape))
    return Box(low, high, shape, np.float32)


def action_space(definition: Declaration, actions: int) -> Any:
    """Return Gymnasium's space of a game's actions."""
    if not definition.continuous:
        return Discrete(actions)
    return Box(definition.action_low, definition.action_high, (actions,), np.float32)


def random_action(definition: Declaration, actions: int, mask: NDArray[np.int8] | None, seed: int, step: int) -> Any:
    """Return a random action that is allowed, named by a seed and a step: int64, or float32 [A].

    ConfigurationError where the mask allows nothing.
    """
    if definition.continuous:
        shares = [draw(seed, step * actions + d, 1 << 32, ACTION) * 2.0**-32 for d in range(actions)]
        low, high = definition.action_low, definition.action_high
        return np.array([low + share * (high - low) for share in shares], np.float32)
    allowed = range(actions) if mask is None else np.flatnonzero(mask)
    if not len(allowed):
        raise nothing_allowed(definition.module, seed, step)
    return np.int64(allowed[draw(seed, step, len(allowed), ACTION)])


class PlainEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """One environment of a game in plain Python, behind Gymnasium's interface."""

    def __init__(self, game: PlainGame) -> None:
        self.game, self.masked = game, game.definition.masks_actions(game.options)
        self.observation_space = observation_space(game.definition, game.options)
        self.action_space = action_space(game.definition, game.actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin the episode of `seed`, or of one that is drawn."""
        super().reset(seed=seed)
        self.game.begin(0, int(self.np_random.integers(1 << 63)) if seed is None else seed)
        return self.game.observe(0), self._info(GOES_ON)

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Play an action."""
        reward, status = self.game.step(0, action)
        seen = self.game.observe(0)
        return seen, round(reward * 1000) / 1000, status == TERMINATED, status == TRUNCATED, self._info(status)

    def _info(self, status: int) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if self.masked:
            info["action_mask"] = self.game.mask(0)
        metrics = dict(zip(self.game.definition.episode_metrics, self.game.metrics(0).tolist(), strict=True))
        over, live = status != GOES_ON, self.game.definition.live_metrics
        info |= {name: value for name, value in metrics.items() if over or name in live}
        return info
