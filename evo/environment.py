"""What a trainer asks of an environment; what most environments lack has a default."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evo.lazy import gymnasium
from evo.records import Task

Frame = NDArray[np.uint8]  # [H, W, 3]
TASKS = 16  # of a round, about, where frames are costly
RANDOM = "random"  # among the players that need no learning: the one that draws its actions


class Normalisation(NamedTuple):
    """How observations are normalised: (observation - mean) / deviation, no further than `limit` from 0."""

    mean: NDArray[np.float64]  # of the shape of an observation
    deviation: NDArray[np.float64]
    limit: float

    def of(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Return observations as they are seen.  # of any shape that ends with that of the mean"""
        with np.errstate(over="ignore"):  # what is far beyond the limit
            away = (observations - self.mean) / self.deviation
        return np.asarray(np.clip(away, -self.limit, self.limit), np.float32)


class Shown(Protocol):
    """A position that can be shown."""

    def text(self, colour: bool) -> str:
        """Return lines of text, with escape sequences only where `colour` is true."""

    def rgb(self) -> Frame:
        """Return a picture for a film, uint8 [H, W, 3]."""


def computed_once(function: Callable[[Any], Any]) -> Any:
    """Cache a property that implements an attribute of `Environment`."""
    return cached_property(function)


def real_array(values: Any) -> NDArray[Any]:
    """Return what was given as an array; TypeError: no numbers, but texts, dates, None, complex or masked ones.

    ValueError: it is no array.
    """
    try:
        found = np.asarray(values)
    except ValueError:
        raise ValueError("lists of several lengths, one beside the other, are no array") from None
    nothing = found.dtype.kind == "O" and any(one is None or isinstance(one, Mapping) for one in found.flat)
    if found.dtype.kind not in "biufO" or np.ma.is_masked(values) or nothing:
        raise TypeError("None, texts, dates, tables, complex and masked numbers do not fit, real ones do")
    return found


def as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return a copy of numbers in float32; what is beyond its range is infinite there, without a warning."""
    if values.dtype == np.float32:
        return values.copy()
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


class Environment(Protocol):
    """An environment of an experiment; one of a plug-in subclasses it, and so has the defaults."""

    dear: ClassVar[bool] = True  # it is not compiled: by default fewer frames evaluate, and tasks are smaller
    shape: tuple[int, ...]  # of an observation
    actions: int  # how many choices there are or, where actions are continuous, how many numbers an action has
    action_names: tuple[str, ...] = ()  # as in "left"; empty where the environment names none
    observation_names: tuple[str, ...] = ()  # of each number of an observation, in order; empty: it names none
    entries: Mapping[str, tuple[int, ...]] = {}  # shapes of a Dict's or Tuple's, side by side in what is seen; {}: none
    continuous: bool = False  # whether actions are numbers, not choices
    action_bounds: tuple[Any, Any] | None = None  # of continuous actions: numbers, or arrays [D]; None: there are none
    normalisation: Normalisation | None = None  # None: observations are as the environment gives them
    codes: int = 0  # how many codes 0, 1, 2, ... the values of an observation are; 0: they are not codes
    episode_metrics: tuple[str, ...] = ()  # names of the metrics of an episode
    score_bounds: tuple[float, float] | None = None  # lowest and highest score of an episode; None: not known
    baselines: Mapping[str, Callable[[int], float]] = {}  # players without learning: from an episode's seed to a score
    baseline_seconds: Mapping[str, float] = {}  # of processor time for an episode of theirs, about, where it is known
    players: int = 1
    opponents: Any = None  # the `Opponents` that play the other seats of a game of several players; None: no networks
    symmetry: Literal["", "mirror", "dihedral"] = ""  # keeps an observation's value: mirrored columns, also rotations
    game: Any = None  # the `CompiledGame`; None: it is played through Gymnasium's interface
    seed_bits: int = 64  # of a seed that `env().reset` gets: the upper ones of an episode's 64
    instances: int = 16  # environments that are open in a process, at most, whose episodes are played side by side
    notices: tuple[str, ...] = ()  # what a user should know of it when a run begins
    problem: Any = None  # the `Problem`, a function of the weights themselves; None: a network plays
    visible: bool = False  # whether `replayed` shows episodes
    made_by: Any = None  # what Gymnasium makes it by, a class or function or its name, and the arguments; None: not so
    sources: str = ""  # a hash of the source files of a plug-in's game, which must not change within a run

    @property
    def is_exact(self) -> bool:
        """Whether one call is a candidate's true fitness: it is of a function that takes no seed."""
        return self.problem is not None and not self.problem.seeded

    @property
    def unit_actions(self) -> bool:
        """Whether continuous actions are numbers from -1 to 1."""
        return self.action_bounds is None or bool(np.all(np.abs(self.action_bounds) == 1))

    @property
    def recorded_as(self) -> Any:
        """What rebuilds observations that are recorded as bytes: the game, or `Pixels`; None: they are recorded."""
        return self.game

    @property
    def returns_type(self) -> type[np.int64 | np.float64]:
        """The type of returns: int64 thousandths of a compiled game, else float64."""
        return np.float64 if self.game is None else np.int64

    def replayed(self, seed: int, actions: Sequence[Any], *, pictures: bool = True) -> tuple[list[Shown], float]:
        """Play the actions of an episode again; return every position, the first one too, and the score.

        No positions where `visible` or `pictures` is false; a score of NaN where it cannot be played again.
        """
        return [], math.nan

    def array_of(self, observation: Any) -> Any:
        """Return an observation, or a batch of them, of a Dict or Tuple as an array; ValueError: of another space."""
        return observation

    def check(self) -> None:
        """Play briefly, and raise ConfigurationError where the environment's code breaks the contract."""
        return

    def env(self) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment behind Gymnasium's interface."""

    def metrics_of_episode(self, info: Mapping[str, Any], truncated: bool) -> tuple[int, ...]:
        """Return the metrics of an episode whose last step had this `info`; a compiled game has its own."""
        return ()


