from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import h5py
import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.errors import ConfigurationError, DataError, LockedError, ResourceError
from evo.files.arrays import array_digest, first_hash, next_hash
from evo.files.durable import with_checksum, without_checksum
from evo.networks.candidates import PublishedFiles
from evo.store import store as store_module
from evo.store.store import Store
from evo.verify.verification import Report, examine
from tests.helpers.calling import nobody
from tests.helpers.sampling import sampled
from tests.store.committing import IDENTITY, Arrays, commit, metrics, record, state, straight

COMMITTING = Path(__file__).with_name("committing.py")
ROOT = COMMITTING.parents[2]


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return straight(tmp_path_factory.mktemp("straight") / "run", 60)


def start(
    directory: Path, generations: int = 60, pause: float = 0.0, rows: int = 8, **options: object
) -> subprocess.Popen[str]:
    command = [sys.executable, str(COMMITTING), str(directory), str(generations), str(pause), str(rows)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def made(directory: Path, generations: int, flush_each: bool = False) -> Store:
    store = Store.create(directory, "[run]\n", IDENTITY)
    for generation in range(generations):
        commit(store, generation)
        if flush_each:
            store.flush()
    return store


def finish(directory: Path, generations: int) -> str:
    with Store.open(directory) as store:
        for generation in range(store.next_generation, generations):
            commit(store, generation)
        return store.state_hash


def snapshot(directory: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def assert_holds(store: Store, hashes: list[str]) -> None:
    """The store stands at some generation of the undisturbed run, and all that it can give is of that run."""
    assert store.state_hash == hashes[store.next_generation]
    assert store.spent.frames == sum(metrics(g)["frames"] for g in range(store.next_generation))
    loaded = store.load()
    expected = state(store.next_generation - 1) if store.next_generation else {}
    assert loaded.keys() == expected.keys()
    assert all(np.array_equal(loaded[name], expected[name]) for name in expected)
    for generation in range(store.next_generation):
        done = store.read_record(generation)
        assert all(np.array_equal(done[name], array) for name, array in record(generation).items())


# Making one


def test_a_new_run_has_its_configuration_and_stands_before_generation_0(tmp_path: Path) -> None:
    with Store.create(tmp_path / "runs" / "a", "[run]\nseed = 1\n", IDENTITY) as store:
        assert (store.next_generation, store.spent.frames, store.spent.seconds) == (0, 0, 0.0)
        assert store.state_hash == first_hash(IDENTITY)
        assert store.load() == {}
        assert (store.directory / "config.resolved.toml").read_text() == "[run]\nseed = 1\n"
    with Store.open(tmp_path / "runs" / "a") as store:
        assert (store.next_generation, store.state_hash) == (0, first_hash(IDENTITY))
        assert store.identity == IDENTITY
        assert store.notices == []


def test_a_directory_that_is_not_empty_is_refused_and_left_untouched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    before = snapshot(tmp_path)
    with pytest.raises(ConfigurationError, match="not empty; choose another --run-dir"):
        Store.create(tmp_path / "mine", "", IDENTITY)
    assert snapshot(tmp_path) == before
    assert os.listdir(tmp_path) == ["mine"]


def test_a_run_that_is_there_is_refused_with_the_command_that_resumes_it(tmp_path: Path) -> None:
    made(tmp_path / "my run", 2).close()
    with pytest.raises(ConfigurationError, match=r"resume '.*/my run'`"):
        Store.create(tmp_path / "my run", "", IDENTITY)
    with Store.open(tmp_path / "my run") as store:
        assert store.next_generation == 2


def test_an_empty_directory_is_used_and_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    Store.create(tmp_path / "empty", "", IDENTITY).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="not a directory"):
        Store.create(tmp_path / "file", "", IDENTITY)


def test_a_place_that_cannot_be_written_is_a_resource_error() -> None:
    with pytest.raises(ResourceError, match="cannot create /proc/run"):
        Store.create(Path("/proc/run"), "", IDENTITY)


def test_a_new_run_that_cannot_be_opened_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short_of_memory(*_: object) -> NoReturn:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "recover", short_of_memory)
        with pytest.raises(MemoryError):
            Store.create(tmp_path / "run", "", IDENTITY)
    assert list(tmp_path.iterdir()) == []
    Store.create(tmp_path / "run", "", IDENTITY).close()


def test_what_a_killed_process_was_making_is_cleared_away(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / f".run.{gone.pid}.abc.tmp").mkdir()
    (tmp_path / f".other.{gone.pid}.abc.tmp").mkdir()
    (tmp_path / f".run.{os.getppid()}.abc.tmp").mkdir()
    Store.create(tmp_path / "run", "", IDENTITY).close()
    assert sorted(os.listdir(tmp_path)) == [f".other.{gone.pid}.abc.tmp", f".run.{os.getppid()}.abc.tmp", "run"]


