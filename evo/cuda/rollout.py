"""Play tasks on a device: whole episodes of all candidates, or a segment, in one launch each.

What a launch does not play, such as few recorded episodes and tasks that are refused, the CPU's kernel plays in the
same process: its bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.cuda import kernels
from evo.cuda.launch import Device, arrays_in, source_of_game
from evo.cuda.parts import of_envs, of_episodes
from evo.cuda.table import LANES, table_of
from evo.cuda.weights import BY_LAYERS, NO_CROSSOVER, UNIFORM
from evo.errors import DeviceError
from evo.games.step import Ended, Envs, Recorder, actions_for, are_finite
from evo.kernels.layout import activation_size
from evo.networks.candidates import Rebuilder
from evo.records import TRUNCATED, ActionRule, Episodes, Result, Segment, Task, WeightSource, empty_result, joined
from evo.rollouts.action_rules import RULES
from evo.rollouts.rollout import Rollout, RolloutPlayer
from evo.rollouts.segments import SegmentBuffers

# Threads of a block, and registers of a thread. Few candidates have all lanes alive for long, so blocks are small; a
# thread has registers for all inputs that it loads at once. Where the network is small, the game takes most time: then
# a warp for a candidate, and few registers, so that many are played at once.
THREADS, REGISTERS = 64, 168
SMALL_THREADS, SMALL_REGISTERS = LANES, 96
SMALL = 4096  # floats of a block: those of 16 blocks stay in the L1 cache
GOLDEN_STEPS = 20
GOLDEN_FLOPS = 20_000_000  # of a step of all golden candidates, about: what the CPU plays in a second or two
MOST_BYTES, MOST_RECORDED = 1 << 32, 1 << 30  # of buffers, and of what a launch records
STEPS = 100  # of recorded episodes for which there is room at first, on average
CROSSOVERS = {"none": NO_CROSSOVER, "uniform": UNIFORM, "layers": BY_LAYERS}


class CudaRollout:
    """Plays tasks with one network in one compiled game on a device; buffers are kept there, results are not."""

    few = 340  # recorded episodes of a launch that one core plays in less time, about

    def __init__(self, cpu: Rollout, device: Device, threads: int | None = None) -> None:
        """`cpu` plays the same on the CPU."""
        self._cpu, self._game, self.kernel = cpu, cpu.environment.game, cpu.kernel
        self.network, self.environment, self.size = cpu.network, cpu.environment, cpu.size
        network = cpu.network
        self.kernel.device = device.name
        most = LANES * activation_size(network)
        seen = LANES * int(np.prod(network.shape))
        small = network.size + seen + 2 * most <= SMALL
        self._device, self._threads = device, threads or (SMALL_THREADS if small else THREADS)
        self._registers = SMALL_REGISTERS if small else REGISTERS
        *tables, padded = table_of(network, self._threads)
        self._network = *tables, network.fresh_scale
        self._floats = padded, seen, most, most  # of a block's buffers
        self._blocks, self._buffers, self._steps = 1, self._buffers_of(1), STEPS
        self._programs: dict[tuple[Any, ...], Any] = {}
        self._published = self._parents = np.empty((0, network.size), np.float32)
        self._keep(*self._network, self._parents)

    def play(self, task: Task, parents: NDArray[np.float32]) -> Result:
        """Return the results of the candidates of `task`, as `Rollout.play` does; `parents` is the published matrix."""
        return self.play_alike([task], parents)[0]

    def play_alike(self, tasks: Sequence[Task], parents: NDArray[np.float32]) -> list[Result]:
        """Return the results of tasks, as `play` does, by one launch; `alike` is the same of all."""
        clock.progress.made()
        play, *_ = self.alike(tasks[0], parents)
        results: list[Result] = play(tasks, parents)
        return results

    def alike(self, task: Task, parents: NDArray[np.float32]) -> tuple[Any, ...]:
        """Return the function that plays a task, and a key that the tasks of a launch share."""
        source, rule, play = task.weights, task.action_rule, task.play
        named = np.concatenate([source.rows, source.mates, [source.scale]])
        known = ((named >= -1) & (named < len(parents))).all() and self._cpu.takes(rule)
        if not known or not len(source) or (task.record_transitions and len(source) > 1):
            return (self._play_on_cpu,)
        how = rule.kind, rule.epsilon, source.scale, source.crossover, task.record_actions, task.record_transitions
        if isinstance(play, Episodes):
            return (self._play_episodes, *how) if len(play.seeds) else (self._play_on_cpu,)
        if len(source) > 1 or not len(play.envs) * play.horizon:
            return (self._play_on_cpu,)
        candidate = (array[0].item() for array in (source.rows, source.mates, source.keys, source.sigmas))
        return (self._play_segments, play.horizon, *candidate, *how)

    def _play_on_cpu(self, tasks: Sequence[Task], parents: NDArray[np.float32]) -> list[Result]:
        return [self._cpu.play(task, parents) for task in tasks]

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

    def _play_episodes(self, tasks: Sequence[Task], parents: NDArray[np.float32]) -> list[Result]:
        """Play episodes; an item of work is a candidate, and all its episodes or, where blocks are left, some."""
        counts = [(len(task.weights), len(task.play.seeds)) for task in tasks if isinstance(task.play, Episodes)]
        if (recorder := self._recorder(tasks[0], sum(map(prod, counts)))) is None:
            return self._play_on_cpu(tasks, parents)
        share = -(-self._blocks // sum(candidates for candidates, _ in counts))
        items = list[NDArray[np.int32]]()
        candidate = seed = row = 0
        for candidates, episodes in counts:
            each = LANES * max(1, -(-episodes // (LANES * share)))
            begins = np.arange(0, episodes, each)
            k, first = (axis.reshape(-1) for axis in np.meshgrid(np.arange(candidates), begins, indexing="ij"))
            named = candidate + k, seed + first, np.minimum(each, episodes - first), row + k * episodes + first
            items.append(np.stack(named, 1).astype(np.int32))
            candidate, seed, row = candidate + candidates, seed + episodes, row + candidates * episodes
        work = np.concatenate(items)
        ended = Ended.empty(row, len(self._game.episode_metrics))
        finite, slots = np.zeros(len(work), np.uint8), np.zeros(len(work), np.int64)
        seeds = np.concatenate([task.play.seeds for task in tasks if isinstance(task.play, Episodes)], dtype=np.uint64)
        named = (*self._candidates(tasks, parents), seeds, work, float(tasks[0].action_rule.epsilon))
        written = (recorder.actions, recorder.episodes, recorder.record) if len(recorder.actions) else (None,) * 3
        self._run(kernels.play_episodes, tasks[0], named, None, (ended, finite, slots, *written), len(work))
        results, place, row = list[Result](), 0, 0
        for task, (candidates, episodes), own in zip(tasks, counts, items, strict=True):
            which, rows = slice(place, place + len(own)), slice(row, row + candidates * episodes)
            good = finite[which].reshape(candidates, -1).min(axis=1) != 0
            of_task = Ended._make(array[rows] for array in ended)
            results.append(self._result(task, parents, of_task, good, int(slots[which].sum())))
            place, row = which.stop, rows.stop
        return self._recorded(tasks, parents, results, recorder) if len(recorder.actions) else results

    def _recorder(self, task: Task, count: int) -> Recorder | None:
        """Return what records episodes as tasks like this one ask for; None: the CPU's kernel had better do that."""
        if not (task.record_actions or task.record_transitions):
            return Recorder(actions_for(self._game, 0))
        recorder = Recorder(actions_for(self._game, self._steps * count))
        if task.record_transitions:
            recorder = Recorder.of_game(self._game, recorder.actions, count, self.network.outputs, self.network.memory)
        size = sum(array.nbytes for array in arrays_in((recorder.actions, recorder.record)))
        return recorder if count >= self.few and size <= MOST_RECORDED else None

    def _recorded(
        self, tasks: Sequence[Task], parents: NDArray[np.float32], results: Sequence[Result], recorder: Recorder
    ) -> list[Result]:
        """Return results with what was recorded; where there was no room for all of it, all is played again."""
        if not all(result.finite.all() for result in results):
            return self._play_on_cpu(tasks, parents)
        if (rows := sum(result.frames for result in results)) > len(recorder.actions):
            self._steps = rows * 5 // (4 * sum(result.lengths.size for result in results)) + 1
            return self._play_episodes(tasks, parents)
        whole, score = list[Result](), self._cpu.kernel.score  # which computes the outputs of what follows
        for task, result, (part, followed) in zip(
            tasks, results, of_episodes(recorder, self._game, results), strict=True
        ):
            self._cpu.take(task, 0, parents)
            progress = np.array([result.frames, result.lane_slots, result.frames, followed])
            ended = Ended(result.returns.reshape(-1), result.lengths.reshape(-1), result.episode_metrics)
            played = part.played(True, progress, ended, score)
            actions = tuple(played.actions) if task.record_actions else None
            with_them = replace(result, actions=actions, transitions=played.transitions)
            whole.append(with_them if played.finite else self._cpu.play(task, parents))
        return whole

    def _result(
        self, task: Task, parents: NDArray[np.float32], ended: Ended, good: NDArray[np.bool_], slots: int
    ) -> Result:
        """Return the result of episodes, of candidates of which some are `good`.  # [K]"""
        arrays = empty_result(len(good), len(ended.returns) // len(good), ended.episode_metrics.shape[1])
        found = {name: array.reshape(arrays[name].shape) for name, array in ended._asdict().items()}
        for k in np.flatnonzero(~good)[: None if self._game.masked else 1]:  # which names an episode of a broken game
            self._cpu.play(replace(task, weights=task.weights.some(slice(k, k + 1))), parents)
        if not are_finite(found["returns"]):
            assert isinstance(task.play, Episodes)
            self._game.check_returns(np.tile(task.play.seeds, len(good)), ended.returns, ended.lengths)
            good = good & [are_finite(row) for row in found["returns"]]
        for name, values in found.items():
            if good.all():
                arrays[name] = values
            else:
                arrays[name][good] = values[good]
        arrays["finite"][:] = good
        return Result(**arrays, frames=int(arrays["lengths"].sum(dtype=np.int64)), lane_slots=slots)

    def _play_segments(self, tasks: Sequence[Task], parents: NDArray[np.float32]) -> list[Result]:
        """Play segments of one candidate, as one of all their environments."""
        parts = [task.play for task in tasks if isinstance(task.play, Segment)]
        play = Segment(joined([part.envs for part in parts]), parts[0].horizon)
        count, horizon, memory = len(play.envs), play.horizon, self.network.memory
        written = SegmentBuffers(self._game, play, self.network.outputs, memory=memory)
        record, finite = written.recorder.record, np.zeros(-(-count // LANES), np.uint8)
        assert record is not None
        named = (*self._candidates(tasks[:1], parents), horizon, float(tasks[0].action_rule.epsilon))
        envs = (written.state, self._game.rules, written.envs, *self._actions_of(count))
        outputs = (written.recorder.actions, record, written.ended, finite)
        self._run(kernels.play_segment, tasks[0], named, envs, outputs, len(finite))
        if not finite.all():
            return self._play_on_cpu(tasks, parents)
        rows = np.flatnonzero(record.ends >= TRUNCATED)  # or SEGMENT_END
        for array in (record.followed, record.next_observations, record.next_action_masks):
            array[: len(rows)] = array[rows]
        self._cpu.take(tasks[0], 0, parents)
        whole = written.result(len(rows), 0, True, self._cpu.kernel.score)
        if not whole.finite.all():
            return self._play_on_cpu(tasks, parents)
        return list(of_envs(whole, [len(part.envs) for part in parts]))

    def _candidates(self, tasks: Sequence[Task], parents: NDArray[np.float32]) -> tuple[Any, ...]:
        """Return the network, published weights, and the names of candidates, as kernels take them first."""
        if parents is not self._published:
            self._device.drop(self._parents)
            self._published, self._parents = parents, np.ascontiguousarray(parents, np.float32).view(np.ndarray)
            self._keep(self._parents)
        kinds = {"rows": np.int32, "mates": np.int32, "keys": np.uint64, "sigmas": np.float32}
        named = (
            np.concatenate([getattr(task.weights, name) for task in tasks], dtype=kind) for name, kind in kinds.items()
        )
        source = tasks[0].weights
        return (*self._network, self._parents, *named, int(source.scale), CROSSOVERS[source.crossover])

    def _run(self, kernel: Callable[..., None], task: Task, named: Any, envs: Any, outputs: Any, work: int) -> None:
        """Launch a kernel for `work` candidates, or groups of environments; without `envs`, those of the device."""

        def arguments() -> list[Any]:
            buffers, own = self._buffers
            return [*named, *buffers, *(envs or own), *outputs, np.zeros(2, np.int32)]

        rule = RULES[task.action_rule.kind]
        which = kernel, rule, *map(type, outputs)
        if (program := self._programs.get(which)) is None:
            first = not self._programs
            source = source_of_game(kernel, self._game, rule, self._registers, self.network.memory > 0)
            program = self._programs[which] = self._device.program(source, arguments())
            if first:
                most = MOST_BYTES // (4 * (sum(self._floats) + LANES * self.network.memory))
                self._blocks = max(1, min(self._device.blocks(program, self._threads), most))
                self._buffers = self._buffers_of(self._blocks)
                self._keep(*arrays_in(self._buffers))
        results = arrays_in([*(envs or ()), *outputs])
        self._device.run(program, arguments(), min(work, self._blocks), self._threads, [*results], envs is None)

    def _buffers_of(self, blocks: int) -> tuple[Any, Any]:
        """Return the buffers of a number of blocks, and environments for all of their lanes."""
        count = blocks * LANES
        buffers = tuple(np.zeros((blocks, size), np.float32) for size in self._floats)
        envs = (
            self._game.make_state(count),
            self._game.rules,
            Envs.empty(count, self.network.memory),
            *self._actions_of(count),
        )
        return buffers, envs

    def _actions_of(self, count: int) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
        """Return which actions are allowed in environments, and a continuous action of each.  # [B, A]"""
        return np.ones((count, self._game.actions), np.int8), np.zeros((count, self._game.actions))

    def _keep(self, *arrays: NDArray[Any]) -> None:
        for array in arrays:
            self._device.keep(array)


class CudaPlayer(RolloutPlayer):
    """Plays tasks on a device; those that wait at the same time and are alike are one launch."""

    def __init__(self, rollouts: Sequence[CudaRollout], files: Any) -> None:
        """`rollouts` and `files` are as those of `RolloutPlayer`."""
        super().__init__(rollouts, files)
        self.together = self.play_all

    def play_all(self, tasks: Sequence[Task]) -> list[Result]:
        """Return the results of tasks, as `play` does."""
        launches = dict[Any, list[int]]()
        for number, task in enumerate(tasks):
            rollout, parents = self._of(task)
            launches.setdefault((id(rollout), task.weights.published, *rollout.alike(task, parents)), []).append(number)
        results: dict[int, Result] = {}
        for numbers in launches.values():
            rollout, parents = self._of(tasks[numbers[0]])
            results |= zip(numbers, rollout.play_alike([tasks[number] for number in numbers], parents), strict=True)
        return [results[number] for number in range(len(tasks))]


def _equal(one: Any, other: Any) -> bool:
    """Return whether two results, or parts of them, are equal in every bit."""
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if is_dataclass(one):
        return type(one) is type(other) and all(_equal(vars(one)[name], vars(other)[name]) for name in vars(one))
    return bool(one == other)
