"""Any registered Gymnasium environment with discrete or continuous actions; observations are arrays, or flattened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from evo import environment
from evo.errors import ConfigurationError
from evo.options import IN_TRAINING, EnvironmentOptions
from evo.plugins import mistakes
from evo.plugins.mistakes import MOST_CHOICES, MOST_SEEN, PASSED_ON

if TYPE_CHECKING:
    import gymnasium

PREFIX = "gymnasium:"
LEAST_DEVIATION = 1e-8
MOST_DEVIATIONS = 10.0


class Options(EnvironmentOptions):
    """The [environment] section of a Gymnasium environment."""

    id: str = Field(description='"gymnasium:" and a registered ID, as in "gymnasium:CartPole-v1"')
    max_steps: int = Field(
        0, ge=0, le=1_000_000_000, description="steps after which an episode is truncated; 0 = as registered"
    )

    normalise: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="steps of random play, by whose mean and standard deviation observations are normalised; "
        "0 = as they are",
    )
    stack: int = Field(1, ge=1, le=64, description="newest observations that are shown together, as more channels")
    kwargs: dict[str, JsonValue] = Field({}, description="further arguments of gymnasium.make, as in {gravity = 9.8}")

    @model_serializer(mode="wrap")
    def _without_empty(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # What is not asked for is not a key of a run's identity, so that the hashes of older runs stay as they are.
        usual: dict[str, Any] = {"kwargs": {}, "normalise": 0, "stack": 1}
        return {key: value for key, value in dump(self).items() if key not in usual or value != usual[key]}

    @property
    def league(self) -> dict[str, Any]:
        """Return how observations are normalised, and how many are shown together."""
        return {"stack": self.stack, **({"normalise": self.normalise} if self.normalise else {})}

    @property
    def scored(self) -> dict[str, Any]:
        """Return all other options."""
        return self.model_dump(exclude=IN_TRAINING | {"normalise", "stack"})

    @model_validator(mode="after")
    def _seen_alike_in_training(self) -> Self:
        others = {name for changes in self.changes for name in changes.keys() & {"kwargs", "normalise", "stack"}}
        if self.normalise and others:
            raise ValueError(
                f"training: {', '.join(sorted(others))} cannot be another one where observations are normalised"
            )
        return self

    @field_validator("id")
    @classmethod
    def _plain(cls, value: str) -> str:
        # gymnasium.make("module:Name") imports a module, and no file may cause that.
        name = value.removeprefix(PREFIX)
        if not name or ":" in name:
            raise ValueError(f'"{value}" is not "gymnasium:" and a registered name; name its module with --plugin')
        return value


def is_registered(identifier: str) -> bool:
    """Return whether an environment is registered: "gymnasium:CartPole-v1", "CartPole-v1" or "CartPole"."""
    import gymnasium

    name = identifier.removeprefix(PREFIX)
    return name in gymnasium.registry or any(known.rpartition("-v")[0] == name for known in gymnasium.registry)


@dataclass(frozen=True)
class GymnasiumEnvironment(environment.Environment):
    """A Gymnasium environment with observations of float32."""

    options: Options

    def env(self) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment; ConfigurationError where it is unknown or its spaces do not fit.

        Observations that are no Box are flattened to one, several choices are one of all their combinations, and a Box
        of actions has one dimension.
        """
        env = self._raw()
        if (seen := math.prod(env.observation_space.shape or ())) > MOST_SEEN:
            env.close()
            raise ConfigurationError(f"environment.id: an observation has {seen:,} numbers; at most {MOST_SEEN:,} fit")
        return env if self.normalisation is None else normalised(env, self.normalisation)

    @cached_property
    def normalisation(self) -> environment.Normalisation | None:
        """How observations are normalised, where they are.

        The moments are of episodes without a limit of steps but the registered one, so they are the same in training.
        """
        if not self.options.normalise:
            return None
        return _normalisation_of(
            self.options.model_copy(update={"max_steps": 0, "training": {}, "training_generations": 0})
        )

    def _raw(self) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment whose observations are not normalised."""
        import gymnasium

        name, arguments = self.options.id.removeprefix(PREFIX), dict[str, Any](self.options.kwargs)
        try:
            env = gymnasium.make(name, max_episode_steps=self.options.max_steps or None, **arguments)
        except gymnasium.error.Error as error:
            text, advice = str(error).rstrip("."), "--plugin MODULE loads the module that registers it"
            unknown = "" if is_registered(name) else f"{' ' if text.endswith('?') else '; '}{advice}"
            raise ConfigurationError(f"environment.id: {text}{unknown}") from error
        except PASSED_ON:
            raise
        except (Exception, SystemExit) as error:
            key, where = "kwargs" if self.options.kwargs else "id", mistakes.place_of(error)
            raise ConfigurationError(
                f"environment.{key}: making {name} {mistakes.exception_text(error)}{where}"
            ) from error
        return with_known_actions(with_array_observations(env, name, self.options.stack), name)

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


def with_array_observations(env: gymnasium.Env[Any, Any], name: str, stack: int) -> gymnasium.Env[Any, Any]:
    """Return an environment that shows arrays, the last `stack` of them side by side on their last axis.

    ConfigurationError where its observations cannot be flattened.
    """
    import gymnasium
    from gymnasium.wrappers import FlattenObservation, FrameStackObservation, TransformObservation

    if not isinstance(env.observation_space, gymnasium.spaces.Box):
        if not env.observation_space.is_np_flattenable:
            raise ConfigurationError(f"environment.id: {name} has observations {env.observation_space}, not an array")
        env = FlattenObservation(env)
    if stack > 1:
        env = FrameStackObservation(env, stack)
        seen: Any = env.observation_space
        low, high = _side_by_side(seen.low), _side_by_side(seen.high)
        env = TransformObservation(env, _side_by_side, gymnasium.spaces.Box(low, high, dtype=seen.dtype))
    return env


def _side_by_side(frames: Any) -> Any:
    """Return frames side by side on their last axis.  # [K, ..., C] -> [..., K C]"""
    return np.concatenate(list(frames), axis=-1) if np.ndim(frames) > 1 else np.asarray(frames)


