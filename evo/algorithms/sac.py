"""Soft actor-critic: off-policy learning of a stochastic policy with high entropy (Haarnoja et al., 2018a and b).

A generation, in the order of its calls:

    play `horizon` steps in each of `envs` environments      GradientAlgorithm.generation -> Transitions
    add them to the replay buffer                            OffPolicyMethod.receive -> evo.learning.replay_buffer
    for every `frames_per_update` frames played:             SAC.learn
        sample a batch; actions of the present policy        TwinCriticMethod.batch, act
        targets of the critics                               SAC.targets
        one step of Adam of both critics, their derivatives  TwinCriticMethod.update_critic, slopes
        move the critics' target networks                    TwinCriticMethod.move_targets
        one step of Adam of the actor                        SACLoss, TwinCriticMethod.update_actor
        one step of Adam of the temperature                  Temperature

Haarnoja et al., 2018b, "Soft actor-critic algorithms and applications", has the temperature that is learned; equations
are those of it. `evo.learning.twin_critics` has the critics, `evo.learning.replay_buffer` the buffer,
`evo.learning.exact.squashed` the derivative of the loss. Validation and test take the mean action, tanh(m).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo import clock
from evo.compiled import exact
from evo.compiled.functions import integer_power
from evo.learning.exact.learner import ExactLearner
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, ShouldStop
from evo.learning.learner import BETAS, EPSILON, ActorLoss, UpdateMeans, Values
from evo.learning.twin_critics import ACTOR, TARGETS, ContinuousOptions, Floats, ReplayBatch, TwinCriticMethod
from evo.records import ActionRule, Arrays, Metrics
from evo.setup import Setup


class Options(ContinuousOptions):
    """The [sac] section.

    `ContinuousOptions` has the replay buffer, the learning rates of actor and critics (3e-4), gamma 0.99 and
    target_tau 0.005.
    """

    temperature: float = Field(1.0, gt=0, le=1000, description="initial temperature alpha, the weight of the entropy")
    learn_temperature: bool = Field(True, description="adapt the temperature to reach target_entropy; false = constant")
    temperature_learning_rate: float = Field(3e-4, gt=0, le=1, description="learning rate of Adam for the temperature")
    target_entropy: float = Field(
        -1.0, ge=-100, le=100, description="entropy that the temperature aims at, in nats per action dimension"
    )

    def extra_outputs(self, environment: Any) -> int:
        """Return an output of the standard deviation for each dimension; ConfigurationError as ContinuousOptions."""
        return super().extra_outputs(environment) + int(environment.actions)


class SACLoss(ActorLoss):
    """J_pi, the mean of alpha log pi(a | s) - min(Q1, Q2)(s, a) (equation 9), with its derivative in `exact.squashed`.

    a = tanh(u) with u = m + sigma e (equation 8), and log pi(a | s) has the correction of the tanh (equation 21).
    """


class Temperature:
    """The weight alpha of the entropy, learned by Adam on its logarithm, in float64."""

    def __init__(self, initial: float) -> None:
        self.log, self._first, self._second, self._updates = exact.log(initial), 0.0, 0.0, 0

    @property
    def value(self) -> float:
        """The temperature alpha."""
        return exact.exp(self.log)

    def update(self, log_probabilities: Floats, target: float, learning_rate: float) -> None:
        """Make a step towards policies of the entropy `target`.

        As the authors' code, log alpha stands for alpha in J(alpha) = E[-alpha (log pi + target)] (equation 18).
        """
        gradient = -(math.fsum(log_probabilities.tolist()) / len(log_probabilities) + target)  # a sum without rounding
        self._updates += 1
        self._first += (gradient - self._first) * (1.0 - BETAS[0])
        self._second += (gradient * gradient - self._second) * (1.0 - BETAS[1])
        first, second = (
            moment / (1.0 - integer_power(beta, self._updates))
            for moment, beta in ((self._first, BETAS[0]), (self._second, BETAS[1]))
        )
        self.log -= learning_rate * first / (math.sqrt(second) + EPSILON)

    def state(self) -> NDArray[np.float64]:
        """Return the logarithm, Adam's moments, and the number of updates.  # [4]"""
        return np.array([self.log, self._first, self._second, self._updates])

    def restore(self, state: NDArray[np.float64]) -> None:
        """Take a state that `state` returned."""
        self.log, self._first, self._second = map(float, state[:3])
        self._updates = int(state[3])


