"""Digests of this program, of plug-ins and of functions: equal on every node of a cluster and in every process."""

from __future__ import annotations

import ast
import dis
import functools
import gc
import hashlib
import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from enum import Enum
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from inspect import getattr_static
from numbers import Number
from pathlib import Path
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from evo.errors import printable
from evo.plugins import importing, registry

OURS = ""  # this program, among the names of plug-ins
OWN_PACKAGES = ("evo", "snake")
MAIN = "__main__"  # the script or notebook that runs
PROBLEM = "problem:"  # what the id of an environment begins with that is a fitness function
OF_SCRIPT = "the environment or plug-in in this script"
SHOWN = 4  # parts of a script that a message names, at most
GAME, PLUGINS = "game", "plugins"  # keys of an identity
NUMBERS = (Number, str, bytes, np.generic, range)  # and texts
VALUES = (np.ndarray, *NUMBERS)
WRAPPERS = {property: "fget", functools.cached_property: "func", classmethod: "__func__", staticmethod: "__func__"}


@cache
def code_of(names: tuple[str, ...]) -> dict[str, str]:
    """Return a digest of this program's source files, and one of every plug-in: empty where it is missing here."""
    folders = [file.parent for file in map(_file, OWN_PACKAGES) if file]  # in different folders on Ray
    ours = b"".join(digest_of(folder, folder.rglob("*.py")) for folder in folders)
    return {OURS: hashlib.sha256(ours).hexdigest(), **{name: of_plugin(name) for name in names}}


def other_code(wanted: Mapping[str, str]) -> str:
    """Return in a few words how the code here differs from that of `wanted`; empty where it is the same."""
    here = code_of(tuple(name for name in wanted if name != OURS))
    for name, digest in wanted.items():
        if here[name] != digest:
            what, place = (f"the plug-in {name}", _file(name)) if name else ("this program", registry.ROOT)
            return f"has another version of {what}, in {place}" if place else f"lacks {what}"
    return ""


def game_of(identity: Mapping[str, object]) -> str:
    """Return the digest of the game that a run has recorded, which is of a user's own; empty: it is one of ours."""
    game = identity.get(GAME)
    return str(game.get("sources", "")) if isinstance(game, Mapping) else ""


def changes(run: Mapping[str, object], here: Mapping[str, object]) -> list[str]:
    """Return a line for all code that an identity names and that differs now; plug-ins of one alone do not count."""
    (game, plugins), (game_now, plugins_now) = ([one.get(key) for key in (GAME, PLUGINS)] for one in (run, here))
    changed = ["the game or the function"] if game and game_now and game != game_now else []
    if isinstance(plugins, Mapping) and isinstance(plugins_now, Mapping):
        others = [name for name, now in plugins_now.items() if _whole(plugins.get(name, now)) != _whole(now)]
        if len(others) > 1:  # a function of a file that is edited is another one too
            others = [name for name in others if not name.startswith(PROBLEM)]
        changed += [_said(name) for name in others]
    lines = [f"the code of {what} differs from that of the run" for what in changed]
    if OF_SCRIPT in changed and isinstance(plugins, Mapping) and isinstance(plugins_now, Mapping):
        lines[changed.index(OF_SCRIPT)] += _what_differs(str(plugins[MAIN]), str(plugins_now[MAIN]))
    about = run.get("environment")
    if game and changed and isinstance(about, Mapping) and registry.HERE in str(about.get("id")):
        lines[0] += ", or a number that the function reads, its start or a bound"
    return lines


def _said(name: str) -> str:
    if name.startswith(PROBLEM):
        return f"{name}, or a number, an array or another function that it reads,"
    return f"plug-in {name}" if name != MAIN else OF_SCRIPT


def _whole(digest: object) -> str:
    """Return the digest of a plug-in's code; that of a script has others of its parts below, a line each."""
    return str(digest).partition("\n")[0]


