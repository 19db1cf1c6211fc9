"""The directory of Numba's compiled kernels, named by a hash of everything that can change them.

Numba itself checks only the file of the function that is called. Without the hash, an edit of a function or intrinsic
that was inlined from another file would leave stale machine code in use.
"""

from __future__ import annotations

import ast
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba import types
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile

from evo import clock
from evo.compiled import linking  # noqa: F401  (it changes how Numba links)
from evo.errors import notice, notice_once

config: Any = numba.config
KERNEL_SOURCE = b"numba"  # a source file that contains this is hashed


def features() -> str:
    """Return the instruction sets that Numba compiles for, as "+avx2,-avx512f,..."; NUMBA_CPU_FEATURES overrides."""
    return str(binding.get_host_cpu_features().flatten() if config.CPU_FEATURES is None else config.CPU_FEATURES)


def directory_name(digests: Iterable[str]) -> str:
    """Return a hash of these digests of kernel sources, the versions of the compilers, and the processor."""
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version)
    parts = (*versions, config.CPU_NAME or binding.get_host_cpu_name(), features(), *digests)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def digest(place: Path) -> str:
    """Return a hash of the kernel sources of a package's folder, or of one file, whatever it contains."""
    found = hashlib.sha256()
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        source = path.read_bytes()
        if KERNEL_SOURCE in source or path == place:
            found.update(repr((path.relative_to(place).as_posix(), len(source))).encode() + source)
    return found.hexdigest()


def root() -> Path:
    """Return the cache directory: NUMBA_CACHE_DIR, the user's cache, or else a private temporary directory.

    Cached machine code is executed, so no directory is used that others may write, with a notice where it was named.
    """
    caches = os.path.expanduser(os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    wanted = Path(caches).absolute() / "snake-evo"
    if not caches.startswith("~"):  # there is no home
        try:
            for folder in (*reversed(wanted.parents), wanted):
                folder.mkdir(mode=0o700, exist_ok=True)
            if _is_private(wanted):
                tempfile.TemporaryFile(dir=wanted).close()
                return wanted
            notice(
                f"{wanted} is not used for machine code, since another user owns it, or may write to it or to a folder "
                "above it"
            )
        except OSError:
            pass
    private = Path(tempfile.gettempdir()) / f"snake-evo-{os.getuid()}"
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        if _is_private(private):
            return private
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="snake-evo-"))


def _is_private(directory: Path) -> bool:
    """Return whether a directory is this user's, and nobody else may write to it or put another one in its place."""
    state, above = directory.stat(), [folder.stat().st_mode for folder in directory.resolve().parents]
    open_above = any(mode & stat.S_IWOTH and not mode & stat.S_ISVTX for mode in above)
    return state.st_uid == os.getuid() and not state.st_mode & 0o022 and not open_above


_root = cache(root)  # once a process, with its notice


def use(module: str) -> None:
    """Keep the kernels that `module` compiles; to be called after its imports and before its first kernel."""
    packages = sorted({"evo", module.partition(".")[0]})
    config.CACHE_DIR = str(_root() / directory_name(map(_sources, packages)))


def depend(state: type, modules: Iterable[str], data: Sequence[str]) -> None:
    """Note that a game with such a state is made of these modules, or of all modules of these packages, and of data."""
    _modules[state], _data[state] = tuple(sorted({*modules})), tuple(data)


def with_game(function: Callable[..., Any]) -> Any:
    """Compile a kernel that plays any game, again where the sources of the game that it plays have changed."""
    kernel = numba.njit(cache=True, error_model="numpy", nogil=True, _nrt=False, no_cfunc_wrapper=True)(function)
    kernel._cache = _OfGame(function)
    return kernel


def is_kept(kernel: Any, *arguments: Any) -> bool:
    """Return whether machine code of this kernel lies in the cache, for arguments that begin with such types."""
    wanted, cache = tuple(map(numba.typeof, arguments)), kernel._cache
    file = cache.file_of(wanted) if isinstance(cache, _OfGame) else cache._cache_file
    return any(key[0][: len(wanted)] == wanted for key in file._load_index())


