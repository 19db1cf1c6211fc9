"""Deep Q-learning (Mnih et al., 2015): double, dueling, with n-step returns and prioritised replay.

Transitions are collected in segments and added to a replay buffer; then updates are made in proportion to the frames
played, on samples of the buffer, towards a target network. The original learns from 8 examples a frame, a batch of 32
every 4 frames. `evo.learning.gradient_algorithm` is the loop around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo import clock
from evo.learning import hyperparameters as hp
from evo.learning.collecting import envs_to_arrays
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, GradientMethod, GradientOptions, Stopped
from evo.learning.learner import ActionValueLoss, UpdateMeans, observed
from evo.randomness.streams import Purpose, stream
from evo.records import ActionRule, Arrays, EnvStates, Metrics, Transitions
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import Learner
    from evo.learning.replay_buffer import Sample

NOT_ALLOWED = -1e30  # the value of an action that is not allowed


class Options(GradientOptions):
    """The [dqn] section."""

    replays: ClassVar[bool] = True
    in_probe: ClassVar[Mapping[str, Any]] = {"learning_starts": 1}

    learning_rate: hp.LearningRate = 5e-4
    max_gradient_norm: hp.MaxGradientNorm = 10.0
    envs: hp.Envs = 128
    horizon: hp.Horizon = 64
    gamma: hp.Gamma = 0.99
    epsilon: hp.Epsilon = hp.EPSILON
    huber_delta: hp.HuberDelta = 1.0
    symmetry: hp.BoardSymmetry = False
    dueling: hp.Dueling = True
    gamma_points: hp.GammaPoints = Field(default_factory=list)
    replay_size: hp.ReplaySize = 500_000
    learning_starts: hp.LearningStarts = 20_000
    frames_per_update: hp.FramesPerUpdate = 64
    batch_size: hp.BatchSize = 512
    n_step: hp.NSteps = 3
    double: hp.Double = True
    target_tau: hp.TargetTau = 0.005
    target_every: hp.TargetEvery = 0
    prioritized: hp.Prioritized = True
    priority_exponent: hp.PriorityExponent = 0.6
    importance_exponent: hp.ImportanceExponent = 0.4
    importance_exponent_frames: hp.ImportanceExponentFrames = 5_000_000

    @model_validator(mode="after")
    def _can_learn(self) -> Self:
        hp.check_replay(self.replay_size, self.learning_starts, self.target_every, self.target_tau)
        return self

    def extra_outputs(self, environment: Any) -> int:
        """Return 1 for the value of dueling heads, else 0; ConfigurationError as `check_q_learning`."""
        hp.check_q_learning(environment, self.symmetry)
        return int(self.dueling)


@dataclass(frozen=True)
class DQNLoss(ActionValueLoss):
    """The loss of each example, in TensorFlow; `evo.learning.exact.losses` has the same with its derivatives."""

    bootstraps: ClassVar[bool] = True

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss", "td_error" and "q_value", [B] each (Mnih et al., 2015, algorithm 1).

        The batch is of `DQN.examples`; the learner adds "target_following" and "own_following" [B, O], the outputs of
        the target and the online network on "following" (s_t+n). The second is read with `double` only.
        """
        import tensorflow as tf

        # `action_values` of dueling heads: Q = V + A - mean(A) (Wang et al., 2016).
        q = self.action_values(outputs)  # [B, A] of the observations
        q_target = self.action_values(batch["target_following"])  # [B, A] n steps later
        q_online = self.action_values(batch["own_following"])
        # Double Q-learning: the online network chooses the action, the target network values it (van Hasselt et al.,
        # 2016, equation 4); else the target network does both.
        best = following_values(q_target, q_online if self.double else q_target, batch["action_masks"])  # [B]
        # "returns" are the n-step reward sums r_t+1 + ... + gamma^(n-1) r_t+n; "discounts" are gamma^n, and 0 where the
        # episode terminated within n steps (one that was truncated bootstraps).
        targets = tf.stop_gradient(batch["returns"] + batch["discounts"] * best)
        chosen = tf.gather(q, batch["actions"], batch_dims=1)
        td_error = targets - chosen
        # Huber: half the square, linear beyond `huber_delta`. Importance: (N P)^-beta / max (Schaul et al., 2016).
        loss = batch["importance"] * self.huber(td_error)
        return {"loss": loss, "td_error": td_error, "q_value": chosen}


def following_values(values: Any, scores: Any, allowed: Any) -> Any:
    """Return the value of the allowed action with the highest of `scores`.  # all [B, A] -> [B]"""
    import tensorflow as tf

    ranked = tf.where(allowed != 0, scores, tf.fill(tf.shape(scores), NOT_ALLOWED))
    return tf.gather(values, tf.argmax(ranked, axis=1), batch_dims=1)


