"""Test episodes, which training never uses: what a network scores there, with 95 % intervals, and recordings of it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import inf, isnan
from numbers import Real
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evo.config.experiment import Experiment, evaluator_of
from evo.environment import Environment, Shown, per_task
from evo.environments.instances import OPEN
from evo.errors import ConfigurationError, DataError, counted, notice, notice_once
from evo.files.layout import PUBLISHED
from evo.plugins import directory
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import (
    LARGEST_FLOAT,
    ActionRule,
    Episodes,
    Evaluator,
    Result,
    Task,
    Transitions,
    WeightSource,
    mean_returns,
    summed,
    unit_of,
    worst_of,
)
from evo.statistics import mean_interval, rate_interval
from evo.store.champion import BLOCK, Score
from evo.store.checkpoints import Published
from evo.training.generation import Publish
from evo.training.validation import EPISODES_PER_TASK

GREEDY = ActionRule()
NOT_FINITE = "the champion cannot be tested: its outputs or rewards are not finite"
TYPICAL_OF = 32  # first test episodes, of which the one of median score is shown
BASELINE_SECONDS = 0.5  # of processor time that one baseline player may take, about
USUAL_SECONDS = 0.005  # of an episode of a player whose environment states none
DEADLINE_FACTOR = 4.0  # times as long as expected, on a slow machine


@dataclass(frozen=True)
class Baseline:
    """What a player that needs no learning scores on the first test episodes of a block."""

    episodes: int
    mean: float  # score of an episode
    ci95: tuple[float, float]  # 95 % interval of the mean


def measure(
    weights: NDArray[np.float32],
    publish: Publish,
    evaluator: Evaluator,
    environment: Environment,
    episodes: int,
    rule: Literal["greedy", "softmax", "gaussian", "squashed"] = "greedy",
    block: int = 0,
) -> tuple[Score, NDArray[np.float64]]:
    """Play `weights` [P] on the first test episodes of a block; return the score, and that of every episode.  # [E]

    The score of an episode is the metric of that name where there is one, else its return. Calls of a fitness function
    that are not finite, NaN in the scores, are left out with a notice. DataError: the network's outputs are not finite,
    or no call is. PoisonError: the network ends its workers.
    """
    episode_metrics, seeds = environment.episode_metrics, seeds_of_test_episodes(episodes, block * BLOCK)
    # An exact function is called once a task.
    each = episodes if environment.is_exact else per_task(environment, episodes, EPISODES_PER_TASK)
    calls = environment.problem is not None
    results = played(publish(weights[np.newaxis]), evaluator, seeds, each, ActionRule(rule), only_finite=False)
    returns = np.concatenate([result.returns for result in results], axis=1)  # [1, E]
    finite = returns[0] != worst_of(returns) if calls else np.array([result.finite[0] for result in results])
    if not (finite.any() if calls else finite.all()):
        raise DataError(NOT_FINITE)
    scores = np.concatenate([score_of(result, episode_metrics) for result in results])
    lengths = np.concatenate([result.lengths[0] for result in results])
    scored = scores
    if calls and not finite.all():
        left = f"{(~finite).sum():,} of {counted(episodes, 'test episode')}"
        notice_once(f"{left} gave no finite number, of at most 1e150: the score is of the others")
        returns, scored, scores = returns[:, finite], scores[finite], np.where(finite, scores, np.nan)
    mean, interval = mean_interval(scored.tolist(), _bounds_that_hold(environment, scored.tolist()))
    wins = win_ci95 = None
    if "won" in episode_metrics:
        won = sum(int((result.episode_metrics[0, :, episode_metrics.index("won")] > 0).sum()) for result in results)
        wins, win_ci95 = won / episodes, rate_interval(won, episodes)
    score = Score(
        episodes=episodes,
        mean=mean,
        ci95=interval,
        median=float(median(scored.tolist())),
        max=float(scored.max()),
        win_rate=wins,
        win_ci95=win_ci95,
        mean_length=int(lengths.sum(dtype=np.int64)) / episodes,
        block=block,
        mean_return=float(mean_returns(summed(returns), returns.shape[1])[0]),
    )
    return score, scores


def played(
    published: str,
    evaluator: Evaluator,
    seeds: NDArray[np.uint64],
    per_task: int = EPISODES_PER_TASK,
    rule: ActionRule = GREEDY,
    only_finite: bool = True,
    **recorded: Any,
) -> Sequence[Result]:
    """Play episodes with the one network of a published file; return a result for every `per_task` of them.

    `recorded` are fields of `Task`. DataError: outputs or rewards are not finite, where they must be. PoisonError: it
    ends its workers.
    """
    source = WeightSource.of_row(published=published)
    parts = [Episodes(seeds[first : first + per_task]) for first in range(0, len(seeds), per_task)]
    answer = evaluator.map([Task(source, part, rule, evaluation=True, **recorded) for part in parts])
    for text in answer.notices:
        notice(text)
    for poison in answer.poisoned:
        raise poison  # a score that ranks worst in training is no score here
    if only_finite and not all(result.finite[0] for result in answer.results):
        raise DataError(NOT_FINITE)
    return answer.results


def _bounds_that_hold(environment: Environment, scores: Sequence[float]) -> tuple[float, float] | None:
    """Return the bounds of scores; None, with one notice a process, where a score lies outside of them."""
    bounds = environment.score_bounds
    if bounds is None or bounds[0] <= min(scores) <= max(scores) <= bounds[1]:
        return bounds
    score = min(scores) if min(scores) < bounds[0] else max(scores)
    notice_once(
        f"score_bounds of the environment are {bounds[0]:g} to {bounds[1]:g}, but a test episode scores {score:g}; "
        "correct them: intervals are computed without them",
        bounds,
    )
    return None


def score_of(result: Result, episode_metrics: Sequence[str]) -> NDArray[np.float64]:
    """Return the score of every episode of a result's first candidate.  # [E]"""
    if "score" in episode_metrics:
        return result.episode_metrics[0, :, episode_metrics.index("score")].astype(np.float64)
    return np.asarray(result.returns[0] / unit_of(result.returns), np.float64)


