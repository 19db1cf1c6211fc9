"""Training episodes may have other rules than those of validation and test."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.environments.snake import Options as Snake
from evo.errors import ConfigurationError
from evo.evaluators import serial
from evo.records import Episodes, Task, WeightSource
from evo.run import train
from evo.training.finished import Run
from tests.helpers.specs import make, spec

SEEDS = np.arange(16, dtype=np.uint64)


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


def test_training_episodes_end_by_their_own_rules_and_all_others_by_the_usual_ones(tmp_path: Path) -> None:
    rows = list(train(built(training={"max_steps": 3}), tmp_path / "run"))
    assert max(row.metrics["mean_length"] for row in rows) <= 3
    score = Run(tmp_path / "run").test
    assert score is not None
    assert score.mean_length > 3


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


def test_nested_options_change_one_by_one() -> None:
    options = Snake(rewards={"fruit": 2.0, "death": 0.0}, training={"rewards": {"death": -3.0}})  # type: ignore[arg-type]
    assert options.in_training().rewards.model_dump() == {"fruit": 2.0, "death": -3.0, "win": 10.0}
    assert options.in_training().training == {}


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"id": "catch"}, "training: id cannot be another one"),
        ({"starvatoin": 3}, "training: starvatoin: Extra inputs are not permitted"),
        ({"starvation": "x"}, "training: starvation: Input should be a valid integer"),
    ],
)
def test_rules_that_do_not_exist_are_refused(training: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        built(training=training)


def test_rules_under_which_a_network_would_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"environment.training: the environment's shape would be \(13, 13, 5\)"
    ):
        next(train(built(training={"size": 7}), tmp_path / "run"))
