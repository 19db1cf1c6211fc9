"""The file system is the registry: a name is a module in a folder of `evo`, or one given by --plugin.

A plug-in outside of this package is a module that is named on the command line and nowhere else. It says in
`plugs_into` which folder it would lie in, and its last name is what an experiment calls it by.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from evo.errors import ConfigurationError

ROOT = Path(__file__).parent.parent
FOLDERS = ("algorithms", "environments", "evaluators")

_loaded: dict[tuple[str, str], ModuleType] = {}


def names(folder: str, function: str = "make") -> list[str]:
    """Return the names that can be used: the modules of a folder that define `function`, and loaded plug-ins."""
    definition = re.compile(rf"^def {function}\(".encode(), re.MULTILINE)
    there = ROOT / folder.replace(".", "/")
    files = [path for path in there.glob("[!_]*.py") if definition.search(path.read_bytes())]
    folders = [path.parent for path in there.glob("*/__init__.py") if definition.search(path.read_bytes())]
    return sorted({path.stem for path in (*files, *folders)} | {name for place, name in _loaded if place == folder})


def find(folder: str, name: str) -> ModuleType:
    """Return the module of a name that `names` gives."""
    return _loaded.get((folder, name)) or import_module(f"evo.{folder}.{name}")


def summary(folder: str, name: str) -> str:
    """Return the first sentence of a module of ours, without importing it."""
    if (folder, name) in _loaded:
        text = _loaded[folder, name].__doc__ or ""
    else:
        file = ROOT / folder.replace(".", "/") / f"{name}.py"
        source = file if file.exists() else file.with_suffix("") / "__init__.py"
        text = ast.get_docstring(ast.parse(source.read_bytes())) or ""
    return " ".join(text.split("\n\n")[0].split())


def load(modules: Iterable[str]) -> None:
    """Import plug-ins; ConfigurationError where one is missing or does not say what it is."""
    for module_name in modules:
        look_here()
        try:
            module = import_module(module_name)
        except (ImportError, ValueError, TypeError) as error:
            raise ConfigurationError(f"--plugin {module_name}: {error}") from error
        folder = getattr(module, "plugs_into", None)
        if folder not in FOLDERS or not hasattr(module, "make"):
            raise ConfigurationError(
                f"--plugin {module_name}: define `make`, and `plugs_into` as one of {', '.join(FOLDERS)}"
            )
        if folder == "environments":
            from evo.plugins.options import EnvironmentOptions

            options = vars(module).get("Options")
            if not (isinstance(options, type) and issubclass(options, EnvironmentOptions)):
                raise ConfigurationError(
                    f"--plugin {module_name}: define `Options`, a subclass of evo.plugins.options.EnvironmentOptions"
                )
        name = module_name.rpartition(".")[2]
        if _loaded.get((folder, name), module) is not module or (ROOT / folder / f"{name}.py").exists():
            raise ConfigurationError(f"--plugin {module_name}: the name {name} is taken in {folder}")
        _loaded[folder, name] = module


def loaded() -> tuple[str, ...]:
    """Return the names of the plug-ins that are loaded, for processes that need the same."""
    return tuple(dict.fromkeys(module.__name__ for module in _loaded.values()))


def command(*words: str) -> str:
    """Return a command to type, as in `python -m evo replay runs/one`, with the plug-ins that it needs."""
    modules = [word for name in loaded() for word in ("--plugin", name)]
    return shlex.join(["python", "-m", *words, *modules])


def look_here() -> None:
    """Find plug-ins in the current directory too, as `python -m` has it, so that both ways to call find the same."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
