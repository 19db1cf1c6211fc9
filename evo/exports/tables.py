"""The metrics of a run as a table: CSV, Parquet, or event files for TensorBoard."""

from __future__ import annotations

import csv
import io
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from evo.errors import cell, extra

FORMATS = ("csv", "parquet", "tensorboard")
SUFFIXES = {"csv": ".csv", "parquet": ".parquet"}
GENERATION = "generation"

Rows = Sequence[Mapping[str, float]]  # of the generations from 0 on; what is unknown or not finite is left out


def write_table(file: Path, kind: str, rows: Rows) -> None:
    """Write one row a generation in one of FORMATS; missing values stay empty.

    Raises ConfigurationError where the library that it needs is not installed.
    """
    if kind == "csv":
        file.write_text(csv_of(rows), encoding="utf-8")
    elif kind == "parquet":
        _parquet(file, rows)
    else:
        _tensorboard(file, rows)


def columns(rows: Rows) -> list[str]:
    """Return the names of all metrics, in the order in which they first come."""
    return list(dict.fromkeys(name for row in rows for name in row))


def csv_of(rows: Rows) -> str:
    """Return the table as CSV with a header; numbers have all of their digits, and whole ones no point."""
    text, names = io.StringIO(), columns(rows)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([GENERATION, *map(cell, names)])
    for generation, row in enumerate(rows):
        writer.writerow([generation, *(_digits(row[name]) if name in row else "" for name in names)])
    return text.getvalue()


def _digits(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1 << 53 else repr(value)


def _parquet(file: Path, rows: Rows) -> None:
    arrow, parquet = extra("pyarrow", "--to parquet"), extra("pyarrow.parquet", "--to parquet")
    table = {GENERATION: arrow.array(range(len(rows)), arrow.int64())}
    for name in columns(rows):
        table[name] = arrow.array([row.get(name) for row in rows], arrow.float64())
    parquet.write_table(arrow.table(table), str(file))


def _tensorboard(directory: Path, rows: Rows) -> None:
    """Write scalars by generation; their times are the seconds that training had taken."""
    seconds = 0.0
    with Events(directory, "--to tensorboard") as events:
        for generation, row in enumerate(rows):
            seconds += row.get("seconds", 0.0)
            events.add(generation, row, seconds)
        events.flush()


class Events:
    """An event file in a directory, which TensorBoard shows also while it grows; close it, or use it in a `with`.

    `wanted` is what was typed. ConfigurationError: tensorboardX is not installed. OSError: the file cannot be written.
    """

    def __init__(self, directory: Path, wanted: str, first: int = 0) -> None:
        """Begin a file; TensorBoard then forgets the generations from `first` on that others in the directory have."""
        self._protocol, self._summary = (
            extra("tensorboardX.proto.event_pb2", wanted),
            extra("tensorboardX.summary", wanted),
        )
        records = extra("tensorboardX.record_writer", wanted)
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**9:010d}.{socket.gethostname()}.{os.getpid()}"
        self._writer = records.RecordWriter(str(directory / name))
        self._write(0.0, file_version="brain.Event:2")
        if first:
            start = self._protocol.SessionLog(status=self._protocol.SessionLog.START)
            self._write(0.0, step=first, session_log=start)

    def add(self, generation: int, row: Mapping[str, float], moment: float) -> None:
        """Add the metrics of a generation that are finite numbers; `moment` is in seconds."""
        for name, value in row.items():
            if isinstance(value, int | float) and math.isfinite(value):
                self._write(moment, step=generation, summary=self._summary.scalar(name, value))

    def flush(self) -> None:
        """Show what was added."""
        self._writer.flush()

    def _write(self, moment: float, **content: object) -> None:
        self._writer.write(self._protocol.Event(wall_time=moment, **content).SerializeToString())

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # of what was added and not flushed
            self._writer.close()
