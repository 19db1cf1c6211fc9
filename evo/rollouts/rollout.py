"""Play a task: Snake wholly in compiled code, anything else through Gymnasium's interface.

Both ways ask the same network kernel and give the same bits on Snake; the plain one is the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.buffers import aligned
from evo.errors import ResourceError
from evo.kernels import lanes, layout, multiply_add, sparse
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.records import WORST, ActionRule, Result, Segment, Task, Transitions
from evo.rollouts import compiled
from evo.rollouts.episodes import RULES, play_snake
from evo.rollouts.gymnasium_episodes import Recorder, is_continuous, play_plainly
from evo.rollouts.segments import Sheet, play_segment
from snake.batch import make_boards

kernel_cache.use(__name__)

__all__ = ["RULES", "Environment", "Rollout", "Scorer", "check_arithmetic", "empty_result", "play_plainly"]

NOTHING = np.empty(0, np.int8)  # the actions of an episode that was not played to its end


class Environment(Protocol):
    """What a rollout needs to know of an environment."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        ...

    @property
    def actions(self) -> int:
        """The number of actions, or where `continuous` is there and True, of the numbers that an action is."""
        ...

    @property
    def episode_metrics(self) -> tuple[str, ...]:
        """The names of what is measured of an episode."""
        ...

    def env(self) -> Any:
        """Return a fresh environment behind Gymnasium's interface."""
        ...

    def metrics_of_episode(self, info: Mapping[str, Any], truncated: bool) -> tuple[int, ...]:
        """Return the episode_metrics of an episode that ended with this `info`."""
        ...


