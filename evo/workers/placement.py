"""The device of each worker: a plan from options and a list of GPUs, without TensorFlow or a device."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from evo.errors import ConfigurationError, DeviceError
from evo.workers import hardware
from evo.workers.hardware import VISIBLE, Gpu, usable
from evo.workers.options import LearnerDevices, WorkersOptions, describe_learner

ORDER = "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"  # the order of nvidia-smi; by default CUDA numbers the fastest GPU 0
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ALLOCATOR = "TF_GPU_ALLOCATOR"
NO_GPU = "-1"
CUDA_PLAYER = "EVO_CUDA_PLAYER"  # set to 1 where a worker plays on its GPU with the exact kernel
PER_GPU = 2  # workers of TensorFlow by default: one computes while the other steps its environments
Slots = list[dict[str, str]]

GpuWorkers = Annotated[int, Field(ge=0, le=1024)]
GpuNumber = Annotated[int, Field(ge=0, le=1024)]
GpuId = Annotated[str, Field(max_length=200)]
ID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")


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

    def _check(self) -> None:
        super()._check()
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

    @property
    def on_gpu(self) -> bool:
        """Return whether the options ask for GPUs."""
        return self.kind == "gpu" or bool(self.gpus or self.gpu_ids)

    def slots(self, inference: str, learner: LearnerDevices | None = None) -> Slots:
        """Return the environment variables of each worker; DeviceError where a device is missing."""
        wanted = inference == "tensorflow" or self.on_gpu or (learner is not None and bool(learner.gpus))
        found = hardware.found() if wanted else None
        return plan(self, inference, os.environ.get(VISIBLE), found, learner, hardware.cores())

    def plan(self, inference: str, learner: LearnerDevices | None = None, other_machine: bool = False) -> str:
        """Return in one line which workers there will be, as `WorkersOptions.plan`."""
        try:
            return describe(self.slots(inference, learner), learner)
        except DeviceError as absent:
            if not other_machine:
                raise
            try:  # with the GPUs that the options ask for, however many those are
                there = describe(plan(self, inference, learner=learner), learner)
            except DeviceError:  # "gpu", and no option says which
                number = "all GPUs together" if self.count != "auto" else "each GPU"
                each = PER_GPU if inference == "tensorflow" else 1
                count = each if self.count == "auto" else self.count
                there = f"{count} workers on {number}{describe_learner(learner)}"
            return f"{there}\n# not on this machine: {absent}"


def plan(
    workers: LocalOptions,
    inference: str,
    visible: str | None = None,
    found: Sequence[Gpu] | None = None,
    learner: LearnerDevices | None = None,
    cores: int = 1,
) -> Slots:
    """Return the environment variables of each worker, from [workers] and what computes the networks.

    With the exact kernel a GPU has one worker, unless workers.gpus says another number, and those of workers.count that
    are left play on the CPU: results are the same. With TensorFlow all workers are on GPUs, or none.

    `visible` is the user's own CUDA_VISIBLE_DEVICES (None: every GPU). GPU i is its i-th entry, so hidden GPUs stay
    hidden. `found` are the GPUs of the machine (None: those that are asked for); `learner` is None where nothing
    learns; `cores` is the number of workers that "auto" means on the CPU. ConfigurationError where options contradict
    each other, DeviceError where a GPU is missing.
    """
    gpus, count = workers.gpus, workers.count
    assumed = found is None and visible is None
    found = _asked_for(workers) if assumed else found or []
    seen = usable(visible, found)
    # GPUs of processes of the learner's own may be of other machines.
    named = [] if assumed or learner is None or learner.processes else learner.gpus or []
    if absent := [number for number in named if number >= len(seen)]:
        see = f"{len(seen)} GPU{'s' if len(seen) > 1 else ''}" if seen else 'no GPU; "CPU:0" is the CPU'
        raise DeviceError(f'learner.devices: "GPU:{absent[0]}" is missing: this process sees {see}')
    exact = inference != "tensorflow"
    if exact and not workers.on_gpu:
        return [{} for _ in range(cores if count == "auto" else count)]
    if gpus and count != "auto" and (count < sum(gpus) or (not exact and count > sum(gpus))):
        raise ConfigurationError(
            f"workers.count: {count} is not the {sum(gpus)} workers that workers.gpus = {gpus} adds up to; "
            "leave one of them out (a mixture of GPUs and CPUs would not give one result)"
        )
    names = [] if workers.kind == "cpu" else _names(workers, seen, visible, found)
    if not names:
        if workers.kind == "gpu":
            raise DeviceError(
                'workers.kind: "gpu", and this process sees no GPU'
                + ("" if visible is None else f" for {VISIBLE} = {visible!r}")
                + '; "auto" plays on the CPU where there is none'
            )
        return [{VISIBLE: NO_GPU} for _ in range(cores if count == "auto" else count)]
    if exact:
        shared = zip(names, gpus or [1] * len(names), strict=True)
        slots = [pinned(name, visible, {CUDA_PLAYER: "1"}) for name, share in shared for _ in range(share)]
        return slots if count == "auto" else (slots + [{}] * count)[:count]
    learner_at = _learner_at(learner, names, seen, found)
    shares = _shares(workers, len(names), learner_at, learner.weight if learner else 0)
    for number, share in enumerate(shares):
        if workers.memory == "all" and share and share + (number in learner_at) > 1:
            also = " with the learner" if number in learner_at else ""
            raise ConfigurationError(
                f'workers.memory: "all" gives a GPU to its first process, and {share} would be on GPU {names[number]}'
                f'{also}; use "growth" or "limit"'
            )
    memory = memory_variables(workers)
    return [pinned(name, visible, memory) for name, share in zip(names, shares, strict=True) for _ in range(share)]


def pinned(name: str, visible: str | None, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a worker on a GPU, with some more; `visible` is as in `plan`."""
    order = {ORDER: BY_BUS} if visible is None and name.isdigit() else {}
    return {VISIBLE: name, **order, **more}


