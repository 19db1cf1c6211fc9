"""Deep Q-learning from a replay buffer, towards a target network (Mnih et al., 2015).

Double (van Hasselt et al., 2016), dueling heads (Wang et al., 2016), n-step returns and prioritised replay (Schaul et
al., 2016). Updates are made in proportion to the frames played.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo import clock
from evo.learning.collecting import envs_to_arrays
from evo.learning.method import Method, Played, Stopped
from evo.learning.observations import observed
from evo.learning.q_learning import ActionValueOptions, UpdateMeans
from evo.learning.schedules import GammaPoints, annealed, value_at
from evo.randomness.streams import Purpose, stream
from evo.records import Arrays, EnvStates, Metrics, Transitions
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import Learner
    from evo.learning.losses import QLoss
    from evo.learning.replay_buffer import Sample


class ReplayOptions(ActionValueOptions):
    """Options of deep Q-learning from a replay buffer."""

    replays: ClassVar[bool] = True

    gamma_points: GammaPoints = Field(default_factory=list)
    replay_size: int = Field(500_000, ge=1, le=1 << 30, description="capacity of the replay buffer, in transitions")
    learning_starts: int = Field(20_000, ge=1, description="transitions in the replay buffer before the first update")
    frames_per_update: int = Field(64, ge=1, description="frames played per update")
    batch_size: int = Field(512, ge=1, le=1 << 20, description="transitions per update")
    n_step: int = Field(3, ge=1, le=1000, description="steps of n-step returns")
    double: bool = Field(
        True, description="double Q-learning: the online network chooses the action that the target network values"
    )
    target_tau: float = Field(
        0.005, ge=0, le=1, description="soft update coefficient (Polyak) of the target network; 0 = never"
    )
    target_every: int = Field(
        0, ge=0, description="updates between copies to the target network; 0 = soft updates by target_tau"
    )
    prioritized: bool = Field(True, description="prioritised replay, by TD error; false = uniform")
    priority_exponent: float = Field(0.6, gt=0, le=2, description="exponent alpha of priorities")
    importance_exponent: float = Field(0.4, ge=0, le=1, description="initial importance-sampling exponent beta")
    importance_exponent_frames: int = Field(
        5_000_000, ge=0, description="frames over which beta is annealed to 1; 0 = constant"
    )

    def gamma_at(self, frames: int) -> float:
        """Return the discount factor of what is played after so many frames."""
        return value_at(self.gamma_points, frames) if self.gamma_points else self.gamma

    def probing(self) -> Self:
        """Return the options for a probe, in which the first update is due at once."""
        return super().probing().model_copy(update={"learning_starts": 1})

    @model_validator(mode="after")
    def _can_learn(self) -> Self:
        if self.learning_starts > self.replay_size:
            raise ValueError(f"learning_starts: {self.learning_starts} of a replay_size of {self.replay_size}")
        if not self.target_every and not self.target_tau:
            raise ValueError("target_tau: 0 never changes the target; give it, or target_every")
        return self


class DQN(Method):
    """Updates on samples of the replay buffer, towards a target network."""

    heads: ClassVar[str] = "q"
    replays: ClassVar[bool] = True

    def __init__(self, options: ReplayOptions, setup: Setup, dueling: bool = False) -> None:
        """Begin with an empty replay buffer; `dueling` says what the network's outputs mean."""
        from evo.learning.replay_buffer import ReplayBuffer

        self.options, self.setup, self._dueling = options, setup, dueling
        self.passes = 3 if options.double else 2  # of `following` too: by the target network, and with `double` its own
        self._symmetry = options.symmetry_of(setup.environment)
        exponent = options.priority_exponent if options.prioritized else 0.0
        self.buffer = ReplayBuffer(options.replay_size, options.n_step, options.gamma, exponent)
        self._owed = 0  # frames played that no update was made for yet

    def loss(self) -> QLoss:
        """Return the loss against the target network."""
        from evo.learning.losses import QLoss

        options = self.options
        return QLoss(self.setup.network.actions, self._dueling, options.huber_delta, options.double)

    def receive(self, transitions: Transitions, before: EnvStates | None, frames: int) -> dict[str, NDArray[Any]]:
        """Add transitions to the replay buffer; return the record from which it can be filled again."""
        from evo.learning.replay_buffer import BEGIN, record_of

        begins = before is not None and not self.buffer.written
        record = envs_to_arrays(before, BEGIN) if before is not None and begins else {}
        return {**record, **record_of(transitions, before), **self._add(transitions, frames)}

    def receive_episodes(
        self, transitions: Transitions, seeds: NDArray[np.uint64], frames: int
    ) -> dict[str, NDArray[Any]]:
        """Add whole episodes, one a seed [E], as `receive` adds what one network has played."""
        from evo.learning.replay_buffer import record_of, record_of_episodes

        known = self.setup.environment.game is not None
        record = record_of_episodes(transitions, seeds) if known else record_of(transitions, None)
        return {**record, **self._add(transitions, frames)}

    def _add(self, transitions: Transitions, frames: int) -> dict[str, NDArray[Any]]:
        """Add transitions, the last of so many frames, and return the record of their discount, where it changes."""
        from evo.learning.replay_buffer import GAMMA

        self.buffer.gamma = self.options.gamma_at(frames)
        self.buffer.add(transitions)
        if len(self.buffer) >= self.options.learning_starts:
            self._owed += len(transitions)
        return {GAMMA: np.array([self.buffer.gamma])} if self.options.gamma_points else {}

    def learn(self, learner: Learner, played: Played | None, number: int, frames: int, stopped: Stopped) -> Metrics:
        """Make the updates that are due for the frames played."""
        options, seed, target = self.options, self.setup.seed, learner.target
        assert target is not None
        due, self._owed = divmod(self._owed, options.frames_per_update)
        exponent = annealed(options.importance_exponent, 1.0, options.importance_exponent_frames, frames)
        rate, means, moving = options.learning_rate_at(frames), UpdateMeans(), 0.0
        rows = np.arange(options.batch_size, dtype=np.int32)
        for update in range(due):
            if stopped():
                break
            began = clock.wall()
            sample = self.buffer.sample(stream(seed, Purpose.REPLAY, number, update), options.batch_size)
            learner.load(self.examples(sample, exponent, stream(seed, Purpose.MIRROR, number, update)))
            moving += clock.wall() - began
            values = learner.update(rows, rate, {})
            self.buffer.update_priorities(sample.slots, values["td_error"])
            target.follow(options.target_tau, options.target_every)
            means.add(values)
        filled = float(len(self.buffer))
        return {**means.metrics(), "learning_rate": rate, "replay_size": filled, "seconds_moving": moving}

    def examples(self, sample: Sample, exponent: float, key: int) -> dict[str, NDArray[Any]]:
        """Return the arrays that the loss needs of a sample, under random symmetries."""
        environment, symmetry = self.setup.environment, self._symmetry
        observations, following = (observed(environment, rows) for rows in (sample.observations, sample.following))
        actions, allowed = sample.actions, sample.action_masks
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
            "importance": self.buffer.importance_weights(sample.probabilities, exponent),
        }

    def growth(self) -> int:
        """Return the bytes of the replay buffer that are not filled yet."""
        return self.buffer.unfilled

    def state(self) -> dict[str, NDArray[Any]]:
        """Return frames without an update, and of the replay buffer what recorded actions do not give."""
        return {"owed": np.array([self._owed], np.int64), **self.buffer.state()}

    def restore(self, state: Arrays, records: Sequence[Arrays] | None) -> None:
        """Restore the replay buffer by playing the recorded actions again; a fork begins with an empty one."""
        if records is None:
            self._owed = 0
            self.buffer.clear()
        else:
            self._owed = int(np.asarray(state["owed"])[0])
            self.buffer.restore(state, self.setup.environment_in, records)
