"""The metrics of a run as a table: CSV, Parquet, or event files for TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from evo.errors import cell, extra
from evo.exports.trackers import Events

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
    with closing(Events(directory, "--to tensorboard")) as events:
        for generation, row in enumerate(rows):
            seconds += row.get("seconds", 0.0)
            events.add(generation, row, seconds)
        events.flush()
