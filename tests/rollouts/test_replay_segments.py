"""What is replayed from actions is what was played."""

from __future__ import annotations

import numpy as np
import pytest

from evo.records import ActionRule
from evo.rollouts.segments import replay_segment
from tests.rollouts.test_segment import begin, play, world


@pytest.mark.long
@pytest.mark.parametrize("mask", ["fatal", "none"])
def test_replayed_transitions_equal_those_that_were_recorded(mask: str) -> None:
    environment, network, weights = world(mask=mask)
    lanes = begin(environment, 21)
    for _ in range(2):
        result = play(environment, network, weights, lanes, ActionRule("softmax"), 30)
        assert result.transitions
        assert result.envs
        actions = result.transitions.actions.reshape(21, 30)
        steps, left = replay_segment(environment.game, lanes, actions)
        for name in (
            "observations",
            "actions",
            "rewards",
            "ends",
            "next_observations",
            "action_masks",
            "next_action_masks",
        ):
            np.testing.assert_array_equal(getattr(steps, name), getattr(result.transitions, name))
        for name in ("snapshots", "first", "episode", "returns_so_far"):
            np.testing.assert_array_equal(getattr(left, name), getattr(result.envs, name))
        lanes = result.envs
