"""Q-learning with a network: DQN from a memory of steps (Mnih et al., 2015), or PQN from fresh ones alone.

DQN is the classic one with what has proved itself since: Double (van Hasselt et al., 2016), dueling heads (Wang et al.,
2016), n steps, prioritised replay (Schaul et al., 2016). Transitions are collected in segments, and then learnt
from in as many updates as keep the average number of examples a frame; that of the classic is 8, a batch of 32 every 4
frames. PQN (Gallici et al., 2024) has neither memory nor target network: it learns Q(lambda) from each segment, in a
few epochs, and wants `policy.norm = "layer"`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from evo.errors import ConfigurationError, ResourceError
from evo.learning import collecting
from evo.learning.background import Aside, waited_for
from evo.learning.schedules import Points, annealed, check_points, epsilon_at
from evo.plugins.options import AlgorithmOptions, Setup
from evo.randomness.streams import Purpose, episode_keys, stream
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
    Transitions,
)

if TYPE_CHECKING:
    from evo.learning.options import LearnerOptions
    from evo.learning.replay_buffer import Sample

LAG = (
    "dqn.asynchronous: a generation is played with the weights from before the updates that go on meanwhile, and what "
    "it played is learned from in the next one; that lag is always one generation, so results are exact for any number "
    "of workers, but they are not those of a run without it"
)


class Options(AlgorithmOptions):
    """The [dqn] section."""

    learns: ClassVar[bool] = True
    method: Literal["dqn", "pqn"] = Field("dqn", description="from a memory, or from fresh steps alone")
    lanes: int = Field(128, ge=1, le=65536, description="episodes side by side")
    horizon: int = Field(64, ge=1, le=65536, description="steps of a generation on every lane")
    lanes_per_task: int = Field(32, ge=1, le=65536, description="lanes that are played together")
    episodes: int = Field(16, ge=1, le=65536, description="of a generation, where there are no lanes: whole ones")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of a step")
    learning_rate: float = Field(5e-4, gt=0, le=1, description="of Adam, at first")
    learning_rate_end: float = Field(1e-4, gt=0, le=1, description="and at last")
    learning_rate_frames: int = Field(0, ge=0, description="frames that it takes from one to the other; 0 = it stays")
    max_gradient_norm: float = Field(10.0, ge=0, description="longer gradients are shortened to this; 0 = never")
    batch: int = Field(512, ge=1, le=1 << 20, description="dqn: examples of an update")
    dueling: bool = Field(True, description="one output more: Q = V + A - mean(A)")
    epsilon: Points = Field(
        [[0.0, 1.0], [500_000.0, 0.02], [3_000_000.0, 0.001]],
        description="chance of any allowed action: [frames, chance], straight lines between",
    )
    symmetry: bool = Field(False, description="learn from boards that are turned or mirrored at random")
    huber: float = Field(1.0, ge=0, description="errors above it count linearly; 0 = all squared")
    replay: int = Field(500_000, ge=1, le=1 << 30, description="dqn: steps that are remembered")
    learning_starts: int = Field(20_000, ge=1, description="dqn: steps in the memory before the first update")
    frames_per_update: int = Field(64, ge=1, description="dqn: frames played for one update")
    n_step: int = Field(3, ge=1, le=1000, description="dqn: rewards before a value is trusted")
    double: bool = Field(True, description="dqn: the network chooses the action whose value the target gives")
    target_tau: float = Field(0.005, ge=0, le=1, description="dqn: how far the target follows at every update")
    target_every: int = Field(0, ge=0, description="dqn: updates between copies to the target, instead of target_tau")
    prioritized: bool = Field(True, description="dqn: learn more from what was learnt least")
    alpha: float = Field(0.6, gt=0, le=2, description="dqn: exponent of priorities")
    beta: float = Field(0.4, ge=0, le=1, description="dqn: exponent of what makes up for them, at first; at last 1")
    beta_frames: int = Field(5_000_000, ge=0, description="dqn: frames until then; 0 = it stays")
    q_lambda: float = Field(0.65, ge=0, le=1, description="pqn: lambda")
    epochs: int = Field(2, ge=1, le=1000, description="pqn: times that every step is learnt from")
    minibatches: int = Field(16, ge=1, le=1 << 20, description="pqn: updates of an epoch")
    asynchronous: bool = Field(False, description="play while learning from what was played before")

    @field_validator("epsilon")
    @classmethod
    def _points(cls, value: Points) -> Points:
        check_points(value)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        if self.method == "dqn" and self.learning_starts > self.replay:
            raise ValueError(f"learning_starts: {self.learning_starts} steps, but {self.replay} are remembered")
        if self.method == "pqn" and self.minibatches > self.lanes * self.horizon:
            raise ValueError(f"minibatches: {self.minibatches} of {self.lanes * self.horizon} steps")
        if self.method == "dqn" and not self.target_every and not self.target_tau:
            raise ValueError("target_tau: 0 never changes the target; give it, or target_every")
        return self

    def transitions_from(self, environment: Any) -> Literal["", "episodes", "segments"]:
        """Return what is played to learn from: segments where the environment has them."""
        return "segments" if hasattr(environment, "begin") else "episodes"

    def extra_outputs(self, environment: Any) -> int:
        """Return 1 for the value of dueling heads.

        ConfigurationError: actions are continuous, or there is no symmetry.
        """
        if getattr(environment, "continuous", False):
            raise ConfigurationError("run.algorithm: dqn chooses among discrete actions; use ppo, a2c or reinforce")
        if self.symmetry and not environment.symmetry:
            raise ConfigurationError("dqn.symmetry: this environment has none that is known; use false")
        return int(self.dueling)


class QLearning(Algorithm):
    """A network of action values, and the target that it is moved towards."""

    def __init__(self, options: Options, setup: Setup) -> None:
        from evo.environments.symmetry import Symmetry
        from evo.learning.replay_buffer import ReplayBuffer

        learner, start = setup.learner, setup.start
        assert learner is not None
        self.options, self.seed, self.network = options, setup.seed, setup.network
        self.environment = environment = setup.environment
        self._symmetry = Symmetry(environment.symmetry, environment.actions) if options.symmetry else None
        self._start_learner(learner, collecting.initial_weights(self.network, self.seed) if start is None else start)
        self.notices = ([LAG] if options.asynchronous else []) + learner.notices
        self._segments = options.transitions_from(environment) == "segments"
        self._remembers = options.method == "dqn"
        alpha = options.alpha if options.prioritized else 0.0
        self._replay = ReplayBuffer(options.replay, options.n_step, options.gamma, alpha)
        self._lanes: EnvStates | None = None
        self._pending: Transitions | None = None  # asynchronous, of pqn: played, and not yet learnt from
        self._frames = 0  # played to learn from; every schedule counts these
        self._owed = 0  # of them, those that no update has been made for yet
        self._record: dict[str, NDArray[Any]] = {}

    def _start_learner(self, learner: LearnerOptions, weights: NDArray[np.float32]) -> None:
        from evo.learning.distributed import make_learner
        from evo.learning.losses import QLoss, Regression

        options, actions = self.options, self.network.actions
        loss: QLoss | Regression = Regression(actions, options.dueling, options.huber)
        if options.method == "dqn":
            loss = QLoss(actions, options.dueling, options.huber, options.double)
        self._learner = make_learner(self.network, learner, loss, options.max_gradient_norm)
        self._learner.begin(weights)
        if self._learner.target is not None:
            self._target = self._learner.target
            self._target.set(weights)

    def fingerprint(self) -> str:
        """Return what computes the updates: other bits are to be expected where it differs."""
        return self._learner.fingerprint()

    def generation(self, number: int) -> Generation:
        """Play on every lane, and learn from what came of it."""
        request = Request(self._learner.weights()[None], self._tasks(number))
        aside = self._learn_aside(number)
        try:
            results = yield request
            arrived = time.monotonic()
            steps = self._received(results)
            received = time.monotonic()
            learnt: Metrics = {"seconds_moving": 0.0}
            if aside is not None:
                learnt = waited_for(aside)  # before there is more to remember, and later schedules
        except BaseException:
            if aside is not None:
                aside.abandon()
            raise
        self._frames += len(steps)
        if self._remembers:
            self._remember(steps)
        if not self.options.asynchronous:
            learnt = self._learn_again(number) if self._remembers else self._learn_once(number, steps)
        elif not self._remembers:
            self._pending = steps
        done = time.monotonic()
        learnt |= {
            "seconds_learning": done - received - learnt["seconds_moving"],
            "seconds_moving": received - arrived + learnt["seconds_moving"],
        }
        return {**self._metrics(results), **learnt}

    def finalists(self, count: int) -> Finalists:
        """Return the present network."""
        return Finalists(self._learner.weights()[None])

    def _tasks(self, number: int) -> list[Any]:
        """Return what is played to learn from, with the chance of any action that is due."""
        options = self.options
        how = ActionRule("epsilon_greedy", epsilon_at(options.epsilon, self._frames))
        self._record = {}
        if not self._segments:
            seeds = episode_keys(self.seed, Purpose.TRAINING, number, options.episodes)
            return collecting.episode_tasks(seeds, options.lanes_per_task, how, record_transitions=True)
        if self._lanes is None:
            self._lanes = collecting.begin_envs(self.environment, self.seed, number, options.lanes)
        if self._remembers and not self._replay.written:  # from here on, actions alone tell everything
            from evo.learning.replay_buffer import BEGIN

            self._record = collecting.envs_to_arrays(self._lanes, BEGIN)
        return collecting.segment_tasks(self._lanes, options.horizon, options.lanes_per_task, how)

    def _received(self, results: Sequence[Result]) -> Transitions:
        """Return the steps of all tasks, and keep where lanes left off and what the generation did."""
        if not all(result.finite.all() for result in results):
            raise ResourceError(
                "the network's outputs are not finite, so learning cannot go on; what was committed is intact: resume "
                "with a smaller learning rate or max_gradient_norm (and --fork)"
            )
        steps = collecting.joined_transitions(results)
        if self._segments:
            self._lanes = collecting.joined_envs(results)
        if self._remembers:
            from evo.learning.replay_buffer import record_of

            self._record |= record_of(steps, self._lanes)
        else:
            self._record = {
                name: np.concatenate([getattr(result, f"{name}s")[0] for result in results])
                for name in ("return", "length")
            }
        return steps

    def _remember(self, steps: Transitions) -> None:
        self._replay.add(steps)
        if len(self._replay) >= self.options.learning_starts:
            self._owed += len(steps)

    def _learn_aside(self, number: int) -> Aside[Metrics] | None:
        """Begin to learn from what was played before, if that is how, and there is any."""
        if not self.options.asynchronous:
            return None
        if self._remembers:
            return Aside(lambda stopped: self._learn_again(number, stopped))
        pending = self._pending
        return None if pending is None else Aside(lambda stopped: self._learn_once(number, pending, stopped))

    def _learn_again(self, number: int, stopped: Callable[[], bool] = lambda: False) -> Metrics:
        """Make the updates that are due on a mixture of old steps and new ones."""
        options = self.options
        updates, self._owed = divmod(self._owed, options.frames_per_update)
        beta = annealed(options.beta, 1.0, options.beta_frames, self._frames)
        everyone = np.arange(options.batch, dtype=np.int32)
        sums, moving = np.zeros(3), 0.0
        for update in range(updates):
            if stopped():
                break
            began = time.monotonic()
            sample = self._replay.sample(stream(self.seed, Purpose.REPLAY, number, update), options.batch)
            data = self._batch(sample, beta, stream(self.seed, Purpose.MIRROR, number, update))
            self._learner.load(data)
            moving += time.monotonic() - began
            values = self._learner.update(everyone, self._rate(), {})
            self._replay.update_priorities(sample.slots, values["td_error"])
            self._target.follow(options.target_tau, options.target_every)
            sums += [values[name].mean() for name in ("loss", "q_value", "gradient_norm")]
        means = sums / updates if updates else np.full(3, np.nan)
        told = dict(zip(("loss", "q_value", "gradient_norm"), means.tolist(), strict=True))
        return {**told, "updates": float(updates), "memory": float(len(self._replay)), "seconds_moving": moving}

    def _batch(self, sample: Sample, beta: float, key: int) -> dict[str, NDArray[Any]]:
        """Return what the loss needs of a sample, all of it in one of its forms."""
        observations, following = self._seen(sample.observations), self._seen(sample.following)
        actions, allowed = sample.actions, sample.action_masks
        if allowed is None:
            allowed = np.ones((len(actions), self.network.actions), np.int8)
        if self._symmetry is not None:
            forms = self._symmetry.draw(key, len(actions))
            observations, following = (self._symmetry.planes(seen, forms) for seen in (observations, following))
            actions, allowed = self._symmetry.actions(actions, forms), self._symmetry.allowed(allowed, forms)
        return {
            "observations": observations,
            "actions": actions.astype(np.int32),
            "returns": sample.returns,
            "discounts": sample.discounts,
            "following": following,
            "action_masks": allowed,
            "importance": self._replay.importance_weights(sample.probabilities, beta),
        }

    def _learn_once(self, number: int, steps: Transitions, stopped: Callable[[], bool] = lambda: False) -> Metrics:
        """Move the values of all steps towards Q(lambda), some times over, in another order each."""
        from evo.learning.returns import action_values, best_values, q_lambda_targets
        from evo.randomness.shuffle import minibatches

        options, actions = self.options, self.network.actions
        best, best_after = (
            best_values(action_values(outputs, actions, options.dueling), allowed)
            for outputs, allowed in ((steps.outputs, steps.action_masks), (steps.next_outputs, steps.next_action_masks))
        )
        targets = q_lambda_targets(steps.rewards, steps.ends, best, best_after, options.gamma, options.q_lambda)
        began = time.monotonic()
        observations = self._seen(steps.observations)
        moving, sums, updates = time.monotonic() - began, np.zeros(3), 0
        for epoch in range(options.epochs):
            if stopped():
                break
            began = time.monotonic()
            seen, done = observations, np.asarray(steps.actions, np.int8)
            if self._symmetry is not None:
                forms = self._symmetry.draw(stream(self.seed, Purpose.MIRROR, number, epoch), len(steps))
                seen, done = self._symmetry.planes(seen, forms), self._symmetry.actions(done, forms)
            if not epoch or self._symmetry is not None:
                self._learner.load({"observations": seen, "actions": done.astype(np.int32), "targets": targets})
            moving += time.monotonic() - began
            for rows in minibatches(self.seed, number, epoch, len(steps), min(options.minibatches, len(steps))):
                values = self._learner.update(rows, self._rate(), {})
                sums += [values[name].mean() for name in ("loss", "q_value", "gradient_norm")]
                updates += 1
                if stopped():
                    break
        told = dict(zip(("loss", "q_value", "gradient_norm"), (sums / max(updates, 1)).tolist(), strict=True))
        return {**told, "updates": float(updates), "seconds_moving": moving}

    def _seen(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return what the network sees of remembered rows.  # [B, S] or [B, ...] -> [B, ...] float32"""
        seen: NDArray[np.float32] = self.environment.observe(rows) if self._segments else rows
        return seen

    def _rate(self) -> float:
        options = self.options
        return annealed(options.learning_rate, options.learning_rate_end, options.learning_rate_frames, self._frames)

    def _metrics(self, played: Sequence[Result]) -> Metrics:
        returns = np.concatenate([result.returns[0] for result in played]) / 1000.0
        lengths = np.concatenate([result.lengths[0] for result in played])
        ended = len(returns) > 0
        return {
            "best": float(returns.max()) if ended else float("nan"),
            "mean": float(returns.mean()) if ended else float("nan"),
            "mean_length": float(lengths.mean()) if ended else float("nan"),
            "frames": float(sum(result.frames for result in played)),
            "slots": float(sum(result.lane_slots for result in played)),
            "epsilon": epsilon_at(self.options.epsilon, self._frames),
            "learning_rate": self._rate(),
        }

    def close(self) -> None:
        """End what computes for the learner elsewhere."""
        self._learner.close()

    def state(self) -> Arrays:
        """Return learner, target, lanes, priorities and counters; what is remembered follows from the records."""
        state: dict[str, NDArray[Any]] = {
            **self._learner.state(),
            "counters": np.array([self._frames, self._owed], np.int64),
        }
        if self._remembers:
            state |= {"target": self._target.weights(), **self._replay.state()}
        if self._lanes is not None:
            state |= collecting.envs_to_arrays(self._lanes, "lane_")
        if self._pending is not None:
            state |= collecting.transitions_to_arrays(self._pending, "pending_")
        return state

    def record(self) -> Arrays:
        """Return what the last generation did.

        Of a memory of snapshots the actions [L, T] are enough, and where lanes were when it began: all else is played
        again from them. Where there are no snapshots it is the steps. PQN has return and length of ended episodes.
        """
        return self._record

    def restore(self, state: Arrays, records: Iterable[Arrays]) -> None:
        """Continue from a state; the memory is made again by playing the actions of all records once more.

        A fork begins with an empty memory. DataError: the records do not lead to the state.
        """
        self._learner.restore(state)
        self._frames, self._owed = (int(number) for number in state["counters"])
        if self._remembers:
            self._target.set(np.asarray(state.get("target", state["weights"]), np.float32))
        if "lane_snapshots" in state:
            lanes = collecting.envs_from_arrays(state, "lane_")
            self._lanes = lanes if collecting.fit(lanes, self.environment, self.options.lanes) else None
        first = next(rest := iter(records), None)
        self._pending = None if first is None else collecting.transitions_from_arrays(state, "pending_")
        if self._remembers and "written" in state:  # not where a fork of PQN goes on with DQN
            self._replay.restore(state, self.environment, () if first is None else chain([first], rest))


def make(options: Options, setup: Setup) -> QLearning:
    """Return the algorithm, from the weights `setup.start` [P] if they are given."""
    return QLearning(options, setup)
