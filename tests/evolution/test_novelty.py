"""Novelty is the mean distance from the nearest others, each measure in its range."""

from __future__ import annotations

import numpy as np

from evo.evolution.novelty import UNIT, novelty


def test_novelty_is_as_computed_by_hand() -> None:
    behaviour = np.array([[0, 100], [4, 100], [10, 100], [10, 300]])
    # In their ranges: (0, 0), (0.4, 0), (1, 0), (1, 1).
    assert novelty(behaviour, 1).tolist() == [400_000, 400_000, 600_000, 1_000_000]
    assert novelty(behaviour, 2).tolist() == [700_000, 500_000, 800_000, 1_300_000]
    assert novelty(behaviour, 9).tolist() == [
        round(UNIT * mean) for mean in ((0.4 + 1 + 2) / 3, (0.4 + 0.6 + 1.6) / 3, (1 + 0.6 + 1) / 3, (2 + 1.6 + 1) / 3)
    ]


def test_who_is_alone_or_like_all_others_is_not_novel() -> None:
    assert novelty(np.empty((0, 2), np.int64), 3).tolist() == []
    assert novelty(np.array([[5, 7]]), 3).tolist() == [0]
    assert novelty(np.full((6, 2), 8), 3).tolist() == [0] * 6


def test_many_candidates_are_compared_in_parts_with_the_same_result() -> None:
    behaviour = np.random.default_rng(1).integers(0, 1000, (700, 2))
    found = novelty(behaviour, 4)
    places = (behaviour - behaviour.min(0)) / np.ptp(behaviour, axis=0)
    for k in (0, 255, 256, 699):
        nearest = np.sort(np.abs(places - places[k]).sum(axis=1))[1:5]
        assert abs(found[k] - UNIT * nearest.mean()) < 1
