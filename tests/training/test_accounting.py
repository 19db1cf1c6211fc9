"""Every second of a generation is counted once, and what was idle in it is told."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import evo
from evo import clock as clocks_of
from evo.cli.terminal.display import where_time_went
from evo.config.experiment import Experiment
from evo.config.sections import Budget
from evo.numbers import amount
from evo.records import SEGMENT_END, TRUNCATED, Effort, Generation, Metrics, Played, Request, Result, Spent, Task
from evo.run import Row, generations
from evo.store.store import Store
from evo.training import accounting
from evo.training.accounting import PARTS, Stopwatch
from evo.training.beginning import open_or_begin
from evo.training.generation import play_out
from evo.training.session import Session
from evo.workers.channel import WorkerSpec
from evo.workers.pool import Pool
from tests.helpers.calling import SMALL, summary_of
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.run.test_resume import WAYS, written
from tests.workers.players import Job, compile_a_kernel


class Clock:
    """Time that passes only where a test lets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now / 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    clocks = SimpleNamespace(wall=clocks_of.Clock(clock.monotonic), cpu=clocks_of.Clock(clock.process_time))
    monkeypatch.setattr(accounting, "clock", clocks)
    return clock


class Players:
    """Plays nothing, in eight seconds, of which two workers are busy for five and seven."""

    def __init__(self, clock: Clock, measures: bool = True) -> None:
        self._clock = clock
        self._effort = Effort(8.0, [5.0, 7.0], 1.5, replaced=1, bytes_sent=10, bytes_received=20, cpu_seconds=11.0)
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

    return publish


@pytest.mark.long
def test_a_generation_is_split_as_it_was_spent(clock: Clock) -> None:
    told = play_out(two_rounds(clock), Players(clock), publisher(clock))
    assert [told[name] for name in PARTS] == [12.0, 4.0, 0.75, 1.0, 5.5]
    assert told["seconds"] == 23.25 == sum(told[name] for name in PARTS)
    assert told["seconds_straggling"] == 3.0
    assert (told["workers"], told["workers_replaced"], told["lane_utilisation"]) == (2, 2, 0.75)
    assert told["cpu_seconds"] == 23.25 / 2 + 2 * 11.0
    assert [told[f"bytes_{name}"] for name in ("published", "sent", "received")] == [40, 20, 40]


def test_moves_of_baselines_take_no_lanes() -> None:
    told = accounting.Account().close({"frames": 30.0, "slots": 40.0, "frames_of_baselines": 10.0})
    assert told["lane_utilisation"] == 0.5


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


def test_what_is_compiled_meanwhile_is_no_time_of_the_generation() -> None:
    began, cpu_began, account = time.monotonic(), time.process_time(), accounting.Account()
    with account.playing:
        playing = threading.Thread(target=compile_a_kernel)  # as the serial backend plays
        playing.start()
        playing.join()
    account.add(Effort())
    told = account.close({})
    took, cpu_took = time.monotonic() - began, time.process_time() - cpu_began
    assert told["seconds_compiling"] > took / 2
    assert told["seconds"] + told["seconds_compiling"] <= took
    assert told["cpu_seconds"] < cpu_took / 2
    assert told["seconds_acting"] <= told["seconds"]


def test_what_the_fork_server_compiles_is_no_time_of_the_generation() -> None:
    began = time.monotonic()
    pool = Pool(WorkerSpec("tests.workers.players:make", None, "tests.workers.players:compile_a_kernel"), [{}])
    try:
        account = accounting.Account()
        with account.playing:
            effort = pool.map([Job(0, 0.0)]).effort
        account.add(effort)
        told = account.close({})
    finally:
        pool.close()
    assert 0.01 < told["seconds_compiling"] < time.monotonic() - began - told["seconds"]
    assert min(effort.cpu_seconds, told["cpu_seconds"]) >= 0  # the worker's own, which began after that


def test_a_clock_that_is_stopped_twice_goes_on_when_both_have_ended(clock: Clock) -> None:
    wall = clocks_of.Clock(clock.monotonic)
    clock.now += 1.0
    wall.stop()
    clock.now += 1.0
    wall.stop()
    clock.now += 1.0
    assert wall() == 1.0
    wall.go_on()
    clock.now += 1.0
    assert wall() == 1.0
    wall.go_on()
    clock.now += 1.0
    assert (wall(), wall.paused_seconds) == (2.0, 3.0)
    wall.leave_out(0.5, 0.0)
    assert wall() == 1.5
    wall.go_on()  # once too often, as after an interrupt
    wall.stop()
    clock.now += 1.0
    wall.go_on()
    assert (wall(), wall.paused_seconds) == (1.5, 4.5)


def test_a_clock_that_is_paused_is_not_set_back_twice(clock: Clock) -> None:
    wall = clocks_of.Clock(clock.monotonic)
    began = wall()
    wall.stop()  # in another thread
    clock.now += 3.0  # while this one waits for a process that compiles for two of them
    wall.leave_out(2.0, began)
    wall.go_on()
    assert (wall(), wall.paused_seconds) == (0.0, 3.0)


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


@pytest.mark.long
def test_a_run_of_processes_tells_what_went_through_the_pipes(small: Path) -> None:
    summary = summary_of(small, "small.toml", "--backend", "processes", "--workers", 2)
    first, *lines = Store.read(small / summary["run_dir"]).metrics()
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
        pool = Pool(WorkerSpec("tests.workers.players:make", None), [{}] * workers)
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
    assert [amount(size, "B") for size in (12, 4_560, 4.7e9)] == ["12 B", "4.56 kB", "4.7 GB"]


