"""An ONNX model acts as our kernel does, and the observations on its page are those that it was trained on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import evo
import snake  # noqa: F401
from evo.config.experiment import Experiment
from evo.environment import Normalisation
from evo.exports.onnx_model import onnx_model
from evo.kernels import lanes
from evo.networks.network import Network, Options
from snake import SnakeEnv
from tests.helpers.calling import ROOT, called, small_with
from tests.helpers.networks import random_observations, random_weights

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "exports.md").read_text(), re.DOTALL)
NETWORKS = [
    'conv = [[4, 3, 2], [3, 2, 1]]\ndense = [5]\nnorm = "layer"',
    'conv = [[4, 4, 3]]\npadding = "valid"',
    'kind = "mlp"\ndense = [4]\nactivation = "tanh"',
    'kind = "linear"',
    'embed = "one_hot"\ncodes = 3\nconv = [[4, 3, 1]]',
    'layers = ["one_hot 3", "conv 4 3 1", "max_pool 3 2 same", "tanh", "average_pool 2 2 same", "norm", "dense 5"]',
]


def states(**options: Any) -> tuple[list[dict[str, Any]], NDArray[np.float32]]:
    """Return 1,000 positions of random play, and what the environment shows of them."""
    env = SnakeEnv(**options)
    generator, told, seen = np.random.default_rng(1), list[dict[str, Any]](), []
    observation, info = env.reset(seed=1)
    while len(told) < 1000:
        position, hunger = env.shown(), int(env._batch.state.state.hunger[0])
        told.append({"body": position.body, "fruit": position.fruit, "heading": position.heading, "hunger": hunger})
        seen.append(observation)
        safe = np.flatnonzero(info["action_mask"])
        observation, _, terminated, truncated, info = env.step(generator.choice(safe))
        if terminated or truncated:
            observation, info = env.reset()
    return told, np.array(seen)


@pytest.mark.parametrize(
    ("kind", "window"),
    [
        ("ego", 0),
        ("window", 5),
        ("features", 0),
        ("local", 0),
        ("local", 3),
        pytest.param("frame", 0, marks=pytest.mark.long),
        pytest.param("planes", 0, marks=pytest.mark.long),
        pytest.param("window", 0, marks=pytest.mark.long),
    ],
)
def test_the_observations_on_the_page_are_those_of_the_environment(kind: str, window: int) -> None:
    (code,) = (block for block in BLOCKS if "def observe" in block)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    relative = kind in ("ego", "window", "features", "local")
    rules = {"size": 6, "starvation": 20, "mask": "fatal", "actions": "relative" if relative else "absolute"}
    told, seen = states(observation=kind, window=window, **rules)
    assert max(len(one["body"]) for one in told) > 3
    for one, shown in zip(told, seen, strict=True):
        observed = namespace["observe"](kind, 6, starvation=20, window=window, **one)
        assert (observed.dtype, observed.shape) == (shown.dtype, shown.shape)
        assert np.array_equal(observed, shown)


@pytest.mark.parametrize("policy", NETWORKS)
def test_the_graph_computes_what_the_kernel_does(tmp_path: Path, policy: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    (tmp_path / "small.toml").write_text(f"[environment]\nsize = 7\n[policy]\n{policy}\n")
    network, generator = Experiment.load(tmp_path / "small.toml").network(), np.random.default_rng(1)
    weights = generator.normal(size=network.size).astype(np.float32)
    observations = random_observations(network, 9, 2)
    if network.layers[0].kind == "one_hot":
        observations = generator.integers(0, 3, observations.shape).astype(np.float32)
    session = runtime.InferenceSession(onnx_model(network, weights, {"seed": 3}))
    scores, actions = session.run(None, {"observations": observations})
    expected = lanes.scores(network, weights, observations)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    assert actions.tolist() == expected[:, : network.actions].argmax(axis=1).tolist()
    assert session.get_modelmeta().custom_metadata_map == {"seed": "3"}
    by = Normalisation(np.full(network.shape, 1e6 + 0.03), np.full(network.shape, 0.1), 10.0)
    raw = (1e6 + np.round(observations * 16) / 16).astype(np.float32)
    seen = np.clip((raw - by.mean) / by.deviation, -10, 10).astype(np.float32)
    normalising = onnx_model(network, weights, {}, normalisation=by)
    (scores,) = runtime.InferenceSession(normalising).run(["scores"], {"observations": raw})
    np.testing.assert_allclose(scores, lanes.scores(network, weights, seen), rtol=1e-4, atol=1e-3)
    (continuous,) = runtime.InferenceSession(onnx_model(network, weights, {}, discrete=False)).get_outputs()
    assert continuous.name == "scores"


@pytest.mark.parametrize("layers", [["gru 5"], ["conv 3 3 2", "relu", "lstm 4", "norm", "tanh", "gru 3", "dense 4"]])
def test_a_graph_with_memory_goes_on_from_its_states(layers: list[str]) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    network = Network.build(Options(layers=layers), (5, 4, 2), 3)
    weights = random_weights(network, 1)
    session = runtime.InferenceSession(onnx_model(network, weights, {}))
    state = theirs = np.zeros((7, network.memory), np.float32)
    for step in range(3):
        observations = random_observations(network, 7, step)
        scores, actions, theirs = session.run(None, {"observations": observations, "state": theirs})
        state = state.copy()
        expected = lanes.scores(network, weights, observations, memory=state)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(theirs, state, rtol=1e-4, atol=1e-5)
        assert actions.tolist() == expected.argmax(axis=1).tolist()


def test_a_champion_acts_alike_in_a_thousand_states_and_plays_by_the_lines_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    (tmp_path / "small.toml").write_text(small_with(policy="conv = [[4, 3, 2]]\ndense = [5]"))
    called(tmp_path, "small.toml", "--run-dir", "run", "--no-report")
    out, _ = called(tmp_path, "export", "run", "--to", "onnx", "champion.onnx", program="evo")
    assert "3 scores" in out
    champion = evo.Run(tmp_path / "run").champion
    _, seen = states(size=5, window=5, starvation=30, observation="window", actions="relative", mask="fatal")
    session = runtime.InferenceSession(str(tmp_path / "champion.onnx"))
    (actions,) = session.run(["actions"], {"observations": seen})
    assert actions.tolist() == champion(seen).tolist()
    assert len(set(actions.tolist())) > 1
    monkeypatch.chdir(tmp_path)
    (code,) = (block for block in BLOCKS if "InferenceSession" in block)
    exec(code, {})
    env = gymnasium.make("evo/Snake-v0", size=5, window=5, starvation=30, observation="window", actions="relative")
    observation, info, over = *env.reset(seed=1), False
    while not over:
        observation, _, terminated, truncated, info = env.step(champion(observation))
        over = terminated or truncated
    assert capsys.readouterr().out == f"{info['score']}\n"
