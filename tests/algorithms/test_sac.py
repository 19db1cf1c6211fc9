"""SAC and TD3: gradients against Keras and NumPy, targets, draws, refusals, and one hash however a run is played."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

import evo
from evo.algorithms import sac, td3
from evo.environments import gymnasium
from evo.environments.instances import Instance
from evo.errors import ConfigurationError
from evo.games.catalogue import pendulum
from evo.kernels import lanes
from evo.learning.exact.learner import ExactLearner
from evo.learning.exact.squashed import normal_noise, squashed_actions
from evo.learning.twin_critics import TwinCriticMethod
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.player import prepare
from evo.records import Arrays
from evo.rollouts.action_rules import NOISY, SQUASHED, UNIFORM, draw_action, standard_normal
from evo.setup import LearnerOptions, Setup
from tests.algorithms.learners import assert_same, drive, frozen
from tests.algorithms.learners import made as made_by
from tests.helpers.calling import summary_of
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.helpers.networks import plain_scores
from tests.helpers.specs import spec
from tests.learning import plain_passes
from tests.run import shaken

MLP = Policy(kind="mlp", dense=[12, 7], output="tanh")
FEW: dict[str, Any] = {
    "envs": 4, "horizon": 8, "batch_size": 150, "learning_starts": 32, "replay_size": 100, "frames_per_update": 8,
}  # fmt: skip
SMALL = """
[run]
algorithm = "ALGORITHM"
generations = 4
[environment]
id = "pendulum"
max_steps = 11
[policy]
kind = "mlp"
dense = [9]
[validation]
every = 2
episodes = 8
[test]
every = 4
episodes = 8
[ALGORITHM]
envs = 6
horizon = 8
envs_per_task = 2
learning_starts = 60
frames_per_update = 6
batch_size = 140
replay_size = 150
"""


def swinging(steps: int) -> Any:
    """Return a pendulum for which no rollout is compiled."""
    return gymnasium.make(gymnasium.Options(id="gymnasium:Pendulum-v1", max_steps=steps, rescale_actions=True))


def made(module: Any = sac, **options: Any) -> Any:
    """Return an algorithm that has played and learned for two generations."""
    algorithm = made_by(module, swinging(20), MLP, **{**FEW, **options})
    drive(algorithm, range(2))
    return algorithm


def method_of(algorithm: Any) -> TwinCriticMethod:
    assert isinstance(algorithm.method, TwinCriticMethod)
    return algorithm.method


def stated(module: Any, outputs: Any, noise: Any, slopes: Any, values: Any, temperature: float) -> tuple[Any, Any]:
    """Return the actor's loss of each example, with a surrogate for the critic, and its log probability, in TensorFlow.

    Haarnoja et al., 2018b, equations 8, 9 and 21; of TD3, Fujimoto et al., 2018, algorithm 1.
    """
    import tensorflow as tf

    mean = outputs[:, :1]
    deviation = -5.0 + 3.5 * (tf.tanh(outputs[:, 1:]) + 1.0)
    u = mean + tf.exp(deviation) * noise if module is sac else mean
    action, log_probability = tf.tanh(u), tf.zeros(len(noise))
    if module is sac:
        correction = 2.0 * (math.log(2.0) - u - tf.nn.softplus(-2.0 * u))  # log(1 - tanh(u)^2)
        density = -0.5 * tf.square(noise) - deviation - 0.5 * math.log(2.0 * math.pi)
        log_probability = tf.reduce_sum(density - correction, axis=1)
    q_value = values + tf.reduce_sum(slopes * (action - tf.stop_gradient(action)), axis=1)
    return temperature * log_probability - q_value, log_probability


@pytest.mark.long
@pytest.mark.parametrize("module", [sac, td3])
def test_the_actor_s_gradient_is_the_one_of_keras_through_actor_and_critic(module: Any) -> None:
    import tensorflow as tf

    from evo.networks.keras_form import build_keras, set_weights

    method = method_of(made(module))
    batch, noise = method.batch(5, 0), normal_noise(3, 150, 1)
    critic = method.critics[0]
    values, slopes = method.slopes(batch.observations, method.act(batch.observations, noise)[0], critic)
    actor = method.learner
    assert isinstance(actor, ExactLearner)
    actor.load({"observations": batch.observations, "noise": noise, "slopes": slopes, "values": values})
    found = actor.gradients(np.arange(150, dtype=np.int32), {"temperature": 0.3})

    models = build_keras(method.learned_network), build_keras(method.critic_network)
    for model, learner in zip(models, (actor, critic), strict=True):
        set_weights(model, learner.network, learner.weights())
    for surrogate in (True, False):  # the loss as it is stated, and the critic itself in place of its slopes
        with tf.GradientTape() as tape:
            outputs = models[0](batch.observations)
            total, log_probability = stated(module, outputs, noise, slopes, values, 0.3)
            if not surrogate:
                mean, deviation = outputs[:, :1], tf.tanh(outputs[:, 1:])
                u = mean + (tf.exp(-5.0 + 3.5 * (deviation + 1.0)) * noise if module is sac else 0.0)
                q = models[1](tf.concat([batch.observations, tf.tanh(u)], 1))[:, 0]
                total = 0.3 * log_probability - q
            mean = tf.reduce_mean(total)
        gradient = np.concatenate([g.numpy().ravel() for g in tape.gradient(mean, models[0].trainable_variables)])
        np.testing.assert_allclose(found["loss"], total, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(actor.gradient, gradient, rtol=1e-3, atol=3e-6)
    assert np.abs(gradient).max() > 1e-3


@pytest.mark.long
def test_a_critic_s_slopes_are_differences_of_the_plain_network() -> None:
    network = Network.build(Policy(kind="mlp", dense=[20, 13], norm="layer", activation="tanh"), (5,), 1)
    learner = ExactLearner(network, 2, method_of(made()).critics[0]._loss, to_inputs=True)
    weights = np.random.default_rng(1).normal(size=network.size)
    learner.begin(weights.astype(np.float32))
    seen = np.random.default_rng(2).normal(size=(200, 5)).astype(np.float32)
    values, slopes = learner.slopes(seen)
    assert values.tobytes() == learner.outputs(seen, np.arange(200, dtype=np.int32)).tobytes()
    exact = learner.weights().astype(np.float64)

    def value(observation: Any) -> float:
        return float(plain_passes.forward(network, exact, observation)[-1].out[0, 0])

    for row in (0, 77, 199):
        steps = np.eye(5) * 1e-6
        expected = [(value(seen[row] + step) - value(seen[row] - step)) / 2e-6 for step in steps]
        np.testing.assert_allclose(slopes[row], expected, rtol=1e-3, atol=1e-5)
    alone = ExactLearner(network, 1, learner._loss, to_inputs=True)
    alone.begin(weights.astype(np.float32))
    assert alone.slopes(seen)[1].tobytes() == slopes.tobytes()


def test_densities_are_those_of_the_tanh_of_a_normal_number_also_far_from_zero() -> None:
    outputs = np.array([[0.3, -0.2], [-2.0, 0.5], [12.0, 0.9]], np.float32)
    noise = np.array([[0.5], [-1.0], [2.0]], np.float32)
    actions, logs = squashed_actions(outputs, noise)
    deviations = np.exp(-5 + 3.5 * (np.tanh(outputs[:, 1].astype(np.float64)) + 1))
    u = outputs[:, 0] + deviations * noise[:, 0]
    np.testing.assert_allclose(actions[:, 0], np.tanh(u), rtol=1e-6)
    normal = -0.5 * noise[:, 0] ** 2 - np.log(deviations) - 0.5 * math.log(2 * math.pi)
    expected = normal - 2 * (math.log(2) - u - np.log1p(np.exp(-2 * u)))
    np.testing.assert_allclose(logs, expected, rtol=1e-5)
    plain = normal[:2] - np.log(1 - np.tanh(u[:2]) ** 2)
    np.testing.assert_allclose(logs[:2], plain, rtol=1e-5)


def reference_values(critics: list[Any], target: bool, seen: Any) -> np.ndarray:
    """Return the smaller value of both critics, by the kernel that plays."""
    weights = [critic.target_weights() if target else critic.weights() for critic in critics]
    return np.min([lanes.scores(critics[0].network, one, seen)[:, 0] for one in weights], axis=0)


@pytest.mark.long
def test_targets_of_sac_are_soft_values_of_the_target_networks() -> None:
    method: Any = method_of(made())
    batch, noise = method.batch(5, 0), normal_noise(3, 150, 1)
    outputs = lanes.scores(method.learned_network, method.learner.weights(), batch.next_observations)
    actions, logs = squashed_actions(outputs, noise)
    values = reference_values(method.critics, True, np.concatenate([batch.next_observations, actions], 1))
    expected = batch.rewards + batch.discounts * (values - 0.4 * logs)
    found = method.targets(batch, *method.act(batch.next_observations, noise), 0.4)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.dtype == np.float32


@pytest.mark.long
def test_targets_of_td3_are_of_the_target_actor_with_clipped_noise() -> None:
    method: Any = method_of(made(td3, target_noise=0.4, target_noise_clip=0.3))
    method.learner.set_target(method.learner.weights() * -30)
    batch, noise = method.batch(5, 0), normal_noise(3, 150, 1)
    means = lanes.scores(method.setup.network, method.learner.target_weights(), batch.next_observations)
    actions = np.clip(means + np.clip(np.float32(0.4) * noise, -0.3, 0.3), -1, 1)
    values = reference_values(method.critics, True, np.concatenate([batch.next_observations, actions], 1))
    np.testing.assert_allclose(method.targets(batch, noise), batch.rewards + batch.discounts * values, rtol=1e-4)
    assert (np.abs(actions) == 1).any()


@pytest.mark.long
def test_the_actor_of_td3_waits_for_every_second_update_and_so_do_targets() -> None:
    algorithm = made_by(td3, swinging(200), MLP, **{**FEW, "frames_per_update": 32})
    method = method_of(algorithm)
    begun = frozen(method.state())
    drive(algorithm, 0)  # one update
    after = method.state()
    for name in ("weights", "target", "critic_1_target", "critic_2_target"):
        assert np.asarray(after[name]).tobytes() == begun[name].tobytes()
    assert np.asarray(after["critic_1_weights"]).tobytes() != begun["critic_1_weights"].tobytes()
    drive(algorithm, 1)
    for name in ("weights", "target", "critic_1_target", "critic_2_target"):
        assert np.asarray(method.state()[name]).tobytes() != begun[name].tobytes()
    assert begun["critic_1_weights"].tobytes() != begun["critic_2_weights"].tobytes()


@pytest.mark.long
def test_the_temperature_falls_where_the_entropy_is_above_its_target() -> None:
    temperature = sac.Temperature(0.5)
    assert temperature.value == pytest.approx(0.5, rel=1e-15)
    temperature.update(np.full(8, -2.0, np.float32), -1.0, 0.01)  # an entropy of 2 nats
    assert temperature.value == pytest.approx(0.5 * math.exp(-0.01), rel=1e-4)
    again = sac.Temperature(1.0)
    again.restore(temperature.state())
    again.update(np.full(8, 3.0, np.float32), -1.0, 0.01)
    temperature.update(np.full(8, 3.0, np.float32), -1.0, 0.01)
    assert again.state().tolist() == temperature.state().tolist()
    assert made(learn_temperature=False, temperature=0.2).method.temperature.value == pytest.approx(0.2)


@pytest.mark.long
def test_actions_before_learning_starts_are_any_and_then_the_policy_s() -> None:
    algorithm = made_by(sac, swinging(200), MLP, **{**FEW, "learning_starts": 64})
    rules = []
    for number in range(3):
        rules.append(next(algorithm.generation(number)).tasks[0].action_rule.kind)
        drive(algorithm, number)
    assert rules == ["uniform", "uniform", "squashed"]


@pytest.mark.parametrize("mean", [-1.0, -0.9, 0.0, 0.4, 1.0])
def test_a_squashed_action_is_drawn_before_the_tanh(mean: float) -> None:
    outputs, action = np.array([mean, 0.7], np.float32), np.empty(1, np.float32)
    assert draw_action(outputs, 1, 0, SQUASHED, 0.0, np.uint64(3), 4, action)
    normal = standard_normal(np.uint64(3), 4, 0)
    spread = math.exp(-5 + 3.5 * 1.7) * normal
    expected = mean if abs(mean) == 1 else math.tanh(math.atanh(np.float32(mean)) + spread)
    assert action[0] == pytest.approx(expected, rel=1e-5)
    assert draw_action(outputs, 1, 0, NOISY, 0.5, np.uint64(3), 4, action)
    assert action[0] == pytest.approx(min(max(mean + 0.5 * normal, -1), 1), rel=1e-6)
    assert not draw_action(np.array([mean, np.nan], np.float32), 1, 0, SQUASHED, 0.0, np.uint64(3), 4, action)
    assert draw_action(np.array([mean, np.nan], np.float32), 1, 0, NOISY, 0.0, np.uint64(3), 4, action)


def test_uniform_actions_are_spread_evenly_over_the_box() -> None:
    actions = np.empty((4000, 2), np.float32)
    for step, action in enumerate(actions):
        assert draw_action(np.zeros(2, np.float32), 1, 0, UNIFORM, 0.0, np.uint64(5), step, action)
    counts = np.histogram(actions, 10, (-1, 1))[0]
    assert counts.sum() == 8000  # all are inside
    assert ((counts - 800.0) ** 2 / 800).sum() < 28  # 9 degrees of freedom: 0.1 % are above
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.06


def test_outputs_of_tanh_have_the_bits_of_a_plain_loop_and_the_values_of_keras() -> None:
    from evo.networks.keras_form import build_keras, set_weights

    network = Network.build(MLP, (3,), 4)
    weights = np.random.default_rng(1).normal(size=network.size).astype(np.float32)
    seen = np.random.default_rng(2).normal(size=(40, 3)).astype(np.float32)
    found = lanes.scores(network, weights, seen)
    assert found.tobytes() == plain_scores(network, weights, seen).tobytes()
    model = build_keras(network)
    set_weights(model, network, weights)
    np.testing.assert_allclose(model(seen), found, rtol=1e-4, atol=1e-6)
    assert 0.5 < np.abs(found).max() <= 1


@pytest.mark.long
@pytest.mark.parametrize("module", [sac, td3])
def test_after_every_generation_a_restored_algorithm_goes_on_as_the_straight_one(module: Any) -> None:
    options = {**FEW, "n_step": 2, "gamma_points": [[0, 0.5], [90, 0.9]]}
    environment = swinging(9)
    straight = made_by(module, environment, MLP, **options)
    records: list[Arrays] = []
    for number in range(4):
        drive(straight, number)
        records.append(frozen(straight.record()))
        state = frozen(straight.state())
        resumed = made_by(module, environment, MLP, **options)
        resumed.restore(state, records)
        assert_same(resumed.state(), state)
    for algorithm in (straight, resumed):
        drive(algorithm, 4)
    assert_same(resumed.state(), straight.state())
    assert straight.method.learner.updates > 0


@pytest.mark.long
@pytest.mark.parametrize("extra", [0, 1], ids=["td3", "sac"])
def test_forked_workers_can_compile_what_records_actions_of_tanh(tmp_path: Path, extra: int) -> None:
    policy = {"kind": "mlp", "dense": [9], "output": "tanh"}
    prepare(spec(tmp_path, {"id": "pendulum"}, policy, extra_outputs=extra, transitions_from="segments"))


HASHES = {
    "sac": "dfb2ae757e3a68a4ef59219c80851f6408df1e585c85d7e982e63bff8ad0596f",
    "td3": "0cf04399988232fdb608891a22f586b920879342f8726616255294328518f551",
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["sac", "td3"])
def test_one_hash_for_any_number_of_workers_and_threads_and_through_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "small.toml").write_text(SMALL.replace("ALGORITHM", name))
    monkeypatch.setenv("SHAKEN", "1:2")
    before, found = shaken.killed, []
    for workers in (0, 2, 3):
        plugin = ("--plugin", "tests.run.shaken", "--backend", "shaken", "--workers", workers)
        words = plugin if workers else ("--backend", "serial")
        words = (*words, "--set", f"learner.threads={max(workers, 1)}")
        first = 1 if workers == 3 else 4
        summary = summary_of(tmp_path, "small.toml", "--run-dir", f"run-{workers}", "--generations", first, *words)
        for generations in range(first + 1, 5):
            summary = summary_of(tmp_path, "--resume", f"run-{workers}", "--generations", generations, *words)
        found.append((summary["state_hash"], summary["champion"]))
    assert found == found[:1] * 3
    assert found[0][0] == HASHES[name]  # on every machine
    assert shaken.killed > before


@pytest.mark.parametrize("name", ["sac", "td3"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("environment.id=cartpole",), "learns continuous actions, and this environment's are choices"),
        (("environment.id=gymnasium:Pendulum-v1",), "set rescale_actions = true"),
        (("environment.id=gymnasium:CartPole-v1", "environment.rescale_actions=true"), "only a Box of floats"),
        (("policy.memory=gru:4",), "does not learn networks with memory"),
        (("learner.arithmetic=tensorflow",), 'set arithmetic = "exact"'),
        (("ALGORITHM.replay_size=10",), "learning_starts: 60 of a replay_size of 10"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_a_line(tmp_path: Path, name: str, words: Any, said: str) -> None:
    (tmp_path / "small.toml").write_text(SMALL.replace("ALGORITHM", name))
    sets = [part for word in words for part in ("--set", word.replace("ALGORITHM", name))]
    sets += ["--set", "environment.max_steps=11"] if "id" in words[0] else []
    error = summary_of(tmp_path, "small.toml", "--run-dir", "none", "--backend", "serial", *sets, code=2)["error"]
    assert said in error


def test_layers_with_windows_and_outputs_of_tanh_elsewhere_are_refused(tmp_path: Path) -> None:
    network = Network.build(Policy(conv=[[2, 3, 1]], dense=[4], output="tanh"), (5, 5, 1), 1, 1)
    setup = Setup(1, network, pendulum.make(pendulum.Options()), learner=LearnerOptions(threads=1))
    with pytest.raises(ConfigurationError, match="layers must be dense"):
        sac.make(sac.Options(), setup)
    (tmp_path / "small.toml").write_text(SMALL.replace("ALGORITHM", "sac"))
    words = ("--algorithm", "ppo", "--set", "policy.output=tanh", "--run-dir", "none")
    assert "learns linear outputs" in summary_of(tmp_path, "small.toml", *words, code=2)["error"]


def test_actions_are_scaled_to_the_bounds_of_the_box_where_that_is_asked_for() -> None:
    options = gymnasium.Options(id="gymnasium:Pendulum-v1", rescale_actions=True)
    environment = gymnasium.make(options)
    assert environment.unit_actions
    assert environment.env().action_space == Box(-1, 1, (1,), np.float32)
    plain = gymnasium.make(gymnasium.Options(id="gymnasium:Pendulum-v1"))
    assert not plain.unit_actions
    assert options.scored == plain.options.scored  # the same task
    assert options.track != plain.options.track
    for scaled, torque in ((0.25, 0.5), (1.5, 2.0)):
        pair = [Instance.of(environment), Instance.of(plain)]
        for one, action in zip(pair, (scaled, torque), strict=True):
            one.reset(3)
            one.step(np.array([action], np.float32))
        assert pair[0].observation.tolist() == pair[1].observation.tolist()
    for one, bound in ((environment, 1.0), (plain, 2.0)):
        experiment = evo.Experiment.build(environment=one.options.model_dump(), policy={"kind": "linear"})
        network = experiment.network()
        weights = np.zeros(network.size, np.float32)
        network.split(weights)[-1][:] = 3
        action = evo.Policy(network, weights, experiment)(np.zeros(3))
        assert action.tolist() == [bound]
        assert one.env().action_space.contains(action)
