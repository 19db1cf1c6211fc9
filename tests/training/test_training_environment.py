"""Training episodes may have other rules than those of validation and test."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.config.experiment import LEARNING_RULES, Experiment
from evo.errors import ConfigurationError
from evo.evaluators import serial
from evo.games.catalogue.snake import Options as Snake
from evo.records import Episodes, Task, WeightSource
from evo.run import train
from evo.store.run import Run
from evo.store.store import Store
from evo.verify.candidate import replay_candidate
from tests.helpers.calling import called
from tests.helpers.specs import make, spec

SEEDS = np.arange(16, dtype=np.uint64)
LIMITS = [{"max_steps": 2}, {"max_steps": 9}, {"max_steps": 5}]  # of a generation each


def built(**environment: Any) -> Experiment:
    return Experiment.build(
        run={"generations": 3},
        environment={"id": "snake", "size": 6, "starvation": 30, **environment},
        policy={"kind": "linear"},
        workers={"backend": "serial"},
        ga={"population": 8, "parents": 2, "elites": 1, "episodes": 4},
        validation={"episodes": 16},
        test={"episodes": 32},
    )


def learning(algorithm: str, options: dict[str, Any], **environment: Any) -> Experiment:
    """A small experiment of an algorithm that learns by gradients."""
    return Experiment.build(
        run={"algorithm": algorithm, "generations": 4},
        environment={"id": "snake", "size": 6, "starvation": 30, **environment},
        policy={"kind": "linear"},
        workers={"backend": "serial"},
        validation={"episodes": 8},
        test={"episodes": 8},
        **{algorithm: options},
    )


def of(experiment: Experiment, generations: int) -> Experiment:
    return replace(experiment, run=experiment.run.model_copy(update={"generations": generations}))


def ends_alike_in_parts(experiment: Experiment, tmp_path: Path, generations: Sequence[int]) -> bool:
    """Train with so many generations at a time; return whether that ends with the hash of `tmp_path / "run"`."""
    for count in generations:
        list(train(of(experiment, count), tmp_path / "in-parts"))
    return Store.read(tmp_path / "in-parts").state_hash == Store.read(tmp_path / "run").state_hash


PPO = {"envs": 8, "horizon": 16, "minibatches": 2}


def test_training_episodes_end_by_their_own_rules_and_all_others_by_the_usual_ones(tmp_path: Path) -> None:
    rows = list(train(built(training={"max_steps": 3}), tmp_path / "run"))
    assert max(row.metrics["mean_length"] for row in rows) <= 3
    score = Run(tmp_path / "run").test
    assert score is not None
    assert score.mean_length > 3


@pytest.mark.long
def test_after_some_generations_training_has_the_usual_rules_in_a_replay_and_a_resume_too(tmp_path: Path) -> None:
    experiment = built(training={"max_steps": 3}, training_generations=2)
    short, again, long = (row.metrics["mean_length"] for row in train(experiment, tmp_path / "run"))
    assert max(short, again) <= 3 < long
    assert "everything that could be checked agrees" in called(tmp_path, "verify", "run", "--all", program="evo")[0]
    for generation, ended in ((1, True), (2, False)):
        told = replay_candidate(tmp_path / "run", generation, 0, 0).outcome
        assert (int(told.split(", ")[1].split()[0]) <= 4 * 3) == ended  # frames of four episodes
    assert ends_alike_in_parts(experiment, tmp_path, (1, 3))


def test_environments_in_mid_episode_go_on_by_the_usual_rules(tmp_path: Path) -> None:
    experiment = learning("ppo", PPO, training={"starvation": 4}, training_generations=2)
    lengths = [row.metrics["mean_length"] for row in train(experiment, tmp_path / "run")]
    assert max(lengths[:2]) < max(lengths[2:])
    assert "everything that could be checked agrees" in called(tmp_path, "verify", "run", "--all", program="evo")[0]


def test_rules_that_end_are_refused_where_there_are_none() -> None:
    with pytest.raises(ConfigurationError, match="training is empty, so there is nothing that could end"):
        built(training_generations=2)


@pytest.mark.parametrize("algorithm", ["dqn", "erl"])
@pytest.mark.parametrize(
    "changes", [{"training": LIMITS}, {"training": {"size": 5}, "window": 9, "training_generations": 2}]
)
def test_a_replay_buffer_has_boards_of_one_kind(algorithm: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"environment.training: a replay buffer holds boards of one kind"):
        Experiment.build(run={"algorithm": algorithm}, environment={"id": "snake", "size": 6, **changes})
    Experiment.build(
        run={"algorithm": algorithm}, environment={"id": "snake", "size": 6, "training": {"starvation": 9}}
    )


@pytest.mark.parametrize(
    ("algorithm", "options", "what"),
    [
        ("ga", {"memory": 2}, "memory"),
        ("sep_cma_es", {"restart_after": 9}, "restart_after"),
        ("map_elites", {}, "the archive"),
    ],
)
def test_what_compares_the_fitness_of_generations_takes_no_list(
    algorithm: str, options: dict[str, Any], what: str
) -> None:
    for changes in (LIMITS, LIMITS[:1]):
        experiment = {
            "run": {"algorithm": algorithm},
            "environment": {"id": "snake", "training": changes},
            algorithm: options,
        }
        if len(changes) == 1:
            Experiment.build(**experiment)
            continue
        with pytest.raises(ConfigurationError, match=f"environment.training: {what} compares the fitness"):
            Experiment.build(**experiment)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["dqn", "erl"])
def test_a_replay_buffer_is_filled_again_by_the_rules_of_every_generation(algorithm: str, tmp_path: Path) -> None:
    options = {
        "dqn": {"envs": 8, "horizon": 16},
        "erl": {"population": 8, "parents": 2, "elites": 1, "episodes": 2, "sync_every": 2, "shared": 4},
    }[algorithm]
    options |= {"learning_starts": 32, "batch_size": 16, "replay_size": 512}
    experiment = of(learning(algorithm, options, training={"starvation": 4}, training_generations=2), 6)
    list(train(experiment, tmp_path / "run"))
    assert ends_alike_in_parts(experiment, tmp_path, range(1, 7))


def test_learning_sees_what_acting_saw_after_the_rules_have_changed(tmp_path: Path) -> None:
    """The hunger that is shown is a share of `starvation`, so other rules show other boards."""
    once = {**PPO, "minibatches": 1, "epochs": 1}
    experiment = of(learning("ppo", once, training={"starvation": 4}, training_generations=1), 3)
    assert experiment.identity()[LEARNING_RULES] == 2
    assert LEARNING_RULES not in replace(experiment, environment=experiment.environment.in_training()[0]).identity()
    for row in train(experiment, tmp_path / "run"):
        # The only update of a generation is of the policy that acted, so its probability ratios are exactly 1.
        assert row.metrics["approx_kl"] == 0.0


@pytest.mark.parametrize("evaluation", [False, True])
def test_a_task_says_which_rules_it_is_played_by(evaluation: bool, tmp_path: Path) -> None:
    options = {"id": "snake", "size": 6, "starvation": 30, "training": {"max_steps": 4}}
    with closing(make(serial, spec(tmp_path, environment=options, policy={"kind": "linear"}))) as evaluator:
        task = Task(WeightSource.of_row(-1), Episodes(SEEDS), evaluation=evaluation)
        (result,) = evaluator.map([task]).results
    assert (result.lengths.max() > 4) == evaluation


def test_rules_of_training_are_part_of_a_runs_identity_only_where_there_are_some() -> None:
    assert "training" not in built().identity()["environment"]
    assert built(training={"starvation": 9}).identity()["environment"]["training"] == {"starvation": 9}


def test_what_is_scored_does_not_depend_on_the_rules_of_training() -> None:
    for options in ({"id": "snake"}, {"id": "catch"}, {"id": "gymnasium:CartPole-v1"}):
        plain, other = (
            Experiment.build(environment={**options, **more}, policy={"kind": "linear"}).environment
            for more in ({}, {"training": {"max_steps": 7}, "training_generations": 2})
        )
        assert plain.scored == other.scored


def test_nested_options_change_one_by_one() -> None:
    options = Snake(rewards={"fruit": 2.0, "death": 0.0}, training={"rewards": {"death": -3.0}})  # type: ignore[arg-type]
    (changed,) = options.in_training()
    assert changed.rewards.model_dump() == {"fruit": 2.0, "death": -3.0, "win": 10.0}
    assert changed.training == {}


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"id": "catch"}, "training: id cannot be another one"),
        ({"starvatoin": 3}, "training: starvatoin: unknown key - did you mean `starvation`?"),
        ({"starvation": "x"}, "training: starvation: must be a whole number"),
        ({"starvation": {}}, "training: starvation: must be a whole number"),
        ([{"starvation": 9}, {"starvation": "x"}], r"training\[1\]: starvation: must be a whole number"),
        ([{"id": "catch"}, {"starvation": 9}], r"training\[0\]: id cannot be another one"),
        (3, "environment.training: must be a table or a list, not 3"),
        ([3], r"environment.training: a list must have tables, as in \[{max_steps = 100}, {}\]"),
        ([{}, {"window": 8}], r"training\[1\]: window: 8 is not an odd number"),
    ],
)
def test_rules_that_do_not_exist_are_refused(training: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        built(training=training)


@pytest.mark.long
def test_of_a_list_of_rules_each_generation_has_one_in_turn(tmp_path: Path) -> None:
    experiment = built(training=LIMITS, training_generations=5)
    five = replace(experiment, run=experiment.run.model_copy(update={"generations": 6}))
    metrics = [row.metrics for row in train(five, tmp_path / "run")]
    assert [row.get("training_table") for row in metrics] == [0, 1, 2, 0, 1, None]
    lengths = [row["mean_length"] for row in metrics]
    for length, longest in zip(lengths, (2, 9, 5, 2, 9), strict=False):
        assert length <= longest
    assert lengths[1] > 5
    assert min(lengths[2], lengths[4]) > 2
    assert lengths[5] > 9
    for generation, longest in ((3, 2), (4, 9)):
        told = replay_candidate(tmp_path / "run", generation, 0, 0).outcome
        assert int(told.split(", ")[1].split()[0]) <= 4 * longest  # frames of four episodes
    assert "everything that could be checked agrees" in called(tmp_path, "verify", "run", "--all", program="evo")[0]


@pytest.mark.long
@pytest.mark.parametrize(("size", "asynchronous"), [(14, False), (14, True), (18, False)])
def test_boards_of_several_sizes_go_on_where_each_was_left_also_in_a_resume(
    tmp_path: Path, size: int, asynchronous: bool
) -> None:
    """One of 18 has states of another type, for which a kernel is compiled."""
    boards = {"window": 11, "training": [{"size": 4}, {"size": size}], "training_generations": 7}
    options = {**PPO, "asynchronous": asynchronous, "normalise_rewards": True}
    experiment = of(learning("ppo", options, **boards), 8)
    rows = list(train(experiment, tmp_path / "run"))
    episodes = [row.metrics["episodes"] for row in rows]
    assert all(row.metrics["frames"] >= 8 * 16 for row in rows)
    assert sum(episodes[0:7:2]) > sum(episodes[1:7:2])  # small boards have shorter episodes
    lengths = [Store.read(tmp_path / "run").read_record(number)["length"] for number in (3, 5)]
    assert np.concatenate(lengths).max() > 16  # steps of a segment, so an episode of an earlier one went on
    assert ends_alike_in_parts(experiment, tmp_path, range(1, 9))
    state = Store.read(tmp_path / "run").read_state(7)
    assert {"env_snapshots", "env_1_snapshots", "env_2_snapshots"} <= state.keys()
    assert asynchronous or {"reward_sums", "reward_sums1", "reward_sums2"} <= state.keys()  # else of one less


def test_rules_under_which_a_network_would_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"environment.training: the environment's shape would be \(13, 13, 5\)"
    ):
        next(train(built(training={"size": 7}), tmp_path / "run"))


def test_boards_of_two_sizes_without_a_window_are_refused_in_a_line_of_the_file_and_leave_nothing(
    tmp_path: Path,
) -> None:
    text = "[environment]\nsize = 6\n\ntraining = { size = 5 }\n"
    (tmp_path / "sizes.toml").write_text(text)
    _, err = called(tmp_path, "sizes.toml", "--run-dir", "run", code=2)
    assert err.startswith("sizes.toml:4: environment.training: the environment's shape would be (9, 9, 5) in training")
    assert err.endswith("as with environment.window = 11\n")
    assert not (tmp_path / "run").exists()
    called(tmp_path, "sizes.toml", "--dry-run", "--set", "environment.window=11")
