"""A run's metrics for other software: as CSV, Parquet or TensorBoard's event files, and for trackers as it trains."""

from __future__ import annotations

import csv
import io
import math
import os
import socket
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any

from evo.errors import ConfigurationError, cell, extra, first_line, notice
from evo.files.durable import resources
from evo.files.layout import CHAMPION
from evo.plugins.mistakes import exception_text
from evo.process import is_interrupt

FORMATS = ("csv", "parquet", "tensorboard")
SUFFIXES = {"csv": ".csv", "parquet": ".parquet"}
GENERATION, CHAMPION_FILE = "generation", "champion_file"

Metrics = Mapping[str, float]
Rows = Sequence[Metrics]  # of the generations from 0 on; what is unknown or not finite is left out


class Events:
    """An event file that TensorBoard shows while it grows.

    ConfigurationError: tensorboardX is not installed. OSError: the file cannot be written.
    """

    def __init__(self, directory: Path, wanted: str, first: int = 0) -> None:
        """Begin a file; TensorBoard then forgets the generations from `first` on that others in the directory have."""
        self._protocol = extra("tensorboardX.proto.event_pb2", wanted)
        self._summary = extra("tensorboardX.summary", wanted)
        records = extra("tensorboardX.record_writer", wanted)
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**9:010d}.{socket.gethostname()}.{os.getpid()}"
        self._writer = records.RecordWriter(str(directory / name))
        self._write(0.0, file_version="brain.Event:2")
        if first:
            start = self._protocol.SessionLog(status=self._protocol.SessionLog.START)
            self._write(0.0, step=first, session_log=start)

    def add(self, generation: int, row: Metrics, moment: float) -> None:
        """Add a scalar for each metric, a finite number; `moment` is in seconds."""
        for name, value in row.items():
            self._write(moment, step=generation, summary=self._summary.scalar(name, value))
        self._writer.flush()

    def close(self, error: BaseException | None = None) -> None:
        """Close the file; `error` is what ended training before its time."""
        with suppress(OSError):  # of what was added and not flushed
            self._writer.close()

    def _write(self, moment: float, **content: object) -> None:
        self._writer.write(self._protocol.Event(wall_time=moment, **content).SerializeToString())


class WeightsAndBiases:
    """A run of Weights & Biases; its own environment variables say where to, as WANDB_MODE=offline."""

    def __init__(self, run: Path, config: Mapping[str, object]) -> None:
        wandb = extra("wandb", "--tracker wandb")
        only = wandb.Settings(
            console="off", disable_git=True, x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True
        )
        project = os.environ.get("WANDB_PROJECT", "snake-evo")
        self._run = wandb.init(project=project, name=run.name, config=dict(config), settings=only)

    def add(self, generation: int, row: Metrics, moment: float) -> None:
        """Log a step."""
        self._run.log(dict(row), step=generation)

    def close(self, error: BaseException | None = None) -> None:
        """End the run, as failed where there is an error."""
        self._run.finish(exit_code=0 if error is None else 1)


class MLflow:
    """A run of MLflow; its own environment variables say where to, as MLFLOW_TRACKING_URI."""

    def __init__(self, run: Path, config: Mapping[str, object]) -> None:
        self._flow = extra("mlflow", "--tracker mlflow")
        self._flow.start_run(run_name=run.name, log_system_metrics=False)
        self._flow.log_params({name: value for name, value in config.items() if name != CHAMPION_FILE})
        self._flow.set_tag(CHAMPION_FILE, config[CHAMPION_FILE])  # which a directory that is moved changes

    def add(self, generation: int, row: Metrics, moment: float) -> None:
        """Log a step."""
        self._flow.log_metrics(dict(row), step=generation, timestamp=int(1000 * moment))

    def close(self, error: BaseException | None = None) -> None:
        """End the run, and say whether it failed or was interrupted."""
        self._flow.end_run("FINISHED" if error is None else "KILLED" if is_interrupt(error) else "FAILED")


# How long they wait for a server that does not answer, where the user has set nothing: their own defaults are minutes.
PATIENCE = {
    "WANDB_INIT_TIMEOUT": "10", "WANDB_FINISH_TIMEOUT": "20", "WANDB_FINISH_TIMEOUT_RAISES": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "4", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}  # fmt: skip
