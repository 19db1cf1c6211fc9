"""What methods that learn from a replay buffer share: the buffer, the updates that are due, and its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evo.learning.gradient_algorithm import GradientMethod
from evo.learning.hyperparameters import value_at
from evo.learning.replay_buffer import GAMMA, ReplayBuffer
from evo.records import Arrays, EnvStates, Transitions
from evo.setup import Setup


class OffPolicyMethod(GradientMethod):
    """A method whose updates are of samples of a replay buffer."""

    replays: ClassVar[bool] = True  # `learn` samples the buffer: it is given no transitions

    def __init__(self, options: Any, setup: Setup, priority_exponent: float = 0.0) -> None:
        """Begin with an empty replay buffer, which with `priority_exponent` 0 is sampled uniformly.

        Of the algorithm's options are read: gamma, gamma_points, n_step, replay_size, learning_starts,
        frames_per_update, max_gradient_norm.
        """
        super().__init__(setup, options.max_gradient_norm)
        self._replay = options
        self.buffer = ReplayBuffer(options.replay_size, options.n_step, options.gamma, priority_exponent)
        self._owed = 0  # frames played that no update was made for yet

    @property
    def begun(self) -> bool:
        """Whether the buffer has enough transitions to learn from."""
        return len(self.buffer) >= int(self._replay.learning_starts)

    def updates_due(self) -> range:
        """Return the numbers of the updates to be made for the frames played."""
        updates, self._owed = divmod(self._owed, self._replay.frames_per_update)
        return range(updates)

    def receive(
        self, transitions: Transitions, before: EnvStates | None, frames: int, seeds: NDArray[np.uint64] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Add what was played, the last of `frames`, to the replay buffer; return the record to fill it from again.

        `before` are the environments' states where segments began; `seeds` [E] those of whole episodes, if known.
        """
        points = self._replay.gamma_points
        self.buffer.gamma = value_at(points, frames) if points else self._replay.gamma
        if self.setup.environment.game is None:  # it cannot be played again without its environments
            before = seeds = None
        record = self.buffer.add(transitions, before, seeds)
        if self.begun:
            self._owed += len(transitions)
        return {**record, GAMMA: np.array([self.buffer.gamma])} if points else record

    def growth(self) -> int:
        """Return the bytes of the replay buffer that are not filled yet."""
        return self.buffer.unfilled

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learner's state, frames without an update, and what replaying the records cannot rebuild."""
        return {**super().state(), "owed": np.array([self._owed], np.int64), **self.buffer.state()}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Restore the learner, and the replay buffer by playing recorded actions again; a fork begins with none."""
        super().restore(state, records)
        if records:
            self._owed = int(np.asarray(state["owed"])[0])
            self.buffer.restore(state, self.setup.environment_in, records)
        else:
            self._owed = 0
            self.buffer.clear()
