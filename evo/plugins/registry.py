"""The file system is the registry: a name is a module in a folder of `evo`, or one given by --plugin.

A plug-in outside of this package is a module that is named on the command line and nowhere else. It says in
`plugs_into` which folder it would lie in, and its last name is what an experiment calls it by.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from evo.errors import ConfigurationError, MissingPluginError, did_you_mean, plug_in_advice, typed
from evo.lazy import gymnasium
from evo.plugins import directory
from evo.plugins.importing import imported, is_name, look_here, module_of_file

if TYPE_CHECKING:
    from evo.environment import Environment
    from evo.options import EnvironmentOptions

ROOT = Path(__file__).parent.parent
FOLDERS = ("algorithms", "environments", "evaluators")
PROBLEMS = "problems"  # what a plug-in with a fitness function plugs into
# What the search of this thread searches, by its name in HERE, where another thread may have another one of that name.
searched_here: ContextVar[Mapping[str, Any]] = ContextVar("searched_here", default=MappingProxyType({}))
HERE = "functions_of_this_process"  # the module that stands for functions of no module that could be imported
OF_SCRIPT = "needs the script: no command finds what that defines"
OPERATORS = "operators"  # what a plug-in of functions plugs into, which options name
PLACES = {"environments": ("environments", "games.catalogue")}  # of a kind that has several folders

Plugin = str | ModuleType  # a module, its name, or its file
_loaded: dict[tuple[str, str], ModuleType] = {}
_registered_by_them = set[str]()  # names of Gymnasium
_made_last: ContextVar[str] = ContextVar("_made_last", default="")  # the id of the environment that commands are about


def names(folder: str, function: str = "make") -> list[str]:
    """Return the names that can be used: the modules of a folder that define `function`, and loaded plug-ins."""
    return sorted({name for place, name in _loaded if place == folder} | _ours(folder, function))


@cache
def _ours(folder: str, function: str) -> frozenset[str]:
    definition = re.compile(rf"^(def {function}\(|{function} = )".encode(), re.MULTILINE)
    found = set()
    for place in PLACES.get(folder, (folder,)):
        there = ROOT / place.replace(".", "/")
        found |= {path.stem for path in there.glob("[!_]*.py") if definition.search(path.read_bytes())}
        found |= {path.parent.stem for path in there.glob("*/__init__.py") if definition.search(path.read_bytes())}
    return frozenset(found)


def find(folder: str, name: str) -> ModuleType:
    """Return the module of a name that `names` gives."""
    place = _source(folder, name).relative_to(ROOT)
    return _loaded.get((folder, name)) or import_module(".".join(["evo", *place.parts]))


@directory.kept()
def environment_of(options: EnvironmentOptions) -> Environment:
    """Return the environment that options describe."""
    environment: Environment = find("environments", module_of(options.id)).make(options)
    _made_last.set(options.id)
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


@lru_cache
def _source(folder: str, name: str) -> Path:
    """Return the path of a module of ours, less its suffix; that in the kind's own folder where there is none."""
    paths = [ROOT / place.replace(".", "/") / name for place in PLACES.get(folder, (folder,))]
    return next((path for path in paths if path.is_dir() or path.with_suffix(".py").exists()), paths[0])


def load(modules: Iterable[Plugin], experiment: str | Path | None = None) -> None:
    """Import plug-ins, by module, its name or a .py file below the current directory.

    ConfigurationError: one is missing, with where it lies, also in the folder of the file `experiment`; or it declares
    nothing that can be used.
    """
    named: Any = () if isinstance(modules, str) or not isinstance(modules, Iterable) else tuple(modules)
    if (modules and not named) or not all(isinstance(plugin, str | ModuleType) for plugin in named):
        raise ConfigurationError(f'plugins: a list of modules or their names, as in ["my_game"], not {modules!r:.60}')
    for plugin in named:
        given = plugin.__name__ if isinstance(plugin, ModuleType) else plugin
        if given not in sys.modules:  # else nothing of this directory may come in with it
            look_here()
        before = _registered()
        name = module_of_file(given)
        module = imported(name, experiment)
        file = getattr(module, "__file__", None) or "its own"
        if name != given and Path(file).resolve() != Path(given).resolve():
            raise ConfigurationError(f"--plugin {given}: {name} is {file} for Python; rename yours")
        make = getattr(module, "make", None)
        folder = getattr(module, "plugs_into", getattr(make, "plugs_into", None))
        after = _registered()
        _registered_by_them.update(after.keys() - before)
        registers = ("", name) in _loaded or after.keys() - before or name.partition(".")[0] in after.values()
        if folder is None and _problem_of(module, "") is not None:
            folder = PROBLEMS
        wraps = any(hasattr(one, "class_name") and one.__module__ == name for one in vars(module).values())
        if folder is None and (registers or wraps):  # a class of Gymnasium's wrappers has a class_name
            _loaded["", name] = module
        elif wrong := _refused(module, folder, make):
            raise ConfigurationError(f"--plugin {name}: {wrong}")
        else:
            _loaded[str(folder), name.rpartition(".")[2]] = module


