"""What is said where memory does not suffice: how much was asked for, and which options are larger than usual."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from evo.config.experiment import Experiment
from evo.errors import OutOfMemoryError, first_line
from evo.workers.hardware import memory

SHOWN = 4  # options that are named, at most
NO_SIZES = {"generations", "seed", "every", "block"}


@contextmanager
def shortage_named(experiment: Experiment) -> Iterator[None]:
    """Turn a MemoryError into an OutOfMemoryError that names the options of whole numbers above their defaults."""
    try:
        yield
    except MemoryError as error:
        asked = f"; {first_line(error)}" if str(error) else ""
        large = _large(experiment)
        advice = (
            f"take less of {' or '.join(large)}" if large else "take a smaller network, or fewer episodes at a time"
        )
        raise OutOfMemoryError(f"out of memory{asked}{_there()}; {advice}") from error


def _there() -> str:
    """Return in words how much memory there is for this process, where the system says."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        return f"; this process may have {limit / 1e9:.1f} GB"
    return f"; this machine has {most / 1e9:.1f} GB" if (most := memory()) else ""


def _large(experiment: Experiment) -> list[str]:
    """Return the options of whole numbers above their defaults, as in a file, those first that are above by most."""
    found = list[tuple[float, str]]()
    sections = {experiment.algorithm: experiment.options, "environment": experiment.environment}
    for section, options in {**sections, "validation": experiment.validation, "test": experiment.test}.items():
        for name, field in type(options).model_fields.items():
            value, usual = getattr(options, name), field.default
            if type(value) is type(usual) is int and value > usual and name not in NO_SIZES:
                found.append((value / max(usual, 1), f"{section}.{name} = {value}"))
    return [text for _, text in sorted(found, reverse=True)[:SHOWN]]
