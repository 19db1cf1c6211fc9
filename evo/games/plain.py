"""A game by its functions in plain Python: the reference of the compiled one, and where its mistakes are found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from evo.environment import Shown
from evo.errors import did_you_mean
from evo.games.declaration import Declaration, GameOptions
from evo.games.faults import no_allowed_action
from evo.games.pictures import Picture
from evo.games.primitives import Random, clock_of, zeros_of
from evo.randomness.streams import Purpose, draw
from evo.records import GOES_ON, TRUNCATED

ACTION = int(Purpose.ACTION)
_indexed: Any = np.ndarray.__getitem__  # by this name it takes two thirds of the time that `super()` does


class PlainArray(np.ndarray[Any, Any]):
    """An array whose single values are Python's numbers, so that arithmetic is in 64 bits as in compiled code."""

    def __getitem__(self, index: Any) -> Any:
        found = _indexed(self, index)
        return found if isinstance(found, PlainArray) else found.item()


class Numbers(SimpleNamespace):
    """The options of a game, as its functions are given them."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"options have no {name}{did_you_mean(name, vars(self))}")


def plain_state(example: Any, count: int) -> Any:
    """Return the state of `count` environments as zeros, of the types and shapes of `example`."""
    return type(example)(*(array.view(PlainArray) for array in zeros_of(example, count)))


class PlainGame:
    """A number of environments of a game, played one at a time."""

    def __init__(self, definition: Declaration, options: GameOptions, count: int) -> None:
        self.definition, self.options = definition, options
        self.shape: tuple[int, ...] = definition.of(definition.shape, options)
        self.actions: int = definition.of(definition.actions, options)
        self.rules = Numbers(**options.numbers)
        self.state, self.clock = plain_state(definition.state_of(options), count), clock_of(count)

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

    def metrics(self, b: int) -> NDArray[np.int64]:
        """Return the metrics of an episode that has ended."""
        out = np.zeros(len(self.definition.episode_metrics), np.int64)
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
    """Return an allowed action, int64 or float32 [A], drawn by a seed and a step; ConfigurationError: none is."""
    if definition.continuous:
        shares = [draw(seed, step * actions + d, 1 << 32, ACTION) * 2.0**-32 for d in range(actions)]
        low, high = definition.action_low, definition.action_high
        return np.array([low + share * (high - low) for share in shares], np.float32)
    allowed = range(actions) if mask is None else np.flatnonzero(mask)
    if not len(allowed):
        raise no_allowed_action(definition.module, seed, step)
    return np.int64(allowed[draw(seed, step, len(allowed), ACTION)])