def per_task(environment: Environment, count: int, usual: int) -> int:
    """Return how many of `count` episodes or candidates play in a task, fewer than usual where they may be dear."""
    dear = environment.dear or environment.problem is not None
    return max(1, min(usual, count // TASKS)) if dear else usual


class Starts(NamedTuple):
    """Searches that begin one after the other, each in stages, of which the best one goes on."""

    searches: int = 1
    stages: tuple[int, ...] = ()  # generations of a search after which one ends; none: there is one search
    enough: tuple[float, ...] = ()  # median return of candidates with which a search goes on there; of each stage

    def identity(self) -> list[float]:
        """Return what the results of a run depend on."""
        return [part for part in (self.searches, *self.stages, *self.enough) if part < math.inf]


ONE_SEARCH = Starts()


@dataclass(frozen=True)
class Curriculum:
    """Environments of training, each for a generation in turn, and from some generation on that of validation.

    Generations have the numbers that the search which plays them gives them, as `Algorithm.age`.
    """

    evaluation: Environment  # of validation and test
    training: tuple[Environment, ...] = ()  # empty: as validation
    generations: int = 0  # after which training is as validation; 0: never

    def turn(self, number: int) -> int | None:
        """Return the place in `training` of a generation's environment; None: it is that of validation."""
        over = bool(self.generations) and number >= self.generations
        return None if over or not self.training else number % len(self.training)

    def environment(self, number: int) -> Environment:
        """Return the environment in which a generation trains."""
        turn = self.turn(number)
        return self.evaluation if turn is None else self.training[turn]

    def environments(self) -> Iterator[Environment]:
        """Yield every environment in which training may take place."""
        yield from self.training
        if self.generations or not self.training:
            yield self.evaluation

    def slot(self, number: int) -> int:
        """Return the set of environments side by side of a generation: one of its own for each of several tables."""
        turn, several = self.turn(number), len(self.training) > 1
        return turn if turn is not None else several * len(self.training)

    def metrics(self, number: int) -> dict[str, float]:
        """Return which of several tables a generation trains by, counted from 0; nothing where there is no choice."""
        turn = self.turn(number)
        return {} if turn is None or len(self.training) < 2 else {"training_table": float(turn)}

    def placed(self, task: Task, number: int) -> Task:
        """Return a generation's task for its environment."""
        turn = self.turn(number)
        return replace(task, evaluation=True) if turn is None else replace(task, training=turn)
