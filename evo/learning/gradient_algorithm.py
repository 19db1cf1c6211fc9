"""The loop of every gradient method: play, learn from the transitions, repeat; also asynchronously.

A method defines how it acts and how it learns; the loop has the learner, the environments, the counters and the state.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.errors import ConfigurationError
from evo.learning import collecting
from evo.learning.hyperparameters import pieces_of
from evo.learning.learner import KnownLoss, Learner
from evo.networks.network import Network
from evo.records import (
    GOES_ON,
    ActionRule,
    Algorithm,
    Arrays,
    EnvStates,
    Finalists,
    Generation,
    Metrics,
    Request,
    Transitions,
)
from evo.setup import Setup

LEARNED = "learning"  # kind of kernels
PENDING = "pending_"  # prefix of transitions that are not learned from yet
LAG = (
    "asynchronous: every generation is played with the weights from before the updates that run at the same time; "
    "the policy lag is always one generation, so results are exact, but they differ from those of a synchronous run"
)
FORGETS = "no effect of {}: the network has no memory"
UNUSED = "no effect of {} while {}.whole_episodes is {}"

ShouldStop = Callable[[], bool]


class Collected(NamedTuple):
    """What the network that learns has played."""

    transitions: Transitions
    generation: int  # in which it was played: the one before, where learning is asynchronous


class GradientMethod(ABC):
    """What one method adds to the loop: how it acts, its loss and its updates; and the learner of its network."""

    heads: ClassVar[str]  # what the network's outputs are, "policy" or "q"; a fork continues a state of the same only
    passes: int = 1  # forward passes of an example: one for every network and observation that the loss reads
    backward_passes: int = 1

    def __init__(self, options: Any, setup: Setup) -> None:
        """Prepare; ValueError where there are no options of a learner."""
        if setup.learner is None:
            raise ValueError("a gradient method needs the options of a learner")
        self.options, self.setup = options, setup
        self._pieces = pieces_of(options, setup.network) if options.remembers else None
        self.steps = self._pieces.steps if self._pieces else 1  # consecutive transitions that are learned from together
        self.notices = setup.learner.notices
        self._learner: Learner | None = None

    @abstractmethod
    def loss(self) -> KnownLoss:
        """Return the loss."""

    @abstractmethod
    def action_rule(self, frames: int) -> ActionRule:
        """Return how actions are chosen in training, after `frames`."""

    @abstractmethod
    def learn(self, played: Collected | None, generation: int, frames: int, should_stop: ShouldStop) -> Metrics:
        """Make a generation's updates, unless `should_stop`; `frames` were played, those of `played` included.

        `played` is None where the options say `replays`. Returns metrics, with "seconds_moving" of data to the learner,
        and "examples", those of all updates.
        """

    @property
    def learned_network(self) -> Network:
        """The network whose outputs the loss takes, with the weights of the one that plays."""
        return self.setup.network

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

    @property
    def learner(self) -> Learner:
        """The learner, made when it is first needed: TensorFlow takes seconds to load, and updates to compile.

        That is before anything is played, so workers compile at the same time what plays.
        """
        if self._learner is None:
            from evo.learning.distributed import make_learner

            setup = self.setup
            assert setup.learner is not None
            norm = self.options.max_gradient_norm
            self._learner = make_learner(self.learned_network, setup.learner, self.loss(), norm, self._pieces)
            self._learner.warm_up()
            clock.progress.say_compiled(LEARNED)
            weights = setup.start
            if weights is None:
                weights = self.initial(collecting.initial_weights(setup.network, setup.seed))
            self._learner.begin(weights)
            if self._learner.has_target:
                self._learner.set_target(weights)
        return self._learner

    def memories(self, transitions: Transitions) -> dict[str, NDArray[Any]]:
        """Return what `Learner.load` takes of a network with memory: states, and where they are not the next ones."""
        if transitions.memories is None:
            return {}
        return {"memories": transitions.memories, "begins": np.append(True, transitions.ends[:-1] != GOES_ON)}

    def network(self) -> NDArray[np.float32]:
        """Return the network that plays.  # [1, P]"""
        return self.published(self.learner.weights())[np.newaxis]

    def learned(self, played: Collected | None, generation: int, frames: int, should_stop: ShouldStop) -> Metrics:
        """Make a generation's updates as `learn`; return its metrics with passes and "seconds_learning"."""
        began = clock.wall()
        with np.errstate(over="ignore", invalid="ignore"):  # it ends where a loss or a gradient is not finite
            metrics = self.learn(played, generation, frames, should_stop)
        self.learner.unload()  # else two generations are in memory while the next one is played
        seconds, examples = clock.wall() - began, metrics.pop("examples")
        passes = {"forward_passes": self.passes * examples, "backward_passes": self.backward_passes * examples}
        return {**metrics, **passes, "seconds_learning": seconds - metrics["seconds_moving"]}

    def growth(self) -> int:
        """Return the bytes by which its memory has yet to grow."""
        return 0

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the learner, and the weights of the "target", if there is one."""
        state: dict[str, NDArray[Any]] = {**self.learner.state()}
        if self.learner.has_target:
            state["target"] = self.learner.target_weights()
        return state

    def weights_from(self, state: Arrays) -> NDArray[np.float32]:
        """Return the learner's weights in a state.  # [P]"""
        return np.asarray(state["weights"], np.float32)

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Restore what `state` returned; without records it is another run's (a fork).

        DataError: state and records do not match.
        """
        weights = self.weights_from(state)
        self.learner.restore({**state, "weights": weights})
        if self.learner.has_target:
            self.learner.set_target(np.asarray(state.get("target", weights), np.float32))

    def fingerprint(self) -> str:
        """Return the versions and the device that compute updates, with a digest of one; empty: exact."""
        return self.learner.fingerprint()

    def close(self) -> None:
        """End the learner's processes."""
        if self._learner is not None:
            self._learner.close()


