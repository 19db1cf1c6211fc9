"""Layers in any order: how they are described, what they compute, and that other networks are as they were."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from evo.compiled import exact
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError
from evo.kernels import lanes, layout, sparse
from evo.kernels.vectors import WIDTHS
from evo.kernels.weightless import tanh
from evo.networks.candidates import Rebuilder
from evo.networks.layer import FORMS, parse
from evo.networks.network import Network, Options
from evo.store.champion import network_layers
from evo.training.beginning import fit
from tests.helpers.networks import layered, plain_scores, random_observations, random_weights
from tests.helpers.sampling import sampled
from tests.kernels.plain_kernel import forward_plain
from tests.kernels.test_lanes import ZEROS, bits, scores_of_width

SHAPE = (10, 10, 1)


KERNELS = sampled([lanes.forward, forward_plain])


@pytest.mark.parametrize("forward", KERNELS)
@given(network=layered(trees=True), seed=st.integers(0, 2**32 - 1), zeros=ZEROS, data=st.data())
def test_layers_in_any_order_have_the_bits_of_a_plain_loop_on_every_lane(
    network: Network, seed: int, zeros: float, data: st.DataObject, forward: Any
) -> None:
    width = data.draw(st.sampled_from(WIDTHS))
    weights, observations = random_weights(network, seed), random_observations(network, width, seed + 1, zeros)
    weights[np.random.default_rng(seed).random(len(weights)) < 0.1] = -0.0
    expected = bits(plain_scores(network, weights, observations))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LARGE", data.draw(st.sampled_from((0, layout.LARGE))))
        assert bits(scores_of_width(network, weights, observations, width, forward)) == expected


@pytest.mark.long
@pytest.mark.parametrize("forward", KERNELS)
@given(network=layered(memory=True), seed=st.integers(0, 2**32 - 1), zeros=ZEROS, data=st.data())
def test_recurrent_layers_have_the_bits_of_a_plain_loop_step_by_step_on_every_lane(
    network: Network, seed: int, zeros: float, data: st.DataObject, forward: Any
) -> None:
    width = data.draw(st.sampled_from(WIDTHS))
    weights = random_weights(network, seed)
    weights[np.random.default_rng(seed).random(len(weights)) < 0.1] = -0.0
    state = np.zeros((2, width, network.memory), np.float32)
    for step in range(4):
        observations = random_observations(network, width, seed + 1 + step, zeros)
        expected = bits(plain_scores(network, weights, observations, state[0]))
        live = width if step < 3 else 1
        idle = bits(state[1, live:])
        found = scores_of_width(network, weights, observations, width, forward, live, state[1])
        assert bits(found[:live]) == expected[: len(expected) // width * live]
        assert bits(state[1, :live]) == bits(state[0, :live])
        if step == 1:
            state[:, 1] = 0  # an episode has begun in one of the lanes
        assert bits(state[1, live:]) == idle  # idle lanes keep theirs


# More filters than a block, and large layers that skip zeros behind a pool, one-hot planes, and no zeros behind tanh.
WIDE = [
    ["one_hot 4", "conv 64 4 1 valid", "relu", "max_pool 2 1", "conv 70 3 1", "tanh", "dense 80", "relu", "dense 60"],
    ["one_hot 3", "dense 100", "norm", "relu", "dense 130", "norm"],
    ["conv 17 3 1", "average_pool 3 2", "norm", "tanh", "max_pool 2 2 valid", "relu", "conv 65 2 1", "relu", "norm"],
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("texts", "large"),
    [(texts, large) for texts in WIDE for large in (0, layout.LARGE)],
)
def test_wide_layers_in_any_order_have_the_bits_of_a_plain_loop(
    texts: list[str], large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "LARGE", large)
    network = Network.build(Options(layers=texts), (8, 7, 2), 3)
    weights, observations = random_weights(network, 1), random_observations(network, 16, 2)
    expected = plain_scores(network, weights, observations)
    assert np.isfinite(expected).all()
    for width in WIDTHS:
        found = scores_of_width(network, weights, observations[:width], width, lanes.forward)
        assert bits(found) == bits(expected[:width])
    sparse_layers = (layout.table(network)["group"] == layout.WIDE).nonzero()[0].tolist()
    assert sparse_layers == ([] if large else [[1, 3, 5], [1, 2], [3]][WIDE.index(texts)])


@pytest.mark.parametrize(
    "value", [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-45, 1e-38, 3.0, 1.5, -1.0, 3.0000002, 1e30]
)
@pytest.mark.parametrize(
    "text", sampled(["one_hot 4", "max_pool 2 1", "average_pool 2 1", "tree 2", "relu", "tanh"], 0, 1, 2, 4, 5)
)
def test_special_numbers_are_as_in_the_plain_loop_and_stay_in_their_lane(text: str, value: float) -> None:
    network = Network.build(Options(layers=[text]), (3, 2, 2), 1)
    weights = np.ones(network.size, np.float32)
    weights[: network.layers[0].nodes] = 6.5  # a tree looks at the value
    for width in WIDTHS:
        observations = np.zeros((width, 3, 2, 2), np.float32)
        observations[:, 1, 0, 1] = np.arange(width) / 4
        observations[1, 1, 1, 0] = value
        with np.errstate(invalid="ignore"):
            expected = plain_scores(network, weights, observations)
        found = scores_of_width(network, weights, observations, width, lanes.forward)
        np.testing.assert_array_equal(found, expected)
        assert (np.signbit(found) == np.signbit(expected))[~np.isnan(found)].all()
        assert np.isnan(found[1]).all() == math.isnan(value)


@pytest.mark.long
def test_one_hot_planes_are_one_where_the_code_is_and_zero_elsewhere() -> None:
    network = Network.build(Options(kind="linear", embed="one_hot", codes=3), (2,), 6)
    weights = np.concatenate([np.eye(6), np.zeros((1, 6))]).astype(np.float32).ravel()
    seen = np.array([[0, 2], [1, -0.0], [2, 3], [0.5, -1]], np.float32)
    assert lanes.scores(network, weights, seen).tolist() == [
        [1, 0, 0, 0, 0, 1], [0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0],
    ]  # fmt: skip


def test_a_pool_takes_only_cells_of_the_board() -> None:
    seen = -np.arange(1, 7, dtype=np.float32).reshape(1, 2, 3, 1)  # all negative: a zero of padding would be larger
    found = {}
    for text in ("max_pool 2", "average_pool 2", "max_pool 2 1 valid", "average_pool 2 1 valid"):
        network = Network.build(Options(layers=[text]), (2, 3, 1), 2)
        weights = np.concatenate([np.eye(2).ravel(), [0, 0]]).astype(np.float32)
        found[text] = lanes.scores(network, weights, seen)[0].tolist()
    assert found == {
        "max_pool 2": [-1, -3], "average_pool 2": [-3, -4.5], "max_pool 2 1 valid": [-1, -2],
        "average_pool 2 1 valid": [-3, -4],
    }  # fmt: skip


def test_tanh_is_right_to_seven_units_in_the_last_place_and_never_beyond_one() -> None:
    random = np.random.default_rng(1)
    sizes = np.concatenate([np.exp(random.uniform(-100, 3, 20_000)), random.uniform(0, 10, 20_000), [1e-45, 1e30]])
    x = np.concatenate([sizes, -sizes]).astype(np.float32)
    found = np.array([tanh(value) for value in x])  # Numba returns Python's floats
    assert (found == found.astype(np.float32)).all()
    expected = np.array([exact.tanh(float(value)) for value in x])
    units = np.abs(found - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert units.max() <= 7
    assert np.abs(found).max() == 1
    assert tanh(np.float32(np.inf)) == 1
    assert np.isnan(tanh(np.float32(np.nan)))
    assert math.copysign(1, tanh(np.float32(-0.0))) == -1


@pytest.mark.parametrize(
    ("short", "texts"),
    [
        (Options(preset="seed", embed="one_hot", codes=4),
         ["one_hot 4", "conv 100 4 1 valid", "relu", "conv 200 3 1 valid", "relu", "dense 200", "relu"]),
        (Options(conv=[[8, 3, 2]], dense=[5], norm="layer", activation="tanh"),
         ["conv 8 3 2", "norm", "tanh", "dense 5", "norm", "tanh"]),
        (Options(kind="mlp", dense=[5]), ["dense 5", "relu"]),
        (Options(kind="linear", embed="one_hot", codes=2), ["one_hot 2"]),
        (Options(kind="mlp", dense=[5], norm="layer", memory="gru:7"), ["dense 5", "norm", "relu", "gru 7"]),
        (Options(conv=[[8, 3, 2]], dense=[], memory="lstm:7"), ["conv 8 3 2", "relu", "lstm 7"]),
    ],
)  # fmt: skip
def test_the_short_form_is_a_list_of_layers(short: Options, texts: list[str]) -> None:
    one, other = (Network.build(options, SHAPE, 4) for options in (short, Options(layers=texts)))
    assert one.layers == other.layers
    assert one.names() == other.names()


def test_weights_are_named_by_their_layer_and_fresh_ones_are_as_inputs_need() -> None:
    texts = ["norm", "conv 2 3 1", "relu", "tanh", "max_pool 2", "norm", "norm", "dense 3", "relu", "gru 9"]
    network = Network.build(Options(layers=texts), SHAPE, 4)
    assert network.names() == [
        "0_identity_gamma", "0_identity_beta", "1_conv_kernel", "1_conv_bias", "3_max_pool_gamma", "3_max_pool_beta",
        "4_identity_gamma", "4_identity_beta", "5_dense_kernel", "5_dense_bias", "6_gru_kernel",
        "6_gru_recurrent_kernel", "6_gru_bias", "7_dense_kernel", "7_dense_bias",
    ]  # fmt: skip
    weights = np.empty(network.size, np.float32)
    Rebuilder(network).fresh(np.uint64(1), weights)
    arrays = dict(zip(network.names(), network.split(weights), strict=True))
    for name, array in arrays.items():
        if name.endswith("kernel"):
            assert 0.5 < array.std() / math.sqrt(2 / np.prod(array.shape[:-1])) < 1.5
        else:
            assert (array == name.endswith("gamma")).all()
    assert fit(weights, network_layers(network), network).tolist() == weights.tolist()
    other = Network.build(Options(layers=["norm", "conv 2 3 1", *texts[4:]]), SHAPE, 4)  # without its activations
    with pytest.raises(ConfigurationError, match="2_max_pool_gamma is absent, here 2"):
        fit(weights, network_layers(network), other)
    flops = [100 * 7, 100 * 2 * 2 * 9, 0, 25 * 2 * (4 + 7), 25 * 2 * 7, 3 * 2 * 50, 2 * 27 * 12 + 9 * 3 * 28, 4 * 2 * 9]
    assert [layer.flops for layer in network.layers] == flops


def test_a_recurrent_layer_has_the_arrays_of_keras_and_a_state() -> None:
    network = Network.build(Options(layers=["conv 2 3 1", "gru 5", "norm", "relu", "lstm 4"]), (3, 3, 1), 2)
    assert (network.memory, [layer.memory for layer in network.layers]) == (5 + 8, [0, 5, 8, 0])
    arrays = dict(zip(network.names(), network.split(np.zeros(network.size, np.float32)), strict=True))
    assert {name: array.shape for name, array in arrays.items() if name[0] in "12"} == {
        "1_gru_kernel": (18, 15), "1_gru_recurrent_kernel": (5, 15), "1_gru_bias": (2, 15), "1_gru_gamma": (5,),
        "1_gru_beta": (5,), "2_lstm_kernel": (5, 16), "2_lstm_recurrent_kernel": (4, 16), "2_lstm_bias": (16,),
    }  # fmt: skip
    products = [9 * 2 * 9, (18 + 5) * 15, (5 + 4) * 16, 4 * 2]
    assert [layer.multiply_adds for layer in network.layers] == products
    assert Network.build(Options(kind="linear"), (4,), 2).memory == 0


@pytest.mark.parametrize("kind", FORMS)
def test_a_line_is_read_as_it_is_written(kind: str) -> None:
    numbers = tuple(range(5, 5 + len(FORMS[kind].numbers)))
    for padding in ("", *(("same", "valid") if FORMS[kind].padded else ())):
        text = " ".join([kind, *map(str, numbers), *([padding] if padding else [])])
        assert str(parse(f"  {text.replace(' ', '   ')}")) == text
    assert (str(parse("conv 5 3")), str(parse("max_pool 3 valid"))) == ("conv 5 3 1", "max_pool 3 3 valid")


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ('["conv 8 3", "max_pol 2"]', 'policy.layers[1]: "max_pol 2" is not known - did you mean `max_pool`?'),
        ('["flatten"]', 'policy.layers[0]: "flatten" is not known; there are one_hot, conv, dense, max_pool, '
         "average_pool, tree, gru, lstm, norm, relu, tanh"),
        ('[""]', 'policy.layers[0]: "" is not known; there are'),
        ('["conv 8"]', 'policy.layers[0]: "conv 8" is not of the form "conv FILTERS KERNEL [STRIDE] [same | valid]"'),
        ('["relu 3"]', 'policy.layers[0]: "relu 3" is not of the form "relu"'),
        ('["conv 8 0 1"]', 'policy.layers[0]: "conv 8 0 1": kernel must be a whole number from 1 to 63'),
        ('["tree 11"]', 'policy.layers[0]: "tree 11": depth must be a whole number from 1 to 10'),
        ('["tree 3"]\ninference = "tensorflow"', 'policy.inference: "tree 3" is played by "lanes" alone, not by '
         '"tensorflow"'),
        ('["dense 1e3"]', 'policy.layers[0]: "dense 1e3": units must be a whole number from 1 to 65,536'),
        ('["one_hot 1"]', 'policy.layers[0]: "one_hot 1": codes must be a whole number from 2 to 256'),
        ('["max_pool 2 smae"]', 'policy.layers[0]: "max_pool 2 smae": the padding is same or valid - did you mean '
         "`same`?"),
        ('["dense 8", "conv 8 3"]', 'policy.layers: "conv 8 3 1" is layer 2, behind "dense 8", whose '
         "output has no rows and columns"),
        ('["relu", "one_hot 4"]', 'policy.layers: "one_hot 4" is layer 2, but only the observation has codes; it must '
         "be the first"),
        ('["one_hot"]', "policy.layers: the environment does not say how many codes its observations have; say it, "
         'as in "one_hot 4"'),
        ('["max_pool 20 2 valid"]', "policy.layers: a 19 x 19 input is too small for a valid 20 x 20 pool (layer 1); "
         'use padding = "same" or a larger board'),
        ('["relu"]\ndense = [3]', "policy.dense: leave it out, since layers lists all hidden layers"),
        ('["relu"]\nembed = "one_hot"', "policy.embed: leave it out, since layers lists all hidden layers"),
        ('[["conv", 3]]', "policy.layers[0]: must be text in quotes, not a list"),
        ('"relu"', 'policy.layers: must be a list, as in ["relu"]'),
        ("[]\ncodes = 3", 'policy.codes: only embed = "one_hot" has codes'),
        ('["gru"]', 'policy.layers[0]: "gru" is not of the form "gru UNITS"'),
        ('["lstm 4097"]', 'policy.layers[0]: "lstm 4097": units must be a whole number from 1 to 4,096'),
        ('["gru 3", "conv 8 3"]', 'policy.layers: "conv 8 3 1" is layer 2, behind "gru 3", whose output has no '
         "rows and columns"),
        ('[]\nmemory = "gru"', 'policy.memory: "gru" is not of the form "gru:UNITS" or "lstm:UNITS"'),
        ('[]\nmemory = "dense:3"', 'policy.memory: "dense:3" is not of the form "gru:UNITS" or "lstm:UNITS"'),
        ('[]\nmemory = "gru:0"', 'policy.memory: "gru 0": units must be a whole number from 1 to 4,096'),
        ('["relu"]\nmemory = "gru:3"', "policy.memory: leave it out, since layers lists all hidden layers"),
        ('[]\nmemory = "gru:3"\ninference = "tensorflow"', 'policy.inference: memory is played by "lanes" alone, not '
         'by "tensorflow"'),
        ('[]\nembed = "one-hot"', 'policy.embed: must be one of "none", "one_hot", not "one-hot" - did you mean '
         "`one_hot`?"),
        ('[]\nembed = "one_hot"', "policy.embed: the environment does not say how many codes its observations have; "
         "say it, as in policy.codes = 4"),
    ],
)  # fmt: skip
def test_every_mistake_is_a_line_that_says_where_and_what_to_do(tmp_path: Path, layers: str, told: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(f"[policy]\nlayers = {layers}\n")
    with pytest.raises(ConfigurationError) as caught:
        Experiment.load(path)
    (line,) = str(caught.value).splitlines()
    place, _, text = line.removeprefix(f"{path}:").partition(": ")
    assert text.startswith(told), text
    assert place in "1234"


def test_a_line_of_numbers_has_no_windows() -> None:
    with pytest.raises(ConfigurationError, match=r'policy.layers: "max_pool 2 2 same" needs an image'):
        Network.build(Options(layers=["max_pool 2"]), (4,), 2)


def test_the_environment_says_how_many_codes_there_are(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('[environment]\nobservation = "frame"\n')
    embedded, listed = (
        Experiment.load(path, 'policy.embed="one_hot"'),
        Experiment.load(path, 'policy.layers=["one_hot", "conv 8 3"]'),
    )
    assert (embedded.policy.codes, listed.policy.layers) == (4, ["one_hot 4", "conv 8 3 1 same"])
    assert embedded.network().layers[0].filters == 4
    for experiment in (embedded, listed):  # what is written is read again, and is the same run
        again = tmp_path / "again.toml"
        again.write_text(experiment.to_toml())
        assert Experiment.load(again).identity() == experiment.identity()
        assert Experiment.load(again).policy == experiment.policy
    assert Experiment.load(path, 'policy.embed="one_hot"', "policy.codes=6").policy.codes == 6
    with pytest.raises(ConfigurationError, match=r"--set policy.codes: 3 codes, but the observation has 4"):
        Experiment.load(path, 'policy.embed="one_hot"', "policy.codes=3")
    with pytest.raises(ConfigurationError, match="3 codes, but the observation has 4"):
        Experiment.load(path, 'policy.layers=["one_hot 3"]')


def test_options_at_their_defaults_are_no_part_of_a_run_s_identity(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('[policy]\nembed = "none"\ncodes = 0\nlayers = []\n')
    assert Experiment.load(path).identity()["policy"].keys() == {
        "kind", "preset", "conv", "dense", "padding", "norm", "inference",
    }  # fmt: skip


def test_networks_of_the_short_form_with_relus_have_the_kernels_of_before() -> None:
    usual = [Options(), Options(preset="seed"), Options(norm="layer"), Options(kind="linear")]
    assert {layout.table(Network.build(options, SHAPE, 4)).dtype for options in usual} == {layout.LAYER}
    others = [Options(activation="tanh"), Options(embed="one_hot", codes=4), Options(layers=["conv 3 3"])]
    assert {layout.table(Network.build(options, SHAPE, 4)).dtype for options in others} == {layout.ANY_LAYER}


@pytest.mark.long
def test_the_first_weights_behind_one_hot_planes_skip_those_that_no_lane_has() -> None:
    network = Network.build(Options(preset="seed", embed="one_hot", codes=4), SHAPE, 4)
    mask = lanes.nonzero_mask(network)
    assert mask is not None
    assert len(mask) == -(-400 // 64) + 1
    seen = np.zeros((16, *SHAPE), np.float32)
    weights = random_weights(network, 1)
    assert bits(lanes.scores(network, weights, seen)) == bits(
        scores_of_width(network, weights, seen, 16, forward_plain)
    )
    assert (layout.table(network)["group"] == layout.WIDE).tolist() == [False, False, True, True, False]
    assert sparse.buffers_for(layout.table(network)) is not None


def test_more_layers_than_64_are_refused() -> None:
    with pytest.raises(ValidationError):
        Options(layers=["relu"] * 65)
