"""What is asked of the driver: a library in its place has the memory of the CPU, and its launches run PTX."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo import process
from evo.compiled import cache as kernel_cache
from evo.cuda import driver
from evo.errors import DeviceAbsentError, DeviceError, DeviceLostError, DeviceMemoryError
from evo.learning.exact.cuda import SIZES
from evo.networks.network import Network, Options
from evo.workers.hardware import VISIBLE
from tests.cuda import learning
from tests.cuda.comparing import Case, compare
from tests.cuda.test_cuda import needs_cuda
from tests.cuda.test_gpu_runs import TINY
from tests.evaluators.test_evaluators import until

CASE = Case("snake", {"size": 5, "starvation": 20, "mask": "fatal"}, {"conv": [[3, 3, 2]], "dense": [4]}, "softmax")
UPDATES = learning.Updates((5, 6, 2), {"conv": [[5, 3, 2], [7, 3, 1]], "dense": [9], "norm": "layer"}, masked=True)
GUARD = 64  # bytes behind every allocation, which nothing may write to


class Library:
    """The functions of libcuda that are called; a status that is not 0 is an error."""

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray] = {}
        self.failing: dict[str, int] = {}  # function: status
        self.launches = self.linked = 0
        self.copied: list[int] = []  # bytes of each copy to the device
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
        out._obj.value = {16: 3, 75: 9, 76: 0}[attribute]

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
        self.copied.append(size.value)
        ctypes.memmove(to.value, source.value, size.value)

    def _cuMemcpyDtoH(self, to: Any, source: Any, size: Any) -> None:
        ctypes.memmove(to.value, source.value, size.value)

    def _cuLinkAddData(self, linker: Any, kind: int, data: Any, size: Any, *_: Any) -> None:
        assert kind == 1
        assert size.value == len(data.value) + 1
        self._code = ctypes.create_string_buffer(data.value)  # PTX stands for machine code
        self.linked += 1

    def _cuLinkComplete(self, linker: Any, out: Any, size: Any) -> None:
        out._obj.value, size._obj.value = ctypes.addressof(self._code), len(self._code.value)

    def _cuModuleLoadData(self, out: Any, program: Any) -> None:
        from tests.cuda.ptx_on_cpu import compiled

        self._programs.append(compiled(program.value.decode()))
        out._obj.value = len(self._programs)

    def _cuModuleGetFunction(self, out: Any, module: Any, name: bytes) -> None:
        out._obj.value = module.value

    def _cuLaunchKernel(self, function: Any, blocks: int, *how: Any) -> None:
        pointers, self.launches = how[-2], self.launches + 1
        words = np.array([ctypes.c_uint64.from_address(pointer).value for pointer in pointers], np.uint64)
        self._programs[function.value - 1](blocks, how[2], 0, words.ctypes.data_as(ctypes.c_void_p))


def loaded(monkeypatch: pytest.MonkeyPatch) -> Library:
    """Return what is loaded in place of libcuda."""
    library, real = Library(), ctypes.CDLL
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name, *how, **more: library if "libcuda" in str(name) else real(name, *how, **more)
    )
    return library


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    return loaded(monkeypatch)


@needs_cuda
@pytest.mark.long
def test_arrays_go_to_the_device_and_come_back(library: Library) -> None:
    compare(CASE, device := driver.CudaDriver(), candidates=8, envs=40)
    assert (device.name, library.launches) == ("a CPU", 5)  # of seven tasks
    published = 5 * 4 * Network.of(Options(**CASE.policy), CASE.environment()).size
    assert library.copied.count(published) == 1
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


@pytest.mark.parametrize(
    ("call", "status", "kind"),
    [
        ("cuInit", driver.NO_DEVICE, DeviceAbsentError),  # as for a number that no GPU has
        ("cuInit", 999, DeviceLostError),
        ("cuMemAlloc_v2", driver.OUT_OF_MEMORY, DeviceMemoryError),
    ],
)
def test_what_fails_is_named(library: Library, call: str, status: int, kind: type[Exception]) -> None:
    library.failing[call] = status
    with pytest.raises(kind, match=f"{call}: it failed"):
        driver.CudaDriver().keep(np.zeros(3))


def test_a_device_that_fails_later_is_lost(library: Library) -> None:
    device = driver.CudaDriver("learner.device")
    device.keep(kept := np.zeros(3))
    library.failing["cuMemFree_v2"] = 700
    said = r"cuMemFree_v2: it failed \(700\); --set learner.device=cpu goes on without it"
    with pytest.raises(DeviceLostError, match=said):
        device.drop(kept)


@needs_cuda
@pytest.mark.long
def test_machine_code_is_made_once_for_an_architecture_and_a_driver(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evo.cuda import compiling

    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(tmp_path))
    compare(CASE, driver.CudaDriver(), candidates=2, episodes=2, envs=0)
    monkeypatch.setattr(compiling, "ptx_of", None)
    compare(CASE, driver.CudaDriver(), candidates=2, episodes=2, envs=0)
    assert library.linked == 1
    (kept,) = tmp_path.glob("play_episodes.cubin-*")
    kept.write_bytes(b"")  # as after a power cut
    compare(CASE, driver.CudaDriver(), candidates=2, episodes=2, envs=0)
    assert library.linked == 2
    newer = {"_cuDriverGetVersion": lambda _, out: setattr(out._obj, "value", 13060)}
    monkeypatch.setattr(Library, *newer.popitem(), raising=False)
    compare(CASE, driver.CudaDriver(), candidates=2, episodes=2, envs=0)
    assert library.linked == 3
    assert len(list(tmp_path.glob("play_episodes.cubin-*"))) == 2


def test_without_a_cache_directory_no_program_is_read_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", "")  # as where Numba reads its environment again
    assert kernel_cache.kept("kernel.cubin", (), (), lambda: b"code") == b"code"
    assert not list(tmp_path.iterdir())


def test_a_launch_that_does_not_end_is_lost_and_closing_waits_for_nothing(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = driver.CudaDriver()
    device.keep(kept := np.zeros(3))
    library.failing["cuStreamQuery"] = driver.NOT_READY
    monkeypatch.setattr(process, "_at_once", False)
    monkeypatch.setattr(driver, "HUNG", 0.05)
    with pytest.raises(DeviceLostError, match="the a CPU has not ended what was launched; it may hang"):
        device.receive(kept)
    assert process._at_once
    device.drop(kept)
    assert len(library.memory) == 1


def test_a_machine_without_the_driver_has_no_gpu() -> None:
    with pytest.raises(DeviceError, match="NVIDIA's driver cannot be loaded"):
        driver.CudaDriver()


class Hanging(driver.CudaDriver):
    """A GPU that hangs at the update after the golden ones, and says so in a file."""

    def __init__(self) -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            self._library, self._updates = loaded(monkeypatch), 0
            super().__init__()

    def receive(self, array: Any) -> None:
        self._updates += array.shape == (1,)  # the norm of a gradient
        if self._updates > 2:
            self._library.failing["cuStreamQuery"] = driver.NOT_READY
            Path("hangs").touch()
        super().receive(array)


@needs_cuda
@pytest.mark.long
@pytest.mark.parametrize("asynchronous", [False, True])
def test_ctrl_c_ends_a_run_whose_learner_hangs_on_a_gpu(tmp_path: Path, asynchronous: bool) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ["tiny.toml", "--algorithm", "ppo", "--backend", "serial", "--set", "learner.device=gpu", "--json"]
    line = [sys.executable, "-m", "evo.run", *words, "--set", f"ppo.asynchronous={str(asynchronous).lower()}"]
    there = {**os.environ, VISIBLE: "0", driver.STAND_IN: "tests.cuda.test_driver:Hanging"}
    run = subprocess.Popen(line, cwd=tmp_path, env=there, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert until((tmp_path / "hangs").exists, 300)
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate(timeout=10)
    assert run.returncode == 130, errors
    assert json.loads(output.splitlines()[-1])["status"] == "interrupted"
