"""Compare with other software in one run: `python -m benchmarks` measures everything and writes benchmarks/RESULTS.md.

With --only it measures some sections and writes nothing; with --smoke it takes seconds a section, and fails where a
ratio is more than 30 % below what it was in the smoke run that is kept in benchmarks/ratios.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from benchmarks.peers import DEFAULT, ENVIRONMENTS, ROOT, interpreter
from benchmarks.steadiness import Steadiness
from benchmarks.tables import Form, Table, failing, machine, number

HERE = Path(__file__).parent
RESULTS, RATIOS = HERE / "RESULTS.md", HERE / "ratios.json"
# In this order: what plays with TensorFlow in this process is last, and what starts it first has one thread.
SECTIONS = (
    "game", "populations", "generations", "startup", "scaling", "safety", "ppo", "simulation", "rollout", "bfloat16",
)  # fmt: skip
SMOKE = ("game", "generations", "startup", "rollout")
AGAIN = 2  # times that a section with a bad ratio is measured once more: the machine may have had other work
BUSY = 0.5  # load of other processes above which absolute figures are unreliable


def main() -> int:
    """Measure, print, and write the results; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="short; writes nothing, fails on ratios only")
    parser.add_argument("--keep", action="store_true", help=f"with --smoke: keep the ratios, as {RATIOS.name}")
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="NAME", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--peers", type=Path, default=DEFAULT, metavar="DIR", help="where the peers' environments are")
    parser.add_argument("--run", type=Path, metavar="RUN_DIR", help="also play the last population of this run")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    if load > BUSY and not arguments.smoke:
        print(f"the machine is busy (load {load:.1f}): only the ratios mean something", file=sys.stderr)
    form = Form(arguments.smoke, arguments.peers, arguments.run)
    if arguments.smoke:
        return smoke(arguments.only or SMOKE, form, arguments.keep)
    chosen = arguments.only or SECTIONS
    steadiness = Steadiness()
    tables, broken = measured(chosen, form, steadiness)
    print(steadiness.told(), file=sys.stderr)
    if not arguments.only:
        write(tables, broken, arguments.peers, steadiness)
        subprocess.run([sys.executable, "-m", "benchmarks", "--smoke", "--keep"], cwd=ROOT, stdout=subprocess.DEVNULL)
    return 1 if broken else 0


def measured(
    sections: tuple[str, ...] | list[str], form: Form, steadiness: Steadiness | None = None
) -> tuple[list[Table], dict[str, str]]:
    """Return the tables of sections, printed as they come, and why others have none."""
    tables, broken = [], {}
    for name in sections:
        if steadiness:
            steadiness.look()
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
    if steadiness:
        steadiness.look()
    return tables, broken


def smoke(sections: tuple[str, ...] | list[str], form: Form, keep: bool) -> int:
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
        rounded = {what: float(f"{value:.3g}") for what, value in sorted(ratios.items())}
        RATIOS.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf-8")
    return bad


def write(tables: list[Table], broken: dict[str, str], peers: Path, steadiness: Steadiness) -> None:
    """Write the results, the machine and the versions of everybody."""
    head = [
        "# Results",
        f"Written by `python -m benchmarks`. {machine()}",
        "Other libraries, each in its own environment (`python -m benchmarks.peers`): "
        + "; ".join(_versions(peers))
        + ".",
        "Absolute figures depend on the machine and its other work. Ratios were measured in the same run, with both "
        "sides in alternation. Tables of figures show the target, and for work of a single core also the best round, "
        "because other programs can only slow it down.",
        steadiness.told(),
    ]
    tail = [f"`{name}` could not be measured: {why}\n" for name, why in broken.items()]
    RESULTS.write_text("\n\n".join([*head, *(table.markdown() for table in tables), *tail]), encoding="utf-8")


def _versions(peers: Path) -> list[str]:
    told = []
    for name in ENVIRONMENTS:
        lines = (HERE / "peers" / f"{name}.txt").read_text().splitlines()
        pinned = ", ".join(line.replace("==", " ") for line in lines if line and not line.startswith("#"))
        told.append(f"{name} ({pinned})" if interpreter(peers, name) else f"{name} (not there)")
    return told


if __name__ == "__main__":
    sys.exit(main())
