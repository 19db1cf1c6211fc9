"""DQN: values of a chain, errors against a slow reference, and runs that resume exactly from actions alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from evo.algorithms import dqn
from evo.algorithms.dqn import DQN
from evo.errors import ConfigurationError, DataError, ResourceError
from evo.games.catalogue import tictactoe
from evo.kernels import lanes
from evo.learning.collecting import initial_weights
from evo.learning.gradient_algorithm import GradientAlgorithm
from evo.learning.hyperparameters import value_at
from evo.networks.network import Options as Policy
from evo.records import Request, Result, Transitions
from evo.store.store import Store
from tests.algorithms.learners import (
    Chain,
    assert_chain_is_valued,
    assert_mirrored_or_not,
    assert_same,
    board,
    drive,
    frozen,
    made,
    play,
    small,
    without_board,
)
from tests.helpers.calling import called, summary_of
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.helpers.sampling import sampled

CNN = Policy(conv=[[4, 3, 1]], dense=[8])
ENVS = {"envs": 8, "horizon": 8, "batch_size": 8, "learning_starts": 10, "replay_size": 500}
MANY = {"envs": 16, "horizon": 16, "batch_size": 32, "learning_starts": 100, "replay_size": 2000}
CLASSIC = ("double=false", "dueling=false", "prioritized=false", "target_every=3")


def dqn_of(algorithm: GradientAlgorithm) -> DQN:
    assert isinstance(algorithm.method, DQN)
    return algorithm.method


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(small("dqn"))
    return tmp_path


@pytest.mark.parametrize("options", sampled([
    {"dueling": True, "prioritized": True},
    {"dueling": False, "prioritized": False, "double": False, "target_every": 20, "target_tau": 0.0},
]), ids=["all", "classic"])  # fmt: skip
def test_a_chain_is_valued_exactly(options: dict[str, Any]) -> None:
    algorithm = made(
        dqn, Chain(), gamma=0.8, n_step=1, epsilon=[[0, 1.0]], learning_rate=0.03, huber_delta=0.0, envs=16, horizon=32,
        batch_size=64, learning_starts=100, frames_per_update=8, replay_size=5000,
        **{"target_tau": 0.05, **options},
    )  # fmt: skip
    drive(algorithm, range(40))
    assert_chain_is_valued(algorithm, 0.8, options["dueling"])


@pytest.mark.long  # what is not classic is in test_resume.py
def test_a_classic_run_that_stops_after_every_generation_equals_the_straight_one(place: Path) -> None:
    words = [word for option in CLASSIC for word in ("--set", f"dqn.{option}")]
    straight = summary_of(place, "small.toml", "--run-dir", "straight", *words, "--generations", 5)
    hashes = [line.state_hash for line in Store.read(place / "straight").lines]
    summary_of(place, "small.toml", "--run-dir", "stopping", *words, "--generations", 1)
    for stop in range(2, 6):
        resumed = summary_of(place, "--resume", "stopping", "--generations", stop)
        assert [line.state_hash for line in Store.read(place / "stopping").lines] == hashes[:stop]
    assert resumed["champion"] == straight["champion"]
    lines = Store.read(place / "straight").metrics()
    assert [line["updates"] for line in lines] == [6, 7, 7, 7, 7]  # of 48 frames each, and the remainder


@pytest.mark.long
def test_a_run_whose_discount_changes_is_resumed_exactly(place: Path) -> None:
    words = ("--set", "dqn.gamma_points=[[0, 0.5], [200, 0.9]]")
    straight = summary_of(place, "small.toml", "--run-dir", "straight", *words, "--generations", 4)
    summary_of(place, "small.toml", "--run-dir", "stopping", *words, "--generations", 2)
    assert summary_of(place, "--resume", "stopping", "--generations", 4)["state_hash"] == straight["state_hash"]
    usual = summary_of(place, "small.toml", "--run-dir", "usual", "--generations", 4)
    assert usual["state_hash"] != straight["state_hash"]


@pytest.mark.long
def test_whole_episodes_are_resumed_exactly_too(place: Path) -> None:
    words = ("--set", "environment.id=gymnasium:CartPole-v1", "--set", "policy.kind=linear", "--set", "dqn.episodes=5")
    words += ("--set", "dqn.whole_episodes=true")
    (place / "cart.toml").write_text(without_board("dqn"))
    straight = summary_of(place, "cart.toml", "--run-dir", "straight", *words, "--generations", 3)
    for stop in range(1, 4):
        how = ("cart.toml", "--run-dir", "stopping", *words) if stop == 1 else ("--resume", "stopping")
        resumed = summary_of(place, *how, "--generations", stop)
    assert resumed["state_hash"] == straight["state_hash"]


@pytest.mark.long
def test_the_replay_buffer_of_a_game_of_several_players_is_filled_again() -> None:
    world, records = tictactoe.make(tictactoe.Options(id="tictactoe")), []
    algorithm, again = (made(dqn, world, **{**ENVS, "replay_size": 150}) for _ in range(2))
    for number in range(3):
        drive(algorithm, number)
        records.append(frozen(algorithm.record()))
    state = frozen(algorithm.state())
    again.restore(state, records)
    samples = (dqn_of(one).buffer.sample(7, 256) for one in (algorithm, again))
    for one, other in zip(*samples, strict=True):
        np.testing.assert_array_equal(one, other)
    for each in (algorithm, again):
        drive(each, 3)
    assert_same(again.state(), algorithm.state())
    with pytest.raises(DataError, match="generation 1: its record has no moves of other players"):
        again.restore(state, [records[0], {"actions": records[1]["actions"]}, records[2]])


def test_a_fork_begins_with_an_empty_replay_buffer(place: Path) -> None:
    summary_of(place, "small.toml", "--run-dir", "first", "--generations", 3)
    summary_of(place, "--resume", "first", "--set", "dqn.gamma=0.9", "--fork", "other", "--generations", 5)
    lines = Store.read(place / "runs" / "other").metrics()
    assert [line["replay_size"] for line in lines if "replay_size" in line] == [48, 96, 100, 100]


@pytest.mark.parametrize(
    "changed",
    [
        "run.algorithm=pqn",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in ("dqn.replay_size=60", "dqn.prioritized=false", "dqn.envs=5", "environment.size=6")
        ),
    ],
)
def test_a_fork_may_change_options_and_algorithm(place: Path, changed: str) -> None:
    window = ("--set", "environment.observation=window", "--set", "environment.window=7")
    summary_of(place, "small.toml", "--run-dir", "first", *window, "--generations", 2)
    summary_of(place, "--resume", "first", "--set", changed, "--fork", "other", "--generations", 4)
    if changed == "run.algorithm=pqn":
        back = ("--set", "run.algorithm=dqn", "--fork", "back", "--generations", 6)
        summary_of(place, "--resume", "runs/other", *back)


def test_action_masks_hold_for_acting_and_for_targets() -> None:
    environment = board(starvation=30, mask="fatal")
    algorithm = made(dqn, environment, CNN, epsilon=[[0, 0.5]], **MANY)
    played: list[Transitions] = []

    def answer(request: Request) -> list[Result]:
        results = play(algorithm, request)
        played.extend(result.transitions for result in results if result.transitions)
        return results

    drive(algorithm, range(4), answer)
    for transitions in played:
        assert transitions.action_masks is not None
        assert transitions.action_masks[np.arange(len(transitions)), transitions.actions].all()
    sample = dqn_of(algorithm).buffer.sample(1, 512)
    assert sample.next_action_masks is not None
    assert_masks(environment, sample)
    assert (sample.next_action_masks == 0).any()


def assert_masks(environment: Any, sample: Any) -> None:
    """Compare the masks of a sample with those of its boards."""
    for row, allowed in zip(sample.next_observations, sample.next_action_masks, strict=True):
        plain, saved = environment.plain(), environment.game.restored(row[None])
        for mine, theirs in zip((*plain.state, *plain.clock), (*saved.state, *saved.clock), strict=True):
            mine[...] = theirs
        assert allowed.tolist() == plain.mask(0).tolist()


def reference_errors(algorithm: GradientAlgorithm, sample: Any, double: bool) -> np.ndarray:
    """Return the TD errors of DQN in plain NumPy, from the networks' outputs."""
    learner = algorithm.method.learner

    def values(weights: Any, rows: Any) -> np.ndarray:
        outputs = lanes.scores(algorithm.setup.network, weights, algorithm.setup.environment.game.observe(rows))
        return np.asarray(outputs[:, 3:4] + outputs[:, :3] - outputs[:, :3].mean(axis=1, keepdims=True))

    targets = values(learner.target_weights(), sample.next_observations)
    choosing = values(learner.weights(), sample.next_observations) if double else targets
    best = targets[np.arange(len(targets)), np.where(sample.next_action_masks == 1, choosing, -np.inf).argmax(axis=1)]
    wanted = sample.n_step_rewards + sample.discounts * best
    return np.asarray(wanted - values(learner.weights(), sample.observations)[np.arange(len(best)), sample.actions])