# Holding it


@pytest.mark.parametrize("hdf5_locks", ["TRUE", "FALSE"])
def test_a_second_master_is_refused_by_the_pid_of_the_first_until_that_is_killed(
    tmp_path: Path, hdf5_locks: str
) -> None:
    environment = {**os.environ, "HDF5_USE_FILE_LOCKING": hdf5_locks}
    command = [sys.executable, str(COMMITTING), str(tmp_path / "run"), "60", "60", "8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as first:
        assert first.stdout is not None
        first.stdout.readline()
        second = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
        with pytest.raises(LockedError, match=f"process {first.pid}"):
            Store.open(tmp_path / "run")
        assert Store.read(tmp_path / "run").next_generation <= 1
        first.kill()
    assert second.returncode == 4
    assert f"process {first.pid}" in second.stdout
    Store.open(tmp_path / "run").close()


def test_a_store_that_is_closed_is_free_though_a_child_has_a_copy_of_its_descriptors(tmp_path: Path) -> None:
    store = made(tmp_path / "run", 1)
    assert store._held is not None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[store._held.lock, store._held.file]):
        store.close()
        Store.open(tmp_path / "run").close()


def test_looking_at_a_run_changes_nothing_and_takes_no_lock(tmp_path: Path, hashes: list[str]) -> None:
    with made(tmp_path / "run", 9) as store:
        store.flush()
        before = snapshot(tmp_path)
        looking = Store.read(tmp_path / "run")
        assert_holds(looking, hashes)
        assert looking.next_generation == 9
        with pytest.raises(RuntimeError, match="reading only"):
            commit(looking, 9)
        looking.close()
        assert snapshot(tmp_path) == before


def test_an_append_that_is_under_way_is_no_news_to_who_only_looks(tmp_path: Path) -> None:
    with made(tmp_path / "run", 3) as store:
        store.flush()
        path = tmp_path / "run" / "manifest.jsonl"
        size = path.stat().st_size
        with path.open("ab") as manifest:
            manifest.write(b'{"arrays":{')
        looking = Store.read(tmp_path / "run")
        assert (looking.next_generation, looking.notices) == (3, [])
        os.truncate(path, size)


# Committing


def test_the_hash_is_the_documented_chain_over_state_and_record(tmp_path: Path) -> None:
    expected = first_hash(IDENTITY)
    with Store.create(tmp_path / "run", "", IDENTITY) as store:
        for generation in range(5):
            arrays = {f"state/{name}": array_digest(name, array) for name, array in state(generation).items()}
            arrays |= {f"record/{name}": array_digest(name, array) for name, array in record(generation).items()}
            expected = next_hash(expected, generation, arrays)
            commit(store, generation)
            assert store.state_hash == expected


def test_time_metrics_and_flushes_are_not_in_the_hash(tmp_path: Path, hashes: list[str]) -> None:
    with Store.create(tmp_path / "run", "other = 1\n", IDENTITY) as store:
        store.keep_every = 2
        for generation in range(5):
            store.commit(generation, state(generation), record(generation), {"seconds": 99.0, "frames": 1}, best=True)
            store.flush()
        assert store.state_hash == hashes[5]


def test_a_run_resumed_after_every_generation_ends_like_the_straight_one(tmp_path: Path, hashes: list[str]) -> None:
    made(tmp_path / "run", 0).close()
    for generation in range(12):
        with Store.open(tmp_path / "run") as store:
            assert_holds(store, hashes)
            assert store.next_generation == generation
            commit(store, generation)
    with Store.open(tmp_path / "run") as store:
        assert_holds(store, hashes)
        assert store.spent.seconds == pytest.approx(12 * 0.25)


