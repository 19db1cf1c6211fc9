"""Every system call of a small run is where it is killed, or where the disk fails, or where the power goes."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from committing import commit, straight
from test_store import COMMITTING, ROOT, assert_holds

from evo.errors import EvoError
from evo.store import Store

GENERATIONS = 7
CALLS = "write,pwrite64,fsync,rename,ftruncate,mkdir,unlink,flock,chmod"

STRACE = shutil.which("strace")
ALLOWED = (
    STRACE is not None and subprocess.run([STRACE, "-qq", "true"], capture_output=True, check=False).returncode == 0
)
pytestmark = pytest.mark.skipif(not ALLOWED, reason="needs strace and the right to trace")


def traced(directory: Path, *options: str) -> int:
    """Run the seven generations under strace and return how the run ended, negative for a signal."""
    directory.parent.mkdir(exist_ok=True)
    command = [str(STRACE), "-qq", "-y", "-e", f"trace={CALLS}", *options]
    command += [sys.executable, str(COMMITTING), str(directory), str(GENERATIONS), "0", "8", "quiet"]
    environment = {"PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    return ended.returncode


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return straight(tmp_path_factory.mktemp("straight") / "run", GENERATIONS)


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


def killed_at(directory: Path, call: str, number: int, hashes: list[str]) -> bool:
    """Kill the run at its number-th call of this name, and tell whether it came so far."""
    ended = traced(directory, "-o", "/dev/null", "-e", f"inject={call}:signal=SIGKILL:when={number}")
    assert ended in (0, -9, 137), ended
    goes_on(directory, hashes)
    return ended != 0


@pytest.mark.parametrize(("call", "number"), [("write", 12), ("fsync", 9), ("rename", 6)])
def test_a_run_killed_at_a_system_call_goes_on(tmp_path: Path, hashes: list[str], call: str, number: int) -> None:
    assert killed_at(tmp_path / "run", call, number, hashes)


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How often the undisturbed run makes each call."""
    log = tmp_path_factory.mktemp("counted") / "log"
    assert traced(log.parent / "run", "-o", str(log)) == 0
    names = (line.partition("(")[0] for line in log.read_text().splitlines())  # or a signal that it got
    return Counter(name for name in names if name in CALLS.split(","))


@pytest.mark.long
def test_a_run_killed_at_any_system_call_goes_on(tmp_path: Path, hashes: list[str], counts: dict[str, int]) -> None:
    assert sum(counts.values()) > 70
    for call, count in counts.items():
        for number in range(1, count + 1):
            assert killed_at(tmp_path / f"{call}-{number}" / "run", call, number, hashes)
        assert not killed_at(tmp_path / f"{call}-none" / "run", call, count + 1, hashes)


def fails_at(directory: Path, fault: str, hashes: list[str]) -> int:
    """Run on a disk with this fault and return the exit code: 5, or 0 where nothing depended on what failed."""
    ended = traced(directory, "-o", "/dev/null", "-e", f"inject={fault}")
    assert ended in (0, 5), ended
    assert list(directory.parent.rglob("*.tmp")) == []
    goes_on(directory, hashes)
    return ended


WRITING = "write,pwrite64,fsync,rename,mkdir,ftruncate"


@pytest.mark.parametrize(
    "fault",
    [
        f"{WRITING}:error=ENOSPC:when=9+",
        "write:error=EIO:when=6",
        "fsync:error=EIO:when=9",
        "rename:error=EDQUOT:when=8",
        f"{WRITING}:error=EROFS:when=5+",
        "fsync:error=EIO:when=7",
    ],
)
def test_a_failing_disk_ends_the_run_with_exit_5_and_a_directory_that_goes_on(
    tmp_path: Path, hashes: list[str], fault: str
) -> None:
    assert fails_at(tmp_path / "run", fault, hashes) == 5


@pytest.mark.long
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", WRITING.split(","))
@pytest.mark.parametrize("lasting", ["", "+"])
def test_a_disk_that_fails_at_any_call_ends_the_run_with_exit_5(
    tmp_path: Path, hashes: list[str], counts: dict[str, int], error: str, call: str, lasting: str
) -> None:
    ends = [
        fails_at(tmp_path / str(number) / "run", f"{call}:error={error}:when={number}{lasting}", hashes)
        for number in range(1, counts[call] + 2)
    ]
    assert 5 in ends
    assert ends[-1] == 0  # beyond the last call


# Losing power: nothing that was not synced need be there, and anything may be


class Call(NamedTuple):
    name: str
    path: str
    data: bytes = b""
    target: str = ""


def trace(directory: Path, log: Path) -> list[Call]:
    """Run undisturbed and return what it asked of the file system, with names relative to where the run is made."""
    assert traced(directory / "run", "-xx", "-s", "1000000", "-o", str(log)) == 0
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


class File:
    """A file as the disk knows it: what was written, and how much of that was synced."""

    def __init__(self) -> None:
        self.data = b""
        self.synced = b""

    def after_power_cut(self, dice: random.Random, lose: float) -> bytes:
        kept = self.data if self.data.startswith(self.synced) and dice.random() >= lose else self.synced
        if len(kept) > len(self.synced) and dice.random() < lose:
            kept = kept[: dice.randrange(len(self.synced), len(kept))]
        if kept is self.synced and len(self.data) > len(kept) and dice.random() < lose / 2:
            kept += bytes(len(self.data) - len(kept))  # the size was written, the blocks were not
        return kept


