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
from collections.abc import Callable, Iterable
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from evo.errors import SHORTAGES, ConfigurationError, EvoError, MissingPluginError, did_you_mean

if TYPE_CHECKING:
    from evo.environment import Environment
    from evo.options import EnvironmentOptions

ROOT = Path(__file__).parent.parent
FOLDERS = ("algorithms", "environments", "evaluators")
OPERATORS = "operators"  # what a plug-in of functions plugs into, which options name
PLACES = {"environments": ("environments", "games.catalogue")}  # of a kind that has several folders

FIELDS = "__dataclass_fields__"
UNTYPED = ("model-field-missing-annotation", "model-field-overridden")  # pydantic's codes

_loaded: dict[tuple[str, str], ModuleType] = {}


def names(folder: str, function: str = "make") -> list[str]:
    """Return the names that can be used: the modules of a folder that define `function`, and loaded plug-ins."""
    definition = re.compile(rf"^(def {function}\(|{function} = )".encode(), re.MULTILINE)
    found = {name for place, name in _loaded if place == folder}
    for place in PLACES.get(folder, (folder,)):
        there = ROOT / place.replace(".", "/")
        found |= {path.stem for path in there.glob("[!_]*.py") if definition.search(path.read_bytes())}
        found |= {path.parent.stem for path in there.glob("*/__init__.py") if definition.search(path.read_bytes())}
    return sorted(found)


def find(folder: str, name: str) -> ModuleType:
    """Return the module of a name that `names` gives."""
    return _loaded.get((folder, name)) or import_module(
        ".".join(["evo", *_source(folder, name).relative_to(ROOT).parts])
    )


def environment_of(options: EnvironmentOptions) -> Environment:
    """Return the environment that options describe."""
    environment: Environment = find("environments", module_of(options.id)).make(options)
    return environment


def module_of(identifier: str) -> str:
    """Return the name of the module in `evo/environments` that an environment's id begins with."""
    return identifier.partition(":")[0]


def summary(folder: str, name: str) -> str:
    """Return the first sentence of a module of ours, without importing it."""
    if (folder, name) in _loaded:
        text = _loaded[folder, name].__doc__ or ""
    else:
        place = _source(folder, name)
        source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        text = ast.get_docstring(ast.parse(source.read_bytes())) or ""
    return " ".join(text.split("\n\n")[0].split())


def _source(folder: str, name: str) -> Path:
    """Return the path of a module of ours, less its suffix; that in the kind's own folder where there is none."""
    paths = [ROOT / place.replace(".", "/") / name for place in PLACES.get(folder, (folder,))]
    return next((path for path in paths if path.is_dir() or path.with_suffix(".py").exists()), paths[0])


def load(modules: Iterable[str], beside: str | Path | None = None) -> None:
    """Import plug-ins, by module or by a .py file below the current directory.

    ConfigurationError: one is missing, which is looked for in the folder of the experiment file `beside` too, or it
    does not say what it is.
    """
    for given in modules:
        look_here()
        before = _registered()
        module_name = module_of_file(given)
        module = _imported(module_name, beside)
        file = getattr(module, "__file__", None) or "its own"
        if module_name != given and Path(file).resolve() != Path(given).resolve():
            raise ConfigurationError(f"--plugin {given}: {module_name} is {file} for Python; rename yours")
        make = vars(module).get("make")
        folder = vars(module).get("plugs_into", getattr(make, "plugs_into", None))
        registers = ("", module_name) in _loaded or _registered() - before or _registers(module)
        if folder is None and make is None and registers:
            _loaded["", module_name] = module
            continue
        if folder == OPERATORS:
            _loaded[OPERATORS, module_name.rpartition(".")[2]] = module
            continue
        if make is None and (named := [name for name, value in vars(module).items() if _declared_by(value)]):
            raise ConfigurationError(f"--plugin {module_name}: name it make, as in `make = Game(...)`, not {named[0]}")
        if folder not in FOLDERS or not callable(make):
            raise ConfigurationError(
                f"--plugin {module_name}: define `make`, and `plugs_into` as one of {', '.join(FOLDERS)}; or only "
                f'`plugs_into = "{OPERATORS}"`; or register Gymnasium environments'
            )
        options, base, known_as = vars(module).get("Options"), *_options_base(folder, make)
        if not (isinstance(options, type) and issubclass(options, base)):
            raise ConfigurationError(f"--plugin {module_name}: define `Options`, a subclass of {known_as}")
        if taken := _taken(options, base):
            raise ConfigurationError(
                f"--plugin {module_name}: the option {taken} is the trainer's; name yours otherwise"
            )
        name = module_name.rpartition(".")[2]
        if _loaded.get((folder, name), module) is not module or _source(folder, name).with_suffix(".py").exists():
            raise ConfigurationError(f"--plugin {module_name}: the name {name} is taken in {folder}")
        _loaded[folder, name] = module


