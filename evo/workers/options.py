"""The options of [workers] that all backends share; a backend subclasses them as `Options`, with its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from evo.options import Section
from evo.workers import hardware

CANDIDATES_ON_GPU = 512  # of a task: a launch of this size fills a GPU


@dataclass(frozen=True)
class LearnerDevices:
    """Where the learner computes, as far as the placement of workers depends on it."""

    names: tuple[str, ...] = ()  # as "GPU:0" or "CPU:1"; (): those that it finds
    all_found: bool = False  # without names: all GPUs, and not the first alone
    processes: bool = False  # it has processes of its own, on the CPU without names
    weight: int = 0  # workers that it counts for on each of its GPUs, with placement "weighted"

    @property
    def gpus(self) -> list[int] | None:
        """Return the numbers of its GPUs among the visible ones, none on the CPU; None: those that it finds."""
        if not self.names:
            return [] if self.processes else None
        return sorted({int(name[4:]) for name in self.names if name.startswith("GPU:")})

    @property
    def last_gpu(self) -> int | None:
        """Return the highest number of a GPU that it computes on in this process, at least 0; None: all GPUs.

        TensorFlow takes memory of every GPU that it sees, and numbers those from 0.
        """
        if self.gpus is None:
            return None if self.all_found else 0
        return max(self.gpus, default=0)


class WorkersOptions(Section):
    """The [workers] section: where episodes are played; no result depends on it."""

    refused: ClassVar[Mapping[str, str]] = {}  # options of other backends that have no effect here, and what to do
    in_files: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # options that name hosts, with the values a file may have

    backend: str = Field("processes", description="which backend plays tasks; see `evo list`")
    count: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = Field(
        "auto", description='number of workers; "auto" = one per CPU core or GPU, or two per GPU with TensorFlow'
    )
    kind: Literal["auto", "cpu", "gpu"] = Field(
        "auto", description='devices of workers; "auto" = GPUs if any with TensorFlow, the faster with the exact kernel'
    )
    memory: Literal["growth", "all", "limit"] = Field(
        "growth", description="GPU memory of a worker: growth = as needed, all = the whole GPU, limit = memory_limit_mb"
    )
    memory_limit_mb: int = Field(
        0, ge=0, le=1 << 24, description="MiB of GPU memory per worker; required if memory = limit, else 0"
    )
    allocator: Literal["", "cuda_malloc_async"] = Field(
        "", description="GPU memory allocator; empty = TensorFlow's own"
    )
    threads: int = Field(1, ge=1, le=1024, description="intra-op threads of TensorFlow per worker")
    threads_inter: int = Field(1, ge=1, le=1024, description="inter-op threads of TensorFlow per worker")
    soft_placement: bool = Field(
        False, description="let TensorFlow use another device for an operation that the chosen one lacks"
    )
    log_placement: bool = Field(False, description="log the device of every operation on standard error")
    candidates_per_task: int = Field(
        0, ge=0, le=1_000_000, description="candidates per task; 0 = from the network's size"
    )
    deadline: float = Field(
        30.0,
        ge=1,
        le=1e6,
        description="a worker is replaced after so many seconds, or more, without playing a step or a candidate",
    )
    on_poison: Literal["stop", "worst"] = Field(
        "stop", description="if a candidate crashes every worker that plays it: stop the run, or rank it worst"
    )

    def _check(self) -> None:
        if self.memory == "limit" and not self.memory_limit_mb:
            raise ValueError('memory_limit_mb: required where memory = "limit"')
        if self.memory != "limit" and self.memory_limit_mb:
            raise ValueError(f'memory_limit_mb: has no effect where memory = "{self.memory}"; use "limit"')

    @property
    def on_gpu(self) -> bool:
        """Return whether the options ask for GPUs."""
        return self.kind == "gpu"

    @property
    def processes(self) -> int:
        """Return how many processes play, each on a core: one for the serial backend, one per core for "auto"."""
        if self.backend == "serial":
            return 1
        return hardware.cores() if self.count == "auto" else self.count

    def plan(self, inference: str, learner: LearnerDevices | None = None, other_machine: bool = False) -> str:
        """Return in one line which workers there will be, and on which devices.

        DeviceError where a device is missing, unless the plan is for an `other_machine`: then a second line says so.
        """
        return f"workers of {self.backend}{describe_learner(learner)}"


def describe_learner(learner: LearnerDevices | None) -> str:
    """Return where the learner is, as the end of a line; empty where nothing learns."""
    if learner is None:
        return ""
    if learner.gpus is None:
        return f"; the learner on {'all GPUs' if learner.all_found else 'the first GPU'} that it sees, else the CPU"
    return f"; the learner on {' and '.join(f'GPU {number}' for number in learner.gpus) or 'the CPU'}"
