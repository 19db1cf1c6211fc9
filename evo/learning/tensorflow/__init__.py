"""The learner that computes updates in TensorFlow, set up for equal bits; its failures as one line for the user."""

from __future__ import annotations

import os
import re
from typing import Any

from evo.errors import DeviceError, DeviceMemoryError, ResourceError
from evo.lazy import tf
from evo.setup import LearnerOptions as Options
from evo.workers import devices
from evo.workers.placement import GROWTH

RESUME = "the last commit is intact: resume the run"
PREFIX = re.compile(r"^\{\{[^}]*\}\} *")  # TensorFlow's name of a node


def start_tensorflow(options: Options) -> Any:
    """Import TensorFlow, set up for equal bits, and return it; DeviceError where it was set up otherwise before."""
    devices.import_tensorflow(on_gpu=False, wanted=devices.LEARNING)
    tf.get_logger().setLevel("ERROR")  # it warns of functions that are compiled for a few batch sizes
    try:
        inside, side_by_side = options.threading
        tf.config.threading.set_intra_op_parallelism_threads(inside)
        tf.config.threading.set_inter_op_parallelism_threads(side_by_side)
        if options.log_placement:
            devices.log_placement()
        if options.logical_cpus:
            cpu, parts = tf.config.list_physical_devices("CPU")[0], options.logical_cpus
            if len(tf.config.get_logical_device_configuration(cpu) or ()) != parts:
                tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * parts)
        gpus = tf.config.list_physical_devices("GPU")
        last = options.place.last_gpu
        if last is not None and last + 1 < len(gpus):
            gpus = gpus[: last + 1]
            tf.config.set_visible_devices(gpus, "GPU")  # or it would take memory of the others
        for gpu in gpus if GROWTH not in os.environ else ():  # else the user, or the worker's slot, has decided
            if not tf.config.experimental.get_memory_growth(gpu):
                tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        raise DeviceError(
            f"learner.threads: TensorFlow was set up before with another number of threads: {error}"
        ) from error
    tf.config.experimental.enable_tensor_float_32_execution(False)
    tf.config.experimental.enable_op_determinism()
    return tf


def explained(error: Any) -> ResourceError:
    """Return the failure that a `tf.errors.OpError` means; DeviceMemoryError where a device is out of memory."""
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return DeviceMemoryError(
            f"out of memory: {devices.shortage(error)}; use more minibatches (ppo, pqn) or a smaller dqn.batch_size; "
            f"{RESUME}, with --fork where options change"
        )
    kind = type(error).__name__
    gone = tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError
    if isinstance(error, gone):
        lines = str(error).strip().splitlines() or ["no message"]
        return ResourceError(
            f"learner.strategy: the learner's processes lost their connection ({kind}: {lines[-1][:300]}); {RESUME}"
        )
    return ResourceError(f"learner.strategy: TensorFlow could not compute an update ({kind}: {first_line(error)})")


def first_line(error: Any) -> str:
    """Return the first line of TensorFlow's message, without the place in its graph."""
    lines = (line.strip() for line in str(error.message or error).splitlines())
    useful = (line for line in lines if line and not line.startswith(("Graph execution error", "Detected at", "File ")))
    return PREFIX.sub("", next(useful, "no message").partition(" [Op:")[0])[:300]
