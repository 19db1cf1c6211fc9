"""Twin delayed DDPG (TD3): deep deterministic policy gradients with two critics (Fujimoto et al., 2018).

A generation, in the order of its calls:

    play `horizon` steps in each of `envs` environments      GradientAlgorithm.generation -> Transitions
    add them to the replay buffer                            OffPolicyMethod.receive -> evo.learning.replay_buffer
    for every `frames_per_update` frames played:             TD3.learn
        sample a batch; targets of the critics               TD3.targets
        one step of Adam of both critics                     TwinCriticMethod.update_critic
        in every `policy_delay`-th update:
            one step of Adam of the actor                    TD3Loss, TwinCriticMethod.update_actor
            move all target networks                         TwinCriticMethod.move_targets

`evo.learning.twin_critics` has the critics, `evo.learning.replay_buffer` the buffer, `evo.learning.exact.squashed`
the derivative of the loss. Algorithm and equations are numbered as in the paper.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
from pydantic import Field

from evo import clock
from evo.learning.exact.learner import ExactLearner
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, ShouldStop
from evo.learning.learner import ActorLoss, UpdateMeans
from evo.learning.twin_critics import TARGETS, ContinuousOptions, Floats, ReplayBatch, TwinCriticMethod
from evo.records import ActionRule, Metrics


class Options(ContinuousOptions):
    """The [td3] section.

    `ContinuousOptions` has the replay buffer, the learning rates of actor and critics (3e-4), gamma 0.99 and
    target_tau 0.005.
    """

    exploration_noise: float = Field(
        0.1, ge=0, le=10, description="standard deviation of the noise on training actions, which are from -1 to 1"
    )
    target_noise: float = Field(0.2, ge=0, le=10, description="standard deviation of the noise on target actions")
    target_noise_clip: float = Field(0.5, ge=0, le=10, description="limit of the noise on target actions")
    policy_delay: int = Field(2, ge=1, le=1000, description="updates of the critics per update of the actor")


class TD3Loss(ActorLoss):
    """-Q1(s, tanh(m)): its derivative, the deterministic policy gradient (algorithm 1), is in `exact.squashed`."""

    target_network = "kept"


class TD3(TwinCriticMethod):
    """Updates of critics, and less often of actor and target networks, on samples of the replay buffer."""

    heads: ClassVar[str] = "deterministic_policy"
    loss_class = TD3Loss
    passes = 6  # of an example: target actor, two target critics, two critics; in half of the updates those of an actor
    backward_passes = 3

    def action_rule(self, frames: int) -> ActionRule:
        """Return the rule that adds noise to actions, or draws any action before learning starts."""
        return ActionRule("noisy", self.options.exploration_noise) if self.begun else ActionRule("uniform")

    def learn(self, played: Collected | None, generation: int, frames: int, should_stop: ShouldStop) -> Metrics:
        """Make the updates that are due for the frames played."""
        options, moving, actor = self.options, 0.0, self.learner
        assert isinstance(actor, ExactLearner)
        critic_means, actor_means = UpdateMeans("loss", "q_value"), UpdateMeans("loss")
        critic = self.critics[0]
        no_noise = np.zeros((options.batch_size, self.dimensions), np.float32)
        for update in self.updates_due(should_stop):
            began = clock.wall()
            batch = self.batch(generation, update)
            moving += clock.wall() - began

            targets = self.targets(batch, self.noise(generation, update, TARGETS))
            critic_means.add(self.map_critics(partial(self.update_critic, batch, targets))[0])
            if critic.updates % options.policy_delay:
                continue
            actions, _ = self.act(batch.observations, no_noise)  # pi(s_t)
            q_value, slopes = self.slopes(batch.observations, actions, critic)
            actor_means.add(self.update_actor(batch, no_noise, q_value, slopes, {}))
            self.move_targets(*self.critics, actor)
        return {
            **critic_means.metrics(),
            "policy_loss": actor_means.metrics()["loss"],
            "learning_rate": options.learning_rate,
            "replay_size": float(len(self.buffer)),
            "seconds_moving": moving,
        }

    def targets(self, batch: ReplayBatch, noise: Floats) -> Floats:
        """Return r_t + gamma min Q'(s_t+1, a'), a' = clip(pi'(s_t+1) + clip(noise)) (equations 14 and 15).  # [B]"""
        limit = self.options.target_noise_clip
        smoothing = np.clip(np.float32(self.options.target_noise) * noise, -limit, limit)
        next_actions = np.clip(self.act(batch.next_observations, noise, target=True)[0] + smoothing, -1.0, 1.0)
        next_values = self.target_values(batch.next_observations, next_actions.astype(np.float32))
        return batch.rewards + batch.discounts * next_values


make = partial(GradientAlgorithm, method=TD3)
