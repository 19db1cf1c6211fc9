"""Whatever ends a run while it makes a commit durable loses nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evo.store.store import Store
from tests.helpers.calling import called, summary_of

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


def struck(where: Path, fault: str, call: str, number: int) -> tuple[int, str, str]:
    """Run where the master's n-th system call of this name meets a fault; return how it ended, and its output."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    strace = ["strace", "-o", "/dev/null", "-e", f"inject={call}:{fault}:when={number}"]
    line = [*strace, sys.executable, "-c", PROGRAM, *map(str, WORDS), "--json"]
    ended = subprocess.run(line, cwd=where, capture_output=True, text=True, timeout=300, check=False)
    if "PTRACE" in ended.stderr:
        pytest.skip(f"needs the right to trace: {ended.stderr}")
    return ended.returncode, ended.stdout, ended.stderr


QUICK = "signal=SIGKILL"  # a full disk is in test_store_faults.py


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[] if fault == QUICK else [pytest.mark.long]) for fault in FAULTS]
)
def test_a_fault_while_a_commit_is_synced_loses_nothing(small: Path, fault: str) -> None:
    code, out, err = struck(small, fault, "fsync", 20)
    assert code == FAULTS[fault], out + err
    shown = sum(line.startswith("generation") for line in out.splitlines())
    assert 0 < shown < GENERATIONS
    assert "Traceback" not in err
    if code > 0:
        summary = json.loads(out.splitlines()[-1])
        assert len(err.splitlines()) == 1
        assert summary["generations"] == Store.read(small / "run").next_generation >= shown
        assert summary["state_hash"] == Store.read(small / "run").state_hash
    else:
        with Store.open(small / "run") as store:
            assert store.next_generation >= shown
    straight = summary_of(small, "small.toml", "--run-dir", "straight", "--generations", GENERATIONS)
    resumed = summary_of(small, "--resume", "run", "--generations", GENERATIONS, "--backend", "serial")
    assert all(resumed[key] == straight[key] for key in ("generations", "frames", "state_hash", "champion"))
    assert list((small / "run").rglob("*.tmp")) == []
    called(small, "verify", "run", program="evo")