@lru_cache(maxsize=16)
def _normalisation_of(options: Options) -> environment.Normalisation:
    return normalisation_of(GymnasiumEnvironment(options)._raw(), options.normalise)


def normalisation_of(env: gymnasium.Env[Any, Any], steps: int) -> environment.Normalisation:
    """Return mean and standard deviation of the observations of `steps` random actions; close the environment.

    Both have the shape of an observation. A number that hardly varies has the standard deviation 1. Every process plays
    the same steps: the environment and its actions have fixed seeds. The sums are of float64, in the order of play.
    ConfigurationError where an observation is not finite, or the environment fails.
    """
    total = squares = np.zeros(env.observation_space.shape or ())
    try:
        env.action_space.seed(0)
        info, over = env.reset(seed=0)[1], False
        for _ in range(steps):
            if over:
                info = env.reset()[1]
            action = env.action_space.sample(info.get("action_mask"))
            observation, _, terminated, truncated, info = env.step(action)
            value, over = np.asarray(observation, np.float64), terminated or truncated
            total, squares = total + value, squares + value * value
    except PASSED_ON:
        raise
    except (Exception, SystemExit) as error:
        where = mistakes.place_of(error)
        raise ConfigurationError(
            f"environment.normalise: random play {mistakes.exception_text(error)}{where}"
        ) from error
    finally:
        env.close()
    if not np.isfinite(squares).all():
        raise ConfigurationError("environment.normalise: observations of random play are not finite; use 0")
    mean = total / steps
    deviation = np.sqrt(np.maximum(squares / steps - mean * mean, 0.0))
    return environment.Normalisation(mean, np.where(deviation > LEAST_DEVIATION, deviation, 1.0), MOST_DEVIATIONS)


def normalised(env: gymnasium.Env[Any, Any], by: environment.Normalisation) -> gymnasium.Env[Any, Any]:
    """Return an environment that shows normalised observations, as float32."""
    import gymnasium
    from gymnasium.wrappers import TransformObservation

    def seen(observation: Any) -> NDArray[np.float32]:
        return np.asarray(np.clip((observation - by.mean) / by.deviation, -by.limit, by.limit), np.float32)

    space = gymnasium.spaces.Box(-by.limit, by.limit, by.mean.shape, np.float32)
    return TransformObservation(env, seen, space)


def with_known_actions(env: gymnasium.Env[Any, Any], name: str) -> gymnasium.Env[Any, Any]:
    """Return an environment with Discrete actions from 0 on, or with a one-dimensional Box of them.

    ConfigurationError where its actions are others, or more than can be recorded.
    """
    from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
    from gymnasium.wrappers import TransformAction

    taken: Any = env.action_space
    if isinstance(taken, MultiDiscrete | MultiBinary):
        sides = np.asarray(taken.nvec if isinstance(taken, MultiDiscrete) else np.full(taken.shape, 2))
        start = np.asarray(getattr(taken, "start", np.zeros(sides.shape)), taken.dtype)
        count = math.prod(sides.ravel().tolist())
        if count <= MOST_CHOICES:

            def combination(action: Any) -> Any:
                """Return the choices that a combination stands for, the last one counting fastest."""
                places = np.unravel_index(int(action), sides.ravel())
                return (np.array(places).reshape(sides.shape) + start).astype(taken.dtype)

            return TransformAction(env, combination, Discrete(count))
    elif isinstance(taken, Discrete) and taken.n <= MOST_CHOICES:
        first = int(taken.start)
        return TransformAction(env, lambda action: action + first, Discrete(taken.n)) if first else env
    elif isinstance(taken, Box) and np.issubdtype(taken.dtype, np.floating):
        shape = taken.shape
        flat = Box(taken.low.ravel(), taken.high.ravel(), dtype=taken.dtype)
        return env if len(shape) == 1 else TransformAction(env, lambda action: action.reshape(shape), flat)
    raise ConfigurationError(
        f"environment.id: {name} has actions {taken}; at most {MOST_CHOICES} choices or combinations of choices, or a "
        "Box of numbers are needed"
    )


def make(options: Options) -> GymnasiumEnvironment:
    """Return the environment of these options."""
    return GymnasiumEnvironment(options)
