"""Every second of a generation is counted once, and what was idle in it is told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from calling import SMALL, summary_of
from learning import tensorflow  # noqa: F401
from players import Job
from test_resume import WAYS, written

from evo.cli.terminal.display import count, where_time_went
from evo.records import Effort, Generation, Metrics, Played, Request, Task
from evo.store.store import Store
from evo.training import accounting
from evo.training.accounting import PARTS, Stopwatch
from evo.training.generation import play_out
from evo.workers.channel import WorkerSpec
from evo.workers.pool import Pool


class Clock:
    """Time that passes only where a test lets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(accounting, "time", clock)
    return clock


class Players:
    """Plays nothing, in eight seconds, of which two workers are busy for five and seven."""

    def __init__(self, clock: Clock, measures: bool = True) -> None:
        self._clock = clock
        self._effort = Effort(8.0, [5.0, 7.0], 1.5, replaced=1, bytes_sent=10, bytes_received=20)
        if not measures:
            self._effort = Effort()

    def map(self, tasks: Sequence[Task]) -> Played:
        self._clock.now += 8.0
        return Played([], self._effort)

    def close(self) -> None:
        pass


def two_rounds(clock: Clock) -> Generation:
    clock.now += 1.0
    yield Request(np.zeros((2, 5), np.float32), [])
    clock.now += 2.0  # of them half a second for moving, and one for learning
    yield Request(None, [])
    clock.now += 4.0
    metrics: Metrics = {"frames": 30.0, "slots": 40.0, "seconds_moving": 0.5, "seconds_learning": 1.0}
    return metrics


def publisher(clock: Clock) -> Any:
    def publish(weights: Any) -> str:
        clock.now += 0.25
        return "published/a.h5"

    return SimpleNamespace(publish=publish)


def test_a_generation_is_split_as_it_was_spent(clock: Clock) -> None:
    told = play_out(two_rounds(clock), Players(clock), publisher(clock))
    assert [told[name] for name in PARTS] == [12.0, 4.0, 0.75, 1.0, 5.5]
    assert told["seconds"] == 23.25 == sum(told[name] for name in PARTS)
    assert told["seconds_straggling"] == 3.0
    assert (told["workers"], told["workers_replaced"], told["lane_utilisation"]) == (2, 2, 0.75)
    assert [told[f"bytes_{name}"] for name in ("published", "sent", "received")] == [40, 20, 40]


def test_an_evaluator_that_measures_nothing_is_taken_to_play_all_the_time(clock: Clock) -> None:
    told = play_out(two_rounds(clock), Players(clock, measures=False), publisher(clock))
    assert (told["seconds_acting"], told["seconds_idle"]) == (16.0, 0.0)
    assert sum(told[name] for name in PARTS) == told["seconds"]
    assert np.isnan(told["workers"])


def test_a_stopwatch_counts_once_what_is_inside_twice_and_can_be_read_meanwhile(clock: Clock) -> None:
    watch = Stopwatch()
    with watch:
        clock.now += 1.0
        with watch:
            clock.now += 2.0
        clock.now += 4.0
        assert watch.take() == 7.0
        clock.now += 8.0
    clock.now += 16.0
    assert (watch.take(), watch.take()) == (8.0, 0.0)


@pytest.mark.long
@pytest.mark.parametrize(("name", "number"), WAYS)
def test_the_parts_of_every_generation_of_every_algorithm_add_up(tmp_path: Path, name: str, number: int) -> None:
    summary = summary_of(tmp_path, written(tmp_path, name, number), "--generations", 3, "--backend", "serial")
    lines = Store.read(tmp_path / summary["run_dir"]).metrics()
    assert len(lines) == 3
    for line in lines:
        assert sum(line[part] for part in PARTS) == pytest.approx(line["seconds"], abs=1e-6)
        assert min(line[part] for part in PARTS) >= -1e-6
        assert 0 < line["lane_utilisation"] <= 1
        learns = line["seconds_learning"] > 0
        assert not learns if name == "ga" else learns or not line.get("updates")
    hidden = "asynchronous = true" in (tmp_path / "tiny.toml").read_text()
    assert [line["seconds_background"] >= 0 for line in lines if "seconds_background" in line][-1:] == [True] * hidden
    assert [line["seconds_committing"] > 0 for line in lines] == [False, True, True]


def test_a_run_of_processes_tells_what_went_through_the_pipes(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    summary = summary_of(tmp_path, "small.toml", "--backend", "processes", "--workers", 2)
    first, *lines = Store.read(tmp_path / summary["run_dir"]).metrics()
    assert first["bytes_published"] % (2 * 4) == 0 < first["bytes_published"]  # two finalists
    for line in lines:
        assert (line["workers"], line["workers_replaced"]) == (2, 0)
        assert (
            line["bytes_published"] % (2 * 4) == 0 < line["bytes_published"]
        )  # four parents and two finalists, float32
        assert line["bytes_sent"] > 20 * 4 * 8  # the seeds of every task
        assert line["bytes_received"] > 20 * 4 * 8  # a return an episode
        assert line["seconds_straggling"] <= line["seconds_acting"] + line["seconds_idle"]


def test_the_last_task_straggles_where_another_worker_could_have_helped() -> None:
    straggling = []
    for workers, jobs in ((1, [0.2]), (2, [0.2]), (2, [0.2, 0.0])):
        pool = Pool(WorkerSpec("players:make", None), [{}] * workers)
        try:
            pool.map([Job(0, 0.05), Job(1, 0.05)])  # both have started
            effort = pool.map([Job(number, seconds) for number, seconds in enumerate(jobs)]).effort
            straggling.append(effort.straggling)
        finally:
            pool.close()
    assert straggling[0] == 0.0
    assert min(straggling[1:]) > 0.1


def test_what_is_idle_is_said_in_a_few_words() -> None:
    metrics = {"seconds": 10.0, "seconds_acting": 9.0, "seconds_idle": 0.4, "seconds_moving": 0.1}
    metrics |= {"seconds_learning": 0.2, "seconds_master": 0.3, "seconds_straggling": 0.25, "seconds_committing": 0.05}
    metrics |= {"bytes_published": 1e6, "bytes_sent": 1e5, "bytes_received": 4e4}
    assert where_time_went(metrics) == [
        "acting 90 %  idle 0.40 s  moving 0.10 s  learning 0.20 s  master 0.30 s",
        "straggling 0.25 s  committing 0.05 s  bytes 1.14 MB",
    ]
    assert " ".join(where_time_went({})).count(" -") == 8


def test_what_is_idle_is_named_as_the_metrics_are_and_adds_up_to_the_generation() -> None:
    words = re.findall("[a-z]+", where_time_went({})[0])
    assert sorted(f"seconds_{word}" for word in words) == sorted(PARTS)


@pytest.mark.parametrize("seconds", [0.004, 9.996, 99.96, 3599.0])
def test_what_is_idle_fits_into_eighty_columns(seconds: float) -> None:
    metrics = dict.fromkeys((*PARTS, "seconds", "seconds_straggling", "seconds_committing"), seconds)
    assert max(map(len, where_time_went(metrics))) <= 80
    assert [count(size, "B") for size in (12, 4_560, 4.7e9)] == ["12 B", "4.56 kB", "4.7 GB"]
