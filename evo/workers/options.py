"""The options of [workers] that all backends share, and those of backends that play on this machine.

A backend subclasses them as `Options`, with the options that it alone has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from evo.errors import DeviceError
from evo.options import Section
from evo.workers import devices, placement
from evo.workers.placement import LearnerDevices, Slots

GpuWorkers = Annotated[int, Field(ge=0, le=1024)]
GpuNumber = Annotated[int, Field(ge=0, le=1024)]
GpuId = Annotated[str, Field(max_length=200)]
ID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")


class WorkersOptions(Section):
    """The [workers] section: where episodes are played; no result depends on it."""

    refused: ClassVar[Mapping[str, str]] = {}  # options of other backends that have no effect here, and what to do

    backend: str = Field("processes", description="which backend plays tasks; see `evo list`")
    count: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = Field(
        "auto", description='number of workers; "auto" = one per CPU core, or two per GPU'
    )
    kind: Literal["auto", "cpu", "gpu"] = Field(
        "auto", description='devices of workers that use TensorFlow; "auto" = GPUs if any'
    )
    memory: Literal["growth", "all", "limit"] = Field(
        "growth",
        description="GPU memory of a worker: growth = as needed, all = the whole GPU, limit = memory_limit_mb",
    )
    memory_limit_mb: int = Field(
        0, ge=0, le=1 << 24, description="MiB of GPU memory per worker; required where memory = limit, else 0"
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
        0,
        ge=0,
        le=1_000_000,
        description="candidates per task; 0 = from the network's size",
    )
    on_poison: Literal["stop", "worst"] = Field(
        "stop", description="if a candidate crashes every worker that plays it: stop the run, or rank it worst"
    )

    @model_validator(mode="after")
    def _memory_is_consistent(self) -> WorkersOptions:
        if self.memory == "limit" and not self.memory_limit_mb:
            raise ValueError('memory_limit_mb: required where memory = "limit"')
        if self.memory != "limit" and self.memory_limit_mb:
            raise ValueError(f'memory_limit_mb: has no effect where memory = "{self.memory}"; use "limit"')
        return self

    @property
    def on_gpu(self) -> bool:
        """Return whether the options ask for GPUs."""
        return self.kind == "gpu"

    def plan(self, inference: str, learner: LearnerDevices | None = None, elsewhere: bool = False) -> str:
        """Return in one line which workers there will be, and on which devices.

        DeviceError where a device is missing, unless the plan is for a machine `elsewhere`: then a second line says so.
        """
        return f"workers of {self.backend}{placement.describe_learner(learner)}"


class LocalOptions(WorkersOptions):
    """[workers] of a backend that plays on this machine's devices."""

    gpus: list[GpuWorkers] = Field([], max_length=1024, description="workers on each GPU, as in [2, 10, 10, 10]")
    gpu_ids: list[GpuNumber | GpuId] = Field(
        [], max_length=1024, description='GPUs to use: numbers, "GPU-..." or "MIG-..."; [] = all'
    )
    placement: Literal["auto", "explicit", "spread", "weighted"] = Field(
        "auto",
        description="workers per GPU: explicit = gpus; spread = round robin; weighted = also counting the learner; "
        "auto = explicit with gpus, else spread",
    )

    @model_validator(mode="after")
    def _gpus_are_consistent(self) -> LocalOptions:
        for one in self.gpu_ids:
            if isinstance(one, str) and not ID.fullmatch(one):
                raise ValueError(f'gpu_ids: "{one}" is no number, and does not begin with "GPU-" or "MIG-"')
        if len(set(self.gpu_ids)) < len(self.gpu_ids):
            raise ValueError(f"gpu_ids: {self.gpu_ids} names a GPU twice")
        if self.kind == "cpu" and (self.gpus or self.gpu_ids):
            raise ValueError('kind: "cpu" does not use gpus and gpu_ids; leave them out')
        if self.gpus and not any(self.gpus):
            raise ValueError(f"gpus: {self.gpus} has no worker")
        if self.gpus and self.placement not in ("auto", "explicit"):
            raise ValueError(f'placement: "{self.placement}" counts workers per GPU itself; leave gpus out')
        if self.placement == "explicit" and not self.gpus:
            raise ValueError('placement: "explicit" needs gpus, as in gpus = [2, 10, 10, 10]')
        return self

    @property
    def on_gpu(self) -> bool:
        """Return whether the options ask for GPUs."""
        return self.kind == "gpu" or bool(self.gpus or self.gpu_ids)

    def slots(self, inference: str, learner: LearnerDevices | None = None) -> Slots:
        """Return the environment variables of each worker; DeviceError where a device is missing."""
        return devices.slots(self, inference, learner)

    def plan(self, inference: str, learner: LearnerDevices | None = None, elsewhere: bool = False) -> str:
        """Return in one line which workers there will be, as `WorkersOptions.plan`."""
        try:
            return placement.describe(self.slots(inference, learner), learner)
        except DeviceError as absent:
            if not elsewhere:
                raise
            return f"{placement.describe_elsewhere(self, inference, learner)}\n# not on this machine: {absent}"