class DQN(GradientMethod):
    """Updates on samples of the replay buffer, towards a target network."""

    heads: ClassVar[str] = "q"
    replays: ClassVar[bool] = True

    def __init__(self, options: Options, setup: Setup) -> None:
        """Begin with an empty replay buffer."""
        from evo.games.symmetry import Symmetry
        from evo.learning.replay_buffer import ReplayBuffer

        environment = setup.environment
        self.options, self.setup = options, setup
        # Forward passes of an example: online(s_t), target(s_t+n), and with `double` online(s_t+n).
        self.passes = 3 if options.double else 2
        self._symmetry = Symmetry(environment.symmetry, environment.actions) if options.symmetry else None
        alpha = options.priority_exponent if options.prioritized else 0.0  # 0: uniform sampling
        self.buffer = ReplayBuffer(options.replay_size, options.n_step, options.gamma, alpha)
        self._owed = 0  # frames played that no update was made for yet

    def loss(self) -> DQNLoss:
        """Return the loss against the target network."""
        options = self.options
        return DQNLoss(self.setup.network.actions, options.dueling, options.huber_delta, options.double)

    def action_rule(self, frames: int) -> ActionRule:
        """Return the epsilon-greedy rule at a frame of the schedule."""
        return ActionRule("epsilon_greedy", hp.value_at(self.options.epsilon, frames))

    def receive(self, transitions: Transitions, before: EnvStates | None, frames: int) -> dict[str, NDArray[Any]]:
        """Add transitions to the replay buffer; return the record from which it can be filled again."""
        from evo.learning.replay_buffer import BEGIN, record_of

        begins = before is not None and not self.buffer.written
        record = envs_to_arrays(before, BEGIN) if before is not None and begins else {}
        discount = self._add(transitions, frames)  # to the replay buffer
        return {**record, **record_of(transitions, before), **discount}

    def receive_episodes(
        self, transitions: Transitions, seeds: NDArray[np.uint64], frames: int
    ) -> dict[str, NDArray[Any]]:
        """Add whole episodes, one a seed [E], as `receive` adds what one network has played."""
        from evo.learning.replay_buffer import record_of, record_of_episodes

        known = self.setup.environment.game is not None
        record = record_of_episodes(transitions, seeds) if known else record_of(transitions, None)
        discount = self._add(transitions, frames)  # to the replay buffer
        return {**record, **discount}

    def _add(self, transitions: Transitions, frames: int) -> dict[str, NDArray[Any]]:
        """Add transitions, the last of `frames`; return the record of their discount, where it changes."""
        from evo.learning.replay_buffer import GAMMA

        points = self.options.gamma_points
        self.buffer.gamma = hp.value_at(points, frames) if points else self.options.gamma
        self.buffer.add(transitions)
        if len(self.buffer) >= self.options.learning_starts:
            self._owed += len(transitions)
        return {GAMMA: np.array([self.buffer.gamma])} if points else {}

    def learn(self, learner: Learner, played: Collected | None, number: int, frames: int, stopped: Stopped) -> Metrics:
        """Make the updates that are due for the frames played."""
        options, seed, target = self.options, self.setup.seed, learner.target
        assert target is not None
        due, self._owed = divmod(self._owed, options.frames_per_update)
        beta = hp.annealed(options.importance_exponent, 1.0, options.importance_exponent_frames, frames)
        rate, means, moving = options.learning_rate_at(frames), UpdateMeans("loss", "q_value"), 0.0
        rows = np.arange(options.batch_size, dtype=np.int32)
        for update in range(due):
            if stopped():
                break
            began = clock.wall()
            sample = self.buffer.sample(stream(seed, Purpose.REPLAY, number, update), options.batch_size)
            learner.load(self.examples(sample, beta, stream(seed, Purpose.MIRROR, number, update)))
            moving += clock.wall() - began
            values = learner.update(rows, rate, {})
            self.buffer.update_priorities(sample.slots, values["td_error"])
            # target += tau (online - target); with `target_every` a copy once in that many updates instead.
            target.follow(options.target_tau, options.target_every)
            means.add(values)
        filled = float(len(self.buffer))
        return {**means.metrics(), "learning_rate": rate, "replay_size": filled, "seconds_moving": moving}

    def examples(self, sample: Sample, beta: float, key: int) -> dict[str, NDArray[Any]]:
        """Return the arrays that the loss needs of a sample, under random symmetries."""
        environment, symmetry = self.setup.environment, self._symmetry
        observations, following = (observed(environment, rows) for rows in (sample.observations, sample.following))
        actions, allowed = sample.actions, sample.action_masks  # masks of s_t+n
        if allowed is None:
            allowed = np.ones((len(actions), self.setup.network.actions), np.int8)
        if symmetry is not None:
            forms = symmetry.draw(key, len(actions))
            observations, following = (symmetry.planes(planes, forms) for planes in (observations, following))
            actions, allowed = symmetry.actions(actions, forms), symmetry.allowed(allowed, forms)
        return {
            "observations": observations,
            "actions": actions.astype(np.int32),
            "returns": sample.returns,
            "discounts": sample.discounts,
            "following": following,
            "action_masks": allowed,
            "importance": self.buffer.importance_weights(sample.probabilities, beta),
        }

    def growth(self) -> int:
        """Return the bytes of the replay buffer that are not filled yet."""
        return self.buffer.unfilled

    def state(self) -> dict[str, NDArray[Any]]:
        """Return frames without an update, and what replaying the recorded actions cannot rebuild."""
        return {"owed": np.array([self._owed], np.int64), **self.buffer.state()}

    def restore(self, state: Arrays, records: Sequence[Arrays] | None) -> None:
        """Restore the replay buffer by playing the recorded actions again; a fork begins with an empty one."""
        if records is None:
            self._owed = 0
            self.buffer.clear()
        else:
            self._owed = int(np.asarray(state["owed"])[0])
            self.buffer.restore(state, self.setup.environment_in, records)


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return DQN."""
    return GradientAlgorithm(options, setup, DQN(options, setup), options.envs, options.horizon)