def test_what_is_committed_is_a_copy(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", "", IDENTITY) as store:
        store.commit(0, state(0), {}, {})
        weights = np.ones((2, 3), np.float32)
        store.commit(1, {"weights": weights}, {}, {})
        weights[:] = 7
        assert np.array_equal(store.load()["weights"], np.ones((2, 3)))


def test_awkward_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    awkward: Arrays = {
        "scalar": np.array(3, np.int16),
        "none": np.zeros((0, 4), np.float32),
        "flags": np.array([True, False]),
        "big": np.array([1 << 63], ">u8"),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "not_finite": np.array([np.nan, np.inf, -0.0], np.float32),
    }
    with Store.create(tmp_path / "run", "", IDENTITY) as store:
        store.commit(0, awkward, awkward, {})
        for loaded in (store.load(), store.read_record(0)):
            assert loaded.keys() == awkward.keys()
            for name, array in awkward.items():
                assert np.array_equal(loaded[name], array, equal_nan=array.dtype.kind == "f")
                assert loaded[name].shape == array.shape
            assert np.signbit(loaded["not_finite"][2])


def test_generations_must_follow_one_another(tmp_path: Path) -> None:
    with made(tmp_path / "run", 2) as store:
        for generation in (0, 1, 3):
            with pytest.raises(ValueError, match="cannot follow 1"):
                commit(store, generation)
    with pytest.raises(RuntimeError, match="closed"):
        commit(store, 2)


def test_commits_that_follow_within_two_seconds_share_their_files_and_others_do_not_wait(tmp_path: Path) -> None:
    with made(tmp_path / "run", 20) as store:
        assert Store.read(tmp_path / "run").next_generation == 1  # the first cannot know when the next will come
        commit(store, 20)
        started = time.monotonic()
        while time.monotonic() - started < 1.1:
            time.sleep(0.05)
        commit(store, 21)  # another such pause would make it more than two seconds
        assert Store.read(tmp_path / "run").next_generation == 22
    names = sorted(os.listdir(tmp_path / "run" / "records"))
    assert names == [
        "gen-000000-000000.h5",
        "gen-000001-000006.h5",  # another number of candidates, another file
        "gen-000007-000013.h5",
        "gen-000014-000020.h5",
        "gen-000021-000021.h5",
    ]


def test_commits_are_durable_after_two_seconds_though_nothing_follows(tmp_path: Path, hashes: list[str]) -> None:
    with made(tmp_path / "run", 5) as store:
        assert Store.read(tmp_path / "run").next_generation < 5
        began = time.monotonic()
        while Store.read(tmp_path / "run").next_generation < 5:
            assert time.monotonic() - began < 20
            time.sleep(0.05)
        assert store.state_hash == hashes[5]
        commit(store, 5)
    assert Store.read(tmp_path / "run").state_hash == hashes[6]


def test_what_the_disk_did_not_take_is_not_counted_as_committed(tmp_path: Path, hashes: list[str]) -> None:
    store = made(tmp_path / "run", 3, flush_each=True)
    frames = store.spent.frames
    (tmp_path / "run" / "population").rename(tmp_path / "elsewhere")
    commit(store, 3)
    commit(store, 4)
    with pytest.raises(ResourceError, match="population"):
        store.flush()
    assert (store.next_generation, store.state_hash, store.spent.frames) == (3, hashes[3], frames)
    store.close()
    (tmp_path / "elsewhere").rename(tmp_path / "run" / "population")
    assert finish(tmp_path / "run", 5) == hashes[5]


def test_populations_that_stay_are_the_last_three_the_best_and_every_nth(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", "", IDENTITY) as store:
        store.keep_every = 10
        for generation in range(29):
            commit(store, generation)  # 5, 16 and 27 are the best of their time
            store.flush()
        kept = sorted(int(path.stem[4:]) for path in (tmp_path / "run" / "population").iterdir())
        assert kept == [0, 10, 20, 26, 27, 28]
        for generation in range(29, 34):
            commit(store, generation)
            store.flush()
        kept = sorted(int(path.stem[4:]) for path in (tmp_path / "run" / "population").iterdir())
        assert kept == [0, 10, 20, 27, 30, 31, 32, 33]
        assert np.array_equal(store.read_state(27)["weights"], state(27)["weights"])
        with pytest.raises(DataError, match="checkpoint of generation 28 is not kept"):
            store.read_state(28)
        for read in (store.read_state, store.read_record):
            for wrong in (34, -1, 2.0, "5"):
                with pytest.raises(ConfigurationError, match=f"from 0 to 33, not {wrong!r}"):
                    read(wrong)  # type: ignore[arg-type]
        assert np.array_equal(store.read_record(28)["keys"], record(28)["keys"])


def test_the_best_of_a_window_is_kept_though_it_is_not_the_newest(tmp_path: Path) -> None:
    made(tmp_path / "run", 9).close()
    assert sorted(os.listdir(tmp_path / "run" / "population")) == [f"gen-00000{g}.h5" for g in (0, 5, 8)]


# Publishing


def test_a_published_file_holds_the_weights_in_one_piece_and_equal_weights_share_it(tmp_path: Path) -> None:
    weights = np.random.default_rng(1).random((5, 70), np.float32)
    with made(tmp_path / "run", 0) as store:
        name = store.publish(weights)
        before = snapshot(tmp_path)
        assert store.publish(weights) == store.publish(weights.copy()) == name
        assert snapshot(tmp_path) == before
        with h5py.File(tmp_path / "run" / name, "r") as file:
            assert list(file) == ["weights"]
            dataset = file["weights"]
            offset = dataset.id.get_offset()
            assert dataset.dtype == np.float32
        mapped = np.memmap(tmp_path / "run" / name, np.float32, "r", offset, weights.shape)
        assert np.array_equal(mapped, weights)
        weights[0, 0] += 1
        assert store.publish(weights) != name


def test_weights_that_the_newest_population_file_holds_are_not_written_once_more(tmp_path: Path) -> None:
    weights = np.random.default_rng(1).random((5, 70), np.float32)
    with made(tmp_path / "run", 2) as store:
        store.commit(2, {"weights": weights}, {}, metrics(2))
        assert store.publish(weights).startswith("published/")  # it is not on the disk yet
        store.flush()
        name = store.publish(weights)
        assert name == "population/gen-000002.h5"
        assert np.array_equal(PublishedFiles(tmp_path / "run").matrix(name, 70), weights)
        assert store.publish(weights + 1).startswith("published/")
        store.commit(3, {"weights": weights + 1}, {}, metrics(3))
        assert store.publish(weights).startswith("published/")  # retention may be about to take the older file


def test_what_a_caller_may_still_write_into_is_copied_and_what_it_may_not_is_kept_as_it_is(tmp_path: Path) -> None:
    mine, given = np.zeros((3, 5), np.float32), np.zeros(100_000)
    given.setflags(write=False)
    with made(tmp_path / "run", 0) as store:
        store.commit(0, {"weights": mine, "given": given}, {}, {})
        mine += 1
        assert sys.getrefcount(given) > 2  # remembered as it is: one for us, one for the question
        assert not store.load()["weights"].any()


def test_only_the_last_two_published_files_stay_and_none_after_the_end(tmp_path: Path) -> None:
    with made(tmp_path / "run", 0) as store:
        names = [store.publish(state(generation)["weights"]) for generation in range(5)]  # type: ignore[arg-type]
        assert sorted(os.listdir(tmp_path / "run" / "published")) == sorted(name.split("/")[1] for name in names[-2:])
    assert os.listdir(tmp_path / "run" / "published") == []


@pytest.mark.parametrize("weights", [np.zeros(3, np.float32), np.zeros((2, 3))])
def test_only_float32_matrices_are_published(tmp_path: Path, weights: np.ndarray) -> None:
    with made(tmp_path / "run", 0) as store, pytest.raises(ValueError, match="float32 matrices"):
        store.publish(weights)


# Metrics


def test_metrics_are_there_at_once_and_what_is_not_finite_is_null(tmp_path: Path) -> None:
    with made(tmp_path / "run", 0) as store:
        store.commit(0, {}, {}, {"best": np.float32(0.5), "mean": float("nan"), "worst": -np.inf})  # type: ignore[dict-item]
        store.commit(1, {}, {}, {"best": 2})
        assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 2
        assert store.metrics() == [
            {"generation": 0, "best": 0.5, "mean": None, "worst": None},
            {"generation": 1, "best": 2},
        ]


def test_metrics_of_generations_that_were_lost_are_forgotten(tmp_path: Path) -> None:
    store = made(tmp_path / "run", 3, flush_each=True)
    before = tmp_path / "copy"
    commit(store, 3)
    with open(tmp_path / "run" / "metrics.jsonl", "ab") as file:
        file.write(b'{"generation": 4, "be')
    shutil.copytree(tmp_path / "run", before)
    store.close()
    with Store.open(before) as resumed:
        assert [line["generation"] for line in resumed.metrics()] == [0, 1, 2]
        commit(resumed, 3)
        assert [line["generation"] for line in resumed.metrics()] == [0, 1, 2, 3]


def test_a_spoilt_line_of_metrics_is_named_and_left_out_and_stays(tmp_path: Path) -> None:
    made(tmp_path / "run", 6).close()
    path = tmp_path / "run" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    spoilt = [lines[0], lines[1].replace(b"1.0", b"9.0"), b"\0" * 20 + b"\n", *lines[2:]]
    path.write_bytes(b"".join(spoilt))
    with Store.open(tmp_path / "run") as store:
        assert [line["generation"] for line in store.metrics()] == [0, 2, 3, 4, 5]
        assert store.notices == [f"{path}: line 2: its checksum is wrong; and 1 more"]
        commit(store, 6)
        assert store.metrics()[-1]["generation"] == 6
    assert path.read_bytes().startswith(b"".join(spoilt))


@pytest.mark.parametrize("name", ["frames", "seconds", "forward_passes"])
def test_amounts_that_are_not_those_of_the_manifest_are_named(tmp_path: Path, name: str) -> None:
    made(tmp_path / "run", 4).close()
    path = tmp_path / "run" / "metrics.jsonl"
    assert Store.read(tmp_path / "run").metrics_mistakes() == []
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = with_checksum({**without_checksum(lines[2].rstrip()), name: 77}) + b"\n"
    path.write_bytes(b"".join(lines))
    found = f"{path}: line 3: generation 2 has other {name} than in the manifest"
    assert Store.read(tmp_path / "run").metrics_mistakes() == [found]


@pytest.mark.parametrize(
    "how",
    [
        "link",
        pytest.param("EIO", marks=pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")),
        pytest.param("sparse", marks=pytest.mark.long),
    ],
)
def test_metrics_are_never_replaced_by_less_than_they_held(tmp_path: Path, how: str) -> None:
    """A resume rewrote the file from what it could read, which after one failed read was nothing."""
    made(tmp_path / "run", 30).close()
    path, kept = tmp_path / "run" / "metrics.jsonl", tmp_path / "run" / "metrics.jsonl"
    words: list[str] = []
    if how == "link":
        kept = path.rename(tmp_path / "elsewhere.jsonl")
        path.symlink_to(kept)
    elif how == "EIO":
        words = ["strace", "-f", "-qq", "-P", str(path), "-e", "inject=read:error=EIO:when=1"]
        words += ["-o", f"{tmp_path}/trace"]
    before = kept.read_bytes()
    if how == "sparse":
        with path.open("r+b") as file:
            file.truncate((2 << 30) + 4096)
    program = "import sys; from tests.store import committing; sys.exit(committing.main(*sys.argv[1:]))"
    command = [*words, sys.executable, "-c", program, str(tmp_path / "run"), "31", "0", "8"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120).returncode == 0
    assert kept.read_bytes().startswith(before)
    if how == "EIO":
        assert "INJECTED" in (tmp_path / "trace").read_text()
    assert (how != "link") == (b'"generation": 30' in kept.read_bytes())


def test_metrics_that_cannot_be_written_are_one_notice_and_the_run_goes_on(tmp_path: Path, hashes: list[str]) -> None:
    with made(tmp_path / "run", 2) as store:
        (tmp_path / "run" / "metrics.jsonl").unlink()
        (tmp_path / "run" / "metrics.jsonl").mkdir()
        for generation in range(2, 6):
            commit(store, generation)
        assert len(store.notices) == 1
        assert "metrics.jsonl" in store.notices[0]
        (tmp_path / "run" / "metrics.jsonl").rmdir()
    with Store.open(tmp_path / "run") as store:
        assert_holds(store, hashes)
        assert store.next_generation == 6


# Being killed, interrupted, and refused by the disk


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# One that meets a callback of the garbage collector, as of Hypothesis, is dropped there by Python.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_anywhere_in_a_commit_loses_no_committed_generation(tmp_path: Path, hashes: list[str]) -> None:
    dice = random.Random(3)
    for trial in range(40):
        store = made(tmp_path / str(trial), 1)
        try:
            with interrupt_after(dice.uniform(0.0002, 0.02)):
                for generation in range(1, 40):
                    commit(store, generation)
                    if generation % 4 == 0:
                        store.flush()
        except KeyboardInterrupt:
            pass
        committed = store.next_generation
        store.close()
        with Store.open(tmp_path / str(trial)) as store:
            assert store.next_generation == committed
            assert store.notices == []
            assert_holds(store, hashes)


def refused(child: subprocess.Popen[str]) -> int:
    """Wait for a child that a full disk must have stopped with exit 5, and return how much was durable before."""
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 5, output
    assert "refused: cannot write" in output
    return max([int(line.split()[1]) for line in output.splitlines() if line.startswith("durable")], default=0)


def test_a_file_that_may_not_grow_ends_the_run_with_exit_5_and_all_before_it(tmp_path: Path, hashes: list[str]) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000))

    durable = refused(start(tmp_path / "run", preexec_fn=limit))
    assert durable > 0
    assert list((tmp_path / "run").rglob("*.tmp")) == []
    with Store.open(tmp_path / "run") as store:
        assert store.next_generation >= durable
        assert_holds(store, hashes)
    assert finish(tmp_path / "run", 60) == hashes[60]


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None or os.getuid() != 0, reason="mounting needs root")
def test_a_disk_that_fills_up_ends_the_run_with_exit_5_and_all_before_it(tmp_path: Path, hashes: list[str]) -> None:
    with small_disk(tmp_path / "disk", "140k"):
        durable = refused(start(tmp_path / "disk" / "run"))
        assert durable > 0
        assert list((tmp_path / "disk").rglob("*.tmp")) == []
        shutil.copytree(tmp_path / "disk" / "run", tmp_path / "larger")
    with Store.open(tmp_path / "larger") as store:
        assert store.next_generation >= durable
        assert_holds(store, hashes)
    assert finish(tmp_path / "larger", 60) == hashes[60]


