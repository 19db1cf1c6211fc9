"""Any function of a vector as the fitness: `problem:MODULE` is the `fitness` of a plug-in, called by pinned workers.

A problem has no network, observations or actions: a candidate is a vector, an "episode" is a call of the function with
the seed of that episode, and what it returns is the return, in float64.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, field_validator

from evo import environment
from evo.errors import ConfigurationError, MissingPluginError, notice
from evo.lazy import gymnasium
from evo.networks.keras_models import MOST_NUMBERS, KerasModel, layers_of
from evo.options import EnvironmentOptions, added
from evo.plugins import code, mistakes, registry
from evo.process import is_passed_on

PREFIX = code.PROBLEM
TAKEN = {"return", "length", "score", "won"}  # names of what is measured of every episode
Fitness = Callable[..., Any]
_looks: dict[int, tuple[Any, Any, Any]] = {}  # at functions of modules: the function, its content without arrays, all


@dataclass(frozen=True)
class Problem:
    """A fitness function, and where its search begins.

    `fitness(weights, seed)` gets float32 [P], which it may change, and returns a number. A function of the weights
    alone is exact: it is called once, however many episodes there are. `start` is the first vector [P], or P for zeros.
    The function is called with weights between `lower` and `upper`, numbers or [P], where these are set. Where `model`
    describes a Keras model (`evo.networks.keras_models`), the function gets that instead, with the weights. Where there
    are `measures`, the function returns its fitness and then a number of each of these names, for `nsga2` and
    `map_elites`. ConfigurationError: an argument is none of these.
    """

    fitness: Fitness
    start: ArrayLike | int
    minimise: bool = False
    lower: ArrayLike = -math.inf
    upper: ArrayLike = math.inf
    model: str = ""
    measures: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not callable(self.fitness):
            raise ConfigurationError(f"fitness: {self.fitness!r:.60} is not a function")
        if not isinstance(self.minimise, int | np.bool_):
            raise ConfigurationError(f"minimise: {self.minimise!r:.60} is neither True nor False")
        names = self.measures
        listed = isinstance(names, Sequence) and not isinstance(names, str)
        if not listed or not all(isinstance(name, str) and name.isidentifier() for name in names):
            raise ConfigurationError(f"measures: {names!r:.60} is no list of names")
        if taken := TAKEN & {*names} or len({*names}) < len(names):
            raise ConfigurationError(f"measures: {taken if taken is not True else names!r:.60}: such a name is taken")

    @property
    def name(self) -> str:
        """The name of the function, or of the class of an object that is called."""
        return str(getattr(self.fitness, "__qualname__", type(self.fitness).__qualname__))

    @property
    def module(self) -> str:
        """The name of the module that defines the function; what C defines may have none."""
        return getattr(self.fitness, "__module__", None) or "builtins"

    @functools.cached_property
    def first(self) -> NDArray[np.float32]:
        """The vector where the search begins, within the bounds; ConfigurationError: it is not one.  # [P]"""
        start: Any = self.start
        if isinstance(start, int | np.integer) and not isinstance(start, bool):
            if not 1 <= start <= MOST_NUMBERS:
                raise ConfigurationError(f"start: a vector has 1 to {MOST_NUMBERS:,} numbers, not {start:,}")
            start = np.zeros(int(start), np.float32)
        first = _numbers("start", start)
        if first.ndim != 1 or not 1 <= first.size <= MOST_NUMBERS:
            raise ConfigurationError(f"start: an array of shape {first.shape} is not a vector")
        if not np.isfinite(first).all():
            raise ConfigurationError("start: its numbers are not all finite in float32")
        if self.bounds is not None and any(bound.shape not in ((), first.shape) for bound in self.bounds):
            raise ConfigurationError(f"lower, upper: each is a number, or {first.size:,} of them, as in the vector")
        return self.inside(first)

    @functools.cached_property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """The smallest and the largest weights; None where there are none.  # [] or [P] each"""
        low, high = _numbers("lower", self.lower), _numbers("upper", self.upper)
        if np.isneginf(low).all() and np.isposinf(high).all():
            return None
        with suppress(ValueError):  # where they are of two lengths, which `first` refuses
            if not (np.all(low <= high) and np.all(low < math.inf) and np.all(high > -math.inf)):
                raise ConfigurationError(f"lower, upper: no number is from {self.lower!s:.40} to {self.upper!s:.40}")
        return low, high

    @functools.cached_property
    def seeded(self) -> bool:
        """Whether the function takes a seed: a second argument without a default, or of this name.

        ConfigurationError: it takes any arguments, as one that passes them on does.
        """
        function = self.fitness
        while isinstance(function, np.vectorize):
            function = function.pyfunc
        if isinstance(inputs := getattr(function, "nin", None), int):  # of NumPy's kind, also where Numba compiled it
            return inputs == 2
        try:
            signature = inspect.signature(function)
            signature.bind(None, 0)
        except (TypeError, ValueError):  # ValueError: it is built in, as max
            return False
        first = [*signature.parameters.values()][:2]
        if unknown := next((one.name for one in first if one.kind is one.VAR_POSITIONAL), ""):
            wanted = "write its arguments, (x) or (x, seed), or pass the function that it wraps"
            raise ConfigurationError(f"fitness: {self.name} takes *{unknown}, which may hold a seed or not; {wanted}")
        return first[1].name == "seed" or first[1].default is first[1].empty

    @functools.cached_property
    def content(self) -> Any:
        """What the function computes with, for `digest`; read once, as the function may write to its arrays."""
        return code.of_function(self.fitness)

    def digest(self, first: NDArray[np.float32], module: str = "") -> str:
        """Return the SHA-256 of the function and its bounds, with `first` [P], the vector where a search begins.

        Where it is of a plug-in, `module`, that has a digest of its files besides.
        """
        bounds = self.bounds and [one.tobytes() for one in self.bounds]
        about = repr((_content(self.fitness, module) if module else self.content, self.minimise, bounds))
        return hashlib.sha256(about.encode() + first.tobytes()).hexdigest()

    def inside(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights within the bounds, as a copy.  # [P] -> [P]"""
        return weights.copy() if self.bounds is None else np.clip(weights, *self.bounds)

    def values(self, weights: NDArray[np.float32], seed: int, model: KerasModel | None = None) -> NDArray[np.float64]:
        """Return what is maximised, and then M measures; ConfigurationError: the function fails.  # [P] -> [1 + M]"""
        x, measures = self.inside(weights), len(self.measures)
        given = x if model is None else model.with_weights(x)
        try:
            with _end_forked_children(self.name):
                found = self.fitness(given, seed) if self.seeded else self.fitness(given)
            found = [*found] if isinstance(found, np.ndarray) and found.ndim == 1 and measures else found
            if measures and not (isinstance(found, tuple | list) and len(found) == 1 + measures):
                raise TypeError(f"it must return the fitness and {measures} measures, not {found!r:.40}")
            values = np.array([_number(one) for one in (found if measures else [found])])
        except (Exception, SystemExit) as error:
            if is_passed_on(error):
                raise
            raise mistakes.of_function(self.module, self.name, error, self.fitness) from error
        if self.minimise:
            values[0] = -values[0]
        return values


def look_anew(function: Fitness) -> None:
    """Have the arrays of a function of a module read again, as they are when another search begins."""
    _looks.pop(id(function), None)


def _content(function: Fitness, module: str) -> Any:
    """Return what a function of a plug-in computes with; arrays as at the first look, for it may write to them."""
    files = code.files_of(module)
    now = code.of_function(function, arrays=False, files=files)
    if id(function) not in _looks or _looks[id(function)][1] != now:
        _looks[id(function)] = function, now, code.of_function(function, files=files)
    return _looks[id(function)][2]


@contextmanager
def _end_forked_children(name: str) -> Iterator[None]:
    """End a process that a function has forked where it leaves the function: else it would go on searching."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            left = sys.exception()
            code = left.code if isinstance(left, SystemExit) else "returned, or raised what nobody sees"
            if isinstance(code, str):
                notice(f"fitness: a process that {name} forked was ended when it left the function")
            os._exit(code if isinstance(code, int) else int(code is not None))


def _number(found: Any) -> float:
    is_number = (hasattr(found, "__float__") or hasattr(found, "__index__")) and not isinstance(found, str | bytes)
    if not is_number or np.ndim(found) or np.iscomplexobj(found) or np.ma.is_masked(found):
        several = "; name further numbers by `measures`" if np.size(found) > 1 else ""
        if inspect.iscoroutine(found):
            found.close()  # else it warns that nobody waits for it
        raise TypeError(f"it must return a number, not {found!r:.40}{several}")
    try:
        return float(found)
    except OverflowError:  # a whole number or a fraction beyond float64 is not finite there
        return math.nan


def _numbers(name: str, values: Any) -> NDArray[np.float32]:
    try:
        return environment.as_float32(environment.real_array(values))
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"{name}: {values!r:.60} is neither a number nor a vector") from None


class Options(EnvironmentOptions):
    """The [environment] section of a problem."""

    id: str = Field(
        description='"problem:" and a plug-in with a function `fitness` or a `problem`; for another name in it, as in '
        '"problem:my_module:my_problem"'
    )
    size: int = added(0, ge=0, le=MOST_NUMBERS, description="length of a vector; 0 = as declared")
    minimise: bool = added(False, description="whether lower is better")
    lower: float | None = added(None, description="lowest value of a weight")
    upper: float | None = added(None, description="highest value of a weight")
    measures: list[str] = added(
        [], max_length=16, description="names of the numbers that the function returns after its fitness"
    )
    model: str = added(
        "",
        max_length=40_000,
        description="description of a Keras model that the function gets, written by evo.maximise; empty = a vector",
    )

    @field_validator("id")
    @classmethod
    def _named(cls, value: str) -> str:
        parts = value.split(":")
        if not value.startswith(PREFIX) or len(parts) > 3 or not all(part.isidentifier() for part in parts):
            raise ValueError(f'"{value:.60}" is not "problem:" and the name of a plug-in')
        return value

    @property
    def scored(self) -> dict[str, Any]:
        """What is scored; of a model its layers, with a part of its description's SHA-256."""
        digest = hashlib.sha256(self.model.encode()).hexdigest()[:12]
        return super().scored | ({"model": f"{layers_of(self.model)} ({digest})"} if self.model else {})

    @property
    def in_tensorflow(self) -> bool:
        """Whether the function gets a Keras model."""
        return bool(self.model)

    @property
    def problem(self) -> Problem:
        """The problem that the plug-in declares; ConfigurationError: it has none of this name, or no size.

        Of those of no module it is the one at the first look: another search may have a function of this name.
        """
        _, module, *named = self.id.split(":")
        if module != registry.HERE:
            return self._declared(registry.problem(module, *named))
        if not isinstance(known := self.__dict__.get("known"), _OfThisProcess):
            try:
                known = _OfThisProcess(self._declared(registry.problem(module, *named)))
            except MissingPluginError:
                raise
            except ConfigurationError:  # of another search
                raise registry.not_here() from None
            self.__dict__["known"] = known  # options are frozen
        return known.problem

    def _declared(self, found: Any) -> Problem:
        if not isinstance(found, Problem):
            if not self.size:
                raise ConfigurationError(
                    f"environment.size: {self.id} is a function; say how many numbers its vector has, or declare "
                    f"`problem = evo.Problem({getattr(found, '__name__', 'fitness')}, start=...)`"
                )
            lower = -math.inf if self.lower is None else self.lower
            upper = math.inf if self.upper is None else self.upper
            return Problem(found, self.size, self.minimise, lower, upper, self.model, tuple(self.measures))
        for key in ("minimise", "lower", "upper", "model", "measures"):
            own, declared = getattr(self, key), getattr(found, key)
            if isinstance(own, float) and not np.ndim(declared):  # also of a fraction
                declared = float(declared)
            if own != type(self).model_fields[key].default and not np.array_equal(own, declared):
                raise ConfigurationError(f"environment.{key}: {self.id} is a Problem, which says that itself")
        if self.size not in (0, found.first.size):
            raise ConfigurationError(f"environment.size: {self.id} declares {found.first.size:,}, not {self.size:,}")
        return found


@dataclass(frozen=True)
class _OfThisProcess:
    """A problem whose function no other process can import: a copy, or what is pickled, is nothing."""

    problem: Problem

    def __reduce__(self) -> Any:
        return type(None), ()


@dataclass(frozen=True)
class ProblemEnvironment(environment.Environment):
    """A problem where an environment is expected; nothing is observed and nothing is chosen."""

    dear: ClassVar[bool] = False
    shape, continuous = (0,), True
    options: Options

    @environment.computed_once
    def problem(self) -> Problem:
        """The function with its start and bounds."""
        return self.options.problem

    @environment.computed_once
    def actions(self) -> int:
        """Return the length of the vector."""
        return int(self.problem.first.size)

    @environment.computed_once
    def episode_metrics(self) -> tuple[str, ...]:
        """Return the names of the measures."""
        return tuple(self.problem.measures)

    @environment.computed_once
    def sources(self) -> str:
        """A digest of a function that no module has, which must not change within a run, with its start and bounds."""
        if self.options.id.split(":")[1] != registry.HERE:
            return ""
        problem: Problem = self.problem
        return problem.digest(problem.first)

    def env(self) -> gymnasium.Env[Any, Any]:
        """Raise ConfigurationError: there are no episodes to play."""
        raise ConfigurationError(f"{self.options.id}: a fitness function has no episodes to play or to show")


def make(options: Options) -> ProblemEnvironment:
    """Return the problem of these options."""
    return ProblemEnvironment(options)
