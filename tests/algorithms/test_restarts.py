"""Searches that stand still begin again, with as many candidates as IPOP and BIPOP say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from evo.algorithms import ga
from evo.evolution.restarts import Size, Sizes
from evo.plugins import registry
from evo.randomness.streams import Purpose, philox, stream
from tests.algorithms import climbing
from tests.algorithms.climbing import made, network_of

NETWORK = network_of(4, 2)  # ten weights


def standing_still(algorithm: Any, generations: int) -> list[dict[str, float]]:
    return [climbing.generation(algorithm, number, NETWORK, lambda x: 7.0) for number in range(generations)]


@pytest.mark.parametrize("name", ["openai_es", "pgpe", "snes", "sep_cma_es", "cma_es", "es"])
def test_with_ipop_every_search_has_twice_as_many_candidates(name: str) -> None:
    parents = {"parents": 2} if name == "es" else {}
    algorithm = made(name, NETWORK, population=6, restart_after=1, restart_population="ipop", **parents)
    metrics = standing_still(algorithm, 6)  # a search's first generation is its best yet, and its second is the last
    assert [one["population"] for one in metrics] == [6, 6, 12, 12, 24, 24]
    assert [one["restarts"] for one in metrics] == [0, 1, 1, 2, 2, 3]
    assert len(algorithm.record()["key"]) == 25  # and the mean


def test_the_plain_strategy_keeps_its_share_of_parents() -> None:
    options = registry.find("algorithms", "es").Options(population=6, parents=2)
    assert options.of_size(Size(24, 0.5)).parents == 8
    assert options.of_size(Size(24, 0.5)).sigma == 0.5


def test_with_bipop_small_searches_follow_until_they_have_evaluated_as_much_as_large_ones() -> None:
    sizes, first, seed = Sizes("bipop", Size(10, 0.5), 3), Size(10, 0.5), 3
    found: list[Size] = []
    for number, evaluated in enumerate((1000, 300, 100, 250, 90), 1):
        sizes.after(evaluated)
        sizes.restart(number)
        found.append(sizes.size)
    assert found[0] == Size(20, 0.5)  # what the first search has evaluated counts for neither kind
    assert found[3] == Size(40, 0.5)  # 350 of small searches and 300 of large ones: a large one is due
    for number, largest in ((2, 20), (3, 20), (5, 40)):
        words = philox(stream(seed, Purpose.RESTART, 0, number), (0, 0, 0, 0))
        u, v = words[0] / 2**32, words[1] / 2**32
        size = found[number - 1]
        assert size.population == int(first.population * (0.5 * largest / first.population) ** (u * u)) // 2 * 2
        assert math.isclose(size.sigma, first.sigma * 10 ** (-2 * v))
        assert first.population <= size.population <= largest / 2


def test_a_population_does_not_grow_beyond_the_largest() -> None:
    sizes = Sizes("ipop", Size(700_000, 1.0), 1)
    sizes.restart(1)
    assert sizes.size.population == 1 << 20


def test_a_restarted_search_begins_with_the_sigma_of_its_kind() -> None:
    algorithm = made("sep_cma_es", NETWORK, population=6, sigma=0.5, restart_after=1, restart_population="bipop")
    sigmas = []
    for number in range(12):
        before = algorithm.restarts
        climbing.generation(algorithm, number, NETWORK, lambda x: 7.0)
        if algorithm.restarts > before:
            sigmas.append(algorithm.distribution.sigma)
    assert max(sigmas) == 0.5
    assert 0.005 <= min(sigmas) < 0.5


@pytest.mark.parametrize("growth", ["ipop", "bipop"])
def test_a_restarted_search_of_another_size_goes_on_from_its_state(growth: str) -> None:
    options: dict[str, Any] = {"population": 6, "restart_after": 1, "restart_population": growth}
    algorithm, other = (made("sep_cma_es", NETWORK, **options) for _ in range(2))
    for number in range(9):
        climbing.generation(algorithm, number, NETWORK, lambda x: 7.0)
        other.restore(algorithm.state(), [algorithm.record()])
        climbing.generation(algorithm, number + 1, NETWORK, lambda x: 7.0)
        climbing.generation(other, number + 1, NETWORK, lambda x: 7.0)
        assert [a.tobytes() for a in other.state().values()] == [a.tobytes() for a in algorithm.state().values()]
        again = made("sep_cma_es", NETWORK, **options)
        again.restore(other.state(), [other.record()])
        algorithm = again


def test_a_fork_counts_anew_and_has_the_population_that_its_options_say() -> None:
    algorithm = made("sep_cma_es", NETWORK, population=6, restart_after=2, restart_population="ipop")
    standing_still(algorithm, 5)
    fork = made("sep_cma_es", NETWORK, population=10, restart_after=2, restart_population="ipop")
    fork.restore(algorithm.state(), ())
    metrics = [climbing.generation(fork, number, NETWORK, lambda x: -9.0) for number in range(1, 4)]
    assert [one["population"] for one in metrics] == [10, 10, 10]
    assert [one["restarts"] - algorithm.restarts for one in metrics] == [0, 0, 1]  # though -9 is less than 7


@pytest.mark.parametrize(("name", "options", "message"), [
    ("snes", {"restart_population": "ipop"}, "needs restart_after"),
    ("openai_es", {"restart_population": "bipop", "restart_after": 9}, 'use "ipop"'),
])  # fmt: skip
def test_growth_that_does_nothing_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        registry.find("algorithms", name).Options(**options)


@pytest.mark.parametrize("restart_after", [0, 9])
def test_a_state_says_since_when_a_search_stands_still_even_where_it_never_restarts(restart_after: int) -> None:
    algorithm = made("sep_cma_es", NETWORK, population=6, restart_after=restart_after)
    standing_still(algorithm, 4)
    assert algorithm.state()["progress"].tolist() == [0, 7 * int(climbing.FINE), 3]


def test_options_without_restarts_are_not_in_an_identity() -> None:
    assert "restart_population" not in registry.find("algorithms", "snes").Options().model_dump()
    assert "restart_after" not in ga.Options().model_dump()
    assert ga.Options(restart_after=3).model_dump()["restart_after"] == 3


@pytest.mark.long
def test_a_growing_population_finds_what_equal_ones_do_not() -> None:
    """Rastrigin's function has one best optimum among very many: few candidates settle beside it."""
    found: dict[str, list[float]] = {"same": [], "ipop": []}
    for growth, best in found.items():
        for seed in range(5):
            algorithm = made(
                "sep_cma_es", NETWORK, seed, population=8, sigma=3.0, restart_after=25, restart_population=growth
            )
            values, played, number = [], 0.0, 0
            while played < 60_000:
                metrics = climbing.generation(algorithm, number, NETWORK, climbing.rastrigin)
                values.append(metrics["best"])
                played, number = played + metrics["frames"], number + 1
            best.append(max(values) / climbing.FINE * 1000)
    assert np.median(found["ipop"]) > -0.1 > np.median(found["same"])


