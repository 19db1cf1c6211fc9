"""PQN: values of a chain, and runs that resume exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from evo.algorithms import pqn
from evo.errors import ConfigurationError
from evo.networks.network import Options as Policy
from evo.records import Request, Result, Transitions
from evo.store.store import Store
from tests.algorithms.learners import (
    Chain,
    assert_chain_is_valued,
    assert_mirrored_or_not,
    board,
    drive,
    made,
    play,
    small,
)
from tests.helpers.calling import called, summary_of
from tests.helpers.learning import tensorflow  # noqa: F401

ENVS = {"envs": 8, "horizon": 8}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(small("pqn"))
    return tmp_path


def test_a_chain_is_valued_exactly() -> None:
    algorithm = made(
        pqn, Chain(), gamma=0.8, epsilon=[[0, 1.0]], learning_rate=0.03, huber_delta=0.0, envs=16, horizon=64,
        q_lambda=0.0, dueling=False, epochs=6, minibatches=2,
    )  # fmt: skip
    drive(algorithm, range(40))
    assert_chain_is_valued(algorithm, 0.8, dueling=False)


def test_a_run_that_stops_after_every_generation_equals_the_straight_one(place: Path) -> None:
    straight = summary_of(place, "small.toml", "--run-dir", "straight", "--generations", 3)
    hashes = [line.state_hash for line in Store.read(place / "straight").lines]
    summary_of(place, "small.toml", "--run-dir", "stopping", "--generations", 1)
    for stop in range(2, 4):
        resumed = summary_of(place, "--resume", "stopping", "--generations", stop)
        assert [line.state_hash for line in Store.read(place / "stopping").lines] == hashes[:stop]
    assert resumed["champion"] == straight["champion"]


def test_asynchronous_learning_is_from_the_generation_before() -> None:
    lagging, usual = (made(pqn, board(), **ENVS, epochs=1, minibatches=1, asynchronous=how) for how in (True, False))
    first = lagging.method.learner.weights()
    assert "updates" not in drive(lagging, 1)  # nothing was played before
    np.testing.assert_array_equal(lagging.method.learner.weights(), first)
    drive(lagging, 2)
    drive(usual, 1)
    weights = usual.method.learner.weights()
    np.testing.assert_allclose(lagging.method.learner.weights(), weights, atol=1e-6)  # in another order
    assert np.abs(weights - first).max() > 1e-4


def test_an_asynchronous_run_gives_notice_of_its_lag(place: Path) -> None:
    _, told = called(place, "small.toml", "--run-dir", "run", "--set", "pqn.asynchronous=true", "--generations", 1)
    assert "policy lag is always one generation" in told


def test_a_run_can_start_from_a_champion() -> None:
    start = np.arange(12, dtype=np.float32)
    request = next(made(pqn, Chain(), start=start, dueling=False).generation(0))
    assert request.weights is not None
    assert request.weights.tolist() == [start.tolist()]


def test_epsilon_falls_with_the_frames_played() -> None:
    algorithm = made(pqn, board(), **ENVS, minibatches=2, epsilon=[[0, 1.0], [256, 0.5]])
    chances = []
    for number in range(1, 7):
        task = next(algorithm.generation(number)).tasks[0]
        assert task.action_rule.kind == "epsilon_greedy"
        chances.append(task.action_rule.epsilon)
        drive(algorithm, number)
    assert chances == [1.0, 0.875, 0.75, 0.625, 0.5, 0.5]


def test_gamma_is_annealed_over_frames() -> None:
    annealed = made(pqn, board(), **ENVS, minibatches=1, gamma=0.5, gamma_final=0.9, gamma_frames=256)
    halfway, first = (made(pqn, board(), **ENVS, minibatches=1, gamma=gamma) for gamma in (0.7, 0.5))
    drive(annealed, 1)  # 64 frames: a quarter
    state = annealed.state()
    for other in (halfway, first):
        other.restore(state, [{}])
    for algorithm in (annealed, halfway, first):
        drive(algorithm, 2)
    np.testing.assert_array_equal(annealed.method.learner.weights(), halfway.method.learner.weights())
    assert (annealed.method.learner.weights() != first.method.learner.weights()).any()


def test_a_discount_that_is_not_annealed_has_no_end_in_a_runs_identity() -> None:
    assert pqn.Options(gamma_final=0.5).model_dump() == pqn.Options().model_dump()
    assert pqn.Options(gamma_final=0.5, gamma_frames=9).model_dump()["gamma_final"] == 0.5


def test_observations_and_actions_are_mirrored_together(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = board(starvation=30)
    algorithm = made(pqn, environment, envs=16, horizon=16, symmetry=True)
    loaded: list[dict[str, np.ndarray]] = []
    load = algorithm.method.learner.load
    monkeypatch.setattr(algorithm.method.learner, "load", lambda data: loaded.append(data) or load(data))
    played: list[Transitions] = []

    def answer(request: Request) -> list[Result]:
        results = play(algorithm, request)
        played.extend(result.transitions for result in results if result.transitions)
        return results

    drive(algorithm, 1, answer)
    observed = environment.game.observe(np.concatenate([transitions.observations for transitions in played]))
    actions = np.concatenate([transitions.actions for transitions in played])
    assert len(loaded) == 2  # epochs, each in forms of its own
    first, second = (
        assert_mirrored_or_not(observed, data["observations"], actions, data["actions"]) for data in loaded
    )
    assert (first != second).any()


def test_more_minibatches_than_transitions_are_refused() -> None:
    with pytest.raises(ValidationError, match="minibatches"):
        pqn.Options(envs=2, horizon=2, minibatches=5)


def test_memory_learns_without_symmetries_and_its_options_are_noted_where_there_is_none() -> None:
    gru = Policy(kind="mlp", dense=[], memory="gru:3")
    assert made(pqn, board(), gru, **ENVS, minibatches=2, bptt=4).notices == []
    with pytest.raises(ConfigurationError, match=r"symmetry: the states of a network with memory have none"):
        made(pqn, board(), gru, **ENVS, minibatches=2, symmetry=True)
    assert "no effect of pqn.bptt: the network has no memory" in made(pqn, board(), **ENVS, bptt=4).notices
