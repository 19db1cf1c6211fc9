"""Standard streams that never fail: neither a closed pipe nor a full disk stops a run."""

from __future__ import annotations

import io
import os
import sys


class TolerantFile(io.FileIO):
    """A file descriptor that drops what cannot be written."""

    def write(self, data: object) -> int:
        """Write what can be written; return the size of all data."""
        size = memoryview(data).nbytes  # type: ignore[arg-type]
        try:
            written = super().write(data)  # type: ignore[arg-type]
        except OSError:
            return size
        return size if written is None else written

    def move(self, descriptor: int) -> None:
        """Write to another file descriptor from now on."""
        super().__init__(descriptor, "w", closefd=False)


def tolerate_failures() -> None:
    """Replace Python's standard streams; a stream that was replaced before is kept."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # closed before this process started
            stream = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
        elif stream is getattr(sys, f"__{name}__"):
            stream.flush()
            # Characters that the terminal's encoding lacks are escaped, so that they do not stop a run.
            stream = io.TextIOWrapper(
                io.BufferedWriter(TolerantFile(descriptor, "w", closefd=False)),
                encoding=stream.encoding,
                errors="backslashreplace",
                line_buffering=True,
            )
        setattr(sys, name, stream)


def keep_from_libraries() -> None:
    """Send the output of C libraries to standard error, so that Python's own lines are the last on standard output."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, TolerantFile) and raw.fileno() == 1:
        sys.stdout.flush()
        raw.move(os.dup(1))
        os.dup2(2, 1)