def operator(named: str) -> Callable[..., Any]:
    """Return the function that "plug-in:function" names; ValueError: the plug-in has none.

    MissingPluginError: no plug-in of this name with `plugs_into = "operators"` is loaded.
    """
    name, colon, function = named.partition(":")
    if not (colon and _is_name(name) and _is_name(function)):
        raise ValueError(f'must be "plug-in:function", as in "my_plugin:my_function", not "{named:.60}"')
    module = _loaded.get((OPERATORS, name))
    if module is None:
        raise MissingPluginError(f'{named} needs a plug-in with plugs_into = "{OPERATORS}": add --plugin {name}')
    found: Callable[..., Any] | None = vars(module).get(function)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise ValueError(f"{name} has no function {function}{did_you_mean(function, known)}")
    return found


def module_of_file(given: str) -> str:
    """Return the module of a .py file below the current directory, as w.coins of w/coins.py; anything else as it is."""
    path = Path(os.path.abspath(given))
    if path.suffix != ".py" or not path.is_file() or not path.is_relative_to(Path.cwd()):
        return given
    parts = path.relative_to(Path.cwd()).with_suffix("").parts
    return ".".join(parts) if all(map(_is_name, parts)) and parts[-1] != "__init__" else given


def _is_name(part: str) -> bool:
    return part.isidentifier() and not iskeyword(part)


def _imported(module_name: str, beside: str | Path | None = None) -> ModuleType:
    try:
        return import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:
        if module_name.endswith(".py"):
            dotted = ".".join(Path(module_name).with_suffix("").parts)
            raise ConfigurationError(f"--plugin {module_name}: give the module, {dotted}") from error
        if "/" in module_name or module_name.startswith("."):
            dotted = ".".join(part for part in Path(module_name).parts if part not in ("/", "..", "."))
            raise ConfigurationError(f"--plugin {module_name}: give the module as Python names it, {dotted}") from error
        if getattr(error, "name", "") == module_name:
            close = _elsewhere(module_name, beside) or did_you_mean(module_name, _modules_here())
            raise ConfigurationError(f"--plugin {module_name}: {error}{close}") from error
        what = str(error) if isinstance(error, ImportError) else _declared_wrongly(error)
        raise ConfigurationError(f"--plugin {module_name}: {_line_of(error, module_name)}{what}") from error
    except (Exception, SystemExit) as error:
        if untyped := _untyped(error):
            raise ConfigurationError(f"--plugin {module_name}: {untyped}") from error
        if isinstance(error, EvoError | MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES):
            raise
        text = " ".join(str(error).split())
        what = f"sys.exit({error})" if isinstance(error, SystemExit) else f"{type(error).__name__}: {text}"
        raise ConfigurationError(
            f"--plugin {module_name}: {_line_of(error, module_name)}its import ended with {what}"
        ) from error