def known(folder: str, module: str) -> str:
    """Load a plug-in unless its name is known, and return the name."""
    name = module_of_file(module).rpartition(".")[2]
    if name not in names(folder):
        load([module])
    return name


def _refused(module: ModuleType, folder: Any, make: object) -> str:
    if folder in (OPERATORS, PROBLEMS):
        return ""
    if make is None and (named := [name for name, value in vars(module).items() if _declared_by(value)]):
        return f"name it make, as in `make = Game(...)`, not {named[0]}"
    if folder not in FOLDERS or not callable(make):
        return (
            f"define `make`, and `plugs_into` as one of {', '.join(FOLDERS)}; or only "
            f'`plugs_into = "{OPERATORS}"`; or a function `fitness`, or a Problem `problem`; or register Gymnasium '
            "environments or wrap them"
        )
    options, (base, known_as) = getattr(module, "Options", None), _options_base(folder, make)
    if not (isinstance(options, type) and issubclass(options, base)):
        return f"define `Options`, a subclass of {known_as}"
    if taken := _taken(options, base):
        return f"the option {taken} is the trainer's; name yours otherwise"
    if wrong := _wrong_default(options):
        return wrong
    name = module.__name__.rpartition(".")[2]
    if _loaded.get((folder, name), module) is not module or _source(folder, name).with_suffix(".py").exists():
        return f"the name {name} is taken in {folder}"
    return ""


def _problem_of(module: ModuleType, name: str) -> Any:
    """Return the problem of a module by its name, or else its `problem` or its `fitness`; None: there is none."""
    found = vars(module)
    return found.get(name) if name else found.get("problem", found.get("fitness"))


def problem(name: str, of_it: str = "") -> Any:
    """Return what a plug-in declares as its problem, or as `of_it`; MissingPluginError, ConfigurationError: nothing."""
    searched = searched_here.get().get(of_it) if name == HERE else None
    found = _problem_of(problems_in(name), of_it) if searched is None else searched
    if not callable(getattr(found, "fitness", found)):
        raise ConfigurationError(f"environment.id: {name} has no function {of_it or 'fitness'}")
    return found


def problems_in(name: str) -> ModuleType:
    """Return the plug-in of this name that declares problems; MissingPluginError: it is not loaded."""
    module = _loaded.get((PROBLEMS, name))
    if module is None and name == HERE:
        raise not_here()
    if module is None:
        raise MissingPluginError(
            f"environment.id: problem:{name} needs the plug-in that has it: {plug_in_advice(name)}"
        )
    return module


def not_here() -> MissingPluginError:
    """Return the error that the function of a run, which no module has, is none of this process."""
    return MissingPluginError(
        "environment.id: the fitness function of this run was of a script; run that again with this run_dir"
    )


def operator(named: str) -> Callable[..., Any]:
    """Return the function that "plug-in:function" names; ValueError, MissingPluginError: there is none."""
    name, colon, function = named.partition(":")
    if not (colon and is_name(name) and is_name(function)):
        raise ValueError(f'must be "plug-in:function", as in "my_plugin:my_function", not "{named:.60}"')
    module = _loaded.get((OPERATORS, name))
    if module is None:
        raise MissingPluginError(f'{named} needs a plug-in with plugs_into = "{OPERATORS}": {plug_in_advice(name)}')
    found: Callable[..., Any] | None = vars(module).get(function)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise ValueError(f"{name} has no function {function}{did_you_mean(function, known)}")
    return found


