"""What `evo plan` says beside what then happens, for every experiment here: `python -m benchmarks.plans`.

An experiment with a budget of some seconds is planned, and then trained for as many frames as the plan says these take,
or to its end. Both are given as frames per second of training. A line an experiment is kept in a file, so the command
goes on where it was stopped. Experiments of libraries that are missing are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
EXPERIMENTS = ROOT / "experiments"
WITHIN = 0.25
SECONDS = 15.0  # of training


def called(*words: str) -> dict[str, Any] | None:
    """Return the last line of a command, as JSON; None where it failed."""
    process = subprocess.run([sys.executable, "-m", *words, "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        return None
    found: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return found


def measured(file: str) -> dict[str, float] | None:
    """Return what was planned and what happened, by name; None where an experiment cannot be run here."""
    plan = called("evo", "plan", file, "--set", f"run.budget={{seconds={SECONDS}}}")
    if plan is None:
        return None
    frames = max(1, math.ceil(plan["goals"][0]["frames"]))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = (file, "--set", f"run.budget={{frames={frames}}}", "--generations", "1000000", "--run-dir", str(run))
        summary = called("evo.run", *words, "--quiet", "--no-report")
    if summary is None:
        return None
    return {"planned": plan["frames_per_second"], "happened": summary["frames"] / summary["seconds"]}


def experiments() -> Iterator[str]:
    """Yield every experiment file, from the root."""
    for path in sorted(EXPERIMENTS.rglob("*.toml")):
        if "comparisons" not in path.parts:
            yield str(path.relative_to(ROOT))


def main() -> int:
    """Measure what is missing, print a table, and return 1 where a plan is off by more than a quarter."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plans", description=__doc__)
    parser.add_argument("--file", type=Path, default=Path(tempfile.gettempdir()) / "evo-plans.jsonl")
    kept: Path = parser.parse_args().file
    found = {line["file"]: line for line in map(json.loads, kept.read_text().splitlines())} if kept.exists() else {}
    for file in experiments():
        if file in found:
            continue
        figures = measured(file)
        if figures is None:
            print(f"{file}: cannot be run here", file=sys.stderr)
            continue
        found[file] = {"file": file, **figures}
        with kept.open("a") as lines:
            lines.write(json.dumps(found[file]) + "\n")
        print(f"{file}: {figures['planned'] / figures['happened']:.2f}", file=sys.stderr, flush=True)
    if not found:
        raise SystemExit("no experiment can be run here")
    ratios = {file: line["planned"] / line["happened"] for file, line in found.items()}
    print("| experiment | planned frames/s | frames/s | ratio |\n|---|--:|--:|--:|")
    for file, line in found.items():
        print(f"| {file} | {line['planned']:,.0f} | {line['happened']:,.0f} | {ratios[file]:.2f} |")
    off = [file for file, ratio in ratios.items() if abs(ratio - 1) > WITHIN]
    print(f"\n{len(ratios) - len(off)} of {len(ratios)} within {WITHIN:.0%}; median {median(ratios.values()):.2f}")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
