"""A GPU through NVIDIA's driver alone (libcuda, by ctypes)."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo import process
from evo.compiled import cache as kernel_cache
from evo.cuda.launch import Device, Source, arrays_in, words_of
from evo.errors import ConfigurationError, DeviceAbsentError, DeviceError, DeviceLostError, DeviceMemoryError
from evo.workers.hardware import VISIBLE

# For tests alone, "module:class": what runs kernels in place of a GPU, with the same bits and far slower.
STAND_IN = "EVO_CUDA_STAND_IN"
INSTALL = "python -m pip install 'snake-evo[cuda]'"
OUT_OF_MEMORY, NO_DEVICE, INVALID_DEVICE, NOT_READY = 2, 100, 101, 600  # of the driver's results
MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76  # of the attributes of a device; the last two are its compute capability
MOST_REGISTERS, ERROR_LOG, ERROR_LOG_SIZE = 0, 5, 6  # of the options of compiling
PTX = 1  # of the kinds of a linker's inputs
ALL_REGISTERS = 255  # of a thread, at most
LINE = 256  # bytes at whose multiples arrays begin
SPIN, LONGEST_SLEEP = 0.002, 0.01  # seconds of a wait without sleeping, and of a sleep
HUNG = 600.0  # seconds after which launches are taken for hung


class CudaDriver(Device):
    """The first GPU that this process sees; DeviceAbsentError or DeviceError where there is none."""

    name, golden = "GPU", (64, 32)

    def __init__(self, option: str = "workers.kind") -> None:
        """`option` is what asks for it. Whoever plays tasks elsewhere says so; a learner has nowhere else to go."""
        self._advice = "" if option == "workers.kind" else f"; --set {option}=cpu goes on without it"
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(f"NVIDIA's driver cannot be loaded: {error}") from error
        self._context, self._thread = ctypes.c_void_p(), get_ident()  # the thread that has the context
        self._lost, self._abandoned = "", False
        device, name, version = ctypes.c_int(), ctypes.create_string_buffer(100), ctypes.c_int()
        try:
            self._do("cuInit", 0)
            self._do("cuDeviceGet", ctypes.byref(device), 0)
            self._do("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
            self._do("cuCtxSetCurrent", self._context)
            facts = [self._attribute(number, device) for number in (MULTIPROCESSORS, MAJOR, MINOR)]
            self._do("cuDeviceGetName", name, len(name), device)
            self._do("cuDriverGetVersion", ctypes.byref(version))
        except DeviceLostError as error:
            raise DeviceLostError(f"no GPU can be used: {error}") from error
        self.name, (self._multiprocessors, *capability) = name.value.decode(), facts
        self._compiler = (*capability, version.value)  # what machine code depends on, besides PTX
        self._kept: dict[int, tuple[int, NDArray[Any]]] = {}  # addresses on the GPU, by the identity of arrays
        self._buffer, self._size = 0, 0  # of the arrays of a launch

    def program(self, source: Source, arguments: Sequence[Any]) -> Any:
        """Return a kernel, compiled by the driver once: its machine code is kept for the next process."""
        try:
            from evo.cuda.compiling import exact_ptx
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(f"{source.option}: numba-cuda cannot be imported ({error}); {INSTALL}") from error

        ptx, registers = exact_ptx(source, arguments), source.registers or ALL_REGISTERS
        (entry,) = re.findall(r"\.entry ([\w$]+)", ptx)
        parts = hashlib.sha256(ptx.encode()).hexdigest(), registers, *self._compiler
        name = f"{source.kernel.__name__}.cubin"
        code = kernel_cache.kept(name, (), parts, lambda: self._linked(ptx.encode(), registers))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        self._do("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        return function

    def _linked(self, ptx: bytes, registers: int) -> bytes:
        """Return machine code (an ELF file) for this GPU, of at most `registers` a thread."""
        log, linker = ctypes.create_string_buffer(8192), ctypes.c_void_p()
        keys = (ctypes.c_int * 3)(MOST_REGISTERS, ERROR_LOG, ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 3)(registers, ctypes.addressof(log), len(log))
        code, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._do("cuLinkCreate_v2", len(keys), keys, values, ctypes.byref(linker))
        try:
            text = ctypes.c_char_p(ptx), ctypes.c_size_t(len(ptx) + 1)  # with its zero
            self._do("cuLinkAddData_v2", linker, PTX, *text, b"kernel", 0, None, None)
            self._do("cuLinkComplete", linker, ctypes.byref(code), ctypes.byref(size))
        except DeviceLostError as error:
            raise DeviceError(f"{self.name} cannot run the kernel: {error} {log.value.decode()[:2000]}") from error
        found = ctypes.string_at(code.value or 0, size.value)
        self._do("cuLinkDestroy", linker)
        return found

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
        if (kept := self._kept.pop(id(array), None)) and not self._lost:
            self._wait()
            self._do("cuMemFree_v2", ctypes.c_uint64(kept[0]))

    def send(self, array: NDArray[Any]) -> None:
        """Copy an array that is kept to the GPU again."""
        self._copy(self._kept[id(array)][0], array, to_gpu=True)

    def receive(self, array: NDArray[Any]) -> None:
        """Copy an array that is kept back from the GPU, when all launches are done."""
        self._copy(self._kept[id(array)][0], array, to_gpu=False)

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
                self._wait()
                self._do("cuMemFree_v2", ctypes.c_uint64(self._buffer))
            self._buffer, self._size = 0, 0
            self._buffer, self._size = self._allocated(size), size
        sent, first = np.empty(size, np.uint8), min([places[key] for key in back], default=size)
        for key, array in moved:
            if not (whole and key in back):
                sent[places[key] : places[key] + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if there := first if whole else size:
            self._copy(self._buffer, sent[:there], to_gpu=True)

        def address(array: Any) -> int:
            kept = self._kept.get(id(array))
            return kept[0] if kept else self._buffer + places[id(array)]

        self._launch_of(program, arguments, blocks, threads, address)()
        if not results:
            return
        self._copy(self._buffer + first, sent[first:], to_gpu=False)
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

    def _attribute(self, number: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._do("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def _copy(self, address: int, array: NDArray[Any], to_gpu: bool) -> None:
        """Copy a contiguous array to the GPU or back, when all launches are done."""
        self._wait()
        function, place = ("cuMemcpyHtoD_v2" if to_gpu else "cuMemcpyDtoH_v2"), ctypes.c_void_p(array.ctypes.data)
        ends = (ctypes.c_uint64(address), place) if to_gpu else (place, ctypes.c_uint64(address))
        self._do(function, *ends, ctypes.c_size_t(array.nbytes))

    def _wait(self) -> None:
        """Wait for all launches. No call of the driver waits for them, since Ctrl-C would not end it."""
        began = time.monotonic()
        try:
            while self._do("cuStreamQuery", None) == NOT_READY:
                if self._abandoned or (waited := time.monotonic() - began) > HUNG:
                    raise DeviceLostError(f"the {self.name} has not ended what was launched; it may hang{self._advice}")
                if waited > SPIN:
                    time.sleep(min(waited / 50, LONGEST_SLEEP))
        except BaseException:
            self._lost = self._lost or f"the {self.name} is not used any more"
            process.skip_shutdown()
            raise

    def abandon(self) -> None:
        """End every wait for launches, also in other threads; the GPU cannot be used any more in this process."""
        self._abandoned = True

    def _do(self, function: str, *arguments: Any) -> int:
        """Call the driver and return its result: 0 or NOT_READY; DeviceMemoryError or DeviceLostError: it fails."""
        if self._lost:
            raise DeviceLostError(self._lost)
        if self._context and get_ident() != self._thread:
            self._thread = get_ident()
            self._do("cuCtxSetCurrent", self._context)
        if (status := int(getattr(self._cuda, function)(*arguments))) in (0, NOT_READY):
            return status
        text = ctypes.c_char_p()
        self._cuda.cuGetErrorString(status, ctypes.byref(text))
        what = f"{function}: {(text.value or b'unknown error').decode()} ({status})"
        if status == OUT_OF_MEMORY:
            raise DeviceMemoryError(f"out of memory on the {self.name}: {what}")
        self._lost = f"{what}{self._advice}"
        if not self._context and status in (NO_DEVICE, INVALID_DEVICE):
            raise DeviceAbsentError(f"no GPU for {VISIBLE} = {os.environ.get(VISIBLE)!r}: {self._lost}")
        raise DeviceLostError(self._lost)


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
    return CudaDriver(option)