def _what_differs(run: str, now: str) -> str:
    """Return which parts of a script differ, as its digests name them; empty where a run lacks these."""
    before, here = ([line.partition(" ")[::2] for line in text.splitlines()[1:]] for text in (run, now))
    if not before or not here:
        return ""
    names = sorted({name for _, name in {*before} ^ {*here}}) or ["the arguments that it is made with"]
    return f": {', '.join(map(printable, names[:SHOWN]))}{', ...' if names[SHOWN:] else ''}"


@cache
def of_plugin(name: str) -> str:
    """Return version and digest of a plug-in: of its package, or its file with what that imports from its folder."""
    file = _file(name)
    return " ".join((*_versions(name, file), digest_of(file.parent, files_of(name)).hex())) if file else ""


def files_of(name: str) -> frozenset[Path]:
    """Return the files that the digest of a plug-in is of; none where it is missing here."""
    file = _file(name)
    if file is None:
        return frozenset()
    in_package = "." in name or file.name == "__init__.py"
    return frozenset(file.parent.rglob("*.py") if in_package else with_helpers({file}, file.parent))


def set_from_outside(names: Iterable[str]) -> list[str]:
    """Return the numbers and texts of plug-ins that have another value than their files give, as "SIZE = 8".

    They are of modules and of their classes. Left out are names that are given several times, or that code sets.
    """
    given, sets = list[tuple[object, str, Any]](), set[str]()
    for module in filter(None, map(sys.modules.get, names)):
        with suppress(OSError, SyntaxError, ValueError, TypeError):
            tree = ast.parse(Path(str(module.__file__)).read_bytes())
            for one in ast.walk(tree):
                sets |= {*one.names} if isinstance(one, ast.Global) else set()
                sets |= {one.attr} if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) else set()
            holders: list[Any] = [
                (vars(module).get(one.name), one) for one in tree.body if isinstance(one, ast.ClassDef)
            ]
            for holder, node in ((module, tree), *holders):
                stored = (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
                once = {name for name, times in Counter(one.id for one in stored).items() if times == 1}
                for one in (one for one in node.body if isinstance(one, ast.Assign | ast.AnnAssign)):
                    for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                        pairs: Iterable[tuple[ast.expr, ast.expr | None]] = [(target, one.value)]
                        if isinstance(target, ast.Tuple) and isinstance(one.value, ast.Tuple):
                            pairs = zip(target.elts, one.value.elts, strict=False)
                        found = [(it.id, its) for it, its in pairs if isinstance(it, ast.Name) and it.id in once]
                        given += [(holder, name, its) for name, its in found]
    changed = list[str]()
    for holder, name, node in given:
        with suppress(ValueError, TypeError, LookupError):  # it is computed, or gone
            was, now = ast.literal_eval(node), vars(holder)[name]
            if name not in sets and isinstance(now, NUMBERS) and repr(was) != repr(now):
                changed.append(f"{name} = {now!r:.60}")
    return changed


def with_helpers(files: set[Path], folder: Path) -> set[Path]:
    """Return these files, and all that they import from a folder."""
    found, left = set[Path](), files
    while left:
        found.add(file := left.pop())
        with suppress(SyntaxError, ValueError):
            left |= imported_from(folder, ast.parse(file.read_bytes())) - found
    return found


def imported_from(folder: Path, tree: ast.AST) -> set[Path]:
    """Return the files of a folder, which is none of installed packages, that code imports."""
    found = set[Path]()
    for name in _imports(tree) if "site-packages" not in folder.parts else ():
        first, rest = folder / name[0], folder.joinpath(*name).with_suffix(".py")
        if (first / "__init__.py").is_file():
            found |= {*first.rglob("*.py")}
        else:
            found |= {path for path in (first.with_suffix(".py"), rest) if path.is_file()}
    return found


def _imports(tree: ast.AST) -> Iterable[Sequence[str]]:
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names] if node.module and not node.level else []
        yield from (parts for name in names if (parts := name.split("."))[0] not in OWN_PACKAGES)


