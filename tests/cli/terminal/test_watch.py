"""Watching: a run of another process is shown line by line or as a table, from its files alone, until it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Event, Thread

import pytest

from evo.cli.commands.watch import Champions
from evo.config.experiment import Experiment
from evo.files.durable import with_checksum
from evo.files.lock import acquire, is_running, release
from evo.store.metrics import MetricsTail
from tests.helpers.calling import called, command


def test_a_run_that_has_ended_is_shown_once_and_its_last_test_score_too(small: Path) -> None:
    called(small, "small.toml", "--run-dir", "run", "--no-report")
    before = {path: path.stat().st_mtime_ns for path in (small / "run").rglob("*")}
    lines = called(small, "watch", "run", program="evo")[0].splitlines()
    assert [line.split()[1] for line in lines[:-1]] == ["1/4", "2/4", "3/4", "4/4"]
    last = json.loads((small / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"test score {last['test']:.2f}" in lines[-2]
    assert lines[-1] == "the run has ended after 4 generations"
    assert {path: path.stat().st_mtime_ns for path in (small / "run").rglob("*")} == before
    assert "choose one, such as run\n" in called(small, "watch", ".", program="evo", code=3)[1]
    assert "not a run directory" in called(small, "watch", "run/records", program="evo", code=3)[1]


def test_lines_come_as_they_are_appended_and_half_a_line_waits(tmp_path: Path) -> None:
    tail, path = MetricsTail(tmp_path), tmp_path / "metrics.jsonl"
    assert list(tail.read()) == []
    zero, one, two, three = (with_checksum({"generation": generation}) + b"\n" for generation in range(4))
    path.write_bytes(zero + one + b"nothing\n" + with_checksum({"generation": 1, "test": 5}) + b"\n" + two[:9])
    assert [line["generation"] for line in tail.read()] == [0]
    with path.open("ab") as file:
        file.write(two[9:])
    assert list(tail.read()) == [{"generation": 1, "test": 5}]
    assert list(tail.read()) == [{"generation": 2}]
    assert list(tail.read()) == []
    path.write_bytes(three)
    assert list(tail.read()) == []
    assert list(tail.read()) == [{"generation": 3}]


def test_a_hole_in_the_metrics_is_not_read(tmp_path: Path) -> None:
    tail, path = MetricsTail(tmp_path), tmp_path / "metrics.jsonl"
    path.write_bytes(with_checksum({"generation": 0}) + b"\n")
    os.truncate(path, 1 << 40)
    with path.open("ab") as file:
        file.write(b"\n" + with_checksum({"generation": 1}) + b"\n")
    assert [line["generation"] for line in (*tail.read(), *tail.read())] == [0, 1]


def test_metrics_that_are_no_file_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert list(MetricsTail(tmp_path).read()) == []


def test_a_run_is_there_while_its_lock_is_held_whatever_process_its_file_names(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    for text in ("1\n", f"{os.getpid()}\n", "4194999\n", "x", ""):
        (tmp_path / "lock").write_text(text)
        assert not is_running(tmp_path)
        descriptor = acquire(tmp_path)
        (tmp_path / "lock").write_text(text)  # as another container sees it
        assert is_running(tmp_path)
        release(descriptor)
    os.mkfifo(tmp_path / "other")
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").symlink_to("other")
    assert not is_running(tmp_path)


def test_readers_that_look_whether_a_run_is_there_keep_no_master_out(tmp_path: Path) -> None:
    release(acquire(tmp_path))
    looking, over = Thread(target=lambda: [is_running(tmp_path) for _ in iter(over.is_set, True)]), Event()
    looking.start()
    try:
        for _ in range(200):
            release(acquire(tmp_path))
    finally:
        over.set()
        looking.join()


def test_a_run_whose_metrics_are_lost_has_ended_after_its_generations(small: Path) -> None:
    called(small, "small.toml", "--run-dir", "run", "--no-report")
    (small / "run" / "lock").write_text("1\n")
    lines = (small / "run" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    some = [line for line in lines if b'"generation": 1,' not in line]
    for kept, said in ((some, "1 of 4 generations lack a readable line, from 1 on"), ([], "4 of 4")):
        (small / "run" / "metrics.jsonl").write_bytes(b"".join(kept))
        out = called(small, "watch", "run", program="evo")[0].splitlines()
        assert said in out[-2]
        assert out[-1] == "the run has ended after 4 generations"


def test_a_champion_is_read_once_and_one_of_another_network_never(small: Path) -> None:
    called(small, "small.toml", "--run-dir", "run", "--no-report")
    network = Experiment.load(small / "small.toml").network()
    champions = Champions(small / "run", network)
    first = champions.newer()
    assert first is not None
    assert first.weights.shape == (network.size,)
    assert champions.newer() is None
    os.utime(small / "run" / "champion.h5")
    assert champions.newer() is not None
    other = Experiment.load(small / "small.toml", "policy.dense=[5]").network()
    assert Champions(small / "run", other).newer() is None
    (small / "run" / "champion.h5").write_bytes(b"nothing")
    assert champions.newer() is None


@pytest.mark.long
def test_a_run_is_watched_while_it_trains(small: Path) -> None:
    with command(small, "small.toml", "--run-dir", "run", "--generations", "400", "--quiet") as process:
        while not (small / "run" / "manifest.jsonl").exists():
            assert process.poll() is None
        out = called(small, "watch", "run", program="evo")[0]
        assert process.wait(timeout=300) == 0
    assert out.splitlines()[-1] == "the run has ended after 400 generations"
    assert [line.split()[1] for line in out.splitlines()[:-1]] == [f"{n}/400" for n in range(1, 401)]
