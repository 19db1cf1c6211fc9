"""The records and protocols that all parts share: tasks, results, requests, algorithms, evaluators."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from evo.errors import PoisonError

Arrays = Mapping[str, NDArray[np.generic]]
Metrics = dict[str, float]
Recorded = TypeVar("Recorded", "EnvStates", "Transitions")

NOT_DETERMINISTIC = "environment-not-deterministic"  # first word of a fingerprint where no result can be repeated
WORST = np.iinfo(np.int64).min  # the return in thousandths of an episode whose scores were not finite; of floats, -inf
LARGEST_REWARD = (1 << 31) - 1  # thousandths, as recorded steps have them
LARGEST_RETURN = 1 << 42  # thousandths; the sum of a million such returns fits into int64
LARGEST_FLOAT = 1e150  # a return of no game; the sum of the squares of a million such fits into float64


@dataclass(frozen=True)
class WeightSource:
    """Which weights K candidates have: how a worker rebuilds them from published ones and named noise.

    A candidate is row `rows[k]` of the published matrix, crossed with row `mates[k]` unless that is -1, plus
    `sigmas[k]` times the noise of `keys[k]`. A row of -1 is a fresh network drawn from the key. Where `scale` names
    a row, that row holds a standard deviation for each weight, by which the noise is multiplied first.
    """

    rows: NDArray[np.int32]  # [K]
    mates: NDArray[np.int32]  # [K], -1: no crossover
    keys: NDArray[np.uint64]  # [K]
    sigmas: NDArray[np.float32]  # [K], 0: the parent itself; negative: the other one of an antithetic pair
    crossover: Literal["none", "uniform", "layers"] = "none"
    published: str = ""  # the file, relative to the run directory; filled in when a request is published
    scale: int = -1  # row of the published matrix; -1: every weight has the same standard deviation

    @classmethod
    def of_row(cls, row: int = 0, published: str = "") -> WeightSource:
        """Return the source of one network: a row of the published matrix, unchanged; -1: drawn from the key 0."""
        return replace(cls.of_rows(1, row), published=published)

    @classmethod
    def of_rows(cls, count: int, first: int = 0) -> WeightSource:
        """Return the source of rows of the published matrix from `first` on, unchanged."""
        rows, sigmas = np.arange(first, first + count, dtype=np.int32), np.zeros(count, np.float32)
        return cls(rows, np.full(count, -1, np.int32), np.zeros(count, np.uint64), sigmas)

    def __len__(self) -> int:
        return len(self.rows)

    def some(self, which: slice | Sequence[int]) -> WeightSource:
        """Return some of the candidates."""
        return replace(self, **{name: getattr(self, name)[which] for name in ("rows", "mates", "keys", "sigmas")})


@dataclass(frozen=True)
class Episodes:
    """Play whole episodes, one a seed."""

    seeds: NDArray[np.uint64]  # [E]


@dataclass(frozen=True)
class EnvStates:
    """Environments in mid-episode, each with its sequence of episodes: where a segment begins, and where it ends."""

    snapshots: NDArray[np.uint8]  # [L, S] of a compiled game; of another environment its episode's actions so far
    first: NDArray[np.uint64]  # [L] seed of the first episode, from which the seeds of all others follow
    episode: NDArray[np.int64]  # [L] number of the episode that is being played
    returns_so_far: NDArray[Any]  # [L] since it began: int64 thousandths of a compiled game, else float64
    memories: NDArray[np.float32] | None = None  # [L, S] hidden states of a network; None: all zero, or it has none

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class Segment:
    """Play `horizon` steps in every environment; one whose episode ends begins its next one at once."""

    envs: EnvStates
    horizon: int
    stay_open: bool = False  # environments stay open in the worker, which had better play their next segment too


@dataclass(frozen=True)
class ActionRule:
    """How an action follows from the network's outputs.

    `greedy`: the highest score. `softmax`: drawn by softmax of the scores. `epsilon_greedy`: greedy, but with
    probability `epsilon` any allowed action. Of D continuous actions, greedy takes the means outputs[:D]. `gaussian`: a
    normal draw with log deviations outputs[D:2D]. `squashed`: tanh of a normal draw around the means' inverse tanh,
    with log deviations -5 to 2 by outputs[D:2D]. `noisy`: a normal draw of deviation `epsilon`. `uniform`: -1 to 1.
    """

    kind: Literal["greedy", "softmax", "epsilon_greedy", "gaussian", "squashed", "noisy", "uniform"] = "greedy"
    epsilon: float = 0.0


@dataclass(frozen=True)
class Task:
    """Play these episodes with each of these candidates. Batch composition belongs to the task, not to the backend."""

    weights: WeightSource  # of one candidate alone where a segment is played, or transitions are recorded
    play: Episodes | Segment
    action_rule: ActionRule = ActionRule()
    record_actions: bool = False  # also return every action of whole episodes, to show or check a replay
    record_transitions: bool = False  # also return every transition, to learn from; a segment always does
    evaluation: bool = False  # in the environment as validation and test have it, where training has another
    training: int = 0  # else in which of the environments of training
    opponents: WeightSource | None = None  # who plays the other seats of matches (`evo.games.seats`); None: baselines


GOES_ON, TERMINATED, TRUNCATED, SEGMENT_END = range(4)  # what follows a transition; kernels hold these numbers


@dataclass(frozen=True)
class Transitions:
    """Recorded steps; those of one environment, or of one episode, stand together in the order of time.

    The observation after a step is that of the next row. Where the next row is of another episode and the step did not
    terminate (TRUNCATED or SEGMENT_END), it is in `next_observations`, in the order of these steps.
    """

    observations: NDArray[np.generic]  # [M, S] uint8 snapshots where the environment has them, else [M, ...] float32
    action_masks: NDArray[np.int8] | None  # [M, A] allowed actions; None: all are
    actions: NDArray[np.generic]  # [M] int8, or [M, D] float32
    rewards: NDArray[np.float32]  # [M]
    ends: NDArray[np.uint8]  # [M] GOES_ON, TERMINATED, TRUNCATED or SEGMENT_END
    outputs: NDArray[np.float32]  # [M, O] of the network: scores of actions, then other heads
    next_observations: NDArray[np.generic]  # [N, ...] as `observations`
    next_action_masks: NDArray[np.int8] | None  # [N, A]
    next_outputs: NDArray[np.float32]  # [N, O]
    memories: NDArray[np.float32] | None = None  # [M, S] hidden state before the step; None: the network has none

    def __len__(self) -> int:
        return len(self.ends)


def joined(parts: Sequence[Recorded]) -> Recorded:
    """Return the rows of all parts, at least one, in their order; where some have masks, those of others allow all."""
    rows: dict[str, Any] = {name: [vars(part)[name] for part in parts] for name in vars(parts[0])}
    widths = [masks.shape[1] for masks in rows.get("action_masks", ()) if masks is not None]
    for name, shown in (("action_masks", "actions"), ("next_action_masks", "next_observations")) if widths else ():
        every = [np.ones((len(one), widths[0]), np.int8) for one in rows[shown]]
        rows[name] = [allowed if one is None else one for one, allowed in zip(rows[name], every, strict=True)]
    whole: Any = {name: None if one[0] is None else np.concatenate(one) for name, one in rows.items()}
    return type(parts[0])(**whole)


@dataclass(frozen=True)
class Result:
    """What K candidates did in E episodes; for a segment, in the E episodes that ended in it."""

    returns: NDArray[Any]  # [K, E], int64 thousandths of a game, else float64; `worst_of` where scores were not finite
    lengths: NDArray[np.int32]  # [K, E], steps
    episode_metrics: NDArray[Any]  # [K, E, M] int64, of a problem float64; named by the environment's `episode_metrics`
    finite: NDArray[np.bool_]  # [K], False: weights or scores had a NaN or an infinity
    frames: int  # steps really played
    lane_slots: int  # lanes of the kernel computed for them; frames / lane_slots is the lane utilisation
    actions: tuple[NDArray[np.generic], ...] | None = None  # K * E arrays in order, only if asked
    transitions: Transitions | None = None  # only if asked
    envs: EnvStates | None = None  # where a segment ends
    unasked: int = 0  # of the frames, moves of baselines, about which no network was asked

    @property
    def forward_passes(self) -> int:
        """Return the observations that a network was asked about: one a step, and those that bootstrap a return."""
        return self.frames - self.unasked + (0 if self.transitions is None else len(self.transitions.next_outputs))


def unit_of(returns: NDArray[Any]) -> float:
    """Return what a return of 1 is in an array: 1000 thousandths of a game, which are whole numbers, else 1."""
    return 1000.0 if returns.dtype.kind == "i" else 1.0


def worst_of(returns: NDArray[Any]) -> Any:
    """Return the value that stands for a return that is not finite."""
    return WORST if returns.dtype.kind == "i" else -np.inf


def summed(returns: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of rows, added in order; `worst_of` where one is not finite.  # [N, E] -> [N]"""
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.cumsum(returns, axis=1)[:, -1]
    failed = (returns == worst_of(returns)).any(axis=1) | ~np.isfinite(total)
    return np.where(failed, worst_of(returns), total)