@pytest.mark.skipif(shutil.which("mount") is None or os.getuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_full_from_the_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4k"):
        with pytest.raises(ResourceError, match="No space left"):
            Store.create(tmp_path / "disk" / "run", "x" * 10_000, IDENTITY)
        assert os.listdir(tmp_path / "disk") == []


@pytest.mark.skipif(shutil.which("mount") is None or os.getuid() != 0, reason="mounting needs root")
def test_a_run_on_a_disk_that_is_read_only_is_refused_and_looked_at_all_the_same(
    tmp_path: Path, hashes: list[str]
) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(tmp_path / "disk")], check=True)

    with small_disk(tmp_path / "disk", "1m"):
        run = tmp_path / "disk" / "run"
        made(run, 5).close()
        remount("ro")
        with pytest.raises(ResourceError, match=r"cannot lock .*Read-only"):
            Store.open(run)
        assert_holds(Store.read(run), hashes)
        with pytest.raises(ResourceError, match=r"cannot create .*Read-only"):
            Store.create(tmp_path / "disk" / "other", "", IDENTITY)
        remount("rw")
        assert finish(run, 60) == hashes[60]


def test_a_directory_that_may_not_be_written_or_read_is_a_resource_error() -> None:
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)  # that of a test is its owner's alone
    run = place / "run"
    made(run, 2).close()
    (run / "lock").chmod(0o444)
    run.chmod(0o555)
    try:
        with nobody():
            assert Store.read(run).next_generation == 2
            with pytest.raises(ResourceError, match=r"cannot lock .*Permission denied"):
                Store.open(run)
            with pytest.raises(ResourceError, match=r"cannot create .*Permission denied"):
                Store.create(run / "inside", "", IDENTITY)
        run.chmod(0o000)
        for way in (Store.open, Store.read):
            with nobody(), pytest.raises(ResourceError, match=r"cannot read .*Permission denied"):
                way(run)
    finally:
        run.chmod(0o755)
        shutil.rmtree(place)


