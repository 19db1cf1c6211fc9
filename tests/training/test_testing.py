"""The intervals are those of the books, and a champion's score is what its test episodes give."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from evo import statistics
from evo.config.environments import environment_of
from evo.errors import DataError
from evo.evaluators import serial
from evo.games.catalogue.snake import Options as Snake
from evo.games.catalogue.snake import make as make_snake
from evo.games.catalogue.snake.players import play
from evo.games.game import GameEnvironment
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.numbers import percentage
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import Episodes, Task, WeightSource
from evo.statistics import mean_interval, rate_interval
from evo.store.champion import BLOCK, LAST_BLOCK
from evo.store.store import Store
from evo.training.testing import baselines, measure
from tests.helpers.specs import make, spec

# How often each score came on fresh episodes of our champions.
CHAMPIONS = {
    name: {int(score): count for score, count in scores.items()}
    for name, scores in json.loads((Path(__file__).parent / "champion_scores.json").read_text()).items()
}


class Bare(GameEnvironment):
    """Snake without metrics of an episode."""

    episode_metrics = ()
    score_bounds = None


def test_the_interval_of_equal_values_leaves_room_for_those_that_were_not_seen() -> None:
    mean, (low, high) = mean_interval([99.0] * 200, (0.0, 99.0))
    # One value more at 0, with the smallest of 201 uniform weights: its quantile is 1 - 0.025^(1/200).
    assert (mean, high) == (99.0, 99.0)
    assert low == pytest.approx(99 * 0.025 ** (1 / 200), abs=0.03)


def test_one_value_has_no_interval_and_equal_values_without_bounds_have_an_empty_one() -> None:
    mean, interval = mean_interval([7.0])
    assert mean == 7.0
    assert all(math.isnan(bound) for bound in interval)
    assert mean_interval([3, 3, 3]) == (3.0, (3.0, 3.0))


def test_the_interval_of_many_symmetric_values_is_that_of_the_normal_distribution() -> None:
    values = np.random.default_rng(1).normal(5, 2, 4000)
    mean, (low, high) = mean_interval(values.tolist())
    half = 1.96 * values.std(ddof=1) / math.sqrt(4000)
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.05 * half)


def test_grouped_values_have_the_interval_of_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).exponential(1, 900).tolist()
    _, exact = mean_interval(values)
    monkeypatch.setattr(statistics, "MOST_VALUES", 200)
    assert mean_interval(values)[1] == pytest.approx(exact, abs=0.004)  # its width is 0.13


@pytest.mark.parametrize(
    ("name", "episodes"),
    [
        ("ppo_snake_full", 200),  # the most skewed
        *(pytest.param(name, episodes, marks=pytest.mark.long) for name in CHAMPIONS for episodes in (200, 1000)),
    ],
)
def test_the_interval_covers_the_mean_of_our_champions_scores(name: str, episodes: int) -> None:
    values, counts = zip(*CHAMPIONS[name].items(), strict=True)
    scores, share = np.array(values, np.float64), np.array(counts) / sum(counts)
    assert coverage(scores, share, episodes, 100) >= 0.9  # 0.95 less two standard errors of 100 samples


@pytest.mark.long
@pytest.mark.parametrize("episodes", [30, 200, 500, 1000, 4000])
def test_the_interval_covers_in_nineteen_samples_of_twenty(episodes: int) -> None:
    values, counts = zip(*CHAMPIONS["ppo_snake_full"].items(), strict=True)
    scores, share = np.array(values, np.float64), np.array(counts) / sum(counts)
    assert coverage(scores, share, episodes, 4000) >= 0.945


def coverage(scores: np.ndarray, share: np.ndarray, episodes: int, samples: int) -> float:
    """Return in which share of samples the interval has the mean of all scores."""
    random, truth, inside = np.random.default_rng(3), float(scores @ share), 0
    for _ in range(samples):
        low, high = mean_interval(random.choice(scores, episodes, p=share).tolist(), (0.0, 99.0))[1]
        inside += low <= truth <= high
    return inside / samples


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
    score, scores = measure(weights, store.publish, evaluator, environment, 100)
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
    fewer = measure(weights, store.publish, evaluator, environment, 10)[1]
    more = measure(weights, store.publish, evaluator, environment, 70)[1]
    assert more[:10].tolist() == fewer.tolist()


def test_where_there_is_no_win_its_rate_is_unknown_and_the_score_is_the_return(small) -> None:
    environment, network, evaluator, store = small
    weights = np.random.default_rng(3).normal(size=network.size).astype(np.float32)
    score, scores = measure(weights, store.publish, evaluator, Bare(make_snake, environment.options), 10)
    assert (score.win_rate, score.win_ci95) == (None, None)
    task = Task(WeightSource.of_row(published=store.publish(weights[np.newaxis])), Episodes(seeds_of_test_episodes(10)))
    (result,) = evaluator.map([task]).results
    assert scores.tolist() == (result.returns[0] / 1000).tolist()


def test_a_network_that_is_not_finite_has_no_score(small) -> None:
    environment, network, evaluator, store = small
    weights = np.full(network.size, np.inf, np.float32)
    with pytest.raises(DataError, match="not finite"):
        measure(weights, store.publish, evaluator, environment, 10)


def test_the_baselines_are_ordered_from_the_floor_to_the_ceiling_on_the_same_episodes() -> None:
    environment = environment_of(Snake(size=6))
    scores = baselines(environment, 10)
    means = [score.mean for score in scores.values()]
    assert list(scores) == ["random", "greedy", "shortest", "hamiltonian"]
    assert 0 <= means[0] < means[1] < means[2] <= means[3] == environment.score_bounds[1] == 35
    options = {"size": 6, "starvation": 200, "actions": "relative"}
    fruits = [play("greedy", seed, **options) for seed in seeds_of_test_episodes(10).tolist()]
    assert scores["greedy"].mean == sum(fruits) / 10
    assert baselines(environment, 10, block=1)["greedy"].mean != scores["greedy"].mean


def test_baselines_that_take_long_play_the_first_episodes_and_say_so() -> None:
    scores = baselines(environment_of(Snake(size=6)), 1000, seconds=0.02)
    assert scores["hamiltonian"].episodes < scores["random"].episodes
    assert 1 <= scores["hamiltonian"].episodes < 1000


def test_blocks_of_test_episodes_have_no_episode_in_common(small) -> None:
    environment, network, evaluator, store = small
    weights = np.random.default_rng(1).normal(size=network.size).astype(np.float32)
    score, scores = measure(weights, store.publish, evaluator, environment, 100, block=1)
    assert score.block == 1
    assert scores.tolist() != measure(weights, store.publish, evaluator, environment, 100)[1].tolist()
    blocks = [seeds_of_test_episodes(1000, block * BLOCK) for block in (0, 1, LAST_BLOCK)]
    assert len(np.unique(np.concatenate(blocks))) == 3000


@pytest.mark.parametrize(
    ("share", "form", "text"),
    [
        (0.0, ".3g", "0"),
        (0.5644, ".3g", "56.4"),
        (0.9996, ".3g", "99.96"),
        (0.99999, ".3g", "99.99"),
        (1.0, ".3g", "100"),
        (0.9949, ".1f", "99.5"),
        (0.9996, ".1f", "99.96"),
        (1.0, ".1f", "100.0"),
    ],
)
def test_less_than_all_wins_are_not_a_hundred_per_cent(share: float, form: str, text: str) -> None:
    assert percentage(share, form) == text
