"""Every system call of a small run is where it is killed, or where the disk fails, or where the power goes."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

import pytest

from evo.errors import EvoError
from evo.store.store import Store
from tests.helpers.sampling import sampled
from tests.store.committers import Committers
from tests.store.committing import commit, straight
from tests.store.test_store import assert_holds, small_disk

GENERATIONS = 7
WRITING = ("write", "pwrite64", "fsync", "rename", "mkdir", "ftruncate")
CHANGING = (*WRITING, "unlink", "flock", "chmod")
AT_A_TIME = 2

Point = tuple[str, int]  # a call, and which of them


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Memory for a disk where there is some: these tests are about the order of calls, and wait for no platter."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        yield Path(place)


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return straight(tmp_path_factory.mktemp("straight") / "run", GENERATIONS)


@pytest.fixture(scope="module")
def crew() -> Iterator[list[Committers]]:
    """Whoever can commit at the same time, each under a tracer of its own."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    with Committers() as one, Committers() as other:
        try:
            one.run(["/nowhere/at/all", 0, 0, 8, "quiet"], ["-o", "/dev/null"])
        except PermissionError as error:
            pytest.skip(f"needs the right to trace: {error}")
        yield [one, other][:AT_A_TIME]


def traced(committer: Committers, directory: Path, *options: str, limits: dict[str, int] | None = None) -> int:
    """Let a process commit the seven generations, under strace if it has options, and return how it ended."""
    directory.parent.mkdir(exist_ok=True)
    return committer.run([directory, GENERATIONS, 0, 8, "quiet", ""], options, limits)


def everywhere(crew: list[Committers], work: Callable[[Committers, Point], int], points: Sequence[Point]) -> list[int]:
    """Return what `work` gives at every point, in order; as many at a time as there are in the crew."""
    free: SimpleQueue[Committers] = SimpleQueue()
    for committer in crew:
        free.put(committer)

    def one(point: Point) -> int:
        committer = free.get()
        try:
            return work(committer, point)
        finally:
            free.put(committer)

    with ThreadPoolExecutor(len(crew)) as threads:
        return list(threads.map(one, points))


def goes_on(directory: Path, hashes: list[str], at_least: int = 0) -> None:
    """Whatever is there can be taken up, is of the undisturbed run, and ends like it, with nothing left over."""
    if not directory.exists():
        assert at_least == 0
        Store.create(directory, "", {"seed": 1, "algorithm": "ga"}).close()
    with Store.open(directory) as store:
        assert store.next_generation >= at_least
        assert_holds(store, hashes)
        for generation in range(store.next_generation, GENERATIONS):
            commit(store, generation)
        assert store.state_hash == hashes[GENERATIONS]
    with Store.open(directory) as store:
        assert_holds(store, hashes)
    assert list(directory.rglob("*.tmp")) == []
    assert list(directory.parent.glob(".*.tmp")) == []


