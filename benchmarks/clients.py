"""Runs our games under other libraries, each in its environment: `python -m benchmarks.clients [--peers DIR]`.

The examples are in docs/examples/clients.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.peers import DEFAULT, ROOT, interpreter, missing

EXAMPLES = {
    "sb3_ppo": "torch", "sb3_dqn": "torch", "cleanrl_reinforce": "torch", "gymnasium_wrappers": "torch",
    "evotorch_gymne": "evotorch",
}  # fmt: skip
TIMEOUT = 600.0  # seconds of an example


def main() -> int:
    """Run every example and print what it says; return 1 where one has failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    parser.add_argument("--peers", type=Path, default=DEFAULT, metavar="DIR", help="where the environments are")
    folder, failed = parser.parse_args().peers, False
    for name, environment in EXAMPLES.items():
        python = interpreter(folder, environment)
        if python is None:
            print(missing(environment, name))
            failed = True
            continue
        began = time.monotonic()
        done = subprocess.run(
            [python, ROOT / "docs" / "examples" / "clients" / f"{name}.py"],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        print(f"{name}: {said[-1] if said else 'nothing'} ({time.monotonic() - began:.0f} s)", flush=True)
        failed |= done.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
