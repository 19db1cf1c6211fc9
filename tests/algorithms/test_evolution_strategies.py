"""Evolution strategies follow their papers' equations, reach known optima, and stand still where nothing is learned."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from evo.algorithms import cma_es
from evo.compiled import exact
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError, ResourceError
from evo.evolution.noise_sums import CHUNK, exp, noise_sum, noise_sums, norm
from evo.evolution.population import FITNESS_WORST
from evo.evolution.strategy import Adam, ClipUp, centred_ranks, shared_by_rank
from evo.networks.candidates import noise
from evo.plugins import registry
from evo.records import WORST, Request, Result, WeightSource
from evo.testing import algorithm_tests
from tests.algorithms import climbing
from tests.algorithms.climbing import climb, made, network_of
from tests.helpers.generations import drive, results_of

STRATEGIES = ("openai_es", "pgpe", "snes", "sep_cma_es", "cma_es", "es")
NETWORK = network_of(4, 2)  # ten weights
FITNESS = st.lists(st.integers(-5, 5), min_size=2, max_size=20).map(lambda values: np.array(values, np.int64))

TestSeparableCmaEs = algorithm_tests("evo.algorithms.sep_cma_es", population=8, episodes=2)
TestCmaEs = pytest.mark.long(algorithm_tests("evo.algorithms.cma_es", population=8, episodes=2))
TestOpenAiEs = pytest.mark.long(algorithm_tests("evo.algorithms.openai_es", population=8, episodes=2))
TestPgpe = pytest.mark.long(algorithm_tests("evo.algorithms.pgpe", population=8, episodes=2, optimizer="adam"))
TestSnes = pytest.mark.long(algorithm_tests("evo.algorithms.snes", population=8, episodes=2))
TestEs = pytest.mark.long(algorithm_tests("evo.algorithms.es", population=8, parents=2, episodes=2))


def noise_of(key: int, size: int) -> NDArray[np.float64]:
    out = np.empty(size, np.float32)
    noise(np.uint64(key), out)
    return out.astype(np.float64)


def options_of(name: str) -> dict[str, Any]:
    return {"population": 24, **({"parents": 6} if name == "es" else {})}


# Ranks


def test_ranks_are_centred_and_ties_share_theirs() -> None:
    assert centred_ranks(np.array([10, 30, 20])).tolist() == [-0.5, 0.5, 0]
    assert centred_ranks(np.array([7, 7, 9, 7, FITNESS_WORST])).tolist() == [0, 0, 0.5, 0, -0.5]


@given(FITNESS)
def test_ranks_sum_to_nothing_and_shared_weights_to_their_sum(fitness: NDArray[np.int64]) -> None:
    weights = np.arange(len(fitness), 0, -1.0)
    assert centred_ranks(fitness).sum() == pytest.approx(0, abs=1e-12)
    shared = shared_by_rank(fitness, weights)
    assert shared.sum() == pytest.approx(weights.sum())
    for one, other in pairwise(fitness):
        first, second = shared[fitness == one][0], shared[fitness == other][0]
        assert (one > other) == (first > second)
        assert (one == other) == (first == second)


# Sums of noise


@pytest.mark.parametrize("size", [1, 7, CHUNK, CHUNK + 1, 3 * CHUNK + 2])
def test_sums_of_noise_are_those_of_the_noise_written_out(size: int) -> None:
    keys, factors = np.arange(5, dtype=np.uint64), np.array([0.5, -1.25, 3.0, 0.0, 1 / 3])
    expected, squared = np.zeros(size), np.zeros(size)
    for key, factor in zip(keys, factors, strict=True):  # one addition after the other
        expected += factor * noise_of(int(key), size)
        squared += factor * (noise_of(int(key), size) * noise_of(int(key), size))
    assert noise_sum(keys, factors, size).tobytes() == expected.tobytes()
    total, squares = noise_sums(keys, factors, factors, size)
    assert total.tobytes() == expected.tobytes()
    assert squares.tobytes() == squared.tobytes()


def test_the_norm_is_summed_in_order() -> None:
    vector = np.random.default_rng(1).normal(size=1001)
    total = 0.0
    for value in vector.tolist():
        total += value * value
    assert norm(vector) == math.sqrt(total)


def test_the_exponential_of_an_array_is_that_of_its_numbers() -> None:
    x = np.array([-800.0, -1.5, 0.0, 1e-9, 3.25, 800.0, math.nan])
    assert exp(x).tobytes() == np.array([exact.exp(value) for value in x.tolist()]).tobytes()


# Optimizers


def test_adam_is_the_papers() -> None:
    optimizer, gradients = Adam(2), [np.array([1.0, -2.0]), np.array([0.5, 4.0]), np.array([0.0, 0.0])]
    first = second = np.zeros(2)
    for t, gradient in enumerate(gradients, 1):
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        expected = 0.01 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        assert optimizer.step(gradient, 0.01) == pytest.approx(expected, rel=1e-12)


def test_clipup_steps_have_the_given_length_and_a_speed_limit() -> None:
    optimizer, gradient = ClipUp(2), np.array([3.0, 4.0])
    lengths = [norm(optimizer.step(gradient, 0.1)) for _ in range(9)]
    assert lengths[:2] == pytest.approx([0.1, 0.19])
    assert max(lengths) == pytest.approx(0.2)
    assert norm(optimizer.step(np.zeros(2), 0.1)) == pytest.approx(0.18)  # no gradient: momentum alone


# Strategies


@pytest.mark.parametrize("name", STRATEGIES)
def test_candidate_0_is_the_mean_and_the_others_are_spread_by_sigma(name: str) -> None:
    network = network_of(199, 10)
    algorithm = made(name, network, sigma=0.25, **options_of(name))
    mean = algorithm.distribution.mean.copy()
    found = climbing.candidates_of(next(algorithm.generation(0)), network)
    assert found[0].tobytes() == mean.astype(np.float32).tobytes()
    assert len(found) == 25
    assert (found[1:] - found[0]).std() == pytest.approx(0.25, rel=0.02)


@pytest.mark.parametrize("name", ["openai_es", "pgpe"])
def test_antithetic_candidates_lie_opposite_and_equal_returns_move_nothing(name: str) -> None:
    algorithm = made(name, NETWORK, population=24)
    mean = algorithm.distribution.mean.copy()
    found = climbing.candidates_of(next(algorithm.generation(0)), NETWORK).astype(np.float64)
    assert found[1::2] + found[2::2] == pytest.approx(2 * np.tile(mean, (12, 1)), abs=1e-6)
    state = climb(algorithm, NETWORK, lambda x: 7.0, 3)
    assert np.array_equal(state, mean)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_climbs_a_sphere(name: str) -> None:
    rates = {"openai_es": {"learning_rate": 0.05}, "pgpe": {"learning_rate": 0.02}}.get(name, {})
    spread = {"sigma_spread": 0.3} if name == "es" else {}
    mean = climb(made(name, NETWORK, **options_of(name), **rates, **spread), NETWORK, climbing.sphere, 150)
    assert -climbing.sphere(mean) < 0.02


@pytest.mark.parametrize("name", ["sep_cma_es", "cma_es", "snes"])
def test_strategies_that_adapt_reach_any_accuracy(name: str) -> None:
    mean = climb(made(name, NETWORK, population=12), NETWORK, climbing.ellipsoid, 500)
    assert -climbing.ellipsoid(mean) < 1e-8


@pytest.mark.long
def test_the_full_covariance_follows_a_curved_valley() -> None:
    mean = climb(made("cma_es", NETWORK, population=12), NETWORK, climbing.rosenbrock, 600)
    assert -climbing.rosenbrock(mean) < 1e-8


@pytest.mark.long
def test_a_large_population_finds_its_way_among_many_optima() -> None:
    start = np.full(NETWORK.size, 3.0, np.float32)
    algorithm = made("cma_es", NETWORK, population=500, sigma=3.0, start=start)
    mean = climb(algorithm, NETWORK, climbing.rastrigin, 100)
    assert -climbing.rastrigin(start.astype(np.float64)) == 90
    assert -climbing.rastrigin(mean) < 1.1  # at most one of ten coordinates is in the optimum beside the best


def test_the_gradient_of_openai_es_is_the_sum_of_ranked_noise() -> None:
    algorithm = made("openai_es", NETWORK, population=6, sigma=0.5, optimizer="clipup", learning_rate=1.0)
    request = next(algorithm.generation(0))
    source: WeightSource = request.tasks[0].weights
    mean = algorithm.distribution.mean.copy()
    algorithm.distribution.update(source.some(slice(1, None)), np.array([4, 1, 2, 2, 0, 9]), 0)
    ranks = np.array([0.3, -0.3, 0.0, 0.0, -0.5, 0.5])
    assert centred_ranks(np.array([4, 1, 2, 2, 0, 9])) == pytest.approx(ranks)
    signs = np.sign(source.sigmas[1:])[:, np.newaxis]
    noises = signs * np.array([noise_of(int(key), 10) for key in source.keys[1:]])
    gradient = ranks @ noises / (6 * 0.5)
    assert algorithm.distribution.mean - mean == pytest.approx(gradient / np.linalg.norm(gradient))


def test_weight_decay_pulls_towards_zero() -> None:
    start = np.full(NETWORK.size, 2.0, np.float32)
    algorithm = made("openai_es", NETWORK, population=24, weight_decay=0.1, learning_rate=0.1, start=start)
    assert np.abs(climb(algorithm, NETWORK, lambda x: 0.0, 60)).max() < 0.5


def test_sigma_and_learning_rate_are_annealed_by_generations() -> None:
    algorithm = made("openai_es", NETWORK, population=4, sigma=0.1, sigma_final=0.02, sigma_generations=4)
    sigmas = [float(next(algorithm.generation(number)).tasks[0].weights.sigmas[1]) for number in (0, 2, 4, 9)]
    assert sigmas == pytest.approx([0.1, 0.06, 0.02, 0.02])
    rates = {"learning_rate": 0.1, "learning_rate_final": 0.02, "learning_rate_generations": 4}
    for number, rate in ((0, 0.1), (2, 0.06), (4, 0.02), (9, 0.02)):
        algorithm = made("openai_es", NETWORK, population=4, optimizer="clipup", **rates)
        metrics = climbing.generation(algorithm, number, NETWORK, climbing.sphere)
        assert metrics["step_norm"] == pytest.approx(rate)  # the first step of ClipUp


def test_pgpe_follows_the_gradient_of_the_expected_rank_by_finite_differences() -> None:
    """The likelihood gradient of a linear return, whose mean rank falls off as the mean moves against the others."""
    slope = np.linspace(-1, 1, NETWORK.size)
    algorithm = made("pgpe", NETWORK, population=20_000, sigma=0.1, learning_rate=1.0)
    mean = algorithm.distribution.mean.copy()
    climbing.generation(algorithm, 0, NETWORK, lambda x: float(slope @ x))
    step = algorithm.distribution.mean - mean  # of length 1, by ClipUp
    # Returns are normal with this deviation, and the rank of one is its distribution function: moving a candidate
    # along weight i raises its expected rank by slope_i times the mean density.
    assert step == pytest.approx(slope / np.linalg.norm(slope), abs=0.03)
    assert algorithm.distribution.sigmas == pytest.approx(0.1, rel=0.01)  # a linear return prefers no spread


def test_the_deviations_of_pgpe_change_at_their_learning_rate_and_by_no_more_than_a_share() -> None:
    def change(**options: float) -> NDArray[np.float64]:
        algorithm = made("pgpe", NETWORK, population=8, sigma=0.5, **options)
        climbing.generation(algorithm, 0, NETWORK, climbing.sphere)
        return np.asarray(algorithm.distribution.sigmas / 0.5 - 1)

    found = change(sigma_learning_rate=0.01, sigma_change=0.9)
    most = float(np.abs(found).max()) / 2
    assert change(sigma_learning_rate=0.0) == pytest.approx(0, abs=0)
    assert change(sigma_learning_rate=0.02, sigma_change=0.9) == pytest.approx(2 * found)
    limited = change(sigma_learning_rate=0.01, sigma_change=most)
    assert limited == pytest.approx(np.clip(found, -most, most))
    assert 0 < np.isclose(np.abs(limited), most).sum() < NETWORK.size


@pytest.mark.parametrize("given", [0.0, 0.25])
def test_snes_is_the_papers_algorithm(given: float) -> None:
    algorithm = made("snes", NETWORK, population=5, sigma=0.5, sigma_learning_rate=given)
    source = next(algorithm.generation(0)).tasks[0].weights
    mean = algorithm.distribution.mean.copy()
    algorithm.distribution.update(source.some(slice(1, None)), np.array([1, 2, 3, 4, 5]), 0)
    raw = np.maximum(0, math.log(5 / 2 + 0.5) - np.log(np.arange(1, 6)))
    utilities = (raw / raw.sum() - 1 / 5)[::-1]
    s = np.array([noise_of(int(key), 10) for key in source.keys[1:]])
    rate = given or (3 + math.log(10)) / (5 * math.sqrt(10))
    assert algorithm.distribution.mean == pytest.approx(mean + 0.5 * utilities @ s)
    assert algorithm.distribution.sigmas == pytest.approx(0.5 * np.exp(rate / 2 * (utilities @ (s * s - 1))))


def test_es_takes_the_mean_of_the_best() -> None:
    algorithm = made("es", NETWORK, population=4, parents=2, sigma_spread=0.5)
    request = next(algorithm.generation(0))
    source, found = request.tasks[0].weights, climbing.candidates_of(request, NETWORK)
    algorithm.distribution.update(source.some(slice(1, None)), np.array([3, 9, 5, 1]), 0)
    assert algorithm.distribution.mean == pytest.approx((found[2] + found[3]) / 2, abs=1e-6)
    assert math.exp(algorithm.distribution.log_sigma) == pytest.approx(math.sqrt(source.sigmas[2] * source.sigmas[3]))


class PlainCma:
    """CMA-ES from the equations of the tutorial with dense matrices; `diagonal` keeps only C's diagonal."""

    def __init__(self, mean: NDArray[np.float64], sigma: float, count: int, diagonal: bool) -> None:
        n = len(mean)
        self.m, self.sigma, self.diagonal = mean.copy(), sigma, diagonal
        ranks = np.log((count + 1) / 2) - np.log(np.arange(1, count + 1))
        w, bad = np.maximum(0, ranks), np.minimum(0, ranks)
        self.w = w / w.sum()
        self.mu = 1 / (self.w**2).sum()
        self.cs = (self.mu + 2) / (n + self.mu + 5)
        self.ds = 1 + 2 * max(0, np.sqrt((self.mu - 1) / (n + 1)) - 1) + self.cs
        self.cc = (4 + self.mu / n) / (n + 4 + 2 * self.mu / n)
        self.c1 = 2 / ((n + 1.3) ** 2 + self.mu) * ((n + 2) / 3 if diagonal else 1)
        learned = self.mu - 2 + 1 / self.mu + (0 if diagonal else 0.25)
        self.cm = 2 * learned / ((n + 2) ** 2 + self.mu) * ((n + 2) / 3 if diagonal else 1)
        self.cm = min(1 - self.c1, self.cm)
        mu_minus = bad.sum() ** 2 / (bad**2).sum()
        bounds = (1 + self.c1 / self.cm, 1 + 2 * mu_minus / (self.mu + 2), (1 - self.c1 - self.cm) / (n * self.cm))
        self.all = self.w + (0 if diagonal else bad / -bad.sum() * min(bounds))
        self.chi = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
        self.C, self.ps, self.pc, self.t = np.eye(n), np.zeros(n), np.zeros(n), 0

    def tell(self, y: NDArray[np.float64], best_first: NDArray[np.int64]) -> None:
        """Take steps y [N, n] = (x - m) / sigma in their order."""
        n, y, self.t = len(self.m), y[best_first], self.t + 1
        yw = self.w @ y
        values, vectors = np.linalg.eigh(self.C)
        self.m = self.m + self.sigma * yw
        root = vectors @ np.diag(values**-0.5) @ vectors.T
        self.ps = (1 - self.cs) * self.ps + np.sqrt(self.cs * (2 - self.cs) * self.mu) * root @ yw
        length = np.linalg.norm(self.ps)
        h = length / np.sqrt(1 - (1 - self.cs) ** (2 * self.t)) < (1.4 + 2 / (n + 1)) * self.chi
        self.pc = (1 - self.cc) * self.pc + h * np.sqrt(self.cc * (2 - self.cc) * self.mu) * yw
        delta = (1 - h) * self.cc * (2 - self.cc)
        white = (y @ root.T) ** 2
        active = np.where(self.all < 0, self.all * n / white.sum(axis=1), self.all)
        rank_one, rank_mu = np.outer(self.pc, self.pc), y.T @ np.diag(active) @ y
        decay = 1 + self.c1 * delta - self.c1 - self.cm * self.all.sum()
        self.C = decay * self.C + self.c1 * rank_one + self.cm * rank_mu
        if self.diagonal:
            self.C = np.diag(np.diag(self.C))
        self.sigma *= np.exp(self.cs / self.ds * (length / self.chi - 1))


