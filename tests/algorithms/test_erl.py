"""ERL: the genetic algorithm's candidates, a learner that is given their episodes, and its network among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import evo
from evo.algorithms import erl, ga
from evo.environment import Environment
from evo.errors import ConfigurationError, DataError, ResourceError
from evo.games.catalogue import catch, tictactoe
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import Algorithm, Metrics, Request, Result
from evo.setup import Setup
from evo.testing import algorithm_tests
from tests.algorithms.climbing import candidates_of
from tests.algorithms.learners import LINEAR, ONE, Chain, assert_same, frozen, without_board
from tests.helpers import generations
from tests.helpers.calling import summary_of
from tests.helpers.generations import player

SMALL: dict[str, Any] = {
    "population": 8, "parents": 4, "elites": 2, "episodes": 2, "shared": 5, "explore_episodes": 3, "sigma": 0.3,
    "learning_starts": 20, "frames_per_update": 8, "batch_size": 16, "replay_size": 5000, "target_tau": 0.1,
}  # fmt: skip
CNN = Policy(conv=[[2, 3, 1]], dense=[4])
CATCH = catch.make(catch.Options(id="catch"))  # of which the contract has the kernels
TICTACTOE = tictactoe.make(tictactoe.Options(id="tictactoe"))
TestErl = algorithm_tests("evo.algorithms.erl", **SMALL)


def made(module: Any, environment: Environment, policy: Policy, start: Any = None, **options: Any) -> Any:
    network = Network.build(policy, environment.shape, environment.actions)
    return module.make(module.Options(**options), Setup(1, network, environment, 4, ONE, start))


def small(environment: Environment | None = None, start: Any = None, **options: Any) -> Any:
    return made(erl, environment or CATCH, CNN if environment is None else LINEAR, start, **{**SMALL, **options})


def drive(
    algorithm: Algorithm, numbers: range, environment: Environment, network: Network
) -> tuple[Metrics, list[list[tuple[Request, list[Result]]]]]:
    """Run generations; return the metrics of the last one, and what was asked and answered in each."""
    answer, seen = player(network, environment), []

    def noted(request: Request) -> list[Result]:
        seen[-1].append((request, answer(request)))
        return seen[-1][-1][1]

    for number in numbers:
        seen.append([])
        metrics = generations.drive(algorithm, number, noted)
    return metrics, seen


def driven(algorithm: Any, numbers: range) -> tuple[Metrics, list[list[tuple[Request, list[Result]]]]]:
    return drive(algorithm, numbers, algorithm.method.setup.environment, algorithm.method.setup.network)


@pytest.mark.long
def test_without_the_learners_entry_evolution_is_that_of_the_genetic_algorithm_bit_for_bit() -> None:
    environment, same = (
        CATCH,
        {"population": 12, "parents": 5, "elites": 3, "episodes": 3, "sigma": 0.2, "sigma_spread": 0.0},
    )
    plain = made(ga, environment, CNN, **same, crossover="none")
    learning = small(**same, shared=7, sync_every=0)
    for number in range(4):
        drive(plain, range(number, number + 1), environment, plain.network)
        driven(learning, range(number, number + 1))
        for name in ("parent", "key", "sigma", "return", "frames", "survivors"):
            assert learning.record()[name].tobytes() == plain.record()[name].tobytes(), name
        assert learning.state()["weights"].tobytes() == plain.state()["weights"].tobytes()
    assert learning.method.learner.updates > 0


@pytest.mark.long
def test_the_learners_network_is_a_candidate_every_so_many_generations_and_no_parent_of_others() -> None:
    algorithm = small(sync_every=2)
    for number in range(5):
        learned = algorithm.method.network()[0]
        metrics, asked = driven(algorithm, range(number, number + 1))
        candidates = candidates_of(asked[0][0][0], algorithm.method.setup.network)
        entered = [k for k, weights in enumerate(candidates) if weights.tobytes() == learned.tobytes()]
        assert entered == ([0], [], [2], [], [2])[number]  # it begins as candidate 0; later behind two elites
        assert np.isnan(metrics["learner_return"]) == (number not in (2, 4))
        rows = algorithm.record()["parent"]
        assert (rows == (4 if number else 0)).nonzero()[0].tolist() == ([2] if number in (2, 4) else [])
        if number in (2, 4):
            mean = algorithm.record()["return"][2] / 1000 / 2
            assert metrics["learner_return"] == mean
            assert metrics["learner_selected"] == (2 in algorithm.record()["survivors"])
    assert algorithm.method.learner.updates > 0


def test_a_learner_that_plays_best_becomes_the_first_parent() -> None:
    right = np.zeros((2, 6), np.float32)
    algorithm = small(Chain(), population=6, parents=2, elites=1, shared=6, explore_episodes=8)
    driven(algorithm, range(1))
    best = np.tile(np.array([0.0, 1.0], np.float32), 6)  # weights [5, 2], then biases [2]: always to the right
    assert best.size == right.size == algorithm.method.setup.network.size
    state = dict(algorithm.state())
    state["learner_weights"] = state["learner_target"] = best
    state["weights"] = np.zeros_like(state["weights"])  # always to the left
    algorithm.restore(state, ())
    driven(algorithm, range(1, 2))
    assert algorithm.finalists(1).weights[0].tobytes() == best.tobytes()
    assert algorithm.finalists(1).candidates == [1]


@pytest.mark.parametrize("shared", [0, 3, 8])
def test_the_replay_buffer_has_the_steps_of_shared_candidates_and_of_exploration_in_order(shared: int) -> None:
    algorithm = small(shared=shared, prioritized=False)
    _, seen = driven(algorithm, range(3))
    played = [
        (task, result)
        for asked in seen
        for request, answers in asked
        for task, result in zip(request.tasks, answers, strict=True)
    ]
    steps = [result.transitions for _, result in played if result.transitions is not None]
    assert len(steps) == 3 * (shared + 1)  # of one candidate each; three episodes of exploration are one task
    buffer = algorithm.method.buffer
    assert buffer.written == sum(len(part) for part in steps)
    frames = sum(int(asked[0][1][k].lengths.sum()) for asked in seen for k in range(shared))
    explored = sum(int(result.lengths.sum()) for asked in seen for result in asked[1][1])
    assert buffer.written == frames + explored == algorithm.state()["frames"][0]
    for name in ("observations", "actions"):
        kept = buffer._rows[name][: buffer.written]
        assert kept.tobytes() == np.concatenate([getattr(part, name) for part in steps]).tobytes()
    rules = {task.action_rule.kind for task, result in played if result.returns.shape[1] == 3}
    assert rules == {"epsilon_greedy"}


def test_exploration_plays_other_episodes_than_candidates() -> None:
    _, seen = driven(small(), range(2))
    for asked in seen:
        (first, _), (second, _) = asked
        seeds = [{int(seed) for task in request.tasks for seed in task.play.seeds} for request in (first, second)]
        assert [len(each) for each in seeds] == [2, 3]
        assert not seeds[0] & seeds[1]
        assert second.weights is None
        assert {int(row) for task in second.tasks for row in task.weights.rows} == {len(first.weights) - 1}


def test_what_is_not_shared_does_not_reach_the_learner() -> None:
    states = {}
    for shared in (0, 5):
        for sigma in (0.3, 0.4):  # other children, of the same learner
            algorithm = small(shared=shared, sigma=sigma, sync_every=0, explore_episodes=6)
            driven(algorithm, range(3))
            states[shared, sigma] = algorithm.state()["learner_weights"].tobytes()
    assert states[0, 0.3] == states[0, 0.4]
    assert states[5, 0.3] != states[5, 0.4]


@pytest.mark.parametrize("options", [{}, {"replay_size": 60}, {"prioritized": False, "n_step": 1}])
@pytest.mark.parametrize("kind", ["compiled", "plain", pytest.param("of several players", marks=pytest.mark.long)])
def test_a_replay_buffer_is_filled_again_from_records(options: dict[str, Any], kind: str) -> None:
    environment = {"plain": Chain(), "of several players": TICTACTOE}.get(kind)
    algorithm, again = small(environment, **options), small(environment, **options)
    records = []
    for number in range(4):
        driven(algorithm, range(number, number + 1))
        records.append(frozen(algorithm.record()))
        assert ("observations" in records[-1]) == (kind != "compiled")
    again.restore(frozen(algorithm.state()), records)
    assert_same(again.state(), algorithm.state())
    one, other = (each.method.buffer.sample(7, 256) for each in (algorithm, again))
    for name, array in one._asdict().items():
        assert (array is None) == (getattr(other, name) is None)
        assert array is None or array.tobytes() == getattr(other, name).tobytes(), name
    driven(algorithm, range(4, 5))
    driven(again, range(4, 5))
    assert_same(again.state(), algorithm.state())
    with pytest.raises(DataError, match="records of"):
        small(environment, **options).restore(algorithm.state(), records)


def test_a_fork_begins_with_an_empty_replay_buffer_and_the_same_learner() -> None:
    algorithm, other = small(), small(gamma=0.5)
    driven(algorithm, range(3))
    state = frozen(algorithm.state())
    other.restore(state, ())
    assert other.state()["learner_weights"].tobytes() == state["learner_weights"].tobytes()
    assert other.state()["learner_written"][0] == 0 < state["learner_written"][0]
    assert other.finalists(2).weights.tobytes() == state["weights"][:2].tobytes()


def test_a_run_can_start_from_a_champion() -> None:
    start = np.arange(12, dtype=np.float32)
    algorithm = small(Chain(), start=start)
    request = next(algorithm.generation(0))
    assert candidates_of(request, algorithm.method.setup.network)[0].tobytes() == start.tobytes()
    assert request.weights is not None
    assert request.weights.tobytes() == np.stack([start, start]).tobytes()  # the first parent, and the learner
    assert algorithm.state()["learner_target"].tobytes() == start.tobytes()


def test_a_candidate_that_is_not_finite_shares_nothing_and_a_learner_that_is_not_ends_the_run() -> None:
    algorithm = small()
    driven(algorithm, range(1))
    broken = dict(algorithm.state())
    broken["weights"] = broken["weights"].copy()
    broken["weights"][0] = np.nan
    algorithm.restore(broken, ())
    metrics, seen = driven(algorithm, range(1, 2))
    assert metrics["nonfinite"] >= 1
    assert seen[0][0][1][0].transitions is None
    assert np.isfinite(algorithm.state()["weights"]).all()
    algorithm.restore({**broken, "learner_weights": np.full_like(broken["learner_weights"], np.nan)}, ())
    with pytest.raises(ResourceError, match="not finite"):
        driven(algorithm, range(1, 2))


def test_catch_is_learned_in_seconds_and_the_learner_is_selected(tmp_path: Path) -> None:
    experiment = evo.Experiment.build(
        run={"algorithm": "erl", "seed": 1, "generations": 30},
        environment={"id": "catch"},
        policy={"kind": "mlp", "dense": [16]},
        workers={"backend": "serial"},
        validation={"every": 10, "episodes": 64},
        test={"every": 100, "episodes": 64},
        erl={
            **SMALL, "sigma": 0.1, "shared": 8, "learning_starts": 200, "frames_per_update": 4, "batch_size": 32,
            "learning_rate": 3e-3, "epsilon": [[0, 1.0], [3000, 0.1]],
        },
    )  # fmt: skip
    rows = list(evo.train(experiment, tmp_path / "run"))
    assert rows[-1].metrics["validation"] == 1.0
    late = [row.metrics["learner_selected"] for row in rows[15:]]
    assert np.mean(late) > 0.5


@pytest.mark.long
def test_whole_episodes_of_gymnasium_are_resumed_exactly_too(tmp_path: Path) -> None:
    text = "\n[erl]\n" + "".join(f"{name} = {value}\n" for name, value in SMALL.items())
    (tmp_path / "cart.toml").write_text(without_board("erl") + text)
    words = ("--set", "environment.id=gymnasium:CartPole-v1", "--set", "policy.kind=linear")
    straight = summary_of(tmp_path, "cart.toml", "--run-dir", "straight", *words, "--generations", 3)
    for stop in range(1, 4):
        how = ("cart.toml", "--run-dir", "stopping", *words) if stop == 1 else ("--resume", "stopping")
        resumed = summary_of(tmp_path, *how, "--generations", stop)
    assert resumed["state_hash"] == straight["state_hash"]


def test_continuous_actions_are_refused() -> None:
    from evo.environments import gymnasium

    pendulum = gymnasium.make(gymnasium.Options(id="gymnasium:Pendulum-v1"))
    with pytest.raises(ConfigurationError, match="discrete"):
        erl.Options().extra_outputs(pendulum)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parents": 9}, "parents: 9 of a population of 8"),
        ({"elites": 5}, "elites: 5 of 4 parents"),
        ({"parents": 8, "elites": 7}, "so none is new"),
        ({"shared": 9}, "shared: 9 of a population of 8"),
        ({"shared": 0, "explore_episodes": 0}, "nothing to learn from"),
        ({"learning_starts": 6000}, "learning_starts"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        erl.Options(**{**SMALL, **options})
