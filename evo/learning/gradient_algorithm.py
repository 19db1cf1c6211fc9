"""The engine of every gradient method: play, learn from the transitions, and again; also asynchronously.

A method says how it acts and what it learns; the engine has the learner, the environments, the counters and the state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo import clock
from evo.errors import ConfigurationError
from evo.learning import collecting
from evo.learning.method import Method, MethodLearner, Played, Stopped, UpdateOptions
from evo.records import (
    ActionRule,
    Algorithm,
    Arrays,
    Finalists,
    Generation,
    Metrics,
    Request,
    Transitions,
)
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import Learner

PENDING = "pending_"  # prefix of transitions that are not learned from yet
LAG = (
    "asynchronous: every generation is played with the weights from before the updates that run at the same time; "
    "the policy lag is always one generation, so results are exact, but they differ from those of a synchronous run"
)
WHOLE = "no effect of {}: this environment has no compiled game, so whole episodes are played; set {}.episodes"


class GradientOptions(UpdateOptions):
    """Options of every method that learns by gradients from what its own network has played."""

    episodes: int = Field(
        32,
        ge=1,
        le=65536,
        description="whole episodes per generation; used instead of envs and horizon where the environment has no "
        "compiled game",
    )
    envs_per_task: int = Field(64, ge=1, le=65536, description="environments (or whole episodes) per task")
    asynchronous: bool = Field(False, description="learn while the next generation is played (policy lag of one)")

    def transitions_from(self, environment: Any) -> Literal["", "episodes", "segments"]:
        """Return "segments" of environments side by side, or whole "episodes"."""
        return "segments" if self.envs_in(environment) else "episodes"

    def envs_in(self, environment: Any) -> int:
        """Return the number of environments of a segment; 0: whole episodes are played."""
        return 0

    def action_rule(self, environment: Any, frames: int) -> ActionRule:
        """Return how actions are chosen in training, after so many frames."""
        raise NotImplementedError

    def unused(self, setup: Setup) -> list[str]:
        """Return a notice of options that were given and have no effect in this environment."""
        return []


class SegmentOptions(GradientOptions):
    """Options of a method that plays segments, where the environment has a compiled game."""

    envs: int = Field(128, ge=1, le=65536, description="parallel environments")
    horizon: int = Field(64, ge=1, le=65536, description="steps per environment and generation (rollout length)")

    def envs_in(self, environment: Any) -> int:
        """Return `envs` where the environment has a compiled game, else 0: whole episodes are played."""
        return 0 if environment.game is None else self.envs

    def unused(self, setup: Setup) -> list[str]:
        """Return a notice where environments side by side were asked for, and whole episodes are played."""
        section = type(self).__module__.rpartition(".")[2]
        given = [f"{section}.{name}" for name in ("envs", "horizon") if name in self.model_fields_set]
        return [WHOLE.format(" and ".join(given), section)] if given and not self.envs_in(setup.environment) else []


class GradientAlgorithm(Algorithm):
    """A network that a method trains."""

    def __init__(self, options: GradientOptions, setup: Setup, method: Method) -> None:
        if setup.learner is None:
            raise ValueError("a gradient method needs the options of a learner")
        self.options, self.setup, self.method = options, setup, method
        self.notices = [*([LAG] if options.asynchronous else []), *setup.learner.notices, *options.unused(setup)]
        horizon = options.horizon if isinstance(options, SegmentOptions) else 0
        self.collector = collecting.Collector(options, setup, horizon)
        self._trained = MethodLearner(setup, method, options.max_gradient_norm)
        self._pending: Transitions | None = None  # asynchronous: played, and not learned from yet
        self._frames = 0  # played in training; schedules count these
        self._record: dict[str, NDArray[Any]] = {}

    @property
    def learner(self) -> Learner:
        """The learner, made when it is first needed."""
        return self._trained.learner

    def generation(self, number: int) -> Generation:
        """Play, and learn from the transitions; asynchronously, learn from those of the generation before."""
        rule = self.options.action_rule(self.setup.environment, self._frames)
        request = Request(self._trained.published(), self.collector.tasks(number, rule))
        before, background = self.collector.envs(number), self._in_background(number)
        try:
            results = yield request
            arrived = clock.wall()
            transitions = self.collector.take(results, number)
            taken = clock.wall()
            learned = {} if background is None else background.metrics()
        except BaseException:
            if background is not None:
                background.abandon()
            raise
        self._frames += len(transitions)
        metrics, episodes = collecting.metrics_of(results)
        self._record = self.method.receive(transitions, before, self._frames) or episodes
        fresh = None if self.method.replays else transitions
        if self.options.asynchronous:
            self._pending = fresh
        else:
            learned = self._learn(fresh, number, lambda: False)
        if rule.kind == "epsilon_greedy":
            metrics["epsilon"] = rule.epsilon
        moving = taken - arrived + learned.get("seconds_moving", 0.0)
        return {**metrics, **learned, "seconds_moving": moving}

    def _in_background(self, number: int) -> Background | None:
        """Begin to learn while a generation is played, where that is asked for and there is something to learn from."""
        if not self.options.asynchronous or (self._pending is None and not self.method.replays):
            return None
        return Background(lambda stopped: self._learn(self._pending, number, stopped))

    def _learn(self, transitions: Transitions | None, number: int, stopped: Stopped) -> Metrics:
        played = None if transitions is None else Played(transitions, number - self.options.asynchronous)
        return self._trained.learn(played, number, self._frames, stopped)

    def finalists(self, count: int) -> Finalists:
        """Return the present network."""
        return Finalists(self._trained.published())

    def state(self) -> Arrays:
        """Return arrays of the learner, its target, the environments and the method, and pending transitions."""
        frames = {f"{self.method.heads}_frames": np.array([self._frames], np.int64)}
        state = {**self._trained.state(), **frames, **self.collector.state()}
        if self._pending is not None:
            state |= collecting.transitions_to_arrays(self._pending, PENDING)
        return state

    def record(self) -> Arrays:
        """Return "return" (thousandths) and "length" of the episodes that ended, or the method's own record."""
        return self._record

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from a state; a fork begins without pending transitions, and without a replay buffer's.

        ConfigurationError: the state is of an algorithm whose networks have other outputs. DataError: state and
        records do not match.
        """
        frames = f"{self.method.heads}_frames"
        if frames not in state:
            raise ConfigurationError(
                "--fork: the algorithm cannot continue from this run's state, whose outputs mean something else; start "
                "from its champion instead, with run.init_from"
            )
        self._frames = int(np.asarray(state[frames])[0])
        self.collector.restore(state)
        self._trained.restore(state, records)
        self._pending = collecting.transitions_from_arrays(state, PENDING) if records else None

    def fingerprint(self) -> str:
        """Return the versions and the device that compute updates, with a digest of one."""
        return self._trained.fingerprint()

    def growth(self) -> int:
        """Return the bytes that the method's memory will yet grow by."""
        return self._trained.growth()

    def close(self) -> None:
        """End the learner's processes."""
        self._trained.close()


class Background:
    """Learning in a thread of its own while a generation is played."""

    def __init__(self, work: Callable[[Stopped], Metrics]) -> None:
        """Begin; `work` is given a function that says whether to stop."""
        self._work, self._stop, self._seconds = work, threading.Event(), 0.0
        self._metrics: Metrics = {}
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = clock.wall()
        try:
            self._metrics = self._work(self._stop.is_set)
        except BaseException as error:
            self._error = error
        self._seconds = clock.wall() - began

    def metrics(self) -> Metrics:
        """Wait for the metrics; "seconds_learning" is the wait, "seconds_background" the time hidden by playing."""
        began = clock.wall()
        self._thread.join()
        if self._error is not None:
            raise self._error
        waited = clock.wall() - began
        hidden = max(self._seconds - waited, 0.0)
        return {**self._metrics, "seconds_moving": 0.0, "seconds_learning": waited, "seconds_background": hidden}

    def abandon(self) -> None:
        """Stop, and wait for the end; its updates are not committed."""
        self._stop.set()
        self._thread.join()