def describe(slots: Slots, learner: LearnerDevices | None = None) -> str:
    """Return the plan in one line, such as `4 workers: 2 on GPU 0, 2 on GPU 1; the learner on GPU 0`."""
    where = Counter(place(slot) for slot in slots)
    plural = "" if len(slots) == 1 else "s"
    workers = ", ".join(f"{count} on {name}" for name, count in where.items())
    return f"{len(slots)} worker{plural}: {workers}{describe_learner(learner)}"


def place(slot: Mapping[str, str]) -> str:
    """Return the place of a slot, in words."""
    name = slot.get(VISIBLE, NO_GPU)
    return "the CPU" if name == NO_GPU else name if name.startswith("MIG-") else f"GPU {name}"


def _asked_for(workers: LocalOptions) -> list[Gpu]:
    """Return the GPUs of a machine that has all that the options name."""
    numbers = [one for one in workers.gpu_ids if isinstance(one, int)]
    count = max([len(workers.gpus), *(number + 1 for number in numbers)])
    ids = [one for one in workers.gpu_ids if isinstance(one, str)]
    return [Gpu(number, "", uuid) for number, uuid in enumerate([""] * count + ids)]


def _names(workers: LocalOptions, seen: list[str], visible: str | None, found: Sequence[Gpu]) -> list[str]:
    """Return what pins a process to each GPU that workers may use, in their order."""
    gpus, ids = workers.gpus, workers.gpu_ids
    if ids:
        names = [_named(one, seen, visible, found) for one in ids]
        numbers = [_numbered(name, found) for name in names]
        for one, number in zip(ids, numbers, strict=True):
            if numbers.count(number) > 1:
                raise ConfigurationError(f"workers.gpu_ids: {ids} names a GPU twice, the one of {one}")
        if gpus and len(gpus) != len(names):
            raise ConfigurationError(
                f"workers.gpu_ids: {len(names)} GPUs, but workers.gpus has the workers of {len(gpus)}"
            )
        return names
    if gpus:
        if len(seen) < len(gpus):
            see = f"this machine has {len(seen) or 'none'}"
            if visible is not None:
                see = f"{VISIBLE} = {visible!r} lets this process see {len(seen)}"
            raise DeviceError(f"workers.gpus lists {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}, but {see}")
        return seen[: len(gpus)]
    return seen if found or workers.kind == "gpu" else []


def _named(one: int | str, seen: list[str], visible: str | None, found: Sequence[Gpu]) -> str:
    """Return what pins a process to the GPU that one of workers.gpu_ids names."""
    if isinstance(one, int):
        if one < len(seen):
            return seen[one]
        raise DeviceError(f"workers.gpu_ids: GPU {one} is missing: this process sees {', '.join(seen) or 'none'}")
    if visible is not None:
        if any(name.isdigit() for name in seen):
            raise DeviceError(
                f"workers.gpu_ids: {one} cannot be found in {VISIBLE} = {visible!r}, which has numbers; "
                "use numbers in both, or ids in both"
            )
        known = seen
    else:
        known = [name for gpu in found for name in (gpu.slices or (gpu.uuid,))]
    fitting = [name for name in known if name.startswith(one)]  # CUDA takes a beginning that fits one device only
    if len(fitting) != 1:
        raise DeviceError(f"workers.gpu_ids: {one} is not one of {', '.join(known) or 'none that this process sees'}")
    return fitting[0]


def _learner_at(learner: LearnerDevices | None, names: list[str], seen: list[str], found: Sequence[Gpu]) -> set[int]:
    """Return the positions of the workers' GPUs on which the learner computes too."""
    if learner is None:
        return set()
    numbers = learner.gpus
    if numbers is None:
        numbers = list(range(len(seen))) if learner.all_found else [0]
    taken = {_numbered(seen[number], found) for number in numbers if number < len(seen)}
    return {number for number, name in enumerate(names) if _numbered(name, found) in taken}


def _numbered(name: str, found: Sequence[Gpu]) -> str:
    """Return what pins a process, with a whole GPU's number instead of its id, where that is known."""
    return next((str(gpu.index) for gpu in found if gpu.uuid and gpu.uuid.startswith(name)), name)


def _shares(workers: LocalOptions, gpus: int, learner_at: set[int], weight: int) -> list[int]:
    """Return how many workers each GPU has.

    Explicit: as the option lists them. Spread: round-robin. Weighted: each on the GPU with the least load, the first of
    equals, where the learner counts as `weight` workers on each GPU that it computes on.
    """
    if workers.gpus:
        return workers.gpus
    number = PER_GPU * gpus if workers.count == "auto" else workers.count
    weighted = workers.placement == "weighted"
    loads = [weight if weighted and gpu in learner_at else 0 for gpu in range(gpus)]
    shares = [0] * gpus
    for _ in range(number):
        least = loads.index(min(loads))
        loads[least] += 1
        shares[least] += 1
    return shares


def memory_variables(workers: WorkersOptions) -> dict[str, str]:
    """Return the environment variables that say how a process allocates a GPU's memory."""
    variables = {GROWTH: "true" if workers.memory == "growth" else "false"}
    return {**variables, ALLOCATOR: workers.allocator} if workers.allocator else variables
