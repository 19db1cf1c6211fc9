"""An episode as a network plays it: its actions, from which every position follows again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import Episodes, Task, WeightSource
from evo.training.testing import score_of

if TYPE_CHECKING:
    from evo.environments.environment import Environment
    from evo.environments.pictures import Shown
    from evo.records import Evaluator


@dataclass(frozen=True)
class Recording:
    """An episode as it was played."""

    seed: int
    actions: NDArray[Any]  # [T] int8, or [T, D] float32 where they are continuous
    score: float
    outputs: NDArray[np.float32]  # [T, O] of the network before every action; none where they were not asked for

    def facts(self) -> dict[str, object]:
        """Return what another implementation of the game and the network can be checked with, as JSON values."""
        digest = hashlib.sha256(np.ascontiguousarray(self.outputs, "<f4").tobytes()).hexdigest()
        facts = {"seed": self.seed, "steps": len(self.actions), "score": self.score, "outputs_sha256": digest}
        return {**facts, "actions": self.actions.tolist()}

    def positions(self, environment: Environment) -> list[Shown]:
        """Play the actions again by the readable rules, from the beginning to the end.

        RuntimeError where that gives another score than the compiled rules gave, which would be a bug.
        """
        shown, score = environment.replayed(self.seed, self.actions.tolist())
        if score != self.score:
            raise RuntimeError(f"the replay of episode seed {self.seed} scores {score:g}, and it scored {self.score:g}")
        return shown


def record(
    published: str, evaluator: Evaluator, episode: int, metrics: Sequence[str], *, outputs: bool = False
) -> Recording:
    """Return test episode number `episode` as the one network of a published file plays it.

    `metrics` are those of the environment's episodes. DataError: the network's outputs are not finite.
    """
    seeds = seeds_of_test_episodes(1, episode)
    source = WeightSource.of_row(published=published)
    tasks = [Task(source, Episodes(seeds), record_actions=True, evaluation=True)]
    if outputs:
        tasks.append(Task(source, Episodes(seeds), record_transitions=True, evaluation=True))
    results = evaluator.map(tasks).results
    if not all(result.finite[0] for result in results):
        raise DataError("the champion's outputs are not finite")
    shown = np.empty((0, 0), np.float32) if results[-1].transitions is None else results[-1].transitions.outputs
    assert results[0].actions is not None
    return Recording(int(seeds[0]), results[0].actions[0], float(score_of(results[0], metrics)[0]), shown)
