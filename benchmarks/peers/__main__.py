"""Make the environments of the peers: `python -m benchmarks.peers DIR`, by default .peers; needs a package index."""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.peers import DEFAULT, ENVIRONMENTS, INSTALLED

CPU_ONLY = 'torch comes with libraries for GPUs unless your index has a build for CPUs ("+cpu") of the same version'


def main() -> int:
    """Make what is not there; return 1 where an environment could not be made, and say which."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__, epilog=CPU_ONLY)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT, metavar="DIR")
    parser.add_argument("--only", action="append", choices=ENVIRONMENTS, help="just this one; may be repeated")
    arguments = parser.parse_args()
    failed = []
    for name in arguments.only or ENVIRONMENTS:
        if not made(arguments.folder, name):
            failed.append(name)
    for name in failed:
        print(f"{name}: could not be made; benchmarks leave it out and say so", file=sys.stderr)
    return 1 if failed else 0


def made(folder: Path, name: str) -> bool:
    """Return whether an environment is there, after an attempt to make it."""
    requirements = Path(__file__).with_name(f"{name}.txt")
    done, wanted = folder / name / INSTALLED, requirements.read_text()
    if done.exists() and done.read_text() == wanted:
        print(f"{name}: is there")
        return True
    print(f"{name}: installing", flush=True)
    done.unlink(missing_ok=True)
    venv.create(folder / name, with_pip=True, symlinks=True)
    python = folder / name / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)]
    if subprocess.run(install).returncode:
        return False
    done.write_text(wanted)
    return True


if __name__ == "__main__":
    sys.exit(main())
