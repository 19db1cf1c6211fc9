"""A commit is made durable while its successor is played; whatever ends the run just then loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from calling import ROOT, SMALL, called, summary_of
from learning import tensorflow  # noqa: F401
from ray_nodes import needs_ray
from test_resume import written

from evo.store import store as stores
from evo.store.store import Store

GENERATIONS = 4
PROGRAM = """
import sys
from evo.store import store
from evo.cli.main import main_run
store.DURABLE_SECONDS = 0.0  # every commit is due at once, as where generations are long
sys.exit(main_run())
"""
WORDS = ("small.toml", "--run-dir", "run", "--generations", GENERATIONS, "--backend", "processes", "--workers", 2)
FAULTS = {"signal=SIGKILL": -9, "signal=SIGTERM": 143, "signal=SIGINT": 130, "error=ENOSPC": 5, "error=EIO": 5}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def struck(where: Path, fault: str, call: str, number: int, *words: object) -> tuple[int, str, str]:
    """Run where the master's n-th system call of this name meets a fault; return how it ended, and what it said."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    strace = ["strace", "-o", "/dev/null", "-e", f"inject={call}:{fault}:when={number}"]
    line = [*strace, sys.executable, "-c", PROGRAM, *map(str, words or WORDS), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(line, cwd=where, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if "PTRACE" in ended.stderr:
        pytest.skip(f"needs the right to trace: {ended.stderr}")
    return ended.returncode, ended.stdout, ended.stderr


def shown(out: str) -> int:
    """Return how many generations a run has shown."""
    return sum(line.startswith("generation") for line in out.splitlines())


def undisturbed(where: Path, file: str = "small.toml") -> dict[str, Any]:
    return summary_of(where, file, "--run-dir", "straight", "--generations", GENERATIONS)


def goes_on(where: Path, straight: dict[str, Any]) -> None:
    """What is left of the run is taken up, and ends as the undisturbed run."""
    resumed = summary_of(where, "--resume", "run", "--generations", GENERATIONS, "--backend", "serial")
    assert all(resumed[key] == straight[key] for key in ("generations", "frames", "state_hash", "champion"))
    assert list((where / "run").rglob("*.tmp")) == []


def test_a_commit_is_durable_while_its_successor_is_played_and_nothing_else_is_different(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "DURABLE_SECONDS", 0.0)
    told: dict[str, Any] = {}
    beside = ["processes", *(["ray"] if find_spec("ray") else [])]
    for backend in ("serial", *beside):
        summary = summary_of(small, "small.toml", "--run-dir", backend, "--backend", backend, "--workers", 2)
        told[backend] = Store.read(small / backend).metrics()
        assert summary["state_hash"] == told.setdefault("hash", summary["state_hash"])
    files = [sorted(path.name for path in (small / name / "records").iterdir()) for name in told if name != "hash"]
    assert all(names == files[0] for names in files)
    assert len(files[0]) == GENERATIONS  # each has its own
    for backend in beside:
        assert [line["seconds_settling"] > 0 for line in told[backend]] == [False, True, True, True]
        assert all(line["seconds_committing"] > 0 for line in told[backend][1:])  # hashes
    assert not any(line["seconds_settling"] for line in told["serial"])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_while_a_commit_is_synced_beside_its_successor_loses_nothing(small: Path, fault: str) -> None:
    code, out, err = struck(small, fault, "fsync", 20)
    assert code == FAULTS[fault], out + err
    assert 0 < shown(out) < GENERATIONS
    assert "Traceback" not in err
    if code > 0:
        summary = json.loads(out.splitlines()[-1])
        assert len(err.splitlines()) == 1
        assert summary["generations"] == shown(out) - (code == 5)  # it was shown before the disk had it
        assert Store.read(small / "run").next_generation == summary["generations"]
        assert summary["state_hash"] == Store.read(small / "run").state_hash
    else:
        with Store.open(small / "run") as store:
            assert store.next_generation >= shown(out) - 1
    goes_on(small, undisturbed(small))
    called(small, "verify", "run", program="evo")


@needs_ray
@pytest.mark.parametrize("fault", ["error=ENOSPC", "signal=SIGTERM"])
def test_a_fault_while_ray_plays_the_successor_loses_nothing(small: Path, fault: str) -> None:
    words = ("small.toml", "--run-dir", "run", "--generations", GENERATIONS, "--backend", "ray", "--workers", 2)
    code, out, err = struck(small, fault, "fsync", 20, *words)
    assert code == FAULTS[fault], out + err
    assert len(err.splitlines()) == 1
    assert 0 < Store.read(small / "run").next_generation == shown(out) - (code == 5) < GENERATIONS
    goes_on(small, undisturbed(small))


@pytest.mark.long
@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("fault", ["signal=SIGKILL", "error=ENOSPC"])
def test_a_fault_at_any_call_of_a_run_that_settles_loses_nothing(small: Path, fault: str, call: str) -> None:
    straight, ends = undisturbed(small), []
    for number in range(9, 90, 8):
        code, out, err = struck(small, fault, call, number)
        ends.append(code)
        assert code in (0, FAULTS[fault]), (number, out + err)
        assert "Traceback" not in err
        with Store.open(small / "run") as store:
            assert store.next_generation >= shown(out) - 1
        goes_on(small, straight)
        shutil.rmtree(small / "run")
    assert {ends[0], ends[-1]} == {FAULTS[fault], 0}


@pytest.mark.long
@pytest.mark.parametrize(("name", "number"), [("pg", 0), ("dqn", 1)])
@pytest.mark.parametrize("fault", FAULTS)
def test_learning_that_goes_on_beside_a_commit_loses_nothing_either(
    tmp_path: Path, name: str, number: int, fault: str
) -> None:
    file = written(tmp_path, name, number)
    assert "asynchronous = true" in (tmp_path / file).read_text()
    words = (file, "--run-dir", "run", "--generations", GENERATIONS, "--backend", "processes", "--workers", 2)
    code, out, err = struck(tmp_path, fault, "fsync", 22, *words)
    assert code == FAULTS[fault], out + err
    assert 0 < shown(out) < GENERATIONS
    goes_on(tmp_path, undisturbed(tmp_path, file))
