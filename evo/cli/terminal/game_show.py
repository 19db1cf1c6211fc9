"""An episode that was played before, shown in the terminal."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evo.environments.pictures import Shown

HIDE, SHOW, UP = "\x1b[?25l", "\x1b[?25h", "\x1b[{}A\r"


def watch(shown: Sequence[Shown], frames_per_second: float, caption: str = "") -> bool:
    """Show positions one after the other; return False where a key or Ctrl-C has skipped the rest."""
    colour = not os.environ.get("NO_COLOR")
    height = 0
    with _keys() as pressed:
        sys.stdout.write(HIDE)
        try:
            for one in shown:
                lines = [*([caption] if caption else []), *one.text(colour).split("\n")]
                sys.stdout.write((UP.format(height) if height else "") + "\x1b[K\n".join(lines) + "\x1b[K\n")
                sys.stdout.flush()
                height = len(lines)
                if pressed(1 / frames_per_second):
                    return False
        except KeyboardInterrupt:
            return False
        finally:
            sys.stdout.write(SHOW)
            sys.stdout.flush()
    return True


@contextmanager
def _keys() -> Iterator[Any]:
    """Yield a function that waits for so many seconds and returns whether a key was pressed meanwhile."""
    try:
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin.fileno())
        tty.setcbreak(sys.stdin.fileno())
    except (ImportError, OSError, ValueError, termios.error):  # no terminal to press keys on

        def sleep(seconds: float) -> bool:
            time.sleep(seconds)
            return False

        yield sleep
        return

    def pressed(seconds: float) -> bool:
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return False
        os.read(sys.stdin.fileno(), 64)
        return True

    try:
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
