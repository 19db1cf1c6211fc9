"""The sections of an experiment file that belong to no algorithm, environment or policy."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from evo.plugins.options import Section

Evaluators = Annotated[int, Field(ge=0, le=1024)]
Amount = Annotated[float, Field(gt=0, le=1e15)]
RAY = r"auto|local|(ray://)?[\w.-]{1,253}:\d{1,5}"
Strategy = Literal["one", "towers", "mirrored", "central", "multiworker", "parameter-server"]
CLUSTERS = ("multiworker", "parameter-server")  # strategies of several processes
STALE = (
    "learner.staleness = {}: gradients are of weights that up to so many updates have changed meanwhile, as it "
    "happens; results are not exact, and a resume or another run does not repeat them (0 is exact)"
)
GpuNumber = Annotated[int, Field(ge=0, le=1024)]
GpuId = Annotated[str, Field(max_length=200)]
ID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")


class Budget(Section):
    """Looked at between generations: a run stops early where one of these is reached."""

    frames: int = Field(0, ge=0, description="steps played in training; 0 = no limit")
    seconds: float = Field(0.0, ge=0, description="of training, over all resumes; 0 = no limit")
    select: float | None = Field(None, description="mean score of the champion on select episodes")


class Run(Section):
    """The [run] section: what is trained, and for how long."""

    algorithm: str = Field("ga", description="which algorithm, and so which section counts")
    seed: int = Field(1, ge=0, lt=1 << 64, description="everything random follows from it")
    generations: int = Field(300, ge=1, le=10_000_000, description="how many in all")
    budget: Budget = Field(Budget(), description="stops between generations")
    init_from: str = Field("", description="a run directory or a champion.h5 to start from")


class Workers(Section):
    """The [workers] section: where episodes are played; no result of an episode that is played depends on it."""

    backend: str = Field("processes", description="where tasks are played")
    count: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = Field("auto", description="auto = one a core")
    start: str = Field("forkserver", description='how they begin: "forkserver" or "spawn"')
    kind: Literal["auto", "cpu", "gpu"] = Field("auto", description="where TensorFlow plays; auto = on GPUs if any")
    gpus: list[Evaluators] = Field([], max_length=1024, description="evaluators on each GPU")
    gpu_ids: list[GpuNumber | GpuId] = Field(
        [], max_length=1024, description='which GPUs: numbers, "GPU-..." or "MIG-..."; [] = all'
    )
    placement: Literal["auto", "explicit", "spread", "weighted"] = Field(
        "auto", description="of count workers; weighted = the learner counts too; auto = explicit or spread"
    )
    memory: Literal["growth", "all", "limit"] = Field("growth", description="how an evaluator takes a GPU's memory")
    memory_limit_mb: int = Field(0, ge=0, le=1 << 24, description='megabytes an evaluator, with memory = "limit"')
    allocator: Literal["", "cuda_malloc_async"] = Field("", description="of a GPU's memory; empty = TensorFlow's own")
    threads: int = Field(1, ge=1, le=1024, description="of an evaluator, inside an operation")
    threads_inter: int = Field(1, ge=1, le=1024, description="of an evaluator, for operations side by side")
    soft_placement: bool = Field(False, description="let TensorFlow use another device than it is told")
    log_placement: bool = Field(False, description="tell which device each operation runs on")
    candidates_per_task: int = Field(
        0, ge=0, le=1_000_000, description="0 = from the network's size, or a call's on a GPU"
    )
    candidates_per_call: int = Field(0, ge=0, le=4096, description="by TensorFlow; 0 = one on a CPU, 64 on a GPU")
    on_poison: Literal["stop", "worst"] = Field("stop", description="what a candidate that ends every worker does")
    address: str = Field(
        "local", description='of the Ray cluster: "auto", "HOST:PORT", "ray://HOST:PORT"; local = our own'
    )
    resources: dict[str, Amount] = Field(
        {}, max_length=64, description="of an evaluator on Ray, as {CPU = 1, GPU = 0.25}; {} = a CPU a thread"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Workers:
        if not re.fullmatch(RAY, self.address, re.ASCII):
            raise ValueError(f'address: {self.address[:60]!r} is not "auto", "local", "HOST:PORT" or "ray://HOST:PORT"')
        if self.resources.get("GPU", 0) > 1:
            raise ValueError("resources: an evaluator computes on one GPU or a part of it; GPU must be at most 1")
        if self.start == "fork":
            raise ValueError('start: "fork" hangs workers where TensorFlow has run before; use "forkserver" or "spawn"')
        if self.start not in ("forkserver", "spawn"):
            raise ValueError(f'start: must be "forkserver" or "spawn", not "{self.start}"')
        for one in self.gpu_ids:
            if isinstance(one, str) and not ID.fullmatch(one):
                raise ValueError(f'gpu_ids: "{one}" is no number, and does not begin with "GPU-" or "MIG-"')
        if len(set(self.gpu_ids)) < len(self.gpu_ids):
            raise ValueError(f"gpu_ids: {self.gpu_ids} names a GPU twice")
        if self.kind == "cpu" and (self.gpus or self.gpu_ids):
            raise ValueError('kind: "cpu" has no use for gpus and gpu_ids; leave them out')
        if self.gpus and not any(self.gpus):
            raise ValueError(f"gpus: {self.gpus} has no evaluator")
        if self.gpus and self.placement not in ("auto", "explicit"):
            raise ValueError(f'placement: "{self.placement}" places by itself, and gpus lists what each GPU has')
        if self.placement == "explicit" and not self.gpus:
            raise ValueError('placement: "explicit" needs gpus, as in gpus = [2, 10, 10, 10]')
        if self.memory == "limit" and not self.memory_limit_mb:
            raise ValueError('memory_limit_mb: required where memory = "limit"')
        if self.memory != "limit" and self.memory_limit_mb:
            raise ValueError(f'memory_limit_mb: has no effect where memory = "{self.memory}"; use "limit"')
        return self


SIDE_BY_SIDE = 8  # operations of several devices


class Learner(Section):
    """The [learner] section: how gradient methods compute their updates."""

    strategy: Strategy = Field("one", description="how an update is spread over devices")
    threads: int = Field(2, ge=1, le=1024, description="fixed, since sums depend on it; a power of two is best")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="of hidden layers; weights are float32")
    devices: list[str] = Field(
        [],
        max_length=64,
        description='as "GPU:0" or "CPU:1", or one a process; [] = GPUs if any (one: the first); of processes, CPUs',
    )
    weight: int = Field(8, ge=0, le=1024, description='evaluators it counts for, with workers.placement = "weighted"')
    logical_cpus: int = Field(0, ge=0, le=64, description="devices that the CPU is taken for; 0 = one")
    processes: int = Field(2, ge=1, le=64, description="multiworker, parameter-server: workers")
    staleness: int = Field(0, ge=0, le=64, description="parameter-server: updates that others run ahead; 0 = exact")
    learning_rate: Literal["given", "linear", "root"] = Field(
        "given", description="or times the number of devices, or its root, for batches that grow with them"
    )
    log_placement: bool = Field(False, description="tell which device each operation of an update runs on")

    @model_validator(mode="after")
    def _consistent(self) -> Learner:
        several = self.strategy in CLUSTERS
        for device in self.devices:
            if not re.fullmatch(r"[CG]PU:\d{1,3}", device):
                raise ValueError(f'devices: "{device[:40]}" is not a device such as "GPU:0" or "CPU:1"')
            if device.startswith("CPU:") and int(device[4:]) >= max(self.logical_cpus, 1) and not several:
                raise ValueError(f"devices: {device} is there with logical_cpus = {int(device[4:]) + 1} or more only")
        twice = [device for number, device in enumerate(self.devices) if device in self.devices[:number]]
        if twice and not several:
            raise ValueError(f'devices: "{twice[0]}" is there twice')
        if len(self.devices) > 1 and self.strategy == "one":
            raise ValueError('devices: strategy "one" computes on one; use "mirrored" for several')
        if self.strategy == "one" and self.logical_cpus and not self.devices:
            raise ValueError('logical_cpus: strategy "one" computes on one device; use "mirrored" for several')
        if not several and self.processes != type(self).model_fields["processes"].default:
            raise ValueError(f'processes: strategy "{self.strategy}" has one; "multiworker" has several')
        if several and self.logical_cpus:
            raise ValueError(f"logical_cpus: a process of {self.strategy} is one device; use processes")
        if several and self.devices and len(self.devices) != self.processes:
            raise ValueError(f"devices: {len(self.devices)} for {self.processes} workers, which take one each")
        if self.staleness and self.strategy != "parameter-server":
            raise ValueError('staleness: only strategy "parameter-server" has updates that run ahead')
        return self

    @property
    def threading(self) -> tuple[int, int]:
        """Return TensorFlow's threads inside an operation, and for operations side by side.

        A learner that is not spread has a part of the batch for every thread; several devices wait for each other.
        """
        if self.strategy != "one":
            return self.threads, SIDE_BY_SIDE
        return (self.threads, 1) if self.devices else (1, self.threads)

    @property
    def notices(self) -> list[str]:
        """Return what a user should know of the results that come of these options, a line each."""
        return [STALE.format(self.staleness)] if self.staleness else []

    def ignored_by(self, algorithm: str) -> str:
        """Return what to tell a user of an algorithm that learns nothing: which of these options it has no use for.

        Threads and types are set in files that other algorithms run, too, and are nothing to speak of.
        """
        fields = type(self).model_fields
        given = [key for key in fields if key not in ("threads", "dtype") and getattr(self, key) != fields[key].default]
        if not given:
            return ""
        names = " and ".join(f"learner.{key}" for key in given)
        return f"{names} {'is' if len(given) == 1 else 'are'} ignored: {algorithm} computes no gradients"

    def identity(self) -> dict[str, Any]:
        """Return what results depend on; newer options are told where they are not as they always were."""
        told, fields = self.model_dump(exclude={"weight", "log_placement"}), type(self).model_fields
        fixed = ("strategy", "threads", "dtype")
        return {key: value for key, value in told.items() if key in fixed or value != fields[key].default}


class Evaluation(Section):
    """The [evaluation] section: the sealed score, which is reported and never used."""

    every: int = Field(10, ge=1, le=10_000_000, description="generations between sealed evaluations")
    episodes: int = Field(200, ge=1, le=1_000_000, description="on sealed seeds")