def _line_of(error: BaseException, module_name: str) -> str:
    """Return "FILE:LINE: " of the plug-in's code that raised an exception; empty: none of it did."""
    package = module_name.partition(".")[0]
    frames = [(frame.f_globals.get("__name__"), frame, line) for frame, line in walk_tb(error.__traceback__)]
    mine = [(frame, line) for name, frame, line in frames if str(name).partition(".")[0] == package != "evo"]
    return f"{Path(mine[-1][0].f_code.co_filename).name}:{mine[-1][1]}: " if mine else ""


def _declared_wrongly(error: BaseException) -> str:
    """Return which field of a game's declaration is missing or unknown; of any other exception, its text."""
    text = " ".join(str(error).split())
    if found := re.fullmatch(r"(\w+)\.__init__\(\) missing \d+ required keyword-only arguments?: (.+)", text):
        return f"{found[1]}(...) lacks {found[2].replace(chr(39), '')}"
    if found := re.match(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", text):
        declared = [*walk_tb(error.__traceback__)][-1][0].f_globals.get(found[1])
        return f"{found[1]}(...) has no field {found[2]}{did_you_mean(found[2], getattr(declared, FIELDS, ()))}"
    return text


def _elsewhere(module_name: str, beside: str | Path | None) -> str:
    """Return where a file of this module's name lies: directly below the current directory, or `beside` a file."""
    if not _is_name(module_name):
        return ""
    folders = [*sorted(Path().glob("*")), *([] if beside is None else [Path(beside).parent])]
    for file in (folder / f"{module_name}.py" for folder in folders):
        if file.is_file():
            meant = module_of_file(str(file))
            if meant.endswith(".py"):
                return f"; {file} cannot be named from here: type the command in {file.parent}"
            return f" - did you mean --plugin {meant}?"
    return ""


def _modules_here() -> list[str]:
    """Return the names of the modules in the current directory, without their tests."""
    return sorted(path.stem for path in Path().glob("*.py") if path.stem.isidentifier() and path.stem[:5] != "test_")


def _untyped(error: BaseException) -> str:
    """Return what an exception of pydantic says of an option without a type; else nothing."""
    from pydantic import PydanticUserError

    if not isinstance(error, PydanticUserError) or error.code not in UNTYPED:
        return ""
    option = next(iter(re.findall(r"[`']([^`']+)[`']", str(error))), "")
    return f"the option {option} has no type; write one, as in `cells: int = 11`"


def _registered() -> set[str]:
    """Return the names of all environments that are registered with Gymnasium."""
    import gymnasium

    return {*gymnasium.registry}


def _registers(module: ModuleType) -> bool:
    """Return whether a module, or its package, has registered an environment with Gymnasium."""
    import gymnasium

    packages = {
        str(getattr(spec.entry_point, "__module__", spec.entry_point)).partition(":")[0].partition(".")[0]
        for spec in gymnasium.registry.values()
    }
    return module.__name__.partition(".")[0] in packages


def _options_base(folder: str, make: object) -> tuple[type, str]:
    """Return the class that a plug-in's options must subclass, and where its author finds it."""
    from evo import options

    if declared := _declared_by(make):
        return declared
    bases: dict[str, type] = {"algorithms": options.AlgorithmOptions, "environments": options.EnvironmentOptions}
    base = bases.get(folder, options.Section)
    return base, f"{base.__module__}.{base.__name__}"


def _declared_by(value: object) -> tuple[type, str] | None:
    """Return the class of options that a game has, and where its author finds it; None: the value is no game."""
    declared: tuple[type, str] | None = getattr(type(value), "options_base", None)
    return declared


def _taken(options: Any, base: Any) -> str:
    """Return an option of the trainer that a plug-in's options declare as something else; else nothing."""
    from evo.options import OF_TRAINER

    for name in sorted(OF_TRAINER & {*base.model_fields}):
        declared, wanted = options.model_fields[name].annotation, base.model_fields[name].annotation
        narrower = get_origin(declared) is Literal and {type(value) for value in get_args(declared)} == {wanted}
        if declared != wanted and not narrower:
            return name
    return ""


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
