"""The current directory, which a user's code may change: the program stays in its own, where relative paths begin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_theirs = dict[str, str]()  # where a user's code is, by where the program is
_within = False  # whether such code is called now


@contextmanager
def kept() -> Iterator[None]:
    """Call a user's code, in the directory where it was last; the program is in its own again when that returns.

    What is called within such a call is a part of it, so a worker, which has no paths of its own, never goes back.
    """
    global _within
    if _within:
        yield
        return
    ours, _within = _current(), True
    _change(ours, _theirs.get(ours, ours))
    try:
        yield
    finally:
        _within = False
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
