"""The race: after fixed shares of the budget, a third of the trials go on, less those that lose to the leader.

As in successive halving (Jamieson and Talwalkar, 2016), budgets grow from one stage to the next, and the best third
goes on, as in Hyperband (Li et al., 2018); where trials are trained one after the other, the best third of those so far
(Li et al., 2020). More stop where the seeds show that they lose, as in the t-race of irace (López-Ibáñez et al., 2016):
by paired differences, since all trials have the same seeds, and so the same validation episodes.

Every decision is kept in a file of the sweep's directory before the next stage begins, with the scores of the stage,
since the runs go on and their champions change, and with the values that Optuna chose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from evo.config.identity import CONTENT
from evo.errors import ConfigurationError, DataError, printable
from evo.files.durable import read_file, replace_file, resources, sync_directory, with_checksum, without_checksum
from evo.files.layout import FORMAT, check_format
from evo.statistics import t_interval

FILE = "sweep.json"
LARGEST = 1 << 28
SHARES = (0.2, 0.4, 1.0)  # of the budget, at the end of each stage
GOING = 3  # one of this many trials goes on
FEWEST = 3  # trials that a place does not stop
TWO_SIDED = 0.9  # confidence of the interval whose lower end is above 0 with 95 %: only the leader can be better
FAILED = "failed: "  # why a trial has no scores begins with it
MOST = 1e100  # of a score in a file: squares of larger ones are infinite


@dataclass(frozen=True)
class Standing:
    """A trial at the end of a stage: after 20 %, 40 % or all of the budget."""

    name: str  # of the trial
    scores: tuple[Annotated[float, Field(strict=True, ge=-MOST, le=MOST)], ...]  # mean validation returns, by seed
    stopped: str = ""  # why it goes no further


STAGES = TypeAdapter(dict[str, dict[str, Standing]])
CHOSEN = TypeAdapter(list[dict[str, int | float | str]])
LACKED = TypeAdapter(dict[str, int])


def mean_of(scores: Sequence[float]) -> float:
    """Return the mean score over seeds."""
    return math.fsum(scores) / len(scores)


def leader(scores: Mapping[str, Sequence[float]]) -> str:
    """Return the trial with the highest mean; of equal ones the first."""
    return max(scores, key=lambda name: mean_of(scores[name]))


def loses(ours: Sequence[float], best: Sequence[float]) -> str:
    """Return why a trial loses to the leader, by Student's t of differences by seed; empty: that is not shown."""
    differences = [theirs - our for our, theirs in zip(ours, best, strict=True)]
    mean, interval = t_interval(differences, TWO_SIDED)
    if interval is None or interval[0] <= 0:
        return ""
    return f"{mean:.2f} below the leader (at 90 %, {interval[0]:.2f} to {interval[1]:.2f})"


def falls_behind(ours: Sequence[float], rivals: Sequence[Sequence[float]]) -> str:
    """Return why a trial is neither among the best three nor the best third of a stage; empty where it is."""
    place = 1 + sum(mean_of(theirs) > mean_of(ours) for theirs in rivals)
    going = max(FEWEST, math.ceil(len(rivals) / GOING))
    return f"place {place} of {len(rivals)}, and {going} go on" if place > going else ""


def judged(scores: Mapping[str, Sequence[float]], failures: Mapping[str, str], last: bool) -> list[Standing]:
    """Return how all trials of a stage stand; those that failed have no scores, and in the last stage none stops."""
    rivals, best = list(scores.values()), scores[leader(scores)] if scores else ()
    standings = [Standing(name, tuple(own), "" if last else stops(own, best, rivals)) for name, own in scores.items()]
    return standings + [Standing(name, (), f"{FAILED}{printable(why)}") for name, why in failures.items()]


def stops(ours: Sequence[float], best: Sequence[float], rivals: Sequence[Sequence[float]]) -> str:
    """Return why a trial stops at the end of a stage that is not the last; empty where it goes on."""
    return loses(ours, best) or falls_behind(ours, rivals)


