"""A method of learning by gradients: its options, what it adds to the loop, and the learner that makes its updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo import clock
from evo.learning.collecting import initial_weights
from evo.learning.hyperparameters import LearningRate, LearningRateFinal, LearningRateFrames, MaxGradientNorm, annealed
from evo.options import AlgorithmOptions
from evo.records import ActionRule, Arrays, EnvStates, Metrics, Transitions
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import ActionValueLoss, Learner, PolicyLoss

Stopped = Callable[[], bool]


class GradientOptions(AlgorithmOptions):
    """Options of every method that learns by gradients from what its own network has played.

    With "segments", options have `envs` and `horizon` too.
    """

    learns: ClassVar[bool] = True
    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = "segments"

    learning_rate: LearningRate = 1e-3
    learning_rate_final: LearningRateFinal = 5e-5
    learning_rate_frames: LearningRateFrames = 0
    max_gradient_norm: MaxGradientNorm = 0.5
    episodes: int = Field(
        32,
        ge=1,
        le=65536,
        description="whole episodes per generation; used instead of envs and horizon where the environment has no "
        "compiled game",
    )
    envs_per_task: int = Field(64, ge=1, le=65536, description="environments (or whole episodes) per task")
    asynchronous: bool = Field(False, description="learn while the next generation is played (policy lag of one)")

    def learning_rate_at(self, frames: int) -> float:
        """Return the learning rate after so many frames."""
        return annealed(self.learning_rate, self.learning_rate_final, self.learning_rate_frames, frames)

    def envs_in(self, environment: Any) -> int:
        """Return how many environments play side by side; 0: whole episodes are played, as without a compiled game."""
        segments = self.transitions_from == "segments" and environment.game is not None
        return int(getattr(self, "envs")) if segments else 0  # noqa: B009 (of the options that play segments)


class Played(NamedTuple):
    """What the network that learns has played."""

    transitions: Transitions
    number: int  # of the generation that they are of


class Method(Protocol):
    """What one method adds: how it acts, its loss and its updates. Subclass it to inherit the defaults."""

    heads: ClassVar[str]  # what outputs mean; a fork continues from a state of the same heads only
    replays: ClassVar[bool] = False  # it learns from a buffer of its own, not from the last generation
    passes: int = 1  # forward passes of an example: one of every network and observation that the loss asks

    def loss(self) -> PolicyLoss | ActionValueLoss:
        """Return the loss."""

    def action_rule(self, frames: int) -> ActionRule:
        """Return how actions are chosen in training, after so many frames."""

    def learn(self, learner: Learner, played: Played | None, number: int, frames: int, stopped: Stopped) -> Metrics:
        """Make a generation's updates, until `stopped`; `frames` were played, those of `played` included.

        `played` is None where the method replays. Returns metrics, with "seconds_moving" of data to the learner, and
        "examples", those of all updates.
        """

    def initial(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the weights that a run begins with, made of freshly drawn ones.  # [P] -> [P]"""
        return weights

    def published(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the weights that play.  # [P] -> [P]"""
        return weights

    def receive(self, transitions: Transitions, before: EnvStates | None, frames: int) -> dict[str, NDArray[Any]]:
        """Take what was played from `before` on; return the generation's record, or nothing for returns and lengths.

        `frames` have been played so far, with these.
        """
        return {}

    def growth(self) -> int:
        """Return the bytes by which its memory has yet to grow."""
        return 0

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the method's own arrays."""
        return {}

    def weights_from(self, state: Arrays) -> NDArray[np.float32]:
        """Return the learner's weights in a state.  # [P]"""
        return np.asarray(state["weights"], np.float32)

    def restore(self, state: Arrays, records: Sequence[Arrays] | None) -> None:
        """Restore the method's own arrays; `records` is None where the state is another run's (a fork)."""
        return


class UpdateMeans:
    """Means over the examples of a generation's updates, as metrics; NaN before there is one."""

    def __init__(self, *names: str) -> None:
        self.updates, self.examples, self._norms = 0, 0, 0.0
        self._sums = dict.fromkeys(names, 0.0)

    def add(self, values: Mapping[str, NDArray[np.float32]]) -> None:
        """Add the values of an update's examples, [B] each, and its "gradient_norm" [1]."""
        self.updates, self.examples = self.updates + 1, self.examples + len(values["loss"])
        self._norms += float(values["gradient_norm"][0])
        for name in self._sums:
            self._sums[name] += float(values[name].sum(dtype=np.float64))

    def metrics(self) -> Metrics:
        """Return the means, and the numbers of updates and of their examples."""
        means = {name: total / self.examples if self.examples else float("nan") for name, total in self._sums.items()}
        norm = self._norms / self.updates if self.updates else float("nan")
        return {**means, "gradient_norm": norm, "updates": float(self.updates), "examples": float(self.examples)}


class MethodLearner:
    """The network that a method trains, with the method's memory."""

    def __init__(self, setup: Setup, method: Method, max_gradient_norm: float) -> None:
        """Prepare; ValueError where there are no options of a learner."""
        if setup.learner is None:
            raise ValueError("a gradient method needs the options of a learner")
        self.setup, self.method, self._max_gradient_norm = setup, method, max_gradient_norm
        self.notices = setup.learner.notices
        self._learner: Learner | None = None

    @property
    def learner(self) -> Learner:
        """The learner, made when it is first needed: TensorFlow takes seconds to load."""
        if self._learner is None:
            from evo.learning.distributed import make_learner

            setup = self.setup
            assert setup.learner is not None
            self._learner = make_learner(setup.network, setup.learner, self.method.loss(), self._max_gradient_norm)
            weights = setup.start
            if weights is None:
                weights = self.method.initial(initial_weights(setup.network, setup.seed))
            self._learner.begin(weights)
            if self._learner.target is not None:
                self._learner.target.set(weights)
        return self._learner

    def published(self) -> NDArray[np.float32]:
        """Return the network that plays.  # [1, P]"""
        return self.method.published(self.learner.weights())[np.newaxis]

    def learn(self, played: Played | None, number: int, frames: int, stopped: Stopped) -> Metrics:
        """Make a generation's updates as `Method.learn`; return its metrics with passes and "seconds_learning"."""
        began = clock.wall()
        learned = self.method.learn(self.learner, played, number, frames, stopped)
        seconds, examples = clock.wall() - began, learned.pop("examples")
        passes = {"forward_passes": self.method.passes * examples, "backward_passes": examples}
        return {**learned, **passes, "seconds_learning": seconds - learned["seconds_moving"]}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the learner and the method, and the weights of the "target", if there is one."""
        state: dict[str, NDArray[Any]] = {**self.learner.state(), **self.method.state()}
        if self.learner.target is not None:
            state["target"] = self.learner.target.weights()
        return state

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Restore what `state` returned; without records it is another run's (a fork).

        DataError: state and records do not match.
        """
        weights = self.method.weights_from(state)
        self.learner.restore({**state, "weights": weights})
        if self.learner.target is not None:
            self.learner.target.set(np.asarray(state.get("target", weights), np.float32))
        self.method.restore(state, records or None)

    def fingerprint(self) -> str:
        """Return the versions and the device that compute updates, with a digest of one; empty: exact."""
        return self.learner.fingerprint()

    def close(self) -> None:
        """End the learner's processes."""
        if self._learner is not None:
            self._learner.close()
