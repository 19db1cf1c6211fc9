"""Workers are really killed, stopped and made to hang here, and nothing of it may show in the results."""

from __future__ import annotations

import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from evo.errors import DataError, ResourceError
from evo.evaluators import processes, serial
from evo.records import Episodes, Task, WeightSource
from evo.workers import fork_server
from evo.workers.channel import WorkerSpec, WorkerTraceback
from evo.workers.fork_server import Slot
from evo.workers.pool import Pool
from evo.workers.round import Round
from tests.helpers.sampling import sampled
from tests.helpers.specs import make, spec
from tests.workers.players import Job

Pools = Callable[..., Pool]


def children(pid: int) -> set[int]:
    """Return all living descendants of a process; zombies are dead."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def want(jobs: list[Job]) -> list[tuple[int, bytes]]:
    return [(10 * job.number, job.padding) for job in jobs]


@pytest.fixture
def pools() -> Iterator[Pools]:
    opened = []

    def opening(
        count: int = 2, player: str = "tests.workers.players:make", deadline: float = 10.0, prepare: str = ""
    ) -> Pool:
        pool = Pool(WorkerSpec(player, None, prepare, deadline=deadline), [{"SLOT": str(i)} for i in range(count)], 1)
        opened.append(pool)
        return pool

    yield opening
    for pool in opened:
        pool.close()


@pytest.mark.parametrize("count", sampled([1, 2, 3, 7], 1, 3))
def test_results_come_in_task_order_for_any_number_of_workers(pools: Pools, count: int) -> None:
    jobs = [Job(number, seconds=0.002 * (number * 7 % 5)) for number in range(40)]
    pool = pools(count)
    assert pool.map(jobs).results == want(jobs)
    assert pool.map(jobs[::-1]).results == want(jobs[::-1])
    assert pool.map([]).results == []


def test_no_process_is_left_after_close(pools: Pools) -> None:
    before = children(os.getpid())
    pool = pools(3)
    pool.map([Job(1), Job(2), Job(3)])
    assert len(children(os.getpid()) - before) == 4  # three workers and the fork_server
    pool.close()
    assert children(os.getpid()) == before
    pool.close()


@pytest.mark.parametrize("mischief", sampled(["kill", "exit", "abort", "memory"], 0, 3))
def test_a_worker_that_dies_changes_nothing(pools: Pools, tmp_path: Path, mischief: str) -> None:
    jobs = [Job(number, 0.001, mischief if number % 5 == 2 else "", tally=tmp_path) for number in range(20)]
    pool = pools(2)
    played = pool.map(jobs)
    assert played.results == want(jobs)
    assert played.effort.replaced == 4


@pytest.mark.parametrize("mischief", ["stop", "spin"])
def test_a_worker_that_hangs_is_replaced_after_its_deadline(pools: Pools, tmp_path: Path, mischief: str) -> None:
    jobs = [Job(number, 0.001, mischief if number == 3 else "", tally=tmp_path) for number in range(8)]
    pool = pools(2, deadline=1.0)
    began = time.monotonic()
    played = pool.map(jobs)
    assert played.results == want(jobs)
    assert played.effort.replaced == 1
    assert 1 < time.monotonic() - began < 10


def test_slow_tasks_are_not_taken_for_hung_ones(pools: Pools) -> None:
    jobs = [Job(number, seconds=0.5) for number in range(4)]  # longer than the shortest deadline: it has to grow
    pool = pools(2, deadline=0.2)
    played = pool.map(jobs)
    assert played.results == want(jobs)
    played = pool.map(jobs)
    assert played.results == want(jobs)
    assert played.effort.replaced == 0


@pytest.mark.parametrize("mischief", sampled(["kill", "exit", "memory"], 1))
def test_a_task_that_always_ends_its_worker_is_named(pools: Pools, tmp_path: Path, mischief: str) -> None:
    jobs = [Job(number, 0.0, mischief if number == 4 else "", times=99, tally=tmp_path) for number in range(6)]
    pool = pools(2)
    reason = {"kill": "killed by SIGKILL at [0-9]+ MB", "exit": "status 0", "memory": "out of memory"}[mischief]
    with pytest.raises(ResourceError, match=rf"task 5 of 6 has ended its worker 3 times.*{reason}.*job 4") as caught:
        pool.map(jobs)
    assert caught.value.exit_code == 5
    assert pool.map(jobs[:4]).results == want(jobs[:4])


@pytest.mark.long
def test_a_task_that_waits_behind_a_fatal_one_is_not_to_blame(pools: Pools, tmp_path: Path) -> None:
    spec = WorkerSpec("tests.workers.players:make", None, deadline=10.0)
    with Pool(spec, [{}, {}], attempts=2) as pool:  # each may do it once
        jobs = [Job(number, 0.002, "kill", tally=tmp_path) for number in range(12)]
        played = pool.map(jobs)
        assert played.results == want(jobs)
        assert played.effort.replaced == 12


def absent(pool: Pool, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Keep the master from looking for results, once, for so long."""
    receive, due = pool._receive, [seconds]

    def wait(now: Round) -> list[tuple[Slot, str]]:
        time.sleep(due.pop() if due else 0.0)
        return receive(now)

    monkeypatch.setattr(pool, "_receive", wait)


