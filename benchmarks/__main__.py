"""Run every benchmark; `python -m benchmarks` also writes benchmarks/RESULTS.md, `--smoke` only fails on bad ratios."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks import game, rollout, safety, scaling, startup
from benchmarks.tables import machine, show

RESULTS = Path(__file__).parent / "RESULTS.md"
BUSY = 0.5  # processes that want to run, besides ours, from which on figures mean little


def main() -> int:
    """Measure, print, and write the results; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ours beside the usual way, as ratios.")
    parser.add_argument("--smoke", action="store_true", help="under a minute; writes nothing, fails on ratios only")
    parser.add_argument("--run", type=Path, metavar="RUN_DIR", help="also play the last population of this run")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    if load > BUSY and not arguments.smoke:
        print(f"the machine is busy (load {load:.1f}): only the ratios mean something", file=sys.stderr)
    tables = [part.run(arguments.smoke) for part in (game, startup, scaling, safety)]
    tables.insert(0, rollout.run(arguments.smoke, arguments.run))
    codes = [show(table, arguments.smoke) for table in tables]
    if not arguments.smoke:
        head = [
            "# Results",
            f"Written by `python -m benchmarks`. {machine()}",
            "Absolute figures are those of that machine at that moment; ratios were measured in the same run, both "
            "sides in turns.",
        ]
        RESULTS.write_text("\n\n".join([*head, *(table.markdown() for table in tables)]), encoding="utf-8")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