class OfMethod(Algorithm):
    """An algorithm with a method, whose learner it has."""

    method: GradientMethod

    def fingerprint(self) -> str:
        """Return the versions and the device that compute updates, with a digest of one."""
        return self.method.fingerprint()

    def growth(self) -> int:
        """Return the bytes by which the method's memory has yet to grow."""
        return self.method.growth()

    def close(self) -> None:
        """End the learner's processes."""
        self.method.close()


class GradientAlgorithm(OfMethod):
    """A network that a method trains."""

    def __init__(self, options: Any, setup: Setup, method: Callable[[Any, Setup], GradientMethod]) -> None:
        """Prepare to play segments of environments, or whole episodes, as the options say."""
        self.options, self.setup = options, setup
        self.method = method(options, setup)
        self.collector, segments = collecting.Collector(options, setup), options.plays_segments
        self.notices = [*([LAG] if options.asynchronous else []), *self.method.notices]
        section, fields = type(options).__module__.rpartition(".")[2], type(options).model_fields

        def changed(*names: str) -> str:  # a resumed run has every option set
            others = [name for name in names if name in fields and getattr(options, name) != fields[name].default]
            return " and ".join(f"{section}.{name}" for name in others)

        if unused := changed("episodes") if segments else changed("envs", "horizon"):
            self.notices.append(UNUSED.format(unused, section, "false" if segments else "true"))
        if not setup.network.memory and (unused := changed("bptt", "burn_in")):
            self.notices.append(FORGETS.format(unused))
        if setup.learner is not None and setup.learner.device == "gpu":
            from evo.learning.exact.plan import refuse

            refuse(self.method.learned_network, self.method.loss())
        self._pending: Transitions | None = None  # asynchronous: played, and not learned from yet
        self._frames = 0  # played in training; schedules count these
        self._record: dict[str, NDArray[Any]] = {}

    def generation(self, number: int) -> Generation:
        """Play, and learn from the transitions; asynchronously, learn from those of the generation before."""
        rule = self.method.action_rule(self._frames)
        request = Request(self.method.network(), self.collector.tasks(number, rule))
        before, background = self.collector.envs(number), None
        if self.options.asynchronous and (self._pending is not None or self.options.replays):
            background = Background(lambda should_stop: self._learn(self._pending, number, should_stop))
        try:
            results = yield request
            arrived = clock.wall()
            transitions = self.collector.take(results, number)
            taken = clock.wall()
            learned = {} if background is None else background.metrics()
        except BaseException:
            if background is not None:
                self.method.learner.abandon()
                background.abandon()
            raise
        self._frames += len(transitions)
        metrics, episodes = collecting.metrics_of(results)
        self._record = self.method.receive(transitions, before, self._frames) or episodes
        fresh = None if self.options.replays else transitions
        if self.options.asynchronous:
            self._pending = fresh
        else:
            learned = self._learn(fresh, number, lambda: False)
        if rule.kind == "epsilon_greedy":
            metrics["epsilon"] = rule.epsilon
        moving = taken - arrived + learned.get("seconds_moving", 0.0)
        return {**metrics, **learned, "seconds_moving": moving}

    def _learn(self, transitions: Transitions | None, number: int, should_stop: ShouldStop) -> Metrics:
        played = None if transitions is None else Collected(transitions, number - self.options.asynchronous)
        return self.method.learned(played, number, self._frames, should_stop)

    def finalists(self, count: int) -> Finalists:
        """Return the present network."""
        return Finalists(self.method.network())

    def state(self) -> Arrays:
        """Return arrays of the learner, its target, the environments and the method, and pending transitions."""
        frames = {f"{self.method.heads}_frames": np.array([self._frames], np.int64)}
        state = {**self.method.state(), **frames, **self.collector.state()}
        if self._pending is not None:
            state |= collecting.to_arrays(self._pending, PENDING)
        return state

    def record(self) -> Arrays:
        """Return "return" and "length" of the episodes that ended, or the method's own record."""
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
        self.method.restore(state, records)
        pending = bool(records) and f"{PENDING}ends" in state
        self._pending = collecting.from_arrays(Transitions, state, PENDING) if pending else None


class Background:
    """Learning in a thread of its own while a generation is played."""

    def __init__(self, work: Callable[[ShouldStop], Metrics]) -> None:
        """Begin; `work` takes a function that says whether to stop."""
        self._work, self._stop = work, threading.Event()
        self._learned = Future[tuple[Metrics, float]]()  # metrics, and seconds
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = clock.wall()
        try:
            self._learned.set_result((self._work(self._stop.is_set), clock.wall() - began))
        except BaseException as error:
            self._learned.set_exception(error)

    def metrics(self) -> Metrics:
        """Wait for the metrics; "seconds_learning" is the wait, "seconds_background" the time hidden by playing."""
        began = clock.wall()
        self._thread.join()
        metrics, seconds = self._learned.result()
        waited = clock.wall() - began
        hidden = max(seconds - waited, 0.0)
        return {**metrics, "seconds_moving": 0.0, "seconds_learning": waited, "seconds_background": hidden}

    def abandon(self) -> None:
        """Stop, and wait for the end; its updates are not committed."""
        self._stop.set()
        self._thread.join()
