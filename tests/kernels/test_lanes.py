"""The lanes kernel has the same bits as a plain loop, on every lane, width, batch and processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import binding
from numba import njit, typeof

from evo.compiled.views import LINE, aligned
from evo.kernels import lanes, layout, sparse
from evo.kernels.tiles import mask_nonzero
from evo.kernels.vectors import WIDTHS
from evo.networks.network import Network, Options
from tests.helpers.networks import networks, plain_scores, random_observations, random_weights
from tests.kernels.golden_scores import LARGE, NORMED, chosen, golden
from tests.kernels.plain_kernel import forward_plain

ROOT = Path(__file__).parents[2]
GOLDEN = "f024d19c062434fb4aae74ec2cd141963aa603b98b0f0ea7cbf9ce2a60f862cb"  # arithmetic muladd-1
GOLDEN_NORMED = "37a60bb5ecbe55b6d3b61735b6bbf107baf694a3f01ca68f28094047c1241156"
GOLDEN_LARGE = "951eb01bc8256b122751bafae2e53771b41798d9b7d6a3f754bca52c4dbf5db1"
ZEROS = st.sampled_from((0.0, 0.7, 1.0))
GOLDEN_CHOSEN = "f8bfc13cf19ef26cf9d1092cac40d4480108bf31e9b0b1df3507529faa050fdf"  # how actions are drawn from scores


def scores_of_width(
    network: Network,
    weights: np.ndarray,
    observations: np.ndarray,
    width: int,
    forward,
    live: int | None = None,
    memory: np.ndarray | None = None,
) -> np.ndarray:
    """Return the scores of `width` observations, or the first `live`, by a kernel of that width.  # [width, A]

    `memory` [width, S] is the state, zeros where it is None, and becomes the next one.
    """
    if memory is None and network.memory:
        memory = np.zeros((width, network.memory), np.float32)
    layers, packed = lanes.table(network), np.zeros(lanes.packed_size(network), np.float32)
    lanes.pack(layers, weights, packed)
    most = lanes.activation_size(network) * width
    first, second = np.full(most, np.nan, np.float32), np.full(most, np.nan, np.float32)
    out = np.full(network.actions * width, np.nan, np.float32)
    x = np.full(layout.observation_size(network) * width, np.nan, np.float32)
    x[: observations.size] = observations.reshape(width, -1).T.ravel()
    buffers = sparse.buffers_for(layers), lanes.nonzero_mask(network)
    for buffer in (*(buffers[0] or ()), buffers[1]):
        buffer.view(np.uint8).fill(255)  # NaN, or every bit: what is not written must not be read
    forward(layers, packed, *buffers, x, first, second, out, width, live or width, memory, np.arange(width))
    return out.reshape(network.actions, width).T


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, np.float32).tobytes()


@given(networks(), st.integers(0, 2**32 - 1), ZEROS)
def test_scores_equal_a_plain_float32_loop_bit_for_bit(network: Network, seed: int, zeros: float) -> None:
    weights, observations = random_weights(network, seed), random_observations(network, 3, seed + 1, zeros)
    assert bits(lanes.scores(network, weights, observations)) == bits(plain_scores(network, weights, observations))


@given(networks(), st.integers(0, 2**32 - 1), ZEROS)
def test_no_bit_depends_on_the_width_the_lane_or_the_neighbours(network: Network, seed: int, zeros: float) -> None:
    weights, observations = random_weights(network, seed), random_observations(network, 16, seed + 1, zeros)
    expected = scores_of_width(network, weights, observations, 16, lanes.forward)
    for width in WIDTHS:
        order = np.random.default_rng(seed).permutation(16)[:width]
        for forward in (lanes.forward, forward_plain):
            assert bits(scores_of_width(network, weights, observations[order], width, forward)) == bits(expected[order])


@pytest.mark.parametrize("filters", range(1, 2 * layout.BLOCK + 2))
def test_the_kernel_equals_its_plain_form_for_any_number_of_filters(filters: int) -> None:
    network = Network.build(Options(conv=[[filters, 3, 2]], dense=[filters]), (5, 6, 2), 3)
    weights, observations = random_weights(network, filters), random_observations(network, 8, filters)
    found = [scores_of_width(network, weights, observations, 8, f) for f in (lanes.forward, forward_plain)]
    assert bits(found[0]) == bits(found[1])
    assert np.isfinite(found[0]).all()


# Sides and strides that leave every rest of a tile of pixels: one, fewer than a few, nearly all, and a wrapped row.
@pytest.mark.parametrize("width", [8, 4, 2])
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("filters", [1, layout.BLOCK, 2 * layout.BLOCK - 1, 2 * layout.BLOCK + 1])
@pytest.mark.parametrize(
    ("shape", "kernel", "stride"),
    [((3, 3, 2), 3, 1), ((5, 5, 1), 1, 1), ((7, 8, 3), 3, 1), ((9, 6, 2), 4, 2), ((1, 1, 5), 1, 1), ((4, 12, 1), 2, 3)],
)
def test_a_kernel_of_few_lanes_equals_its_plain_form(
    width: int, padding: str, filters: int, shape: tuple[int, ...], kernel: int, stride: int
) -> None:
    network = Network.build(Options(conv=[[filters, kernel, stride]], dense=[filters], padding=padding), shape, 3)
    weights, observations = random_weights(network, filters), random_observations(network, width, kernel)
    found = [scores_of_width(network, weights, observations, width, f) for f in (lanes.forward, forward_plain)]
    assert bits(found[0]) == bits(found[1])
    assert np.isfinite(found[0]).all()


@pytest.mark.parametrize("width", [8, 4, 2])
@pytest.mark.parametrize("side", range(1, 7))
def test_a_kernel_of_few_lanes_writes_nothing_but_its_output(width: int, side: int) -> None:
    network = Network.build(Options(conv=[[9, 3, 1]], dense=[5]), (side, side, 2), 3)
    layers, packed = lanes.table(network), np.zeros(lanes.packed_size(network), np.float32)
    most = lanes.activation_size(network) * width
    guard = np.float32(7)
    first, second = np.full(most + 64, guard), np.full(most + 64, guard)
    out = np.full(3 * width + 64, guard)
    x = np.ones(side * side * 2 * width, np.float32)
    lanes.forward(layers, packed, None, lanes.nonzero_mask(network), x, first, second, out, width, width, None, None)
    assert (out[: 3 * width] == 0).all()
    assert (out[3 * width :] == guard).all()
    assert (first[most:] == guard).all()
    assert (second[5 * width :] == guard).all()


@pytest.mark.parametrize("width", [16, 8, 4])
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "few"),  # rows of up to 64 inputs, and one of more, which is never looked at
    [((9, 7, 2), 3, 1, True), ((10, 4, 32), 2, 1, True), ((3, 21, 3), 5, 2, True), ((5, 5, 13), 5, 1, False)],
)
def test_planes_that_are_mostly_zero_are_computed_from_the_rest(
    shape: tuple[int, ...], kernel: int, stride: int, few: bool, norm: str, width: int
) -> None:
    network = Network.build(Options(conv=[[19, kernel, stride]], dense=[], padding="same", norm=norm), shape, 3)
    weights = random_weights(network, 3)
    for zeros in (0.6, 1.0):
        observations = random_observations(network, width, 4, zeros)
        seen = np.ascontiguousarray(observations.reshape(width, -1).T).ravel()
        nonzero = lanes.nonzero_mask(network)
        assert mask_nonzero(layout.table(network)[0], seen, width, nonzero) == few
        some = observations.any(axis=0).ravel()
        assert not few or sum(int(word).bit_count() for word in nonzero) == some.sum()
        found = [scores_of_width(network, weights, observations, width, f) for f in (lanes.forward, forward_plain)]
        assert bits(found[0]) == bits(found[1])
    dense = random_observations(network, width, 4)
    inputs = np.ascontiguousarray(dense.reshape(width, -1).T).ravel()
    assert not mask_nonzero(layout.table(network)[0], inputs, width, nonzero)


# Four to eight blocks of filters and more, some of them filled in part; borders, strides, and rows of many inputs.
SPARSE = [
    (Options(conv=[[16, 3, 1], [50, 3, 2]], dense=[64], padding="same"), (9, 7, 2)),
    (Options(conv=[[5, 3, 1], [80, 5, 1], [113, 3, 2]], dense=[49]), (11, 12, 2)),
    (Options(conv=[[70, 4, 1], [97, 4, 3]], dense=[130, 200], padding="same"), (5, 13, 1)),
    (Options(conv=[[33, 5, 1], [128, 5, 1]], dense=[], padding="same"), (3, 3, 2)),
    (Options(conv=[[64, 3, 1], [64, 3, 1]], dense=[], padding="same"), (4, 3, 1)),  # the border is 64 inputs
    (Options(kind="mlp", dense=[300, 129, 96], norm="layer"), (4,)),
]


@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("options", "shape"), SPARSE)
def test_layers_without_their_zeros_equal_their_plain_form(
    options: Options, shape: tuple[int, ...], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "LARGE", 0)
    network = Network.build(options, shape, 3)
    assert (layout.table(network)["group"][1:-1] == layout.WIDE).all()
    weights, observations = random_weights(network, 5), random_observations(network, width, 6)
    found = [scores_of_width(network, weights, observations, width, f) for f in (lanes.forward, forward_plain)]
    assert bits(found[0]) == bits(found[1])
    assert np.isfinite(found[0]).all()
    for live in range(1, width):  # the others are left out where a layer is computed lane by lane
        alone = scores_of_width(network, weights, observations, width, lanes.forward, live)
        assert bits(alone[:live]) == bits(found[0][:live])
        assert bits(alone[live:]) != bits(found[0][live:])


@pytest.mark.long
@given(networks(st.one_of(st.integers(1, 19), st.integers(49, 140))), st.integers(0, 2**32 - 1), ZEROS, st.data())
def test_layers_of_any_shape_without_their_zeros_equal_their_plain_form(
    network: Network, seed: int, zeros: float, data: st.DataObject
) -> None:
    width = data.draw(st.sampled_from(WIDTHS))
    live = data.draw(st.integers(1, width))
    weights, observations = random_weights(network, seed), random_observations(network, width, seed + 1, zeros)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LARGE", 0)
        expected = scores_of_width(network, weights, observations, width, forward_plain)
        found = scores_of_width(network, weights, observations, width, lanes.forward, live)
    assert bits(found[:live]) == bits(expected[:live])


@pytest.mark.parametrize("value", [np.nan, np.inf, np.float32(1e-45)])
def test_what_is_not_zero_is_not_left_out(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "LARGE", 0)
    network = Network.build(Options(kind="mlp", dense=[1, 50]), (1,), 1)
    hidden, out = [1.0] * 50 + [0.0] * 50, [2.0**100, *[0.0] * 49, 0.0]
    weights = np.array([1.0, 0.0, *hidden, *out], np.float32)
    observations = np.array([[0.0], [value], [1.0], [-1.0]], np.float32)
    expected = scores_of_width(network, weights, observations, 4, forward_plain)
    found = scores_of_width(network, weights, observations, 4, lanes.forward)
    assert bits(found) == bits(expected)
    assert not np.isfinite(found[1, 0]) or found[1, 0] > 0
    assert found[:, 0].tolist()[::2] == [0.0, 2.0**100]


def test_a_bias_of_minus_zero_is_zero_so_that_the_sign_of_a_zero_never_shows() -> None:
    network = Network.build(Options(conv=[[3, 3, 1]], dense=[5], padding="same"), (6, 6, 2), 2)
    weights = np.full(network.size, -0.0, np.float32)
    for observation in (np.zeros((6, 6, 2), np.float32), np.ones((6, 6, 2), np.float32)):
        beside = np.concatenate([observation[None], random_observations(network, 15, 1)])
        for seen in (observation[None], beside):
            assert not np.signbit(lanes.scores(network, weights, seen)).any()


def test_the_largest_layers_behind_a_relu_are_those_without_their_zeros() -> None:
    seed = Network.build(Options(preset="seed"), (10, 10, 1), 4)
    assert (layout.table(seed)["group"] == layout.WIDE).tolist() == [False, True, True, False]
    wide = Network.build(Options(kind="mlp", dense=[2000, 48, 2000]), (100,), 4)  # the first, few filters, the last
    assert (layout.table(wide)["group"] == layout.WIDE).tolist() == [False, False, True, False]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40])
def test_any_number_of_observations_gets_the_scores_that_each_gets_alone(count: int) -> None:
    network = Network.build(Options(conv=[[9, 3, 2]], dense=[5]), (7, 7, 3), 4)
    weights, observations = random_weights(network, 1), random_observations(network, count, 2)
    alone = [lanes.scores(network, weights, observations[i : i + 1]) for i in range(count)]
    together = lanes.scores(network, weights, observations)
    assert together.shape == (count, 4)
    assert bits(together) == b"".join(bits(score) for score in alone)


@pytest.mark.parametrize("width", [16, 8, 4])
@pytest.mark.parametrize("forward", [lanes.forward, forward_plain])
@pytest.mark.parametrize("norm", ["none", "layer"])
def test_a_nan_survives_relu_and_normalising_and_stays_in_its_lane(forward, width: int, norm: str) -> None:
    network = Network.build(Options(conv=[[9, 3, 1]], dense=[7], norm=norm), (4, 4, 2), 3)
    weights, observations = random_weights(network, 3), random_observations(network, width, 4)
    observations[:, 1:] = 0  # what is 0 in every lane is left out, but not where one is a NaN
    expected = scores_of_width(network, weights, observations, width, forward)
    observations[2, 1, 1, 0] = np.nan
    found = scores_of_width(network, weights, observations, width, forward)
    assert np.isnan(found[2]).all()
    others = [lane for lane in range(width) if lane != 2]
    assert bits(found[others]) == bits(expected[others])


def test_hidden_layers_clip_below_zero_and_the_last_does_not() -> None:
    network = Network.build(Options(kind="mlp", dense=[2]), (2,), 2)
    weights = np.array([1, 0, 0, 1, 0, 0, -1, 1, 0, -2, 0.5, 0], np.float32)
    # Hidden: max(x, 0); scores: -h0 + 0 h1 + 0.5 and h0 - 2 h1.
    scores = lanes.scores(network, weights, np.array([[3, -4], [-3, 4]], np.float32))
    assert scores.tolist() == [[-2.5, 3.0], [0.5, -8.0]]


def test_scores_have_the_pinned_bits() -> None:
    assert golden() == GOLDEN
    assert golden(NORMED) == GOLDEN_NORMED
    assert golden(LARGE, 0.65) == GOLDEN_LARGE
    assert chosen() == GOLDEN_CHOSEN
    for options, shape, actions in LARGE:
        assert sparse.buffers_for(layout.table(Network.build(options, shape, actions))) is not None


@pytest.mark.parametrize("filters", [*range(1, 10), 16, 23])
def test_normalising_equals_its_plain_form_for_any_number_of_filters_and_lanes(filters: int) -> None:
    network = Network.build(Options(conv=[[filters, 3, 2]], dense=[filters], norm="layer"), (5, 6, 2), 3)
    weights, observations = random_weights(network, filters), random_observations(network, 16, filters)
    expected = plain_scores(network, weights, observations)
    assert np.isfinite(expected).all()
    for width in WIDTHS:
        for forward in (lanes.forward, forward_plain):
            found = scores_of_width(network, weights, observations[:width], width, forward)
            assert bits(found) == bits(expected[:width])


def test_a_normalised_layer_is_as_computed_by_hand() -> None:
    network = Network.build(Options(kind="mlp", dense=[2], norm="layer"), (2,), 2)
    # Hidden: x itself, less its mean, by its deviation, times (2, 3) plus (0.5, 0.25); scores: what is left above zero.
    weights = np.array([1, 0, 0, 1, 0, 0, 2, 3, 0.5, 0.25, 1, 0, 0, 1, 0, 0], np.float32)
    unit = 4 / np.sqrt(16 + 1e-3)
    scores = lanes.scores(network, weights, np.array([[5, -3], [-3, 5]], np.float32))
    np.testing.assert_allclose(scores, [[2 * unit + 0.5, 0], [0, 3 * unit + 0.25]], rtol=1e-6)


def without_avx512() -> str:
    features = binding.get_host_cpu_features()
    return ",".join(("-" if name.startswith("avx512") or not on else "+") + name for name, on in features.items())


HASWELL = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": without_avx512()}
WIDEST = "%zmm" if binding.get_host_cpu_features().get("avx512f") else "%ymm"


@pytest.mark.skipif(
    not binding.get_host_cpu_features().get("avx2"), reason="the instruction sets of x86-64 are compared on one"
)
@pytest.mark.parametrize(
    ("settings", "present", "absent"),
    [
        pytest.param({}, WIDEST, "fmadd", id="host", marks=pytest.mark.long),
        pytest.param(HASWELL, "%ymm", "%zmm", id="haswell", marks=pytest.mark.long),
        pytest.param({"NUMBA_CPU_NAME": "generic"}, "%xmm", "%ymm", id="generic", marks=pytest.mark.long),
    ],
)
def test_every_instruction_set_gives_the_pinned_bits(
    settings: dict[str, str], present: str, absent: str, tmp_path: Path
) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_CPU")}
    paths = str(ROOT)
    environment = {**inherited, **settings, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths}
    program = [sys.executable, str(ROOT / "tests" / "kernels" / "golden_scores.py")]
    output = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=300).stdout
    found = json.loads(output)
    assert found[present] > 0, found
    assert found[absent] == 0, found
    assert found["fmadd"] == 0, "a multiplication was fused with an addition"
    assert found["block"] == (8 if present == "%zmm" else 4)
    assert found["golden"] == GOLDEN
    assert found["normed"] == GOLDEN_NORMED
    assert found["large"] == GOLDEN_LARGE
    assert found["chosen"] == GOLDEN_CHOSEN


@pytest.mark.parametrize(("size", "dtype"), [(1, np.float32), (37, np.uint32), (100_000, np.float32)])
def test_kernels_memory_begins_at_a_line_of_the_cache(size: int, dtype: type[np.generic]) -> None:
    for buffer in [aligned(size, dtype) for _ in range(8)]:
        assert buffer.ctypes.data % LINE == 0
        assert (buffer.shape, buffer.dtype, buffer.any()) == ((size,), dtype, False)
        assert buffer.flags.c_contiguous
        assert buffer.flags.writeable


@pytest.mark.parametrize(
    ("options", "shape", "actions"),
    [NORMED[2], pytest.param(*LARGE[1], marks=pytest.mark.long)],
    ids=["small", "large"],
)
def test_what_is_compiled_in_advance_is_what_the_kernel_calls(
    options: Options, shape: tuple[int, ...], actions: int
) -> None:
    network = Network.build(options, shape, actions)
    layers, weights = lanes.table(network), random_weights(network, 1)
    packed = aligned(lanes.packed_size(network))
    lanes.compile_layers(layers, packed, sparse.buffers_for(layers), lanes.nonzero_mask(network), packed)
    forward = njit(error_model="numpy", _nrt=False)(lanes.forward.py_func)  # not from the cache: its calls are resolved
    scores_of_width(network, weights, random_observations(network, 16, 2), 16, forward)
    called = (lanes.compute, lanes.normalise, *[sparse.compute] * (options == LARGE[1][0]))
    for kernel in called:
        assert sum(kinds[0] == typeof(layers[0]) for kinds in kernel.signatures) == 1
