"""Imports of plug-ins by their names in Python, and what went wrong where one fails."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from keyword import iskeyword
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType

from evo.errors import ConfigurationError, EvoError, did_you_mean
from evo.plugins import directory
from evo.process import is_interrupt, is_passed_on

FIELDS = "__dataclass_fields__"
NAMED = re.compile(r"[^\W\d][\w.]*:[^\W\d].*", re.DOTALL)  # "module:Name", not "cuda:0" or "12:30"
UNTYPED = ("model-field-missing-annotation", "model-field-overridden")  # pydantic's codes


def module_of_file(given: str) -> str:
    """Return the module of a .py file below the current directory, as w.coins of w/coins.py; anything else as it is."""
    if not given.endswith(".py"):
        return given
    path = Path(os.path.abspath(given))
    if not os.path.isfile(path) or not path.is_relative_to(Path.cwd()):
        return given
    parts = path.relative_to(Path.cwd()).with_suffix("").parts
    return ".".join(parts) if all(map(is_name, parts)) and parts[-1] != "__init__" else given


def is_name(part: str) -> bool:
    """Return whether Python has such names."""
    return part.isidentifier() and not iskeyword(part)


def names_module(text: str) -> bool:
    """Return whether libraries may import a module by a text: "module:Name", or any "module:" that lies here."""
    module, colon, _ = text.partition(":")
    first = module.partition(".")[0]
    here = colon and first and PathFinder.find_spec(first, [""])  # they import "12" of "12:30" too
    return bool(here or NAMED.fullmatch(text))


def imported(name: str, experiment: str | Path | None = None) -> ModuleType:
    """Return a module; ConfigurationError: why it cannot be imported; it may be in the folder of `experiment`."""
    words, sys.argv = sys.argv, [name]  # a module that reads the command line finds none
    # Python takes bytecode for that of another file of the same size and second, so none is left behind.
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with directory.kept():
            return import_module(name)
    except (ImportError, ValueError, TypeError) as error:
        file = Path(os.path.abspath(name))
        if file.suffix == ".py" and os.path.isfile(file) and not file.is_relative_to(Path.cwd()):
            what = f"cannot be named from here: type the command in {file.parent}, with --plugin {file.stem}"
        elif name.endswith(".py") or "/" in name or name.startswith("."):
            parts = (part.lstrip("./") for part in Path(name.removesuffix(".py")).parts)
            what = f"give the module as Python names it, {'.'.join(filter(None, parts)) or 'as in package.my_game'}"
        elif getattr(error, "name", "") == name:
            package, dot, _ = name.rpartition(".")
            there = sorted(path.stem for path in Path(package.replace(".", "/")).glob("*.py"))
            known = [f"{package}{dot}{one}" for one in there if is_name(one) and not one.startswith(("test_", "__"))]
            what = f"{error}{_found_in(name, experiment) or did_you_mean(name, known)}"
        else:
            what = _place(error, name) + (str(error) if isinstance(error, ImportError) else _declared_wrongly(error))
        raise ConfigurationError(f"--plugin {name}: {what}") from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        what = _untyped(error)
        if not what and (isinstance(error, EvoError) or is_passed_on(error)):
            raise
        ended = f"sys.exit({error})" if isinstance(error, SystemExit) else f"{type(error).__name__}: "
        text = "" if isinstance(error, SystemExit) else " ".join(str(error).split())
        what = what or f"{_place(error, name)}its import ended with {ended}{text}"
        raise ConfigurationError(f"--plugin {name}: {what}") from error
    finally:
        sys.argv, sys.dont_write_bytecode = words, written


def innermost(error: BaseException, counts: Callable[[str], object]) -> tuple[FrameType, str] | None:
    """Return the last frame of an exception in a package that counts, and "FILE:LINE"; None: there is none."""
    for frame, line in reversed([*walk_tb(error.__traceback__)]):
        if counts(str(frame.f_globals.get("__name__")).partition(".")[0]):
            return frame, f"{Path(frame.f_code.co_filename).name}:{line}"
    return None


def _place(error: BaseException, module_name: str) -> str:
    """Return "FILE:LINE: " of the plug-in's code that raised an exception; empty: none of it did."""
    own = module_name.partition(".")[0]
    found = innermost(error, lambda package: package == own != "evo")
    return f"{found[1]}: " if found else ""


def _declared_wrongly(error: BaseException) -> str:
    """Return which field of a game's declaration is missing or unknown; of any other exception, its text."""
    text = " ".join(str(error).split())
    if found := re.fullmatch(r"(\w+)\.__init__\(\) missing \d+ required keyword-only arguments?: (.+)", text):
        return f"{found[1]}(...) lacks {found[2].replace(chr(39), '')}"
    if found := re.match(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", text):
        declared = [*walk_tb(error.__traceback__)][-1][0].f_globals.get(found[1])
        return f"{found[1]}(...) has no field {found[2]}{did_you_mean(found[2], getattr(declared, FIELDS, ()))}"
    return text


def _found_in(module_name: str, experiment: str | Path | None) -> str:
    """Return where a file of this module's name lies: in a folder of the current directory, or of `experiment`."""
    if not is_name(module_name):
        return ""
    folders = [*sorted(Path().glob("*")), *([] if experiment is None else [Path(experiment).parent])]
    for file in (folder / f"{module_name}.py" for folder in folders):
        if os.path.isfile(file):  # a name may be longer than that of any file
            meant = module_of_file(str(file))
            if meant.endswith(".py"):
                return f"; {file} cannot be named from here: type the command in {file.parent}"
            return f" - did you mean --plugin {meant}?"
    return ""


def _untyped(error: BaseException) -> str:
    """Return the message of pydantic's exception about an option without a type; else nothing."""
    from pydantic import PydanticUserError

    if not isinstance(error, PydanticUserError) or error.code not in UNTYPED:
        return ""
    option = next(iter(re.findall(r"[`']([^`']+)[`']", str(error))), "")
    return f"the option {option} has no type; write one, as in `cells: int = 11`"


def look_here() -> None:
    """Find plug-ins in the current directory too, as `python -m` has it, so that both ways to call find the same."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
