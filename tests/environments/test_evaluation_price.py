"""Where an environment is not compiled, little of a run is spent on validation and test, and every worker has tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

import evo
from evo.cli.terminal.display import headline
from evo.config.experiment import Experiment
from evo.records import Segment
from evo.training.beginning import make_algorithm
from evo.training.generation import AskTell

CART_POLE = {"id": "gymnasium:CartPole-v1"}
LINEAR = {"kind": "linear"}
TASKS = 16  # so that as many workers have one each


def cart_pole(algorithm: str, generations: int = 25, frames: int = 0, **sections: dict[str, object]) -> Experiment:
    run = {"algorithm": algorithm, "generations": generations, "budget": {"frames": frames}}
    return Experiment.build(run=run, environment=CART_POLE, policy=LINEAR, **sections)


@pytest.mark.parametrize(
    ("algorithm", "options", "validation", "test"),
    [
        ("ppo", {}, (20, 32, 1), (0, 40)),
        ("ppo", {"envs": 16}, (40, 8, 1), (0, 32)),
        ("ppo", {"whole_episodes": True, "episodes": 4}, (40, 8, 1), (0, 32)),
        ("ga", {"population": 64, "parents": 8, "elites": 8, "episodes": 4}, (10, 32, 4), (0, 320)),
        ("ga", {"population": 512, "parents": 8, "elites": 8, "episodes": 32}, (10, 256, 4), (0, 1000)),
    ],
)
def test_a_twentieth_of_the_training_episodes_validates_and_one_tests(
    algorithm: str, options: dict[str, object], validation: tuple[int, ...], test: tuple[int, ...]
) -> None:
    experiment = cart_pole(algorithm, **{algorithm: options})
    chosen = experiment.validation
    assert (chosen.every, chosen.episodes, chosen.finalists) == validation
    assert (experiment.test.every, experiment.test.episodes) == test
    training = experiment.options.episodes_per_generation()
    assert chosen.episodes * chosen.finalists / chosen.every <= training / 20
    lines = headline(experiment).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    often = f"every {chosen.every} generations" if chosen.every < 25 else "of the first and last generation"
    assert f"validation {often}, {chosen.episodes} episodes" in lines[2]
    assert "at the end" in lines[3]


@pytest.mark.parametrize(
    ("algorithm", "options", "validation"),
    [
        ("ppo", {"envs": 8, "horizon": 32}, (40, 4, 1)),  # ten validations of 100,000 frames
        ("a2c", {"envs": 8, "horizon": 5}, (256, 4, 1)),
        ("ga", {"population": 4, "parents": 2, "elites": 1, "episodes": 1}, (40, 4, 4)),
    ],
)
def test_tiny_generations_are_validated_seldom_by_few_episodes_at_most_a_tenth_of_all(
    algorithm: str, options: dict[str, object], validation: tuple[int, ...]
) -> None:
    experiment = cart_pole(algorithm, **{algorithm: options})
    chosen = experiment.validation
    assert (chosen.every, chosen.episodes, chosen.finalists) == validation
    assert chosen.episodes * chosen.finalists / chosen.every <= experiment.options.episodes_per_generation() / 10


def test_what_is_set_is_kept_and_compiled_games_are_evaluated_as_ever() -> None:
    validation = cart_pole("ppo", validation={"episodes": 64, "finalists": 16}).validation
    assert (validation.every, validation.episodes, validation.finalists) == (40, 64, 16)
    catch = Experiment.build(environment={"id": "catch"})
    assert (catch.validation.every, catch.validation.episodes, catch.validation.finalists) == (10, 256, 16)
    assert (catch.test.every, catch.test.episodes) == (10, 1000)
    assert len(headline(catch).splitlines()) == 2
    limited = Experiment.build(environment={"id": "catch"}, run={"budget": {"frames": 20_000}})
    assert headline(limited).splitlines()[2] == "budget of 20,000 frames, which the last generation may exceed"


def test_the_first_lines_say_what_a_run_is_too_short_for() -> None:
    lines = headline(cart_pole("ppo", 20, 1_000_000, ppo={"envs": 8, "horizon": 32})).splitlines()
    assert lines[3] == "20 generations play 5,120 of them: for more, set run.generations"
    assert lines[4].startswith("validation of the first and last generation, 4 episodes")
    assert max(map(len, lines)) <= 80
    assert "set run.generations" not in headline(cart_pole("ppo", 4000, 1_000_000, ppo={"envs": 8, "horizon": 32}))


def test_how_a_run_validates_does_not_depend_on_its_length_so_that_it_can_go_on() -> None:
    assert cart_pole("ppo").identity() == cart_pole("ppo", generations=1000).identity()


def test_sixteen_workers_have_a_task_each_in_training_validation_and_with_candidates() -> None:
    for algorithm, options in (("ppo", {}), ("ga", {"population": 64, "parents": 8, "elites": 8, "episodes": 4})):
        loop = AskTell(make_algorithm(cart_pole(algorithm, **{algorithm: options})))
        tasks = loop.ask().tasks
        assert len(tasks) >= TASKS
        sizes = (len(task.play.envs if isinstance(task.play, Segment) else task.play.seeds) for task in tasks)
        assert len({len(task.weights) * size for task, size in zip(tasks, sizes, strict=True)}) <= 2
        loop.algorithm.close()


@pytest.mark.long
@pytest.mark.parametrize("limit", [41, 40])
def test_a_budget_of_frames_counts_those_of_training_and_metrics_keep_them_apart(tmp_path: Path, limit: int) -> None:
    sections = {"validation": {"every": 1, "episodes": 8}, "test": {"every": 0, "episodes": 8}}
    run = {"generations": 9, "budget": {"frames": limit}}
    small = {"population": 4, "parents": 2, "elites": 1, "episodes": 1}
    sections |= {"workers": {"backend": "serial"}}
    catch = Experiment.build(run=run, environment={"id": "catch", "rows": 6}, policy=LINEAR, ga=small, **sections)
    rows = list(evo.train(catch, tmp_path / "run"))
    assert len(rows) == -(-limit // 20)  # four games of five steps a generation
    assert [row.metrics["frames"] for row in rows] == [20] * len(rows)
    assert all(row.metrics["frames_validating"] >= 5 * 8 for row in rows)
    assert rows[-1].metrics["frames_so_far"] == 20 * len(rows)
    assert ["test" in row.metrics for row in rows] == [False] * (len(rows) - 1) + [True]
    spent = evo.Run(tmp_path / "run").store.spent
    assert spent.frames == 20 * len(rows)
    assert spent.frames_validating == sum(row.metrics["frames_validating"] for row in rows)
