"""Recorded observations are rebuilt alike: all at once by any number of threads, or as an update needs them."""

from __future__ import annotations

import numpy as np
import pytest

from evo.algorithms import pqn
from evo.environment import Environment
from evo.games.catalogue import snake
from evo.learning import learner as learners
from evo.learning.collecting import begin_envs
from evo.learning.exact.learner import ExactLearner
from evo.learning.exact.plan import BLOCK
from evo.learning.learner import Snapshots, observed
from evo.networks.network import Network, Options
from tests.helpers.networks import random_weights


def window(size: int = 6) -> Environment:
    return snake.make(snake.Options(size=size, observation="window"))


@pytest.mark.parametrize("count", [1, 7, 8, 64])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_observations_are_the_same_for_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, count: int, threads: int
) -> None:
    monkeypatch.setattr(learners, "PART", 3)
    environment = window()
    rows = begin_envs(environment, 1, 0, count).snapshots
    wanted = environment.game.observe(rows)
    assert len(np.unique(wanted, axis=0)) > count // 2
    np.testing.assert_array_equal(observed(environment, rows, threads=threads), wanted)
    out = np.full_like(wanted, np.nan)
    assert observed(environment, rows, out, threads) is out
    np.testing.assert_array_equal(out, wanted)


def learner_of(environment: Environment, threads: int) -> ExactLearner:
    network = Network.build(Options(conv=[[16, 3, 2]], dense=[20]), environment.game.shape, 3, 1)
    learner = ExactLearner(network, threads, pqn.PQNLoss(3, dueling=False, huber_delta=0.0))
    learner.begin(random_weights(network, 2))
    return learner


@pytest.mark.parametrize("threads", [1, 3])
def test_gradients_of_snapshots_are_those_of_their_observations(threads: int) -> None:
    environment, count = window(), 3 * BLOCK
    snapshots, learner = begin_envs(environment, 1, 0, count).snapshots, learner_of(environment, threads)
    draw = np.random.default_rng(1)
    others = {"actions": draw.integers(0, 3, count).astype(np.int32), "targets": draw.random(count).astype(np.float32)}
    rows = draw.permutation(count).astype(np.int32)
    found = []
    for seen in (environment.game.observe(snapshots), learner.inputs(environment, snapshots, threads)):
        learner.load({"observations": seen, **others})
        for some in (rows, rows[: BLOCK + 1], rows[:1]):
            found.append((learner.gradients(some, {})["loss"].tobytes(), learner.gradient.tobytes()))
    assert isinstance(learner._observations, Snapshots)
    assert found[:3] == found[3:]
    assert len(set(found)) == 3
    learner.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_snapshot_that_is_no_position_is_an_error(threads: int) -> None:
    environment, learner = window(), learner_of(window(), threads)
    snapshots = begin_envs(environment, 1, 0, 2 * BLOCK).snapshots
    count, rows = len(snapshots), np.arange(len(snapshots), dtype=np.int32)
    snapshots[BLOCK + 5] = 255
    others = {"actions": np.zeros(count, np.int32), "targets": np.zeros(count, np.float32)}
    learner.load({"observations": learner.inputs(environment, snapshots, threads), **others})
    with pytest.raises(ValueError, match=f"snapshot {BLOCK + 5} is no position"):
        learner.gradients(rows, {})
    assert learner.gradients(rows[:BLOCK], {})["loss"].shape == (BLOCK,)  # nothing is left of it
    learner.close()


def test_snapshots_of_another_size_are_refused_before_compiled_code_reads_them() -> None:
    environment, learner = window(), learner_of(window(), 1)
    snapshots = begin_envs(environment, 1, 0, 2).snapshots
    for wrong in (snapshots[:, 1:], snapshots[0]):
        with pytest.raises(ValueError, match="bytes each"):
            learner.inputs(environment, wrong, 1)


def test_small_observations_are_rebuilt_once_for_all_epochs() -> None:
    environment = snake.make(snake.Options(size=6, observation="features"))
    snapshots = begin_envs(environment, 1, 0, 3).snapshots
    assert 4 * environment.game.shape[0] < environment.game.row_size
    network = Network.build(Options(kind="mlp", dense=[4]), environment.game.shape, 3, 1)
    learner = ExactLearner(network, 1, pqn.PQNLoss(3, dueling=False, huber_delta=0.0))
    seen = learner.inputs(environment, snapshots, 1)
    assert isinstance(seen, np.ndarray)
    np.testing.assert_array_equal(seen, environment.game.observe(snapshots))


def test_a_learner_refuses_snapshots_of_observations_that_its_network_does_not_take() -> None:
    learner = learner_of(window(6), 1)
    snapshots = begin_envs(window(8), 1, 0, 2).snapshots
    others = {"actions": np.zeros(2, np.int32), "targets": np.zeros(2, np.float32)}
    with pytest.raises(ValueError, match="where the network has"):
        learner.load({"observations": learner.inputs(window(8), snapshots, 1), **others})
