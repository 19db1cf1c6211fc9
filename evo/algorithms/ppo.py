"""Proximal policy optimisation: a clipped policy gradient, one or more epochs per rollout (Schulman et al., 2017).

A generation, in the order of its calls:

    play `horizon` steps in each of `envs` environments      GradientAlgorithm.generation -> Transitions, M = E T rows
    advantages and returns of the rollout (GAE)              PPO.learn -> evo.learning.returns.generalised_advantages
    for every epoch, for every shuffled minibatch:           evo.learning.returns.minibatches
        loss of each example, its mean, its gradient         PPOLoss
        clip the gradient's norm, one step of Adam           Learner.update

`evo.learning.gradient_algorithm` is the loop around it, `evo.learning.actor_critic` the network's two heads. TensorFlow
differentiates `PPOLoss` on GPUs; on CPUs its derivative is written out in `evo.learning.exact.losses`, with the same
bits on every machine, and tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from evo import clock
from evo.lazy import tf
from evo.learning import hyperparameters as hp
from evo.learning.actor_critic import ActorCritic, ActorCriticOptions, NormaliseAdvantages, policy_and_value
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, ShouldStop
from evo.learning.learner import PolicyLoss, UpdateMeans
from evo.learning.returns import explained_variance, generalised_advantages, minibatches, standardised
from evo.records import Metrics


class Options(ActorCriticOptions):
    """The [ppo] section.

    `ActorCriticOptions` has learning_rate 1e-3, gamma 0.99, entropy_coefficient 0.01, and the schedules of the three;
    value_coefficient 0.5 and max_gradient_norm 0.5.
    """

    remembers: ClassVar[bool] = True

    envs: hp.Envs = 128
    horizon: hp.Horizon = 64
    whole_episodes: hp.WholeEpisodes = False
    gae_lambda: hp.GaeLambda = 0.95
    normalise_advantages: NormaliseAdvantages = True
    clip_range: float = Field(0.2, gt=0, le=10, description="clip range epsilon of the probability ratio")
    value_clip_range: float = Field(0.0, ge=0, description="clip range of the value function; 0 = no clipping")
    epochs: int = Field(3, ge=1, le=1000, description="passes over the transitions of a generation")
    minibatches: int = Field(8, ge=1, le=65536, description="minibatches per epoch")
    target_kl: float = Field(
        0.0, ge=0, description="stop a generation's updates above this approximate KL divergence; 0 = never"
    )
    bptt: hp.Bptt = 0
    burn_in: hp.BurnIn = 0

    def _check(self) -> None:
        if self.minibatches > self.envs * self.horizon:
            transitions = self.envs * self.horizon
            raise ValueError(f"minibatches: {self.minibatches}, more than {transitions} transitions (envs * horizon)")


@dataclass(frozen=True)
class PPOLoss(PolicyLoss):
    """The loss of each example, in TensorFlow; `evo.learning.exact.losses` has the same with its derivatives."""

    clipped: ClassVar[bool] = True  # read by the exact learner: the clipped surrogate, not log probability * advantage

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss" and its parts, [B] each; the learner takes the mean over [B].

        outputs [B, O] of the network that learns. The batch: "actions" [B] or [B, D], "action_masks" [B, A] if any;
        "log_probabilities" and "values" [B] of the policy that acted; "advantages" and "returns" [B].
        """
        # log pi(a_t | s_t), H(pi(. | s_t)) and V(s_t), all [B]; action masks are applied inside.
        log_probability, entropy, value = policy_and_value(self, outputs, batch)
        old_log_probability = batch["log_probabilities"]
        old_value = batch["values"]
        advantage = batch["advantages"]
        returns = batch["returns"]

        epsilon = settings["clip_range"]
        log_ratio = log_probability - old_log_probability
        ratio = tf.exp(log_ratio)  # r_t = pi(a_t | s_t) / pi_old(a_t | s_t)
        clipped_ratio = tf.clip_by_value(ratio, 1.0 - epsilon, 1.0 + epsilon)
        policy_loss = -tf.minimum(ratio * advantage, clipped_ratio * advantage)  # -L^CLIP (equation 7)

        limit = settings["value_clip_range"]  # 0: no clipping
        squared_error = tf.square(value - returns)  # L^VF (equation 9)
        clipped_value = old_value + tf.clip_by_value(value - old_value, -limit, limit)
        clipped_error = tf.square(clipped_value - returns)
        larger_error = tf.maximum(squared_error, clipped_error)
        value_loss = 0.5 * tf.where(limit > 0.0, larger_error, squared_error)  # halved, which equation 9 does not

        c_1 = settings["value_coefficient"]
        c_2 = settings["entropy_coefficient"]
        return {
            "loss": policy_loss + c_1 * value_loss - c_2 * entropy,  # -L^(CLIP+VF+S) (equation 9)
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": ratio - 1.0 - log_ratio,  # estimate of KL(pi_old, pi): http://joschu.net/blog/kl-approx.html
            "clip_fraction": tf.cast(tf.abs(ratio - 1.0) > epsilon, tf.float32),
        }


