"""What is asked of the driver: a library in its place has the memory of the CPU, and its launches run PTX."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from evo.cuda import driver
from evo.errors import DeviceError, DeviceLostError, DeviceMemoryError
from evo.learning.exact.cuda import SIZES
from tests.cuda import learning
from tests.cuda.comparing import Case, compare

needs_cuda = pytest.mark.skipif(find_spec("numba_cuda") is None, reason="the extra `cuda` is not installed")
CASE = Case("snake", {"size": 5, "starvation": 20, "mask": "fatal"}, {"conv": [[3, 3, 2]], "dense": [4]}, "softmax")
UPDATES = learning.Updates((5, 6, 2), {"conv": [[5, 3, 2], [7, 3, 1]], "dense": [9], "norm": "layer"}, masked=True)
GUARD = 64  # bytes behind every allocation, which nothing may write to


class Library:
    """The functions of libcuda that are called; a status that is not 0 is an error."""

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray] = {}
        self.failing: dict[str, int] = {}  # function: status
        self.launches = 0
        self._programs: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if status := self.failing.get(name):
                return status
            getattr(self, f"_{name.removesuffix('_v2')}", lambda *_: None)(*arguments)
            return 0

        if not name.startswith("cu"):
            raise AttributeError(name)
        return call

    def _cuDeviceGetAttribute(self, out: Any, attribute: int, device: Any) -> None:
        assert attribute == 16
        out._obj.value = 3

    def _cuDeviceGetName(self, out: Any, size: int, device: Any) -> None:
        out.value = b"a CPU"

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, out: Any, *_: Any) -> None:
        out._obj.value = 1

    def _cuGetErrorString(self, status: int, out: Any) -> None:
        out._obj.value = b"it failed"

    def _cuMemAlloc(self, out: Any, size: Any) -> None:
        room = np.full(size.value + GUARD, 171, np.uint8)
        self.memory[room.ctypes.data] = room
        out._obj.value = room.ctypes.data

    def _cuMemFree(self, address: Any) -> None:
        assert (self.memory.pop(address.value)[-GUARD:] == 171).all()

    def _cuMemcpyHtoD(self, to: Any, source: Any, size: Any) -> None:
        ctypes.memmove(to.value, source.value, size.value)

    def _cuMemcpyDtoH(self, to: Any, source: Any, size: Any) -> None:
        ctypes.memmove(to.value, source.value, size.value)

    def _cuModuleLoadDataEx(self, out: Any, program: Any, *_: Any) -> None:
        from tests.cuda.ptx_on_cpu import compiled

        self._programs.append(compiled(program.value.decode()))
        out._obj.value = len(self._programs)

    def _cuModuleGetFunction(self, out: Any, module: Any, name: bytes) -> None:
        out._obj.value = module.value

    def _cuLaunchKernel(self, function: Any, blocks: int, *how: Any) -> None:
        pointers, self.launches = how[-2], self.launches + 1
        words = np.array([ctypes.c_uint64.from_address(pointer).value for pointer in pointers], np.uint64)
        self._programs[function.value - 1](blocks, how[2], 0, words.ctypes.data_as(ctypes.c_void_p))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library, real = Library(), ctypes.CDLL
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name, *how, **more: library if "libcuda" in name else real(name, *how, **more)
    )
    return library


@needs_cuda
@pytest.mark.long
def test_arrays_go_to_the_device_and_come_back(library: Library) -> None:
    compare(CASE, device := driver.CudaDriver(), candidates=8, envs=40)
    assert (device.name, library.launches) == ("a CPU", 4)
    assert all((room[-GUARD:] == 171).all() for room in library.memory.values())


@needs_cuda
@pytest.mark.long
def test_a_learner_keeps_weights_on_the_device_which_come_back_when_they_are_asked_for(library: Library) -> None:
    learning.compare(UPDATES, driver.CudaDriver())
    assert all((room[-GUARD:] == 171).all() for room in library.memory.values())
    assert len(library.memory) <= 1  # that of launches


@needs_cuda
@pytest.mark.long
def test_a_learner_forgets_sizes_of_batches(library: Library) -> None:
    counts = tuple(range(20 + SIZES, 20, -1))
    learner = learning.compared(learning.Updates((3,), {"kind": "linear"}, counts=counts), driver.CudaDriver())
    kept = len(library.memory)
    for count in range(20, 3, -1):
        learner.update(np.arange(count, dtype=np.int32), 1e-2, learning.SETTINGS)
    assert len(library.memory) <= kept


@pytest.mark.parametrize(("call", "kind"), [("cuInit", DeviceError), ("cuMemAlloc_v2", DeviceMemoryError)])
def test_what_fails_is_named(library: Library, call: str, kind: type[Exception]) -> None:
    library.failing[call] = 2 if kind is DeviceMemoryError else 100
    with pytest.raises(kind, match=f"{call}: it failed"):
        driver.CudaDriver().keep(np.zeros(3))


def test_a_device_that_fails_later_is_lost(library: Library) -> None:
    device = driver.CudaDriver()
    device.keep(kept := np.zeros(3))
    library.failing["cuMemFree_v2"] = 700
    with pytest.raises(DeviceLostError, match="cuMemFree_v2: it failed"):
        device.drop(kept)


def test_a_machine_without_the_driver_has_no_gpu() -> None:
    with pytest.raises(DeviceError, match="NVIDIA's driver cannot be loaded"):
        driver.CudaDriver()