def played(tmp_path: Path, text: str) -> tuple[Session, list[tuple[Row, list[Result]]], Store]:
    """Train a run; return every generation with the results of what it played."""
    (tmp_path / "tiny.toml").write_text(text)
    rows, results, taken = [], list[Result](), list[list[Result]]()
    with open_or_begin(Experiment.load(tmp_path / "tiny.toml"), tmp_path / "run") as store:
        with Session(store=store, experiment=Experiment.load(tmp_path / "tiny.toml")) as session:
            play, commit = session.evaluator.map, session.commit

            def noted(tasks: Sequence[Task]) -> Played:
                answer = play(tasks)
                results.extend(answer.results)
                return answer

            def counted_so_far(generation: int, metrics: Metrics) -> None:
                taken.append(results.copy())  # what follows is not of the generation
                commit(generation, metrics)

            session.evaluator.map = noted  # type: ignore[method-assign]
            session.commit = counted_so_far  # type: ignore[method-assign]
            for row in generations(session):
                rows.append((row, taken.pop()))
                results.clear()
        return session, rows, Store.read(tmp_path / "run")


LEDGER = ("frames", "forward_passes", "multiply_adds", "cpu_seconds")


def test_the_ledger_of_a_genetic_algorithm_is_what_a_hand_computes(tmp_path: Path) -> None:
    session, rows, store = played(tmp_path, SMALL.replace("every = 1", "every = 3"))
    network = session.experiment.network()
    assert (network.shape, network.outputs) == ((5, 5, 5), 3)
    each = 125 * 4 + 4 * 3  # of a hidden layer of four units, and of the output layer
    so_far = dict.fromkeys(LEDGER, 0.0)
    for number, (row, results) in enumerate(rows):
        steps = sum(int(result.lengths.sum()) for result in results)
        if number == 1:  # it validates nothing
            assert steps == int(store.read_record(1)["frames"].sum())
        line = row.metrics
        assert (line["forward_passes"], line["backward_passes"]) == (steps, 0)
        assert line["frames"] + line["frames_validating"] == steps
        assert line["multiply_adds"] == steps * each
        assert line["cpu_seconds"] > 0
        for name in LEDGER:
            so_far[name] += line[name]
            assert line[f"{name}_so_far"] == pytest.approx(so_far[name], abs=1e-5)
    spent = store.spent
    assert [spent.frames, spent.forward_passes, spent.multiply_adds] == [so_far[name] for name in LEDGER[:3]]
    assert [line["forward_passes"] for line in store.metrics()] == [line.forward_passes for line in store.lines]


DOUBLE = {"": 3, "double = false\n": 2}  # forward passes of an example
PPO = "[ppo]\nenvs = 6\nhorizon = 8\nenvs_per_task = 4\nminibatches = 3\nepochs = 2\n"
DQN = "[dqn]\nenvs = 6\nhorizon = 8\nreplay_size = 100\nlearning_starts = 40\nframes_per_update = 8\nbatch_size = 16\n"


@pytest.mark.parametrize(
    ("name", "section", "passes"),
    [("ppo", PPO, 1), *(pytest.param("dqn", DQN + more, n, marks=pytest.mark.long) for more, n in DOUBLE.items())],
    ids=["ppo", "double dqn", "dqn"],
)
def test_the_ledger_of_gradient_methods_counts_bootstraps_and_examples(
    tmp_path: Path, name: str, section: str, passes: int
) -> None:
    few = SMALL.replace("generations = 4", f'generations = 2\nalgorithm = "{name}"').replace("every = 1", "every = 3")
    session, rows, _ = played(tmp_path, few + "[learner]\nthreads = 1\n" + section)
    first, last = session.experiment.network().layers
    each = first.channels * 4 + 4 * last.filters
    for row, results in rows:
        segments = [result for result in results if result.transitions is not None]
        ends = np.concatenate([result.transitions.ends for result in segments if result.transitions])
        bootstraps = int(((ends == SEGMENT_END) | (ends == TRUNCATED)).sum())
        assert bootstraps > 0
        examples = 2 * 48 if name == "ppo" else 16 * int(row.metrics["updates"])
        forward = row.metrics["frames"] + row.metrics["frames_validating"] + bootstraps + passes * examples
        assert (row.metrics["forward_passes"], row.metrics["backward_passes"]) == (forward, examples)
        assert row.metrics["multiply_adds"] == each * (forward + 2 * examples)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("forward_passes", "the budget of 1 forward pass is spent; {:,} were computed"),
        ("multiply_adds", "the budget of 1 multiply-add is spent; {:,} were computed"),
        ("cpu_seconds", "the budget of 1 CPU second is spent; training took {:.0f}"),
    ],
)
def test_a_run_ends_when_any_amount_is_spent(name: str, said: str) -> None:
    budget, spent = Budget.model_validate({name: 1}), Spent(10, 0.5, 2000, 30_000, 1.5)
    amount = {"forward_passes": 2000, "multiply_adds": 30_000, "cpu_seconds": 1.5}[name]
    assert budget.reached(spent, None).startswith(said.format(amount))
    assert budget.reached(Spent(), None) == ""


@pytest.mark.long
def test_a_budget_of_forward_passes_ends_a_run_between_generations(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(SMALL)
    first = evo.Experiment.load(tmp_path / "tiny.toml", "run.generations=1")
    (row,) = evo.train(first, tmp_path / "first")
    passes = int(row.metrics["forward_passes"])
    for limit, needed in ((passes, 1), (passes + 1, 2)):
        experiment = evo.Experiment.load(tmp_path / "tiny.toml", f"run.budget={{forward_passes = {limit}}}")
        assert len(list(evo.train(experiment, tmp_path / str(limit)))) == needed
