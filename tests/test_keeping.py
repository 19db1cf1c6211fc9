"""What survives is written by workers, into the file that they read next, whatever meets them on the way."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import SMALL, called, summary_of
from committing import IDENTITY, commit, straight
from numpy.typing import NDArray
from players import Job
from test_evaluators import Pools, pools, want  # noqa: F401
from test_store import small_disk

from evo.errors import PoisonError, ResourceError
from evo.evaluators.processes import Processes
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network, Options
from evo.records import Rebuild, WeightSource
from evo.rollouts.published_weights import PublishedFiles
from evo.store import store as stores
from evo.store.published import ROOM, SPARE, Published
from evo.store.store import Store
from evo.training import generation
from evo.workers.deadlines import Pace

NETWORK = Network.build(Options(kind="mlp", dense=[30]), (5, 5, 5), 3)
LARGE = Network.build(Options(kind="mlp", dense=[3000]), (5, 5, 5), 3)  # a row is more than a worker writes at once


def matrix(rows: int, seed: int = 1, network: Network = NETWORK) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, network.size)).astype(np.float32)


def children_of(parents: int, count: int, published: str) -> WeightSource:
    """Name mutated candidates, of which the first is its parent."""
    rows = np.arange(count, dtype=np.int32) % parents
    sigmas = np.linspace(0, 0.5, count, dtype=np.float32)
    return WeightSource(rows, rows * 0 - 1, np.arange(count, dtype=np.uint64), sigmas, published=published)


def filled(store: Store | Published, weights: NDArray[np.float32], directory: Path) -> NDArray[np.float32]:
    """Let rows be written by somebody else, the last one first."""
    room = store.room(*weights.shape)
    with open(directory / room.name, "r+b") as file:
        for k in reversed(range(len(weights))):
            file.seek(room.offset + weights[k].nbytes * k)
            file.write(weights[k].tobytes())
    return store.filled(room, [hashlib.sha256(row.data).digest() for row in weights])


def files(directory: Path) -> list[str]:
    return sorted(os.listdir(directory / "published"))


# The file


@pytest.mark.parametrize("network", [NETWORK, LARGE], ids=["small", "large"])
def test_a_matrix_that_others_have_written_is_the_published_file_to_the_byte(tmp_path: Path, network: Network) -> None:
    weights = matrix(5, network=network)
    with Store.create(tmp_path / "a", "", IDENTITY) as store, Store.create(tmp_path / "b", "", IDENTITY) as other:
        there = filled(store, weights, tmp_path / "a")
        assert there.tobytes() == weights.tobytes()
        assert not there.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            there.setflags(write=True)
        before = os.stat(tmp_path / "a" / "published" / files(tmp_path / "a")[0])
        name = store.publish(there)
        assert name == other.publish(weights)
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        after = os.stat(tmp_path / "a" / name)
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)  # nothing was written again
        for each, rows in ((store, there), (other, weights)):
            each.commit(0, {"weights": rows}, {}, {})
        assert store.state_hash == other.state_hash
        assert np.array_equal(store.load()["weights"], weights)
    assert files(tmp_path / "a") == files(tmp_path / "b") == []


def test_a_file_is_written_over_once_nobody_looks_into_it_and_never_before(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    published, inodes, opened = Published(tmp_path), [], []
    held = filled(published, matrix(4, 0), tmp_path)
    for seed in range(1, 9):
        there = filled(published, matrix(4, seed), tmp_path)
        assert there.tobytes() == matrix(4, seed).tobytes()
        opened.append(os.open(tmp_path / published.add(there), os.O_RDONLY))  # so that its number is no other's later
        inodes.append(os.fstat(opened[-1]).st_ino)
    assert held.tobytes() == matrix(4, 0).tobytes()
    assert 2 < len(set(inodes)) < 6
    for descriptor in opened:
        os.close(descriptor)
    assert len(files(tmp_path)) == 3  # the last two, and the one that is next
    del held
    other = filled(published, matrix(7, 0), tmp_path)  # of another size
    assert other.tobytes() == matrix(7, 0).tobytes()
    published.clear()
    assert files(tmp_path) == []


def test_who_has_mapped_a_file_sees_another_one_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    published, reader, last = Published(tmp_path), PublishedFiles(tmp_path, keep=2), None
    seen = []
    for seed in (0, 1, 2, 3, 0):  # the same weights come again, after their former file has become another's
        last = filled(published, matrix(4, seed), tmp_path)
        name = published.add(last)
        seen.append(os.stat(tmp_path / name).st_ino)
        if seed == 0:
            assert np.array_equal(reader.matrix(name, NETWORK.size), matrix(4, 0))
    assert last is not None
    assert seen[3] == seen[0] != seen[4]


def test_a_place_that_somebody_has_cleared_away_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    published = Published(tmp_path)
    for seed in range(4):
        there = filled(published, matrix(4, seed), tmp_path)
        published.add(there)
    (tmp_path / SPARE).unlink()
    assert filled(published, matrix(4, 9), tmp_path).tobytes() == matrix(4, 9).tobytes()


def test_equal_rows_are_the_same_file_and_both_matrices_stay(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    published = Published(tmp_path)
    one, other = (filled(published, matrix(4), tmp_path) for _ in range(2))
    assert published.add(one) == published.add(other)
    third = filled(published, matrix(4, 2), tmp_path)
    assert one.tobytes() == other.tobytes() == matrix(4).tobytes() != third.tobytes()


def test_what_workers_have_hashed_is_hashed_by_nobody_else(tmp_path: Path) -> None:
    digests = [bytes([k] * 32) for k in range(4)]  # those of no row, so one that is made again would show
    whole = hashlib.sha256(b"".join(digests)).hexdigest()
    with Store.create(tmp_path / "run", "", IDENTITY) as store:
        there = store.filled(store.room(4, LARGE.size), digests)
        store.commit(0, {"weights": there}, {}, {})
        assert store.lines[0].arrays["state/weights"].sha256 == whole
        store.publish(matrix(1, network=LARGE))  # as where a champion is measured
        assert store.publish(there) == f"published/{whole}.h5"


# Who writes


def test_a_worker_writes_what_rebuilding_gives_from_anywhere_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    published, reader, rebuilder = Published(tmp_path), PublishedFiles(tmp_path), Rebuilder(NETWORK)
    parents = matrix(3)
    source = children_of(3, 8, published.add(parents))
    room = published.room(8, NETWORK.size)
    digests = []
    for part in (slice(0, 3), slice(3, 8)):
        offset = room.offset + 4 * NETWORK.size * part.start
        digests += reader.rebuild(Rebuild(source.some(part), room.name, offset), rebuilder)
    there, row = published.filled(room, digests), np.empty(NETWORK.size, np.float32)
    for k in range(8):
        rebuilder.rebuild(parents, source, k, row)
        assert there[k].tobytes() == row.tobytes()
        assert digests[k] == hashlib.sha256(row.tobytes()).digest()


@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_the_master_rebuilds_no_survivor_and_what_they_are_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    words = ("small.toml", "--backend", backend, "--workers", 2, "--set", "validation.every=100")
    kept: list[Any] = []
    paced: list[int] = []
    real = generation._kept
    monkeypatch.setattr(Pace, "note", lambda pace, seconds, size: paced.append(size))

    def noted(*those: Any) -> Any:
        kept.append(real(*those))
        return kept[-1]

    with monkeypatch.context() as patched:
        patched.setattr(generation, "_kept", noted)
        patched.setattr(generation, "PART", 1000)  # several tasks
        by_workers = summary_of(tmp_path, *words, "--run-dir", "workers")
    assert len(kept) == 4
    assert all(weights is not None for weights in kept)
    assert min(paced, default=4) >= 4  # of episodes, and never of a survivor
    monkeypatch.setattr(generation, "_kept", lambda *those: None)
    by_master = summary_of(tmp_path, *words, "--run-dir", "master")
    assert by_workers["state_hash"] == by_master["state_hash"]


def test_workers_that_are_killed_while_they_write_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.setattr(generation, "PART", 1000)
    wanted = summary_of(tmp_path, "small.toml", "--run-dir", "straight")["state_hash"]
    dying: list[int] = []
    real = Processes.map

    def struck(pool: Processes, tasks: Any) -> Any:
        if isinstance(tasks[0], Rebuild):
            for pid in pool.pids:
                os.kill(pid, signal.SIGKILL)
                dying.append(pid)
        return real(pool, tasks)

    monkeypatch.setattr(Processes, "map", struck)
    words = ("small.toml", "--run-dir", "killed", "--backend", "processes", "--workers", 2)
    assert summary_of(tmp_path, *words)["state_hash"] == wanted
    assert len(set(dying)) == 8


def test_workers_that_cannot_write_survivors_end_the_run_and_no_candidate_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    real = Processes.map

    def lost(pool: Processes, tasks: Any) -> Any:
        if isinstance(tasks[0], Rebuild) and tasks[0].weights.published:  # from generation 1 on
            raise PoisonError(f"task 1 of 1 ended its worker; the task is {tasks[0].name}", 0, 0, 1, "was killed")
        return real(pool, tasks)

    monkeypatch.setattr(Processes, "map", lost)
    words = ("small.toml", "--run-dir", "run", "--backend", "processes", "--workers", 2)
    out, err = called(tmp_path, *words, code=5)
    assert "the survivors of generation 1 could not be written: task 1 of 1 ended its worker; the task is" in out + err
    assert "rebuilding 4 survivors into published/room.h5.tmp; go on from before it by: python -m evo.run" in out + err
    assert "candidate" not in err
    monkeypatch.setattr(Processes, "map", real)
    straight = summary_of(tmp_path, "small.toml", "--run-dir", "straight")["state_hash"]
    assert summary_of(tmp_path, "--resume", "run")["state_hash"] == straight


@pytest.mark.skipif(shutil.which("mount") is None or os.getuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_a_disk_that_is_full_where_a_worker_writes_ends_the_run_with_exit_5(tmp_path: Path, backend: str) -> None:
    wide = SMALL.replace("dense = [4]", "dense = [2000]")  # four survivors are 4.1 MB
    with small_disk(tmp_path / "disk", "3m"):
        (tmp_path / "disk" / "small.toml").write_text(wide)
        words = ("small.toml", "--run-dir", "run", "--backend", backend, "--workers", 2)
        out, err = called(tmp_path / "disk", *words, code=5)
        assert f"cannot write {tmp_path}/disk/run/{ROOM}: No space left on device" in out + err
        assert "Traceback" not in err
        assert files(tmp_path / "disk" / "run") == []


# Commits, a step at a time


def steps(times: int, done: list[str]) -> Iterator[None]:
    try:
        for _ in range(times):
            yield
        done.append("done")
    finally:
        done.append("closed")


def test_workers_are_served_between_the_steps_of_what_the_master_does_meanwhile(
    pools: Pools,  # noqa: F811
) -> None:
    pool = pools(2)
    pool.map([Job(0), Job(1)])
    heard: list[float] = []

    def meanwhile() -> Iterator[None]:
        for _ in range(20):
            heard.append(sum(pool.effort.busy))
            yield from steps(1, [])
            time.sleep(0.02)

    pool.meanwhile = meanwhile
    jobs = [Job(number, 0.02) for number in range(40)]
    assert pool.map(jobs) == want(jobs)
    assert heard[0] == 0.0 < heard[5] < heard[10] < heard[-1]


def test_what_is_left_of_a_commit_after_the_last_result_is_what_workers_waited_for(
    pools: Pools,  # noqa: F811
) -> None:
    pool = pools(2)
    pool.map([Job(0), Job(1)])

    def meanwhile() -> Iterator[None]:
        for _ in range(10):
            time.sleep(0.04)
            yield

    pool.meanwhile = meanwhile
    pool.map([Job(0), Job(1)])
    assert 0.3 < pool.effort.held <= pool.effort.seconds


def test_all_steps_are_taken_however_short_the_round_and_left_alone_where_it_fails(
    pools: Pools,  # noqa: F811
    tmp_path: Path,
) -> None:
    pool, done = pools(1), []
    pool.meanwhile = lambda: steps(50, done)
    for jobs in ([Job(3)], []):
        assert pool.map(jobs) == want(jobs)
    assert done == ["done", "closed"] * 2
    pool.meanwhile = lambda: steps(1_000_000_000, done)
    with pytest.raises(ZeroDivisionError):
        pool.map([Job(1, mischief="bug", tally=tmp_path)])
    assert done[4:] == ["closed"]


@pytest.mark.parametrize("taken", range(12))
def test_a_commit_that_is_left_between_two_steps_is_made_by_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    monkeypatch.setattr(stores, "DURABLE_SECONDS", 0.0)
    monkeypatch.setattr(stores, "STEP", 100)
    hashes = straight(tmp_path / "straight", 3)
    with Store.create(tmp_path / "run", "", IDENTITY) as store:
        store.patient = True
        commit(store, 0)
        settling: Any = store.settle()
        for _ in range(taken):
            next(settling)
        assert store.durable == 0
        assert list((tmp_path / "run").rglob("*.tmp"))[1:] == []
        settling.close()
        assert list((tmp_path / "run").rglob("*.tmp")) == []
        store.flush()
        assert store.durable == store.next_generation
        for generation in range(store.next_generation, 3):
            commit(store, generation)
    with Store.open(tmp_path / "run") as store:
        assert store.state_hash == hashes[3]


def test_what_the_disk_refuses_between_two_steps_counts_as_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "DURABLE_SECONDS", 0.0)
    monkeypatch.setattr(stores, "STEP", 100)
    store = Store.create(tmp_path / "run", "", IDENTITY)
    store.patient = True
    commit(store, 0)
    settling = iter(store.settle())
    next(settling)
    shutil.rmtree(tmp_path / "run" / "population")
    with pytest.raises(ResourceError, match="cannot write"):
        list(settling)
    assert store.next_generation == 0
    store.close()