@pytest.mark.parametrize("name", ["population", "population/gen-000001.h5", "records", "metrics.jsonl"])
def test_what_may_not_be_read_is_not_called_damaged_or_missing(name: str) -> None:
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    made(place / "run", 2).close()
    (place / "run/metrics.jsonl").touch()
    (place / "run" / name).chmod(0o000)
    try:
        with nobody():
            if name.endswith(".h5"):  # it would go on from the checkpoint before, and put this one aside
                with pytest.raises(ResourceError, match=rf"cannot open .*{name}: Permission denied"):
                    Store.read(place / "run")
            else:
                with pytest.raises(ResourceError, match=rf"cannot read .*{name}: Permission denied"):
                    examine(place / "run", Report())
    finally:
        (place / "run" / name).chmod(0o755)
        shutil.rmtree(place)


def test_what_an_experiment_may_not_read_is_no_mistake_in_it() -> None:
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    for name in ("mine.toml", "champion.h5"):
        (place / name).touch(mode=0o000)
    experiment = Experiment.build(run={"init_from": str(place / "champion.h5")})
    try:
        with nobody():
            with pytest.raises(ResourceError, match=r"mine\.toml: cannot be read: Permission denied"):
                Experiment.load(place / "mine.toml")
            with pytest.raises(ResourceError, match=r"run\.init_from: cannot open .*champion\.h5: Permission denied"):
                experiment.identity()
    finally:
        shutil.rmtree(place)


