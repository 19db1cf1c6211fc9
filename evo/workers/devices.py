"""Pins a process to its device before TensorFlow looks, and checks afterwards what TensorFlow sees.

A worker sees one GPU or none: its environment says so before TensorFlow makes its first device, and the worker then
checks what it really sees. Nothing falls back silently to another device.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from evo.errors import ConfigurationError, DeviceError
from evo.workers import gpus, placement
from evo.workers.placement import BY_PLACE, NO_GPU, ORDER, VISIBLE, Slots, describe, describe_elsewhere, with_learner

HERE = ("processes", "serial")  # backends that play on this machine's devices
LINE_BY_LINE = 1  # <stdio.h>, _IOLBF
LIBRARIES = "; TensorFlow may lack the CUDA libraries that the extra `gpu` brings"
__all__ = [
    "NO_GPU",
    "VISIBLE",
    "Slots",
    "candidates_per_task",
    "claim",
    "cores",
    "describe",
    "describe_elsewhere",
    "import_tensorflow",
    "log_where_operations_run",
    "plan",
    "slots",
    "with_learner",
]


def plan(
    workers: Mapping[str, Any],
    inference: str,
    visible: str | None = None,
    found: Sequence[gpus.Gpu] | None = None,
    learner: Mapping[str, Any] | None = None,
) -> Slots:
    """Return the environment variables of each worker, with a worker a core where "auto" means the CPU."""
    return placement.plan(workers, inference, visible, found, learner, cores())


def slots(workers: Mapping[str, Any], inference: str, learner: Mapping[str, Any] | None = None) -> Slots:
    """Return the environment variables of each worker on this machine, with the GPUs that it has and may use."""
    wanted = inference == "tensorflow" or (learner and placement.learner_gpus(learner))
    found = gpus.found() if wanted else None
    return plan(workers, inference, os.environ.get(VISIBLE), found, learner)


def candidates_per_task(workers: Mapping[str, Any], usual: int, population: int) -> int:
    """Return how many candidates a task of this machine's workers holds, where TensorFlow plays.

    Where others play, on a cluster, it is the `usual` number, as where there is not what the options ask for.
    """
    backend = workers.get("backend", "processes")
    if backend not in HERE:
        return usual
    try:
        serial = backend == "serial"
        found = [slot_of_master(workers, "tensorflow")] if serial else slots(workers, "tensorflow")
    except DeviceError:
        return usual
    return placement.candidates_per_task(workers, found, usual, population)


def slot_of_master(workers: Mapping[str, Any], inference: str) -> dict[str, str]:
    """Return the environment variables of a master that plays itself: those of the first of its workers."""
    return slots({**workers, "count": "auto" if workers.get("gpus") else 1}, inference)[0]


def cores() -> int:
    """Return how many CPU cores this process may use: those it is bound to, and no more than its container's share."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(allowed, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such limit
        return allowed


def claim(
    memory: str = "growth",
    memory_limit_mb: int = 0,
    threads: int = 1,
    threads_inter: int = 1,
    soft_placement: bool = False,
    log_placement: bool = False,
) -> str:
    """Make TensorFlow in this process use exactly the device of its slot, and return that device's model, or "CPU".

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
            f"compare workers.gpus with what `nvidia-smi -L` lists{'' if gpus else LIBRARIES}"
        )
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads_inter)
        tf.config.set_soft_device_placement(soft_placement)  # TensorFlow's own default hides what is not there
        if log_placement:
            log_where_operations_run()
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


def log_where_operations_run() -> None:
    """Have TensorFlow tell of every operation where it runs, on standard error."""
    import tensorflow as tf

    from evo.workers.standard_streams import keep_from_libraries

    keep_from_libraries()
    with suppress(ValueError):  # a C library that calls it something else
        library = ctypes.CDLL(None)
        library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, LINE_BY_LINE, 0)  # or a killed worker keeps it
    tf.debugging.set_log_device_placement(True)


def import_tensorflow(on_gpu: bool, wanted: str = 'policy.inference: "tensorflow"', otherwise: str = "") -> None:
    """Import TensorFlow and Keras without their greetings on the terminal; ConfigurationError where they are missing.

    No device is touched, so a process may still be pinned, or forked and its children be pinned, afterwards. `wanted`
    is what needs them, and `otherwise` what a user can do without. GPUs that a user has not numbered otherwise are
    numbered as in the plan.
    """
    if VISIBLE not in os.environ:
        os.environ.setdefault(ORDER, BY_PLACE)
    # Errors only; and that there is no GPU driver is an error only where a GPU is wanted.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if on_gpu else "3")
    if (backend := os.environ.setdefault("KERAS_BACKEND", "tensorflow")) != "tensorflow":
        raise ConfigurationError(f"{wanted} needs KERAS_BACKEND=tensorflow in the environment, not {backend}")
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as greetings:
        os.dup2(greetings.fileno(), 2)
        try:
            import keras  # noqa: F401
            import tensorflow  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                f"{wanted} needs TensorFlow and Keras, and they cannot be imported: {error}; install them{otherwise}"
            ) from error
        finally:
            os.dup2(real, 2)
            os.close(real)
