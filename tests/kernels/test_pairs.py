"""The lanes kernel in pairs of bfloat16: the bits of a plain loop, near to the exact kernel, alike in every worker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.evaluators import processes, serial
from evo.kernels import bfloat16_pairs, lanes
from evo.kernels.multiply_add import NATIVE
from evo.networks.network import Network, Options
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Task, WeightSource
from tests.helpers.networks import layered, networks, plain_scores, random_observations, random_weights
from tests.helpers.specs import make, spec


def with_pairs(network: Network) -> Network:
    options = Options(**{**network.options.model_dump(), "inference": "lanes-bfloat16"})
    return Network.build(options, network.shape, network.actions)


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, np.float32).tobytes()


@pytest.mark.long
@given(
    st.one_of(networks(), layered()),
    st.integers(0, 2**32 - 1),
    st.sampled_from(lanes.WIDTHS),
    st.sampled_from((0.0, 0.7)),
)
def test_scores_equal_a_plain_loop_of_rounded_numbers_bit_for_bit(
    network: Network, seed: int, width: int, zeros: float
) -> None:
    network = with_pairs(network)
    weights, observations = random_weights(network, seed), random_observations(network, 16, seed + 1, zeros)
    expected = plain_scores(network, weights, observations, pairs=True)
    assert bits(lanes.scores(network, weights, observations, width)) == bits(expected)


def test_a_hidden_layer_rounds_and_the_last_does_not() -> None:
    network = with_pairs(Network.build(Options(kind="mlp", dense=[1]), (3,), 1))
    fine = np.float32(1 + 2**-12)  # which bfloat16 cannot tell from 1
    weights = np.array([1, fine, 1, 0.25, fine, 0], np.float32)
    scores = lanes.scores(network, weights, np.array([[1, fine, 2], [-8, 1, 1]], np.float32))
    assert scores.ravel().tolist() == [np.float32(4.25) * fine, 0]


@pytest.mark.parametrize("width", lanes.WIDTHS)
def test_a_tiny_sum_does_not_depend_on_what_its_neighbours_see(width: int) -> None:
    network = with_pairs(Network.build(Options(kind="mlp", dense=[16]), (4,), 1))
    weights = np.ones(network.size, np.float32)
    first = network.layers[0]
    weights[first.fan_in * first.filters :][: first.filters] = 1e-39  # which the instruction takes for zero
    weights[network.layers[1].offset :] = 2.0**126
    weights[-1] = 0
    alone, beside = np.zeros((2, width, 4), np.float32)
    beside[1] = 1
    assert bits(lanes.scores(network, weights, alone, width)[0]) == bits(
        lanes.scores(network, weights, beside, width)[0]
    )


FULL = np.full(1, 2**32 - 1, np.uint32).view(np.float32)[0]  # a NaN that overflows where it is rounded like a number


@pytest.mark.parametrize("value", [np.nan, np.inf, FULL])
def test_what_is_not_finite_stays_so_and_in_its_lane(value: float) -> None:
    network = with_pairs(Network.build(Options(conv=[[9, 3, 1]], dense=[7]), (4, 4, 3), 3))
    weights, observations = random_weights(network, 3), random_observations(network, 16, 4)
    expected = lanes.scores(network, weights, observations)
    observations[2, 1, 1, 0] = value
    found = lanes.scores(network, weights, observations)
    assert not np.isfinite(found[2]).any()
    others = [lane for lane in range(16) if lane != 2]
    assert bits(found[others]) == bits(expected[others])


def test_bfloat16_pairs_are_written_only_where_their_inputs_were() -> None:
    network = with_pairs(Network.build(Options(conv=[[9, 3, 1]], dense=[5]), (3, 3, 3), 3))
    layers, packed, pack = lanes.packing(network)
    pack(layers, random_weights(network, 1), packed)
    guard = np.float32(7)
    for width in lanes.WIDTHS:
        most = lanes.activation_size(network) * width
        x, first, second = (np.full(size + 64, guard) for size in (27 * width, most, most))
        out = np.full(3 * width + 64, guard)
        lanes.forward(layers, packed, None, lanes.nonzero_mask(network), x, first, second, out, width, width)
        for array, used in ((x, 27 * width), (first, most), (second, 5 * width), (out, 3 * width)):
            assert (array[used:] == guard).all()


@pytest.mark.long
def test_its_players_agree_with_each_other_and_nearly_with_the_exact_kernel(tmp_path: Path) -> None:
    snake, policy = {"id": "snake", "size": 7}, {"conv": [[9, 3, 2]], "dense": [12]}
    none = np.full(6, -1, np.int32)
    fresh = WeightSource(none, none, np.arange(6, dtype=np.uint64), np.zeros(6, np.float32))
    task = Task(fresh, Episodes(episode_keys(5, Purpose.TRAINING, 0, 40)), record_actions=True)
    rough = spec(tmp_path, snake, {**policy, "inference": "lanes-bfloat16"})
    (exact,) = make(serial, spec(tmp_path, snake, policy)).map([task]).results
    alone = make(serial, rough)
    played = alone.map([task])
    (result,) = played.results
    with make(processes, rough) as pool:
        replayed = pool.map([task])
        (again,) = replayed.results
    assert (result.lengths == exact.lengths).mean() > 0.8
    np.testing.assert_array_equal(again.lengths, result.lengths)
    np.testing.assert_array_equal(again.returns, result.returns)
    assert replayed.fingerprint == played.fingerprint
    assert ("avx512bf16" in played.fingerprint) == NATIVE


def test_the_table_of_pairs_keeps_the_last_layer_and_halves_the_others() -> None:
    network = with_pairs(Network.build(Options(conv=[[9, 3, 1]], dense=[4]), (3, 3, 5), 2))
    layers = bfloat16_pairs.table(network)
    assert layers["channels"].tolist() == [3, 41, 4]
    assert layers["unpaired"].tolist() == [5, 81, 4]
