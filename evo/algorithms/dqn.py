"""Deep Q-learning (Mnih et al., 2015): double, dueling, with n-step returns and prioritised replay.

A generation, in the order of its calls:

    play `horizon` steps in each of `envs` environments      GradientAlgorithm.generation -> Transitions
    add them to the replay buffer                            OffPolicyMethod.receive -> evo.learning.replay_buffer
    for every `frames_per_update` frames played:             DQN.learn
        sample a batch, by priority                          ReplayBuffer.sample, DQN.examples
        loss of each example, its mean, its gradient         DQNLoss
        clip the gradient's norm, one step of Adam           Learner.update
        new priorities; move the target network              ReplayBuffer.update_priorities, Learner.update_target

The original learns from 8 examples a frame: a batch of 32 every 4 frames. `evo.learning.gradient_algorithm` is the loop
around a method, `evo.learning.replay_buffer` what methods with a replay buffer share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo import clock
from evo.lazy import tf
from evo.learning import hyperparameters as hp
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, ShouldStop
from evo.learning.learner import ActionValueLoss, UpdateMeans, observed
from evo.learning.replay_buffer import OffPolicyMethod, Sample
from evo.options import AlgorithmOptions
from evo.randomness.streams import Purpose, stream
from evo.records import ActionRule, Metrics
from evo.setup import Setup

NOT_ALLOWED = -1e30  # the value of an action that is not allowed


class ReplayOptions(AlgorithmOptions):
    """Options of learning from a replay buffer, which [erl] has too."""

    learns: ClassVar[bool] = True
    replays: ClassVar[bool] = True  # a resume fills the buffer by playing the recorded actions again
    in_probe: ClassVar[Mapping[str, Any]] = {"learning_starts": 1}  # a short probe of a run's speed updates at once

    learning_rate: hp.LearningRate = 5e-4
    learning_rate_final: hp.LearningRateFinal = 5e-5
    learning_rate_frames: hp.LearningRateFrames = 0
    max_gradient_norm: hp.MaxGradientNorm = 10.0
    gamma: float = Field(0.99, ge=0, le=1, description="discount factor")
    gamma_points: hp.GammaPoints = Field(default_factory=list)
    n_step: hp.NStep = 3
    double: bool = Field(
        True, description="double Q-learning: the online network chooses the action, the target network rates it"
    )
    huber_delta: hp.HuberDelta = 1.0
    epsilon: hp.Epsilon = hp.EPSILON
    symmetry: hp.BoardSymmetry = False
    replay_size: hp.ReplaySize = 500_000
    learning_starts: hp.LearningStarts = 20_000
    frames_per_update: hp.FramesPerUpdate = 64
    batch_size: hp.BatchSize = 512
    prioritized: bool = Field(True, description="prioritised replay, by TD error; false = uniform")
    priority_exponent: float = Field(0.6, gt=0, le=2, description="exponent alpha of priorities")
    importance_exponent: float = Field(0.4, ge=0, le=1, description="initial importance-sampling exponent beta")
    importance_exponent_frames: int = Field(
        5_000_000, ge=0, description="frames over which beta is annealed to 1; 0 = constant"
    )
    target_tau: float = Field(
        0.005, ge=0, le=1, description="soft update coefficient (Polyak) of the target network; 0 = never"
    )
    target_every: int = Field(
        0, ge=0, description="updates between copies to the target network; 0 = soft updates by target_tau"
    )

    def _check(self) -> None:
        hp.check_learning_starts(self.learning_starts, self.replay_size)
        if not self.target_every and not self.target_tau:
            raise ValueError("target_tau: 0 never changes the target; give it, or target_every")


class Options(ReplayOptions):
    """The [dqn] section."""

    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = "segments"

    envs: hp.Envs = 128
    horizon: hp.Horizon = 64
    episodes: hp.Episodes = 32
    whole_episodes: hp.WholeEpisodes = False
    envs_per_task: hp.EnvsPerTask = 64
    asynchronous: hp.Asynchronous = False
    dueling: hp.Dueling = True

    def extra_outputs(self, environment: Any) -> int:
        """Return 1 for the value of dueling heads, else 0; ConfigurationError as `check_q_learning`."""
        hp.check_q_learning(environment, self.symmetry)
        return int(self.dueling)


@dataclass(frozen=True)
class DQNLoss(ActionValueLoss):
    """The loss of each example, in TensorFlow; `evo.learning.exact.losses` has the same with its derivatives."""

    target_network = "read"

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss", "td_error" and "q_value", [B] each (Mnih et al., 2015, algorithm 1).

        The batch is of `DQN.examples`; the learner adds "next_target_outputs" and "next_online_outputs" [B, O], the
        outputs of the target and the online network on "next_observations" (s_t+n).
        """
        # `action_values` of dueling heads: Q = V + A - mean(A) (Wang et al., 2016).
        q = self.action_values(outputs)  # [B, A] Q(s_t, .)
        q_target = self.action_values(batch["next_target_outputs"])  # [B, A] Q'(s_t+n, .)
        q_online = self.action_values(batch["next_online_outputs"])  # [B, A] Q(s_t+n, .)
        # Double Q-learning: the online network chooses the action, the target network values it (van Hasselt et al.,
        # 2016, equation 4); else the target network does both.
        next_value = chosen_values(q_target, q_online if self.double else q_target, batch["next_action_masks"])  # [B]
        # r_t+1 + ... + gamma^(n-1) r_t+n, then gamma^n, which is 0 where the episode terminated within n steps (one
        # that was truncated bootstraps).
        target = tf.stop_gradient(batch["n_step_rewards"] + batch["discounts"] * next_value)
        q_value = tf.gather(q, batch["actions"], batch_dims=1)  # [B] Q(s_t, a_t)
        td_error = target - q_value
        # Huber: half the square, linear beyond `huber_delta`. Importance: (N P)^-beta / max (Schaul et al., 2016).
        loss = batch["importance_weights"] * self.huber(td_error)
        return {"loss": loss, "td_error": td_error, "q_value": q_value}