class Scorer(Protocol):
    """A network with weights: observations [E, ...] to scores [E, A]."""

    def __call__(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores."""
        ...


@njit(cache=True, error_model="numpy")
def _product(a, b):  # type: ignore[no-untyped-def]
    return a * b


def check_arithmetic() -> None:
    """Raise ResourceError where a library has switched subnormal numbers off, which would change bits."""
    # Compared as Python's floats: where subnormal operands count as zero, float32 could not tell the two apart.
    if float(_product(np.float32(2.0**-126), np.float32(0.5))) != 2.0**-127:
        raise ResourceError(
            "a library in this process has set flush-to-zero: subnormal numbers vanish and results would change; "
            "leave out the plug-in that loads it"
        )


def empty_result(candidates: int, episodes: int, episode_metrics: int) -> dict[str, Any]:
    """Return the arrays of a result to be filled in; every return is WORST."""
    return {
        "returns": np.full((candidates, episodes), WORST, np.int64),
        "lengths": np.zeros((candidates, episodes), np.int32),
        "episode_metrics": np.zeros((candidates, episodes, episode_metrics), np.int32),
        "finite": np.zeros(candidates, np.bool_),
    }


def check_rule(how: ActionRule, environment: Environment, network: Network) -> None:
    """Raise ValueError where actions of this environment do not follow from scores in this way."""
    if how.kind == "gaussian":
        if not is_continuous(environment) or network.outputs < 2 * environment.actions:
            raise ValueError("gaussian actions are numbers, with a mean and a log deviation each")
    elif how.kind != "greedy" and is_continuous(environment):
        raise ValueError(f"actions that are numbers are greedy or gaussian, not {how.kind}")


class Rollout:
    """Plays tasks with one network in one environment; buffers are kept, results are not."""

    def __init__(self, network: Network, environment: Environment) -> None:
        self.network, self.environment = network, environment
        self.rebuilder = Rebuilder(network)
        self._layers, self._packed, self._pack = lanes.packing(network)
        self._norms, self._large = lanes.norm_weights(network, self._packed), sparse.buffers_for(self._layers)
        self._weights = aligned(network.size)
        room = layout.activation_size(network) * 16
        self._first, self._second = aligned(room), aligned(room)
        self._scores = aligned(network.outputs * 16)
        self._x, self._marks = aligned(int(np.prod(network.shape)) * 16), lanes.nonzero_mask(network)
        rules: Any = getattr(environment, "rules", None)  # of an environment that is played in compiled code
        self._boards = None if rules is None else make_boards(16, rules.size)
        self._marked: set[str] = set()  # what is known to have been compiled

    @property
    def fingerprint(self) -> str:
        """Return what the arithmetic depends on; nothing where it is exact."""
        return multiply_add.fingerprint() if self.network.options.bfloat16_pairs else ""

    def play(self, task: Task, parents: NDArray[np.float32]) -> Result:
        """Return what each candidate of `task` did; `parents` is the published matrix [S, P].

        ValueError where steps are asked for, or a segment, of more candidates than one, or actions are chosen in a way
        that they cannot be.
        """
        check_arithmetic()
        check_rule(task.action_rule, self.environment, self.network)
        if isinstance(task.play, Segment):
            result = self._play_segment(task, task.play, parents)
            self._mark(compiled.SEGMENTS)
            return result
        if task.record_transitions and len(task.weights) != 1:
            raise ValueError("steps are recorded of one candidate")
        seeds = task.play.seeds
        arrays = empty_result(len(task.weights), len(seeds), len(self.environment.episode_metrics))
        frames = slots = 0
        traces: list[NDArray[np.generic]] = []
        steps: Transitions | None = None
        for k in range(len(task.weights)):
            self.rebuilder.rebuild(parents, task.weights, k, self._weights)
            if not np.isfinite(self._weights).all():
                traces += [NOTHING] * len(seeds)
                continue
            one = {name: array[k] for name, array in arrays.items() if name != "finite"}
            self._pack(self._layers, self._weights, self._packed)
            if self._boards is not None:
                played, slots_played, finite, trace, steps = play_snake(
                    self._kernel(), self.environment, self._boards, task, one, self.score
                )
            else:
                recorder = Recorder(self.environment, len(seeds)) if task.record_transitions else None
                played, slots_played, finite, trace = play_plainly(
                    self.score, self.environment, seeds, task.action_rule, one, recorder
                )
                steps = recorder.steps(self.score) if recorder and finite else None
            if steps is not None and not (np.isfinite(steps.outputs).all() and np.isfinite(steps.next_outputs).all()):
                finite, steps = False, None  # no action needs a value, and learning does
            traces += trace if finite else [NOTHING] * len(seeds)
            frames, slots = frames + played, slots + slots_played
            arrays["finite"][k] = finite
            if not finite:
                arrays["returns"][k], arrays["lengths"][k], arrays["episode_metrics"][k] = WORST, 0, 0
        self._mark(
            compiled.SCORES
            if self._boards is None
            else compiled.RECORDED
            if task.record_transitions
            else compiled.EPISODES
        )
        actions = tuple(traces) if task.record_actions else None
        return Result(**arrays, frames=frames, lane_slots=slots, actions=actions, transitions=steps)

    def _mark(self, what: str) -> None:
        if what not in self._marked:
            self._marked.add(what)
            compiled.mark(self.network, getattr(self.environment, "codes", (0, None))[1] is not None, what)

    def _kernel(self) -> tuple[Any, ...]:
        """Return the network's layers, its packed weights, room for large layers, and the buffers for 16 lanes."""
        weights = self._layers, self._packed, self._norms, self._large
        return *weights, self._marks, self._x, self._first, self._second, self._scores

    def _play_segment(self, task: Task, segment: Segment, parents: NDArray[np.float32]) -> Result:
        if len(task.weights) != 1 or self._boards is None:
            raise ValueError("a segment is played by one candidate, in an environment that has snapshots")
        how, begun, outputs = task.action_rule, segment.envs, self.network.outputs
        self.rebuilder.rebuild(parents, task.weights, 0, self._weights)
        if not np.isfinite(self._weights).all():
            return Sheet(self.environment, begun, segment.horizon, outputs).result(0, 0, False)
        self._pack(self._layers, self._weights, self._packed)
        return play_segment(
            self._kernel(), self.environment, begun, segment.horizon, outputs, RULES[how.kind], how.epsilon
        )

    def score(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores of the candidate that was packed last.  # [E, ...] -> [E, A]"""
        size, out = int(np.prod(self.network.shape)), np.empty((len(observations), self.network.outputs), np.float32)
        for start in range(0, len(observations), 16):
            part = observations[start : start + 16].reshape(-1, size)
            self._x.reshape(size, 16)[:, : len(part)] = part.T
            lanes.forward(*self._kernel(), 16, len(part))
            out[start : start + 16] = self._scores.reshape(-1, 16).T[: len(part)]
        return out
