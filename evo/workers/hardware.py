"""The CPU cores, the memory and the GPUs of this machine, as the system and the driver's own tools list them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
TIMEOUT = 30.0  # seconds; an unloaded driver takes some
GPU = re.compile(r"^GPU (\d+): (.*) \(UUID: (GPU-[^)]+)\)\s*$")
SLICE = re.compile(r"^\s+MIG .*\(UUID: (MIG-[^)]+)\)\s*$")
GROUPS = Path("/sys/fs/cgroup")
QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))  # below it, of cgroups 2 and of cgroups 1
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of memory, the same way
DRIVER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Gpu:
    """One GPU, by its position on the bus."""

    index: int
    model: str
    uuid: str
    slices: tuple[str, ...] = ()  # ids of its MIG instances; with any, it is not used as a whole

    @property
    def names(self) -> tuple[str, ...]:
        """Return its entries in CUDA_VISIBLE_DEVICES: its number, or the ids of its instances."""
        return self.slices or (str(self.index),)


def cores(groups: Path = GROUPS) -> int:
    """Return how many CPU cores this process may use: those it is bound to, and no more than its container's share."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        allowed = os.cpu_count() or 1
    for names in QUOTAS:
        with suppress(OSError, ValueError):  # no such limit
            quota, period = map(int, " ".join((groups / name).read_text("utf-8") for name in names).split())
            if quota > 0:
                return min(allowed, max(1, -(-quota // period)))
    return allowed


def memory(groups: Path = GROUPS) -> int | None:
    """Return the bytes of memory that this machine has, or its container if that has a limit; None: unknown."""
    sizes = list[int]()
    with suppress(OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in LIMITS:
        with suppress(OSError, ValueError):  # no such limit
            sizes.append(int((groups / name).read_text("utf-8")))
    return min(sizes, default=None)


def found() -> list[Gpu]:
    """Return the GPUs in the order of the bus, none where there is no driver."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, encoding="utf-8", timeout=TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return _driver_gpus(DRIVER)
    return parsed(done.stdout)


@cache
def visible() -> tuple[str, ...]:
    """Return the names of the GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, where it is set."""
    there = found()
    return tuple(usable(os.environ.get(VISIBLE), there)) if there else ()


def usable(visible: str | None, found: Sequence[Gpu]) -> list[str]:
    """Return the names of the GPUs that a process with this CUDA_VISIBLE_DEVICES may use; None: it is not set.

    CUDA reads it up to the first entry that is no device.
    """
    if visible is None:
        return [name for gpu in found for name in gpu.names]
    names: list[str] = []
    for name in (part.strip() for part in visible.split(",")):
        if not name or name.startswith("-") or name in names:
            break
        names.append(name)
    return names


def parsed(text: str) -> list[Gpu]:
    """Return the GPUs in the output of `nvidia-smi -L`."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        if whole := GPU.match(line):
            gpus.append(Gpu(int(whole[1]), whole[2], whole[3]))
        elif gpus and (part := SLICE.match(line)):
            last = gpus[-1]
            gpus[-1] = Gpu(last.index, last.model, last.uuid, (*last.slices, part[1]))
    return gpus


def _driver_gpus(folder: Path) -> list[Gpu]:
    """Return the GPUs that the driver lists, for containers without `nvidia-smi`."""
    gpus: list[Gpu] = []
    for information in sorted(folder.glob("*/information")):  # folders are named by their position on the bus
        try:
            lines = dict(line.split(":", 1) for line in information.read_text("utf-8").splitlines() if ":" in line)
        except OSError:
            continue
        gpus.append(Gpu(len(gpus), lines.get("Model", "").strip(), lines.get("GPU UUID", "").strip()))
    return gpus