def test_after_a_commit_that_failed_the_store_keeps_saying_so_and_closes(tmp_path: Path) -> None:
    store = made(tmp_path / "run", 1)
    shutil.rmtree(tmp_path / "run" / "population")
    commit(store, 1)
    for _ in range(2):
        with pytest.raises(ResourceError, match="population"):
            store.flush()
    with pytest.raises(ResourceError):
        commit(store, 2)
    store.close()


# Files that are not what they were


def test_a_torn_tail_is_cut_off_and_the_run_goes_on(tmp_path: Path, hashes: list[str]) -> None:
    made(tmp_path / "run", 5, flush_each=True).close()
    manifest = tmp_path / "run" / "manifest.jsonl"
    whole = manifest.read_bytes()
    for tail in (b"{", b'{"arrays":{}}\n', whole.splitlines(True)[3][:-9], b"\0" * 4096):
        manifest.write_bytes(whole + tail)
        with Store.open(tmp_path / "run") as store:
            assert store.next_generation == 5
            assert len(store.notices) == 1
            assert "line 7" in store.notices[0]
        assert manifest.read_bytes() == whole
    assert not (tmp_path / "run" / "damaged").exists()
    assert finish(tmp_path / "run", 60) == hashes[60]


def test_damage_in_the_middle_of_the_manifest_is_named_and_set_aside(tmp_path: Path, hashes: list[str]) -> None:
    with Store.create(tmp_path / "run", "", IDENTITY) as store:
        store.keep_every = 4
        for generation in range(10):
            commit(store, generation)
            store.flush()
    manifest = tmp_path / "run" / "manifest.jsonl"
    texts = manifest.read_bytes().splitlines(True)
    texts[7] = texts[7].replace(b'"frames":16', b'"frames":61')
    manifest.write_bytes(b"".join(texts))
    with Store.open(tmp_path / "run") as store:
        assert store.next_generation == 6  # line 8 is generation 6, and the best was generation 5
        assert "line 8" in store.notices[0]
        assert "after 6 generations" in store.notices[-1]
        assert len(store.notices) == 2
        assert_holds(store, hashes)
    aside = tmp_path / "run" / "damaged" / "000"
    assert (aside / "manifest.jsonl").read_bytes() == b"".join(texts)
    assert (aside / "gen-000009.h5").exists()
    assert finish(tmp_path / "run", 60) == hashes[60]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "missing", "directory", "link", "older"])
