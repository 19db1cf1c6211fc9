"""Committing processes without the wait for their imports: one parent has everything loaded, and forks each of them.

The child waits for its tracer, and for a word, before it begins; so what is traced is commits and nothing else.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.store import committing

ROOT = Path(__file__).parents[2]
ANYBODY = ctypes.c_ulong(-1)
PR_SET_PTRACER = 0x59616D61


class Committers:
    """A parent of committing processes; one of them lives at a time."""

    def __init__(self) -> None:
        # One thread, so that it may fork.
        environment = {"PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
        self._parent = subprocess.Popen(
            [sys.executable, "-B", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._tracer: subprocess.Popen[str] | None = None

    def run(self, words: Sequence[object], strace: Sequence[str] = (), limits: Mapping[str, int] | None = None) -> int:
        """Let a child do `committing.main(*words)`, under strace if it is given options; return how it ended.

        `limits` are resource limits of the child, soft and hard, by name.
        """
        self.begin(words, strace, limits)
        return self.ended()

    def begin(
        self, words: Sequence[object], strace: Sequence[str] = (), limits: Mapping[str, int] | None = None
    ) -> int:
        """Start such a child and return its process id; PermissionError where it cannot be traced."""
        self._tell(json.dumps([[str(word) for word in words], dict(limits or {})]))
        pid = int(self._told())
        refusal = ""
        if strace:
            self._tracer = subprocess.Popen(["strace", *strace, "-p", str(pid)], stderr=subprocess.PIPE, text=True)
            assert self._tracer.stderr is not None
            refusal = self._tracer.stderr.readline()
        if strace and "attached" not in refusal:  # once it is, the child stops before it can do anything
            os.kill(pid, signal.SIGKILL)
            self._tell("go")
            self.ended()
            raise PermissionError(refusal)
        self._tell("go")
        return pid

    def ended(self) -> int:
        """Wait for the child and return its exit code, or minus its signal."""
        code = int(self._told())
        if self._tracer is not None:
            self._tracer.communicate()
            self._tracer = None
        return code

    def __enter__(self) -> Committers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()

    def _tell(self, line: str) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.write(line + "\n")
        self._parent.stdin.flush()

    def _told(self) -> str:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline()


def serve() -> None:
    """Fork a child for every job on standard input."""
    while job := sys.stdin.readline():
        words, limits = json.loads(job)
        waiting, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os._exit(_child(waiting, words, limits))
        os.close(waiting)
        print(pid, flush=True)
        sys.stdin.readline()
        os.close(go)  # which is what it waits for
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _child(waiting: int, words: Sequence[str], limits: Mapping[str, int]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANYBODY, 0, 0, 0)  # where a tracer must be an ancestor
    os.read(waiting, 1)
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, name), (most, most))
    try:
        return committing.main(*words)
    except BaseException:
        return 99


if __name__ == "__main__":
    serve()