def test_a_worker_goes_on_with_its_prefetched_task_while_the_master_is_at_something_else(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pools(1)
    pool.map([Job(0)])
    absent(pool, monkeypatch, 0.6)
    jobs = [Job(number, seconds=0.25) for number in range(4)]
    played = pool.map(jobs)
    assert played.results == want(jobs)
    assert played.effort.seconds < 1.25  # one task alone would make it 1.35


@pytest.mark.parametrize(("buffer", "padding"), [(0, 1 << 21), (8192, 60_000)])
def test_tasks_and_results_that_no_socket_holds_block_nobody(
    pools: Pools, monkeypatch: pytest.MonkeyPatch, buffer: int, padding: int
) -> None:
    def narrow() -> tuple[socket.socket, socket.socket]:
        pair = socket.socketpair()
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        return pair

    if buffer:
        monkeypatch.setattr(fork_server, "_sockets", narrow)
    jobs = [Job(number, 0.01, padding=bytes(padding)) for number in range(12)]
    pool = pools(2, deadline=5.0)
    played = pool.map(jobs)
    assert played.results == want(jobs)
    assert played.effort.replaced == 0


def test_what_a_worker_has_sent_counts_also_where_it_is_gone_when_its_next_task_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = WorkerSpec("tests.workers.players:make", None)
    with Pool(spec, [{}], 1, attempts=1) as pool:  # nothing may be its fault
        pool.map([Job(0)])
        sends, killed = pool._prefetch, []

        def send(now: Round) -> None:
            if not killed:
                killed.append(pool.pids[0])
                time.sleep(0.1)  # it has answered by now
                os.kill(killed[0], signal.SIGKILL)
                threads = Path(f"/proc/{killed[0]}/task")
                assert until(lambda: not alive(killed[0]) and len(list(threads.iterdir())) < 2, 5)
            sends(now)

        monkeypatch.setattr(pool, "_prefetch", send)
        jobs = [Job(number) for number in range(6)]
        played = pool.map(jobs)
        assert played.results == want(jobs)
        assert played.effort.replaced == 1


def test_after_a_failure_with_a_prefetched_task_the_next_round_begins_at_once(
    pools: Pools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pools(1)
    pool.map([Job(0)])
    absent(pool, monkeypatch, 0.3)  # both answers are there when the first is received
    with pytest.raises(ZeroDivisionError):
        pool.map([Job(0, 0.0, "bug", tally=tmp_path), *(Job(number) for number in range(1, 6))])
    began = time.monotonic()
    played = pool.map([Job(7)])
    assert played.results == [(70, b"")]
    assert time.monotonic() - began < 10
    assert played.effort.replaced == 0


def test_all_workers_killed_at_once_while_playing_change_nothing(pools: Pools) -> None:
    jobs = [Job(number, 0.02) for number in range(30)]
    pool = pools(3)
    pool.map(jobs[:3])

    def kill_all() -> None:
        time.sleep(0.1)
        for pid in pool.pids:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_all)
    killer.start()
    played = pool.map(jobs)
    assert played.results == want(jobs)
    killer.join()
    assert played.effort.replaced == 3


def test_workers_killed_between_rounds_change_nothing(pools: Pools) -> None:
    jobs = [Job(number) for number in range(6)]
    pool = pools(2)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        assert pool.map(jobs).results == want(jobs)
        for pid in pool.pids:
            os.kill(pid, number)
        assert until(lambda: not any(map(alive, pool.pids)), 2)


def test_random_kills_and_stops_change_nothing(pools: Pools) -> None:
    jobs = [Job(number, 0.004) for number in range(150)]
    pool = pools(2, deadline=1.5)
    pool.map(jobs[:2])
    done = threading.Event()
    draw = random.Random(1)
    faults = []

    def torment() -> None:
        before = 0.0
        while len(faults) < 8 and not done.wait(0.01):
            busy = sum(pool._now.busy.values())
            if busy - before > 0.03:  # some tasks since the last fault, so none meets three of them
                before = busy
                faults.append(draw.choice(pool.pids))
                if faults[-1]:
                    os.kill(faults[-1], draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]))

    tormentor = threading.Thread(target=torment)
    tormentor.start()
    try:
        assert pool.map(jobs).results == want(jobs)
    finally:
        done.set()
        tormentor.join()
    assert len(faults) >= 3


