"""What a run does about candidates that end every worker that plays them: it names them, and the command that tries.

With `workers.on_poison = "worst"` they rank worst instead of ending the run. That changes what is computed, so it is
in the generation's record, as `poisoned`, and by that in its hash.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evo.errors import PoisonError, ResourceError

if TYPE_CHECKING:
    from evo.records import Arrays, Evaluator, Rebuild, Task
    from evo.store.store import Store


class Quarantine:
    """An evaluator that is asked for a run's generations, and keeps what is poisoned in the one at hand."""

    def __init__(self, evaluator: Evaluator, store: Store, plugins: Sequence[str]) -> None:
        self.fingerprint = evaluator.fingerprint
        self._evaluator, self._store, self._plugins = evaluator, store, plugins
        self._generation, self._round = -1, 0
        self._poisoned: list[tuple[int, int]] = []  # round and candidate

    def map(self, tasks: Sequence[Any]) -> list[Any]:
        """Return the results; ResourceError names a candidate that ends its workers, or says that all of them do."""
        from evo.records import Rebuild

        if tasks and isinstance(tasks[0], Rebuild):
            return self._rebuilt(tasks)
        if self._store.next_generation != self._generation:
            self._generation, self._round, self._poisoned = self._store.next_generation, -1, []
        self._round += 1
        try:
            results = self._evaluator.map(tasks)
        except PoisonError as poison:
            raise ResourceError(self._stopped(poison, tasks)) from poison
        self.fingerprint = self._evaluator.fingerprint
        self._take_in(getattr(self._evaluator, "poisoned", ()), tasks)
        self._tell()
        return results

    def _rebuilt(self, tasks: Sequence[Rebuild]) -> list[Any]:
        """Have survivors written, in which no candidate is to blame for anything."""
        try:
            digests = self._evaluator.map(tasks)  # type: ignore[arg-type]
        except PoisonError as poison:
            resume = ["python", "-m", "evo.run", "--resume", str(self._store.directory), *self._modules()]
            raise ResourceError(
                f"the survivors of generation {self._store.next_generation} could not be written: {poison}; "
                f"go on from before it by: {shlex.join(resume)}"
            ) from poison
        self._tell()
        return digests

    def _tell(self) -> None:
        """Show what a user should know of."""
        if notes := getattr(self._evaluator, "notes", None):
            from evo.errors import notice

            for text in notes:
                notice(text)
            notes.clear()

    @property
    def effort(self) -> Any:
        """What the last `map` took, where the evaluator says so."""
        return getattr(self._evaluator, "effort", None)

    @property
    def rebuilds(self) -> bool:
        """Whether workers write what is to be kept."""
        return getattr(self._evaluator, "rebuilds", False)

    def close(self) -> None:
        """Close the evaluator."""
        self._evaluator.close()

    def record(self) -> Arrays:
        """Return what the record of this generation has to say beside the algorithm's: nothing, where all is well."""
        if not self._poisoned:
            return {}
        return {"poisoned": np.array(sorted(self._poisoned), np.int32)}  # [N, 2] round and candidate

    def _take_in(self, poisoned: Sequence[PoisonError], tasks: Sequence[Task]) -> None:
        numbers = [number for poison in poisoned for number in _numbers(poison, tasks)]
        if len(numbers) == sum(len(task.weights) for task in tasks) > 1:
            raise ResourceError(
                f"every candidate of generation {self._generation} ends its workers, so no candidate is to blame; "
                f"play one alone by: {self._again(0)}"
            )
        self._poisoned += [(self._round, number) for number in numbers]
        if numbers:
            from evo.errors import notice

            ranks = f"it and {len(numbers) - 1} more rank" if len(numbers) > 1 else "it ranks"
            again = f"play it alone by: {self._again(numbers[0])}"
            notice(f"{self._told(poisoned[0], tasks)}; {ranks} worst; {again}")

    def _stopped(self, poison: PoisonError, tasks: Sequence[Task]) -> str:
        resume = ["python", "-m", "evo.run", "--resume", str(self._store.directory), *self._modules()]
        return (
            f"{self._told(poison, tasks)}; play it alone by: {self._again(_numbers(poison, tasks)[0])}; "
            f"or rank it worst and go on by: {shlex.join([*resume, '--set', 'workers.on_poison=worst'])}"
        )

    def _told(self, poison: PoisonError, tasks: Sequence[Task]) -> str:
        numbers = _numbers(poison, tasks)
        who = f"candidate {numbers[0]}" if len(numbers) == 1 else f"candidates {numbers[0]} to {numbers[-1]} together"
        again = "" if self._round == 0 else f", in round {self._round},"
        return f"{who} of generation {self._generation}{again} ended every worker; the last one {poison.why}"

    def _again(self, number: int) -> str:
        command = ["python", "-m", "evo", "replay", str(self._store.directory)]
        command += ["--generation", str(self._generation), "--candidate", str(number)]
        if self._round:
            command += ["--round", str(self._round)]
        return shlex.join([*command, *self._modules()])

    def _modules(self) -> list[str]:
        return [word for module in self._plugins for word in ("--plugin", module)]


def champion_stopped(poison: PoisonError, directory: Path, plugins: Sequence[str]) -> ResourceError:
    """Return what is raised where the champion cannot be measured, because it ends its workers."""
    command = ["python", "-m", "evo", "evaluate", str(directory)]
    command += [word for module in plugins for word in ("--plugin", module)]
    return ResourceError(
        f"the champion ended every worker on sealed episodes; the last one {poison.why}; "
        f"play it again by: {shlex.join(command)}"
    )


def _numbers(poison: PoisonError, tasks: Sequence[Task]) -> list[int]:
    """Return the numbers that the candidates have in their round: over all tasks, in order."""
    before = sum(len(task.weights) for task in tasks[: poison.task]) + poison.first
    return list(range(before, before + poison.count))