def test_the_checkpoint_before_a_bad_one_is_used_and_the_bad_one_named(
    tmp_path: Path, hashes: list[str], damage: str
) -> None:
    made(tmp_path / "run", 9, flush_each=True).close()
    newest, older = (tmp_path / "run" / "population" / f"gen-00000{g}.h5" for g in (8, 7))
    data = newest.read_bytes()
    if damage == "flip":
        newest.write_bytes(data[:2000] + bytes([data[2000] ^ 1]) + data[2001:])
    elif damage == "cut":
        newest.write_bytes(data[:-1])
    elif damage == "empty":
        newest.write_bytes(b"")
    else:
        newest.unlink()
    if damage == "directory":
        newest.mkdir()
    elif damage == "link":
        (tmp_path / "elsewhere.h5").write_bytes(data)
        newest.symlink_to(tmp_path / "elsewhere.h5")
    elif damage == "older":
        shutil.copyfile(older, newest)
    assert Store.read(tmp_path / "run").next_generation == 8
    with Store.open(tmp_path / "run") as store:
        assert store.next_generation == 8
        assert "gen-000008.h5" in store.notices[0]
        assert len(store.notices) == 2
        assert_holds(store, hashes)
    assert finish(tmp_path / "run", 60) == hashes[60]


def test_where_no_checkpoint_is_good_the_run_is_refused_and_left_untouched(tmp_path: Path) -> None:
    made(tmp_path / "run", 9, flush_each=True).close()
    for path in (tmp_path / "run" / "population").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    before = snapshot(tmp_path)
    with pytest.raises(DataError, match=r"no intact checkpoint is left.*gen-000008"):
        Store.open(tmp_path / "run")
    assert snapshot(tmp_path) == before


def test_a_run_goes_on_from_before_a_damaged_record_and_makes_it_again(tmp_path: Path) -> None:
    store = made(tmp_path / "run", 5, flush_each=True)
    whole = store.state_hash
    store.close()
    path = tmp_path / "run" / "records" / "gen-000004-000004.h5"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 128]))
    assert Store.read(tmp_path / "run").next_generation == 5
    with Store.open(tmp_path / "run") as store:
        assert store.next_generation == 4
        assert "gen-000004-000004.h5 is damaged" in store.notices[0]
        assert store.notices[1].endswith("continues from the checkpoint before, after 4 generations")
        commit(store, 4)
        assert store.state_hash == whole
    assert path.read_bytes() == data
    for path in (tmp_path / "run" / "records").iterdir():
        path.unlink()
    with Store.open(tmp_path / "run") as store:
        assert store.next_generation == 5  # no checkpoint has a record, and most algorithms need none
        assert len(store.notices) == 1