class Directory:
    """A directory as the disk knows it: changes of names, each whole, and how many of them were synced."""

    def __init__(self) -> None:
        self.changes: list[dict[str, File | Directory | None]] = []
        self.synced = 0

    def names(self, changes: list[dict[str, File | Directory | None]]) -> dict[str, File | Directory]:
        names: dict[str, File | Directory | None] = {}
        for change in changes:
            names |= change
        return {name: entry for name, entry in names.items() if entry is not None}

    def find(self, path: str) -> tuple[Directory, str, File | Directory | None]:
        first, _, rest = path.partition("/")
        entry = self.names(self.changes).get(first)
        if rest and isinstance(entry, Directory):
            return entry.find(rest)
        assert not rest, path
        return self, first, entry

    def after_power_cut(self, to: Path, dice: random.Random, lose_names: float, lose_data: float) -> None:
        to.mkdir()
        unsynced = [change for change in self.changes[self.synced :] if dice.random() >= lose_names]
        for name, entry in self.names(self.changes[: self.synced] + unsynced).items():
            if isinstance(entry, Directory):
                entry.after_power_cut(to / name, dice, lose_names, lose_data)
            else:
                (to / name).write_bytes(entry.after_power_cut(dice, lose_data))


def disk_after(calls: list[Call]) -> tuple[Directory, int]:
    """Return the disk after these calls, and how many generations the run could then rely on."""
    root, durable = Directory(), 0
    for call in calls:
        parent, name, entry = root.find(call.path) if call.path else (root, "", root)
        if call.name in ("write", "pwrite64", "fsync", "ftruncate") and entry is None:
            entry = File()  # it was made when it was opened
            parent.changes.append({name: entry})
        if call.name == "mkdir":
            parent.changes.append({name: Directory()})
        elif call.name in ("write", "pwrite64") and isinstance(entry, File):
            entry.data += call.data
        elif call.name == "rename":
            assert call.target.rpartition("/")[0] == call.path.rpartition("/")[0]
            parent.changes.append({name: None, call.target.rpartition("/")[2]: entry})
        elif call.name == "unlink":
            parent.changes.append({name: None})
        elif call.name == "fsync" and isinstance(entry, Directory):
            entry.synced = len(entry.changes)
        elif call.name == "fsync" and isinstance(entry, File):
            entry.synced = entry.data
            if call.path == "run/manifest.jsonl":
                durable = entry.data.count(b"\n") - 1
    return root, durable


def lose_power(calls: list[Call], place: int, to: Path, hashes: list[str], dice: random.Random) -> int:
    disk, durable = disk_after(calls[:place])
    disk.after_power_cut(to, dice, dice.choice([0.0, 0.5, 1.0]), dice.choice([0.0, 0.5, 1.0]))
    goes_on(to / "run", hashes, at_least=durable)
    return durable


def test_power_lost_at_a_system_call_loses_nothing_that_was_durable(tmp_path: Path, hashes: list[str]) -> None:
    (tmp_path / "traced").mkdir()
    calls = trace(tmp_path / "traced", tmp_path / "log")
    assert len(calls) > 70
    dice = random.Random(1)
    durable = {lose_power(calls, dice.randrange(len(calls)), tmp_path / str(n), hashes, dice) for n in range(20)}
    assert len(durable) > 2


@pytest.mark.long
def test_power_lost_at_any_system_call_loses_nothing_that_was_durable(tmp_path: Path, hashes: list[str]) -> None:
    (tmp_path / "traced").mkdir()
    calls = trace(tmp_path / "traced", tmp_path / "log")
    dice = random.Random(2)
    for place in range(len(calls) + 1):
        for trial in range(12):
            lose_power(calls, place, tmp_path / f"{place}-{trial}", hashes, dice)


def test_the_power_cut_is_real_without_the_sync_of_names_or_data_it_loses_generations(
    tmp_path: Path, hashes: list[str]
) -> None:
    (tmp_path / "traced").mkdir()
    calls = trace(tmp_path / "traced", tmp_path / "log")
    data = [call for call in calls if not (call.name == "fsync" and call.path.endswith(".h5.tmp"))]
    names = [call for call in calls if not (call.name == "fsync" and call.path.endswith(("population", "records")))]
    for number, forgetful in enumerate((data, names)):
        dice, lost = random.Random(number), 0
        for trial in range(12):
            try:
                lose_power(forgetful, len(forgetful), tmp_path / f"{number}-{trial}", hashes, dice)
            except (AssertionError, EvoError):
                lost += 1
        assert lost > 0


def test_data_and_names_are_synced_before_the_manifest_speaks_of_them(tmp_path: Path) -> None:
    (tmp_path / "traced").mkdir()
    calls = [call for call in trace(tmp_path / "traced", tmp_path / "log") if call.path.startswith("run")]
    steps = [
        f"{call.name} {re.sub(r'[0-9]+', 'N', call.path.removeprefix('run/'))}"
        for call in calls
        if "published" not in call.path and "metrics" not in call.path
    ]
    one = []
    for folder, file in (("population", "gen-N.hN"), ("records", "gen-N-N.hN")):
        one += [f"{name} {folder}/{file}.tmp" for name in ("write", "fsync", "rename")]
    one += ["fsync population", "fsync records", "write manifest.jsonl", "fsync manifest.jsonl"]
    assert [step for step in steps if not step.startswith("unlink")] == one * 4
