"""In which environment each generation trains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evo.environments.environment import Environment
    from evo.records import Task


@dataclass(frozen=True)
class Curriculum:
    """Environments of training, each for a generation in turn, and from some generation on that of validation."""

    evaluation: Environment  # of validation and test
    training: tuple[Environment, ...] = ()  # empty: as validation
    generations: int = 0  # after which training is as validation; 0: never

    def turn(self, number: int) -> int | None:
        """Return the place in `training` of a generation's environment; None: it is that of validation."""
        over = bool(self.generations) and number >= self.generations
        return None if over or not self.training else number % len(self.training)

    def environment(self, number: int) -> Environment:
        """Return the environment in which a generation trains."""
        turn = self.turn(number)
        return self.evaluation if turn is None else self.training[turn]

    def environments(self) -> Iterator[Environment]:
        """Yield every environment in which training may take place."""
        yield from self.training
        if self.generations or not self.training:
            yield self.evaluation

    def slot(self, number: int) -> int:
        """Return which set of environments side by side a generation plays in.

        The one of a single table goes on where training becomes as validation; of several, each has its own.
        """
        turn, several = self.turn(number), len(self.training) > 1
        return turn if turn is not None else several * len(self.training)

    def metrics(self, number: int) -> dict[str, float]:
        """Return which of several tables a generation trains by, counted from 0; nothing where there is no choice."""
        turn = self.turn(number)
        return {} if turn is None or len(self.training) < 2 else {"training_table": float(turn)}

    def placed(self, task: Task, number: int) -> Task:
        """Return a generation's task for its environment."""
        turn = self.turn(number)
        return replace(task, evaluation=True) if turn is None else replace(task, training=turn)
