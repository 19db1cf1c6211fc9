"""The intervals are those of the books, and a champion's score is what its test episodes give."""

from __future__ import annotations

import math

import numpy as np
import pytest
from specs import make, spec

from evo.config.experiment import environment_of
from evo.environments.snake import Options as Snake
from evo.errors import DataError
from evo.evaluators import serial
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import Episodes, Task, WeightSource
from evo.store.store import Store
from evo.training.statistics import incomplete_beta, mean_interval, rate_interval, student_quantile
from evo.training.testing import baselines, measure


@pytest.mark.parametrize(
    ("degrees", "quantile"),  # the tables of every textbook
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (5, 2.57058), (10, 2.22814), (30, 2.04227), (199, 1.97196)],
)
def test_quantiles_of_student_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert student_quantile(degrees) == pytest.approx(quantile, abs=5e-5)


def test_quantiles_have_their_closed_forms_at_one_and_two_degrees_and_the_normal_limit() -> None:
    assert student_quantile(1) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-12)
    assert student_quantile(2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), rel=1e-12)
    assert student_quantile(10_000_000) == pytest.approx(1.9599640, abs=1e-6)


@pytest.mark.parametrize("x", [0.0, 1e-9, 0.1, 0.5, 0.77, 0.999, 1.0])
def test_incomplete_beta_equals_its_closed_forms(x: float) -> None:
    assert incomplete_beta(x, 1, 1) == pytest.approx(x, abs=1e-14)
    assert incomplete_beta(x, 2, 3) == pytest.approx(x**2 * (6 - 8 * x + 3 * x**2), abs=1e-13)
    assert incomplete_beta(x, 0.5, 0.5) == pytest.approx(2 / math.pi * math.asin(math.sqrt(x)), abs=1e-13)


def test_the_interval_of_a_mean_is_the_hand_computed_one() -> None:
    mean, (low, high) = mean_interval([1, 2, 3, 4])
    half = 3.182446 * math.sqrt(5 / 3 / 4)  # t(3), variance 5/3, four values
    assert mean == 2.5
    assert (low, high) == pytest.approx((2.5 - half, 2.5 + half), abs=1e-5)


def test_one_value_has_no_interval_and_equal_values_have_an_empty_one() -> None:
    mean, interval = mean_interval([7.0])
    assert mean == 7.0
    assert all(math.isnan(bound) for bound in interval)
    assert mean_interval([3, 3, 3]) == (3.0, (3.0, 3.0))


def test_the_interval_of_a_rate_is_the_hand_computed_one() -> None:
    z2 = 1.959964**2  # 8 of 10: ((p + z2/20) -+ z sqrt(p q / 10 + z2/400)) / (1 + z2/10)
    half = math.sqrt(z2) * math.sqrt(0.8 * 0.2 / 10 + z2 / 400) / (1 + z2 / 10)
    middle = (0.8 + z2 / 20) / (1 + z2 / 10)
    assert rate_interval(8, 10) == pytest.approx((middle - half, middle + half), abs=1e-6)
    assert rate_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # as printed


def test_the_interval_of_a_rate_begins_at_zero_for_none_and_ends_at_one_for_all() -> None:
    assert rate_interval(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert rate_interval(10, 10) == pytest.approx((0.72247, 1.0), abs=1e-5)
    assert rate_interval(0, 10)[0] == 0.0
    assert rate_interval(10, 10)[1] == 1.0


@pytest.fixture
def small(tmp_path):
    options = Snake(size=5, window=5, starvation=30)
    policy = Policy(kind="mlp", dense=[4]).resolved()
    environment = environment_of(options)
    network = Network.build(policy, environment.shape, environment.actions)
    context = spec(tmp_path / "run", options.model_dump(), policy.model_dump())
    with Store.create(tmp_path / "run", "", {}) as store:
        yield environment, network, make(serial, context), store


def test_the_score_is_what_the_test_episodes_give(small) -> None:
    environment, network, evaluator, store = small
    weights = np.random.default_rng(1).normal(size=network.size).astype(np.float32)
    score, scores = measure(weights, store.publish, evaluator, environment.episode_metrics, 100)
    source = WeightSource.of_row(published=store.publish(weights[np.newaxis]))
    task = Task(source, Episodes(seeds_of_test_episodes(100)))
    once = evaluator.map([task]).results[0]  # in one task, where `measure` takes two
    assert scores.tolist() == once.episode_metrics[0, :, 0].tolist()
    assert score.mean == once.episode_metrics[0, :, 0].sum() / 100
    assert score.max == once.episode_metrics[0, :, 0].max()
    assert score.mean_length == once.lengths[0].sum() / 100
    assert score.ci95[0] < score.mean < score.ci95[1]
    assert (score.win_rate, score.episodes) == (0.0, 100)


def test_the_first_episodes_of_more_are_a_prefix(small) -> None:
    environment, network, evaluator, store = small
    weights = np.random.default_rng(2).normal(size=network.size).astype(np.float32)
    fewer = measure(weights, store.publish, evaluator, environment.episode_metrics, 10)[1]
    more = measure(weights, store.publish, evaluator, environment.episode_metrics, 70)[1]
    assert more[:10].tolist() == fewer.tolist()


def test_where_there_is_no_win_its_rate_is_unknown_and_the_score_is_the_return(small) -> None:
    _, network, evaluator, store = small
    weights = np.random.default_rng(3).normal(size=network.size).astype(np.float32)
    score, scores = measure(weights, store.publish, evaluator, (), 10)
    assert (score.win_rate, score.win_ci95) == (None, None)
    task = Task(WeightSource.of_row(published=store.publish(weights[np.newaxis])), Episodes(seeds_of_test_episodes(10)))
    (result,) = evaluator.map([task]).results
    assert scores.tolist() == (result.returns[0] / 1000).tolist()


def test_a_network_that_is_not_finite_has_no_score(small) -> None:
    environment, network, evaluator, store = small
    weights = np.full(network.size, np.inf, np.float32)
    with pytest.raises(DataError, match="not finite"):
        measure(weights, store.publish, evaluator, environment.episode_metrics, 10)


def test_the_baselines_are_ordered_from_the_floor_to_the_ceiling() -> None:
    scores = baselines(Snake(size=6), 10)
    assert 0 <= scores["random"] < scores["greedy"] < scores["perfect"] == 35
