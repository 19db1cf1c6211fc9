"""Libraries that only some features need, imported when one is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from evo.errors import ConfigurationError, first_line


def extra(module: str, wanted: str) -> Any:
    """Return a module that `wanted`, as typed, needs; ConfigurationError says how to install it where it is missing."""
    try:
        return import_module(module)
    except (ImportError, TypeError) as error:  # the latter where a library that it needs is of another version
        package = module.partition(".")[0].replace("_", "-")
        raise ConfigurationError(
            f"{wanted} needs {package}, and it cannot be imported ({first_line(error)}); install it with: "
            f"python -m pip install {package}"
        ) from error
