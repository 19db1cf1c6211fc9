"""Advantage actor-critic: one update per generation, from short segments of many environments (Mnih et al., 2016).

A generation plays `horizon` steps in each of `envs` environments, and makes one update from all of their transitions:
`PolicyGradient.learn` of `evo.learning.actor_critic`, whose loss is log probability times advantage.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from evo.learning import hyperparameters as hp
from evo.learning.actor_critic import ActorCriticOptions, PolicyGradient
from evo.learning.gradient_algorithm import GradientAlgorithm
from evo.learning.returns import generalised_advantages
from evo.records import Transitions


class Options(ActorCriticOptions):
    """The [a2c] section."""

    remembers: ClassVar[bool] = True

    envs: hp.Envs = 128
    horizon: hp.Horizon = 64
    whole_episodes: hp.WholeEpisodes = False
    gae_lambda: hp.GaeLambda = 0.95
    bptt: hp.Bptt = 0
    burn_in: hp.BurnIn = 0


class A2C(PolicyGradient):
    """Generalised advantages, which segments bootstrap from the value."""

    def advantages(
        self, transitions: Transitions, rewards: NDArray[np.float32], values: NDArray[np.float32], gamma: float
    ) -> NDArray[np.float32]:
        """Return A_t = delta_t + gamma lambda A_t+1, with delta_t = r_t + gamma V(s_t+1) - V(s_t).  # all [M]"""
        next_values = transitions.next_outputs[:, -1]  # [N] of the observations after a segment's or episode's end
        return generalised_advantages(
            rewards, transitions.ends, values, next_values, gamma=gamma, gae_lambda=self.options.gae_lambda
        )


make = partial(GradientAlgorithm, method=A2C)
