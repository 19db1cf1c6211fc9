"""Trackers get what a run has in its metrics file, by the libraries themselves and without a network."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evo.errors import ConfigurationError, ResourceError, extra
from evo.exports import metrics
from evo.process import Stopped
from evo.store.run import Run
from tests.helpers.calling import ROOT, called


def records_of_wandb(file: Path) -> Iterator[bytes]:
    """Yield the records of an offline file of Weights & Biases, which is a log in LevelDB's format."""
    data, place, record = file.read_bytes(), 7, b""  # after its head
    while place < len(data):
        left = 32768 - place % 32768  # of a block
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or a last part
            yield record
            record = b""


def scalars_of_wandb(file: Path) -> tuple[dict[str, dict[int, float]], dict[str, Any]]:
    """Return the values by step, by name, and the configuration."""
    kind = import_module("wandb.proto.wandb_internal_pb2").Record
    found, config = dict[str, dict[int, float]](), dict[str, Any]()
    for data in records_of_wandb(file):
        record = kind()
        record.ParseFromString(data)
        config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            found.setdefault(name, {})[record.history.step.num] = json.loads(item.value_json)
    return found, config


def scalars_of_mlflow(folder: Path) -> tuple[dict[str, dict[int, float]], dict[str, Any]]:
    """Return the same of the only run in a folder of MLflow."""
    client = import_module("mlflow").MlflowClient(folder.as_uri())
    (run,) = client.search_runs(["0"])
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    config = {**run.data.params, **run.data.tags, "status": run.info.status}
    return {name: {one.step: one.value for one in history} for name, history in histories.items()}, config


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_gets_the_metrics_and_the_options_offline(
    name: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("small.toml", "--run-dir", "run", "--no-report", "--generations", 2, "--tracker", name)
    if find_spec(name) is None:
        assert called(small, *words, code=2)[1].startswith(f"--tracker {name} needs {name}")
        assert not (small / "run").exists()
        return
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(small))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (small / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert json.loads(called(small, *words, "--json")[0].splitlines()[-1])["generations"] == 2
    if name == "wandb":
        (file,) = small.glob("wandb/offline-run-*/*.wandb")
        found, config = scalars_of_wandb(file)
    else:
        found, config = scalars_of_mlflow(small / "mlruns")
    assert str(config["ga.population"]) == "20"
    assert config["champion_file"] == str(small / "run" / "champion.h5")
    rows = Run(small / "run", trusted=True).metrics
    for metric in ("best", "mean", "frames", "validation"):
        assert found[metric] == {generation: row[metric] for generation, row in enumerate(rows)}


@pytest.mark.filterwarnings("ignore")  # of the library
@pytest.mark.parametrize(
    ("error", "status"), [(None, "FINISHED"), (ResourceError("disk"), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_mlflow_knows_how_a_run_ended_and_goes_on_where_its_directory_was_moved(
    error: BaseException | None, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for directory in ("first", "moved"):
        trackers = metrics.Trackers(Namespace(tensorboard=None, tracker=["mlflow"]))
        trackers.begin(tmp_path / directory, {"ga": {"sigma": 0.1}}, 0)
        run = flow.active_run().info.run_id
        with suppress(ResourceError, KeyboardInterrupt), trackers:
            trackers.add(0, {"mean": 1.0})
            if error is not None:
                raise error
        monkeypatch.setenv("MLFLOW_RUN_ID", run)
        _, config = scalars_of_mlflow(tmp_path / "mlruns")
        assert (config["ga.sigma"], config["status"]) == ("0.1", status)
        assert config["champion_file"] == str(tmp_path / directory / "champion.h5")


ENDS = """
import sys
from argparse import Namespace
from pathlib import Path
from evo.exports import metrics
with metrics.Trackers(Namespace(tensorboard=None, tracker=["wandb"])) as trackers:
    trackers.begin(Path("run"), {}, 0)
    assert sys.argv[1:] != ["fails"]
"""


@pytest.mark.parametrize("words", [(), ("fails",)])
def test_weights_and_biases_know_whether_a_run_failed(words: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    where = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-c", ENDS, *words], env={**os.environ, **where}, capture_output=True, check=not words
    )
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    kind = import_module("wandb.proto.wandb_internal_pb2").Record
    records = [kind.FromString(data) for data in records_of_wandb(file)]
    (code,) = [one.exit.exit_code for one in records if one.HasField("exit")]
    assert code == len(words)


def test_an_unknown_tracker_is_named_and_those_that_exist(small: Path) -> None:
    assert "choose wandb or mlflow" in called(small, "small.toml", "--tracker", "comet", code=2)[1]


class Ends:
    """A tracker that raises an error in its second call, of begin, add and close."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.calls = error, 0

    def __call__(self, *_: object) -> Ends:
        self.calls += 1
        if self.calls == 2:
            raise self.error
        return self

    add = close = __call__


@pytest.mark.parametrize("error", [SystemExit(3), OSError("no network"), Stopped()])
def test_a_run_goes_on_without_a_tracker_that_ends_but_ends_by_ctrl_c(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics, "require", lambda _: None)
    monkeypatch.setattr(metrics, "SERVICES", {"mine": Ends(error)})
    trackers = metrics.Trackers(Namespace(tensorboard=None, tracker=["mine"])).begin(Path("run"), {}, 0)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(Stopped):
            trackers.add(0, {"mean": 1.0})
        return
    for generation in range(2):
        trackers.add(generation, {"mean": 1.0})
    why = "called sys.exit(3)" if isinstance(error, SystemExit) else "no network"
    assert capsys.readouterr().err == f"note: --tracker mine: no more metrics are written: {why}\n"


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_server_that_refuses_connections_is_a_line_within_seconds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(name)
    for key in ("WANDB_BASE_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.setenv(key, "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    trackers, began = metrics.Trackers(Namespace(tensorboard=None, tracker=[name])), time.monotonic()
    with pytest.raises(ConfigurationError, match=f"^--tracker {name}: .*refused"):
        trackers.begin(tmp_path / "run", {}, 0)
    assert time.monotonic() - began < 20


def test_a_tracker_waits_for_seconds_where_the_user_has_not_said_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, str] = {}

    def begin(*_: object) -> Ends:
        found.update(os.environ)
        return Ends(OSError())

    monkeypatch.setattr(metrics, "require", lambda _: None)
    monkeypatch.setattr(metrics, "SERVICES", {"mine": begin})
    for name in metrics.PATIENCE:
        monkeypatch.setenv(name, "")  # so that what is set here ends with the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    metrics.Trackers(Namespace(tensorboard=None, tracker=["mine"])).begin(Path("run"), {}, 0)
    assert found["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert found["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "2"
    assert found["WANDB_INIT_TIMEOUT"] == "10"


def test_a_folder_of_a_tracker_s_name_is_not_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trackers_output").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"--x needs trackers-output, .*\(.*trackers_output is no package\)"):
        extra("trackers_output", "--x")
