"""What is played again from actions is what was played."""

from __future__ import annotations

import numpy as np
import pytest

from evo.records import Choose
from tests.test_segment import begin, play, world


@pytest.mark.parametrize("mask", ["none", "fatal"])
def test_steps_that_are_played_again_equal_those_that_were_recorded(mask: str) -> None:
    environment, network, weights = world(mask=mask)
    lanes = begin(environment, 21)
    for _ in range(2):
        result = play(environment, network, weights, lanes, Choose("softmax"), 30)
        assert result.steps
        assert result.lanes
        actions = result.steps.actions.reshape(21, 30)
        steps, left = environment.play_again(lanes, actions)
        unseen, left_unseen = environment.play_again(lanes, actions, keep=False)
        assert unseen is None
        for name in ("observed", "actions", "rewards", "ends", "after", "allowed", "after_allowed"):
            np.testing.assert_array_equal(getattr(steps, name), getattr(result.steps, name))
        for name in ("snapshots", "first", "episode", "earned"):
            np.testing.assert_array_equal(getattr(left, name), getattr(result.lanes, name))
            np.testing.assert_array_equal(getattr(left_unseen, name), getattr(result.lanes, name))
        lanes = result.lanes
