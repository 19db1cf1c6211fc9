"""A fitness of a Keras model, as whoever brings their own model writes it."""

from __future__ import annotations

import os
import signal

import numpy as np

POINTS = np.linspace(-1, 1, 32, dtype=np.float32)[:, np.newaxis]


def fitness(model, seed):  # type: ignore[no-untyped-def]
    """Less the squared error of a model that is to square noisy numbers."""
    x = POINTS + np.random.default_rng(seed).normal(0, 0.01, POINTS.shape).astype(np.float32)
    return -float(np.mean((np.asarray(model(x)) - x**2) ** 2))


def exact(model):  # type: ignore[no-untyped-def]
    return fitness(model, 1)


def deadly(model):  # type: ignore[no-untyped-def]
    """End the process once, in the worker that makes the file first."""
    try:
        os.close(os.open(os.environ["KILLED_ONCE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return exact(model)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0