def _registered() -> dict[str, str]:
    found = {name: spec.entry_point for name, spec in gymnasium.registry.items()}
    return {name: re.split("[:.]", str(getattr(made, "__module__", made)))[0] for name, made in found.items()}


def _options_base(folder: str, make: object) -> tuple[type, str]:
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


def _wrong_default(options: Any) -> str:
    """Return which option of a plug-in has a default that its own declaration refuses; else nothing."""
    from pydantic import ValidationError

    fields = options.model_fields.items()
    defaults = {name: one.default for name, one in fields if not (one.is_required() or one.default_factory)}
    try:
        options.model_validate(defaults)
    except ValidationError as error:
        for one in error.errors():
            if one["loc"] and one["loc"][0] in defaults:
                return f"the option {one['loc'][0]} has the default {one['input']!r:.60}: {one['msg']}"
    return ""


def _importable() -> list[tuple[str, ModuleType]]:
    """Return the plug-ins that other processes can import, with what they plug into."""
    return [(folder, module) for (folder, _), module in _loaded.items() if module.__spec__ is not None]


def loaded() -> tuple[str, ...]:
    """Return the names of the plug-ins that are loaded, for processes that need the same."""
    return tuple(dict.fromkeys(module.__name__ for _, module in _importable()))


def with_results() -> tuple[str, ...]:
    """Return the names of loaded plug-ins that results depend on: neither backends nor games, which have hashes."""
    ones = [module for folder, module in _importable() if folder != "evaluators"]
    named = dict.fromkeys(one.__name__ for one in ones if not _declared_by(getattr(one, "make", None)))
    return tuple(name for name in named if name != "__main__")


def script_has_results() -> bool:
    """Return whether the script that runs is itself a plug-in that results depend on, as `with_results` has them."""
    folders = {folder for (folder, _), module in _loaded.items() if module.__name__ == "__main__"}
    make = getattr(sys.modules["__main__"], "make", None)
    return bool(folders - {"", "evaluators"}) and not _declared_by(make)


def registering(identifier: str) -> tuple[str, ...] | None:
    """Return the module that registers an environment where no plug-in does; None: it needs what a script defines."""
    kind, _, name = identifier.partition(":")
    if name.partition(":")[0] == HERE or sys.modules["__main__"] in _loaded.values():
        return None
    spec = gymnasium.registry.get(name) if kind == "gymnasium" else None
    if spec is None or name in _registered_by_them:
        return ()
    made: Any = spec.entry_point
    while isinstance(made, partial):
        made = made.func
    own = str(getattr(made, "__module__", made)).partition(":")[0]
    first = own.partition(".")[0]
    if first in {"evo", "snake", "gymnasium", *(one.partition(".")[0] for one in loaded())}:
        return ()
    if re.search(rf"register\(\s*(id\s*=\s*)?['\"]{re.escape(name)}['\"]", _text(sys.modules["__main__"])):
        return None  # a class of a module, by the script
    there = [one for one in sys.modules if one.partition(".")[0] == first != "__main__"]
    found = (one for one in sorted(there, key=lambda one: one != own) if "register(" in _text(sys.modules[one]))
    return next(((one,) for one in found), None)


def _text(module: ModuleType) -> str:
    """Return the source of a module, or the cells of a notebook; of what is compiled, nothing."""
    file = getattr(module, "__file__", None) or ""
    with suppress(OSError, ValueError):
        if file.endswith(".py"):
            return Path(file).read_text("utf-8")
    return "\n".join(map(str, getattr(module, "In", ())))


def command(*words: str) -> str:
    """Return a command to type, as in `python -m evo replay runs/one`, with the plug-ins that it needs.

    After `evo` and its command comes a path, which may begin with a dash. Where it needs what a script defines, a
    comment says so.
    """
    found = registering(_made_last.get())
    modules = [word for name in (*loaded(), *(found or ())) for word in ("--plugin", name)]
    if words[0] == "evo" and words[2].startswith("-"):
        words = (*words[:2], f"./{words[2]}", *words[3:])
    return typed(["python", "-m", *words, *modules]) + ("" if found is not None else f" # {OF_SCRIPT}")
