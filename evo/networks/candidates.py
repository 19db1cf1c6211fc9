"""Published weights, and candidates that are rebuilt from them: parent, mate, and the key of the noise.

Noise recipe 1: child[i] = parent[i] + sigma * z[i] in float32, with separate multiplication and addition. Recipe 2,
where weights have standard deviations of their own: child[i] = parent[i] + sigma * (scale[i] * z[i]). The noise
z[i] = (popcount(u[i]) - 16) / sqrt(8) has mean 0 and variance 1; u[i] is word i of the Philox stream of the key. A
fresh network is z * sqrt(2 / fan_in) with biases 0 (He et al., 2015), gamma 1 and beta 0; a fresh tree compares any
inputs with thresholds z. No mathematical library is called, so the weights have the same bits on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.functions import popcount
from evo.errors import DataError, counted
from evo.networks.network import Network
from evo.randomness.philox_compiled import philox
from evo.randomness.streams import philox as philox_plain
from evo.records import WeightSource

kernel_cache.use(__name__)

NOISE, CROSSOVER = 1, 2  # the third word of the Philox counter: what the numbers are used for
SCALE = np.float32(1) / np.sqrt(np.float32(8))
ONE = np.uint64(1)
BEGINNING = np.int64(0)  # typed: a literal would have `noise_from` compiled once more


@njit(cache=True, error_model="numpy", inline="always")
def _normal(word):  # type: ignore[no-untyped-def]
    """Return (popcount(word) - 16) / sqrt(8) as float32 for a 32-bit word held in a uint64."""
    return np.float32(np.int32(popcount(word)) - np.int32(16)) * SCALE


@njit(cache=True, error_model="numpy", nogil=True)
def noise_from(key, first, out):  # type: ignore[no-untyped-def]
    """Fill `out` [M] with the noise of `key` from weight 4 * first on."""
    size = out.shape[0]
    zero, purpose = np.uint64(0), np.uint64(NOISE)
    for block in range(size // 4):
        w0, w1, w2, w3 = philox(key, np.uint64(first + block), zero, purpose, zero)
        out[4 * block] = _normal(w0)
        out[4 * block + 1] = _normal(w1)
        out[4 * block + 2] = _normal(w2)
        out[4 * block + 3] = _normal(w3)
    words = philox(key, np.uint64(first + size // 4), zero, purpose, zero)
    for k in range(size % 4):
        out[size - size % 4 + k] = _normal(words[k])


@njit(cache=True, error_model="numpy", nogil=True)
def noise(key, out):  # type: ignore[no-untyped-def]
    """Fill `out` [P] with the noise of `key`."""
    noise_from(key, BEGINNING, out)


@njit(cache=True, error_model="numpy", nogil=True)
def _mutate(parent, sigma, scale, out):  # type: ignore[no-untyped-def]
    """Turn the noise in `out` into a child; where there is no `scale`, it is None by its type."""
    for i in range(out.shape[0]):
        out[i] = parent[i] + sigma * (out[i] if scale is None else scale[i] * out[i])


@njit(cache=True, error_model="numpy", nogil=True)
def _cross_uniform(parent, mate, key, out):  # type: ignore[no-untyped-def]
    """Uniform crossover: weight i comes from the mate where bit i % 128 of Philox block i // 128 is set."""
    zero, purpose = np.uint64(0), np.uint64(CROSSOVER)
    words = zero, zero, zero, zero
    for i in range(out.shape[0]):
        if i % 128 == 0:
            words = philox(key, np.uint64(i // 128), zero, purpose, zero)
        bits = words[i % 128 // 32]
        out[i] = mate[i] if (bits >> np.uint64(i % 32)) & ONE else parent[i]


def unpublished(source: WeightSource, count: int) -> str:
    """Return which candidate names which row that is not among `count` published ones; empty: none does."""
    for name, rows in (("row", source.rows), ("mate", source.mates), ("scale", np.array([source.scale]))):
        for k in np.flatnonzero((rows < -1) | (rows >= count)):
            return f"candidate {k} names {name} {rows[k]} of {counted(count, 'published row')}"
    return ""


class Rebuilder:
    """Rebuild candidates of one network description."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.fresh_scale = network.fresh_scale
        self._gammas = [
            slice(layer.offset + layer.size - layer.norm_size, layer.offset + layer.size - layer.filters)
            for layer in network.layers
            if layer.norm
        ]
        self._crossed = np.empty(network.size, np.float32)

    def rebuild(self, parents: NDArray[np.float32], source: WeightSource, k: int, out: NDArray[np.float32]) -> None:
        """Write the weights of candidate `k` of `source` into `out` [P]; `parents` are the published weights [S, P].

        Raises DataError where the candidate names a row that is not published.
        """
        row, mate, key, sigma = int(source.rows[k]), int(source.mates[k]), source.keys[k], source.sigmas[k]
        if not all(-1 <= named < len(parents) for named in (row, mate, source.scale)):
            raise DataError(unpublished(source, len(parents)))
        if row < 0:
            self.fresh(key, out)
            return
        parent = parents[row]
        if mate >= 0 and source.crossover != "none":
            if source.crossover == "uniform":
                _cross_uniform(parent, parents[mate], key, self._crossed)
            else:
                self._cross_layers(parent, parents[mate], key)
            parent = self._crossed
        if sigma == 0:
            out[:] = parent
        else:
            noise(key, out)
            _mutate(parent, np.float32(sigma), None if source.scale < 0 else parents[source.scale], out)

    def all(self, parents: NDArray[np.float32], source: WeightSource) -> NDArray[np.float32]:
        """Return the weights of all candidates; read-only, so that they are not hashed again.  # [K, P]"""
        weights = np.empty((len(source), self.network.size), np.float32)
        for k, row in enumerate(weights):
            self.rebuild(parents, source, k, row)
        weights.setflags(write=False)
        return weights

    def drawn(self, key: int) -> NDArray[np.float32]:
        """Return freshly initialised weights, drawn from `key`.  # [P]"""
        weights = np.empty(self.network.size, np.float32)
        self.fresh(np.uint64(key), weights)
        return weights

    def fresh(self, key: np.uint64, out: NDArray[np.float32]) -> None:
        """Write freshly initialised weights, drawn from `key`, into `out` [P]."""
        noise(key, out)
        np.multiply(out, self.fresh_scale, out=out)
        for gamma in self._gammas:
            out[gamma] = 1

    def _cross_layers(self, parent: NDArray[np.float32], mate: NDArray[np.float32], key: np.uint64) -> None:
        for i, layer in enumerate(self.network.layers):
            part = slice(layer.offset, layer.offset + layer.size)
            coin = philox_plain(int(key), (i, 0, CROSSOVER, 0))[0] & 1
            self._crossed[part] = (mate if coin else parent)[part]


class PublishedFiles:
    """Published matrices, mapped into memory read-only: one copy for all workers of a machine."""

    def __init__(self, run_dir: Path) -> None:
        # Files are named by their content, so a name is never another matrix.
        self._mapped = lru_cache(2)(lambda name, size: _map(run_dir / name, size))

    def matrix(self, name: str, size: int) -> NDArray[np.float32]:
        """Return the matrix [S, P] of the file `name`; no file at all, "", is a matrix of no rows.

        Raises DataError where the file is not one contiguous float32 matrix of `size` columns.
        """
        return self._mapped(name, size) if name else np.empty((0, size), np.float32)


def _map(path: Path, size: int) -> NDArray[np.float32]:
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            dataset = file["weights"] if isinstance(file.get("weights", getlink=True), h5py.HardLink) else None
            if not isinstance(dataset, h5py.Dataset):
                raise DataError(f'{path}: no plain dataset "weights"')
            shape, offset = dataset.shape, dataset.id.get_offset()
            plain = dataset.dtype == np.dtype("<f4") and offset is not None and not dataset.is_virtual
            if not plain or dataset.external or len(shape) != 2 or shape[1] != size:
                raise DataError(f"{path}: weights are {dataset.dtype} {shape}, not a contiguous float32 [S, {size}]")
    except OSError as error:
        raise DataError(f"{path}: cannot be read as HDF5: {error}") from error
    return np.memmap(path, np.float32, "r", offset, shape)