class SAC(TwinCriticMethod):
    """Updates of critics, actor and temperature on samples of the replay buffer."""

    loss_class = SACLoss
    passes = 9  # of an example: of the actor three, of each critic its target's, its own and the one of slopes
    backward_passes = 4  # of both critics, of their slopes without gradients of weights, and of the actor

    def __init__(self, options: Options, setup: Setup) -> None:
        super().__init__(options, setup)
        self.temperature = Temperature(options.temperature)

    def action_rule(self, frames: int) -> ActionRule:
        """Return the rule that draws from the policy, and from all actions before learning starts."""
        return ActionRule("squashed" if self.begun else "uniform")

    def learn(self, played: Collected | None, generation: int, frames: int, should_stop: ShouldStop) -> Metrics:
        """Make the updates that are due for the frames played."""
        options, moving = self.options, 0.0
        target_entropy = options.target_entropy * self.dimensions
        critic_means, actor_means = UpdateMeans("loss", "q_value"), UpdateMeans("loss", "log_probability")
        for update in self.updates_due(should_stop):
            began = clock.wall()
            batch = self.batch(generation, update)
            moving += clock.wall() - began
            alpha = self.temperature.value

            noises = [self.noise(generation, update, which) for which in (TARGETS, ACTOR)]
            seen = np.concatenate([batch.next_observations, batch.observations])
            acted, logs = self.act(seen, np.concatenate(noises))  # a' ~ pi(. | s_t+1), and a ~ pi(. | s_t)
            count = options.batch_size

            targets = self.targets(batch, acted[:count], logs[:count], alpha)
            improved = self.map_critics(partial(self.improved, batch, targets, acted[count:]))
            (values, q_1, slopes_1), (_, q_2, slopes_2) = improved
            critic_means.add(values)
            first = q_1 <= q_2
            slopes = np.where(first[:, None], slopes_1, slopes_2)  # of min(Q1, Q2)
            q_value = np.where(first, q_1, q_2)
            actor_means.add(self.update_actor(batch, noises[1], q_value, slopes, {"temperature": alpha}))

            if options.learn_temperature:
                self.temperature.update(logs[count:], target_entropy, options.temperature_learning_rate)
        actor = actor_means.metrics()
        return {
            **critic_means.metrics(),
            "policy_loss": actor["loss"],
            "entropy": -actor["log_probability"],
            "temperature": self.temperature.value,
            "learning_rate": options.learning_rate,
            "replay_size": float(len(self.buffer)),
            "seconds_moving": moving,
        }

    def targets(self, batch: ReplayBatch, next_actions: Floats, next_logs: Floats, alpha: float) -> Floats:
        """Return r_t + gamma (min Q'(s_t+1, a') - alpha log pi(a' | s_t+1)), a' ~ pi (equations 2 and 3).  # [B]"""
        next_values = self.target_values(batch.next_observations, next_actions) - np.float32(alpha) * next_logs
        return batch.rewards + batch.discounts * next_values

    def improved(
        self, batch: ReplayBatch, targets: Floats, actions: Floats, critic: ExactLearner
    ) -> tuple[Values, Floats, Floats]:
        """Update a critic by J_Q (equation 5), and its target network; return `update_critic` and `slopes` of it."""
        values = self.update_critic(batch, targets, critic)
        self.move_targets(critic)
        return values, *self.slopes(batch.observations, actions, critic)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of actor, critics and replay buffer, and the temperature's."""
        return {**super().state(), "temperature": self.temperature.state()}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Restore what `state` returned; a fork begins with an empty replay buffer."""
        super().restore(state, records)
        self.temperature.restore(np.asarray(state["temperature"], np.float64))


make = partial(GradientAlgorithm, method=SAC)
