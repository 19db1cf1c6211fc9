"""A run as its players need to know it, from sections as an experiment file has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evo.evaluators import processes
from evo.networks.network import Options as Policy
from evo.player import RunSpec
from evo.plugins import registry
from evo.workers.options import WorkersOptions


def spec(
    run_dir: Path,
    environment: Mapping[str, Any],
    policy: Mapping[str, Any],
    workers: Mapping[str, Any] | WorkersOptions | None = None,
    inference: Any = "lanes",
    **more: Any,
) -> RunSpec:
    """Return the specification of a run with these sections; `more` are its other fields."""
    registry.load(more.get("plugins", ()))
    options = registry.find("environments", environment.get("id", "snake").partition(":")[0]).Options(**environment)
    given = processes.Options(**workers) if isinstance(workers, Mapping) else workers or processes.Options()
    return RunSpec(run_dir, options, Policy(**policy), given, inference, **more)


def make(backend: Any, made: RunSpec, **how: Any) -> Any:
    """Return the evaluator of a backend's module."""
    return backend.make(made.workers, made, **how)