def test_who_holds_a_directory_itself_is_not_told_to_stop_that_process(tmp_path: Path) -> None:
    with made(tmp_path / "run", 1), pytest.raises(LockedError, match=rf"process {os.getpid()}, which is this one: "):
        Store.open(tmp_path / "run")


def test_a_record_that_was_changed_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "run", 2, flush_each=True).close()
    path = tmp_path / "run" / "records" / "gen-000001-000001.h5"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 128]))
    with pytest.raises(DataError, match="gen-000001-000001"):
        Store.read(tmp_path / "run").read_record(1)


def test_stray_files_of_a_killed_run_are_removed_and_files_of_others_are_not(tmp_path: Path) -> None:
    made(tmp_path / "run", 3).close()
    ours = ["population/gen-000007.h5", "records/gen-000003-000009.h5", "published/" + "ab" * 32 + ".h5"]
    ours += ["population/gen-000003.h5.tmp", "manifest.jsonl.tmp"]
    others = ["population/notes.txt", "my.tmp.txt", "published/README"]
    for name in (*ours, *others):
        (tmp_path / "run" / name).write_bytes(b"x")
    Store.open(tmp_path / "run").close()
    assert not any((tmp_path / "run" / name).exists() for name in ours)
    assert all((tmp_path / "run" / name).exists() for name in others)


@pytest.mark.parametrize("what", ["nothing", "file", "empty", "other", "linked"])
def test_what_is_not_a_run_is_refused_and_left_untouched(tmp_path: Path, what: str) -> None:
    path = tmp_path / "it"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "gen-000000.h5").write_bytes(b"precious")
    if what == "file":
        path.write_text("x")
    elif what in ("empty", "other"):
        path.mkdir()
    if what == "other":
        (path / "manifest.jsonl").write_text('{"name": "another format"}\n')
    if what == "linked":
        made(path, 2).close()
        shutil.rmtree(path / "population")
        (path / "population").symlink_to(elsewhere)
    before = snapshot(tmp_path)
    for way in (Store.open, Store.read):
        with pytest.raises(DataError, match=str(path)):
            way(path)
    assert snapshot(tmp_path) == before


def test_a_manifest_that_is_a_pipe_does_not_hang(tmp_path: Path) -> None:
    made(tmp_path / "run", 1).close()
    (tmp_path / "run" / "manifest.jsonl").unlink()
    os.mkfifo(tmp_path / "run" / "manifest.jsonl")
    with pytest.raises(DataError, match="not a regular file"):
        Store.read(tmp_path / "run")


def test_a_run_that_was_moved_copied_or_is_reached_by_a_link_goes_on(tmp_path: Path, hashes: list[str]) -> None:
    made(tmp_path / "run", 4).close()
    shutil.copytree(tmp_path / "run", tmp_path / "copied")
    (tmp_path / "far").mkdir()
    os.rename(tmp_path / "run", tmp_path / "far" / "moved")
    (tmp_path / "linked").symlink_to(tmp_path / "far" / "moved")
    for name in ("copied", "linked"):
        assert finish(tmp_path / name, 30) == hashes[30]
    assert finish(tmp_path / "far" / "moved", 60) == hashes[60]


def noticed(directory: Path, hashes: list[str], name: str, mutants: int) -> int:
    """Open a run of five generations with one of its files changed; return how often it went back or was refused."""
    dice = random.Random(f"{name} {mutants}")
    made(directory, 5, flush_each=True).close()
    whole = (directory / name).read_bytes()
    found = 0
    for number in range(mutants):
        data = bytearray(whole)
        place = dice.randrange(len(data))
        if number % 3 == 0:
            data[place] ^= 1 << dice.randrange(8)
        elif number % 3 == 1:
            del data[place:]
        else:
            data[place : place + 64] = dice.randbytes(64)
        (directory / name).write_bytes(data)
        try:
            store = Store.read(directory)
            assert_holds(store, hashes)
            found += store.next_generation < 5
        except DataError:
            found += 1
    return found


FRAGILE = ["manifest.jsonl", "population/gen-000004.h5", "records/gen-000004-000004.h5"]


@pytest.mark.parametrize("name", sampled(FRAGILE))
def test_of_100_mutants_of_manifest_population_or_records_none_goes_unnoticed(
    tmp_path: Path, hashes: list[str], name: str
) -> None:
    assert noticed(tmp_path / "run", hashes, name, 100) == 100


@pytest.mark.long
@pytest.mark.parametrize("name", FRAGILE)
def test_of_2000_mutants_none_goes_unnoticed(tmp_path: Path, hashes: list[str], name: str) -> None:
    assert noticed(tmp_path / "run", hashes, name, 2000) == 2000