def mean_returns(total: NDArray[Any], episodes: int) -> NDArray[np.float64]:
    """Return mean returns of sums over episodes, NaN where one was not finite.  # [M] -> [M]"""
    return np.where(total == worst_of(total), np.nan, total / (unit_of(total) * episodes))


def empty_result(candidates: int, episodes: int, episode_metrics: int, returns_type: Any = np.int64) -> dict[str, Any]:
    """Return the arrays of a result to be filled in; every return is `worst_of`."""
    return {
        "returns": np.full((candidates, episodes), worst_of(np.empty(0, returns_type)), returns_type),
        "lengths": np.zeros((candidates, episodes), np.int32),
        "episode_metrics": np.zeros((candidates, episodes, episode_metrics), np.int64),
        "finite": np.zeros(candidates, np.bool_),
    }


@dataclass(frozen=True)
class Request:
    """One round trip of an algorithm: weights to publish (or None: those last published) and tasks to play."""

    weights: NDArray[np.float32] | None  # [S, P]
    tasks: Sequence[Task]


Generation = Generator[Request, Sequence[Result], Metrics]  # asks, and is sent the results in task order


@dataclass(frozen=True)
class Finalists:
    """The networks that an algorithm offers for validation."""

    weights: NDArray[np.float32]  # [F, P]
    candidates: Sequence[int] | None = None  # their numbers in the generation's record (evolution), else None
    returns: NDArray[np.float64] | None = None  # [F] mean returns in training by which they were chosen, else None


