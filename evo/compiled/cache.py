"""The directory of Numba's compiled kernels, named by a hash of everything that can change them.

Numba itself checks only the file of the function that is called. Without the hash, an edit of a function or intrinsic
that was inlined from another file would leave stale machine code in use.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding

config: Any = numba.config
KERNEL_SOURCE = b"numba"  # a source file that contains this is hashed


def features() -> str:
    """Return the instruction sets that Numba compiles for, as "+avx2,-avx512f,..."; NUMBA_CPU_FEATURES overrides."""
    return str(binding.get_host_cpu_features().flatten() if config.CPU_FEATURES is None else config.CPU_FEATURES)


def directory_name(folders: list[Path]) -> str:
    """Return a hash of the kernel sources in `folders`, the compiler versions, and the processor."""
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version)
    digest = hashlib.sha256(repr((*versions, config.CPU_NAME or binding.get_host_cpu_name(), features())).encode())
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            source = path.read_bytes()
            if KERNEL_SOURCE in source:
                digest.update(repr((path.relative_to(folder).as_posix(), len(source))).encode() + source)
    return digest.hexdigest()[:16]


def root() -> Path:
    """Return the cache directory: NUMBA_CACHE_DIR, the user's cache, or else a private temporary directory."""
    caches = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    wanted = Path(caches).absolute() / "snake-evo"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=wanted).close()
        return wanted
    except OSError:
        # Cached machine code is executed, so in a shared temporary directory nobody else may be able to write it.
        private = Path(tempfile.gettempdir()) / f"snake-evo-{os.getuid()}"
        try:
            private.mkdir(mode=0o700, exist_ok=True)
            state = private.lstat()
            if state.st_uid == os.getuid() and state.st_mode == 0o40700:
                return private
        except OSError:
            pass
        return Path(tempfile.mkdtemp(prefix="snake-evo-"))


def use(module: str) -> None:
    """Cache the kernels that `module` compiles; call this after its imports and before its first kernel."""
    packages = sorted({"evo", "snake", module.partition(".")[0]})
    config.CACHE_DIR = str(root() / directory_name([_folder(name) for name in packages]))


def _folder(package: str) -> Path:
    """Return the folder of a package, without importing it."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])
