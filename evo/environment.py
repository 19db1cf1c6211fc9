"""What a trainer asks of an environment; what most environments lack has a default."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evo.records import Task

if TYPE_CHECKING:
    import gymnasium

Frame = NDArray[np.uint8]  # [H, W, 3]
TASKS = 16  # of a round, about, where frames are dear
RANDOM = "random"  # among the players that need no learning: the one that draws its actions


class Normalisation(NamedTuple):
    """How observations are normalised: (observation - mean) / deviation, no further than `limit` from 0."""

    mean: NDArray[np.float64]  # of the shape of an observation
    deviation: NDArray[np.float64]
    limit: float


class Shown(Protocol):
    """A position that can be shown."""

    def text(self, colour: bool) -> str:
        """Return lines of text, with escape sequences only where `colour` is true."""

    def rgb(self) -> Frame:
        """Return a picture for a film, uint8 [H, W, 3]."""


class Environment(Protocol):
    """An environment of an experiment; one of a plug-in subclasses it, and so has the defaults."""

    dear: ClassVar[bool] = True  # it is not compiled: by default fewer frames evaluate, and tasks are smaller

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""

    @property
    def actions(self) -> int:
        """The number of actions or, where they are continuous, of their dimensions."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """A name for each action, as in "left"; empty where the environment names none."""
        return ()

    @property
    def observation_names(self) -> tuple[str, ...]:
        """A name for each number of an observation, in order; empty where the environment names none."""
        return ()

    @property
    def unit_actions(self) -> bool:
        """Whether continuous actions are numbers from -1 to 1."""
        return True

    @property
    def continuous(self) -> bool:
        """Whether actions are numbers, not choices."""
        return False

    @property
    def normalisation(self) -> Normalisation | None:
        """How observations are normalised; None where they are as the environment gives them."""
        return None

    @property
    def codes(self) -> int:
        """How many codes 0, 1, 2, ... the values of an observation are; 0 where they are not codes."""
        return 0

    @property
    def episode_metrics(self) -> tuple[str, ...]:
        """The names of the metrics of an episode."""
        return ()

    @property
    def score_bounds(self) -> tuple[float, float] | None:
        """The lowest and the highest score that an episode can have; None where they are not known."""
        return None

    @property
    def baselines(self) -> Mapping[str, Callable[[int], float]]:
        """Players that need no learning: functions from the seed of an episode to its score."""
        return {}

    @property
    def players(self) -> int:
        """How many players there are."""
        return 1

    @property
    def opponents(self) -> Any:
        """Which networks play the other seats of a game of several players, an `Opponents`; None: none do."""
        return None

    @property
    def baseline_seconds(self) -> Mapping[str, float]:
        """About how many seconds of processor time an episode of each of these players takes, where that is known."""
        return {}

    @property
    def symmetry(self) -> Literal["", "mirror", "dihedral"]:
        """Transforms that keep the value of an observation [H, W, C]: mirrored columns, rotations as well, or none."""
        return ""

    @property
    def game(self) -> Any:
        """The `CompiledGame`, where there is one; None: it is played through Gymnasium's interface."""
        return None

    @property
    def recorded_as(self) -> Any:
        """What rebuilds observations that are recorded as bytes: the game, or `Pixels`; None: they are recorded."""
        return self.game

    @property
    def seed_bits(self) -> int:
        """The bits of a seed that `env().reset` is given: the upper ones of an episode's 64."""
        return 64

    @property
    def instances(self) -> int:
        """How many environments are open in a process at most, whose episodes are played side by side."""
        return 16

    @property
    def notices(self) -> tuple[str, ...]:
        """What a user should know of it when a run begins."""
        return ()

    @property
    def problem(self) -> Any:
        """The `Problem`, a function of the weights themselves; None: a network plays."""
        return None

    @property
    def returns_type(self) -> type[np.int64 | np.float64]:
        """The type of returns: int64 thousandths of a compiled game, else float64."""
        return np.float64 if self.game is None else np.int64

    @property
    def visible(self) -> bool:
        """Whether `replayed` shows episodes."""
        return False

    def replayed(self, seed: int, actions: Sequence[Any], *, pictures: bool = True) -> tuple[list[Shown], float]:
        """Play the actions of an episode again; return every position, the first one too, and the score.

        No positions where `visible` or `pictures` is false; a score of NaN where it cannot be played again.
        """
        return [], math.nan

    @property
    def sources(self) -> str:
        """A hash of the source files of a plug-in's game, which must not change within a run; else empty."""
        return ""

    def check(self) -> None:
        """Play briefly, and raise ConfigurationError where the environment's code breaks the contract."""
        return

    def env(self) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment behind Gymnasium's interface."""

    def metrics_of_episode(self, info: Mapping[str, Any], truncated: bool) -> tuple[int, ...]:
        """Return the metrics of an episode whose last step had this `info`; a compiled game has its own."""
        return ()


def per_task(environment: Environment, count: int, usual: int) -> int:
    """Return how many of `count` episodes or candidates play in one task: fewer than usual where frames are dear.

    That depends on no number of workers, so that results do not.
    """
    return max(1, min(usual, count // TASKS)) if environment.dear else usual


@dataclass(frozen=True)
class Curriculum:
    """Environments of training, each for a generation in turn, and from some generation on that of validation."""

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
        """Return which set of environments side by side a generation plays in.

        The one of a single table goes on where training becomes as validation; of several, each has its own.
        """
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