def test_the_process_that_starts_workers_may_be_killed_too(pools: Pools) -> None:
    jobs, before = [Job(number, 0.02) for number in range(20)], children(os.getpid())
    pool = pools(2)
    pool.map(jobs[:2])
    (fork_server,) = children(os.getpid()) - before - set(pool.pids)

    def kill_it() -> None:
        time.sleep(0.1)
        os.kill(fork_server, signal.SIGKILL)

    killer = threading.Thread(target=kill_it)
    killer.start()
    assert pool.map(jobs).results == want(jobs)
    killer.join()
    assert not alive(fork_server)
    os.kill(pool.pids[0], signal.SIGKILL)
    assert pool.map(jobs).results == want(jobs)


def test_a_result_torn_by_a_stop_does_not_block_the_master(pools: Pools) -> None:
    big = [Job(number, padding=bytes(3_000_000)) for number in range(6)]  # more than a socket takes at once
    pool = pools(2, deadline=1.5)
    assert pool.map(big).results == want(big)
    done = threading.Event()

    def stop_often() -> None:
        for _ in range(2):
            if done.wait(0.01):
                return
            os.kill(pool.pids[0], signal.SIGSTOP)

    stopper = threading.Thread(target=stop_often)
    stopper.start()
    try:
        assert pool.map(big * 3).results == want(big * 3)
    finally:
        done.set()
        stopper.join()


def test_a_respawned_worker_keeps_its_slot(pools: Pools) -> None:
    pool = pools(3, "tests.workers.players:make_where")
    assert {tuple(values) for _, values in pool.map([["SLOT"]] * 30).results} <= {("0",), ("1",), ("2",)}
    old = list(pool.pids)
    os.kill(old[1], signal.SIGKILL)
    assert until(lambda: not alive(old[1]), 2)
    where: dict[int, str] = {}

    def play() -> bool:  # the others may play everything before anybody misses the third
        where.update({pid: values[0] for pid, values in pool.map([["SLOT"]] * 60).results})
        return pool.pids[1] != old[1]

    assert until(play, 10)
    assert pool.pids[0] == old[0]
    assert pool.pids[2] == old[2]
    assert all(where[pid] == str(slot) for slot, pid in enumerate(pool.pids) if pid in where)


def test_threads_are_limited_in_a_worker(pools: Pools) -> None:
    pool = pools(1, "tests.workers.players:make_where")
    ((_, values),) = pool.map([["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"]]).results
    assert values == ["1", "1"]


def test_an_error_of_ours_keeps_its_kind_and_carries_the_workers_traceback(pools: Pools, tmp_path: Path) -> None:
    pool = pools(2)
    jobs = [Job(number, 0.0, "data_error" if number == 2 else "", tally=tmp_path) for number in range(5)]
    with pytest.raises(DataError, match="row 7 is not there") as caught:
        pool.map(jobs)
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in _data_error" in str(caught.value.__cause__)
    assert pool.map(jobs).results == want(jobs)  # late answers of the round that failed do not disturb the next