def of_function(function: Any, arrays: bool = True, files: Set[Path] = frozenset()) -> Any:
    """Return what a function computes with, in the same form in every process: its instructions, and what they read.

    These are constants, defaults, variables around it, globals, attributes and methods of its object, and numbers of
    modules and attributes of classes, also where a function inside of it reads them, if they are numbers, texts, arrays
    or functions of its folder. A method that calls `super()`, or reads a class above by its name, also reads the
    attributes of all classes above. What this code sets, as a counter of calls, is left out; of any other value, such
    as a list, only the type and the name count, and of arrays, without `arrays`, the shape: a function may write there.
    Of code in `files`, which have a digest of their own, only the place counts: no other Python changes that.
    """
    known = isinstance(function, FunctionType | MethodType | functools.partial) or hasattr(function, "__wrapped__")
    start = function if known or _inside(function) else function.__call__
    innermost = function
    while inside := _inside(innermost):
        innermost = inside[0]
    content = _Content(getattr(innermost, "__module__", ""), arrays, files)
    content.of(start)  # finds what is set
    content.seen.clear()
    return content.of(start)


def _inside(function: Any) -> list[Any]:
    """Return the function of Python that a partial one, or one that NumPy calls for every number, is made of."""
    if isinstance(function, functools.partial):
        return [function.func]
    if isinstance(function, np.vectorize):
        return [function.pyfunc]
    found = gc.get_referents(function) if isinstance(function, np.ufunc) else []  # of np.frompyfunc, which names it not
    return [one for one in found if callable(one) and not isinstance(one, type)]


