"""What a run does about poison, candidates that end every worker: it names them, and the command that repeats them.

With `workers.on_poison = "worst"` they rank worst instead of ending the run. That changes what is computed, so it is
in the generation's record, as `poisoned`, and by that in its hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evo.errors import PoisonError, ResourceError, notice
from evo.plugins import registry
from evo.records import NOT_DETERMINISTIC

if TYPE_CHECKING:
    from evo.records import Arrays, Played, Task
    from evo.store.store import Store


class Quarantine:
    """Shows the notices of what was played, and keeps who is poisoned in the present generation."""

    def __init__(self, store: Store) -> None:
        self.fingerprint = ""  # of the arithmetic of the last round
        self._store = store
        self._generation, self._round = -1, 0  # rounds of the generation that are played
        self._poisoned: list[tuple[int, int]] = []  # round and candidate

    def admit(self, played: Played, tasks: Sequence[Task]) -> None:
        """Take in a round of the present generation; ResourceError where every candidate ends its workers."""
        self._begin()
        if played.fingerprint.startswith(NOT_DETERMINISTIC) and not self.fingerprint:
            show(["the environment is not deterministic under its seed: this run cannot be repeated or verified"])
        self.fingerprint = played.fingerprint
        self._keep(played.poisoned, tasks)
        self._round += 1
        show(played.notices)

    def stopped(self, poison: PoisonError, tasks: Sequence[Task]) -> ResourceError:
        """Return what is raised where a candidate ends its workers: its name, and the commands to try."""
        self._begin()
        directory = str(self._store.directory)
        resume = registry.command("evo", "resume", directory, "--set", "workers.on_poison=worst")
        return ResourceError(
            f"{self._described(poison, tasks)}; replay it alone with: {self._replay(_numbers(poison, tasks)[0])}; "
            f"or rank it worst and continue with: {resume}"
        )

    def record(self) -> Arrays:
        """Return the poisoned candidates of this generation for its record; nothing where there are none."""
        if not self._poisoned:
            return {}
        return {"poisoned": np.array(sorted(self._poisoned), np.int32)}  # [N, 2] round and candidate

    def _begin(self) -> None:
        if self._store.next_generation != self._generation:
            self._generation, self._round, self._poisoned = self._store.next_generation, 0, []

    def _keep(self, poisoned: Sequence[PoisonError], tasks: Sequence[Task]) -> None:
        numbers = [number for poison in poisoned for number in _numbers(poison, tasks)]
        if len(numbers) == sum(len(task.weights) for task in tasks) > 1:
            where = f" in round {self._round}" if self._round else ""
            raise ResourceError(
                f"every candidate of generation {self._generation}{where} ends its workers, so none is named as the "
                f"cause; replay one alone with: {self._replay(0)}"
            )
        self._poisoned += [(self._round, number) for number in numbers]
        if numbers:
            ranks = f"it and {len(numbers) - 1} more rank" if len(numbers) > 1 else "it ranks"
            again = f"replay it alone with: {self._replay(numbers[0])}"
            show([f"{self._described(poisoned[0], tasks)}; {ranks} worst; {again}"])

    def _described(self, poison: PoisonError, tasks: Sequence[Task]) -> str:
        numbers = _numbers(poison, tasks)
        who = f"candidate {numbers[0]}" if len(numbers) == 1 else f"candidates {numbers[0]} to {numbers[-1]} together"
        where = "" if self._round == 0 else f", in round {self._round},"
        return f"{who} of generation {self._generation}{where} ended every worker; the last one {poison.why}"

    def _replay(self, number: int) -> str:
        where = ["--generation", str(self._generation), "--candidate", str(number)]
        if self._round:
            where += ["--round", str(self._round)]
        return registry.command("evo", "replay", str(self._store.directory), *where)


def show(notices: Sequence[str]) -> None:
    """Show a user the notices of an evaluator."""
    for text in notices:
        notice(text)


def champion_stopped(poison: PoisonError, directory: Path) -> ResourceError:
    """Return what is raised where the champion cannot be measured, because it ends its workers."""
    return ResourceError(
        f"the champion ended every worker on test episodes; the last one {poison.why}; "
        f"repeat that with: {registry.command('evo', 'evaluate', str(directory))}"
    )


def _numbers(poison: PoisonError, tasks: Sequence[Task]) -> list[int]:
    """Return the numbers that the candidates have in their round: over all tasks, in order."""
    before = sum(len(task.weights) for task in tasks[: poison.task]) + poison.first
    return list(range(before, before + poison.count))
