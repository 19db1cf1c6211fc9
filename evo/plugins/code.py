"""Digests of this program and of plug-ins: equal on every node of a cluster, and from a run's first generation on."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from evo.plugins import registry

OURS = ""  # this program, among the names of plug-ins
GAME, PLUGINS = "game", "plugins"  # keys of an identity


@cache
def code_of(names: tuple[str, ...] = ()) -> dict[str, str]:
    """Return a digest of this program's source files, and one of every plug-in: empty where it is missing here."""
    folders = [file.parent for file in map(_file, ("evo", "snake")) if file]  # in different folders on Ray
    ours = b"".join(_digest(folder, folder.rglob("*.py")) for folder in folders)
    return {OURS: hashlib.sha256(ours).hexdigest(), **{name: of_plugin(name) for name in names}}


def other_code(wanted: Mapping[str, str]) -> str:
    """Return in a few words how the code here differs from that of `wanted`; empty where it is the same."""
    here = code_of(tuple(name for name in wanted if name != OURS))
    for name, digest in wanted.items():
        if here[name] != digest:
            what, place = (f"the plug-in {name}", _file(name)) if name else ("this program", registry.ROOT)
            return f"has another version of {what}, in {place}" if place else f"lacks {what}"
    return ""


def of_plugins() -> dict[str, str]:
    """Return a digest of every loaded plug-in that results depend on."""
    return {name: of_plugin(name) for name in registry.with_results()}


def changes(run: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return a line for all code that an identity names and that differs now; plug-ins of one alone do not count."""
    (game, plugins), (game_now, plugins_now) = ([one.get(key) for key in (GAME, PLUGINS)] for one in (run, now))
    changed = ["the game or the function"] if game and game_now and game != game_now else []
    if isinstance(plugins, Mapping) and isinstance(plugins_now, Mapping):
        changed += [
            f"plug-in {name}" for name in plugins_now if plugins.get(name, plugins_now[name]) != plugins_now[name]
        ]
    lines = [f"the code of {what} differs from that of the run" for what in changed]
    about = run.get("environment")
    if game and changed and isinstance(about, Mapping) and registry.HERE in str(about.get("id")):
        lines[0] += ", or a number that the function reads, its start or a bound"
    return lines


@cache
def of_plugin(name: str) -> str:
    """Return a digest of a plug-in's file with those that it imports from its folder, or of all files of its package.

    The version that is installed stands before it.
    """
    file = _file(name)
    if file is None:
        return ""
    in_package = "." in name or file.name == "__init__.py"
    digest = _digest(file.parent, file.parent.rglob("*.py") if in_package else _with_helpers(file)).hex()
    return " ".join((*_versions(name, file), digest))


def _with_helpers(plugin: Path) -> set[Path]:
    """Return the file of a plug-in, and the files of its folder that it imports, and that these import."""
    found, left, folder = set[Path](), {plugin}, plugin.parent
    while left:
        found.add(file := left.pop())
        for name in _imports(file) if "site-packages" not in folder.parts else ():
            first, rest = folder / name[0], folder.joinpath(*name).with_suffix(".py")
            if (first / "__init__.py").is_file():
                left |= {*first.rglob("*.py")} - found
            else:
                left |= {path for path in (first.with_suffix(".py"), rest) if path.is_file()} - found
    return found


def _imports(file: Path) -> Iterable[Sequence[str]]:
    """Yield the parts of the name of everything that a file imports, except this program."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(file.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names] if node.module and not node.level else []
            yield from (parts for name in names if (parts := name.split("."))[0] not in ("evo", "snake"))


def _versions(name: str, file: Path) -> Iterable[str]:
    if "site-packages" not in file.parts:
        return ()
    packages = metadata.packages_distributions().get(name.partition(".")[0], ())
    return sorted({f"{package} {metadata.version(package)}" for package in packages})


def _digest(root: Path, paths: Iterable[Path]) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(repr((path.relative_to(root).as_posix(), path.stat().st_size)).encode())
        digest.update(path.read_bytes())
    return digest.digest()


def _file(name: str) -> Path | None:
    """Return the file that would be imported, without importing it: another version could do anything."""
    registry.look_here()
    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found is not None and found.origin else None
