"""Deep Q-learning (Mnih et al., 2015): double, dueling, with n-step returns and prioritised replay.

Transitions are collected in segments; then updates are made in proportion to the frames played. The original learns
from 8 examples a frame, a batch of 32 every 4 frames.
"""

from __future__ import annotations

from evo.learning.deep_q_learning import DQN, ReplayOptions
from evo.learning.gradient_algorithm import GradientAlgorithm
from evo.learning.q_learning import QOptions
from evo.setup import Setup


class Options(ReplayOptions, QOptions):
    """The [dqn] section."""


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return DQN."""
    return GradientAlgorithm(options, setup, DQN(options, setup, options.dueling))
