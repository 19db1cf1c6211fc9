"""A description becomes layers over one flat vector, in Keras's order and with Keras's scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from evo.errors import ConfigurationError
from evo.kernels import lanes
from evo.networks.network import Network, Options
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.helpers.networks import layered, networks, random_observations, random_weights


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.one_of(networks(), layered()), st.integers(0, 2**32 - 1))
def test_scores_equal_keras_to_one_in_a_hundred_thousand(network: Network, seed: int) -> None:
    from evo.networks.keras_form import build_keras, set_weights

    # Keras takes the variance of one value from its square, which rounds, and then divides by almost nothing.
    assume(not any(layer.norm and layer.filters == 1 for layer in network.layers))
    weights, observations = random_weights(network, seed), random_observations(network, 5, seed + 1)
    model = build_keras(network)
    assert [tuple(array.shape) for array in model.get_weights()] == [a.shape for a in network.split(weights)]
    set_weights(model, network, weights)
    expected = np.asarray(model(observations))
    found = lanes.scores(network, weights, observations)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(layered(memory=True), st.integers(0, 2**32 - 1))
def test_steps_with_memory_equal_keras_to_one_in_a_hundred_thousand(network: Network, seed: int) -> None:
    from evo.networks.keras_form import build_keras, set_weights

    assume(not any(layer.norm and layer.filters == 1 for layer in network.layers))
    weights, model = random_weights(network, seed), build_keras(network)
    assert [tuple(array.shape) for array in model.get_weights()] == [a.shape for a in network.split(weights)]
    set_weights(model, network, weights)
    state = theirs = np.zeros((5, network.memory), np.float32)
    for step in range(3):
        observations = random_observations(network, 5, seed + step)
        expected, theirs = map(np.asarray, model([observations, theirs]))
        state = state.copy()
        found = lanes.scores(network, weights, observations, memory=state)
        assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
        assert np.abs(state - theirs).max() <= 1e-5


def test_the_seed_preset_is_the_network_it_stands_for() -> None:
    network = Network.build(Options(preset="seed"), (10, 10, 1), 4)
    assert network.size == 1_182_904
    assert network == Network.build(
        Options(conv=[[100, 4, 1], [200, 3, 1]], dense=[200], padding="valid"), (10, 10, 1), 4
    )
    assert network.flops == 2 * (49 * 16 * 100 + 25 * 900 * 200 + 5000 * 200 + 200 * 4)


def test_the_layers_of_a_small_network_are_as_counted_by_hand() -> None:
    network = Network.build(Options(conv=[[8, 3, 2]], dense=[16]), (19, 19, 5), 3)
    assert [layer.offset for layer in network.layers] == [0, 368, 368 + 12_816]  # 3*3*5*8+8; 10*10*8*16+16
    assert network.size == 368 + 12_816 + 51
    assert [(layer.out_height, layer.pad, layer.activation) for layer in network.layers] == [
        (10, 1, "relu"),
        (1, 0, "relu"),
        (1, 0, ""),
    ]


def test_a_normalised_network_keeps_gamma_and_beta_behind_each_hidden_layer() -> None:
    plain = Network.build(Options(conv=[[3, 2, 1]], dense=[4], padding="valid"), (4, 4, 2), 3)
    network = Network.build(Options(conv=[[3, 2, 1]], dense=[4], padding="valid", norm="layer"), (4, 4, 2), 3)
    weights = np.arange(network.size, dtype=np.float32)
    arrays = network.split(weights)
    shapes = [(2, 2, 2, 3), (3,), (3,), (3,), (27, 4), (4,), (4,), (4,), (4, 3), (3,)]
    assert [array.shape for array in arrays] == shapes
    assert np.concatenate([array.ravel() for array in arrays]).tolist() == weights.tolist()
    assert network.names()[:5] == ["0_conv_kernel", "0_conv_bias", "0_conv_gamma", "0_conv_beta", "1_dense_kernel"]
    assert network.size == plain.size + 2 * (3 + 4)
    assert network.flops > plain.flops
    assert Options(kind="linear", norm="layer").resolved().norm == "none"  # nothing hidden to normalise


def test_split_gives_views_that_cover_the_vector_in_order() -> None:
    network = Network.build(Options(conv=[[3, 2, 1]], dense=[4], padding="valid"), (4, 4, 2), 3)
    weights = np.arange(network.size, dtype=np.float32)
    arrays = network.split(weights)
    assert [array.shape for array in arrays] == [(2, 2, 2, 3), (3,), (27, 4), (4,), (4, 3), (3,)]
    assert np.concatenate([array.ravel() for array in arrays]).tolist() == weights.tolist()
    assert all(array.base is not None for array in arrays)
    assert len(network.names()) == len(set(network.names())) == len(arrays)


def test_split_refuses_a_vector_of_another_size() -> None:
    network = Network.build(Options(kind="linear"), (4,), 2)
    with pytest.raises(ValueError, match=r"\(11,\).*\(10,\)"):
        network.split(np.zeros(11, np.float32))


@pytest.mark.parametrize("kind", ["mlp", "linear"])
def test_networks_without_convolutions_take_any_shape(kind: str) -> None:
    network = Network.build(Options(kind=kind, dense=[5]), (4, 3, 2), 2)
    assert [layer.kind for layer in network.layers] == ["dense"] * (2 if kind == "mlp" else 1)
    assert network.size == (24 * 5 + 5 + 12 if kind == "mlp" else 24 * 2 + 2)


@pytest.mark.parametrize("shape", [(3, 9, 1), (9, 3, 1)])
def test_an_input_too_small_for_a_valid_convolution_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="too small for a valid 4 x 4"):
        Network.build(Options(conv=[[8, 4, 1]], padding="valid"), shape, 3)


def test_a_convolution_of_something_that_is_no_image_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs an image"):
        Network.build(Options(), (4,), 2)


@pytest.mark.parametrize(
    "keys",
    [
        {"conv": []},
        {"conv": [[8, 3]]},
        {"conv": [[0, 3, 1]]},
        {"conv": [[8, 3, 0]]},
        {"dense": [0]},
        {"dense": [1] * 17},
        {"preset": "seed", "dense": [3]},
        {"preset": "tiny"},
        {"units": 3},
    ],
)
def test_a_description_that_makes_no_sense_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Options(**keys)