class PPO(ActorCritic):
    """Advantages of a rollout, then epochs of minibatch updates."""

    loss_class = PPOLoss

    def learn(self, played: Collected | None, generation: int, frames: int, should_stop: ShouldStop) -> Metrics:
        """Make the updates of every epoch from one rollout; return their means as metrics.

        `frames` were played, those of `played` included. Schedules are evaluated at the frame where these began.
        """
        assert played is not None  # None only for methods that learn from a replay buffer
        options = self.options
        began = clock.wall()
        transitions = played.transitions  # [M] each: env 0 steps 0..T-1, env 1 steps 0..T-1, ...
        start = frames - len(transitions)

        observations = self.inputs(played, start)  # normalised, if asked for; this also updates the normaliser
        acted = self.acted(transitions)  # recorded when played: "actions", "log_probabilities", "values", masks
        values = acted["values"]  # [M] V(s_t)

        # GAE (Schulman et al., 2016), backwards in time:
        #     delta_t = r_t + gamma V(s_t+1) - V(s_t)
        #     A_t     = delta_t + gamma lambda A_t+1
        # `ends` [M]: A_t+1 is 0 after an episode or a segment; a terminated one has V(s_t+1) = 0, while a truncated
        # episode and the last step of a segment take V(s_t+1) from `next_values` [N], one for each such end.
        advantages = generalised_advantages(
            self.rewards(played),
            transitions.ends,
            values,
            next_values=transitions.next_outputs[:, -1],  # [N] the value is the network's last output
            gamma=hp.scheduled(options, "gamma", start),
            gae_lambda=options.gae_lambda,
        )
        returns = advantages + values  # TD(lambda) targets of the value
        if options.normalise_advantages:  # over the whole rollout, not per minibatch
            advantages = standardised(advantages)
        self.learner.load({"observations": observations, **acted, "returns": returns, "advantages": advantages})
        seconds_moving = clock.wall() - began  # preparing data, as opposed to updates

        learning_rate = hp.scheduled(options, "learning_rate", start)
        settings = {  # the loss's scalars of this update; `options` are the section's, before schedules
            "entropy_coefficient": hp.scheduled(options, "entropy_coefficient", start),
            "value_coefficient": options.value_coefficient,
            "clip_range": options.clip_range,
            "value_clip_range": options.value_clip_range,
        }
        means = UpdateMeans("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
        # The learner may have several updates in flight (`staleness`), so it takes the batches of all epochs at once.
        seed, count = self.setup.seed, len(transitions)
        steps = self.steps  # consecutive transitions that are learned from together; 1 without memory
        epochs = range(options.epochs)
        parts = (minibatches(seed, generation, epoch, count, options.minibatches, steps) for epoch in epochs)
        batches = chain.from_iterable(parts)  # [B] row numbers each, with memory those of whole pieces
        for found in self.learner.updates_on(batches, learning_rate, settings):
            means.add(found)
            if should_stop():  # the run ends while this learns in the background
                break
            # Looked at after every minibatch, so it may end inside an epoch (CleanRL: after the epoch).
            if 0 < options.target_kl < float(found["approx_kl"].mean(dtype=np.float64)):
                break
        return {
            **means.metrics(),
            "explained_variance": explained_variance(values, returns),
            "learning_rate": learning_rate,
            "seconds_moving": seconds_moving,
        }


make = partial(GradientAlgorithm, method=PPO)
