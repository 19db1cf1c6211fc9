"""Says which function of a game does not return, and at which line it is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Any

from evo.errors import notice

EVERY = 2.5  # seconds between looks; a call that is seen twice is reported

Functions = Mapping[str, Callable[..., Any]]  # of a game, by name


@contextmanager
def endless_named(module: str, functions: Functions) -> Iterator[None]:
    """Print a line where a call of a game goes on for seconds, and where Ctrl-C ends one: function, file and line."""
    over = threading.Event()
    looked_at = (module, functions, threading.get_ident(), over)
    thread = threading.Thread(target=_look, args=looked_at, name="endless calls", daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt as stop:
        call, where = _call(functions, walk_tb(stop.__traceback__))
        if call is not None:
            notice(f"game {module}: {where} was interrupted")
        raise
    finally:
        over.set()
        thread.join()  # none is left where a process is forked


def _look(module: str, functions: Functions, thread: int, over: threading.Event) -> None:
    """Report the first call of a thread that does not return, until `over` is set."""
    before: FrameType | None = None
    while not over.wait(EVERY):
        stack = [*walk_stack(sys._current_frames().get(thread))]
        call, where = _call(functions, reversed(stack))
        if call is not None and call is before:
            notice(f"game {module}: {where} has not returned yet; is its loop endless? Ctrl-C ends it")
            return
        before = call


def _call(functions: Functions, frames: Iterable[tuple[FrameType, int]]) -> tuple[FrameType | None, str]:
    """Return the frame of a game's function among frames, the newest last, and its name with the file and line."""
    names = {getattr(function, "__code__", None): name for name, function in functions.items()}
    call, where = None, ""
    for frame, line in frames:
        if call is None and frame.f_code in names:
            call = frame
        if call is not None and frame.f_code.co_filename == call.f_code.co_filename:
            where = f"{names[call.f_code]} ({Path(frame.f_code.co_filename).name}:{line})"
    return call, where