@pytest.mark.parametrize("double", [True, False])
def test_errors_equal_a_slow_reference(double: bool) -> None:
    algorithm = made(
        dqn, board(mask="reverse"), CNN, **MANY, double=double, gamma=0.9, frames_per_update=8, target_tau=0.1,
        learning_rate=0.01,
    )  # fmt: skip
    drive(algorithm, range(2))
    learner, method = algorithm.method.learner, dqn_of(algorithm)
    learner.set_target(initial_weights(algorithm.setup.network, 7) * -3)  # it ranks actions otherwise
    sample = method.buffer.sample(1, 256)
    expected, otherwise = (reference_errors(algorithm, sample, how) for how in (double, not double))
    learner.load(method.examples(sample, 1.0, 0))
    values = learner.update(np.arange(256, dtype=np.int32), 1e-4, {})
    np.testing.assert_allclose(values["td_error"], expected, atol=1e-4)
    assert np.abs(expected - otherwise).max() > 0.01
    importance = method.buffer.importance_weights(sample.probabilities, 1.0)
    size = np.abs(expected)
    np.testing.assert_allclose(values["loss"], importance * np.where(size < 1, size**2 / 2, size - 0.5), atol=1e-4)


def test_asynchronous_learning_lags_by_one_generation_exactly() -> None:
    lagging, usual = (made(dqn, board(), **ENVS, asynchronous=how) for how in (True, False))
    first = lagging.method.learner.weights()
    assert drive(lagging, 1)["updates"] == 0  # nothing was played before
    np.testing.assert_array_equal(lagging.method.learner.weights(), first)
    lagging._learn(None, 7, lambda: False)
    drive(usual, 1)
    # Of the same transitions, in another order:
    assert usual.method.learner.updates == lagging.method.learner.updates > 0
    assert "asynchronous" in lagging.notices[0]
    assert not usual.notices


