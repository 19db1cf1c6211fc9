"""Standard output that may go away: a pipe that closes or a disk that fills never stops a run."""

from __future__ import annotations

import io
import os
import sys


class Lasting(io.FileIO):
    """A file descriptor that takes whatever is written, and forgets it once nobody can have it."""

    def write(self, data: object) -> int:
        """Write what can be written; report all of it as written."""
        size = memoryview(data).nbytes  # type: ignore[arg-type]
        try:
            written = super().write(data)  # type: ignore[arg-type]
        except OSError:
            return size
        return size if written is None else written

    def move(self, descriptor: int) -> None:
        """Write to another file descriptor from now on."""
        super().__init__(descriptor, "w", closefd=False)


def make_lasting() -> None:
    """Put such streams where Python's own are; a stream that somebody has replaced is left alone."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # closed before we were started
            stream = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
        elif stream is getattr(sys, f"__{name}__"):
            stream.flush()
            # What a terminal's encoding does not have is escaped: a run is not stopped by a letter either.
            stream = io.TextIOWrapper(
                io.BufferedWriter(Lasting(descriptor, "w", closefd=False)),
                encoding=stream.encoding,
                errors="backslashreplace",
                line_buffering=True,
            )
        setattr(sys, name, stream)


def keep_from_libraries() -> None:
    """Send what libraries write to standard output to standard error, so that Python's own lines stay the last."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, Lasting) and raw.fileno() == 1:
        sys.stdout.flush()
        raw.move(os.dup(1))
        os.dup2(2, 1)
