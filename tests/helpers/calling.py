"""Calls our commands in this process or in one of their own, on an experiment that takes a second."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from evo.cli.main import main, main_run
from evo.process import STOPPING

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "run": "generations = 4",
    "environment": "size = 5\nwindow = 5\nstarvation = 30",
    "policy": 'kind = "mlp"\ndense = [4]',
    "workers": 'backend = "serial"',
    "validation": "every = 1\nepisodes = 8\nfinalists = 2",
    "test": "every = 2\nepisodes = 20",
    "ga": 'population = 20\nparents = 4\nelites = 2\nepisodes = 4\ncrossover = "none"',
}
KEYS = ["status", "error", "run_dir", "algorithm", "seed", "generations", "frames", "seconds", "state_hash", "champion"]


def small_with(**sections: str) -> str:
    """Return the small experiment with the lines of these sections in place of its own."""
    return "".join(f"[{name}]\n{lines}\n" for name, lines in {**SECTIONS, **sections}.items())


SMALL = small_with()


@contextmanager
def command(where: Path, *words: object, program: Sequence[str] = ("-m", "evo.run")) -> Iterator[subprocess.Popen[str]]:
    """Start the command as a process of its own."""
    line = [sys.executable, *program, *map(str, words)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(line, cwd=where, text=True, stdout=pipe, stderr=pipe, start_new_session=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def nobody() -> Iterator[None]:
    """Lose root's right to read and write everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def called(where: Path, *words: object, code: int = 0, program: str = "run") -> tuple[str, str]:
    """Call the command in this process, as `python -m evo.run` or `evo` would; return what it printed."""
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    out, err = io.StringIO(), io.StringIO()
    with chdir(where), redirect_stdout(out), redirect_stderr(err):
        got = (main_run if program == "run" else main)([str(word) for word in words])
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert got == code, out.getvalue() + err.getvalue()
    return out.getvalue(), err.getvalue()


def summary_of(where: Path, *words: object, code: int = 0, apart: bool = False) -> dict[str, Any]:
    """Return a run's summary; `apart` plays it in a new process, for what must be first to load TensorFlow."""
    if apart:
        with command(where, *words, "--json") as process:
            out, err = process.communicate(timeout=600)
            assert process.returncode == code, out + err
    else:
        out = called(where, *words, "--json", code=code)[0]
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert list(summary) == KEYS
    return summary


def after(process: subprocess.Popen[str], generations: int) -> str:
    """Read standard output until so many generations are shown; return all of it."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith("generation") and int(line.split()[1].partition("/")[0]) >= generations:
            return text
    raise AssertionError(text + (process.stderr.read() if process.stderr else ""))
