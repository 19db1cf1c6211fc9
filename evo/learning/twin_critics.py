"""Two critics Q(s, a) with target networks, of whose values the smaller one counts; what SAC and TD3 share.

The minimum of two estimates does not overestimate values as one does (Fujimoto et al., 2018, section 4.2). A critic has
the hidden layers of the policy, the observation and the action side by side as inputs, and one output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.errors import ConfigurationError
from evo.learning import collecting
from evo.learning import hyperparameters as hp
from evo.learning.exact.learner import ExactLearner
from evo.learning.exact.squashed import normal_noise, squashed_actions
from evo.learning.exact.threads import Threads
from evo.learning.learner import ActionValueLoss, ActorLoss, Learner, Values, observed
from evo.learning.replay_buffer import OffPolicyMethod
from evo.networks.network import Network
from evo.options import AlgorithmOptions
from evo.randomness.streams import Purpose, stream
from evo.records import Arrays
from evo.setup import Setup

Floats = NDArray[np.float32]
Found = TypeVar("Found")
ACTOR_INIT_SCALE = np.float32(0.01)  # of the output layer's first weights: all actions start near 0
TARGETS, ACTOR = range(2)  # the streams of noise of an update


class ContinuousOptions(AlgorithmOptions):
    """Options of actor-critics with a replay buffer."""

    learns: ClassVar[bool] = True
    replays: ClassVar[bool] = True
    output: ClassVar[Literal["", "tanh"]] = "tanh"
    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = "segments"
    in_probe: ClassVar[Mapping[str, Any]] = {"learning_starts": 1}

    envs: hp.Envs = 4
    horizon: hp.Horizon = 64
    episodes: hp.Episodes = 4
    whole_episodes: hp.WholeEpisodes = False
    envs_per_task: hp.EnvsPerTask = 4
    asynchronous: hp.Asynchronous = False
    learning_rate: float = Field(3e-4, gt=0, le=1, description="learning rate of Adam for the actor")
    critic_learning_rate: float = Field(3e-4, gt=0, le=1, description="learning rate of Adam for the critics")
    max_gradient_norm: hp.MaxGradientNorm = 0.0
    gamma: float = Field(0.99, ge=0, le=1, description="discount factor")
    gamma_points: hp.GammaPoints = Field(default_factory=list)
    n_step: hp.NStep = 1
    replay_size: hp.ReplaySize = 1_000_000
    learning_starts: hp.LearningStarts = 5_000
    frames_per_update: hp.FramesPerUpdate = 1
    batch_size: hp.BatchSize = 256
    target_tau: float = Field(0.005, gt=0, le=1, description="soft update coefficient (Polyak) of target networks")

    def _check(self) -> None:
        hp.check_learning_starts(self.learning_starts, self.replay_size)

    def extra_outputs(self, environment: Any) -> int:
        """Return 0; ConfigurationError where actions are not numbers from -1 to 1."""
        if not environment.continuous:
            raise ConfigurationError(
                "run.algorithm: this algorithm learns continuous actions, and this environment's are choices; use "
                "ppo, dqn or pqn"
            )
        if not environment.unit_actions:
            raise ConfigurationError(
                "environment.rescale_actions: this algorithm has actions from -1 to 1, and this environment has other "
                "bounds; set rescale_actions = true, or scale them in the step of a game of your own"
            )
        return 0


class CriticLoss(ActionValueLoss):
    """Half the squared TD error of each example."""

    target_network = "kept"


class ReplayBatch(NamedTuple):
    """A sample of the replay buffer, for one update."""

    observations: Floats  # [B, I]
    actions: Floats  # [B, D]
    rewards: Floats  # [B] n-step, discounted
    discounts: Floats  # [B] gamma^n, 0 where the episode terminated
    next_observations: Floats  # [B, I] n steps later


class TwinCriticMethod(OffPolicyMethod):
    """An actor, which the loop has as its learner, and two critics."""

    heads: ClassVar[str] = "squashed_policy"
    loss_class: ClassVar[type[ActorLoss]]

    def __init__(self, options: ContinuousOptions, setup: Setup) -> None:
        """Prepare; ConfigurationError: the policy has other layers than dense ones, or TensorFlow is to learn."""
        if setup.learner is not None and not setup.learner.is_exact:
            raise ConfigurationError(
                'learner.arithmetic: this algorithm learns exactly, on the CPU; set arithmetic = "exact", without '
                "options of TensorFlow"
            )
        if setup.network.parts or any(layer.kind not in ("dense", "identity") for layer in setup.network.layers):
            raise ConfigurationError(
                'policy: critics take observation and action side by side, so layers must be dense; use kind = "mlp", '
                "without inputs"
            )
        super().__init__(options, setup)
        actor = setup.network
        self.dimensions, self._inputs = actor.actions, int(np.prod(actor.shape))
        policy = actor.options.model_copy(update={"output": ""})
        self.critic_network = Network.build(policy, (self._inputs + self.dimensions,), 1)
        self._rows = np.arange(options.batch_size, dtype=np.int32)
        self._nothing = np.zeros(options.batch_size, np.int32)  # "actions" of networks with one output
        self._critics: list[ExactLearner] = []
        self._threads = Threads(min(setup.learner_threads, 2))

    def loss(self) -> ActorLoss:
        """Return the actor's loss."""
        return self.loss_class(self.dimensions)

    @property
    def learned_network(self) -> Network:
        """The actor up to the inputs of tanh, which has the same weights."""
        network = self.setup.network
        return replace(network, layers=(*network.layers[:-1], replace(network.layers[-1], activation="")))

    def initial(self, weights: Floats) -> Floats:
        """Change initial weights so that all actions are near 0; return them.  # [P] -> [P]"""
        self.setup.network.split(weights)[-2][:] *= ACTOR_INIT_SCALE
        return weights

    @property
    def critics(self) -> list[ExactLearner]:
        """The two critics, made when they are first needed."""
        if not self._critics:
            network, setup, norm = self.critic_network, self.setup, self.options.max_gradient_norm
            threads = max(1, setup.learner_threads // 2)  # both are computed at once
            for number in (1, 2):
                critic = ExactLearner(network, threads, CriticLoss(1, False, 0.0), norm, to_inputs=True)
                critic.warm_up()
                critic.begin(weights := collecting.initial_weights(network, setup.seed, number))
                critic.set_target(weights)
                self._critics.append(critic)
        return self._critics

    @property
    def learner(self) -> Learner:
        """The actor's learner, made with the critics'."""
        learner = super().learner
        assert self.critics
        return learner

    def map_critics(self, compute: Callable[[ExactLearner], Found]) -> tuple[Found, Found]:
        """Return a function's result for each critic, computed in parallel where there are two threads."""
        found: dict[int, Found] = {}

        def of(number: int, _: object) -> None:
            found[number] = compute(self.critics[number])

        self._threads.for_each(of, range(2))
        return found[0], found[1]

    # An update, in parts ----------------------------------------------------------------------------------------------

    def batch(self, generation: int, update: int) -> ReplayBatch:
        """Sample the replay buffer."""
        sample = self.buffer.sample(stream(self.setup.seed, Purpose.REPLAY, generation, update), len(self._rows))
        before, after = (
            observed(self.setup.environment, rows).reshape(len(rows), -1)
            for rows in (sample.observations, sample.next_observations)
        )
        return ReplayBatch(before, sample.actions.astype(np.float32), sample.n_step_rewards, sample.discounts, after)

    def noise(self, generation: int, update: int, which: int) -> Floats:
        """Return standard normal numbers for an update: those of TARGETS or of ACTOR.  # [B, D]"""
        key = stream(self.setup.seed, Purpose.NOISE, generation, update, which)
        return normal_noise(key, len(self._rows), self.dimensions)

    def act(self, observations: Floats, noise: Floats, target: bool = False) -> tuple[Floats, Floats]:
        """Return actions of the actor, or of its target network, and their log probabilities.  # [B, D], [B]"""
        actor = self.learner
        assert isinstance(actor, ExactLearner)
        rows = np.arange(len(observations), dtype=np.int32)
        outputs = actor.outputs(observations, rows, actor.target if target else None)
        return squashed_actions(outputs, noise)

    def target_values(self, observations: Floats, actions: Floats) -> Floats:
        """Return the smaller one of the target networks' values.  # [B]"""
        seen = np.concatenate([observations, actions], axis=1)
        return np.minimum(*self.map_critics(lambda critic: critic.outputs(seen, self._rows, critic.target)[:, 0]))

    def update_critic(self, batch: ReplayBatch, targets: Floats, critic: ExactLearner) -> Values:
        """Move a critic towards the targets [B]; return its values."""
        seen = np.concatenate([batch.observations, batch.actions], axis=1)
        critic.load({"observations": seen, "targets": targets, "actions": self._nothing})
        return critic.update(self._rows, self.options.critic_learning_rate, {})

    def update_actor(
        self, batch: ReplayBatch, noise: Floats, values: Floats, slopes: Floats, settings: Mapping[str, float]
    ) -> Values:
        """Move the actor along the critics' derivatives `slopes` [B, D] by its actions."""
        self.learner.load({"observations": batch.observations, "noise": noise, "slopes": slopes, "values": values})
        return self.learner.update(self._rows, self.options.learning_rate, settings)

    def slopes(self, observations: Floats, actions: Floats, critic: ExactLearner) -> tuple[Floats, Floats]:
        """Return a critic's values of actions, and their derivatives by these.  # [B], [B, D]"""
        values, slopes = critic.slopes(np.concatenate([observations, actions], axis=1))
        return values, np.ascontiguousarray(slopes[:, self._inputs :])

    def move_targets(self, *learners: ExactLearner) -> None:
        """Move target networks by `target_tau` towards their networks."""
        for learner in learners:
            learner.update_target(self.options.target_tau, 0)

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the actor, the replay buffer, and both critics with their target networks."""
        state = super().state()
        for number, critic in enumerate(self.critics, 1):
            arrays = {**critic.state(), "target": critic.target_weights()}
            state |= {f"critic_{number}_{name}": np.asarray(array) for name, array in arrays.items()}
        return state

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Restore what `state` returned; a fork begins with an empty replay buffer."""
        super().restore(state, records)
        for number, critic in enumerate(self.critics, 1):
            prefix = f"critic_{number}_"
            arrays = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
            critic.restore(arrays)
            critic.set_target(np.asarray(arrays["target"], np.float32))

    def close(self) -> None:
        """End the threads of actor and critics."""
        super().close()
        self._threads.close()
        for critic in self._critics:
            critic.close()
