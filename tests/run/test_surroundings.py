"""A run does not mind where it is started from, whether the clock jumps, or who else wants its directory."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.evaluators.test_evaluators import children
from tests.helpers.calling import after, command, summary_of

FAKETIME = sorted(Path("/usr/lib").glob("**/faketime/libfaketime.so.1"))
CALL = "['small.toml', '--backend', 'processes', '--workers', '2', '--json', '--quiet']"


def done(where: Path, words: list[str], given: str = "", **variables: str) -> str:
    environment = {**os.environ, **variables}
    ended = subprocess.run(words, cwd=where, env=environment, input=given, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout


STARTS = {
    "script": ([sys.executable, "no_guard.py"], ""),
    "input": ([sys.executable, "-"], f"from evo.cli.main import main_run\nmain_run({CALL})\n"),
    "session": ([sys.executable, "-i", "-q"], f"from evo.cli.main import main_run\n_ = main_run({CALL})\nexit()\n"),
    "test": ([sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_inner.py"], ""),
}


@pytest.mark.long
@pytest.mark.parametrize("start", STARTS)
def test_workers_start_from_a_script_without_a_guard_a_session_and_a_test(small: Path, start: str) -> None:
    reference = summary_of(small, "small.toml", "--run-dir", "reference")
    (small / "no_guard.py").write_text(f"from evo.cli.main import main_run\nmain_run({CALL})\n")
    (small / "test_inner.py").write_text(
        f"from evo.cli.main import main_run\ndef test_run():\n    assert main_run({CALL}) == 0\n"
    )
    out = done(small, *STARTS[start])
    (line,) = [line for line in out.splitlines() if line.startswith('{"status"')]
    assert json.loads(line)["state_hash"] == reference["state_hash"]


@pytest.mark.long
@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed (Debian: apt-get install faketime)")
def test_a_clock_that_jumps_by_days_and_to_1970_changes_nothing(small: Path) -> None:
    clock = small / "clock"
    clock.write_text("+0")
    variables = {
        "LD_PRELOAD": str(FAKETIME[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # a clock that is set never makes that one jump
        "NO_FAKE_STAT": "1",
    }
    asked = [sys.executable, "-c", "import time; print(time.time())"]
    reference = summary_of(small, "small.toml", "--run-dir", "reference", "--generations", 100)
    words = ["-m", "evo.run", "small.toml", "--backend", "processes", "--workers", "2", "--json"]
    words += ["--generations", "100"]
    environment = {**os.environ, **variables}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, *words], cwd=small, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as process:
        out = after(process, 1)
        family = children(process.pid)
        for generation, jump in ((2, "+1d"), (20, "-1d"), (40, "-20700d"), (60, "+3650d"), (80, "-1d")):
            out += after(process, generation)
            assert children(process.pid) == family  # no deadline was thought to be over
            clock.write_text(jump)
            days = (float(done(small, asked, **variables)) - time.time()) / 86400
            assert abs(days - float(jump.rstrip("d"))) < 1
        rest, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    summary = json.loads((out + rest).splitlines()[-1])
    for key in ("state_hash", "frames", "generations", "champion"):
        assert summary[key] == reference[key]
    assert 0 < summary["seconds"] < 120


@pytest.mark.long
def test_of_two_masters_that_want_one_directory_one_has_it_and_the_other_names_it(small: Path) -> None:
    summary_of(small, "small.toml", "--run-dir", "run", "--generations", 2)
    reference = summary_of(small, "small.toml", "--run-dir", "reference", "--generations", 40)
    words = [sys.executable, "-m", "evo.run", "--resume", "run", "--generations", "40", "--json"]
    environment = {**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"}
    pipe = subprocess.PIPE
    both = [subprocess.Popen(words, cwd=small, env=environment, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 4], said
    winner, loser = codes.index(0), codes.index(4)
    assert f"is in use by process {both[winner].pid}" in said[loser][1]
    assert json.loads(said[winner][0].splitlines()[-1])["state_hash"] == reference["state_hash"]


@pytest.mark.long
def test_of_two_masters_that_make_one_directory_one_makes_it(small: Path) -> None:
    with (
        command(small, "small.toml", "--run-dir", "run") as one,
        command(small, "small.toml", "--run-dir", "run") as other,
    ):
        said = [process.communicate(timeout=120)[1] for process in (one, other)]
    assert sorted((one.returncode, other.returncode)) in ([0, 2], [0, 4]), said
    assert "Traceback" not in "".join(said)
    assert not list(small.glob(".run.*"))


def limited(where: Path, kilobytes: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run with so much address space."""
    line = shlex.join([sys.executable, "-m", "evo.run", "small.toml", "--run-dir", "run", "--json", *words])
    return subprocess.run(
        ["sh", "-c", f"ulimit -v {kilobytes}; exec {line}"],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.long
def test_a_run_takes_little_address_space(small: Path) -> None:
    ended = limited(small, 1_500_000, "--generations", "1")
    assert ended.returncode == 0, ended.stderr


def test_too_little_address_space_for_the_libraries_is_one_line(small: Path) -> None:
    ended = limited(small, 200_000)
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 5
    assert "limited to 204 MB" in line
    assert json.loads(ended.stdout)["error"] == line
    assert not (small / "run").exists()
