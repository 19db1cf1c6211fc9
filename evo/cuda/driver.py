"""A GPU through NVIDIA's driver alone (libcuda, by ctypes)."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.cuda.launch import Device, GameSource, Source, arrays_in, words_of
from evo.errors import ConfigurationError, DeviceError, DeviceLostError, DeviceMemoryError

# For tests alone, "module:class": what runs kernels in place of a GPU, with the same bits and far slower.
STAND_IN = "EVO_CUDA_STAND_IN"
INSTALL = "python -m pip install 'snake-evo[cuda]'"
OUT_OF_MEMORY = 2  # of the driver's results
MULTIPROCESSORS = 16  # of the attributes of a device
MOST_REGISTERS, ERROR_LOG, ERROR_LOG_SIZE = 0, 5, 6  # of the options of compiling
ALL_REGISTERS = 255  # of a thread, at most
LINE = 256  # bytes at whose multiples arrays begin


class CudaDriver(Device):
    """The first GPU that this process sees; DeviceError where there is none."""

    name, golden = "GPU", (64, 32)

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(f"NVIDIA's driver cannot be loaded: {error}") from error
        self._context, self._thread = ctypes.c_void_p(), get_ident()  # the thread that has the context
        device, count, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(100)
        try:
            self._do("cuInit", 0)
            self._do("cuDeviceGet", ctypes.byref(device), 0)
            self._do("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
            self._do("cuCtxSetCurrent", self._context)
            self._do("cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSORS, device)
            self._do("cuDeviceGetName", name, len(name), device)
        except DeviceLostError as error:
            raise DeviceError(f"no GPU can be used: {error}") from error
        self.name, self._multiprocessors = name.value.decode(), count.value
        self._kept: dict[int, tuple[int, NDArray[Any]]] = {}  # addresses on the GPU, by the identity of arrays
        self._buffer, self._size = 0, 0  # of the arrays of a launch

    def program(self, source: Source | GameSource, arguments: Sequence[Any]) -> Any:
        """Return a kernel, compiled by the driver, which keeps the machine code for the next process."""
        try:
            from evo.cuda.compiling import exact_ptx
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(f"{source.option}: numba-cuda cannot be imported ({error}); {INSTALL}") from error

        ptx = exact_ptx(source, arguments)
        (entry,) = re.findall(r"\.entry ([\w$]+)", ptx)
        module, function, log = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(8192)
        keys = (ctypes.c_int * 3)(MOST_REGISTERS, ERROR_LOG, ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 3)(source.registers or ALL_REGISTERS, ctypes.addressof(log), len(log))
        try:
            self._do("cuModuleLoadDataEx", ctypes.byref(module), ctypes.c_char_p(ptx.encode()), len(keys), keys, values)
        except DeviceLostError as error:
            raise DeviceError(f"{self.name} cannot run the kernel: {error} {log.value.decode()[:2000]}") from error
        self._do("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        return function

    def blocks(self, program: Any, threads: int) -> int:
        """Return how many blocks of a program all multiprocessors run at once."""
        count = ctypes.c_int()
        call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        self._do(call, ctypes.byref(count), program, threads, ctypes.c_size_t(0))
        return max(count.value, 1) * self._multiprocessors

    def keep(self, array: NDArray[Any], copy: bool = True) -> None:
        """Copy an array to the GPU until it is dropped, or only allocate its memory."""
        self._kept[id(array)] = self._allocated(array.nbytes), array
        if copy:
            self.send(array)

    def drop(self, array: NDArray[Any]) -> None:
        """Free the memory of an array, if it is kept."""
        if kept := self._kept.pop(id(array), None):
            self._do("cuMemFree_v2", ctypes.c_uint64(kept[0]))

    def send(self, array: NDArray[Any]) -> None:
        """Copy an array that is kept to the GPU again."""
        address = ctypes.c_uint64(self._kept[id(array)][0])
        self._do("cuMemcpyHtoD_v2", address, _place(array), ctypes.c_size_t(array.nbytes))

    def receive(self, array: NDArray[Any]) -> None:
        """Copy an array that is kept back from the GPU, when all launches are done."""
        address = ctypes.c_uint64(self._kept[id(array)][0])
        self._do("cuMemcpyDtoH_v2", _place(array), address, ctypes.c_size_t(array.nbytes))

    def prepared(self, program: Any, arguments: Sequence[Any], blocks: int, threads: int) -> Callable[[], None]:
        """Return a launch whose arrays are all kept, which copies nothing and waits for nothing."""
        return self._launch_of(program, arguments, blocks, threads, lambda array: self._kept[id(array)][0])

    def run(
        self,
        program: Any,
        arguments: Sequence[Any],
        blocks: int,
        threads: int,
        results: Sequence[NDArray[Any]],
        whole: bool = False,
    ) -> None:
        """Run a program: one copy to the GPU, one launch, and one copy back, if there are results."""
        # Results stand last, so that they are one piece of memory; a record is passed as an array of one.
        records = {id(one): np.array([one], one.dtype) for one in arguments if isinstance(one, np.void)}
        back = {id(array) for array in results}
        here = {id(array): array for array in arrays_in(arguments) if id(array) not in self._kept} | records
        moved = sorted(here.items(), key=lambda item: item[0] in back)
        places, size = dict[int, int](), 0
        for key, array in moved:
            places[key], size = size, size + -(-max(array.nbytes, 1) // LINE) * LINE
        if size > self._size:
            if self._buffer:
                self._do("cuMemFree_v2", ctypes.c_uint64(self._buffer))
            self._buffer, self._size = 0, 0
            self._buffer, self._size = self._allocated(size), size
        sent, first = np.empty(size, np.uint8), min([places[key] for key in back], default=size)
        for key, array in moved:
            if not (whole and key in back):
                sent[places[key] : places[key] + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if there := first if whole else size:
            self._do("cuMemcpyHtoD_v2", ctypes.c_uint64(self._buffer), _place(sent), ctypes.c_size_t(there))

        def address(array: Any) -> int:
            kept = self._kept.get(id(array))
            return kept[0] if kept else self._buffer + places[id(array)]

        self._launch_of(program, arguments, blocks, threads, address)()
        if not results:
            return
        self._do("cuCtxSynchronize")
        received = sent[first:]
        place = ctypes.c_uint64(self._buffer + first)
        self._do("cuMemcpyDtoH_v2", _place(received), place, ctypes.c_size_t(received.nbytes))
        for array in results:
            at = places[id(array)]
            array[...] = sent[at : at + array.nbytes].view(array.dtype).reshape(array.shape)

    def _launch_of(
        self, program: Any, arguments: Sequence[Any], blocks: int, threads: int, address: Callable[[Any], int]
    ) -> Callable[[], None]:
        words = [word for argument in arguments for word in words_of(argument, address)]
        values = [ctypes.c_double(word) if isinstance(word, float) else ctypes.c_int64(word) for word in words]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        how = program, blocks, 1, 1, threads, 1, 1, 0, None, pointers, None

        def launch(_: Any = values) -> None:  # which the pointers point to
            self._do("cuLaunchKernel", *how)

        return launch

    def _allocated(self, size: int) -> int:
        address = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def _do(self, function: str, *arguments: Any) -> None:
        """Call the driver; DeviceMemoryError or DeviceLostError where it fails."""
        if self._context and get_ident() != self._thread:
            self._thread = get_ident()
            self._do("cuCtxSetCurrent", self._context)
        if not (status := getattr(self._cuda, function)(*arguments)):
            return
        text = ctypes.c_char_p()
        self._cuda.cuGetErrorString(status, ctypes.byref(text))
        what = f"{function}: {(text.value or b'unknown error').decode()} ({status})"
        if status == OUT_OF_MEMORY:
            raise DeviceMemoryError(f"out of memory on the {self.name}: {what}")
        raise DeviceLostError(what)


def _place(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def device_of_process(option: str = "workers.kind") -> Device:
    """Return the GPU that this process is pinned to, as an option wants.

    ConfigurationError where the extra `cuda` is missing, DeviceError where there is no GPU.
    """
    if name := os.environ.get(STAND_IN):
        module, _, kind = name.partition(":")
        stand_in: Device = getattr(import_module(module), kind)()
        return stand_in
    if find_spec("numba_cuda") is None:
        raise ConfigurationError(f'{option}: "gpu" needs numba-cuda, which is not installed; {INSTALL}')
    return CudaDriver()
