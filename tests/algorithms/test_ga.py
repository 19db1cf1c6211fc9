"""Hand-made results give the survivors that a hand computes; DEAP chooses them; and a resume changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from deap import tools
from pydantic import ValidationError

from evo.algorithms import ga
from evo.environments import gymnasium
from evo.games.catalogue import snake
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.randomness.streams import Purpose, draw, episode_keys, philox, stream
from evo.records import WORST, Request, Result, Task
from evo.setup import Setup
from tests.helpers.generations import drive, player, results_of

NETWORK = Network.build(Policy(kind="linear"), (4,), 2)  # ten weights
Score = Callable[[int, Task], Sequence[int]]  # candidate and task to the return of every episode


def make(seed: int = 0, per_task: int = 4, **options: object) -> ga.GeneticAlgorithm:
    defaults = {"population": 8, "parents": 3, "elites": 1, "episodes": 2, "crossover": "none"}
    return ga.make(ga.Options(**{**defaults, **options}), Setup(seed, NETWORK, None, per_task))


def result_of(returns: Sequence[Sequence[int]], lengths: Sequence[Sequence[int]] | None = None) -> Result:
    returns_so_far = np.array(returns, np.int64)
    taken = np.array(lengths if lengths is not None else np.ones_like(returns_so_far), np.int32)
    finite = (returns_so_far != WORST).all(axis=1)
    return Result(
        returns_so_far,
        taken,
        np.zeros((*returns_so_far.shape, 0), np.int32),
        finite,
        int(taken.sum()),
        int(taken.sum()),
    )


def scores(values: Sequence[int], lengths: Sequence[int] | None = None):
    """Answer a request with the same return in every episode of a candidate."""
    asked: list[Request] = []

    def answer(request: Request) -> list[Result]:
        asked.append(request)
        return results_of(request, values, lengths or 1)

    answer.asked = asked
    return answer


def fresh_weights(seed: int, generation: int, candidate: int) -> np.ndarray:
    """Return an initial candidate by its name."""
    source = ga.make(ga.Options(population=2, parents=1, elites=0, tournament=1), Setup(seed, NETWORK, None))
    request = next(source.generation(generation))
    names = request.tasks[0].weights
    names.keys[0] = stream(seed, Purpose.INITIAL, generation, candidate)
    out = np.empty(NETWORK.size, np.float32)
    Rebuilder(NETWORK).rebuild(np.empty((0, NETWORK.size), np.float32), names, 0, out)
    return out


def test_the_best_survive_best_first_and_ties_go_to_the_lowest_number() -> None:
    algorithm = make()
    drive(algorithm, 1, scores([5, 9, 7, 9, 1, 7, 9, 0]))
    assert algorithm.record()["survivors"].tolist() == [1, 3, 6]
    expected = [fresh_weights(0, 1, i) for i in (1, 3, 6)]
    assert algorithm.state()["weights"].tobytes() == np.array(expected).tobytes()
    assert algorithm.record()["return"].tolist() == [10, 18, 14, 18, 2, 14, 18, 0]


def test_returns_are_summed_over_episodes() -> None:
    algorithm = make(per_task=8)
    returns = [[9, 0], [5, 5], [0, 0], [4, 7], [-20, 31], [0, 1], [2, 2], [3, 3]]
    drive(algorithm, 1, lambda request: [result_of(returns)])
    assert algorithm.record()["survivors"].tolist() == [3, 4, 1]  # 11, 11, 10


@pytest.mark.parametrize("selection", ["truncation", "tournament"])
def test_survivors_are_whom_deaps_selection_names(selection: str) -> None:
    algorithm = make(selection=selection)
    algorithm.toolbox.register("select", tools.selWorst)
    drive(algorithm, 1, scores([5, 9, 7, 9, 1, 7, 9, 0]))
    assert algorithm.record()["survivors"].tolist() == [7, 4, 0]


def test_truncation_is_deaps_own_and_finalists_are_the_best_survivors_with_their_numbers() -> None:
    algorithm = make()
    assert algorithm.toolbox.select.func is tools.selBest
    drive(algorithm, 1, scores([5, 9, 7, 9, 1, 7, 9, 0]))
    weights, candidates, returns = vars(algorithm.finalists(2)).values()
    assert candidates == [1, 3]
    assert returns.tolist() == [0.009, 0.009]
    assert weights.tobytes() == np.array([fresh_weights(0, 1, i) for i in (1, 3)]).tobytes()
    assert len(algorithm.finalists(99).weights) == 3  # there are no more survivors


def test_the_metrics_of_selection_are_those_that_a_hand_computes() -> None:
    algorithm = make(per_task=8, elites=3)
    first = drive(algorithm, 0, scores([5, 9, 7, 9, 1, 7, 9, 0]))
    assert (first["turnover"], first["distinct"]) == (1.0, 5 / 8)
    assert np.isnan([first["improving"], first["neutral"], first["surviving_sigma"]]).all()

    def answer(request: Request) -> list[Result]:
        rows, elites = request.tasks[0].weights.rows[3:], [5, 20, 10]
        children = [elites[row] + more for row, more in zip(rows, (0, 0, 100, -1, -2), strict=True)]
        return [result_of([[value] * 2 for value in [*elites, *children]])]

    metrics = drive(algorithm, 1, answer)
    assert (metrics["improving"], metrics["neutral"]) == (1 / 5, 2 / 5)
    record, parents = algorithm.record(), algorithm.state()["weights"].astype(np.float64)
    new = [number for number in record["survivors"] if number >= 3]
    assert 5 in new
    assert metrics["turnover"] == len(new) / 3
    assert metrics["surviving_sigma"] == np.median(record["sigma"][new])
    size = np.sqrt((parents**2).mean())
    assert metrics["weight_rms"] == pytest.approx(size)
    assert metrics["diversity"] == pytest.approx(np.sqrt(((parents - parents.mean(axis=0)) ** 2).mean()) / size)


def test_scores_that_are_not_finite_rank_worst_and_are_counted() -> None:
    algorithm = make(per_task=8, parents=7)
    returns = [[1, 1], [WORST, WORST], [-(10**12), -(10**12)], [10**12, WORST], [3, 3], [0, 0], [2, 2], [4, 4]]
    metrics = drive(algorithm, 1, lambda request: [result_of(returns)])
    assert algorithm.record()["survivors"].tolist() == [7, 4, 6, 0, 5, 2, 1]
    assert metrics["nonfinite"] == 2
    assert algorithm.record()["return"][[1, 3]].tolist() == [WORST, WORST]
    assert metrics["best"] == metrics["best_fitness"] == 8 / 2000
    assert metrics["mean"] == pytest.approx((2 - 2 * 10**12 + 6 + 0 + 4 + 8) / 6 / 2000)
    assert metrics["mean_fitness"] == pytest.approx(metrics["mean"])


def test_the_bonus_for_steps_is_in_the_fitness_and_not_in_the_returns_that_are_shown() -> None:
    algorithm = make(per_task=8, alive_bonus=0.5)
    metrics = drive(algorithm, 1, lambda request: [result_of([[1000, 3000]] * 8)])
    assert (metrics["best"], metrics["mean"]) == (2.0, 2.0)
    assert metrics["best_fitness"] == metrics["mean_fitness"] > 2.0


def test_a_generation_in_which_nobody_is_finite_goes_on_with_the_first() -> None:
    algorithm = make()
    metrics = drive(algorithm, 0, scores([WORST] * 8))
    assert metrics["nonfinite"] == 8
    assert algorithm.record()["survivors"].tolist() == [0, 1, 2]


def test_elites_come_first_unchanged_and_play_the_new_episodes() -> None:
    algorithm = make(elites=2)
    first = scores([5, 9, 7, 8, 1, 7, 6, 0])
    drive(algorithm, 1, first)
    parents = algorithm.state()["weights"].copy()
    request = next(algorithm.generation(2))
    assert request.weights.tobytes() == parents.tobytes()
    names = request.tasks[0].weights
    assert names.rows[:2].tolist() == [0, 1]
    assert names.sigmas.tolist()[:2] == [0, 0]
    assert (names.sigmas[2:] > 0).all()
    for k in range(2):
        out = np.empty(NETWORK.size, np.float32)
        Rebuilder(NETWORK).rebuild(request.weights, names, k, out)
        assert out.tobytes() == parents[k].tobytes()
    assert not set(request.tasks[0].play.seeds.tolist()) & set(first.asked[0].tasks[0].play.seeds.tolist())
    assert request.tasks[0].play.seeds.tolist() == episode_keys(0, Purpose.TRAINING, 2, 2).tolist()


def test_an_elite_that_was_lucky_loses_its_place_on_new_episodes() -> None:
    algorithm = make(elites=2)
    drive(algorithm, 1, scores([5, 90, 7, 8, 1, 7, 6, 0]))
    drive(algorithm, 2, scores([0, 1, 5, 6, 7, 0, 0, 0]))  # candidates 0 and 1 are the elites
    assert algorithm.record()["survivors"].tolist() == [4, 3, 2]


def test_with_memory_an_elite_is_ranked_by_its_mean_over_that_many_generations() -> None:
    algorithm = make(elites=2, memory=3)  # fitness is the sum of two episodes
    drive(algorithm, 1, scores([5, 90, 7, 8, 1, 7, 6, 0]))
    drive(algorithm, 2, scores([0, 0, 44, 46, 0, 0, 0, 0]))  # the first elite: (180 + 0) / 2 = 90
    assert algorithm.record()["survivors"].tolist() == [3, 0, 2]  # 92, 90, 88
    drive(algorithm, 3, scores([0, 0, 29, 31, 0, 0, 0, 0]))  # (92 + 0) / 2 = 46 and (2 x 90 + 0) / 3 = 60
    assert algorithm.record()["survivors"].tolist() == [3, 1, 2]  # 62, 60, 58
    assert algorithm.record()["return"].tolist() == [0, 0, 58, 62, 0, 0, 0, 0]  # of this generation alone


def test_every_candidate_is_in_exactly_one_task_and_all_play_the_same_episodes() -> None:
    algorithm = make(per_task=3)
    request = next(algorithm.generation(0))
    assert [len(task.weights) for task in request.tasks] == [3, 3, 2]
    keys = np.concatenate([task.weights.keys for task in request.tasks]).tolist()
    assert keys == [stream(0, Purpose.INITIAL, 0, i) for i in range(8)]
    assert len({tuple(task.play.seeds.tolist()) for task in request.tasks}) == 1
    assert request.weights is None


def test_names_of_children_follow_from_the_streams() -> None:
    algorithm = make(seed=5, crossover="uniform", crossover_rate=0.5, sigma=0.3, sigma_spread=0.5, per_task=8)
    drive(algorithm, 1, scores(range(8)))
    names = next(algorithm.generation(2)).tasks[0].weights
    mates = 0
    for i in range(1, 8):
        name = stream(5, Purpose.PARENT, 2, i)
        assert names.rows[i] == draw(name, 0, 3)
        assert names.mates[i] == (draw(name, 2, 3) if draw(name, 1, 65536) < 32768 else -1)
        assert names.keys[i] == stream(5, Purpose.MUTATION, 2, i)
        z = (philox(stream(5, Purpose.SIGMA, 2, i), (0, 0, 0, 0))[0].bit_count() - 16) / np.sqrt(8)
        assert names.sigmas[i] == pytest.approx(0.3 * np.exp(0.5 * z / np.sqrt(20)), rel=1e-6)  # of ten weights
        mates += names.mates[i] >= 0
    assert 0 < mates < 7
    assert names.crossover == "uniform"


def chosen_of(algorithm: ga.GeneticAlgorithm, number: int, values: Sequence[int]) -> np.ndarray:
    """Play a generation, which is one task; return the weights of the survivors [S, P]."""
    answer = scores(values)
    drive(algorithm, number, answer)
    (request,) = answer.asked
    survivors = algorithm.record()["survivors"].tolist()
    parents = np.empty((0, NETWORK.size), np.float32) if request.weights is None else request.weights
    return Rebuilder(NETWORK).all(parents, request.tasks[0].weights.some(survivors))


def mean_of(weights: np.ndarray) -> np.ndarray:
    return weights.mean(axis=0, dtype=np.float64).astype(np.float32)


def test_a_child_is_by_default_the_mean_of_all_parents_and_noise() -> None:
    algorithm = make(crossover="mean", elites=1, sigma=0.25, sigma_spread=0.0, per_task=8)
    fresh = chosen_of(algorithm, 1, [5, 9, 7, 8, 1, 7, 6, 0])
    assert algorithm.record()["survivors"].tolist() == [1, 3, 2]
    request = next(algorithm.generation(2))
    assert request.weights.tobytes() == np.stack((fresh[0], fresh[0])).tobytes()  # of fresh networks the best alone
    names = request.tasks[0].weights
    assert (names.rows.tolist(), names.sigmas.tolist()) == ([1, *[0] * 7], [0.0, *[0.25] * 7])
    assert names.mates.tolist() == [-1] * 8
    chosen = chosen_of(algorithm, 2, [0, 6, 7, 1, 8, 7, 9, 5])
    assert algorithm.record()["survivors"].tolist() == [6, 4, 2]
    request = next(algorithm.generation(3))
    assert request.weights.tobytes() == np.stack((mean_of(chosen), chosen[0])).tobytes()  # the mean, and the elite
    assert algorithm.finalists(9).weights.tobytes() == request.weights.tobytes()


def test_the_mean_and_its_sigma_stay_where_all_candidates_tie() -> None:
    algorithm = make(crossover="mean", elites=1, per_task=8)
    drive(algorithm, 1, scores([5, 9, 7, 8, 1, 7, 6, 0]))
    before = copied(algorithm.state())
    assert drive(algorithm, 2, scores([3] * 8))["turnover"] == 0
    assert copied(algorithm.state()) == before
    assert algorithm.record()["survivors"].tolist() == []
    assert algorithm.retrace(2, algorithm.record())
    assert copied(algorithm.state()) == before
    drive(algorithm, 3, scores([3] * 7 + [4]))
    assert copied(algorithm.state()) != before


def test_islands_have_means_of_their_own() -> None:
    algorithm = make(crossover="mean", elites=0, islands=2, parents=4, migration_every=0, per_task=8)
    fresh = chosen_of(algorithm, 1, [5, 9, 7, 8, 1, 7, 6, 0])
    assert algorithm.record()["survivors"].tolist() == [2, 1, 6, 3]
    request = next(algorithm.generation(2))
    assert request.weights.tobytes() == fresh[:2].tobytes()  # the best fresh network of each
    assert request.tasks[0].weights.rows.tolist() == [0, 1] * 4
    chosen = chosen_of(algorithm, 2, [0, 6, 7, 1, 8, 7, 9, 5])
    means = np.stack([mean_of(chosen[k::2]) for k in (0, 1)])
    assert next(algorithm.generation(3)).weights.tobytes() == means.tobytes()


def test_the_sigma_of_a_mean_is_the_geometric_mean_of_its_parents() -> None:
    algorithm = make(crossover="mean", elites=0, sigma_spread=2.0, per_task=8)
    drive(algorithm, 0, scores(range(8)))
    drive(algorithm, 1, scores([5, 9, 7, 8, 1, 7, 6, 0]))
    sigmas = algorithm.record()["sigma"].astype(np.float64)
    assert len(set(sigmas.tolist())) > 2
    assert np.exp(algorithm.state()["log_sigmas"]) == pytest.approx([np.prod(sigmas[[1, 3, 2]]) ** (1 / 3)], rel=1e-6)


def test_the_sigma_of_a_mean_follows_its_path_by_the_equations_of_cumulative_adaptation() -> None:
    options = {"crossover": "mean", "elites": 0, "islands": 2, "parents": 4, "migration_every": 0, "sigma_spread": 0.0}
    algorithm = make(sigma_path=True, per_task=8, **options)
    size, mu, draw_of = NETWORK.size, 2, np.random.default_rng(3)
    rate = (mu + 2) / (size + mu + 5)
    damping = 1 + 2 * max(0, np.sqrt((mu - 1) / (size + 1)) - 1) + rate
    usual = np.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size**2))
    paths, sigmas = np.zeros((2, size)), np.full(2, 0.1)
    means = None
    for number in range(6):
        drive(algorithm, number, scores(draw_of.integers(0, 99, 8).tolist()))
        after = algorithm.state()["weights"].astype(np.float64)
        if means is not None:
            paths = (1 - rate) * paths + np.sqrt(rate * (2 - rate) * mu) * (after - means) / sigmas[:, np.newaxis]
            sigmas = sigmas * np.exp(rate / damping * (np.linalg.norm(paths, axis=1) / usual - 1))
        means = after
        assert np.exp(algorithm.state()["log_sigmas"]) == pytest.approx(sigmas, rel=1e-9)
        assert algorithm.state()["step_paths"] == pytest.approx(paths, rel=1e-9)
    assert len(set(sigmas.tolist())) == 2


def test_a_sigma_that_follows_a_path_stays_above_the_floor() -> None:
    options = {"crossover": "mean", "elites": 0, "sigma_spread": 0.0, "sigma_path": True}
    algorithm = make(sigma=0.5, sigma_floor=0.49, per_task=8, **options)
    for number in range(3):
        drive(algorithm, number, scores(range(8)))
        algorithm.restore({**algorithm.state(), "step_paths": np.zeros((1, NETWORK.size))}, ())  # so it shrinks
    assert algorithm.state()["log_sigmas"] == pytest.approx([np.log(0.49)], rel=1e-9)
    assert next(algorithm.generation(3)).tasks[0].weights.sigmas[1:].tolist() == [np.float32(0.49)] * 7


def test_self_adaptive_sigmas_stay_above_the_floor() -> None:
    algorithm = make(sigma=0.5, sigma_spread=3.0, sigma_floor=0.5, per_task=8)
    drive(algorithm, 0, scores(range(8)))
    sigmas = next(algorithm.generation(1)).tasks[0].weights.sigmas[1:]
    assert (sigmas.min(), len(set(sigmas.tolist())) > 1) == (0.5, True)


@pytest.mark.parametrize(
    ("crossover", "sigmas"), [("none", {(0, 4.0), (1, 0.5)}), ("uniform", {(0, 1.414), (1, 1.414), (0, 4.0), (1, 0.5)})]
)
def test_children_spread_around_the_geometric_mean_of_the_sigmas_of_their_parents(
    crossover: str, sigmas: set[tuple[int, float]]
) -> None:
    options = {"population": 40, "parents": 2, "elites": 0, "per_task": 40}
    algorithm = make(crossover=crossover, crossover_rate=1.0, sigma_spread=0.0, **options)
    drive(algorithm, 1, scores(range(40)))
    algorithm.restore({**algorithm.state(), "log_sigmas": np.log([4.0, 0.5])}, ())
    names = next(algorithm.generation(2)).tasks[0].weights
    assert {(int(row), round(float(sigma), 3)) for row, sigma in zip(names.rows, names.sigmas, strict=True)} == sigmas


def test_survivors_hand_on_their_own_sigma() -> None:
    algorithm = make(sigma=1.0, sigma_spread=1.0, elites=1)
    drive(algorithm, 1, scores(range(8)))
    drive(algorithm, 2, scores([0, 1, 9, 3, 8, 4, 4, 4]))
    sigmas, survivors = algorithm.record()["sigma"], algorithm.record()["survivors"]
    assert survivors.tolist() == [2, 4, 5]
    assert np.exp(algorithm.state()["log_sigmas"]).astype(np.float32).tolist() == sigmas[survivors].tolist()


def test_the_bonus_for_staying_alive_ends_after_its_steps() -> None:
    training, lengths = [0, 0, 0, 1, 0, 0, 0, 0], [90, 100, 5000, 1, 0, 99, 100, 101]
    algorithm = make(parents=5, alive_bonus=0.001, alive_steps=100)
    drive(algorithm, 1, scores(training, lengths=lengths))
    assert algorithm.record()["survivors"].tolist() == [1, 2, 6, 7, 5]
    assert algorithm.record()["return"].tolist() == [0, 0, 0, 2, 0, 0, 0, 0]  # unshaped
    plain = make(parents=5)
    drive(plain, 1, scores(training, lengths=lengths))
    assert plain.record()["survivors"].tolist() == [3, 0, 1, 2, 4]


def tournament_winners(
    seed: int, generation: int, values: Sequence[int], end: int, size: int, first: int = 0
) -> list[int]:
    """Return the winners of tournaments first to end - 1, best first."""
    winners = []
    for t in range(first, end):
        name = stream(seed, Purpose.TOURNAMENT, generation, t)
        winners.append(max((draw(name, i, len(values)) for i in range(size)), key=lambda i: (values[i], -i)))
    return sorted(winners, key=lambda i: (-values[i], i))


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_tournaments_are_drawn_from_named_streams_and_elites_need_none(generation: int) -> None:
    values = [5, 9, 7, 9, 1, 7, 9, 0]
    algorithm = make(seed=3, selection="tournament", tournament=2, parents=6, elites=1)
    drive(algorithm, generation, scores(values))
    expected = [1, *tournament_winners(3, generation, values, 5, 2)]
    assert algorithm.record()["survivors"].tolist() == expected


def test_elites_are_the_first_finalists_of_tournaments_and_then_the_winners_as_they_rank() -> None:
    values = [5, 9, 7, 8, 1, 7, 9, 0]
    algorithm = make(seed=3, selection="tournament", tournament=8, parents=6, elites=3)
    drive(algorithm, 1, scores(values))
    assert algorithm.record()["survivors"].tolist()[:3] == [1, 6, 3]
    assert algorithm.record()["survivors"].tolist().count(1) > 1  # who wins a tournament of nearly everybody
    assert algorithm.finalists(3).candidates == [1, 6, 3]
    assert algorithm.finalists(6).candidates == algorithm.record()["survivors"].tolist()


def snake_run(generations: range, seed: int = 1, state: object = None, **options: object):
    """Play generations of tiny Snake; return the algorithm and what it said in each."""
    environment = snake.make(snake.Options(size=4, starvation=8))
    network = Network.build(Policy(conv=[[4, 3, 2]], dense=[4]), environment.shape, environment.actions)
    defaults = {"population": 12, "parents": 4, "elites": 2, "episodes": 4}
    algorithm = ga.make(ga.Options(**{**defaults, **options}), Setup(seed, network, environment, 4))
    if state is not None:
        algorithm.restore(state, ())
    answer = player(network, environment)
    return algorithm, [(drive(algorithm, g, answer), copied(algorithm.record())) for g in generations]


def copied(arrays: object) -> dict[str, tuple[str, bytes]]:
    return {name: (str(array.dtype), array.tobytes()) for name, array in arrays.items()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"selection": "tournament", "crossover": "layers"},
        {"memory": 3},
        {"sigma_spread": 1.0, "crossover": "uniform", "alive_bonus": 0.01},
        {"islands": 2, "migration_every": 2, "memory": 3, "sigma_spread": 1.0, "crossover": "uniform"},
        {"islands": 2, "migration_every": 2, "sigma_spread": 1.0, "elites": 0},
        {"islands": 2, "migration_every": 0, "elites": 0, "crossover": "mean"},
        {"islands": 2, "migration_every": 2, "sigma_path": True, "elites": 0},
    ],
    ids=["default", "tournament", "remembering", "adapting", "islands", "means", "apart", "paths"],
)
def test_a_resumed_run_equals_the_straight_one_after_every_generation(options: dict[str, object]) -> None:
    straight, said = snake_run(range(5), **options)
    for stop in range(1, 5):
        half, before = snake_run(range(stop), **options)
        state = {name: np.array(array) for name, array in half.state().items()}
        resumed, after = snake_run(range(stop, 5), state=state, **options)
        assert repr(before + after) == repr(said)  # NaN equals itself here
        assert copied(resumed.state()) == copied(straight.state())


def test_the_best_vector_of_an_exact_search_outlives_a_resume() -> None:
    exact = SimpleNamespace(problem=SimpleNamespace(seeded=False))  # one call of it is a vector's true fitness
    setup, options = Setup(0, NETWORK, exact, 8), ga.Options(population=8, parents=3, episodes=1)
    straight, resumed = ga.make(options, setup), ga.make(options, setup)
    drive(straight, 1, scores([5, 9, 7, 8, 1, 7, 6, 0]))
    assert straight.finalists(1).weights.tobytes() == np.stack([fresh_weights(0, 1, 1)] * 2).tobytes()
    drive(straight, 2, scores([5, 3, 4, 8, 1, 7, 6, 0]))
    resumed.restore(straight.state(), [straight.record()])
    best, mean = straight.finalists(1).weights
    assert best.tobytes() != mean.tobytes()
    assert resumed.finalists(1).weights.tobytes() == np.stack((best, mean)).tobytes()


def test_another_seed_is_another_run() -> None:
    one, other = snake_run(range(2), seed=1), snake_run(range(2), seed=2)
    assert copied(one[0].state())["weights"] != copied(other[0].state())["weights"]
    assert repr(one[1]) != repr(other[1])


@pytest.mark.parametrize(
    "keys",
    [
        {"parents": 9},
        {"elites": 4},
        {"population": 3, "parents": 3, "elites": 3, "tournament": 2},
        {"tournament": 9, "selection": "tournament"},
        {"alive_bonus": 0.0005},
        {"sigma": 0},
        {"sigma_path": True},
        {"sigma": float("nan")},
        {"episodes": 2.0},
        {"mutation": 3},
    ],
)
def test_options_that_make_no_sense_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        make(**keys)


@pytest.mark.long
def test_cart_pole_is_learned_within_a_few_generations() -> None:
    environment = gymnasium.make(gymnasium.Options(id="gymnasium:CartPole-v1", max_steps=200))
    network = Network.build(Policy(kind="mlp", dense=[4]), environment.shape, environment.actions)
    options = ga.Options(population=64, parents=8, episodes=4, sigma=0.5)
    algorithm = ga.make(options, Setup(1, network, environment, 4))
    answer = player(network, environment)
    metrics = [drive(algorithm, generation, answer) for generation in range(9)]
    assert metrics[0]["mean"] < 60  # steps upright
    assert metrics[-1]["mean"] > 2 * metrics[0]["mean"]
