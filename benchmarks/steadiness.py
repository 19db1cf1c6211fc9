"""How steady the machine was while it was measured: programs that only count, again and again between the sections."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field

# Counts for a while from a given moment on, so that several of these count at the same time.
SPIN = """
import sys, time
begin, count = float(sys.argv[1]), 0
while time.time() < begin:
    pass
while time.time() < begin + 0.4:
    count += 1
print(count)
"""


def spin(processes: int) -> int:
    """Return how far so many processes together count, that do nothing else: what the machine has to give now."""
    command = [sys.executable, "-c", SPIN, repr(time.time() + 0.3)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(int(child.communicate()[0]) for child in children)


@dataclass
class Steadiness:
    """What was counted at several moments, by one process and by as many as there are cores."""

    alone: list[int] = field(default_factory=list)
    together: list[int] = field(default_factory=list)

    def look(self) -> None:
        """Count once more."""
        self.alone.append(spin(1))
        self.together.append(spin(len(os.sched_getaffinity(0))))

    def told(self, first: int = 0, last: int | None = None) -> str:
        """Return what was found at some moments, in a sentence for the results."""
        best, cores = max(self.alone), len(os.sched_getaffinity(0))
        alone, together = self.alone[first:last], self.together[first:last]
        gains = [both / one for one, both in zip(alone, together, strict=True)]
        return (
            f"A process that only counts ran at {min(alone) / best:.0%} to {max(alone) / best:.0%} of its best speed "
            f"in that run, and {cores} such processes at {min(gains):.2f} to {max(gains):.2f} times the speed of one."
        )