SERVICES: Mapping[str, type[WeightsAndBiases | MLflow]] = {"wandb": WeightsAndBiases, "mlflow": MLflow}


def require(arguments: Namespace) -> None:
    """Raise ConfigurationError where a tracker that was asked for is not known or not installed."""
    if arguments.tensorboard is not None:
        extra("tensorboardX", "--tensorboard")
    for name in arguments.tracker:
        if name not in SERVICES:
            raise ConfigurationError(f"--tracker: {name!r} is not known; choose {' or '.join(SERVICES)}")
        extra(name, f"--tracker {name}")


class Trackers(AbstractContextManager["Trackers"]):
    """All trackers of a run that were asked for; training goes on without one that fails."""

    def __init__(self, arguments: Namespace) -> None:
        """Check them before anything is made. Errors are those of `require`, and ResourceError of a folder."""
        require(arguments)
        self._events = None if arguments.tensorboard is None else Path(arguments.tensorboard)
        self._services = list(dict.fromkeys(arguments.tracker))
        self._open: dict[str, Events | WeightsAndBiases | MLflow] = {}  # by what was typed
        if self._events is not None:
            with resources("write to", self._events):
                self._events.mkdir(parents=True, exist_ok=True)

    def begin(self, run: Path, config: Mapping[str, Any], first: int) -> Trackers:
        """Begin with the generation `first` of a run directory; return itself, to be used in a `with`."""
        if self._events is not None:
            with resources("write to", self._events):
                self._open["--tensorboard"] = Events(self._events, "--tensorboard", first)
        flat = {**dict(_flat(config)), CHAMPION_FILE: str((run / CHAMPION).absolute())}
        for name, value in PATIENCE.items() if self._services else ():
            os.environ.setdefault(name, value)
        for name in self._services:
            try:
                self._open[f"--tracker {name}"] = SERVICES[name](run, flat)
            except BaseException as error:
                self.__exit__(type(error), error)
                raise ConfigurationError(f"--tracker {name}: {_why(error)}") from error
        return self

    def add(self, generation: int, metrics: Metrics) -> None:
        """Show the metrics of a generation, those that are finite numbers."""
        row = {key: value for key, value in metrics.items() if isinstance(value, int | float) and math.isfinite(value)}
        for typed, tracker in [*self._open.items()]:
            try:
                tracker.add(generation, row, time.time())
            except BaseException as error:
                notice(f"{typed}: no more metrics are written: {_why(error)}")
                del self._open[typed]

    def __exit__(self, _: object, error: BaseException | None, *_more: object) -> None:
        for typed, tracker in self._open.items():
            try:
                tracker.close(error)
            except BaseException as problem:
                notice(f"{typed}: not all metrics are written: {_why(problem)}")


def _why(error: BaseException) -> str:
    """Return why a library that others wrote, or the network, has failed; Ctrl-C ends the run."""
    if is_interrupt(error):
        raise error
    if not isinstance(error, Exception):
        return exception_text(error)
    return getattr(error, "strerror", None) or first_line(error)


def _flat(values: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, object]]:
    """Yield options by names as "ppo.envs"."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{section}{key}.")
        else:
            yield f"{section}{key}", value


def write_table(file: Path, kind: str, rows: Rows) -> None:
    """Write a row a generation in one of FORMATS; ConfigurationError: the library that it needs is not installed."""
    if kind == "csv":
        file.write_text(csv_of(rows), encoding="utf-8")
    elif kind == "parquet":
        arrow, parquet = extra("pyarrow", "--to parquet"), extra("pyarrow.parquet", "--to parquet")
        table = {GENERATION: arrow.array(range(len(rows)), arrow.int64())}
        for name in columns(rows):
            table[name] = arrow.array([row.get(name) for row in rows], arrow.float64())
        parquet.write_table(arrow.table(table), str(file))
    else:
        seconds = 0.0  # that training had taken
        with closing(Events(file, "--to tensorboard")) as events:
            for generation, row in enumerate(rows):
                seconds += row.get("seconds", 0.0)
                events.add(generation, row, seconds)


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
