"""Layers for each entry of an observation: the same bits wherever they are computed, and mistakes in a line each."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from evo.errors import ConfigurationError
from evo.exports.networks import layers_of
from evo.exports.onnx_model import onnx_model
from evo.kernels import lanes
from evo.kernels.vectors import WIDTHS
from evo.learning.exact.plan import table_of
from evo.learning.normalisers import ObservationNormaliser
from evo.networks.chain import fitted
from evo.networks.network import Network, Options
from tests.helpers.networks import ENTRIES, branched, plain_scores, random_observations, random_weights
from tests.helpers.sampling import sampled
from tests.kernels.plain_kernel import forward_plain
from tests.kernels.test_lanes import bits, scores_of_width
from tests.learning import plain_passes as plain
from tests.learning.test_exact_learner import regression, squared_slopes


def seen(network: Network, count: int, seed: int = 2) -> np.ndarray:
    observations = random_observations(network, count, seed, 0.3)
    observations[:, 43:52] = np.random.default_rng(seed).integers(0, 3, (count, 9))  # the codes of "map"
    return observations


@pytest.mark.long
@pytest.mark.parametrize("memory", ["", pytest.param("gru 5", marks=pytest.mark.long)])
@pytest.mark.parametrize("forward", sampled([lanes.forward, forward_plain]))
def test_entries_have_the_bits_of_a_plain_loop_on_every_lane(memory: str, forward) -> None:  # type: ignore[no-untyped-def]
    network = branched(memory)
    weights, observations = random_weights(network, 1), seen(network, 16)
    for width in WIDTHS:
        expected = plain_scores(network, weights, observations[:width])
        assert bits(scores_of_width(network, weights, observations[:width], width, forward)) == bits(expected)


@pytest.mark.long
@pytest.mark.parametrize("count", [3, 130])
def test_the_learner_plays_and_derives_the_bits_of_the_plain_form(count: int) -> None:
    network = branched()
    observations, rows = seen(network, count), np.arange(count, dtype=np.int32)
    learner = regression(network, observations, 2)
    outputs = learner.outputs(observations, rows)
    assert bits(outputs) == bits(lanes.scores(network, learner.weights(), observations))
    learner.gradients(rows, {})
    expected = plain.gradient(network, learner.weights(), observations, squared_slopes(outputs, learner))
    assert bits(learner.gradient) == bits(expected)
    parts = [np.abs(part).max() for part in network.split(learner.gradient)]
    assert min(parts) > 0  # every entry's weights learn
    learner.close()


def test_every_number_of_an_entry_counts_and_a_raw_one_is_as_it_is() -> None:
    plain_one = Network.build(Options(kind="linear"), (12,), 2)
    entries = {"a": (5,), "b": (2, 3, 1), "c": (1,)}
    network = Network.build(Options(kind="linear", inputs={"a": {}, "b": {}, "c": {}}).resolved(0, entries), (12,), 2)
    weights, observations = random_weights(plain_one, 3), random_observations(plain_one, 7, 4)
    assert network.size == plain_one.size
    assert bits(lanes.scores(network, weights, observations)) == bits(lanes.scores(plain_one, weights, observations))


def test_a_description_in_json_gives_the_same_network() -> None:
    network = branched()
    again = Options.model_validate(json.loads(json.dumps(network.options.model_dump(), sort_keys=True)))
    assert Network.build(again, network.shape, 3) == network
    assert [part.name for part in network.parts] == list(ENTRIES)
    short = Options(kind="linear", norm="layer", activation="tanh", inputs={"x": {"conv": [[4, 3, 2]], "dense": [6]}})
    assert short.resolved(0, {"x": (5, 5, 1)}).inputs["x"].layers == [
        "conv 4 3 2 same", "norm", "tanh", "dense 6", "norm", "tanh",
    ]  # fmt: skip


def test_arrays_are_exported_with_the_places_of_their_entries() -> None:
    about = layers_of(branched())
    assert {name: (about[f"entry_{name}"], about[f"entry_{name}_shape"]) for name in ENTRIES} == {
        "grid": ([0, 0, 3], (4, 5, 2)), "flags": ([40, 3, 4], (3,)), "map": ([43, 4, 7], (3, 3, 1)),
        "rest": ([52, 7, 8], (9,)),
    }  # fmt: skip


def test_a_graph_computes_what_the_kernel_does() -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    network = branched()
    weights, observations = random_weights(network, 1), seen(network, 9)
    session = runtime.InferenceSession(onnx_model(network, weights, {}))
    (found,) = session.run(["scores"], {"observations": observations})
    np.testing.assert_allclose(found, lanes.scores(network, weights, observations), rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own, where it saves
def test_a_keras_model_is_saved_and_loaded_without_our_code(tmp_path: Path) -> None:
    import keras

    from evo.networks.keras_form import build_keras, set_weights

    network = branched()
    weights, observations = random_weights(network, 1), seen(network, 9)
    model = build_keras(network)
    set_weights(model, network, weights)
    model.save(tmp_path / "model.keras")
    found = keras.models.load_model(tmp_path / "model.keras")(observations)
    np.testing.assert_allclose(found, lanes.scores(network, weights, observations), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"grid": {}, "flag": {}, "map": {}, "rest": {}}, 'no entry "flag" - did you mean `flags`?'),
        ({"x": {}}, 'no entry "x"; there are grid, flags, map, rest'),
        ({"grid": {}, "flags": {}, "map": {}}, r'the entry "rest" \(9\) is missing; {} takes it as it is'),
        ({**{key: {} for key in ENTRIES}, "flags": {"shape": [4]}}, 'the entry "flags" is of 3 numbers, not of 4'),
    ],
)  # fmt: skip
def test_other_entries_than_those_of_the_observation_are_refused(inputs: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=f"policy.inputs: .*{expected}"):
        Options(inputs=inputs).resolved(0, ENTRIES)  # type: ignore[arg-type]


def test_layers_that_do_not_fit_an_entry_are_refused_with_its_name() -> None:
    inputs = {**{key: {} for key in ENTRIES}, "flags": {"conv": [[4, 3, 1]]}}
    with pytest.raises(ConfigurationError, match=r'policy.inputs: "flags": "conv 4 3 1 same" needs an image'):
        Network.build(Options(inputs=inputs).resolved(0, ENTRIES), (61,), 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="only Dict and Tuple observations have entries"):
        fitted(Options(inputs={"x": {}}).inputs, {})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="its entries have 61 numbers, but the observation has 60"):
        Network.build(branched().options, (60,), 3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kind": "cnn"}, 'the layers behind inputs are dense; use "mlp"'),
        ({"conv": [[4, 3, 1]]}, "conv: is for an entry, as in"),
        ({"embed": "one_hot"}, "embed: is for an entry, as in"),
        ({"layers": ["one_hot 4"]}, 'layers: "one_hot 4" is for an entry of inputs'),
        ({"inputs": {"x": {"layers": ["gru 4"]}}}, 'layers: "gru 4" stands behind the layers of all entries'),
        ({"inputs": {"x": {"layers": ["dense 4"], "dense": [4]}}}, "layers: leave out conv and dense"),
        ({"inputs": {"x": {"conv": [[4, 3]]}}}, "is not .filters 1-4096, kernel 1-63, stride 1-63"),
    ],
)
def test_options_that_contradict_entries_are_refused(options: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        Options(**{"inputs": {"x": {}}, **options})  # type: ignore[arg-type]


def test_what_cannot_learn_entries_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"policy\.inputs is not learned on GPUs"):
        table_of(branched(), 1)
    with pytest.raises(ConfigurationError, match=r"and no policy\.inputs"):
        ObservationNormaliser(branched())
    assert math.prod(branched().shape) == 61
