"""Any registered Gymnasium environment with array observations, and discrete or continuous actions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, field_validator, model_serializer

from evo.environments import environment
from evo.errors import ConfigurationError
from evo.plugins import mistakes
from evo.plugins.mistakes import MOST_CHOICES, PASSED_ON
from evo.plugins.options import EnvironmentOptions

if TYPE_CHECKING:
    import gymnasium

PREFIX = "gymnasium:"


class Options(EnvironmentOptions):
    """The [environment] section of a Gymnasium environment."""

    id: str = Field(description='"gymnasium:" and a registered ID, as in "gymnasium:CartPole-v1"')
    max_steps: int = Field(
        0, ge=0, le=1_000_000_000, description="steps after which an episode is truncated; 0 = as registered"
    )

    kwargs: dict[str, JsonValue] = Field({}, description="further arguments of gymnasium.make, as in {gravity = 9.8}")

    @model_serializer(mode="wrap")
    def _without_empty(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # No arguments are not a key of a run's identity, so that the hashes of older runs stay as they are.
        return {key: value for key, value in dump(self).items() if key != "kwargs" or value}

    @field_validator("id")
    @classmethod
    def _plain(cls, value: str) -> str:
        # gymnasium.make("module:Name") imports a module, and no file may cause that.
        name = value.removeprefix(PREFIX)
        if not name or ":" in name:
            raise ValueError(f'"{value}" is not "gymnasium:" and a registered name; name its module with --plugin')
        return value


@dataclass(frozen=True)
class Environment(environment.Environment):
    """A Gymnasium environment; observations are flattened to float32."""

    options: Options

    def env(self) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment; ConfigurationError where it is unknown or its spaces do not fit."""
        import gymnasium

        name, arguments = self.options.id.removeprefix(PREFIX), dict[str, Any](self.options.kwargs)
        try:
            env = gymnasium.make(name, max_episode_steps=self.options.max_steps or None, **arguments)
        except gymnasium.error.Error as error:
            raise ConfigurationError(f"environment.id: {error}") from error
        except PASSED_ON:
            raise
        except (Exception, SystemExit) as error:
            key = "kwargs" if self.options.kwargs else "id"
            raise ConfigurationError(f"environment.{key}: {mistakes.described(error)}") from error
        taken = env.action_space
        if isinstance(taken, gymnasium.spaces.Box):
            known = len(taken.shape) == 1 and np.issubdtype(taken.dtype, np.floating)
        else:
            known = isinstance(taken, gymnasium.spaces.Discrete) and bool(taken.start == 0 and taken.n <= MOST_CHOICES)
        if not known:
            raise ConfigurationError(
                f"environment.id: {name} has actions {taken}; discrete ones from 0 on, at most {MOST_CHOICES}, or a "
                "one-dimensional Box are needed"
            )
        if not isinstance(env.observation_space, gymnasium.spaces.Box):
            raise ConfigurationError(f"environment.id: {name} has observations {env.observation_space}, not an array")
        return env

    @cached_property
    def _spaces(self) -> tuple[tuple[int, ...], int, bool]:
        import gymnasium

        env = self.env()
        taken: Any = env.action_space
        shape, continuous = env.observation_space.shape or (), isinstance(taken, gymnasium.spaces.Box)
        env.close()
        actions = int(taken.shape[0] if continuous else taken.n)
        return tuple(int(n) for n in np.atleast_1d(shape)), actions, continuous

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of an observation."""
        return self._spaces[0]

    @property
    def actions(self) -> int:
        """Return the number of actions or, where they are continuous, of their dimensions."""
        return self._spaces[1]

    @property
    def continuous(self) -> bool:
        """Return whether actions are numbers, not choices."""
        return self._spaces[2]


def make(options: Options) -> Environment:
    """Return the environment that `options` describe."""
    return Environment(options)
