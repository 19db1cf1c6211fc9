"""What playing took: how busy each worker was, what crossed the pipes, and how long the last task ran alone."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Effort:
    """What the last `map` of an evaluator took."""

    seconds: float = 0.0  # wall clock
    busy: list[float] = field(default_factory=list)  # seconds of playing, by worker
    replaced: int = 0  # workers that were lost
    held: float = 0.0  # seconds in which workers were done while the master was at something else, on their mean
    alone: float = 0.0  # seconds in which one worker of several played, for no task was left for the others
    sent: int = 0  # bytes of tasks
    received: int = 0  # bytes of results

    @property
    def share(self) -> float:
        """The part of the workers' time that was spent playing, 0 to 1."""
        return sum(self.busy) / (self.seconds * len(self.busy)) if self.seconds and self.busy else 0.0
