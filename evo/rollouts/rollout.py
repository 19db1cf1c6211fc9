"""Play a task: a compiled game wholly in compiled code, anything else through Gymnasium's interface.

Both ways ask the same network kernel and give the same bits for the same game; the plain one is the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.buffers import aligned
from evo.environment import Environment
from evo.errors import ResourceError
from evo.kernels import lanes, layout, sparse
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.records import WORST, ActionRule, Player, Result, Segment, Task, Transitions, empty_result
from evo.rollouts.episodes import GameEpisodes, play_episodes
from evo.rollouts.gymnasium_episodes import Recorder, play_gymnasium
from evo.rollouts.segments import SegmentBuffers, play_envs, play_segment

kernel_cache.use(__name__)

NOTHING = np.empty(0, np.int8)  # the actions of an episode that was not played to its end


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


def kernels_are_kept(network: Network, environment: Environment, transitions_from: str) -> bool:
    """Return whether Numba has compiled before what plays such a network in such an environment."""
    arguments, game = Rollout(network, environment).kernel_arguments(), environment.game
    if game is None:
        return kernel_cache.is_kept(lanes.forward, *arguments)
    state, alone = (game.make_state(16), game.rules), np.empty(0, np.float32)
    if transitions_from == "segments" and not kernel_cache.is_kept(play_envs, *arguments, alone, alone, *state):
        return False
    return kernel_cache.is_kept(play_episodes, *arguments, *state)


def check_rule(how: ActionRule, environment: Environment, network: Network) -> None:
    """Raise ValueError where actions of this environment do not follow from the network's outputs in this way."""
    if how.kind == "gaussian":
        if not environment.continuous or network.outputs < 2 * environment.actions:
            raise ValueError("gaussian actions are continuous, with a mean and a log standard deviation each")
    elif how.kind != "greedy" and environment.continuous:
        raise ValueError(f"continuous actions are greedy or gaussian, not {how.kind}")


class Rollout:
    """Plays tasks with one network in one environment; buffers are kept, results are not."""

    def __init__(self, network: Network, environment: Environment) -> None:
        self.network, self.environment = network, environment
        self.rebuilder = Rebuilder(network)
        self._layers, self._packed = layout.table(network), aligned(layout.packed_size(network))
        self._large = sparse.buffers_for(self._layers)
        self._weights = aligned(network.size)
        activations = layout.activation_size(network) * 16
        self._first, self._second = aligned(activations), aligned(activations)
        self._scores = aligned(network.outputs * 16)
        self._x, self._nonzero = aligned(int(np.prod(network.shape)) * 16), lanes.nonzero_mask(network)
        self._game = environment.game
        self._episodes = None if self._game is None else GameEpisodes(self._game, network.outputs)

    def play(self, task: Task, parents: NDArray[np.float32]) -> Result:
        """Return what each candidate of `task` did; `parents` is the published matrix [S, P].

        ValueError where transitions or a segment of more than one candidate are asked for, or the action rule does not
        fit.
        """
        check_arithmetic()
        check_rule(task.action_rule, self.environment, self.network)
        if isinstance(task.play, Segment):
            return self._play_segment(task, task.play, parents)
        if task.record_transitions and len(task.weights) != 1:
            raise ValueError("transitions are recorded of one candidate")
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
            layout.pack(self._layers, self._weights, self._packed)
            if self._episodes is not None:
                played, slots_played, finite, trace, steps = self._episodes.play(
                    self.kernel_arguments(), task, one, self.score
                )
            else:
                recorder = Recorder(self.environment, len(seeds)) if task.record_transitions else None
                played, slots_played, finite, trace = play_gymnasium(
                    self.score, self.environment, seeds, task.action_rule, one, recorder
                )
                steps = recorder.transitions(self.score) if recorder and finite else None
            if steps is not None and not (np.isfinite(steps.outputs).all() and np.isfinite(steps.next_outputs).all()):
                finite, steps = False, None  # no action depends on a value, but learning does
            traces += trace if finite else [NOTHING] * len(seeds)
            frames, slots = frames + played, slots + slots_played
            arrays["finite"][k] = finite
            if not finite:
                arrays["returns"][k], arrays["lengths"][k], arrays["episode_metrics"][k] = WORST, 0, 0
        actions = tuple(traces) if task.record_actions else None
        return Result(**arrays, frames=frames, lane_slots=slots, actions=actions, transitions=steps)

    def kernel_arguments(self) -> tuple[Any, ...]:
        """Return the network's layers, its packed weights, buffers for large layers, and those for 16 lanes."""
        weights = self._layers, self._packed, self._large, self._nonzero
        return *weights, self._x, self._first, self._second, self._scores

    def _play_segment(self, task: Task, segment: Segment, parents: NDArray[np.float32]) -> Result:
        if len(task.weights) != 1 or self._game is None:
            raise ValueError("a segment is played by one candidate, in a compiled game")
        outputs = self.network.outputs
        self.rebuilder.rebuild(parents, task.weights, 0, self._weights)
        if not np.isfinite(self._weights).all():
            return SegmentBuffers(self._game, segment, outputs).result(0, 0, False)
        layout.pack(self._layers, self._weights, self._packed)
        return play_segment(self.kernel_arguments(), self._game, segment, outputs, task.action_rule)

    def score(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs of the candidate that was packed last.  # [E, ...] -> [E, O]"""
        size, out = int(np.prod(self.network.shape)), np.empty((len(observations), self.network.outputs), np.float32)
        for start in range(0, len(observations), 16):
            part = observations[start : start + 16].reshape(-1, size)
            self._x.reshape(size, 16)[:, : len(part)] = part.T
            lanes.forward(*self.kernel_arguments(), 16, len(part))
            out[start : start + 16] = self._scores.reshape(-1, 16).T[: len(part)]
        return out


class LanesPlayer(Player):
    """Plays on the CPU with the lanes kernel, with the same bits on every machine."""

    def __init__(self, rollout: Rollout, files: Any) -> None:
        self._rollout, self._files = rollout, files

    def play(self, task: Task) -> Result:
        """Play the task's episodes with each of its candidates."""
        parents = self._files.matrix(task.weights.published, self._rollout.network.size)
        return self._rollout.play(task, parents)
