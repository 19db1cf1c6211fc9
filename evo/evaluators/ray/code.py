"""Digests of this program and of a run's plug-ins, which must be equal on every node."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import snake
from evo.plugins import registry

EVO, SNAKE = Path(__file__).parents[2], Path(str(snake.__file__)).parent  # which may be in different folders on Ray
OURS = ""  # this program, among the names of plug-ins


@cache
def code_of(names: tuple[str, ...] = ()) -> dict[str, str]:
    """Return a SHA-256 of this program's source files, and one of every plug-in: empty where it is missing here.

    A plug-in's is of its own file; in a package, of all files in its folder and below.
    """
    ours = b"".join(_digest(folder, folder.rglob("*.py")) for folder in (EVO, SNAKE))
    return {OURS: hashlib.sha256(ours).hexdigest(), **{name: _of_plugin(name) for name in names}}


def other_code(wanted: Mapping[str, str]) -> str:
    """Return in a few words how the code here differs from that of `wanted`; empty where it is the same."""
    here = code_of(tuple(name for name in wanted if name != OURS))
    for name, digest in wanted.items():
        if here[name] != digest:
            what, place = (f"the plug-in {name}", _file(name)) if name else ("this program", EVO)
            return f"has another version of {what}, in {place}" if place else f"lacks {what}"
    return ""


def _digest(root: Path, paths: Iterable[Path]) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(repr((path.relative_to(root).as_posix(), path.stat().st_size)).encode())
        digest.update(path.read_bytes())
    return digest.digest()


def _of_plugin(name: str) -> str:
    file = _file(name)
    if file is None:
        return ""
    in_package = "." in name or file.name == "__init__.py"
    return _digest(file.parent, file.parent.rglob("*.py") if in_package else [file]).hex()


def _file(name: str) -> Path | None:
    """Return the file that would be imported, without importing it: another version could do anything."""
    registry.look_here()
    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found is not None and found.origin else None