class Algorithm(Protocol):
    """Evolution or learning, one coroutine a generation; subclass it to inherit the defaults."""

    notices: Sequence[str] = ()  # what a user should know of the results

    def generation(self, number: int) -> Generation:
        """Yield requests, receive results, and return the generation's metrics."""

    def age(self, number: int) -> int:
        """Return the number of a generation within its search, from which a curriculum counts."""
        return number

    def finalists(self, count: int) -> Finalists:
        """Return the most promising networks after a generation, at most `count`."""

    def state(self) -> Arrays:
        """Return everything that is needed to go on, by name."""

    def record(self) -> Arrays:
        """Return what the last generation did, by name."""

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from what `state` returned.

        `records` are those of every generation of the run, oldest first, read as they are asked for. There are none
        where the state is another run's (a fork); the record of the generation that a fork began with is empty.
        """

    def retrace(self, number: int, record: Arrays) -> bool:
        """Become what a recorded generation left, without playing it, as far as later candidates depend on that.

        Return whether records say enough; where they do not, nothing is changed.
        """
        return False

    def fingerprint(self) -> str:
        """Return what computes the updates, where results depend on it; empty: exact on every machine."""
        return ""

    def growth(self) -> int:
        """Return the bytes that its memory will yet grow by, as a buffer is filled."""
        return 0

    def close(self) -> None:
        """Release processes and devices."""
        return


@dataclass(frozen=True)
class Effort:
    """What playing took. An evaluator that does not measure it leaves `busy` empty."""

    seconds: float = 0.0  # wall clock
    busy: Sequence[float] = ()  # seconds of playing, by worker
    straggling: float = 0.0  # seconds in which one worker of several played and the others were idle
    replaced: int = 0  # workers that were lost
    bytes_sent: int = 0  # of tasks
    bytes_received: int = 0  # of results
    cpu_seconds: float = 0.0  # of processor time of other processes than the master


@dataclass(frozen=True)
class Spent:
    """What a run has spent."""

    frames: int = 0  # of training
    seconds: float = 0.0
    forward_passes: int = 0  # of networks, in playing and in learning
    multiply_adds: int = 0  # of these, and of backward passes, two forward passes each
    cpu_seconds: float = 0.0  # of processor time, of the master and of workers
    frames_validating: int = 0

    @classmethod
    def of(cls, metrics: Mapping[str, float]) -> Spent:
        """Return what the metrics of a generation say; 0 where they say nothing."""
        frames, passes, products = (int(metrics.get(n, 0)) for n in ("frames", "forward_passes", "multiply_adds"))
        seconds, cpu_seconds = (round(float(metrics.get(n, 0.0)), 6) for n in ("seconds", "cpu_seconds"))
        return cls(frames, seconds, passes, products, cpu_seconds, int(metrics.get("frames_validating", 0)))

    def plus(self, more: Spent) -> Spent:
        """Return the sum."""
        return Spent(*(value + getattr(more, name) for name, value in vars(self).items()))


NOTHING = Spent()


@dataclass(frozen=True)
class Played:
    """What an evaluator returns."""

    results: Sequence[Result]  # in task order
    effort: Effort = Effort()
    poisoned: Sequence[PoisonError] = ()  # candidates that were given the worst result
    notices: Sequence[str] = ()  # what a user should know
    fingerprint: str = ""  # of the arithmetic: where it differs, results may; empty: exact


class Evaluator(Protocol):
    """Plays tasks, wherever its workers are."""

    def map(self, tasks: Sequence[Task]) -> Played:
        """Play the tasks; their results stand in task order, whatever order they were played in.

        PoisonError where a task ends every worker; ResourceError where no worker can be kept alive.
        """

    def close(self) -> None:
        """Stop every worker; afterwards no process is left."""


class Player(Protocol):
    """Plays tasks in a worker; it may cache, but remembers none. Subclasses inherit defaults."""

    fingerprint: str = ""  # of the arithmetic: results of players that differ here may differ; empty: exact
    device: str = ""  # what it computes on, where it was pinned to something
    notices: Sequence[str] = ()  # what a user should know; emptied by whoever passes them on
    together: Callable[[Sequence[Any]], Sequence[Any]] | None = None  # plays tasks that wait; None: `play` does, each

    def play(self, task: Any) -> Any:
        """Return the result of a task; an evaluator's players take a `Task` and return a `Result`."""
