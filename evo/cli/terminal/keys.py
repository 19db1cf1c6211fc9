"""Keys that are pressed in a terminal, read without waiting for the end of a line."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

KEY = re.compile(rb"\x1b[\[O]([A-D])|\x1b\[[0-9;]*[~A-Z]|([ -~])")  # an arrow, another key with a sequence, a letter
ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}

Read = Callable[[float], bytes]


@contextmanager
def keys() -> Iterator[Read]:
    """Yield a function that waits at most so many seconds for keys and returns what was typed; see `names`."""
    try:
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin.fileno())
        tty.setcbreak(sys.stdin.fileno())
    except (ImportError, OSError, ValueError, termios.error):  # no terminal to press keys on

        def sleep(seconds: float) -> bytes:
            time.sleep(seconds)
            return b""

        yield sleep
        return

    def typed(seconds: float) -> bytes:
        if not select.select([sys.stdin], [], [], max(seconds, 0))[0]:
            return b""
        return os.read(sys.stdin.fileno(), 64) or b"q"  # nothing: the terminal is gone, so it is time to leave

    try:
        yield typed
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


def names(typed: bytes) -> list[str]:
    """Return the keys of what was typed: "up", "down", "left", "right", or a letter."""
    found = []
    for arrow, letter in KEY.findall(typed):
        if arrow or letter:
            found.append(ARROWS[arrow] if arrow else letter.decode("ascii"))
    return found
