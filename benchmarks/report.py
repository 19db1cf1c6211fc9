"""RESULTS.md: a head, and sections that are measured one by one, each with its date, processor and commit."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peers import ENVIRONMENTS, ROOT, interpreter
from benchmarks.steadiness import Steadiness
from benchmarks.tables import Table, processor, versions

MARK = "<!-- section {} -->"
MARKS = re.compile(r"^<!-- section ([a-z0-9_]+) -->\n", re.MULTILINE)


@dataclass
class Measured:
    """What a section found, when, and how steady the machine was."""

    tables: list[Table]
    steadiness: Steadiness
    looks: int  # of `steadiness` before the section
    seconds: float = 0.0
    broken: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def markdown(self, name: str) -> str:
        """Return the section."""
        if self.broken:
            return f"`{name}` could not be measured: {self.broken}\n"
        stamp = (
            f"*Section `{name}`, measured on {self.at:%Y-%m-%d} at {self.at:%H:%M} UTC on {processor()}, {commit()}, "
            f"in {self.seconds:.0f} s. {self.steadiness.told(max(self.looks - 1, 0), self.looks + 1)}*"
        )
        return "\n\n".join([stamp, *(table.markdown() for table in self.tables)])


def head(peers: Path, names: Sequence[str] = ENVIRONMENTS) -> str:
    """Return what comes before the sections: the versions of everybody; peers are those of `names`."""
    return "\n\n".join(
        [
            "# Results",
            "Written by `python -m benchmarks`; with `--only SECTION` a section is measured anew and the others stay. "
            f"{versions()}.",
            "Other libraries, each in its own environment (`python -m benchmarks.peers`): "
            + "; ".join(_versions(peers, names))
            + ".",
            "Absolute figures depend on the machine and its other work. Ratios were measured with all sides in "
            "alternation. Tables of figures show the target, and for work of a single core also the best round, "
            "because other programs can only slow it down. Before and after every section, processes that only count "
            "show how steady the machine was: two of them do twice as much as one where two cores have no other work.",
        ]
    )


def sections(text: str) -> dict[str, str]:
    """Return the sections of RESULTS.md by name."""
    parts = MARKS.split(text)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def same_head(text: str, peers: Path) -> bool:
    """Return whether the sections of a text were measured with these versions.

    A peer that is newer than the text changes none of its sections.
    """
    old = MARKS.split(text)[0].strip()
    return old == head(peers, [name for name in ENVIRONMENTS if re.search(rf"[:;] {name} \(", old)])


def written(old: str, peers: Path, found: dict[str, Measured], order: tuple[str, ...]) -> str:
    """Return RESULTS.md with the sections that were found, and the others as they were."""
    bodies = sections(old)
    for name, measured in found.items():
        if not measured.broken or name not in bodies:
            bodies[name] = measured.markdown(name).strip()
    blocks = [f"{MARK.format(name)}\n\n{bodies[name]}" for name in order if name in bodies]
    return "\n\n".join([head(peers), *blocks]) + "\n"


def commit() -> str:
    """Return the commit that is measured, in words."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "benchmarks/*.py", "evo", "snake")
    except (OSError, subprocess.CalledProcessError):
        return "unknown commit"
    return f"commit {name}" + (" with changes" if changed else "")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _versions(peers: Path, names: Sequence[str]) -> list[str]:
    told = []
    for name in names:
        lines = (ROOT / "benchmarks" / "peers" / f"{name}.txt").read_text().splitlines()
        pinned = ", ".join(line.replace("==", " ") for line in lines if line and not line.startswith("#"))
        told.append(f"{name} ({pinned})" if interpreter(peers, name) else f"{name} (not there)")
    return told