class Journal:
    """The decisions of a sweep, in a file of its directory with a checksum."""

    def __init__(
        self, directory: Path, settings: Mapping[str, Any], earlier: str = "", names: Mapping[str, str] | None = None
    ) -> None:
        """Read what is there; ConfigurationError: it is of a sweep with other settings. DataError: it is damaged.

        `earlier` is what an earlier version has as "experiment", `names` are those of settings for a reader.
        """
        self._path, self._settings = directory / FILE, json.loads(json.dumps(settings))
        self._stages: dict[str, dict[str, Standing]] = {}  # by the stage, and by the trial
        self.chosen: list[dict[str, int | float | str]] = []  # values that Optuna chose, by trial
        self.lacked_memory: dict[str, int] = {}  # how often a run did, by its directory's name
        if not self._path.exists():
            return
        try:
            found = without_checksum(read_file(self._path, most=LARGEST).rstrip(b"\n"))
            check_format(found.get("format"), str(self._path))
            self._stages, known = STAGES.validate_python(found["stages"]), found["settings"]
            self.chosen = CHOSEN.validate_python(found.get("chosen", []))
            self.lacked_memory = LACKED.validate_python(found.get("lacked_memory", {}))
            known = known | ({"experiment": settings["experiment"]} if known.get("experiment") == earlier else {})
            ours = {name: one for name, one in self._settings.items() if name in known or not name.startswith(CONTENT)}
            changed = [_typed(name, known, names or {}) for name, one in ours.items() if known.get(name) != one]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self.damaged() from error
        if changed:
            what = " and ".join(changed)
            raise ConfigurationError(f"{directory}: is a sweep with {what}; choose another --directory")

    def stage(self, name: str, trials: Collection[str], seeds: int) -> list[Standing] | None:
        """Return how these trials have ended a stage; None where it has not ended. DataError: it is not theirs."""
        found = self._stages.get(name)
        if found is None:
            return None
        for key, one in found.items():
            whole = len(one.scores) == seeds or (not one.scores and one.stopped.startswith(FAILED))
            if key != one.name or not whole or not one.stopped.isprintable():
                raise self.damaged()
        if found.keys() != {*trials}:
            raise self.damaged()
        return list(found.values())

    def keep(self, name: str, standings: Sequence[Standing]) -> None:
        """Keep how a stage has ended, until the next `write`."""
        self._stages[name] = {one.name: one for one in standings}

    def decide(self, name: str, standings: Sequence[Standing]) -> None:
        """Keep how a stage has ended, durably; ResourceError where that cannot be written."""
        self.keep(name, standings)
        self.write()

    def write(self) -> None:
        """Write the file, so that no other sweep takes the directory; ResourceError where that is not possible."""
        stages = STAGES.dump_python(self._stages, mode="json")
        some = {"chosen": self.chosen, "lacked_memory": self.lacked_memory}
        some = {name: one for name, one in some.items() if one}
        data = with_checksum({"format": FORMAT, "settings": self._settings, "stages": stages, **some})
        with resources("write", self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, data + b"\n")
            sync_directory(self._path.parent)

    def damaged(self) -> DataError:
        """Return the error that says so."""
        return DataError(f"{self._path}: is damaged; move its folder away, with the runs, to race the trials again")


def _typed(name: str, known: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return what a sweep has in one of its settings, as it is typed where it is."""
    value = known[name]
    if name == "over":
        return " ".join(f"--over {one}" for one in value)
    if name == "seeds":
        return f"--seed {value[0]} --seeds {len(value)}"
    if name.startswith(CONTENT):
        return f"another {names.get(name, name)}"
    typed = {"search": f"--search {value}", "budget": f"a budget of {value}"}
    return typed.get(name, "other options of the experiment, or other code of its game or plug-ins")