def population(**options: object) -> ga.GeneticAlgorithm:
    algorithm: ga.GeneticAlgorithm = made("ga", NETWORK, population=8, parents=3, elites=2, **options)
    return algorithm


def test_a_population_that_stands_still_begins_again_with_fresh_networks() -> None:
    algorithm, fresh = population(restart_after=2), []
    for number in range(7):
        metrics = climbing.generation(algorithm, number, NETWORK, lambda x: 7.0)
        if (algorithm.record()["parent"] < 0).all():
            fresh.append((number, metrics["restarts"], algorithm.record()["key"].tolist()))
    assert [(number, restarts) for number, restarts, _ in fresh] == [(0, 0), (3, 1), (6, 2)]
    assert len({key for *_, keys in fresh for key in keys}) == 24


def test_a_population_that_rises_does_not_begin_again() -> None:
    algorithm = population(restart_after=1)
    for number in range(6):
        level = float(number)
        climbing.generation(algorithm, number, NETWORK, lambda x, level=level: level)
        assert (algorithm.record()["parent"] < 0).all() == (number == 0)


def test_the_schedule_of_sigma_begins_again_with_the_population() -> None:
    algorithm, sigmas = population(restart_after=2, sigma_halving=1, sigma_spread=0.0), []
    for number in range(5):
        climbing.generation(algorithm, number, NETWORK, lambda x: 7.0)
        sigmas.append(round(float(algorithm.record()["sigma"].max()), 4))
    assert sigmas == [0, 0.05, 0.025, 0, 0.05]


@pytest.mark.parametrize("first", range(5))
def test_records_lead_from_any_checkpoint_to_every_later_generation(first: int) -> None:
    """Restarts come in generations 3, 6 and 9."""
    options = {"restart_after": 2, "sigma_halving": 1, "sigma_spread": 0.0}
    algorithm, records, states = population(**options), [], []
    for number in range(11):
        climbing.generation(algorithm, number, NETWORK, lambda x: 7.0)
        records.append(algorithm.record())
        states.append(algorithm.state())
    assert [number for number, record in enumerate(records) if (record["parent"] < 0).all()] == [0, 3, 6, 9]
    for number in range(first + 1, 11):
        other = population(**options)
        other.restore(states[first], records[: first + 1])
        for between in range(first + 1, number):
            assert other.retrace(between, records[between])
        assert other.state()["weights"].tobytes() == states[number - 1]["weights"].tobytes()
        sources = [task.weights for task in next(other.generation(number)).tasks]
        for name, of in (("parent", "rows"), ("key", "keys"), ("sigma", "sigmas")):
            found = np.concatenate([getattr(source, of) for source in sources])
            assert found.tolist() == records[number][name].tolist()


def test_a_resumed_population_begins_again_when_the_straight_one_does() -> None:
    options = {"restart_after": 2, "sigma_halving": 1, "sigma_spread": 0.0}
    algorithm = population(**options)
    for number in range(10):
        resumed = population(**options)
        if number:
            resumed.restore(algorithm.state(), [algorithm.record()])
        for one in (resumed, algorithm):
            climbing.generation(one, number, NETWORK, lambda x: 7.0)
        assert [array.tobytes() for array in resumed.state().values()] == [
            array.tobytes() for array in algorithm.state().values()
        ]
        assert resumed.record()["sigma"].tolist() == algorithm.record()["sigma"].tolist()


def test_a_forked_population_counts_anew() -> None:
    options = {"restart_after": 2, "sigma_halving": 1, "sigma_spread": 0.0}
    algorithm, fork = population(**options), population(**options)
    for number in range(6):  # the next generation would be a restart
        climbing.generation(algorithm, number, NETWORK, lambda x: 7.0)
    fork.restore(algorithm.state(), ())
    for number in range(1, 5):
        climbing.generation(fork, number, NETWORK, lambda x: -9.0)
        assert (fork.record()["parent"] < 0).all() == (number == 4)  # after a first one, and two that are no better
        if number < 4:
            assert math.isclose(fork.record()["sigma"].max(), 0.1 / 2**number, rel_tol=1e-6)
