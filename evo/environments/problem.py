"""Any function of a vector as a fitness: `problem:MODULE` is the `fitness` of a plug-in, called by pinned workers.

A problem has no network, observations or actions: a candidate is a vector, an "episode" is a call of the function with
the seed of that episode, and what it returns is the return, in float64.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, field_validator

from evo import environment
from evo.errors import ConfigurationError
from evo.options import EnvironmentOptions
from evo.plugins import mistakes, registry

if TYPE_CHECKING:
    import gymnasium

PREFIX = "problem:"
MOST_NUMBERS = 1 << 27
Fitness = Callable[..., float]


@dataclass(frozen=True)
class Problem:
    """A fitness function, and where its search begins.

    `fitness(weights, seed)` gets float32 [P], which it may change, and returns a number. A function of the weights
    alone is exact: it is called once, however many episodes there are. `start` is the first vector [P], or P for zeros.
    The function is called with weights between `lower` and `upper`, numbers or [P], where these are set.
    """

    fitness: Fitness
    start: ArrayLike | int
    minimise: bool = False
    lower: ArrayLike = -math.inf
    upper: ArrayLike = math.inf

    @cached_property
    def first(self) -> NDArray[np.float32]:
        """The vector where the search begins, within the bounds.  # [P]"""
        start = np.zeros(self.start) if isinstance(self.start, int) else self.start
        return self.inside(np.array(start, np.float32))

    @cached_property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """The smallest and the largest weights; None where there are none.  # [] or [P] each"""
        low, high = np.asarray(self.lower, np.float32), np.asarray(self.upper, np.float32)
        return None if np.isneginf(low).all() and np.isposinf(high).all() else (low, high)

    @cached_property
    def seeded(self) -> bool:
        """Whether the function takes a seed."""
        return _takes_seed(self.fitness)

    def inside(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights within the bounds, as a copy.  # [P] -> [P]"""
        return weights.copy() if self.bounds is None else np.clip(weights, *self.bounds)

    def value(self, weights: NDArray[np.float32], seed: int) -> float:
        """Return what is maximised: the fitness, or less it; ConfigurationError where the function fails."""
        try:
            found = self.fitness(self.inside(weights), seed) if self.seeded else self.fitness(self.inside(weights))
            value = float(found)
        except mistakes.PASSED_ON:
            raise
        except (Exception, SystemExit) as error:
            raise mistakes.of_function(self.fitness.__module__, self.fitness.__qualname__, error) from error
        return -value if self.minimise else value


def _takes_seed(function: Fitness) -> bool:
    try:
        inspect.signature(function).bind(None, 0)
    except TypeError:
        return False
    return True


class Options(EnvironmentOptions):
    """The [environment] section of a problem."""

    id: str = Field(
        description='"problem:" and the name of a plug-in with a function `fitness` or a `problem`; something else of '
        'it as in "problem:my_module:my_problem"'
    )
    size: int = Field(
        0, ge=0, le=MOST_NUMBERS, exclude_if=lambda size: not size, description="numbers of a vector; 0 = as declared"
    )
    minimise: bool = Field(False, exclude_if=lambda less: not less, description="whether less is better")
    lower: float | None = Field(None, exclude_if=lambda least: least is None, description="least value of a weight")
    upper: float | None = Field(None, exclude_if=lambda most: most is None, description="largest value of a weight")

    @field_validator("id")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value.startswith(PREFIX) or not all(part.isidentifier() for part in value.split(":")):
            raise ValueError(f'"{value:.60}" is not "problem:" and the name of a plug-in')
        return value

    @property
    def problem(self) -> Problem:
        """The problem that the plug-in declares; ConfigurationError: it has none of this name, or no size."""
        _, module, *named = self.id.split(":")
        found = registry.problem(module, *named)
        if not isinstance(found, Problem):
            if not self.size:
                raise ConfigurationError(
                    f"environment.size: {self.id} is a function; say how many numbers its vector has, or declare "
                    f"`problem = evo.Problem({getattr(found, '__name__', 'fitness')}, start=...)`"
                )
            lower = -math.inf if self.lower is None else self.lower
            return Problem(found, self.size, self.minimise, lower, math.inf if self.upper is None else self.upper)
        if not 1 <= found.first.size <= MOST_NUMBERS or found.first.ndim != 1:
            raise ConfigurationError(f"environment.id: {self.id} starts at {found.first.shape}, not at a vector")
        if self.size not in (0, found.first.size):
            raise ConfigurationError(f"environment.size: {self.id} declares {found.first.size:,}, not {self.size:,}")
        return found


@dataclass(frozen=True)
class ProblemEnvironment(environment.Environment):
    """A problem where an environment is expected; nothing is observed and nothing is chosen."""

    options: Options

    @cached_property
    def problem(self) -> Problem:
        """The function with its start and bounds."""
        return self.options.problem

    @property
    def shape(self) -> tuple[int, ...]:
        """Return that nothing is observed."""
        return (0,)

    @property
    def actions(self) -> int:
        """Return the length of the vector."""
        return self.problem.first.size

    @property
    def continuous(self) -> bool:
        """Return that the vector has numbers."""
        return True

    def env(self) -> gymnasium.Env[Any, Any]:
        """Raise ConfigurationError: there are no episodes to play."""
        raise ConfigurationError(f"{self.options.id}: a fitness function has no episodes to play or to show")


def make(options: Options) -> ProblemEnvironment:
    """Return the problem of these options."""
    return ProblemEnvironment(options)
