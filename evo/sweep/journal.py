"""What a sweep has decided, in a file of its directory that is written after every decision and never taken back.

Scores of a stage must be kept, since the runs go on and their champions change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evo.errors import ConfigurationError, DataError
from evo.files.durable import read_file, replace_file, resources, sync_directory
from evo.sweep.race import Standing

FILE = "sweep.json"
LARGEST = 1 << 28


class Journal:
    """The decisions of a sweep."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        """Read what is there; ConfigurationError: it is of a sweep with other settings. DataError: it is damaged."""
        self._path, self._settings = directory / FILE, json.loads(json.dumps(settings))
        self._stages: dict[str, dict[str, Any]] = {}  # by name and number
        if not self._path.exists():
            return
        try:
            found = json.loads(read_file(self._path, most=LARGEST))
            known, self._stages = found["settings"], dict(found["stages"])
            [Standing(**one) for stage in self._stages.values() for one in stage.values()]
            changed = [_said(name, known) for name in self._settings if known.get(name) != self._settings[name]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"{self._path}: is damaged; move it away to race the trials again") from error
        if changed:
            what = " and ".join(changed)
            raise ConfigurationError(f"{directory}: is a sweep with {what}; choose another --directory")

    def stage(self, name: str) -> list[Standing] | None:
        """Return what was decided in a stage; None where it has not ended."""
        found = self._stages.get(name)
        if found is None:
            return None
        return [Standing(one["name"], tuple(one["scores"]), one["stopped"]) for one in found.values()]

    def decide(self, name: str, standings: Sequence[Standing]) -> None:
        """Keep how a stage has ended, durably; ResourceError where that cannot be written."""
        self._stages[name] = {one.name: {**vars(one), "scores": list(one.scores)} for one in standings}
        self.begin()

    def begin(self) -> None:
        """Write the file, so that no other sweep takes the directory; ResourceError where that is not possible."""
        data = json.dumps({"settings": self._settings, "stages": self._stages}, indent=1).encode()
        with resources("write", self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, data + b"\n")
            sync_directory(self._path.parent)


def _said(name: str, known: Mapping[str, Any]) -> str:
    """Return what a sweep has in one of its settings, as it is typed where it is."""
    value = known[name]
    if name == "over":
        return " ".join(f"--over {one}" for one in value)
    if name == "seeds":
        return f"--seed {value[0]} --seeds {len(value)}"
    said = {"search": f"--search {value}", "budget": f"a budget of {value}"}
    return said.get(name, "other options of the experiment")
