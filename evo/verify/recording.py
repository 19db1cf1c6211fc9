"""An episode as a network plays it: its actions, from which every position follows again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, DataError
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import Episodes, Task, Transitions, WeightSource
from evo.training.testing import score_of

if TYPE_CHECKING:
    from evo.environment import Environment, Shown
    from evo.records import Evaluator


@dataclass(frozen=True)
class Recording:
    """An episode as it was played."""

    seed: int
    actions: NDArray[Any]  # [T] int8, or [T, D] float32 where they are continuous
    score: float
    steps: Transitions | None = None  # what was seen before each action, and the network's outputs, where asked for

    def facts(self) -> dict[str, object]:
        """Return what another implementation of the game and the network can be checked with, as JSON values."""
        outputs = b"" if self.steps is None else np.ascontiguousarray(self.steps.outputs, "<f4").tobytes()
        digest = hashlib.sha256(outputs).hexdigest()
        facts = {"seed": self.seed, "steps": len(self.actions), "score": self.score, "outputs_sha256": digest}
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
                raise RuntimeError(
                    f"the replay of episode seed {self.seed} scores {score:g}, and it scored {self.score:g}"
                )
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
    """Return test episode number `episode` as the one network of a published file plays it.

    `metrics` are those of the environment's episodes. DataError: the network's outputs are not finite.
    """
    seeds = seeds_of_test_episodes(1, episode)
    task = Task(WeightSource.of_row(published=published), Episodes(seeds), evaluation=True)
    return record_task(task, evaluator, metrics, steps=steps)


def scores_of_test(published: str, evaluator: Evaluator, episodes: int, metrics: Sequence[str]) -> NDArray[np.float64]:
    """Return what the one network of a published file scores in the first test episodes; raises as `record`.  # [E]"""
    seeds = seeds_of_test_episodes(episodes)
    task = Task(WeightSource.of_row(published=published), Episodes(seeds), evaluation=True)
    (result,) = evaluator.map([task]).results
    if not result.finite[0]:
        raise DataError("the network's outputs are not finite")
    return score_of(result, metrics)


def record_task(task: Task, evaluator: Evaluator, metrics: Sequence[str], *, steps: bool = False) -> Recording:
    """Return the one episode of a task of one candidate; raises as `record`."""
    assert isinstance(task.play, Episodes)
    (result,) = evaluator.map([replace(task, record_actions=not steps, record_transitions=steps)]).results
    if not result.finite[0]:
        raise DataError("the network's outputs are not finite")
    if steps:
        assert result.transitions is not None
        actions = result.transitions.actions
    else:
        assert result.actions is not None
        actions = result.actions[0]
    return Recording(int(task.play.seeds[0]), actions, float(score_of(result, metrics)[0]), result.transitions)
