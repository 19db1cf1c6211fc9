"""What an algorithm is made from: its `Setup`, with the options of [learner]."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.environment import ONE_SEARCH, Curriculum, Environment, Starts
from evo.networks.network import Network
from evo.options import Section
from evo.workers import hardware
from evo.workers.options import LearnerDevices

GRADIENT = "gradient-1"  # what exact updates compute: operations, their order and their rounding
Strategy = Literal["one", "towers", "mirrored", "central", "multiworker", "parameter-server"]
CLUSTERS = ("multiworker", "parameter-server")  # strategies of several processes
TENSORFLOW_THREADS = 2  # unless `threads` is set
OPERATIONS = 8  # that run in parallel where there are several devices
STALE = (
    "learner.staleness = {}: gradients may come from weights up to that many updates old, in varying order; "
    "results are not exact, and neither a resume nor another run repeats them (0 is exact)"
)


class LearnerOptions(Section):
    """The [learner] section: how gradient methods compute their updates."""

    arithmetic: Literal["auto", "exact", "tensorflow"] = Field(
        "auto",
        description="exact: the same bits on every machine, for any number of threads, and on a GPU; auto: exact, "
        "unless there is a GPU, or an option needs TensorFlow",
    )
    device: Literal["cpu", "gpu"] = Field(
        "cpu",
        description="device of exact updates, with the same bits on both; gpu = the first GPU that the process sees "
        "(CUDA_VISIBLE_DEVICES); needs the extra `cuda`",
    )
    strategy: Strategy = Field(
        "one",
        description="distribution of updates: one = one device; towers, mirrored, central = devices of one process; "
        "multiworker, parameter-server = several processes",
    )
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = Field(
        "auto",
        description='CPU threads of an update; they change results of TensorFlow, not of exact updates; "auto" = '
        "exact updates: as many as workers, at most one per core; TensorFlow: 2",
    )
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="type of hidden layers; weights are float32")
    devices: list[str] = Field(
        [],
        max_length=64,
        description='devices that compute updates, as "GPU:0" or "CPU:1"; one for each of several processes; [] = all '
        "GPUs or else the CPU; strategy one: the first GPU; several processes: the CPU",
    )
    weight: int = Field(
        8,
        ge=0,
        le=1024,
        description="how many workers the learner counts as on each of its GPUs, if workers.placement = weighted",
    )
    logical_cpus: int = Field(0, ge=0, le=64, description="logical devices that the CPU is divided into; 0 = one")
    processes: int = Field(2, ge=1, le=64, description="multiworker, parameter-server: worker processes of the learner")
    staleness: int = Field(0, ge=0, le=64, description="parameter-server: extra stale updates in flight; 0 = exact")
    learning_rate: Literal["given", "linear", "root"] = Field(
        "given", description="scaling of learning rates with the number of devices: given = none, root = by square root"
    )
    log_placement: bool = Field(False, description="log the device of every operation of an update")

    def _check(self) -> None:
        several = self.strategy in CLUSTERS
        if self.arithmetic == "exact" and (needs := self._only_tensorflow()):
            raise ValueError(f'arithmetic: "exact" computes in float32, in one process; leave out {needs}')
        for device in self.devices:
            if not re.fullmatch(r"[CG]PU:\d{1,3}", device):
                raise ValueError(f'devices: "{device[:40]}" is not a device such as "GPU:0" or "CPU:1"')
            if device.startswith("CPU:") and int(device[4:]) >= max(self.logical_cpus, 1) and not several:
                raise ValueError(f"devices: {device} needs logical_cpus = {int(device[4:]) + 1} or more")
        if self.device == "gpu" and (self.arithmetic == "tensorflow" or self._only_tensorflow()):
            needs = self._only_tensorflow() or "arithmetic"
            raise ValueError(f'device: "gpu" computes exact updates in float32; leave out {needs}')
        twice = [device for number, device in enumerate(self.devices) if device in self.devices[:number]]
        if twice and not several:
            raise ValueError(f'devices: "{twice[0]}" is named twice')
        if len(self.devices) > 1 and self.strategy == "one":
            raise ValueError('devices: strategy "one" computes on one; use "mirrored" for several')
        if self.strategy == "one" and self.logical_cpus and not self.devices:
            raise ValueError('logical_cpus: strategy "one" computes on one device; use "mirrored" for several')
        if not several and self.processes != LearnerOptions.model_fields["processes"].default:
            raise ValueError(f'processes: strategy "{self.strategy}" has one; "multiworker" has several')
        if several and self.logical_cpus:
            raise ValueError(f"logical_cpus: a process of {self.strategy} is one device; use processes")
        if several and self.devices and len(self.devices) != self.processes:
            raise ValueError(f"devices: {len(self.devices)} for {self.processes} workers, which take one each")
        if self.staleness and self.strategy != "parameter-server":
            raise ValueError('staleness: only strategy "parameter-server" has several updates in flight')

    def _only_tensorflow(self) -> str:
        """Return an option that needs TensorFlow and is set; empty: none is."""
        names = ("strategy", "devices", "logical_cpus", "dtype", "log_placement")
        changed = (name for name in names if getattr(self, name) != LearnerOptions.model_fields[name].default)
        return next(changed, "")

    @property
    def is_exact(self) -> bool:
        """Return whether updates are computed by `evo.learning.exact`, not by TensorFlow."""
        if self.arithmetic == "auto":
            return self.device == "gpu" or (not self._only_tensorflow() and not hardware.visible())
        return self.arithmetic == "exact"

    def with_default_threads(self, workers: int) -> LearnerOptions:
        """Return these options with as many threads as `workers`, unless threads are set or TensorFlow computes."""
        if self.threads != "auto" or not self.is_exact:
            return self
        return self.model_copy(update={"threads": workers})

    @property
    def thread_count(self) -> int:
        """Return the CPU threads of an update; before `with_default_threads`, TensorFlow's."""
        return TENSORFLOW_THREADS if self.threads == "auto" else self.threads

    @property
    def threading(self) -> tuple[int, int]:
        """Return TensorFlow's threads inside an operation, and for operations in parallel, as for parts of a batch."""
        if self.strategy != "one":
            return self.thread_count, OPERATIONS
        return (self.thread_count, 1) if self.devices else (1, self.thread_count)

    @property
    def place(self) -> LearnerDevices:
        """Return on which devices it computes, for placing workers."""
        clustered = self.strategy in CLUSTERS
        return LearnerDevices(tuple(self.devices), self.strategy != "one", clustered, self.weight)

    @property
    def notices(self) -> list[str]:
        """Return what a user should know of results with these options, a line each."""
        return [STALE.format(self.staleness)] if self.staleness else []

    def ignored_by(self, algorithm: str) -> str:
        """Return which options an algorithm without gradients ignores; others may share threads and types."""
        changed = [key for key in self.model_dump(exclude_defaults=True) if key not in ("threads", "dtype")]
        if not changed:
            return ""
        names = " and ".join(f"learner.{key}" for key in changed)
        return f"{names} {'is' if len(changed) == 1 else 'are'} ignored: {algorithm} computes no gradients"

    def identity(self) -> dict[str, Any]:
        """Return the options that results depend on; those of TensorFlow have no name of the arithmetic."""
        if self.is_exact:
            return {"arithmetic": GRADIENT}
        without = {"arithmetic", "device", "weight", "log_placement"}
        return self.model_dump(exclude=without) | {"threads": self.thread_count}


@dataclass(frozen=True)
class Setup:
    """What an algorithm is made from, besides its own options."""

    seed: int
    network: Network
    environment: Any  # in which training begins; all others have its shape and actions
    candidates_per_task: int = 1
    learner: LearnerOptions | None = None  # where its options say that it learns
    start: NDArray[np.float32] | None = None  # [P] weights to start from
    curriculum: Curriculum | None = None  # where training is not as validation
    starts: Starts = ONE_SEARCH

    @property
    def learner_threads(self) -> int:
        """The CPU threads that a learner has."""
        return 1 if self.learner is None else self.learner.thread_count

    @property
    def is_exact(self) -> bool:
        """Return whether one call of a function is a candidate's true fitness, as it takes no seed."""
        problem = getattr(self.environment, "problem", None)
        return problem is not None and not problem.seeded

    def environment_in(self, number: int) -> Environment:
        """Return the environment in which a generation trains."""
        return self.environment if self.curriculum is None else self.curriculum.environment(number)

    def slot(self, number: int) -> int:
        """Return which set of environments side by side a generation plays in, as `Curriculum.slot`."""
        return 0 if self.curriculum is None else self.curriculum.slot(number)