def test_a_bug_in_a_worker_is_raised_as_it_is(pools: Pools, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="in a worker") as caught:
        pools(1).map([Job(1, mischief="bug", tally=tmp_path)])
    assert "players.py" in str(caught.value.__cause__)


@pytest.mark.long
def test_a_player_that_cannot_be_made_is_an_error_not_a_loop(pools: Pools) -> None:
    with pytest.raises(DataError, match="no such thing"):
        pools(2, "tests.workers.players:make_broken").map([Job(1)])
    with pytest.raises(DataError, match="cannot prepare"):
        pools(2, prepare="tests.workers.players:prepare_broken").map([Job(1)])
    with pytest.raises(ResourceError, match=r"lost 10 times in a row.*exited with status 7"):
        pools(2, "tests.workers.players:make_dying").map([Job(1)])


def test_workers_with_different_arithmetic_are_refused() -> None:
    slots = [{"STAND_IN_FINGERPRINT": name} for name in ("a", "b")]
    pool = Pool(WorkerSpec("tests.workers.players:make", None), slots)
    try:
        with pytest.raises(ResourceError, match="compute differently"):
            pool.map([Job(number, 0.05) for number in range(8)])
    finally:
        pool.close()


def test_effort_measures_how_busy_the_workers_were(pools: Pools) -> None:
    pool = pools(2)
    pool.map([Job(0), Job(1)])
    effort = pool.map([Job(number, 0.05) for number in range(8)]).effort
    assert len(effort.busy) == 2
    assert sum(effort.busy) == pytest.approx(8 * 0.05, rel=0.5)
    assert 0.5 < sum(effort.busy) / (2 * effort.seconds) <= 1


def test_effort_adds_up_the_processor_time_of_workers_and_not_the_time_that_they_sleep(pools: Pools) -> None:
    pool = pools(1)
    pool.map([Job(0)])
    effort = pool.map([Job(number, 0.03, computing=0.02) for number in range(8)]).effort
    assert 8 * 0.02 <= effort.cpu_seconds < 8 * 0.02 + 0.06


