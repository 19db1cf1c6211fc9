"""What a run will take: the estimate of a probe, and what then happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evo
from evo.cli.commands import plan
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError
from evo.numbers import size
from evo.planning import memory
from evo.planning.estimate import estimated
from evo.planning.memory import Peak, Watch
from evo.planning.probe import Probe, ProbedGeneration, ProbedRound, Sampled, probe
from evo.records import Episodes, Played, Task, WeightSource
from evo.workers.hardware import cores
from tests.helpers.calling import SMALL, called

LONGER = SMALL.replace('backend = "serial"', 'backend = "processes"\ncount = 2').replace("every = 2", "every = 50")
GA = LONGER.replace("generations = 4", "generations = 400").replace("population = 20", "population = 64")
PPO = LONGER.replace("generations = 4", 'algorithm = "ppo"\ngenerations = 150') + (
    "[learner]\nthreads = 1\n[ppo]\nenvs = 32\nhorizon = 32\n"
)


def generation(seconds: float, acting: float, frames: float, tasks: int = 8, played: int = 8) -> ProbedGeneration:
    """A generation that plays its tasks in `acting` seconds, without validation."""
    whole = acting * tasks / played
    rounds = (ProbedRound(False, tasks, played, acting, whole), ProbedRound(True, 2, 2, 0.0, 0.0))
    metrics: dict[str, float | None] = {
        "seconds": seconds, "seconds_acting": acting, "seconds_master": seconds - acting, "frames": frames,
        "forward_passes": frames, "backward_passes": 0.0, "multiply_adds": 10 * frames, "cpu_seconds": seconds,
        "lane_utilisation": 0.5, "workers": 2.0,
    }  # fmt: skip
    return ProbedGeneration(metrics, rounds, seconds)


def probed(*generations: ProbedGeneration, **changes: Any) -> Probe:
    found = Probe(
        start=3.0, generations=generations, test=ProbedRound(True, 4, 4, 1.0, 1.0), growth=0, checkpoint=1000,
        published=10, champion=20, each=100.0, cores=2, peak=Peak(10_000_000, 1_000_000),
    )  # fmt: skip
    return replace(found, **changes)


@pytest.fixture
def experiment(small: Path) -> Experiment:
    return Experiment.load(small / "small.toml", "run.generations=1000", "test.every=500", "run.budget={frames=2000}")


def test_time_and_disk_are_those_of_the_generations_that_are_needed(experiment: Experiment) -> None:
    found = estimated(experiment, probed(generation(2.0, 1.5, 200.0), generation(1.0, 0.8, 100.0)), 10**9, 10**9)
    frames, generations = found.goals
    assert (frames.name, frames.generations) == ("frames", 1 + 18)
    assert frames.training == pytest.approx(2.0 + 18 * 1.0)
    assert frames.seconds == pytest.approx(3.0 + 20.0 + 1.0)  # start, training, one test
    assert generations.training == pytest.approx(2.0 + 999 * 1.0)
    assert generations.seconds == pytest.approx(3.0 + 1001.0 + 2.0)
    assert generations.disk == 100 * 1000 + 1000 * (4 + 10) + 30
    assert (found.frames_per_second, found.lane_utilisation, found.worker_utilisation) == (100.0, 0.5, 0.8)
    assert found.warnings == ()


def test_rules_in_turn_count_alike(experiment: Experiment) -> None:
    environment = experiment.environment.model_copy(update={"training": [{"starvation": 9}, {"starvation": 8}]})
    in_turn = replace(experiment, environment=environment)
    cheap, dear = generation(1.0, 0.8, 100.0), generation(3.0, 2.4, 100.0)
    for generations in ((cheap, dear), (cheap, dear, cheap), (cheap, dear) * 5):
        found = estimated(in_turn, probed(*generations), 10**9, 10**9)
        assert found.seconds_per_generation == pytest.approx(2.0)
    assert estimated(experiment, probed(cheap, dear), 10**9, 10**9).seconds_per_generation == pytest.approx(3.0)


@pytest.mark.parametrize(("walls", "times"), [((9.0, 0.1, 0.1), 2), ((0.9, 0.1), 1), ((9.0, 6.0), 1), ((9.0,), 1)])
def test_a_probe_that_had_to_compile_is_made_again(
    walls: tuple[float, ...], times: int, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Probe] = []

    def once(_: Experiment, __: float) -> Probe:
        made.append(probed(*(generation(wall, wall, 100.0) for wall in walls)))
        return made[-1]

    monkeypatch.setattr("evo.planning.probe._probed", once)
    assert probe(experiment) is made[-1]
    assert len(made) == times


def test_tasks_that_were_not_played_take_as_long_as_those_that_were(experiment: Experiment) -> None:
    found = estimated(experiment, probed(*[generation(1.0, 0.8, 100.0, 8, 2)] * 2), 10**9, 10**9)
    assert found.seconds_per_generation == pytest.approx(1.0 + 3 * 0.8)
    assert "only a part" in found.probed


def test_more_workers_share_what_is_played_and_nothing_else(experiment: Experiment) -> None:
    found = estimated(experiment, probed(*[generation(1.0, 0.8, 100.0)] * 2), 10**9, 10**9, [4, 16])
    four, sixteen = found.with_workers
    assert four.seconds == pytest.approx(3.0 + 20 * (0.2 + 0.4) + 0.5)
    assert four.memory == 10_000_000 + 2 * 1_000_000
    assert sixteen.seconds == pytest.approx(3.0 + 20 * (0.2 + 0.2) + 1 / 8)  # as with eight: there are eight tasks
    assert sixteen.why == "a round has 8 tasks, so more workers than that have nothing to play"


def test_one_worker_is_not_counted_in_the_plural(experiment: Experiment) -> None:
    found = estimated(experiment, probed(*[generation(1.0, 0.8, 100.0)] * 2), 10**9, 10**9, [1, 4])
    one, four = plan.text(found).splitlines()[-2:]
    head = plan.text(found).splitlines()[1]
    assert head.endswith(" to 2,000 frames (20 generations) with 2 workers, the run ends there")
    head = plan.text(replace(found, workers=1, goals=found.goals[:1])).splitlines()[1]
    assert head.endswith(" to 2,000 frames (20 generations) with 1 worker")
    assert one.startswith("1 worker: ")
    assert four.startswith("4 workers: ")


def test_memory_and_disk_that_do_not_suffice_are_said_before(experiment: Experiment) -> None:
    found = estimated(experiment, probed(generation(1.0, 0.8, 100.0), growth=5_000_000), 16_000_000, 4_000)
    assert [warning.split(":")[0] for warning in found.warnings] == ["memory", "disk"]
    assert "15 MB, and 16 MB are available" in found.warnings[0]
    assert estimated(experiment, probed(generation(1.0, 0.8, 100.0)), 16_000_000, 10**9).warnings == ()


def test_the_memory_of_a_process_and_its_children_is_seen() -> None:
    program = "import sys; kept = bytearray(50_000_000); print(flush=True); sys.stdin.read()"
    line = [sys.executable, "-c", program]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with Watch(os.getpid()) as watch:
            pass
        child = memory.look(process.pid)
        process.communicate(b"")
    assert child is not None
    assert 50_000_000 < child.total < 120_000_000
    assert watch.peak is None or watch.peak.total > child.total
    assert size(1_234_567) == "1.23 MB"


def test_a_round_that_takes_too_long_is_played_in_part_and_has_all_results() -> None:
    asked = list[int]()

    class Slow:
        def map(self, tasks: Any) -> Played:
            asked.append(len(tasks))
            time.sleep(0.02 * len(tasks))
            return Played([f"{task.weights.rows[0]} in {len(task.play.seeds)}" for task in tasks])  # type: ignore[misc]

        def close(self) -> None:
            pass

    def task(row: int, episodes: int) -> Task:
        return Task(WeightSource.of_row(row), Episodes(np.zeros(episodes, np.uint64)))

    sampled = Sampled(Slow(), 0.1, 1)
    results = sampled.map([*(task(row, 4) for row in range(50)), task(50, 3)]).results
    (one,) = sampled.take()
    assert one.tasks == len(results) == 51
    assert results[-1] == "50 in 3"  # of its shape there is no other
    assert results[one.played : one.played + 2] == ["0 in 4", "1 in 4"]
    assert one.played < 20
    assert one.whole == pytest.approx(51 * 0.02, rel=0.3)
    assert asked[:2] == [2, 4]


@pytest.mark.long
@pytest.mark.parametrize("text", [GA, PPO], ids=["ga", "ppo"])
def test_the_estimate_is_within_a_quarter_of_what_then_happens(tmp_path: Path, text: str) -> None:
    if os.getloadavg()[0] > 1.5 * cores():
        pytest.skip("the machine is busy with something else, so no time repeats")
    (tmp_path / "tiny.toml").write_text(text)
    before = set(Path(tempfile.gettempdir()).glob("evo-plan-*"))
    out, _ = called(tmp_path, "plan", "tiny.toml", "--json", program="evo")
    assert set(Path(tempfile.gettempdir()).glob("evo-plan-*")) <= before
    found = json.loads(out.splitlines()[-1])
    line = [sys.executable, "-m", "evo.run", "tiny.toml", "--run-dir", "run", "--json", "--quiet", "--no-report"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(line, cwd=tmp_path, stdout=pipe, text=True)
    with process, Watch(process.pid) as watch:
        summary = json.loads(process.communicate()[0].splitlines()[-1])
    used = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    (goal,) = found["goals"]
    assert watch.peak is not None
    ratios = {
        "seconds": goal["training"] / summary["seconds"],
        "frames/s": found["frames_per_second"] / (summary["frames"] / summary["seconds"]),
        "disk": goal["disk"] / used,
        "memory": found["memory"] / watch.peak.total,
    }
    print(ratios)
    assert {name: ratio for name, ratio in ratios.items() if not 0.75 < ratio < 1.25} == {}


@pytest.mark.parametrize("words", [{"workers": [0]}, {"workers": [2.5]}, {"seconds": float("nan")}, {"seconds": -1.0}])
def test_wrong_arguments_are_named_before_a_probe(words: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(words))}: must be a"):
        evo.plan(Experiment.build(), **words)
