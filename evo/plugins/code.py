"""Digests of this program and of plug-ins: equal on every node of a cluster, and from a run's first generation on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
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
    return [f"the code of {what} differs from that of the run" for what in changed]


@cache
def of_plugin(name: str) -> str:
    """Return a digest of a plug-in's file, or of all files of its package, after the version that is installed."""
    file = _file(name)
    if file is None:
        return ""
    in_package = "." in name or file.name == "__init__.py"
    digest = _digest(file.parent, file.parent.rglob("*.py") if in_package else [file]).hex()
    return " ".join((*_versions(name, file), digest))


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
