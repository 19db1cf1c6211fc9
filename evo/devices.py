"""Which worker computes on which device, decided without TensorFlow and enforced before TensorFlow looks.

A worker sees one GPU or none: its environment says so before TensorFlow makes its first device, and the worker then
checks what it really sees. Nothing falls back silently to another device.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evo.errors import ConfigurationError, DeviceError

VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_GPU = "-1"
Slots = list[dict[str, str]]


def plan(workers: Mapping[str, Any], inference: str, visible: str | None = None) -> Slots:
    """Return the environment variables of each worker, from [workers] and what computes the networks.

    `visible` is the user's own CUDA_VISIBLE_DEVICES (or None: every GPU): entry i of `workers.gpus` is the i-th GPU
    of it, so GPUs that the user has hidden stay hidden. DeviceError where it has fewer GPUs than are listed.
    """
    gpus: Sequence[int] = workers.get("gpus", ())
    count = workers.get("count", "auto")
    if not gpus:
        number = cores() if count == "auto" else int(count)
        if inference != "tensorflow":
            return [{} for _ in range(number)]
        return [{VISIBLE: NO_GPU} for _ in range(number)]
    if inference != "tensorflow":
        raise ConfigurationError('workers.gpus: only policy.inference = "tensorflow" computes on GPUs')
    if count not in ("auto", sum(gpus)):
        raise ConfigurationError(
            f"workers.count: {count} is not the {sum(gpus)} workers that workers.gpus = {list(gpus)} adds up to; "
            "leave one of them out (a mixture of GPUs and CPUs would not give one result)"
        )
    names = [str(i) for i in range(len(gpus))] if visible is None else _listed(visible)
    if len(names) < len(gpus):
        raise DeviceError(
            f"workers.gpus lists {len(gpus)} GPUs, but {VISIBLE} = {visible!r} lets this process see {len(names)}"
        )
    # By default CUDA numbers the fastest GPU 0; nvidia-smi and people number them by their place on the bus.
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if visible is None else {}
    return [
        {VISIBLE: name, **order, **_memory(workers, per_gpu)}
        for name, per_gpu in zip(names, gpus, strict=False)
        for _ in range(per_gpu)
    ]


def describe(slots: Slots) -> str:
    """Return the plan in one line, such as `4 workers: 2 on GPU 0, 2 on GPU 1`."""
    where: dict[str, int] = {}
    for slot in slots:
        name = slot.get(VISIBLE, NO_GPU)
        name = "the CPU" if name == NO_GPU else f"GPU {name}"
        where[name] = where.get(name, 0) + 1
    plural = "" if len(slots) == 1 else "s"
    return f"{len(slots)} worker{plural}: " + ", ".join(f"{count} on {name}" for name, count in where.items())


def cores() -> int:
    """Return how many CPU cores this process may use: those it is bound to, and no more than its container's share."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(allowed, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such limit
        return allowed


def claim(memory: str = "growth", memory_limit_mb: int = 0, threads: int = 1) -> str:
    """Make TensorFlow in this process use exactly the device of its slot, and return that device's name.

    Call it before anything else touches a device. DeviceError where TensorFlow sees another number of GPUs than one
    (none, for a worker on the CPU).
    """
    pinned = os.environ.get(VISIBLE, "")
    wanted = 0 if pinned in ("", NO_GPU) else 1
    import_tensorflow(on_gpu=wanted == 1)
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) != wanted:
        seen = ", ".join(gpu.name for gpu in gpus) or "none"
        raise DeviceError(
            f"this worker is pinned to {VISIBLE} = {pinned!r} and must see {wanted} GPU, but TensorFlow sees {seen}; "
            "compare workers.gpus with what nvidia-smi lists"
        )
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.experimental.enable_tensor_float_32_execution(False)
        if gpus:
            tf.config.experimental.enable_op_determinism()  # else each process picks its own algorithms by timing them
        for gpu in gpus:
            if memory == "growth" and not tf.config.experimental.get_memory_growth(gpu):
                tf.config.experimental.set_memory_growth(gpu, True)
            elif memory == "limit":
                limit = tf.config.LogicalDeviceConfiguration(memory_limit=memory_limit_mb)
                tf.config.set_logical_device_configuration(gpu, [limit])
    except RuntimeError as error:
        raise DeviceError(f"TensorFlow was in use before this process could be pinned: {error}") from error
    if not gpus:
        return "CPU"
    return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))


def import_tensorflow(on_gpu: bool) -> None:
    """Import TensorFlow and Keras without their greetings on the terminal; ConfigurationError where they are missing.

    No device is touched, so a process may still be pinned, or forked and its children be pinned, afterwards.
    """
    # Errors only; and that there is no GPU driver is an error only where a GPU is wanted.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if on_gpu else "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as greetings:
        os.dup2(greetings.fileno(), 2)
        try:
            import keras  # noqa: F401
            import tensorflow  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                f'policy.inference: "tensorflow" needs TensorFlow and Keras, which cannot be imported: {error}'
            ) from error
        finally:
            os.dup2(real, 2)
            os.close(real)


def _listed(visible: str) -> list[str]:
    """Return the GPUs of a CUDA_VISIBLE_DEVICES: CUDA reads it up to the first entry that is no device."""
    names: list[str] = []
    for name in (part.strip() for part in visible.split(",")):
        if not name or name.startswith("-") or name in names:
            break
        names.append(name)
    return names


def _memory(workers: Mapping[str, Any], per_gpu: int) -> dict[str, str]:
    memory = workers.get("memory", "growth")
    if memory == "limit" and not workers.get("memory_limit_mb", 0):
        raise ConfigurationError('workers.memory_limit_mb: required by workers.memory = "limit"')
    if memory == "all" and per_gpu > 1:
        raise ConfigurationError(
            f'workers.memory: "all" gives a GPU to its first worker, and workers.gpus puts {per_gpu} on one; '
            'use "growth" or "limit"'
        )
    return {"TF_FORCE_GPU_ALLOW_GROWTH": "true" if memory == "growth" else "false"}