def median_episode(scores: NDArray[np.float64]) -> int:
    """Return the number of the episode of median score: the lower of the two in the middle, the earlier of equals."""
    return int(scores.argsort(kind="stable")[(len(scores) - 1) // 2])


def baselines(environment: Environment, episodes: int, block: int = 0, seconds: float = inf) -> Mapping[str, Baseline]:
    """Return the test scores of players that need no learning; empty where there are none.

    A player that would take too long is left out.
    """
    found = {name: baseline(environment, name, episodes, block, seconds) for name in environment.baselines}
    OPEN.here.close()
    return {name: score for name, score in found.items() if score is not None}


@directory.kept()
def baseline(environment: Environment, name: str, episodes: int, block: int, seconds: float) -> Baseline | None:
    """Return the test score of a player that needs no learning; None where episodes would take too long, or for ever.

    None too, with a notice, where a score is beyond any limit. It plays the first test episodes of a block: as many as
    take `seconds` by `baseline_seconds`, which is the same number on every machine, and at least two, for an interval.
    Of a player that takes much longer than it should, fewer episodes count.
    """
    play, each = environment.baselines[name], environment.baseline_seconds.get(name, USUAL_SECONDS)
    if 2 * each > DEADLINE_FACTOR * seconds:
        return None
    count = episodes if seconds == inf else min(episodes, max(2, int(seconds / each)))
    played, began = list[float](), inf
    while len(played) < count and time.process_time() - began < DEADLINE_FACTOR * seconds:
        (seed,) = seeds_of_test_episodes(1, block * BLOCK + len(played)).tolist()
        score: Any = play(seed)
        if not isinstance(score, Real):
            wrong = f"the baseline {name} returned {score!r:.40}, and must return a score"
            raise ConfigurationError(f"environment.id: {wrong}")
        try:
            played.append(float(score))
        except OverflowError:  # a whole number or a fraction
            played.append(inf)
        if isnan(played[-1]):
            return None
        if abs(played[-1]) > LARGEST_FLOAT:
            far = f"it scored {played[-1]:g}, and scores go up to {LARGEST_FLOAT:g}"
            notice_once(f"the baseline {name} is left out: {far}")
            return None
        began = min(began, time.process_time())
    return Baseline(len(played), *mean_interval(played, _bounds_that_hold(environment, played)))


@contextmanager
def playing(experiment: Experiment) -> Iterator[tuple[Evaluator, Published]]:
    """Yield an evaluator, and what publishes weights for it in a temporary folder; all of it is gone afterwards."""
    with temporary() as published, closing(evaluator_of(experiment, published.directory)) as evaluator:
        yield evaluator, published


@contextmanager
def temporary() -> Iterator[Published]:
    """Yield a publisher of weights in a temporary folder."""
    with TemporaryDirectory(prefix="snake-evo-") as place:
        (Path(place) / PUBLISHED).mkdir()
        yield Published(Path(place))


@dataclass(frozen=True)
class Recording:
    """An episode as it was played."""

    seed: int
    actions: NDArray[Any]  # [T] int8, or [T, D] float32 where they are continuous; none of a fitness function
    score: float
    steps: Transitions | None = None  # what the network saw before each of its actions, and its outputs, if asked for

    def facts(self, environment: Environment) -> dict[str, object]:
        """Return what another implementation of the game and the network can be checked with, as JSON values.

        The seed is that with which the environment was reset. Without recorded steps there is no hash of outputs. A
        call of a fitness function has no steps.
        """
        seed = self.seed >> 64 - environment.seed_bits
        if environment.problem is not None:
            return {"seed": seed, "score": self.score}
        facts: dict[str, object] = {"seed": seed, "steps": len(self.actions), "score": self.score}
        if self.steps is not None and len(self.steps) == len(self.actions):
            facts["outputs_sha256"] = hashlib.sha256(self.steps.outputs.astype("<f4").tobytes()).hexdigest()
        return {**facts, "actions": self.actions.tolist()}

    def check(self, environment: Environment) -> None:
        """Play the actions again by the readable rules, and draw nothing; raises as `positions`."""
        self.positions(environment, pictures=False)

    def positions(self, environment: Environment, *, pictures: bool = True) -> list[Shown]:
        """Play the actions again by the readable rules, from the beginning to the end.

        RuntimeError where that gives another score than the compiled rules gave, which would be a bug.
        ConfigurationError where such a game is not ours.
        """
        try:
            shown, score = environment.replayed(self.seed, self.actions.tolist(), pictures=pictures)
            if score != self.score and not isnan(score):
                what = f"the replay of episode seed {self.seed} scores {score:g}, but it scored {self.score:g}"
                if environment.game is not None:
                    raise RuntimeError(what)
                notice(f"{what}: the environment does not follow its seed")
        except RuntimeError as error:
            if not environment.sources:
                raise
            raise ConfigurationError(
                f"the game in plain Python differs from the compiled one: {error}; look for an index outside of an "
                "array, or a number that does not fit into its type"
            ) from error
        return shown


def record(
    published: str, evaluator: Evaluator, episode: int, metrics: Sequence[str], *, steps: bool = False
) -> Recording:
    """Return test episode number `episode` as the one network of a published file plays it; raises as `played`.

    `metrics` are those of the environment's episodes.
    """
    seeds = seeds_of_test_episodes(1, episode)
    (result,) = played(published, evaluator, seeds, record_actions=not steps, record_transitions=steps)
    moves = result
    if result.transitions is not None and len(result.transitions) < result.lengths[0, 0]:
        (moves,) = played(published, evaluator, seeds, record_actions=True)  # of all players
    return recording_of(int(seeds[0]), result, metrics, moves)


def recording_of(seed: int, result: Result, metrics: Sequence[str], moves: Result | None = None) -> Recording:
    """Return the one episode of a result that has its actions or its transitions; `moves` has those of all players.

    A call of a fitness function has neither.
    """
    which = moves or result
    actions: NDArray[Any] = np.empty(0, np.int8)
    if which.actions is not None:
        actions = which.actions[0]
    elif which.transitions is not None:
        actions = which.transitions.actions
    return Recording(seed, actions, float(score_of(result, metrics)[0]), result.transitions)


def scores_of_test(published: str, evaluator: Evaluator, episodes: int, metrics: Sequence[str]) -> NDArray[np.float64]:
    """Return the scores of a published file's one network in the first test episodes; raises as `played`.  # [E]"""
    results = played(published, evaluator, seeds_of_test_episodes(episodes))
    return np.concatenate([score_of(result, metrics) for result in results])
