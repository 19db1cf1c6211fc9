"""The current directory and standard streams, which a user's code may change: the program keeps its own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_theirs = dict[str, str]()  # where a user's code is, by where the program is
_within = False  # whether such code is called now


@contextmanager
def kept() -> Iterator[None]:
    """Call a user's code, in the directory where it was last; then the program has its own again, and its streams.

    What is called within such a call is a part of it, so a worker, which has no paths of its own, never goes back.
    """
    global _within
    if _within:
        yield
        return
    ours, streams, _within = _current(), (sys.stdout, sys.stderr), True
    _change(ours, _theirs.get(ours, ours))
    try:
        yield
    finally:
        _within = False
        if threading.current_thread() is threading.main_thread():  # who redirects them meanwhile is in that thread
            sys.stdout, sys.stderr = streams
        if (there := _current()) != ours or ours in _theirs:
            _theirs[ours] = there
            _change(there, ours)


def is_changing() -> bool:
    """Return whether a user's code has changed it: another thread may see another one from moment to moment."""
    return bool(_theirs)


def _current() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return ""


def _change(there: str, wanted: str) -> None:
    if there != wanted:
        with suppress(OSError):  # it was deleted
            os.chdir(wanted)
