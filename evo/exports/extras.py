"""Libraries that only some exports need, imported when one is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from evo.errors import ConfigurationError


def extra(module: str, kind: str) -> Any:
    """Return a module that `--to kind` needs; ConfigurationError says how to install it where it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ConfigurationError(
            f"--to {kind} needs {package}, and it cannot be imported: {error}; install it with: "
            f"python -m pip install 'snake-evo[{kind}]'"
        ) from error