def test_the_target_moves_by_tau_at_every_update_or_is_copied_at_some() -> None:
    soft = made(dqn, board(), **ENVS, target_tau=1.0)
    drive(soft, range(2))
    assert soft.state()["target"].tobytes() == soft.state()["weights"].tobytes()
    hard = made(dqn, board(), **ENVS, target_every=3, frames_per_update=32)
    drive(hard, 0)  # two updates
    first = hard.state()["target"].copy()
    assert first.tobytes() != hard.state()["weights"].tobytes()
    drive(hard, 1)  # the third copies
    assert hard.state()["target"].tobytes() != first.tobytes()


def test_updates_are_in_proportion_to_the_frames_played() -> None:
    options = {**ENVS, "horizon": 5, "learning_starts": 100, "frames_per_update": 30}
    algorithm = made(dqn, board(), **options)
    updates = [drive(algorithm, number)["updates"] for number in range(6)]
    assert updates == [0, 0, 1, 1, 2, 1]  # 40 frames a generation, from the third on


def test_a_network_that_is_not_finite_stops_the_run() -> None:
    algorithm = made(dqn, Chain(), episodes=2, dueling=False)
    state = dict(algorithm.state())
    state["weights"] = np.full_like(state["weights"], np.nan)
    algorithm.restore(state, ())
    with pytest.raises(ResourceError, match="not finite"):
        drive(algorithm, 0)


@pytest.mark.parametrize("name", ["dqn", "pqn"])
def test_a_loss_that_is_not_finite_ends_with_exit_code_5_in_a_run_that_is_whole(place: Path, name: str) -> None:
    (place / "dazzling.toml").write_text(without_board(name))
    plugin = ("--plugin", "tests.algorithms.dazzling", "--set", "environment.id=dazzling")
    words = ("--set", "policy.kind=linear", "--set", f"{name}.huber_delta=0.0", "--set", f"{name}.horizon=4")
    _, told = called(place, "dazzling.toml", "--run-dir", "run", *plugin, *words, "--generations", 3, code=5)
    assert "loss of update 1 is not finite" in told
    assert "Traceback" not in told
    assert Store.open(place / "run").next_generation == (1 if name == "dqn" else 0)


def test_a_run_can_start_from_a_champion() -> None:
    start = np.arange(12, dtype=np.float32)
    algorithm = made(dqn, Chain(), start=start, dueling=False)
    request = next(algorithm.generation(0))
    assert request.weights is not None
    assert request.weights.tolist() == [start.tolist()]
    assert algorithm.state()["target"].tolist() == start.tolist()


def test_continuous_actions_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="ppo"):
        dqn.Options().extra_outputs(SimpleNamespace(continuous=True, actions=2))


