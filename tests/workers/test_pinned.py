"""Workers on devices of their own: what they say of themselves, and what becomes of one whose device is too small."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.errors import DeviceError, DeviceMemoryError
from evo.records import Episodes, Task, WeightSource
from evo.workers import worker
from evo.workers.channel import WorkerSpec
from evo.workers.fork_server import TOGETHER
from evo.workers.hardware import VISIBLE
from evo.workers.placement import CUDA_PLAYER
from evo.workers.pool import Pool
from tests.evaluators.test_evaluators import assert_gone_when_killed, children, master, want
from tests.helpers.sampling import sampled
from tests.helpers.specs import spec
from tests.workers.players import Job

Pools = Callable[..., Pool]
STARTS = ["forkserver", "spawn"]


@pytest.fixture
def pools() -> Iterator[Pools]:
    opened = []

    def opening(player: str, slots: list[dict[str, str]], start: str = "forkserver", context: Any = None) -> Pool:
        prepare = "evo.player:prepare" if context is not None else ""
        opened.append(Pool(WorkerSpec(player, context, prepare, start), slots))
        return opened[-1]

    yield opening
    for pool in opened:
        pool.close()


@pytest.mark.parametrize("start", STARTS)
def test_a_worker_s_real_environment_is_that_of_its_slot(pools: Pools, start: str) -> None:
    pool = pools("tests.workers.players:make_real_environment", [{VISIBLE: "3"}, {VISIBLE: "MIG-ab"}], start)
    told = {pid: seen for pid, *seen in pool.map([VISIBLE] * 12).results}
    for pid, wanted in zip(pool.pids, ("3", "MIG-ab"), strict=True):
        if pid in told:
            compiled, begun = told[pid]
            assert compiled == wanted
            assert (begun == wanted) == (start == "spawn")  # a forked one was begun as the fork_server was
    assert told


@pytest.mark.long
@pytest.mark.parametrize("start", STARTS)
def test_tensorflow_is_imported_once_for_all_workers_that_are_forked(pools: Pools, tmp_path: Path, start: str) -> None:
    context = spec(tmp_path, {"id": "snake"}, {"inference": "tensorflow"}, {}, "tensorflow")
    pool = pools("tests.workers.players:make_at_start", [{VISIBLE: "-1"}] * 2, start, context)
    there = ["tensorflow", "keras"] if start == "forkserver" else []
    assert pool.map([["tensorflow", "keras"]] * 4).results == [there] * 4


def test_a_worker_s_first_words_are_its_device_process_and_memory_and_are_passed_on_once(pools: Pools) -> None:
    pool = pools("tests.workers.players:make_with_room", [{VISIBLE: "0"}, {VISIBLE: "0"}, {VISIBLE: "1"}])
    played = pool.map([Job(number, 0.05) for number in range(12)])
    first, second, third = pool.pids
    one, two = played.notices
    assert one.startswith(f"2 workers on GPU 0 (Stand-in): processes {first}, {second}, ")
    assert two.startswith(f"1 worker on GPU 1 (Stand-in): process {third}, ")
    assert 5 < int(two.split(", ")[1].split()[0]) < 500
    assert pool.map([Job(1)]).notices == []


@pytest.mark.parametrize("room", ["none", "little"])
def test_a_slot_whose_device_is_too_small_is_given_up_and_nothing_else_changes(pools: Pools, room: str) -> None:
    jobs = [Job(number, 0.02) for number in range(12)]
    pool = pools("tests.workers.players:make_with_room", [{VISIBLE: "0"}, {VISIBLE: "1", "ROOM": room}, {VISIBLE: "0"}])
    first, second = pool.map(jobs), pool.map(jobs)
    assert first.results == second.results == want(jobs)
    (line,) = [notice for played in (first, second) for notice in played.notices if "gives up" in notice]
    assert line.startswith("worker 1 (process ")
    assert "on GPU 1 gives up: out of memory on the Stand-in: OOM" in line
    assert line.endswith("; 2 go on without it")
    assert len(pool.pids) == 2
    assert first.effort.replaced == second.effort.replaced == 0


@pytest.mark.parametrize("room", ["none", "little"])
def test_where_every_device_is_too_small_the_run_ends_with_one_line(pools: Pools, room: str) -> None:
    pool = pools("tests.workers.players:make_with_room", [{VISIBLE: "0", "ROOM": room}] * 2)
    with pytest.raises(
        DeviceMemoryError, match=r"on GPU 0 gives up: .*; no worker is left. Give each more memory"
    ) as end:
        pool.map([Job(1), Job(2)])
    assert end.value.exit_code == 5


LOST = {  # how a GPU fails: workers that were replaced, and what a line says where its slot is given up
    "once": (1, ""),
    "while it starts": (0, "has lost its GPU: an illegal memory access (700)"),
    "always": (2, "has lost its GPU: an illegal memory access (700)"),
    "for good": (1, "has lost its GPU: an illegal memory access (700)"),
    "hangs": (1, "cannot start again: workers cannot start: for 0.5 seconds (see workers.deadline) "),
}


def on_gpu(marks: Path, fails: str, others: int) -> Pool:
    slots = [{VISIBLE: "0", CUDA_PLAYER: "1", "GPU_FAILS": fails}, *[{}] * others]
    return Pool(WorkerSpec("tests.workers.players:make_on_gpu", str(marks), deadline=0.5), slots)


@pytest.mark.parametrize("fails", sampled(LOST))
def test_the_tasks_of_a_gpu_that_is_lost_or_hangs_are_played_on_cpus(tmp_path: Path, fails: str) -> None:
    jobs = [Job(number, 0.05) for number in range(24)]
    replaced, why = LOST[fails]
    with on_gpu(tmp_path, fails, 2) as pool:
        played = pool.map(jobs[:3])
        lines, count = [*played.notices], played.effort.replaced
        while len(pool.pids) > 3 - bool(why) or count < replaced:
            played = pool.map(jobs)
            assert played.results == want(jobs)
            lines, count = [*lines, *played.notices], count + played.effort.replaced
        assert count == replaced
        given_up = [line for line in lines if "gives up" in line]
        if why:
            assert given_up[0].startswith("worker 0 (process ")
            assert f"on GPU 0 gives up: it {why}" in given_up[0]
            assert given_up[0].endswith("; 2 go on without it")
        else:
            assert not given_up


@pytest.mark.parametrize(
    ("fails", "others", "said"),
    sampled(
        [
            ("always", 0, "it has lost its GPU: .*; no worker is left. Play on CPUs"),
            ("while it starts", 0, "it has lost its GPU: .*; no worker is left. Play on CPUs"),
            ("bits", 0, "the bits"),
            ("absent", 2, "no GPU for CUDA_VISIBLE_DEVICES = '0'"),  # a mistake, which no other worker makes good
        ]
    ),
)
def test_where_no_worker_is_left_or_a_gpu_is_absent_or_has_other_bits_the_run_ends_with_5(
    tmp_path: Path, fails: str, others: int, said: str
) -> None:
    with on_gpu(tmp_path, fails, others) as pool, pytest.raises(DeviceError, match=said) as end:
        pool.map([Job(number, 0.05) for number in range(400)])  # it ends as soon as the first worker has started
    assert end.value.exit_code == 5


def test_a_gpu_plays_at_once_what_waits_for_it_and_goes_on_after_a_failure(tmp_path: Path) -> None:
    jobs = [Job(number, 0.02) for number in range(60)]
    slots = [{VISIBLE: "0", CUDA_PLAYER: "1"}, {}]
    with Pool(WorkerSpec("tests.workers.players:make_together", None), slots) as pool:
        while not all((played := pool.map(jobs)).effort.busy):  # once both workers have begun
            pass
        assert [number for number, _ in played.results] == [10 * job.number for job in jobs]
        at_once = {len(count) for _, count in played.results}
        assert 2 < max(at_once) <= TOGETHER
        with pytest.raises(ZeroDivisionError):
            pool.map([*jobs[:20], Job(20, 0.0, "bug", tally=tmp_path), *jobs[21:]])
        assert [number for number, _ in pool.map(jobs).results] == [10 * job.number for job in jobs]
        assert pool.map(jobs).effort.replaced == 0


def test_a_process_that_a_driver_holds_after_it_was_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    child, kill = os.posix_spawn("/bin/sleep", ["sleep", "60"], {}), os.kill
    monkeypatch.setattr(worker, "LATEST", 0.1)
    monkeypatch.setattr(os, "kill", lambda *_: None)  # as of a process in an uninterruptible call
    assert str(worker._end(child)).startswith("was killed by SIGKILL")
    kill(child, signal.SIGKILL)
    assert worker._end(child).status == -signal.SIGKILL


def test_a_worker_s_notices_are_passed_on_with_its_name(pools: Pools) -> None:
    pool = pools("tests.workers.players:make_with_room", [{VISIBLE: "2", "ROOM": "half"}])
    notices = [notice for notice in pool.map([Job(1), Job(2)]).notices if "half" in notice]
    assert notices == [f"worker 0 (process {pool.pids[0]}, GPU 2): half of job {number}" for number in (1, 2)]


def test_spawned_workers_are_replaced_and_leave_nobody_behind(pools: Pools, tmp_path: Path) -> None:
    before = children(os.getpid())
    jobs = [Job(number, 0.01, "kill" if number == 3 else "", tally=tmp_path) for number in range(10)]
    pool = pools("tests.workers.players:make", [{}, {}], "spawn")
    played = pool.map(jobs)
    assert played.results == want(jobs)
    assert played.effort.replaced == 1
    os.kill(pool.pids[0], signal.SIGKILL)
    assert pool.map(jobs).results == want(jobs)
    pool.close()
    assert children(os.getpid()) == before


def test_spawned_workers_are_gone_soon_after_their_master() -> None:
    then = (
        "pool.close(); pool = Pool(WorkerSpec('tests.workers.players:make', None, '', 'spawn'), [{}, {}]);"
        "pool.map([Job(1), Job(2)]); print(*pool.pids, flush=True); pool.map([Job(n, 60) for n in range(2)])"
    )
    with master(then) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert_gone_when_killed(process)


@pytest.mark.parametrize("start", STARTS)
def test_who_ignores_the_end_of_children_has_workers_and_sees_no_traceback(start: str) -> None:
    then = (
        "import os, signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); pool.close();"
        f"pool = Pool(WorkerSpec('tests.workers.players:make', None, '', {start!r}), [{{}}, {{}}]);"
        "pool.map([Job(1), Job(2)]); os.kill(pool.pids[0], signal.SIGKILL);"
        "assert len(pool.map([Job(3), Job(4)]).results) == 2; pool.close()"
    )
    with master(then, stderr=subprocess.PIPE) as process:
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 0
    assert "Error" not in told


def fresh(count: int) -> Task:
    minus = np.full(count, -1, np.int32)
    source = WeightSource(minus, minus, np.arange(count, dtype=np.uint64), np.zeros(count, np.float32))
    return Task(source, Episodes(np.arange(8, dtype=np.uint64)))


@pytest.mark.long
def test_a_device_that_cannot_hold_the_network_is_given_up(pools: Pools, tmp_path: Path) -> None:
    limit = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "16"}  # a real limit
    policy = {"conv": [[32, 3, 1], [32, 3, 1]], "dense": [4096], "inference": "tensorflow"}
    context = spec(tmp_path, {"id": "snake", "size": 6, "starvation": 12, "window": 7}, policy, None, "tensorflow")
    pool = pools("evo.player:make_player", [{VISIBLE: "-1", **limit}], context=context)
    message = "worker 0 .* on the CPU gives up: out of memory on the CPU: OOM when allocating tensor with shape"
    with pytest.raises(DeviceMemoryError, match=message):
        pool.map([fresh(16)])
