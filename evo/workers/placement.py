"""Which worker computes on which device: a plan made of options and a list of GPUs, without TensorFlow or a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evo.errors import ConfigurationError, DeviceError
from evo.workers.gpus import Gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
BY_PLACE = "PCI_BUS_ID"  # as nvidia-smi and people number GPUs; by default CUDA numbers the fastest 0
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ALLOCATOR = "TF_GPU_ALLOCATOR"
NO_GPU = "-1"
PROCESSES = ("multiworker", "parameter-server")  # strategies of a learner that has processes of its own
NETWORKS_PER_CALL = 64  # of TensorFlow on a GPU, where nobody says how many; on a CPU one is fastest
PER_GPU = 2  # workers, where nobody says how many: one computes while the other plays its games
Slots = list[dict[str, str]]


def plan(
    workers: Mapping[str, Any],
    inference: str,
    visible: str | None = None,
    found: Sequence[Gpu] | None = None,
    learner: Mapping[str, Any] | None = None,
    cores: int = 1,
) -> Slots:
    """Return the environment variables of each worker, from [workers] and what computes the networks.

    `visible` is the user's own CUDA_VISIBLE_DEVICES (or None: every GPU): GPU i is the i-th of it, so what the user
    has hidden stays hidden. `found` are the GPUs of the machine (None: nobody has looked); `learner` is [learner] where
    something learns; `cores` is how many workers "auto" means on the CPU. ConfigurationError where options contradict
    each other, DeviceError where a GPU is asked for that is not there.
    """
    gpus: Sequence[int] = workers.get("gpus", ())
    count, kind = workers.get("count", "auto"), workers.get("kind", "auto")
    seen = None if visible is None and found is None else _seen(visible, found)
    if seen is not None and any(number >= len(seen) for number in _of_this_process(learner)):
        absent = next(number for number in _of_this_process(learner) if number >= len(seen))
        see = f"{len(seen)} GPU{'s' if len(seen) > 1 else ''}" if seen else 'no GPU; "CPU:0" is the CPU'
        raise DeviceError(f'learner.devices: "GPU:{absent}" is not there, for this process sees {see}')
    if inference != "tensorflow":
        if gpus or workers.get("gpu_ids") or kind == "gpu":
            key = "gpus" if gpus else "kind" if kind == "gpu" else "gpu_ids"
            raise ConfigurationError(f'workers.{key}: only policy.inference = "tensorflow" computes on GPUs')
        return [{} for _ in range(cores if count == "auto" else int(count))]
    if count not in ("auto", sum(gpus)) and gpus:
        raise ConfigurationError(
            f"workers.count: {count} is not the {sum(gpus)} workers that workers.gpus = {list(gpus)} adds up to; "
            "leave one of them out (a mixture of GPUs and CPUs would not give one result)"
        )
    names = [] if kind == "cpu" else _names(workers, seen, visible, found)
    if not names:
        if kind == "gpu":
            raise DeviceError(
                'workers.kind: "gpu", and this process sees no GPU'
                + ("" if visible is None else f" for {VISIBLE} = {visible!r}")
                + '; "auto" plays on the CPU where there is none'
            )
        return [{VISIBLE: NO_GPU} for _ in range(cores if count == "auto" else int(count))]
    learner_at = _learner_at(learner, names, seen, found)
    shares = _shares(workers, len(names), learner_at, int((learner or {}).get("weight", 0)))
    for number, share in enumerate(shares):
        if workers.get("memory") == "all" and share and share + (number in learner_at) > 1:
            beside = " beside the learner" if number in learner_at else ""
            raise ConfigurationError(
                f'workers.memory: "all" gives a GPU to its first process, and {share} would be on GPU {names[number]}'
                f'{beside}; use "growth" or "limit"'
            )
    memory = memory_of(workers)
    slots: Slots = []
    for name, share in zip(names, shares, strict=True):
        order = {ORDER: BY_PLACE} if visible is None and name.isdigit() else {}
        slots += [{VISIBLE: name, **order, **memory} for _ in range(share)]
    return slots


def describe(slots: Slots, learner: Mapping[str, Any] | None = None) -> str:
    """Return the plan in one line, such as `4 workers: 2 on GPU 0, 2 on GPU 1; the learner on GPU 0`."""
    where: dict[str, int] = {}
    for slot in slots:
        name = place(slot)
        where[name] = where.get(name, 0) + 1
    plural = "" if len(slots) == 1 else "s"
    told = f"{len(slots)} worker{plural}: " + ", ".join(f"{count} on {name}" for name, count in where.items())
    return told + with_learner(learner)


def describe_elsewhere(workers: Mapping[str, Any], inference: str, learner: Mapping[str, Any] | None = None) -> str:
    """Return the plan in one line for a machine that has the GPUs that the options ask for, however many those are."""
    try:
        return describe(plan(workers, inference, learner=learner), learner)
    except DeviceError:  # "gpu", and no option says which
        count = workers.get("count", "auto")
        told = f"{PER_GPU} workers on each GPU" if count == "auto" else f"{count} workers on all GPUs together"
        return told + with_learner(learner)


def with_learner(learner: Mapping[str, Any] | None) -> str:
    """Return where the learner of [learner] is, as the end of a line, or nothing where nothing learns."""
    if learner is None:
        return ""
    numbers = learner_gpus(learner)
    if numbers is None:
        which = "the first GPU" if learner.get("strategy", "one") == "one" else "all GPUs"
        return f"; the learner on {which} that it sees, else the CPU"
    return f"; the learner on {' and '.join(f'GPU {number}' for number in numbers) or 'the CPU'}"


def candidates_per_task(workers: Mapping[str, Any], slots: Slots, usual: int, population: int) -> int:
    """Return how many candidates a task holds where TensorFlow plays: as many as a call computes, if that is more.

    `usual` is what follows from the network's size. No task is so large that a worker has none. A call has one shape,
    however many candidates there are to fill it, so nothing that is computed depends on this.
    """
    asked = int(workers.get("candidates_per_call", 0))
    per_call = asked or (NETWORKS_PER_CALL if any(place(slot) != "the CPU" for slot in slots) else 1)
    return max(usual, min(per_call, -(-population // len(slots))))


def place(slot: Mapping[str, str]) -> str:
    """Return what a slot is pinned to, in words."""
    name = slot.get(VISIBLE, NO_GPU)
    return "the CPU" if name == NO_GPU else name if name.startswith("MIG-") else f"GPU {name}"


def learner_gpus(learner: Mapping[str, Any]) -> list[int] | None:
    """Return which of the visible GPUs a learner computes on, by number: none on the CPU; None, it takes what it finds.

    `learner` is [learner], whose `devices` are as "GPU:0" or "CPU:1"; processes of its own have the CPU without.
    """
    devices: Sequence[str] = learner.get("devices", ())
    if not devices:
        return [] if learner.get("strategy") in PROCESSES else None
    return sorted({int(device[4:]) for device in devices if device.startswith("GPU:")})


def last_gpu(learner: Mapping[str, Any]) -> int | None:
    """Return the number of the last GPU that a learner in this process computes on, at least 0; None, the last of all.

    TensorFlow takes memory of every GPU that it sees, and numbers those that it sees from 0.
    """
    numbers = learner_gpus(learner)
    if numbers is None:
        return 0 if learner.get("strategy", "one") == "one" else None
    return max(numbers, default=0)


def _seen(visible: str | None, found: Sequence[Gpu] | None) -> list[str]:
    """Return what pins a process to each GPU that this process may use."""
    return listed(visible) if visible is not None else [name for gpu in found or () for name in gpu.names]


def _names(
    workers: Mapping[str, Any], seen: list[str] | None, visible: str | None, found: Sequence[Gpu] | None
) -> list[str]:
    """Return what pins a process to each GPU that workers may use, in their order; `seen` is None where unknown."""
    gpus: Sequence[int] = workers.get("gpus", ())
    ids: Sequence[int | str] = workers.get("gpu_ids", ())
    if ids:
        names = [_named(one, seen, visible, found) for one in ids]
        numbers = [_numbered(name, found) for name in names]
        for one, number in zip(ids, numbers, strict=True):
            if numbers.count(number) > 1:
                raise ConfigurationError(f"workers.gpu_ids: {list(ids)} names a GPU twice, the one of {one}")
        if gpus and len(gpus) != len(names):
            raise ConfigurationError(
                f"workers.gpu_ids: {len(names)} GPUs, and workers.gpus says of {len(gpus)} how many workers they have"
            )
        return names
    if gpus:
        names = [str(i) for i in range(len(gpus))] if seen is None else seen[: len(gpus)]
        if len(names) < len(gpus):
            see = f"this machine has {len(names) or 'none'}"
            if visible is not None:
                see = f"{VISIBLE} = {visible!r} lets this process see {len(names)}"
            raise DeviceError(f"workers.gpus lists {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}, but {see}")
        return names
    return (seen or []) if found or workers.get("kind", "auto") == "gpu" else []


def _named(one: int | str, seen: list[str] | None, visible: str | None, found: Sequence[Gpu] | None) -> str:
    """Return what pins a process to the GPU that one of workers.gpu_ids names."""
    if isinstance(one, int):
        if seen is None:
            return str(one)
        if one < len(seen):
            return seen[one]
        raise DeviceError(f"workers.gpu_ids: there is no GPU {one}; this process sees {', '.join(seen) or 'none'}")
    if visible is not None:
        if any(name.isdigit() for name in seen or ()):
            raise DeviceError(
                f"workers.gpu_ids: {one} cannot be looked for in {VISIBLE} = {visible!r}, which has numbers; "
                "write both in one way"
            )
        known = seen or []
    elif found is not None:
        known = [name for gpu in found for name in (gpu.slices or (gpu.uuid,))]
    else:
        return one
    fitting = [name for name in known if name.startswith(one)]  # CUDA takes a beginning that fits one device only
    if len(fitting) != 1:
        raise DeviceError(f"workers.gpu_ids: {one} is not one of {', '.join(known) or 'none that this process sees'}")
    return fitting[0]


def _of_this_process(learner: Mapping[str, Any] | None) -> Sequence[int]:
    """Return the GPUs that [learner] names for this process; those of other processes may be of other machines."""
    return [] if learner is None or learner.get("strategy") in PROCESSES else learner_gpus(learner) or []


def _learner_at(
    learner: Mapping[str, Any] | None, names: list[str], seen: list[str] | None, found: Sequence[Gpu] | None
) -> set[int]:
    """Return at which of the workers' GPUs the learner computes too; none, where it is elsewhere or nothing learns."""
    if learner is None:
        return set()
    all_gpus = names if seen is None else seen
    numbers = learner_gpus(learner)
    if numbers is None:
        numbers = [0] if learner.get("strategy", "one") == "one" else list(range(len(all_gpus)))
    here = [str(number) if seen is None else seen[number] for number in numbers if seen is None or number < len(seen)]
    taken = {_numbered(name, found) for name in here}
    return {number for number, name in enumerate(names) if _numbered(name, found) in taken}