class _Content:
    """The content of a function of the module `home`."""

    def __init__(self, home: str, arrays: bool, files: Set[Path]) -> None:
        self.seen = set[int]()  # functions
        self.sets = set[tuple[str, str]]()  # by the code that was seen: "ATTR", "DEREF" or "GLOBAL", and a name
        self._arrays, self._home, file = arrays, home, getattr(sys.modules.get(home), "__file__", None)
        self._folder, self._files = Path(file).parent if file else None, files

    def of(self, value: Any, owner: Any = None) -> Any:
        """Return the content of a value; `owner` is the object or class whose method it is."""
        if isinstance(value, tuple):
            return [self.of(one) for one in value]
        if isinstance(value, np.ndarray) and not value.dtype.hasobject and value is not np.ma.masked:
            return str(value.dtype), value.shape, self._arrays and hashlib.sha256(value.tobytes()).hexdigest()
        if isinstance(value, CodeType) and Path(value.co_filename) in self._files:
            return value.co_qualname, value.co_firstlineno
        if isinstance(value, CodeType):
            return sys.version_info[:2], value.co_code, value.co_names, self.of(value.co_consts)
        if isinstance(value, functools.partial):
            return self.of((value.func, *value.args, *sorted(value.keywords.items())))
        if isinstance(value, MethodType):
            return self.of(value.__func__, value.__self__)
        if isinstance(value, FunctionType):
            return self._of_reading(value, owner)
        if isinstance(value, NUMBERS) and type(value).__repr__ is not object.__repr__:
            return repr(value)
        if isinstance(value, Enum):
            return type(value).__name__, value.name, self.of(value.value)
        if isinstance(value, frozenset):
            return type(value).__name__, sorted(repr(self.of(one)) for one in value)
        if inside := _inside(value):
            return type(value).__name__, self.of((*inside, getattr(value, "signature", None)))
        if hasattr(value, "__wrapped__"):
            return self.of(value.__wrapped__)
        name = getattr(value, "__name__", "")
        return type(value).__name__, name if isinstance(name, str) else ""

    def _is_own(self, value: Any) -> bool:
        return isinstance(value, FunctionType) and (
            value.__module__ == self._home or Path(value.__code__.co_filename).parent == self._folder
        )

    def _of_reading(self, function: FunctionType, owner: Any) -> Any:
        if id(function) in self.seen or (self.seen and not self._is_own(function)):
            return function.__qualname__
        self.seen.add(id(function))
        code, names, attributes = function.__code__, set[str](), set[str]()
        for inner in with_inner(code):
            attributes |= {*inner.co_names}
            for one in dis.get_instructions(inner):
                kind = one.opname.removeprefix("STORE_")
                if kind in ("ATTR", "GLOBAL") or (kind == "DEREF" and one.argval in inner.co_freevars):
                    self.sets.add((kind, one.argval))
                elif kind in ("LOAD_GLOBAL", "LOAD_NAME"):
                    names.add(one.argval)
        reads = [("", *one) for one in (function.__kwdefaults__ or {}).items()]
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it has no value yet
                reads.append(("DEREF", name, cell.cell_contents))
        known = function.__globals__
        reads += [("GLOBAL", name, known[name]) for name in sorted(names) if name in known and name != "__file__"]
        found = [self.of((code, function.__defaults__ or ()))]
        found += [(name, self.of(one)) for kind, name, one in reads if (kind, name) not in self.sets]
        if isinstance(owner, (tuple, *VALUES)):
            found.append(self.of(owner))
        above, held = (owner if isinstance(owner, type) else type(owner)).__mro__[1:], [one for _, _, one in reads]
        held += [vars(one).get(name) for one in held if isinstance(one, ModuleType) for name in attributes]
        named = "super" in names or "__class__" in code.co_freevars or {*map(id, above)} & {*map(id, held)}
        if owner is not None and named:
            found += self._inherited(owner, above, attributes)
        for holder in (owner, *(one for _, _, one in reads if isinstance(one, type | ModuleType))):
            found += self._attributes(holder, attributes, whole=holder is owner and not isinstance(owner, type))
        return found

    def _inherited(self, owner: Any, above: Sequence[type], names: set[str]) -> Iterator[tuple[str, Any]]:
        """Yield the content of these attributes of the classes above that of an object, or above a class."""
        for parent in above:
            for name in sorted(names & vars(parent).keys()):
                one = vars(parent)[name]
                one = getattr(one, WRAPPERS.get(type(one), ""), one)
                foreign = callable(one) and not self._is_own(inspect.unwrap(one))
                if not foreign and ("ATTR", name) not in self.sets:
                    yield name, self.of(one, owner)

    def _attributes(self, holder: Any, names: set[str], whole: bool) -> Iterator[tuple[str, Any]]:
        """Yield the content of these attributes; where it is `whole`, also of others that the object itself has."""
        of_class = {name: getattr_static(type(holder), name, None) for name in names}
        if whole:
            others = {*getattr(holder, "__dict__", ())}.difference(dir(type(holder)))
            of_class = {**dict.fromkeys(others), **of_class}
        for name in sorted(of_class):
            kept = isinstance(of_class[name], functools.cached_property)  # whose value the object has after a call
            one = of_class[name] if kept else getattr_static(holder, name, None)
            late = isinstance(holder, ModuleType) and not isinstance(one, VALUES) and not self._is_own(one)  # imported
            if one is None or late or ("ATTR", name) in self.sets:
                continue
            if isinstance(one, MemberDescriptorType):
                one = getattr(holder, name, None)
            yield name, self.of(getattr(one, WRAPPERS.get(type(one), ""), one), holder)


def with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield code and all functions and classes in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from with_inner(inner)


def _versions(name: str, file: Path) -> Iterable[str]:
    if "site-packages" not in file.parts:
        return ()
    packages = metadata.packages_distributions().get(name.partition(".")[0], ())
    return sorted({f"{package} {metadata.version(package)}" for package in packages})


def digest_of(root: Path, paths: Iterable[Path]) -> bytes:
    """Return a digest of files and of their places below `root`."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(repr((path.relative_to(root).as_posix(), path.stat().st_size)).encode())
        digest.update(path.read_bytes())
    return digest.digest()


def _file(name: str) -> Path | None:
    """Return the file that would be imported, without importing it: another version could do anything."""
    if name not in OWN_PACKAGES:
        importing.look_here()
    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found is not None and found.origin else None
