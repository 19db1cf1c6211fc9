"""Test episodes as the trainer's player plays them, for a page to be compared with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import Episodes, Evaluator, Task, WeightSource
from evo.training.quarantine import show

EPISODES_PER_TASK = 16  # all outputs of a task's episodes are in memory at once
MASK32 = 0xFFFFFFFF
START, PRIME, SHIFT = 2166136261, 16777619, 15


class Recorded(NamedTuple):
    """What became of test episodes, in their order."""

    scores: list[int]
    steps: list[int]
    checksums: list[int]  # of every output of the network at every step


def record(published: str, evaluator: Evaluator, score_metric: int, first: int, episodes: int) -> Recorded:
    """Return what becomes of `episodes` test episodes from number `first` on, played greedily.

    `score_metric` is the place of the score among the metrics of an episode. DataError: outputs that are not finite.
    """
    seeds = seeds_of_test_episodes(episodes, first)
    source = WeightSource.of_row(published=published)
    recorded = Recorded([], [], [])
    for start in range(0, episodes, EPISODES_PER_TASK):
        part = Episodes(seeds[start : start + EPISODES_PER_TASK])
        played = evaluator.map([Task(source, part, record_transitions=True, evaluation=True)])
        show(played.notices)
        for poison in played.poisoned:
            raise poison
        (result,) = played.results
        if not result.finite[0] or result.transitions is None:
            raise DataError("the champion cannot be tested: its outputs are not finite")
        lengths = result.lengths[0]
        outputs = np.split(result.transitions.outputs, np.cumsum(lengths, dtype=np.int64)[:-1])
        recorded.scores.extend(int(score) for score in result.episode_metrics[0, :, score_metric])
        recorded.steps.extend(int(length) for length in lengths)
        recorded.checksums.extend(map(checksum, outputs))
    return recorded


def checksum(outputs: NDArray[np.float32]) -> int:
    """Return 32 bits that depend on every bit of the outputs of an episode.  # [T, O]

    FNV-1a over words, with a shift: without it, the highest bits of two words could cancel, so two wrong signs.
    """
    total = START
    for word in np.ascontiguousarray(outputs, "<f4").view("<u4").ravel().tolist():
        total = ((total ^ word) * PRIME) & MASK32
        total ^= total >> SHIFT
    return total
