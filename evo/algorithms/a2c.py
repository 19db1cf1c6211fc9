"""Advantage actor-critic: one update per generation, from short segments of many environments (Mnih et al., 2016).

A generation plays `horizon` steps in each of `envs` environments, and makes one update from all of their transitions:
`ActorCritic.learn` of `evo.learning.actor_critic`, whose loss is log probability times advantage.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from evo.learning import hyperparameters as hp
from evo.learning.actor_critic import ActorCritic, ActorCriticOptions
from evo.learning.gradient_algorithm import GradientAlgorithm


class Options(ActorCriticOptions):
    """The [a2c] section."""

    remembers: ClassVar[bool] = True

    envs: hp.Envs = 128
    horizon: hp.Horizon = 64
    whole_episodes: hp.WholeEpisodes = False
    gae_lambda: hp.GaeLambda = 0.95
    bptt: hp.Bptt = 0
    burn_in: hp.BurnIn = 0


make = partial(GradientAlgorithm, method=ActorCritic)
