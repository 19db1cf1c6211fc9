"""Plug-ins that a run or a champion needs, and what the files that a run has written are to be blamed for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evo.errors import ConfigurationError, DataError, MissingPluginError
from evo.plugins import registry

PLUGIN = re.compile(r"\w{1,100}", re.ASCII)  # the last name of a module


@contextmanager
def stored() -> Iterator[None]:
    """Have mistakes in a file that a run has written be a DataError; a missing plug-in is one of the command line."""
    try:
        yield
    except MissingPluginError:
        raise
    except ConfigurationError as error:
        raise DataError(str(error)) from error


def require_plug_ins(who: str, algorithm: object, identifier: object) -> None:
    """Raise MissingPluginError where `who` needs an algorithm or an environment that no loaded plug-in brings."""
    from evo.environments.gymnasium import PREFIX, is_registered

    for folder, name in (("algorithms", algorithm), ("environments", identifier)):
        if not isinstance(name, str):
            continue
        registered = name.startswith(PREFIX) and ":" not in name.removeprefix(PREFIX)
        if not registered and not PLUGIN.fullmatch(name):
            continue  # no plug-in can have such a name
        known = registry.module_of(name) in registry.names(folder)
        if not known or (registered and not is_registered(name)):
            how = "--plugin MODULE" if registered else f"--plugin {name}, or package.{name}"
            which = file_here(name) or f"add the plug-in that has it: {how}"
            raise MissingPluginError(f"{who} needs {name}, which is not one of the {folder} here; {which}")


def file_here(name: str) -> str:
    """Return how to load the plug-in of this name, if it is in the current directory; else nothing."""
    there = name.isidentifier() and f"{name}.py" in map(str, Path().glob("*.py"))
    return f"{name}.py is here: add --plugin {name}" if there else ""