def test_a_master_that_stood_still_takes_no_worker_for_hung(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pools(1, deadline=1.0)
    pool.map([Job(0)] * 20)
    select, due = selectors.DefaultSelector.select, [1.5]

    def stopped(selector: selectors.DefaultSelector, timeout: float) -> object:
        time.sleep(due.pop() if due else 0.0)
        return select(selector, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", stopped)
    played = pool.map([Job(1, seconds=2.0)])
    assert played.results == [(10, b"")]
    assert played.effort.replaced == 0


def test_closing_a_pool_that_is_still_starting_does_not_wait_for_it(pools: Pools) -> None:
    before = children(os.getpid())
    pool = pools(2, prepare="tests.workers.players:prepare_slowly")
    time.sleep(0.3)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 1
    assert children(os.getpid()) == before


def snake_tasks() -> list[Task]:
    """Return tasks of fresh candidates that cost different amounts of time."""
    tasks = []
    for first in range(0, 30, 3):
        keys = np.arange(first, first + 3, dtype=np.uint64)
        minus = np.full(3, -1, np.int32)
        source = WeightSource(minus, minus, keys, np.zeros(3, np.float32))
        tasks.append(Task(source, Episodes(np.arange(20 + first, dtype=np.uint64))))
    return tasks


@pytest.mark.parametrize("count", sampled([1, 2, 3], 1))
def test_serial_and_any_number_of_workers_give_the_same_results_of_snake(tmp_path: Path, count: int) -> None:
    environment = {"id": "snake", "size": 6, "starvation": 30}
    context = spec(tmp_path, environment, {"conv": [[4, 3, 2]], "dense": [8]}, {"count": count})
    reference = make(serial, context).map(snake_tasks()).results
    with make(processes, context) as pool:
        for killed in (False, True):
            if killed:
                os.kill(pool.pids[-1], signal.SIGKILL)
            for result, wanted in zip(pool.map(snake_tasks()).results, reference, strict=True):
                for name in ("returns", "lengths", "episode_metrics", "finite"):
                    np.testing.assert_array_equal(getattr(result, name), getattr(wanted, name))
                assert (result.frames, result.lane_slots) == (wanted.frames, wanted.lane_slots)
    assert len({result.frames for result in reference}) > 5


def test_a_worker_starts_quickly_and_stays_small(tmp_path: Path) -> None:
    context = spec(tmp_path, {"id": "snake"}, {}, {"count": 1})
    with make(processes, context) as pool:
        pool.map(snake_tasks()[:1])
        size = next(line for line in Path(f"/proc/{pool.pids[0]}/status").read_text().splitlines() if "VmRSS" in line)
        assert int(size.split()[1]) < 200_000  # kilobytes
        os.kill(pool.pids[0], signal.SIGKILL)
        began = time.monotonic()
        pool.map(snake_tasks()[:1])
        assert time.monotonic() - began < 1


MASTER = """
import sys, time
from tests.workers.players import Job
from evo.workers.pool import Pool
from evo.workers import fork_server
from evo.workers.round import Round
from evo.workers.channel import WorkerSpec
pool = Pool(WorkerSpec("tests.workers.players:make", None), [{{}}, {{}}])
pool.map([Job(1), Job(2)])
print(*pool.pids, flush=True)
{then}
"""
ROOT = Path(__file__).parents[2]


def master(then: str, **options: object) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    script = MASTER.format(then=then)
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment, **options
    )  # type: ignore[call-overload, no-any-return]


def assert_gone_when_killed(process: subprocess.Popen[str]) -> None:
    """Kill a master that prints the pids of its workers; check that none of its family is left two seconds later."""
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    family = children(process.pid)
    assert set(pids) < family
    process.kill()
    process.wait()
    assert until(lambda: not any(alive(pid) for pid in family), 2.0)


@pytest.mark.parametrize("busy", ["", "spin", "hold"])
def test_workers_are_gone_within_two_seconds_of_the_masters_death(tmp_path: Path, busy: str) -> None:
    jobs = f"[Job(n, 60, {busy!r}, tally=__import__('pathlib').Path({str(tmp_path)!r})) for n in range(2)]"
    with master(f"pool.map({jobs})") as process:
        assert_gone_when_killed(process)


def test_ctrl_c_reaches_the_master_alone() -> None:
    interrupted = "print(*pool.pids, flush=True)\n    pool.close()"
    then = f"try:\n    pool.map([Job(n, 30) for n in range(2)])\nexcept KeyboardInterrupt:\n    {interrupted}"
    with master(then, start_new_session=True, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == first  # no worker had died of it
        assert process.wait(2) == 0
        assert process.stderr.read() == ""


@pytest.mark.long
def test_ctrl_c_while_workers_start_prints_nothing_of_theirs() -> None:
    then = "pool = Pool(WorkerSpec('tests.workers.players:make', None), [{}])\nprint('now', flush=True)\ntime.sleep(9)"
    for pause in (0.0, 0.02, 0.05, 0.1):
        with master(then, start_new_session=True, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.readline()
            time.sleep(pause)
            os.killpg(process.pid, signal.SIGINT)
            assert process.stderr.read().count("KeyboardInterrupt") == 1  # the master's own


def test_workers_print_on_standard_error(tmp_path: Path) -> None:
    job = f"Job(1, 0, 'print', tally=__import__('pathlib').Path({str(tmp_path)!r}))"
    with master(f"pool.map([{job}])\npool.close()", stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=20)
    assert len(out.splitlines()) == 1
    assert "belongs on standard error" in err


@pytest.mark.parametrize("how", sampled(["script", "stdin"]))
def test_a_script_without_a_main_guard_and_a_session_without_a_file_work(tmp_path: Path, how: str) -> None:
    script = MASTER.format(then="print(pool.map([Job(3)]).results)\npool.close()")
    path = tmp_path / "no_guard.py"
    path.write_text(script)
    command = [sys.executable, str(path)] if how == "script" else [sys.executable, "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.splitlines()[1:] == ["[(30, b'')]"]
    assert done.stderr == ""