class _OfGame(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a kernel, with files of their own for every game and every version of its sources.

    Reading such a file imports the game; so a game that has moved or is gone must not hinder others.
    """

    def file_of(self, kinds: Iterable[Any]) -> IndexDataCacheFile:
        """Return the file that holds machine code for arguments of these types."""
        stamp = self._impl.locator.get_source_stamp()
        return IndexDataCacheFile(self._cache_path, f"{self._impl.filename_base}-{_games_hash(kinds)}", stamp)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        self._cache_file = self.file_of(sig)
        return super()._load_overload(sig, target_context)

    def _save_overload(self, sig: Any, data: Any) -> None:
        self._cache_file = self.file_of(sig)
        super()._save_overload(sig, data)


def _games_hash(kinds: Iterable[Any]) -> str:
    """Return a hash of the names, the sources and the data of all games whose states are among types."""
    games = {*_states(kinds)} & _modules.keys()
    names = sorted(f"{game.__module__}.{game.__qualname__}" for game in games)
    sources = sorted(_sources(module) for game in games for module in _modules[game])
    data = sorted(_data[game] for game in games)
    return hashlib.sha256(repr((names, sources, data)).encode()).hexdigest()[:16]


def kept(name: str, kinds: Iterable[Any], parts: Sequence[Any], make: Callable[[], bytes]) -> bytes:
    """Return a program for arguments of these types as `make` does, or as it did in an earlier process.

    `parts` are whatever else it depends on, besides the sources of the trainer and of the games among the types.
    """
    known = hashlib.sha256(repr((*map(str, kinds), _games_hash(kinds), *parts)).encode()).hexdigest()[:16]
    if not config.CACHE_DIR:  # Numba has read its environment again; what lies in another directory is not trusted
        return make()
    place = Path(config.CACHE_DIR) / f"{name}-{known}"
    with suppress(OSError):
        if program := place.read_bytes():  # empty: the machine stopped before its disk had all
            return program
    program = make()
    with suppress(OSError):  # a full disk, or one that cannot be written to: it is made again
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = place.with_name(f"{place.name}.{os.getpid()}")
        written.write_bytes(program)
        written.replace(place)
    return program


def _states(kinds: Iterable[Any]) -> Iterator[type]:
    """Yield the classes of all NamedTuples among types, nested ones included."""
    for kind in kinds:
        if isinstance(kind, types.BaseNamedTuple):
            yield kind.instance_class
            yield from _states(kind)


def _save(self: FunctionCache, sig: Any, data: Any) -> None:
    """Keep machine code as Numba does; where it cannot be written, the next process compiles again."""
    try:
        _saved(self, sig, data)
    except OSError as error:
        where = f"{config.CACHE_DIR}: {error.strerror}"
        notice_once(f"compiled code is not kept in {where}; set NUMBA_CACHE_DIR to another folder")


_saved, FunctionCache.save_overload = FunctionCache.save_overload, _save


class _Clocks(event.Listener):  # type: ignore[misc]
    """Stops the clocks while Numba compiles; it does not where it finds machine code in the cache.

    The methods are functions of that module, which no signal interrupts.
    """

    on_start, on_end = staticmethod(clock.stop), staticmethod(clock.go_on)


event.register("numba:compile", _Clocks())

# Of the games that are registered, by the type of their state:
_modules: dict[type, tuple[str, ...]] = {}
_data: dict[type, tuple[str, ...]] = {}


@cache
def _sources(module: str) -> str:
    """Read sources once a process: a run starts sooner, and a worker, which inherits the answer, is replaced sooner."""
    return digest(_place(module))


def sources_of(modules: Iterable[str], data: Sequence[str], but: str, less: Callable[..., Any] | None = None) -> str:
    """Return a hash of data and modules, less those of the package `but`, and less the source of one function."""
    others = sorted(module for module in modules if module.partition(".")[0] != but)
    place, name = ("", "") if less is None else (less.__module__, less.__name__)
    found = [_hash_without(module, name) if module == place else _sources(module) for module in others]
    return hashlib.sha256(repr([*found, *data]).encode()).hexdigest()[:16]


@cache
def _hash_without(module: str, name: str) -> str:
    """Return a hash of a module without the functions of this name at its top; of all of it where there are none."""
    place = _place(module)
    if place.is_dir():
        return _sources(module)
    source = place.read_bytes()
    cut = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name]
    lines = source.splitlines(keepends=True)
    for node in reversed(cut):
        first = min(node.lineno, *(decorator.lineno for decorator in node.decorator_list), node.end_lineno or 0)
        lines[first - 1 : node.end_lineno] = []
    return hashlib.sha256(b"".join(lines)).hexdigest() if cut else _sources(module)


def _place(module: str) -> Path:
    """Return where a package or a module lies, also one that is not imported yet."""
    if module == "__main__":  # a script has no specification
        file = vars(sys.modules[module]).get("__file__")
        if file is None:
            raise TypeError("a game lies in a file, so that changes of it are seen: write it to one, and import that")
        return Path(file)
    spec = find_spec(module)
    assert spec is not None
    if spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0])
    assert spec.origin is not None
    return Path(spec.origin)
