"""An episode that was played before, shown in the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evo.cli.terminal.keys import keys

if TYPE_CHECKING:
    from evo.environment import Shown

HIDE, SHOW, UP = "\x1b[?25l", "\x1b[?25h", "\x1b[{}A\r"


def watch(shown: Sequence[Shown], frames_per_second: float, caption: str = "") -> bool:
    """Show positions one after the other; return False where a key or Ctrl-C has skipped the rest."""
    colour = not os.environ.get("NO_COLOR")
    height = 0
    with keys() as read:
        sys.stdout.write(HIDE)
        try:
            for one in shown:
                lines = [*([caption] if caption else []), *one.text(colour).split("\n")]
                sys.stdout.write((UP.format(height) if height else "") + "\x1b[K\n".join(lines) + "\x1b[K\n")
                sys.stdout.flush()
                height = len(lines)
                if read(1 / frames_per_second):
                    return False
        except KeyboardInterrupt:
            return False
        finally:
            sys.stdout.write(SHOW)
            sys.stdout.flush()
    return True
