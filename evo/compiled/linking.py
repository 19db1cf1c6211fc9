"""Large compiled functions are optimised once, not again in everything that calls them.

Numba copies whatever a function calls into its module, and then optimises that module, so that small functions can be
inlined. Large ones never are, and a kernel contains the whole forward pass. So these are copied afterwards, as they
were optimised for themselves. Nothing about the order of arithmetic depends on it.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core.codegen import CPUCodeLibrary

LARGE = 150  # basic blocks of a function and of what it contains: LLVM inlines no such function
VERSIONS = "0.68."  # of Numba: others may link otherwise, and then compile as they do by themselves
WRAPPERS = ("_ZN7cpython", "cfunc.")  # beginnings of the names of functions that compiled code does not call


def is_large(library: Any) -> bool:
    """Return whether a function of this project is too large to be inlined."""
    if not hasattr(library, "_is_large"):
        module = library._get_module_for_linking()
        called = [one for one in module.functions if not one.is_declaration and not one.name.startswith(WRAPPERS)]
        own = any(one.name.startswith("_ZN3evo") for one in called)
        library._is_large = own and sum(1 for one in called for _ in one.blocks) >= LARGE
    return bool(library._is_large)


def _link(library: Any, called: Any) -> None:
    """Copy what is called into a module before that is optimised, or note it for afterwards."""
    called._ensure_finalized()
    if is_large(called):
        library.__dict__.setdefault("_linked_last", {})[called] = None
    else:
        _linked(library, called)


def _optimise(library: Any) -> None:
    _optimised(library)
    for called in library.__dict__.pop("_linked_last", ()):
        library._reload_init.update(called._reload_init)
        library._final_module.link_in(called._get_module_for_linking(), preserve=True)


if numba.__version__.startswith(VERSIONS):
    _linked, CPUCodeLibrary.add_linking_library = CPUCodeLibrary.add_linking_library, _link
    _optimised, CPUCodeLibrary._optimize_final_module = CPUCodeLibrary._optimize_final_module, _optimise
