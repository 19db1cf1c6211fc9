"""Policy gradients: PPO (Schulman et al., 2017), A2C (Mnih et al., 2016) and REINFORCE (Williams, 1992).

One network acts by the softmax of its scores, or by a normal draw where actions are numbers, and its last output is a
value. Workers play segments of many lanes, or whole episodes, and bring every step back; the learner raises the
probability of what went better than was expected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo.errors import ResourceError
from evo.learning import collecting
from evo.learning.background import Aside, waited_for
from evo.learning.schedules import annealed
from evo.networks.network import Network
from evo.plugins.options import AlgorithmOptions, Setup
from evo.randomness.streams import Purpose, episode_keys
from evo.records import (
    ActionRule,
    Algorithm,
    Arrays,
    EnvStates,
    Finalists,
    Generation,
    Metrics,
    Request,
    Result,
    Task,
    Transitions,
)

if TYPE_CHECKING:
    from evo.learning.learner import Learner
    from evo.learning.normalisers import ObservationNormaliser

TOLD = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")  # of the loss, as metrics
LAG = (
    "pg.asynchronous: every segment is played with the weights from before the update that goes on meanwhile, which "
    "learns from the segment before; that lag is always one generation, so results are exact for any number of "
    "workers, but they are not those of a run without it"
)
TIMID = np.float32(0.01)  # of the scores' first weights: at the beginning every action is about as likely


class Options(AlgorithmOptions):
    """The [pg] section."""

    learns: ClassVar[bool] = True
    method: Literal["ppo", "a2c", "reinforce"] = Field("ppo", description="what is learned from steps")
    lanes: int = Field(512, ge=1, le=65536, description="episodes side by side")
    horizon: int = Field(64, ge=1, le=65536, description="steps of a generation on every lane")
    lanes_per_task: int = Field(64, ge=1, le=65536, description="lanes, or whole episodes, that are played together")
    episodes: int = Field(32, ge=1, le=65536, description="of a generation, where they are whole: no lanes, reinforce")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of a step, at first")
    gamma_end: float = Field(0.99, ge=0, le=1, description="and after gamma_frames")
    gamma_frames: int = Field(0, ge=0, description="frames in which it moves on a straight line; 0 = never")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="ppo, a2c: of generalised advantage estimation")
    baseline: Literal["value", "leave_one_out"] = Field("value", description="reinforce: what returns are held against")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of Adam, at first")
    learning_rate_end: float = Field(5e-5, gt=0, le=1, description="and after learning_rate_frames")
    learning_rate_frames: int = Field(0, ge=0, description="frames in which it moves on a straight line; 0 = never")
    entropy: float = Field(0.01, ge=0, le=10, description="weight of the entropy in the loss, at first")
    entropy_end: float = Field(0.0005, ge=0, le=10, description="and after entropy_frames")
    entropy_frames: int = Field(0, ge=0, description="frames in which it moves on a straight line; 0 = never")
    value_coefficient: float = Field(0.5, ge=0, le=100, description="weight of the value's error in the loss")
    max_gradient_norm: float = Field(0.5, ge=0, description="longer gradients are shortened to this; 0 = never")
    normalise_advantages: bool = Field(True, description="to mean 0, deviation 1; a2c, reinforce: better false")
    normalise_observations: bool = Field(False, description="to mean 0 and deviation 1 of all that was seen; no cnn")
    normalise_rewards: bool = Field(False, description="to deviation 1 of their discounted sums")
    epochs: int = Field(3, ge=1, le=1000, description="ppo: times that every step is learnt from")
    minibatches: int = Field(8, ge=1, le=65536, description="ppo: updates of an epoch")
    clip: float = Field(0.2, gt=0, le=10, description="ppo: how far a probability's ratio may move for profit")
    value_clip: float = Field(0.0, ge=0, description="ppo: how far a value may move for profit; 0 = any")
    target_kl: float = Field(0.0, ge=0, description="ppo: a generation's updates end above this divergence; 0 = never")
    asynchronous: bool = Field(False, description="play a segment while learning from the one before it")

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        if self.method == "ppo" and self.minibatches > self.lanes * self.horizon:
            raise ValueError(f"minibatches: {self.minibatches} of {self.lanes * self.horizon} steps")
        if self.method == "reinforce" and self.baseline == "leave_one_out" and self.episodes < 2:
            raise ValueError("episodes: leave_one_out compares at least 2")
        return self

    def transitions_from(self, environment: Any) -> Literal["", "episodes", "segments"]:
        """Return what is played to learn from: whole episodes, or segments where the environment has them."""
        return "segments" if hasattr(environment, "begin") and self.method != "reinforce" else "episodes"

    def extra_outputs(self, environment: Any) -> int:
        """Return 1 for the value, and where actions are continuous their log standard deviations."""
        return 1 + (environment.actions if getattr(environment, "continuous", False) else 0)


class PolicyGradient(Algorithm):
    """A network that acts and values, its learner, and the lanes it plays on."""

    def __init__(self, options: Options, setup: Setup) -> None:
        from evo.learning.normalisers import ObservationNormaliser, RewardNormaliser

        assert setup.learner is not None
        self.options, self.seed, self.network = options, setup.seed, setup.network
        self.environment = environment = setup.environment
        self._learner_options, self._start = setup.learner, setup.start
        self.notices = ([LAG] if options.asynchronous else []) + setup.learner.notices
        self._segments = options.transitions_from(environment) == "segments"
        self._gaussian = bool(getattr(environment, "continuous", False))
        self._choose = ActionRule("gaussian" if self._gaussian else "softmax")
        self._observations = ObservationNormaliser(setup.network) if options.normalise_observations else None
        lanes = options.lanes if self._segments else 1
        self._rewards = RewardNormaliser(options.gamma, lanes) if options.normalise_rewards else None
        self._lanes: EnvStates | None = None
        self._pending: Transitions | None = None  # asynchronous: played, and not yet learnt from
        self._frames = 0  # learnt from; every schedule counts these
        self._record: dict[str, NDArray[Any]] = {}

    @cached_property
    def learner(self) -> Learner:
        """The learner, made when it is first needed: TensorFlow takes seconds to load."""
        from evo.learning.distributed import make_learner
        from evo.learning.losses import PolicyLoss

        loss = PolicyLoss(self.network.actions, self.options.method == "ppo", self._gaussian)
        learner = make_learner(self.network, self._learner_options, loss, self.options.max_gradient_norm)
        learner.begin(first_weights(self.network, self.seed) if self._start is None else self._start)
        return learner

    def fingerprint(self) -> str:
        """Return what computes the updates: other bits are to be expected where it differs."""
        return self.learner.fingerprint()

    def generation(self, number: int) -> Generation:
        """Play on, and learn from what happened.

        Asynchronous: learn from what the generation before has played, while this one is played with the weights that
        there were before. The lag is one generation whatever the timing, so results are as exact as without it.
        """
        request = Request(self._published()[None], self._tasks(number))
        aside = self._learn_aside(number)
        try:
            played = yield request
            metrics = self._episodes(played)
            began = time.monotonic()
            steps = self._taken(played)
            taking = time.monotonic() - began
            learnt = {} if aside is None else waited_for(aside)
        except BaseException:
            if aside is not None:
                aside.abandon()
            raise
        if self.options.asynchronous:
            self._pending = steps
        else:
            learnt = self._learn(steps, number)
        metrics |= learnt
        metrics["seconds_moving"] = metrics.get("seconds_moving", 0.0) + taking
        return metrics

    def finalists(self, count: int) -> Finalists:
        """Return the present network."""
        return Finalists(self._published()[None])

    def _published(self) -> NDArray[np.float32]:
        """Return the weights that players are given.  # [P]"""
        weights = self.learner.weights()
        return weights if self._observations is None else self._observations.fold(weights)

    def _tasks(self, number: int) -> list[Task]:
        options = self.options
        if not self._segments:
            seeds = episode_keys(self.seed, Purpose.TRAINING, number, options.episodes)
            return collecting.episode_tasks(seeds, options.lanes_per_task, self._choose, record_transitions=True)
        if self._lanes is None:
            self._lanes = collecting.begin_envs(self.environment, self.seed, 0, options.lanes)
        return collecting.segment_tasks(self._lanes, options.horizon, options.lanes_per_task, self._choose)

    def _taken(self, played: Sequence[Result]) -> Transitions:
        """Return the steps of all results, and take up lanes where they were left."""
        if not all(result.finite.all() for result in played):
            raise ResourceError(
                "the network's outputs are not finite, so nothing can be learned from how it plays; what was committed "
                "is intact: resume it with a smaller pg.learning_rate (which needs --fork)"
            )
        if self._segments:
            self._lanes = collecting.joined_envs(played)
        return collecting.joined_transitions(played)

    def _learn_aside(self, number: int) -> Aside[Metrics] | None:
        pending = self._pending
        if pending is None:
            return None
        return Aside(lambda stopped: self._learn(pending, number, stopped))

    def _learn(self, steps: Transitions, number: int, stopped: Callable[[], bool] = lambda: False) -> Metrics:
        """Make the updates of a generation; return what the loss came to, and how long it took."""
        options, began = self.options, time.monotonic()
        self.learner.load(self._examples(steps))
        moved = time.monotonic()
        rate = annealed(options.learning_rate, options.learning_rate_end, options.learning_rate_frames, self._frames)
        settings = {
            "entropy_coefficient": annealed(options.entropy, options.entropy_end, options.entropy_frames, self._frames),
            "value_coefficient": 0.0 if self._without_value else options.value_coefficient,
            "clip_range": options.clip,
            "value_clip_range": options.value_clip,
        }
        sums, learnt, updates, norms = dict.fromkeys(TOLD, 0.0), 0, 0, 0.0
        for rows, values in self.learner.updates_on(self._minibatches(len(steps), number), rate, settings):
            learnt, updates, norms = learnt + len(rows), updates + 1, norms + float(values["gradient_norm"][0])
            for name in TOLD:
                sums[name] += float(values[name].sum(dtype=np.float64))
            divergence = float(values["approx_kl"].mean(dtype=np.float64))
            if stopped() or (options.method == "ppo" and options.target_kl and divergence > options.target_kl):
                break
        self._frames += len(steps)
        return {
            **{name: total / learnt for name, total in sums.items()},
            "gradient_norm": norms / updates,
            "updates": updates,
            "learning_rate": rate,
            "seconds_moving": moved - began,
            "seconds_learning": time.monotonic() - moved,
        }

    def _minibatches(self, steps: int, number: int) -> Iterator[NDArray[np.int32]]:
        from evo.randomness.shuffle import minibatches

        options = self.options
        if options.method != "ppo":
            yield np.arange(steps, dtype=np.int32)
            return
        for epoch in range(options.epochs):  # whole episodes may have fewer steps than there should be minibatches
            yield from minibatches(self.seed, number, epoch, steps, min(options.minibatches, steps))

    @property
    def _without_value(self) -> bool:
        return self.options.method == "reinforce" and self.options.baseline == "leave_one_out"

    @property
    def _gamma(self) -> float:
        return annealed(self.options.gamma, self.options.gamma_end, self.options.gamma_frames, self._frames)

    def _examples(self, steps: Transitions) -> dict[str, NDArray[Any]]:
        """Return the arrays that the loss needs, [M, ...] each, and let the normalisers see the steps."""
        from evo.learning.losses import log_probabilities
        from evo.learning.returns import generalised_advantages, leave_one_out

        options, actions = self.options, self.network.actions
        seen: NDArray[Any] = steps.observations
        if steps.observations.dtype == np.uint8:
            seen = self.environment.observe(steps.observations, self.learner.buffer((len(steps), *self.network.shape)))
        rewards = steps.rewards if self._rewards is None else self._rewards.apply(steps.rewards, steps.ends)
        values = np.ascontiguousarray(steps.outputs[:, -1])
        if self._without_value:
            advantages = leave_one_out(rewards, steps.ends, self._gamma)
        else:
            mixed = 1.0 if options.method == "reinforce" else options.gae_lambda
            after = np.ascontiguousarray(steps.next_outputs[:, -1])
            advantages = generalised_advantages(rewards, steps.ends, values, after, self._gamma, mixed)
        if self._observations is not None:
            flat = seen.reshape(len(seen), -1)
            if not self._observations.moments.count and (self._start is not None or self._frames):
                self._begin_to_normalise(self._observations, flat)
                seen = self._observations.apply(seen)
            else:
                seen = self._observations.apply(seen)
                self._observations.moments.add(flat)  # the network that acted knew nothing of these
        examples = {
            "observations": seen,
            "actions": steps.actions.astype(np.float32 if self._gaussian else np.int32),
            "values": values,
            "returns": advantages + values,
            "log_probabilities": log_probabilities(
                steps.outputs, steps.actions, steps.action_masks, actions, self._gaussian
            ),
            "advantages": standardised(advantages) if options.normalise_advantages else advantages,
        }
        if steps.action_masks is not None:
            examples["action_masks"] = steps.action_masks.astype(np.bool_)
        return examples

    def _begin_to_normalise(self, observations: ObservationNormaliser, seen: NDArray[np.float32]) -> None:
        """Keep what weights do that were learnt elsewhere, from observations as they are.  # [M, inputs]"""
        observations.moments.add(seen)
        state = self.learner.state()
        self.learner.restore({**state, "weights": observations.unfold(self.learner.weights())})

    def _episodes(self, played: Sequence[Result]) -> Metrics:
        """Note the episodes that ended, and return what they came to."""
        returns = np.concatenate([result.returns[0] for result in played])
        lengths = np.concatenate([result.lengths[0] for result in played])
        self._record = {"return": returns, "length": lengths}
        ended = len(returns) > 0
        return {
            "best": float(returns.max()) / 1000.0 if ended else float("nan"),
            "mean": float(returns.mean()) / 1000.0 if ended else float("nan"),
            "mean_length": float(lengths.mean()) if ended else float("nan"),
            "episodes": float(len(returns)),
            "frames": float(sum(result.frames for result in played)),
            "slots": float(sum(result.lane_slots for result in played)),
        }

    def close(self) -> None:
        """End what computes for the learner elsewhere."""
        if "learner" in self.__dict__:
            self.learner.close()

    def state(self) -> Arrays:
        """Return the learner's state, frames, lanes, normalisers, and steps that are not yet learnt from."""
        state: dict[str, NDArray[Any]] = {
            **self.learner.state(),
            "frames": np.array([self._frames], np.int64),
        }
        if self._lanes is not None:
            state |= collecting.envs_to_arrays(self._lanes, "lane_")
        if self._observations is not None:
            state["observation_moments"] = self._observations.moments.state()
        if self._rewards is not None:
            state |= {"reward_moments": self._rewards.moments.state(), "reward_sums": self._rewards.sums}
        if self._pending is not None:
            state |= collecting.transitions_to_arrays(self._pending, "pending_")
        return state

    def record(self) -> Arrays:
        """Return the return, in thousandths, and the length of every episode that ended in the last generation."""
        return self._record

    def restore(self, state: Arrays, records: Iterable[Arrays]) -> None:
        """Continue from a state; what a fork's options have no use for, or lack, begins anew."""
        arrays: dict[str, Any] = dict(state)
        if self._observations is None and "observation_moments" in arrays:
            from evo.learning.normalisers import ObservationNormaliser

            normaliser = ObservationNormaliser(self.network)
            normaliser.moments.restore(np.asarray(arrays["observation_moments"], np.float64))
            arrays["weights"] = normaliser.fold(np.asarray(arrays["weights"], np.float32))
        self.learner.restore(arrays)
        self._frames = int(arrays["frames"][0])
        if "lane_snapshots" in arrays and self._segments:
            lanes = collecting.envs_from_arrays(arrays, "lane_")
            self._lanes = lanes if collecting.fit(lanes, self.environment, self.options.lanes) else None
        if self._observations is not None and "observation_moments" in arrays:
            self._observations.moments.restore(arrays["observation_moments"])
        if self._rewards is not None and "reward_moments" in arrays:
            self._rewards.moments.restore(arrays["reward_moments"])
            goes_on = self._lanes is not None or not self._segments
            if goes_on and arrays["reward_sums"].shape == self._rewards.sums.shape:
                self._rewards.sums = np.array(arrays["reward_sums"], np.float64)
        forked = next(iter(records), None) is None  # steps of other boards, perhaps, or by other masks
        self._pending = None if forked else collecting.transitions_from_arrays(state, "pending_")


def standardised(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values of mean 0 and standard deviation 1.  # [M]"""
    mean, deviation = values.mean(dtype=np.float64), values.std(dtype=np.float64)
    return np.asarray((values - mean) / (deviation + 1e-8), np.float32)


def first_weights(network: Network, seed: int) -> NDArray[np.float32]:
    """Return the weights that a run begins with: every action about as likely, every value 0.  # [P]"""
    weights = collecting.initial_weights(network, seed)
    kernel = network.split(weights)[-2]  # a view
    kernel[:, : network.actions] *= TIMID
    kernel[:, network.actions :] = 0.0
    return weights


def make(options: Options, setup: Setup) -> PolicyGradient:
    """Return the algorithm; `setup.start` [P] is its first network."""
    return PolicyGradient(options, setup)
