"""Numba's CUDA simulator as a device: every thread is one of Python's, every value one of NumPy's.

NUMBA_ENABLE_CUDASIM=1 must be in the environment when Numba is imported. Arithmetic of float32 scalars of arrays is
IEEE 754, so all bits are those of the CPU's kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from evo.compiled import views
from evo.cuda import plain
from evo.cuda.launch import Device, Source


class Simulator(Device):
    """Runs kernels in the simulator."""

    name, golden = "CUDA simulator", (2, 2)

    def program(self, source: Source, arguments: Sequence[Any]) -> Any:
        """Return a kernel of the simulator."""
        return cuda.jit(source.of_device(lambda function: function, TWINS))

    def blocks(self, program: Any, threads: int) -> int:
        """Return two, so that a block plays several candidates."""
        return 2

    def run(
        self,
        program: Any,
        arguments: Sequence[Any],
        blocks: int,
        threads: int,
        results: Sequence[NDArray[Any]],
        whole: bool = False,
    ) -> None:
        """Run a kernel in place."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # words of Philox overflow on purpose
            program[blocks, threads](*map(_simulated, arguments))


def _simulated(argument: Any) -> Any:
    """Return an argument as the simulator takes it: fields of a record as attributes, and no copy to a file."""
    if isinstance(argument, np.void):
        return SimpleNamespace(**{name: argument[name] for name in argument.dtype.names or ()})
    if isinstance(argument, np.ndarray) and argument.dtype.names:
        return argument.view(np.recarray)
    is_file = isinstance(argument, np.ndarray) and not argument.flags.writeable
    return cuda.In(argument) if is_file else argument


def _flat_of(array: Any) -> Any:
    return np.asarray(array).reshape(-1)


def _clear_row(arrays: Any, b: int) -> None:
    for part in arrays:
        if isinstance(part, tuple):
            _clear_row(part, b)
        else:
            part[b] = np.zeros((), part.dtype)


def _rows(arrays: Any, b: int) -> list[Any]:
    """Return row b of every array as one-dimensional bytes of the same memory."""
    found: list[Any] = []
    for part in arrays:
        if isinstance(part, tuple):
            found += _rows(part, b)
        else:
            found.append(part[b : b + 1].reshape(-1).view(np.uint8))
    return found


def _copy_to_row(arrays: Any, b: int, row: Any) -> None:
    row[:] = np.concatenate(_rows(arrays, b))


def _copy_from_row(arrays: Any, b: int, row: Any) -> None:
    at = 0
    for part in _rows(arrays, b):
        part[:] = row[at : at + len(part)]
        at += len(part)


TWINS = {  # of intrinsics that are of compiled code alone
    views.flat_of: _flat_of, views.shaped: plain.shaped, views.clear_row: _clear_row,
    views.copy_to_row: _copy_to_row, views.copy_from_row: _copy_from_row,
}  # fmt: skip
