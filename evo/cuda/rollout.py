"""Play tasks on a device: whole episodes of all candidates, or a segment, in one launch each.

What a launch does not play, which is recorded episodes and tasks that are refused, the CPU's kernel plays in the same
process: its bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.cuda import kernels
from evo.cuda.kernels import LANES
from evo.cuda.launch import Device, GameSource, arrays_in
from evo.cuda.layers import BY_LAYERS, NO_CROSSOVER, UNIFORM
from evo.cuda.table import table_of
from evo.errors import DeviceError
from evo.games.step import Ended, Envs, are_finite
from evo.networks.candidates import Rebuilder
from evo.records import TRUNCATED, ActionRule, Episodes, Result, Segment, Task, WeightSource, empty_result
from evo.rollouts.action_rules import RULES
from evo.rollouts.rollout import Rollout
from evo.rollouts.segments import SegmentBuffers

# Threads of a block, and registers of a thread. Few candidates have all lanes alive for long, so blocks are small; a
# thread has registers for all inputs that it loads at once. Where the network is small, the game takes most time: then
# a warp for a candidate, and few registers, so that many are played at once.
THREADS, REGISTERS = 64, 168
SMALL_THREADS, SMALL_REGISTERS = LANES, 96
SMALL = 4096  # floats of a block: those of 16 blocks stay in the L1 cache
GOLDEN_STEPS = 20
GOLDEN_FLOPS = 20_000_000  # of a step of all golden candidates, about: what the CPU plays in a second or two
MOST_BYTES = 1 << 32  # of buffers
CROSSOVERS = {"none": NO_CROSSOVER, "uniform": UNIFORM, "layers": BY_LAYERS}


class CudaRollout:
    """Plays tasks with one network in one compiled game on a device; buffers are kept there, results are not."""

    def __init__(self, cpu: Rollout, device: Device, threads: int | None = None) -> None:
        """`cpu` plays the same on the CPU; ConfigurationError where the network has layers that are not for GPUs."""
        self._cpu, self._game, self.kernel = cpu, cpu.environment.game, cpu.kernel
        self.network, self.environment, self.size = cpu.network, cpu.environment, cpu.size
        network = cpu.network
        self.kernel.device = device.name
        most = LANES * max(layer.outputs for layer in network.layers)
        seen = LANES * int(np.prod(network.shape))
        small = network.size + seen + 2 * most <= SMALL
        self._device, self._threads = device, threads or (SMALL_THREADS if small else THREADS)
        self._registers = SMALL_REGISTERS if small else REGISTERS
        table, padded = table_of(network, self._threads)
        self._network = table, network.fresh_scale
        self._floats = padded, seen, most, most  # of a block's buffers
        self._blocks, self._buffers = 1, self._buffers_of(1)
        self._programs: dict[tuple[Any, ...], Any] = {}
        self._published = self._parents = np.empty((0, network.size), np.float32)
        self._keep(*self._network, self._parents)

    def play(self, task: Task, parents: NDArray[np.float32]) -> Result:
        """Return what each candidate of `task` did, as `Rollout.play` does; `parents` is the published matrix."""
        source = task.weights
        named = np.concatenate([source.rows, source.mates, [source.scale]])
        played = not (task.record_actions or task.record_transitions) and self._cpu.takes(task.action_rule)
        if not played or not ((named >= -1) & (named < len(parents))).all():
            return self._cpu.play(task, parents)
        clock.progress.made()
        if isinstance(task.play, Segment):
            return self._play_segment(task, task.play, parents)
        return self._play_episodes(task, task.play, parents)

    def check(self, segments: bool) -> None:
        """Play golden episodes, and a segment, on the device and on the CPU; DeviceError where a bit differs."""
        candidates, episodes = self._device.golden
        candidates = max(2, min(candidates, GOLDEN_FLOPS // self.network.flops))
        parents, keys = np.empty((1, self.size), np.float32), np.arange(candidates, dtype=np.uint64)
        Rebuilder(self.network).fresh(np.uint64(1), parents[0])
        rows = np.arange(candidates, dtype=np.int32) % 2 - 1  # fresh ones, and children of the first parent
        source = WeightSource(rows, np.full_like(rows, -1), keys, np.full(candidates, 0.1, np.float32))
        seeds = np.arange(episodes, dtype=np.uint64)
        drawn = next(filter(self._cpu.takes, (ActionRule("softmax"), ActionRule("gaussian"), ActionRule("noisy"))))
        tasks = [Task(source, Episodes(seeds), ActionRule())]
        if segments:
            tasks.append(Task(source.some(slice(1)), Segment(self._game.begin(seeds), GOLDEN_STEPS), drawn))
        for task in tasks:
            ours, theirs = self.play(task, parents), self._cpu.play(task, parents)
            if not _equal(ours, replace(theirs, lane_slots=ours.lane_slots)):
                raise DeviceError(
                    f"{self._device.name} does not compute the bits of the CPU's kernel, so it would change results; "
                    'play on the CPU with workers.kind = "cpu"'
                )

    def _play_episodes(self, task: Task, play: Episodes, parents: NDArray[np.float32]) -> Result:
        candidates, episodes, metrics = len(task.weights), len(play.seeds), len(self._game.episode_metrics)
        if not candidates or not episodes:
            return self._cpu.play(task, parents)
        ended = Ended.empty(candidates * episodes, metrics)
        finite, slots = np.zeros(candidates, np.uint8), np.zeros(candidates, np.int64)
        seeds, epsilon = np.ascontiguousarray(play.seeds, np.uint64), float(task.action_rule.epsilon)
        named = (*self._candidates(task, parents), seeds, epsilon)
        self._run(kernels.play_episodes, task, named, None, (ended, finite, slots), candidates)
        arrays = empty_result(candidates, episodes, metrics)
        found = {name: array.reshape(arrays[name].shape) for name, array in ended._asdict().items()}
        good = finite != 0
        if not are_finite(found["returns"]):
            good &= [are_finite(row) for row in found["returns"]]
        if self._game.masked:
            for k in np.flatnonzero(finite == 0):  # which names an episode in which nothing is allowed
                self._cpu.play(replace(task, weights=task.weights.some(slice(k, k + 1))), parents)
        for name, values in found.items():
            if good.all():
                arrays[name] = values
            else:
                arrays[name][good] = values[good]
        arrays["finite"][:] = good
        return Result(**arrays, frames=int(arrays["lengths"].sum(dtype=np.int64)), lane_slots=int(slots.sum()))

    def _play_segment(self, task: Task, play: Segment, parents: NDArray[np.float32]) -> Result:
        count, horizon = len(play.envs), play.horizon
        if len(task.weights) != 1 or not count * horizon:
            return self._cpu.play(task, parents)
        written = SegmentBuffers(self._game, play, self.network.outputs)
        record, finite = written.recorder.record, np.zeros(-(-count // LANES), np.uint8)
        assert record is not None
        named = (*self._candidates(task, parents), horizon, float(task.action_rule.epsilon))
        envs = (written.state, self._game.rules, written.envs, *self._actions_of(count))
        outputs = (written.recorder.actions, record, written.ended, finite)
        self._run(kernels.play_segment, task, named, envs, outputs, len(finite))
        if not finite.all():
            return self._cpu.play(task, parents)
        rows = np.flatnonzero(record.ends >= TRUNCATED)  # or SEGMENT_END
        for array in (record.followed, record.next_observations, record.next_action_masks):
            array[: len(rows)] = array[rows]
        self._cpu.take(task, 0, parents)
        slots = horizon * sum(kernels.width_for(min(count - first, LANES)) for first in range(0, count, LANES))
        return written.result(len(rows), slots + -(-len(rows) // 16) * 16, True, self._cpu.kernel.score)

    def _candidates(self, task: Task, parents: NDArray[np.float32]) -> tuple[Any, ...]:
        """Return the network, published weights, and the names of candidates, as kernels take them first."""
        if parents is not self._published:
            self._device.drop(self._parents)
            self._published, self._parents = parents, np.ascontiguousarray(parents, np.float32).view(np.ndarray)
            self._keep(self._parents)
        source = task.weights
        named = (source.rows.astype(np.int32), source.mates.astype(np.int32), source.keys.astype(np.uint64))
        sigmas, crossover = source.sigmas.astype(np.float32), CROSSOVERS[source.crossover]
        return (*self._network, self._parents, *named, sigmas, int(source.scale), crossover)

    def _run(self, kernel: Callable[..., None], task: Task, named: Any, envs: Any, outputs: Any, work: int) -> None:
        """Launch a kernel for `work` candidates, or groups of environments; without `envs`, those of the device."""

        def arguments() -> list[Any]:
            buffers, own = self._buffers
            return [*named, *buffers, *(envs or own), *outputs, np.zeros(1, np.int32)]

        rule = RULES[task.action_rule.kind]
        if (program := self._programs.get((kernel, rule))) is None:
            first = not self._programs
            source = GameSource(kernel, self._game, rule, self._registers)
            program = self._programs[kernel, rule] = self._device.program(source, arguments())
            if first:
                most = MOST_BYTES // (4 * sum(self._floats))
                self._blocks = max(1, min(self._device.blocks(program, self._threads), most))
                self._buffers = self._buffers_of(self._blocks)
                self._keep(*arrays_in(self._buffers))
        results = arrays_in([*(envs or ()), *outputs])
        self._device.run(program, arguments(), min(work, self._blocks), self._threads, [*results], envs is None)

    def _buffers_of(self, blocks: int) -> tuple[Any, Any]:
        """Return the buffers of a number of blocks, and environments for all of their lanes."""
        count = blocks * LANES
        buffers = tuple(np.zeros((blocks, size), np.float32) for size in self._floats)
        envs = self._game.make_state(count), self._game.rules, Envs.empty(count), *self._actions_of(count)
        return buffers, envs

    def _actions_of(self, count: int) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
        """Return which actions are allowed in environments, and a continuous action of each.  # [B, A]"""
        return np.ones((count, self._game.actions), np.int8), np.zeros((count, self._game.actions))

    def _keep(self, *arrays: NDArray[Any]) -> None:
        for array in arrays:
            self._device.keep(array)


def _equal(one: Any, other: Any) -> bool:
    """Return whether two results, or parts of them, are equal in every bit."""
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if is_dataclass(one):
        return type(one) is type(other) and all(_equal(vars(one)[name], vars(other)[name]) for name in vars(one))
    return bool(one == other)
