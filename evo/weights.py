"""From names to weights: map a published file into memory, and rebuild a candidate from its parent and its noise.

Noise recipe 1: child[i] = parent[i] + sigma * z[i] in float32, multiplication and addition apart, with
z = (popcount(u) - 16) / sqrt(8), which has mean 0 and variance 1, for word i of the key's Philox stream. A fresh
network is z * sqrt(2 / fan_in) with biases 0 (He et al., 2015); where layers are normalised, gamma is 1 and
beta 0. Nothing here calls a mathematical library.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.directory.durable import resources, write_all
from evo.errors import DataError
from evo.policies.network import Network
from evo.records import Rebuild, WeightSource
from snake import kernel_cache
from snake.batch import popcount
from snake.philox_compiled import philox

kernel_cache.use(__name__)

NOISE_RECIPE = 1
NOISE, CROSSOVER = 1, 2  # which numbers of a candidate's stream: the third word of the counter
CROSSOVERS = ("none", "uniform", "layers")
SCALE = np.float32(1) / np.sqrt(np.float32(8))
ONE = np.uint64(1)


@njit(cache=True, error_model="numpy", inline="always")
def _normal(word):  # type: ignore[no-untyped-def]
    """Return (popcount(word) - 16) / sqrt(8) as float32 for a 32-bit word held in a uint64."""
    return np.float32(np.int32(popcount(word)) - np.int32(16)) * SCALE


@njit(cache=True, error_model="numpy", nogil=True)
def noise(key, out):  # type: ignore[no-untyped-def]
    """Fill `out` [P] with the noise of `key`."""
    size = out.shape[0]
    zero, purpose = np.uint64(0), np.uint64(NOISE)
    for block in range(size // 4):
        w0, w1, w2, w3 = philox(key, np.uint64(block), zero, purpose, zero)
        out[4 * block] = _normal(w0)
        out[4 * block + 1] = _normal(w1)
        out[4 * block + 2] = _normal(w2)
        out[4 * block + 3] = _normal(w3)
    if size % 4:
        block = size // 4
        w0, w1, w2, w3 = philox(key, np.uint64(block), zero, purpose, zero)
        out[4 * block] = _normal(w0)
        if size % 4 > 1:
            out[4 * block + 1] = _normal(w1)
        if size % 4 > 2:
            out[4 * block + 2] = _normal(w2)


@njit(cache=True, error_model="numpy", nogil=True)
def _mutate(parent, sigma, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        out[i] = parent[i] + sigma * out[i]


@njit(cache=True, error_model="numpy", nogil=True)
def _cross_uniform(parent, mate, key, out):  # type: ignore[no-untyped-def]
    """Take every weight from one of two parents by a coin of its own: bit i % 128 of block i // 128."""
    zero, purpose = np.uint64(0), np.uint64(CROSSOVER)
    w0 = w1 = w2 = w3 = zero
    for i in range(out.shape[0]):
        if i % 128 == 0:
            w0, w1, w2, w3 = philox(key, np.uint64(i // 128), zero, purpose, zero)
        word = i % 128 // 32
        bits = w0 if word == 0 else (w1 if word == 1 else (w2 if word == 2 else w3))
        out[i] = mate[i] if (bits >> np.uint64(i % 32)) & ONE else parent[i]


class Rebuilder:
    """Rebuilds the candidates of one network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.fresh_scale = np.zeros(network.size, np.float32)  # [P] sqrt(2 / fan_in), 0 for all but kernels
        for layer in network.layers:
            kernel = slice(layer.offset, layer.offset + layer.fan_in * layer.filters)
            self.fresh_scale[kernel] = np.sqrt(np.float32(2) / np.float32(layer.fan_in))
        self._gammas = [
            slice(layer.offset + layer.size - layer.norm_size, layer.offset + layer.size - layer.filters)
            for layer in network.layers
            if layer.norm
        ]
        self._crossed = np.empty(network.size, np.float32)

    def rebuild(self, parents: NDArray[np.float32], source: WeightSource, k: int, out: NDArray[np.float32]) -> None:
        """Write the weights of candidate `k` of `source` into `out` [P]; `parents` is the published matrix [S, P]."""
        row, mate, key, sigma = int(source.rows[k]), int(source.mates[k]), source.keys[k], source.sigmas[k]
        if not (-1 <= row < len(parents) and -1 <= mate < len(parents)):
            raise DataError(f"candidate {k} names row {row} and mate {mate} of {len(parents)} published rows")
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
            _mutate(parent, np.float32(sigma), out)

    def fresh(self, key: np.uint64, out: NDArray[np.float32]) -> None:
        """Write the weights of the fresh network of `key` into `out` [P]."""
        noise(key, out)
        np.multiply(out, self.fresh_scale, out=out)
        for gamma in self._gammas:
            out[gamma] = 1

    def _cross_layers(self, parent: NDArray[np.float32], mate: NDArray[np.float32], key: np.uint64) -> None:
        from snake.philox import philox as philox_plain

        for i, layer in enumerate(self.network.layers):
            part = slice(layer.offset, layer.offset + layer.size)
            coin = philox_plain(int(key), (i, 0, CROSSOVER, 0))[0] & 1
            self._crossed[part] = (mate if coin else parent)[part]


class PublishedFiles:
    """Published matrices, mapped into memory read-only: one copy for all workers of a machine."""

    def __init__(self, run_dir: Path, keep: int = 2) -> None:
        self._run_dir, self._keep = run_dir, keep
        self._mapped: OrderedDict[str, _Mapped] = OrderedDict()
        self._row = np.empty(0, np.float32)

    def matrix(self, name: str, size: int) -> NDArray[np.float32]:
        """Return the matrix [S, P] of the file `name`; no file at all, "", is a matrix of no rows.

        Raises DataError where the file is not one contiguous float32 matrix of `size` columns.
        """
        if not name:
            return np.empty((0, size), np.float32)
        path, known = self._run_dir / name, self._mapped.get(name)
        if known is None or known.inode != _inode(path):  # a file of that name, but another one: its memory is reused
            self._mapped[name] = known = _Mapped(_map(path, size), _inode(path))
            if len(self._mapped) > self._keep:
                self._mapped.popitem(last=False)
        return known.weights

    def rebuild(self, task: Rebuild, rebuilder: Rebuilder) -> list[bytes]:
        """Write candidates to where the task says, and return the SHA-256 of each; ResourceError: the disk is full."""
        size = rebuilder.network.size
        parents = self.matrix(task.weights.published, size)
        if len(self._row) != size:
            self._row = np.empty(size, np.float32)
        digests = []
        with resources("write", self._run_dir / task.file), open(self._run_dir / task.file, "r+b", buffering=0) as file:
            file.seek(task.offset)
            for k in range(len(task.weights)):
                rebuilder.rebuild(parents, task.weights, k, self._row)
                write_all(file.fileno(), self._row.view(np.uint8).data)
                digests.append(hashlib.sha256(self._row.data).digest())
        return digests


class _Mapped(NamedTuple):
    weights: NDArray[np.float32]
    inode: tuple[int, int]


def _inode(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return status.st_dev, status.st_ino


def _map(path: Path, size: int) -> NDArray[np.float32]:
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