def chosen_values(values: Any, scores: Any, allowed: Any) -> Any:
    """Return the value of the allowed action with the highest of `scores`.  # all [B, A] -> [B]"""
    ranked = tf.where(allowed != 0, scores, tf.fill(tf.shape(scores), NOT_ALLOWED))
    return tf.gather(values, tf.argmax(ranked, axis=1), batch_dims=1)


class DQN(OffPolicyMethod):
    """Updates on samples of the replay buffer, towards a target network."""

    heads: ClassVar[str] = "q"  # outputs are values of actions

    def __init__(self, options: Options, setup: Setup) -> None:
        """Begin with an empty replay buffer."""
        from evo.games.symmetry import Symmetry

        alpha = options.priority_exponent if options.prioritized else 0.0
        super().__init__(options, setup, alpha)
        environment = setup.environment
        # Forward passes of an example: online(s_t), target(s_t+n), and with `double` online(s_t+n).
        self.passes = 3 if options.double else 2
        self._symmetry = Symmetry(environment.symmetry, environment.actions) if options.symmetry else None

    def loss(self) -> DQNLoss:
        """Return the loss against the target network."""
        options = self.options
        return DQNLoss(self.setup.network.actions, options.dueling, options.huber_delta, options.double)

    def action_rule(self, frames: int) -> ActionRule:
        """Return the epsilon-greedy rule at a frame of the schedule."""
        return ActionRule("epsilon_greedy", hp.value_at(self.options.epsilon, frames))

    def learn(self, played: Collected | None, generation: int, frames: int, should_stop: ShouldStop) -> Metrics:
        """Make the updates that are due for the frames played; from the replay buffer, so `played` is not used."""
        options, seed, learner = self.options, self.setup.seed, self.learner
        beta = hp.annealed(options.importance_exponent, 1.0, options.importance_exponent_frames, frames)
        learning_rate = hp.scheduled(options, "learning_rate", frames)
        batch = np.arange(options.batch_size, dtype=np.int32)  # all rows of what is loaded
        means, seconds_moving = UpdateMeans("loss", "q_value"), 0.0
        for update in self.updates_due(should_stop):
            began = clock.wall()
            sample = self.buffer.sample(stream(seed, Purpose.REPLAY, generation, update), options.batch_size)
            learner.load(self.examples(sample, beta, stream(seed, Purpose.MIRROR, generation, update)))
            seconds_moving += clock.wall() - began
            values = learner.update(batch, learning_rate, {})
            self.buffer.update_priorities(sample.slots, values["td_error"])
            # target += tau (online - target); with `target_every` a copy once in that many updates instead.
            learner.update_target(options.target_tau, options.target_every)
            means.add(values)
        return {
            **means.metrics(),
            "learning_rate": learning_rate,
            "replay_size": float(len(self.buffer)),
            "seconds_moving": seconds_moving,
        }

    def examples(self, sample: Sample, beta: float, key: int) -> dict[str, NDArray[Any]]:
        """Return the arrays that the loss needs of a sample, under random symmetries."""
        environment, symmetry = self.setup.environment, self._symmetry
        observations = observed(environment, sample.observations)  # rebuilt from the game's snapshots
        next_observations = observed(environment, sample.next_observations)
        actions, next_masks = sample.actions.astype(np.int8), sample.next_action_masks
        if next_masks is None:  # all actions are allowed
            next_masks = np.ones((len(actions), self.setup.network.actions), np.int8)
        if symmetry is not None:
            forms = symmetry.draw(key, len(actions))
            observations = symmetry.planes(observations, forms)
            next_observations = symmetry.planes(next_observations, forms)
            actions, next_masks = symmetry.actions(actions, forms), symmetry.allowed(next_masks, forms)
        return {
            "observations": observations,
            "actions": actions.astype(np.int32),
            "n_step_rewards": sample.n_step_rewards,
            "discounts": sample.discounts,
            "next_observations": next_observations,
            "next_action_masks": next_masks,
            "importance_weights": self.buffer.importance_weights(sample.probabilities, beta),
        }


make = partial(GradientAlgorithm, method=DQN)
