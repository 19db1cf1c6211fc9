"""Pin a process to its device before TensorFlow starts, and check afterwards which devices TensorFlow sees.

A worker sees one GPU or none: its environment variables say so before TensorFlow makes its first device, and the worker
then checks it. Nothing falls back silently to another device.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from evo.errors import ConfigurationError, DeviceError, ResourceError
from evo.lazy import keras, tf
from evo.workers.hardware import VISIBLE
from evo.workers.options import WorkersOptions
from evo.workers.placement import BY_BUS, NO_GPU, ORDER

LINE_BUFFERED = 1  # <stdio.h>, _IOLBF
LEARNING = "run.algorithm: a gradient method"  # what needs TensorFlow, in a message
WANTED = 'policy.inference: "tensorflow"'
INSTALL = 'install them with: python -m pip install "tensorflow>=2.21,<2.22" "keras>=3.15,<3.16"'
LIBRARIES = "; TensorFlow may lack the CUDA libraries that the extra `gpu` installs"


def claim(workers: WorkersOptions) -> str:
    """Make TensorFlow in this process use exactly the device of its slot, and return that device's model, or "CPU".

    Call it before anything else touches a device. DeviceError where TensorFlow sees another number of GPUs than one
    (none, for a worker on the CPU).
    """
    pinned = os.environ.get(VISIBLE, "")
    wanted = 0 if pinned in ("", NO_GPU) else 1
    import_tensorflow(on_gpu=wanted == 1)
    there = tf.config.list_physical_devices("GPU")
    if len(there) != wanted:
        seen = ", ".join(gpu.name for gpu in there) or "none"
        raise DeviceError(
            f"this worker is pinned to {VISIBLE} = {pinned!r} and must see {wanted} GPU, but TensorFlow sees {seen}; "
            f"compare workers.gpus with what `nvidia-smi -L` lists{'' if there else LIBRARIES}"
        )
    try:
        tf.config.threading.set_intra_op_parallelism_threads(workers.threads)
        tf.config.threading.set_inter_op_parallelism_threads(workers.threads_inter)
        tf.config.set_soft_device_placement(workers.soft_placement)  # TensorFlow's own default hides what is not there
        if workers.log_placement:
            log_placement()
        tf.config.experimental.enable_tensor_float_32_execution(False)
        if there:
            tf.config.experimental.enable_op_determinism()  # else each process picks its own algorithms by timing them
        for gpu in there:
            if workers.memory == "growth" and not tf.config.experimental.get_memory_growth(gpu):
                tf.config.experimental.set_memory_growth(gpu, True)
            elif workers.memory == "limit":
                limit = tf.config.LogicalDeviceConfiguration(memory_limit=workers.memory_limit_mb)
                tf.config.set_logical_device_configuration(gpu, [limit])
    except RuntimeError as error:
        raise DeviceError(f"TensorFlow was in use before this process could be pinned: {error}") from error
    return _named(there)


def in_use() -> str:
    """Return the device of this process where something has used TensorFlow already; empty: it can be pinned."""
    import_tensorflow(on_gpu=False)
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    try:
        for number in (threads + 1, threads):  # it may be set only before
            tf.config.threading.set_intra_op_parallelism_threads(number)
    except RuntimeError:
        return _named(tf.config.list_physical_devices("GPU"))
    return ""


def _named(gpus: Sequence[Any]) -> str:
    """Return the model of the first GPU; "CPU" where there is none."""
    return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU")) if gpus else "CPU"


def log_placement() -> None:
    """Have TensorFlow log the device of every operation on standard error."""
    from evo.process import keep_from_libraries

    keep_from_libraries()
    with suppress(ValueError):  # a C library that calls it something else
        library = ctypes.CDLL(None)
        library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, LINE_BUFFERED, 0)  # else lost with a kill
    tf.debugging.set_log_device_placement(True)


def require_tensorflow(wanted: str = WANTED) -> None:
    """Raise a ConfigurationError where TensorFlow or Keras is not installed; importing them would take seconds."""
    for name in ("tensorflow", "keras"):
        if find_spec(name) is None:
            raise ConfigurationError(f"{wanted} needs TensorFlow and Keras, and {name} is not installed; {INSTALL}")


def import_tensorflow(on_gpu: bool, wanted: str = WANTED, otherwise: str = "") -> None:
    """Import TensorFlow and Keras without their start messages; ConfigurationError where they are missing.

    No device is touched, so this process, or its forked children, can be pinned afterwards. `wanted` is what needs
    them, `otherwise` what works without them. GPUs are numbered as in the plan, unless the user has numbered them.
    """
    if VISIBLE not in os.environ:
        os.environ.setdefault(ORDER, BY_BUS)
    # Log errors only; that there is no GPU driver is one only where a GPU is wanted.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if on_gpu else "3")
    if (backend := os.environ.setdefault("KERAS_BACKEND", "tensorflow")) != "tensorflow":
        raise ConfigurationError(f"{wanted} needs KERAS_BACKEND=tensorflow in the environment, not {backend}")
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as messages:
        os.dup2(messages.fileno(), 2)
        try:
            import keras  # noqa: F401
            import tensorflow  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                f"{wanted} needs TensorFlow and Keras, and they cannot be imported: {error}; {INSTALL}{otherwise}"
            ) from error
        finally:
            os.dup2(real, 2)
            os.close(real)


def arithmetic_on(device: str) -> str:
    """Return the fingerprint of this process's device: versions of TensorFlow and Keras, and the machine."""
    from llvmlite import binding

    machine = binding.get_host_cpu_name() if device == "CPU" else device
    return f"tensorflow {tf.__version__}, keras {keras.__version__}, {device} {machine}"


@contextmanager
def shortages_as(explained: Callable[[Exception], ResourceError]) -> Iterator[None]:
    """Raise what explains TensorFlow's out-of-memory error in its place; other errors, which are bugs, pass."""
    try:
        yield
        return
    except tf.errors.ResourceExhaustedError as error:
        short = explained(error)
    raise short  # outside of `except`, so that the traceback does not keep the tensors alive


def shortage(error: Exception) -> str:
    """Return the line of TensorFlow's out-of-memory error with the tensor that did not fit, and the device."""
    message = str(error)
    line = next((line for line in message.splitlines() if "OOM" in line), message.strip().partition("\n")[0])
    return line[max(line.find("OOM"), 0) :].partition(" [Op:")[0].strip()[:200]
