"""How observations are normalised, by what random play shows: the same numbers in every process."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.environment import Normalisation
from evo.environments.instances import Instance, made
from evo.errors import ConfigurationError
from evo.process import ALONE
from evo.records import GOES_ON, TERMINATED

SHOWN = 10  # observations of an episode that are compared
REPEATED = 100  # steps that are played again
LEAST_DEVIATION = 1e-8
MOST_DEVIATIONS = 10.0


def _random_player(env: Any) -> Instance:
    """Return an instance whose samples are the same in every process."""
    taken = env.action_space
    continuous = taken.shape != ()
    actions = int(taken.shape[0] if continuous else taken.n)
    one = Instance(lambda: env, env.observation_space.shape or (), actions, continuous)
    one.seed_samples(0)
    return one


def _unseeded(env: Any) -> list[bytes]:
    """Return what an environment shows at first of an episode without a seed, that follows one with it; close it."""
    with closing(_random_player(env)) as one:
        one.reset(0)
        one.reset(None)
        shown = [one.observation.tobytes()]
        while len(shown) < SHOWN and one.step(one.sample()) == GOES_ON:
            shown.append(one.observation.tobytes())
        return shown


def _shown(env: Any, is_seeded: bool) -> Generator[NDArray[np.float32]]:
    """Yield what an environment shows after each step of random play; `is_seeded`: every episode has a seed."""
    with closing(_random_player(env)) as one:
        episodes, status = 0, TERMINATED
        while True:
            if status != GOES_ON:
                one.reset(episodes if is_seeded or not episodes else None)
                episodes += 1
            status = one.step(one.sample())
            yield one.observation


def normalisation_of(make: Callable[[], Any], steps: int) -> Normalisation:
    """Return mean and standard deviation of the observations of `steps` random actions.

    Both have the shape of an observation. A number that hardly varies has the standard deviation 1. Every process plays
    the same steps: the environment and its actions have fixed seeds. Episodes after the first have none, unless a
    reset without a seed is not the same each time. The sums are of float64, in the order of play.
    ConfigurationError where the first steps are not the same again, an observation is not finite, or the environment
    fails.
    """
    with ALONE:
        is_seeded = _unseeded(made(make)) != _unseeded(made(make))
        first, total, squares = list[bytes](), np.zeros(()), np.zeros(())
        with closing(_shown(made(make), is_seeded)) as shown:
            for observation in islice(shown, steps):
                if len(first) < REPEATED:
                    first.append(observation.tobytes())
                value = observation.astype(np.float64)
                with np.errstate(invalid="ignore"):
                    total, squares = total + value, squares + value * value
        with closing(_shown(made(make), is_seeded)) as again:
            is_repeated = first == [observation.tobytes() for observation in islice(again, len(first))]
    if not np.isfinite(squares).all():
        raise ConfigurationError("observations are not finite; use 0")
    if not is_repeated:
        raise ConfigurationError(
            "the environment does not follow the seed of its reset, so every process would normalise by other numbers; "
            "draw from self.np_random there, or use 0"
        )
    mean = total / steps
    deviation = np.sqrt(np.maximum(squares / steps - mean * mean, 0.0))
    return Normalisation(mean, np.where(deviation > LEAST_DEVIATION, deviation, 1.0), MOST_DEVIATIONS)