@pytest.mark.parametrize("name", ["sep_cma_es", "cma_es"])
def test_cma_es_is_that_of_the_tutorial_step_by_step(name: str) -> None:
    every = {"eigen_every": 1} if name == "cma_es" else {}
    algorithm = made(name, NETWORK, population=10, sigma=0.3, **every)
    distribution = algorithm.distribution
    plain = PlainCma(distribution.mean, 0.3, 10, name == "sep_cma_es")
    for number in range(50):
        request = next(algorithm.generation(number))
        found = climbing.candidates_of(request, NETWORK).astype(np.float64)
        values = np.array([climbing.ellipsoid(x) for x in found[1:]])
        source = algorithm.distribution.candidates(algorithm.seed, number).some(slice(1, None))
        steps = (found[1:] - found[0]) / distribution.sigma
        distribution.update(source, np.rint(values * 1e9).astype(np.int64), number)
        plain.tell(steps, np.argsort(-values))
        covariance = np.diag(distribution.variances) if name == "sep_cma_es" else distribution.covariance
        assert distribution.sigma == pytest.approx(plain.sigma, rel=1e-4)
        assert distribution.mean == pytest.approx(plain.m, rel=1e-4, abs=1e-6)
        assert covariance == pytest.approx(plain.C, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", ["sep_cma_es", "cma_es"])
def test_the_constants_of_cma_es_are_those_of_the_tutorial(name: str) -> None:
    known, plain = made(name, NETWORK, population=10).distribution, PlainCma(np.zeros(10), 1, 10, name == "sep_cma_es")
    assert known.weights == pytest.approx(plain.w)
    found = (known.mu_eff, known.step_path.c_sigma, known.step_path.d_sigma, known.c_c, known.c_1)
    assert found == pytest.approx((plain.mu, plain.cs, plain.ds, plain.cc, plain.c1))
    assert (known.c_mu, known.step_path.chi) == pytest.approx((plain.cm, plain.chi))


@pytest.mark.parametrize("name", STRATEGIES)
def test_candidates_that_are_not_finite_rank_worst(name: str) -> None:
    """The best value is WORST, which stands for scores that are not finite."""

    def answer(request: Request) -> list[Result]:
        found = climbing.candidates_of(request, NETWORK).astype(np.float64)
        return results_of(request, [WORST if x[0] > 1 else round(1e6 * x[0]) for x in found])

    algorithm = made(name, NETWORK, **options_of(name))
    for number in range(40):
        drive(algorithm, number, answer)
    assert algorithm.distribution.mean[0] < 1.2


def test_a_mean_that_diverges_ends_the_run_in_one_line() -> None:
    algorithm = made("snes", NETWORK, population=8)
    algorithm.distribution.sigmas[:] = 3e37
    with pytest.raises(ResourceError, match="generation 2: the mean has diverged"):
        climb(algorithm, NETWORK, lambda x: float(np.abs(x).max()) / 1e40, 100)


@pytest.mark.parametrize(("name", "options", "message"), [
    ("openai_es", {"population": 7}, "antithetic pairs"),
    ("pgpe", {"population": 9}, "symmetric pairs"),
    ("es", {"population": 8, "parents": 8}, "parents: 8 of a population of 8"),
    ("snes", {"alive_bonus": 0.0001}, "multiple of 0.001"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        registry.find("algorithms", name).Options(**options)


def test_a_full_covariance_matrix_of_a_large_network_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="use sep_cma_es"):
        made("cma_es", network_of(cma_es.MOST_WEIGHTS, 2))


def test_weights_with_deviations_of_their_own_are_another_noise_recipe() -> None:
    def recipe(name: str) -> object:
        return Experiment.build(run={"algorithm": name}).identity()["noise"]

    assert [recipe(name) for name in ("ga", "openai_es", "sep_cma_es", "snes", "pgpe")] == [1, 1, 2, 2, 2]


def test_the_page_shows_the_plug_in_that_is_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    example = (root / "docs" / "examples" / "algorithms" / "hill.py").read_text()
    assert f"```python\n{example}```" in (root / "docs" / "evolution.md").read_text()
    monkeypatch.syspath_prepend(root / "docs" / "examples" / "algorithms")
    tests = algorithm_tests("hill", population=8, episodes=2)()
    tests.test_a_resumed_run_is_the_straight_one(tmp_path)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_search_that_stands_still_begins_again_from_another_network(name: str) -> None:
    algorithm = made(name, NETWORK, restart_after=3, **options_of(name))
    first = algorithm.distribution.mean.copy()
    metrics = [climbing.generation(algorithm, number, NETWORK, lambda x: 7.0) for number in range(5)]
    assert [one["restarts"] for one in metrics] == [0, 0, 0, 1, 1]  # the first one rose from nothing
    assert not np.array_equal(algorithm.distribution.mean, first)


def test_a_restarted_search_goes_on_from_its_state() -> None:
    algorithm, other = (made("sep_cma_es", NETWORK, restart_after=2, population=8) for _ in range(2))
    for number in range(8):
        climbing.generation(algorithm, number, NETWORK, lambda x: 7.0)
        other.restore(algorithm.state(), [algorithm.record()])
        assert [array.tobytes() for array in other.state().values()] == [
            array.tobytes() for array in algorithm.state().values()
        ]
        climbing.generation(other, number + 1, NETWORK, lambda x: 7.0)
    assert algorithm.restarts == 2


@pytest.mark.parametrize("restart_after", [0, 9])
def test_a_state_says_since_when_a_search_stands_still_even_where_it_never_restarts(restart_after: int) -> None:
    algorithm = made("sep_cma_es", NETWORK, population=6, restart_after=restart_after)
    for number in range(4):
        climbing.generation(algorithm, number, NETWORK, lambda x: 7.0)
    assert algorithm.state()["progress"].tolist() == [0, 7 * int(climbing.FINE), 3]


def test_a_fork_counts_anew() -> None:
    algorithm, fork = (made("sep_cma_es", NETWORK, population=6, restart_after=2) for _ in range(2))
    for number in range(5):
        climbing.generation(algorithm, number, NETWORK, lambda x: 7.0)
    fork.restore(algorithm.state(), ())
    metrics = [climbing.generation(fork, number, NETWORK, lambda x: -9.0) for number in range(1, 4)]
    assert [one["restarts"] - algorithm.restarts for one in metrics] == [0, 0, 1]  # though -9 is less than 7


@pytest.mark.parametrize("name", ["snes", "sep_cma_es", "cma_es", "es"])
def test_a_distribution_stays_as_it_is_where_all_candidates_tie(name: str) -> None:
    algorithm = made(name, NETWORK, **options_of(name))
    climb(algorithm, NETWORK, climbing.sphere, 3)
    before = {key: array.tobytes() for key, array in algorithm.state().items() if key != "progress"}
    climbing.generation(algorithm, 3, NETWORK, lambda x: 7.0)
    assert {key: array.tobytes() for key, array in algorithm.state().items() if key != "progress"} == before
    climbing.generation(algorithm, 4, NETWORK, climbing.sphere)
    assert algorithm.state()["mean"].tobytes() != before["mean"]
