"""Other people's ways to do the same, each in an environment of its own, asked for measurements over a pipe."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
# Each is made from the .txt of its name.
ENVIRONMENTS = ("evotorch", "jax", "envpool", "torch", "minatar", "gymnax", "gymnasium", "cma", "pettingzoo")
INSTALLED = "installed.txt"  # in an environment: its requirements, once all of them are installed
TIMEOUT = 600.0  # seconds that an answer may take, compiling included
DEFAULT = ROOT / ".peers"


def interpreter(folder: Path, environment: str) -> Path | None:
    """Return the Python of an environment that `python -m benchmarks.peers` has made in `folder`, if it has."""
    made = (folder / environment / INSTALLED).exists()
    return folder / environment / "bin" / "python" if made else None


def missing(environment: str, what: str) -> str:
    """Return the line that stands for a peer whose environment is not there."""
    return f"Without {what}: its environment `{environment}` is not made (`python -m benchmarks.peers DIR`)."


def surroundings(cores: int) -> dict[str, str]:
    """Return the environment variables of a peer's process: our packages, no GPU, and threads for so many cores."""
    single = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"} if cores == 1 else {}
    return {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", **single}


class Peer:
    """A process of another environment that measures when it is asked; for as long as it is not, it waits.

    It sees only the first `cores` of our cores.
    """

    def __init__(self, python: Path | str, module: str, arguments: Sequence[str] = (), cores: int = 1) -> None:
        self._module, self._cores = module, sorted(os.sched_getaffinity(0))[:cores]
        self._child = subprocess.Popen(
            [str(python), "-m", f"benchmarks.peers.{module}", *arguments],
            cwd=ROOT, env=surroundings(cores), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            preexec_fn=self._bind,
        )  # fmt: skip

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, **what: Any) -> dict[str, Any]:
        """Return what it measures; RuntimeError where it ends instead, and why stands above on the terminal."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(OSError):
            self._child.stdin.write(json.dumps(what) + "\n")
            self._child.stdin.flush()
        if not select.select([self._child.stdout], [], [], TIMEOUT)[0]:
            self._child.kill()
            raise RuntimeError(f"benchmarks.peers.{self._module} had no answer after {TIMEOUT:.0f} seconds")
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"benchmarks.peers.{self._module} ended with code {self._child.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Let it end."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    def _bind(self) -> None:
        os.sched_setaffinity(0, self._cores)


def answer(measure: Any) -> None:
    """Answer every request on stdin by what `measure(**request)` returns; whatever else is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(measure(**json.loads(line))), file=answers, flush=True)
