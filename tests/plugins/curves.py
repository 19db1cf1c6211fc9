"""Fitness functions, as whoever brings their own writes them."""

from __future__ import annotations

import os
import signal

import numpy as np

import evo


def fitness(weights, seed):  # type: ignore[no-untyped-def]
    """Tiny differences around a large value, with noise that follows the seed."""
    noise = np.random.default_rng(seed).normal(0.0, 1e-6)
    return -1e-6 * float(np.sum((weights - 0.5) ** 2)) + noise


def sphere(weights):  # type: ignore[no-untyped-def]
    return float(np.sum(weights**2))


def priced(weights):  # type: ignore[no-untyped-def]
    """Return a fitness and a small cost."""
    return float(np.sum(weights**2)), 1e-4 * float(np.sum(np.abs(weights)))


def exits(weights):  # type: ignore[no-untyped-def]
    os._exit(3)


def fails(weights):  # type: ignore[no-untyped-def]
    return 1.0 / float(weights[0] * 0)


def reads_no_file(weights):  # type: ignore[no-untyped-def]
    return float(open("no such file").read())


def half_defined(weights):  # type: ignore[no-untyped-def]
    return float(weights[0]) if weights[0] > 0 else float("nan")


def forgetful(weights):  # type: ignore[no-untyped-def]
    return float(np.random.default_rng().normal())


def deadly(weights):  # type: ignore[no-untyped-def]
    if weights[0] > 0.05:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(weights[0])


problem = evo.Problem(sphere, start=[2.0, -1.0, 3.0], minimise=True)
bounded = evo.Problem(sphere, start=[2.0, 3.0], minimise=True, lower=1.0, upper=[5.0, 2.0])
