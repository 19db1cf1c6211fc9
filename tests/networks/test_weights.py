"""A candidate is rebuilt from its name, by a recipe that is written out here a second time, and files are checked."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.errors import DataError
from evo.networks.candidates import CROSSOVER, NOISE, PublishedFiles, Rebuilder, noise
from evo.networks.network import Network, Options
from evo.randomness.streams import philox
from evo.records import WeightSource

NETWORK = Network.build(Options(conv=[[3, 3, 2]], dense=[5]), (6, 7, 2), 3)
KEYS = st.integers(0, 2**64 - 1)
PINNED = [-4, 1, -3, 1, 4, 6, 2, -1]  # bits set of the first words of key 0, less 16


def source(row: int, key: int, sigma: float, mate: int = -1, crossover: str = "none") -> WeightSource:
    return WeightSource(
        np.array([row], np.int32),
        np.array([mate], np.int32),
        np.array([key], np.uint64),
        np.array([sigma], np.float32),
        crossover,
    )


def rebuilt(parents: np.ndarray, names: WeightSource) -> np.ndarray:
    out = np.full(NETWORK.size, np.nan, np.float32)
    Rebuilder(NETWORK).rebuild(parents, names, 0, out)
    return out


def plain_noise(key: int, count: int) -> np.ndarray:
    """Return the noise of `key` by Python's own integers."""
    words = [philox(key, (i // 4, 0, NOISE, 0))[i % 4] for i in range(count)]
    scale = np.float32(1) / np.sqrt(np.float32(8))
    return np.array([np.float32(word.bit_count() - 16) * scale for word in words], np.float32)


def some_parents() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((3, NETWORK.size)).astype(np.float32)


@settings(deadline=None)  # the first call compiles
@given(KEYS, st.integers(0, 41))
def test_noise_is_the_plain_recipe_for_any_length(key: int, count: int) -> None:
    found = np.full(count, np.nan, np.float32)
    noise(np.uint64(key), found)
    assert found.tobytes() == plain_noise(key, count).tobytes()


def test_noise_has_the_pinned_first_values() -> None:
    found = np.empty(8, np.float32)
    noise(np.uint64(0), found)
    assert np.rint(found * np.sqrt(8)).astype(int).tolist() == PINNED
    assert found[0] == np.float32(PINNED[0]) * np.float32(0.35355338)


def test_noise_has_mean_zero_variance_one_and_no_correlation_between_keys() -> None:
    one, other = np.empty(400_000, np.float32), np.empty(400_000, np.float32)
    noise(np.uint64(11), one)
    noise(np.uint64(12), other)
    one, other = one.astype(np.float64), other.astype(np.float64)
    assert abs(one.mean()) < 5 / np.sqrt(one.size)
    assert abs(one.var() - 1) < 5 * np.sqrt(2 / one.size)
    assert abs((one * other).mean()) < 5 / np.sqrt(one.size)
    assert abs((one[1:] * one[:-1]).mean()) < 5 / np.sqrt(one.size)


@settings(max_examples=20, deadline=None)
@given(KEYS, st.floats(2**-10, 16, width=32))
def test_a_child_is_its_parent_plus_sigma_times_noise_rounded_twice(key: int, sigma: float) -> None:
    parents = some_parents()
    product = np.float32(sigma) * plain_noise(key, NETWORK.size)  # rounded here, and again below
    assert rebuilt(parents, source(1, key, sigma)).tobytes() == (parents[1] + product).tobytes()


@pytest.mark.parametrize("row", [0, 2])
def test_a_child_of_sigma_zero_is_its_parent(row: int) -> None:
    parents = some_parents()
    parents[row, :2] = -0.0, np.float32(1e-42)
    assert rebuilt(parents, source(row, 99, 0)).tobytes() == parents[row].tobytes()


def test_a_fresh_network_is_noise_by_the_root_of_two_over_fan_in_and_biases_are_zero() -> None:
    arrays = NETWORK.split(rebuilt(np.empty((0, NETWORK.size), np.float32), source(-1, 5, 0)))
    expected = NETWORK.split(plain_noise(5, NETWORK.size))
    for layer, kernel, bias, z in zip(NETWORK.layers, arrays[0::2], arrays[1::2], expected[0::2], strict=True):
        assert kernel.tobytes() == (z * np.sqrt(np.float32(2) / np.float32(layer.fan_in))).tobytes()
        assert not bias.any()
    assert [layer.fan_in for layer in NETWORK.layers] == [18, 36, 5]


def test_a_fresh_normalised_network_has_gammas_of_one_and_the_same_kernels_as_ever() -> None:
    network = Network.build(Options(conv=[[3, 3, 2]], dense=[5], norm="layer"), (6, 7, 2), 3)
    out = np.full(network.size, np.nan, np.float32)
    Rebuilder(network).rebuild(np.empty((0, network.size), np.float32), source(-1, 5, 0), 0, out)
    z = dict(zip(network.names(), network.split(plain_noise(5, network.size)), strict=True))
    for name, array in zip(network.names(), network.split(out), strict=True):
        if name.endswith("kernel"):
            fan_in = np.float32(array[..., 0].size)
            assert array.tobytes() == (z[name] * np.sqrt(np.float32(2) / fan_in)).tobytes()
        else:
            assert (array == (1 if name.endswith("gamma") else 0)).all(), name


@settings(max_examples=20, deadline=None)
@given(KEYS, st.sampled_from((0.0, 0.25)))
def test_uniform_crossover_takes_every_weight_by_its_own_bit(key: int, sigma: float) -> None:
    parents = some_parents()
    coins = [philox(key, (i // 128, 0, CROSSOVER, 0))[i % 128 // 32] >> (i % 32) & 1 for i in range(NETWORK.size)]
    crossed = np.where(coins, parents[2], parents[0])
    expected = crossed + np.float32(sigma) * plain_noise(key, NETWORK.size) if sigma else crossed
    assert rebuilt(parents, source(0, key, sigma, 2, "uniform")).tobytes() == expected.tobytes()
    assert 0 < sum(coins) < NETWORK.size


@pytest.mark.parametrize("key", range(12))
def test_layer_crossover_takes_whole_layers_with_their_biases(key: int) -> None:
    parents = some_parents()
    expected = []
    for i, layer in enumerate(NETWORK.layers):
        coin = philox(key, (i, 0, CROSSOVER, 0))[0] & 1
        expected.append(parents[2 if coin else 0, layer.offset : layer.offset + layer.size])
    assert rebuilt(parents, source(0, key, 0, 2, "layers")).tobytes() == np.concatenate(expected).tobytes()


def test_a_mate_is_not_mixed_in_where_crossover_is_off() -> None:
    parents = some_parents()
    assert rebuilt(parents, source(0, 7, 0, 2, "none")).tobytes() == parents[0].tobytes()


@pytest.mark.parametrize(("row", "mate"), [(3, -1), (-2, -1), (0, 3), (0, -2)])
def test_a_row_that_was_not_published_is_refused(row: int, mate: int) -> None:
    with pytest.raises(DataError, match=f"names (row {row}|mate {mate}) of 3 published rows"):
        rebuilt(some_parents(), source(row, 0, 1, mate, "uniform"))


def write(path: Path, **options: object) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("weights", **options)


def test_a_published_file_is_mapped_read_only_and_rebuilds_the_same_child(tmp_path: Path) -> None:
    parents = some_parents()
    write(tmp_path / "parents.h5", data=parents)
    mapped = PublishedFiles(tmp_path).matrix("parents.h5", NETWORK.size)
    assert mapped.tobytes() == parents.tobytes()
    assert isinstance(mapped, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        mapped[0, 0] = 1
    for names in (source(1, 3, 0.5), source(1, 3, 0.5, 2, "uniform"), source(1, 3, 0.5, 2, "layers")):
        assert rebuilt(mapped, names).tobytes() == rebuilt(parents, names).tobytes()


def test_no_file_is_a_matrix_of_no_rows(tmp_path: Path) -> None:
    assert PublishedFiles(tmp_path).matrix("", 7).shape == (0, 7)


def test_a_file_is_mapped_once_and_the_oldest_are_let_go(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / name, data=some_parents())
    files = PublishedFiles(tmp_path)
    first = files.matrix("a", NETWORK.size)
    assert files.matrix("a", NETWORK.size) is first
    files.matrix("b", NETWORK.size)
    files.matrix("c", NETWORK.size)
    assert files.matrix("a", NETWORK.size) is not first


@pytest.mark.parametrize(
    "options",
    [
        {"data": np.zeros((3, NETWORK.size + 1), np.float32)},
        {"data": np.zeros(NETWORK.size, np.float32)},
        {"data": np.zeros((3, NETWORK.size), np.float64)},
        {"data": np.zeros((3, NETWORK.size), ">f4")},
        {"data": np.zeros((3, NETWORK.size), np.int32)},
        {"data": np.zeros((3, NETWORK.size), np.float32), "chunks": True},
        {"data": np.zeros((3, NETWORK.size), np.float32), "compression": "gzip"},
        {"data": np.zeros((0, NETWORK.size), np.float32)},
    ],
    ids=["columns", "flat", "float64", "big-endian", "int32", "chunks", "filter", "empty"],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, options: dict[str, object]) -> None:
    write(tmp_path / "parents.h5", **options)
    with pytest.raises(DataError, match=r"parents\.h5: weights are"):
        PublishedFiles(tmp_path).matrix("parents.h5", NETWORK.size)


def test_links_external_data_and_virtual_datasets_are_refused(tmp_path: Path) -> None:
    shape = (3, NETWORK.size)
    write(tmp_path / "good.h5", data=some_parents())
    (tmp_path / "raw").write_bytes(bytes(4 * shape[0] * shape[1]))
    with h5py.File(tmp_path / "soft", "w") as file:
        file["other"] = some_parents()
        file["weights"] = h5py.SoftLink("/other")
    with h5py.File(tmp_path / "link", "w") as file:
        file["weights"] = h5py.ExternalLink("good.h5", "/weights")
    with h5py.File(tmp_path / "virtual", "w") as file:
        layout = h5py.VirtualLayout(shape, np.float32)
        layout[:] = h5py.VirtualSource(str(tmp_path / "good.h5"), "weights", shape)
        file.create_virtual_dataset("weights", layout)
    write(tmp_path / "external", shape=shape, dtype=np.float32, external=[("raw", 0, h5py.h5f.UNLIMITED)])
    with h5py.File(tmp_path / "group", "w") as file:
        file.create_group("weights")
    with h5py.File(tmp_path / "nothing", "w"):
        pass
    for name in ("soft", "link", "virtual", "external", "group", "nothing"):
        with pytest.raises(DataError, match=name):
            PublishedFiles(tmp_path).matrix(name, NETWORK.size)


@pytest.mark.parametrize("keep", [0, 100, 2000])
def test_a_file_that_is_missing_or_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    write(tmp_path / "parents.h5", data=some_parents())
    content = (tmp_path / "parents.h5").read_bytes()
    (tmp_path / "parents.h5").write_bytes(content[:keep])
    for name in ("parents.h5", "absent.h5"):
        with pytest.raises(DataError, match=name):
            PublishedFiles(tmp_path).matrix(name, NETWORK.size)
