"""Compare with other software: `python -m benchmarks` measures everything and writes benchmarks/RESULTS.md.

With --only it measures some sections, and replaces these where the others are of the same versions. What
follows from RESULTS.md is written with it: docs/comparison.md, and benchmarks/ratios.json. With --smoke it takes
seconds a section, writes nothing, and fails where a ratio is more than 30 % below that in ratios.json. That is the
lowest that the short form gave on any machine, so it is below the figure in RESULTS.md; delete the file to begin anew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import comparison, report
from benchmarks.peers import DEFAULT, ROOT
from benchmarks.report import Measured
from benchmarks.steadiness import Steadiness
from benchmarks.tables import Form, Table, failing, number

HERE = Path(__file__).parent
RESULTS, RATIOS, COMPARISON = HERE / "RESULTS.md", HERE / "ratios.json", ROOT / "docs" / "comparison.md"
# In this order: what plays with TensorFlow in this process comes late, and what starts it first has one thread. The
# longest section, in processes of its own, is last.
SECTIONS = (
    "game", "games", "gymnax_games", "seats", "populations", "generations", "startup", "scaling", "safety",
    "simulation", "rollout", "learner", "ppo", "recurrent", "sac", "gymnasium", "bbob", "race",
)  # fmt: skip
SMOKE = ("game", "games", "generations", "startup", "rollout")
AGAIN = 2  # times that a section with a bad ratio is measured once more: the machine may have had other work
BUSY = 0.5  # load of other processes above which absolute figures are unreliable


def main() -> int:
    """Measure, print, and write the results; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="short; writes nothing, fails on ratios only")
    parser.add_argument(
        "--keep", action="store_true", help=f"with --smoke: keep ratios that are lower than in {RATIOS.name}, or new"
    )
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="NAME", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--peers", type=Path, default=DEFAULT, metavar="DIR", help="where the peers' environments are")
    parser.add_argument("--run", type=Path, metavar="RUN_DIR", help="also play the last population of this run")
    parser.add_argument("--print", action="store_true", help="print what is measured, write nothing")
    parser.add_argument("--comparison", action="store_true", help="measure nothing: print the comparison")
    arguments = parser.parse_args()
    if arguments.comparison:
        print(comparison.comparison(RESULTS.read_text(encoding="utf-8")))
        return 0
    load = os.getloadavg()[0]
    if load > BUSY and not arguments.smoke:
        print(f"the machine is busy (load {load:.1f}): only the ratios mean something", file=sys.stderr)
    form = Form(arguments.smoke, arguments.peers, arguments.run)
    if arguments.smoke:
        return smoke(arguments.only or SMOKE, form, arguments.keep)
    chosen, writes = arguments.only or SECTIONS, not arguments.print
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    if not report.same_head(old, arguments.peers):
        old = ""
        if writes and arguments.only:
            print(
                f"{RESULTS.name} is of other versions, so nothing is written; "
                "`python -m benchmarks` measures and writes all sections",
                file=sys.stderr,
            )
            writes = False
    found = measure(chosen, form, old if writes else None)
    code = 1 if any(section.broken for section in found.values()) else 0
    kept = [name for name in chosen if name in SMOKE]
    if writes and kept:
        code |= keep(kept)
    return code


def measure(names: Sequence[str], form: Form, old: str | None) -> dict[str, Measured]:
    """Measure sections and print them; write each at once, in place of that in `old` results; None: write nothing."""
    found: dict[str, Measured] = {}
    steadiness = Steadiness()
    steadiness.look()
    for name in names:
        began, looks = time.perf_counter(), len(steadiness.alone)
        tables, broken = measured([name], form)
        found[name] = Measured(tables, steadiness, looks, time.perf_counter() - began, broken.get(name, ""))
        steadiness.look()
        if old is not None and form.peers:
            RESULTS.write_text(report.written(old, form.peers, found, SECTIONS), encoding="utf-8")
            comparison.write(COMPARISON, RESULTS)
    print(steadiness.told(), file=sys.stderr)
    return found


def keep(names: Sequence[str]) -> int:
    """Measure the smoke form of sections in a process of its own and keep its ratios; return the exit code."""
    only = [word for name in names for word in ("--only", name)]
    command = [sys.executable, "-m", "benchmarks", "--smoke", "--keep", *only]
    code = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode
    if code:
        print(f"{RATIOS.name} is not of this run: its smoke form failed", file=sys.stderr)
    return code


def measured(names: Sequence[str], form: Form) -> tuple[list[Table], dict[str, str]]:
    """Return the tables of sections, printed as they come, and why others have none."""
    tables, broken = [], {}
    for name in names:
        began = time.perf_counter()
        try:
            found = import_module(f"benchmarks.{name}").run(form)
        except Exception as error:  # one that breaks must not take the others with it
            traceback.print_exc()
            broken[name] = f"{type(error).__name__}: {error}"
            continue
        for table in found if isinstance(found, list) else [found]:
            print(table.markdown(), flush=True)
            tables.append(table)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return tables, broken


def smoke(sections: Sequence[str], form: Form, keep: bool) -> int:
    """Measure shortly, again where a ratio is bad, and return 1 where it is so every time, or a section breaks."""
    stored: dict[str, float] = json.loads(RATIOS.read_text()) if RATIOS.exists() and not keep else {}
    ratios: dict[str, float] = {}
    bad = 0
    for name in sections:
        tables, broken = measured([name], form)
        for _ in range(AGAIN):
            if broken or keep or not failing(tables, stored):
                break
            print(f"{name}: once more, for a ratio is bad", file=sys.stderr)
            tables, broken = measured([name], form)
        for limit in failing(tables, stored) if not keep else []:
            was = stored.get(limit.what, limit.target) if not limit.most else limit.target
            print(f"too slow: {limit.what} is {number(limit.value)}, and was {number(was)}", file=sys.stderr)
            bad = 1
        bad = 1 if broken else bad
        ratios |= {x.what: x.value for table in tables for x in table.limits if x.ratio and not x.most}
    if keep and not bad:
        before: dict[str, float] = json.loads(RATIOS.read_text()) if RATIOS.exists() else {}
        lowest = {what: min(value, before.get(what, value)) for what, value in ratios.items()}
        others = before if set(sections) != set(SMOKE) else {}
        rounded = {what: float(f"{value:.3g}") for what, value in sorted((others | lowest).items())}
        RATIOS.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf-8")
    return bad


if __name__ == "__main__":
    sys.exit(main())