def test_symmetry_is_refused_where_the_environment_declares_none(place: Path) -> None:
    with pytest.raises(ConfigurationError, match="symmetry"):
        dqn.Options(symmetry=True).extra_outputs(Chain())
    (place / "cart.toml").write_text(without_board("dqn") + "\n")
    words = ("--set", "environment.id=gymnasium:CartPole-v1", "--set", "policy.kind=linear", "--run-dir", "none")
    _, told = called(place, "cart.toml", *words, "--set", "dqn.symmetry=true", code=2)
    assert "symmetry" in told
    assert not (place / "none").exists()


@pytest.mark.parametrize(
    "keys",
    [
        {"replay_size": 10, "learning_starts": 11},
        {"target_tau": 0.0},
        {"epsilon": []},
        {"epsilon": [[5, 1.0]]},
        {"epsilon": [[0, 1.0], [0, 0.5]]},
        {"epsilon": [[0, 1.5]]},
        {"batch_size": 0},
    ],
)
def test_invalid_options_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        dqn.Options(**keys)  # type: ignore[arg-type]


def test_epsilon_is_interpolated_between_points_and_then_constant() -> None:
    points = [[0, 1.0], [100, 0.2], [300, 0.0]]
    assert [value_at(points, frames) for frames in (0, 50, 100, 200, 300, 10**9)] == pytest.approx(
        [1, 0.6, 0.2, 0.1, 0, 0]
    )


def test_the_importance_exponent_is_annealed_to_one_over_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = made(dqn, board(), **ENVS, importance_exponent=0.5, importance_exponent_frames=256)
    buffer = dqn_of(algorithm).buffer
    weights, exponents = buffer.importance_weights, []

    def recording(probabilities: Any, exponent: float) -> Any:
        exponents.append(exponent)
        return weights(probabilities, exponent)

    monkeypatch.setattr(buffer, "importance_weights", recording)
    drive(algorithm, range(1, 6))
    assert exponents == [0.625, 0.75, 0.875, 1.0, 1.0]  # one update of 64 frames a generation


def test_priorities_are_errors_to_the_power_of_their_exponent() -> None:
    found = []
    for exponent in (0.3, 0.6):
        algorithm = made(dqn, board(), **ENVS, priority_exponent=exponent)
        drive(algorithm, 1)  # one update, of the same transitions
        found.append(dqn_of(algorithm).buffer.state()["priorities"] / 65536)
    assert found[1] == pytest.approx(found[0] ** 2, abs=1e-4)
    assert len(set(found[1].tolist())) > 4


def test_a_transition_keeps_the_discount_of_the_time_when_it_was_played() -> None:
    points = [[0, 0.5], [128, 0.75]]
    algorithm = made(dqn, board(), **ENVS, n_step=1, gamma_points=points)
    assert "gamma_points" in algorithm.options.model_dump()
    assert "gamma_points" not in made(dqn, board(), **ENVS).options.model_dump()  # so that identities stay as they are
    drive(algorithm, range(3))  # of 64 frames each
    sample = dqn_of(algorithm).buffer.sample(0, 500)
    for discount, generation in ((0.625, 0), (0.75, 1), (0.75, 2)):
        found = sample.discounts[sample.slots // 64 == generation]
        assert set(found[found > 0].tolist()) == {discount}
    with pytest.raises(ValidationError, match="frames do not rise"):
        dqn.Options(gamma_points=[[0, 0.9], [0, 0.99]])


def test_all_of_an_example_is_mirrored_together() -> None:
    environment = board(starvation=30, mask="fatal")
    algorithm = made(dqn, environment, **MANY, symmetry=True)
    drive(algorithm, 1)
    sample = dqn_of(algorithm).buffer.sample(1, 128)
    batch = dqn_of(algorithm).examples(sample, 1.0, 5)
    observed, following = (
        environment.game.observe(sample.observations),
        environment.game.observe(sample.next_observations),
    )
    mirrored = assert_mirrored_or_not(observed, batch["observations"], sample.actions, batch["actions"])
    mirrored_after = assert_mirrored_or_not(following, batch["next_observations"], sample.actions, batch["actions"])
    for i in np.flatnonzero(mirrored != mirrored_after):  # a board that is its own mirror image
        assert (observed[i] == observed[i][:, ::-1]).all() or (following[i] == following[i][:, ::-1]).all()
    assert sample.next_action_masks is not None
    expected = np.where(mirrored[:, None], sample.next_action_masks[:, ::-1], sample.next_action_masks)
    clear = ~(observed == observed[:, :, ::-1]).all(axis=(1, 2, 3))
    np.testing.assert_array_equal(batch["next_action_masks"][clear], expected[clear])