@pytest.fixture(scope="module")
def counts(crew: list[Committers], tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How often the undisturbed run makes each system call."""
    return counted(crew[0], tmp_path_factory.mktemp("counted") / "log")


def counted(committer: Committers, log: Path) -> dict[str, int]:
    assert traced(committer, log.parent / "run", "-o", str(log)) == 0
    names = (line.partition("(")[0] for line in log.read_text().splitlines())
    return Counter(name for name in names if name.isidentifier())


# Being killed


def killed_at(committer: Committers, place: Path, point: Point, hashes: list[str]) -> int:
    """Kill the run at its number-th call of this name, take it up, and return how it had ended."""
    call, number = point
    run = place / f"{call}-{number}" / "run"
    strace = ["-o", "/dev/null", "-e", f"inject={call}:signal=SIGKILL:when={number}"]
    ended = traced(committer, run, *strace)
    assert ended in (0, -9), (point, ended)
    goes_on(run, hashes)
    shutil.rmtree(run.parent)
    return ended


@pytest.mark.parametrize("point", [("write", 12), ("fsync", 9), ("rename", 6), ("openat", 30), ("unlink", 2)])
def test_a_run_killed_at_a_system_call_goes_on(
    crew: list[Committers], tmp_path: Path, hashes: list[str], point: Point
) -> None:
    assert killed_at(crew[0], tmp_path, point, hashes) == -9


@pytest.mark.long
def test_a_run_killed_at_every_system_call_goes_on(
    crew: list[Committers], tmp_path: Path, hashes: list[str], counts: dict[str, int]
) -> None:
    assert {*CHANGING, "openat", "close", "exit_group"} <= counts.keys()
    points = [(call, number) for call, count in counts.items() for number in range(1, count + 1)]
    assert len(points) > 200
    ends = everywhere(crew, lambda committer, point: killed_at(committer, tmp_path, point, hashes), points)
    missed = [point for point, ended in zip(points, ends, strict=True) if ended == 0]
    assert not any(call in CHANGING for call, _ in missed)
    assert len(missed) < 10  # memory and directory reads are not the same in every process
    beyond = [(call, counts[call] + 1) for call in CHANGING]
    assert set(everywhere(crew, lambda one, point: killed_at(one, tmp_path, point, hashes), beyond)) == {0}


# A disk that fails, and limits


def fails_at(committer: Committers, directory: Path, fault: str, hashes: list[str]) -> int:
    """Run on a disk with this fault and return the exit code: 5, or 0 where nothing depended on what failed."""
    ended = traced(committer, directory, "-o", "/dev/null", "-e", f"inject={fault}")
    assert ended in (0, 5), (fault, ended)
    assert list(directory.parent.rglob("*.tmp")) == []
    goes_on(directory, hashes)
    shutil.rmtree(directory.parent)
    return ended


@pytest.mark.parametrize(
    "fault",
    sampled(
        [
            f"{','.join(WRITING)}:error=ENOSPC:when=9+",
            "write:error=EIO:when=6",
            "fsync:error=EIO:when=9",
            "rename:error=EDQUOT:when=8",
            f"{','.join(WRITING)}:error=EROFS:when=5+",
            "fsync:error=EIO:when=7",
            "openat:error=EMFILE:when=20+",
        ],
        *range(2),
    ),
)
def test_a_failing_disk_ends_the_run_with_exit_5_and_a_directory_that_goes_on(
    crew: list[Committers], tmp_path: Path, hashes: list[str], fault: str
) -> None:
    assert fails_at(crew[0], tmp_path / "place" / "run", fault, hashes) == 5


@pytest.mark.long
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", WRITING)
@pytest.mark.parametrize("lasting", ["", "+"])
def test_a_disk_that_fails_at_any_call_ends_the_run_with_exit_5(
    crew: list[Committers],
    tmp_path: Path,
    hashes: list[str],
    counts: dict[str, int],
    error: str,
    call: str,
    lasting: str,
) -> None:
    def fails(committer: Committers, point: Point) -> int:
        run = tmp_path / str(point[1]) / "run"
        return fails_at(committer, run, f"{call}:error={error}:when={point[1]}{lasting}", hashes)

    ends = everywhere(crew, fails, [(call, number) for number in range(1, counts[call] + 2)])
    assert 5 in ends
    assert ends[-1] == 0  # beyond the last call


def limited(committer: Committers, place: Path, limit: str, most: int, hashes: list[str]) -> int:
    """Run with a resource limit and return the exit code: 5, or 0 where it was enough."""
    run = place / f"{limit}-{most}" / "run"
    ended = traced(committer, run, limits={limit: most})
    assert ended in (0, 5), (limit, most, ended)
    assert list(run.parent.rglob("*.tmp")) == []
    goes_on(run, hashes)
    shutil.rmtree(run.parent)
    return ended


@pytest.mark.parametrize(("limit", "most"), [("RLIMIT_NOFILE", 5), ("RLIMIT_FSIZE", 5_000), ("RLIMIT_FSIZE", 0)])
def test_a_limit_ends_the_run_with_exit_5_and_a_directory_that_goes_on(
    crew: list[Committers], tmp_path: Path, hashes: list[str], limit: str, most: int
) -> None:
    assert limited(crew[0], tmp_path, limit, most, hashes) == 5


@pytest.mark.long
@pytest.mark.parametrize(("limit", "values"), [("RLIMIT_NOFILE", range(16)), ("RLIMIT_FSIZE", range(0, 20_000, 251))])
def test_any_limit_ends_the_run_with_exit_5_or_is_enough(
    crew: list[Committers], tmp_path: Path, hashes: list[str], limit: str, values: range
) -> None:
    points = [(limit, most) for most in values]
    ends = everywhere(crew, lambda committer, point: limited(committer, tmp_path, *point, hashes), points)
    assert ends == sorted(ends, reverse=True)  # more is never worse
    assert {ends[0], ends[-1]} == {0, 5}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("mount") is None or os.getuid() != 0, reason="mounting needs root")
def test_a_disk_of_any_size_ends_the_run_with_exit_5_or_is_enough(
    crew: list[Committers], tmp_path: Path, hashes: list[str]
) -> None:
    ends = []
    for pages in range(1, 80):
        with small_disk(tmp_path / "disk", f"{4 * pages}k"):
            ends.append(traced(crew[0], tmp_path / "disk" / "run"))
            assert list((tmp_path / "disk").rglob("*.tmp")) == []
            if (tmp_path / "disk" / "run").exists():
                shutil.copytree(tmp_path / "disk" / "run", tmp_path / "larger" / "run")
        (tmp_path / "disk").rmdir()
        goes_on(tmp_path / "larger" / "run", hashes)
        shutil.rmtree(tmp_path / "larger")
    assert set(ends) == {0, 5}
    assert ends == sorted(ends, reverse=True)


# Losing power: nothing that was not synced need be there, and anything may be


class Call(NamedTuple):
    name: str
    path: str
    data: bytes = b""
    target: str = ""


def trace(committer: Committers, directory: Path, log: Path) -> list[Call]:
    """Run undisturbed and return what it asked of the file system, with names relative to where the run is made."""
    options = ["-y", "-xx", "-s", "1000000", "-e", f"trace={','.join(CHANGING)}", "-o", str(log)]
    assert traced(committer, directory / "run", *options) == 0
    calls = []
    for line in log.read_text().splitlines():
        if found := re.search(r"(\w+)\((?:\d+<)?\"?([^>\",]*)[>\"](?:, \"([^\"]*)\")?.*\) = \d+$", line):
            name, path, text = found[1], unescaped(found[2]).decode(), unescaped(found[3] or "")
            target = text.decode() if name == "rename" else ""
            if path.startswith(str(directory)):
                inside = [part.removeprefix(str(directory)).lstrip("/") for part in (path, target)]
                calls.append(Call(name, inside[0], text, inside[1]))
    return calls


def unescaped(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


@pytest.fixture(scope="module")
def calls(crew: list[Committers], tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """Every change that the undisturbed run makes to its files."""
    place = tmp_path_factory.mktemp("traced")
    (place / "here").mkdir()
    made = trace(crew[0], place / "here", place / "log")
    assert len(made) > 70
    return made


class File:
    """A file as the disk knows it: what was written by which call, and how many of those writes were synced."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, bytes]] = []
        self.synced = 0

    def data(self, first: int) -> bytes:
        return b"".join(data for _, data in self.writes[:first])

    def as_of(self, call: int) -> bytes:
        """Return what is there where nothing after this call has reached the disk by itself."""
        return b"".join(data for n, (made, data) in enumerate(self.writes) if n < self.synced or made < call)

    def after_power_cut(self, dice: random.Random, lose: float) -> bytes:
        everything, synced = self.data(len(self.writes)), self.data(self.synced)
        kept = everything if dice.random() >= lose else synced
        if len(kept) > len(synced) and dice.random() < lose:
            kept = kept[: dice.randrange(len(synced), len(kept))]
        if kept is synced and len(everything) > len(kept) and dice.random() < lose / 2:
            kept += bytes(len(everything) - len(kept))  # the size was written, the blocks were not
        return kept


class Directory:
    """A directory as the disk knows it: changes of names, each whole, and how many of them were synced."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, dict[str, File | Directory | None]]] = []
        self.synced = 0

    def names(self, changes: list[tuple[int, dict[str, File | Directory | None]]]) -> dict[str, File | Directory]:
        names: dict[str, File | Directory | None] = {}
        for _, change in changes:
            names |= change
        return {name: entry for name, entry in names.items() if entry is not None}

    def find(self, path: str) -> tuple[Directory, str, File | Directory | None]:
        first, _, rest = path.partition("/")
        entry = self.names(self.changes).get(first)
        if rest and isinstance(entry, Directory):
            return entry.find(rest)
        assert not rest, path
        return self, first, entry

    def as_of(self, call: int) -> Left:
        """Return what is left where nothing after this call has reached the disk by itself."""
        kept = [change for n, change in enumerate(self.changes) if n < self.synced or change[0] < call]
        return tuple((name, entry.as_of(call)) for name, entry in sorted(self.names(kept).items()))

    def unsynced(self) -> set[int]:
        """Return the calls here and below that nobody has asked the disk to keep."""
        found = {made for made, _ in self.changes[self.synced :]}
        for entry in self.names(self.changes).values():
            found |= entry.unsynced() if isinstance(entry, Directory) else {n for n, _ in entry.writes[entry.synced :]}
        return found

    def after_power_cut(self, dice: random.Random, lose_names: float, lose_data: float) -> Left:
        unsynced = [change for change in self.changes[self.synced :] if dice.random() >= lose_names]
        left: list[tuple[str, bytes | Left]] = []
        for name, entry in sorted(self.names(self.changes[: self.synced] + unsynced).items()):
            if isinstance(entry, Directory):
                left.append((name, entry.after_power_cut(dice, lose_names, lose_data)))
            else:
                left.append((name, entry.after_power_cut(dice, lose_data)))
        return tuple(left)


Left: TypeAlias = "tuple[tuple[str, bytes | Left], ...]"  # files and folders by name


def put(left: Left, to: Path) -> None:
    to.mkdir()
    for name, content in left:
        if isinstance(content, bytes):
            (to / name).write_bytes(content)
        else:
            put(content, to / name)


Seen = set[tuple[Left, int]]  # disks that have been taken up, and what could be relied on


def taken_up(left: Left, durable: int, to: Path, hashes: list[str], seen: Seen) -> None:
    """Take up what a power cut has left; of equal disks one is enough."""
    if (left, durable) not in seen:
        put(left, to)
        goes_on(to / "run", hashes, at_least=durable)
        shutil.rmtree(to)
        seen.add((left, durable))


def disk_after(calls: list[Call]) -> tuple[Directory, int]:
    """Return the disk after these calls, and how many generations the run could then rely on."""
    root, durable = Directory(), 0
    for number, call in enumerate(calls):
        parent, name, entry = root.find(call.path) if call.path else (root, "", root)
        if call.name in ("write", "pwrite64", "fsync", "ftruncate") and entry is None:
            entry = File()  # it was made when it was opened
            parent.changes.append((number, {name: entry}))
        if call.name == "mkdir":
            parent.changes.append((number, {name: Directory()}))
        elif call.name in ("write", "pwrite64") and isinstance(entry, File):
            entry.writes.append((number, call.data))
        elif call.name == "rename":
            assert call.target.rpartition("/")[0] == call.path.rpartition("/")[0]
            parent.changes.append((number, {name: None, call.target.rpartition("/")[2]: entry}))
        elif call.name == "unlink":
            parent.changes.append((number, {name: None}))
        elif call.name == "fsync" and isinstance(entry, Directory):
            entry.synced = len(entry.changes)
        elif call.name == "fsync" and isinstance(entry, File):
            entry.synced = len(entry.writes)
            if call.path == "run/manifest.jsonl":
                durable = entry.data(entry.synced).count(b"\n") - 1
    return root, durable


def lose_power(calls: list[Call], place: int, to: Path, hashes: list[str], dice: random.Random, seen: Seen) -> int:
    """Lose power after so many calls, and with it some of what was not synced; return what could be relied on."""
    disk, durable = disk_after(calls[:place])
    left = disk.after_power_cut(dice, dice.choice([0.0, 0.5, 1.0]), dice.choice([0.0, 0.5, 1.0]))
    taken_up(left, durable, to, hashes, seen)
    return durable


def lose_what_came_last(calls: list[Call], place: int, to: Path, hashes: list[str], seen: Seen) -> int:
    """Lose power after so many calls, with every prefix of what was not synced on the disk; return how many."""
    disk, durable = disk_after(calls[:place])
    prefixes = sorted({*disk.unsynced(), place})
    for last in prefixes:
        taken_up(disk.as_of(last), durable, to, hashes, seen)
    return len(prefixes)


def test_power_lost_at_a_system_call_loses_nothing_that_was_durable(
    calls: list[Call], tmp_path: Path, hashes: list[str]
) -> None:
    dice = random.Random(1)
    seen: Seen = set()
    durable = {lose_power(calls, dice.randrange(len(calls)), tmp_path / "disk", hashes, dice, seen) for _ in range(20)}
    assert len(seen) > 10
    assert len(durable) > 2


def test_every_prefix_of_what_was_not_synced_before_the_last_commit_goes_on(
    calls: list[Call], tmp_path: Path, hashes: list[str]
) -> None:
    last = max(number for number, call in enumerate(calls) if call.path == "run/manifest.jsonl" and call.data)
    assert lose_what_came_last(calls, last, tmp_path / "disk", hashes, set()) > 5


@pytest.mark.long
def test_every_prefix_of_what_was_not_synced_at_any_system_call_goes_on(
    calls: list[Call], tmp_path: Path, hashes: list[str]
) -> None:
    seen: Seen = set()
    points = sum(lose_what_came_last(calls, n, tmp_path / "disk", hashes, seen) for n in range(len(calls) + 1))
    assert points > 1000
    assert len(seen) > 100


@pytest.mark.long
def test_power_lost_at_any_system_call_loses_nothing_that_was_durable(
    calls: list[Call], tmp_path: Path, hashes: list[str]
) -> None:
    dice = random.Random(2)
    seen: Seen = set()
    for place in range(len(calls) + 1):
        for _ in range(12):
            lose_power(calls, place, tmp_path / "disk", hashes, dice, seen)
    assert len(seen) > 100


def test_the_power_cut_is_real_without_the_sync_of_names_or_data_it_loses_generations(
    calls: list[Call], tmp_path: Path, hashes: list[str]
) -> None:
    data = [call for call in calls if not (call.name == "fsync" and call.path.endswith(".h5.tmp"))]
    names = [call for call in calls if not (call.name == "fsync" and call.path.endswith(("population", "records")))]
    for number, forgetful in enumerate((data, names)):
        dice, lost = random.Random(number), 0
        for trial in range(12):
            try:
                lose_power(forgetful, len(forgetful), tmp_path / f"{number}-{trial}", hashes, dice, set())
            except (AssertionError, EvoError):
                lost += 1
        assert lost > 0


def test_data_and_names_are_synced_before_the_manifest_speaks_of_them(calls: list[Call]) -> None:
    steps = [
        f"{call.name} {re.sub(r'[0-9]+', 'N', call.path.removeprefix('run/'))}"
        for call in calls
        if call.path.startswith("run") and not re.search("published|metrics|lock", call.path) and call.name != "flock"
    ]
    one = []
    for folder, file in (("population", "gen-N.hN"), ("records", "gen-N-N.hN")):
        one += [f"{name} {folder}/{file}.tmp" for name in ("write", "fsync", "rename")]
    one += ["fsync population", "fsync records", "write manifest.jsonl", "fsync manifest.jsonl"]
    assert [step for step in steps if not step.startswith("unlink")] == one * 4


# Being killed at any moment


def killed_at_random(committer: Committers, place: Path, hashes: list[str], kills: int) -> int:
    """Kill a run at random moments until it is done; everything that it said was durable is there every time."""
    dice = random.Random(kills)
    generations = len(hashes) - 1
    place.mkdir()
    for done in range(kills):
        log = place / f"log-{done}"
        log.touch()
        pid = committer.begin([place / "run", generations, dice.choice([0, 0.002]), 8, "", log])
        while not log.read_text():  # it is ready
            time.sleep(0.0002)
        time.sleep(dice.uniform(0.0, 0.05))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        assert committer.ended() in (0, -9)
        said = [int(number) for number in re.findall(r"^durable (\d+)\n", log.read_text(), re.MULTILINE)]
        with Store.open(place / "run") as store:
            assert store.next_generation >= max(said, default=0)
            assert_holds(store, hashes)
            assert list((place / "run").rglob("*.tmp")) == []
            if store.next_generation == generations:
                break
    with Store.open(place / "run") as store:
        for generation in range(store.next_generation, generations):
            commit(store, generation)
        assert store.state_hash == hashes[generations]
    return done + 1


@pytest.fixture(scope="module")
def many_hashes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return straight(tmp_path_factory.mktemp("straight") / "run", 60)


@pytest.mark.long
def test_a_run_killed_at_random_moments_has_everything_that_was_durable_and_ends_alike(
    tmp_path: Path, many_hashes: list[str]
) -> None:
    with Committers() as committer:
        assert killed_at_random(committer, tmp_path / "place", many_hashes, 8) > 1


@pytest.mark.long
def test_200_kills_lose_nothing(tmp_path: Path, many_hashes: list[str]) -> None:
    kills, trial = 0, 0
    with Committers() as committer:
        while kills < 200:
            kills += killed_at_random(committer, tmp_path / str(trial), many_hashes, 8 + trial)
            trial += 1