def _numbered(name: str, found: Sequence[Gpu] | None) -> str:
    """Return what pins a process, with a whole GPU's number instead of its id, where that is known."""
    return next((str(gpu.index) for gpu in found or () if gpu.uuid and gpu.uuid.startswith(name)), name)


def _shares(workers: Mapping[str, Any], gpus: int, learner_at: set[int], weight: int) -> list[int]:
    """Return how many workers each GPU has.

    Explicit: as the option lists them. Spread: in turns. Weighted: each on the GPU with the least to do, the first of
    equals, where the learner counts as so many workers on each GPU that it computes on.
    """
    if workers.get("gpus"):
        return list(workers["gpus"])
    count = workers.get("count", "auto")
    number = PER_GPU * gpus if count == "auto" else int(count)
    weighted = workers.get("placement") == "weighted"
    loads = [weight if weighted and gpu in learner_at else 0 for gpu in range(gpus)]
    shares = [0] * gpus
    for _ in range(number):
        least = loads.index(min(loads))
        loads[least] += 1
        shares[least] += 1
    return shares


def listed(visible: str) -> list[str]:
    """Return the GPUs of a CUDA_VISIBLE_DEVICES: CUDA reads it up to the first entry that is no device."""
    names: list[str] = []
    for name in (part.strip() for part in visible.split(",")):
        if not name or name.startswith("-") or name in names:
            break
        names.append(name)
    return names


def memory_of(workers: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that say how a process takes a GPU's memory."""
    memory = workers.get("memory", "growth")
    if memory == "limit" and not workers.get("memory_limit_mb", 0):
        raise ConfigurationError('workers.memory_limit_mb: required by workers.memory = "limit"')
    variables = {GROWTH: "true" if memory == "growth" else "false"}
    if workers.get("allocator"):
        variables[ALLOCATOR] = str(workers["allocator"])
    return variables
