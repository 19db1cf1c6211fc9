"""What TensorFlow says where an update fails, in one line for the user: no memory, a lost process, or what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evo.errors import DeviceMemoryError, ResourceError

INTACT = "what was committed is intact: resume it"
PREFIX = re.compile(r"^\{\{[^}]*\}\} *")  # a name that TensorFlow has for itself


def explained(error: Any) -> ResourceError:
    """Return the failure that a `tf.errors.OpError` stands for; DeviceMemoryError where a device's memory is full."""
    import tensorflow as tf

    if isinstance(error, tf.errors.ResourceExhaustedError):
        return DeviceMemoryError(
            f"out of memory: {shortage(error)}; fewer examples in an update (pg.minibatches, dqn.batch) need less; "
            "what was committed is intact: resume it, or with --fork and fewer"
        )
    kind = type(error).__name__
    gone = tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError
    if isinstance(error, gone):
        lines = str(error).strip().splitlines() or ["nothing more is said"]
        return ResourceError(
            f"learner.strategy: the learner's processes have lost each other ({kind}: {lines[-1][:300]}); {INTACT}"
        )
    return ResourceError(f"learner.strategy: TensorFlow could not compute an update ({kind}: {first_line(error)})")


@contextmanager
def shortages_explained() -> Iterator[None]:
    """Turn TensorFlow's error for a device without memory into ours, and leave others, which are bugs, as they are."""
    import tensorflow as tf

    try:
        yield
        return
    except tf.errors.ResourceExhaustedError as error:
        short = explained(error)
    raise short  # out here, so that it does not hold what was being computed, and its memory


def shortage(error: Any) -> str:
    """Return the line of an out of memory that says what did not fit, on which device."""
    told = str(error)
    line = next((line for line in told.splitlines() if "OOM" in line), told.strip().partition("\n")[0])
    return line[max(line.find("OOM"), 0) :].partition(" [Op:")[0].strip()[:200]


def first_line(error: Any) -> str:
    """Return what TensorFlow says first, without where in a graph."""
    lines = (line.strip() for line in str(error.message or error).splitlines())
    said = (line for line in lines if line and not line.startswith(("Graph execution error", "Detected at", "File ")))
    return PREFIX.sub("", next(said, "nothing more is said").partition(" [Op:")[0])[:300]
