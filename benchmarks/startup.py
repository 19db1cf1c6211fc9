"""Start-up time of help, the first line and the first generation, compared with importing TensorFlow.

    python -m benchmarks --only startup

The first generation is that of an experiment as it is shipped, with compiled kernels in the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.tables import Form, Limit, Table, number, seconds

ROOT = Path(__file__).parent.parent
EXPERIMENT = ROOT / "experiments" / "ga_snake.toml"
PYTHON = sys.executable


# What a process that forks workers does before the first of them; processor time, for other work may be going on.
PREPARE = """
import sys, time
from pathlib import Path
from evo.config.experiment import Experiment
from evo.player import RunSpec, prepare
from numba.core import event
experiment = Experiment.load(Path(sys.argv[1]))
spec = RunSpec(Path("."), experiment.environment, experiment.policy)
import evo.rollouts.rollout
with event.install_recorder("numba:compile") as compiled:
    began = time.process_time()
    prepare(spec)
print(time.process_time() - began, sum(1 for _, one in compiled.buffer if one.is_end))
"""


def kernels(cache: str, experiment: Path = EXPERIMENT) -> tuple[float, int]:
    """Return the processor seconds to have what plays an experiment, from this cache, and how many were compiled."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    command = [PYTHON, "-c", PREPARE, os.fspath(experiment)]
    child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    took, compiled = child.stdout.split()
    return float(took), int(compiled)


def finishes(arguments: Sequence[str]) -> float:
    """Return how long a command takes that must succeed."""
    command = [PYTHON, *arguments]
    return seconds(lambda: subprocess.run(command, cwd=ROOT, capture_output=True, check=True))


def appears(arguments: Sequence[str], wanted: Sequence[Callable[[str], bool]]) -> list[float]:
    """Start a command with its output in a pipe; return the seconds to the first line that is wanted, for each."""
    began = time.perf_counter()
    found: list[float] = []
    with subprocess.Popen(
        [PYTHON, "-u", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line)
            while len(found) < len(wanted) and wanted[len(found)](line):
                found.append(time.perf_counter() - began)
            if len(found) == len(wanted):
                child.terminate()
                break
        child.stdout.read()
    if len(found) < len(wanted):
        raise RuntimeError("a line that was waited for never came:\n" + "".join(lines))
    return found


def is_generation(line: str) -> bool:
    """Return whether a plain line tells of a finished generation."""
    words = line.split()
    return bool(words) and words[0] == "generation"


def run(form: Form) -> Table:
    """Return the table."""
    smoke = form.smoke
    rounds = 2 if smoke else 5
    programs = {f"`python -m {program} --help`": ["-m", program, "--help"] for program in ("evo", "evo.run")}
    helps: dict[str, list[float]] = {what: [] for what in programs}
    imports = []
    for _ in range(rounds):
        imports.append(finishes(["-c", "import tensorflow"]))
        for what, arguments in programs.items():
            helps[what].append(finishes(arguments))
    tensorflow = median(imports)
    table = Table(
        "Start-up time",
        "Seconds, medians over new processes, in turns. The reference is the import of TensorFlow alone, which every "
        "program that plays its networks with TensorFlow has to wait for.",
        ("what", "ours, s", "`import tensorflow`, s", "ratio"),
    )

    def add(what: str, rounds: Sequence[float], target: float, ratio: bool = False) -> None:
        took = median(rounds)
        table.rows.append([what, number(took), number(tensorflow), f"{took / tensorflow:.2f}"])
        table.limits.append(Limit(f"{what}, s", took, target, most=True, best=min(rounds)))
        if ratio:
            table.limits.append(Limit(f"{what}, of TensorFlow's import", took / tensorflow, 0.5, most=True, ratio=True))

    for what, found in helps.items():
        add(what, found, 0.5, ratio=True)
    if EXPERIMENT.exists() and not smoke:
        firsts, generations = [], []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as directory:
                arguments = ["-m", "evo.run", os.fspath(EXPERIMENT), "--run-dir", os.path.join(directory, "run")]
                first, generation = appears(arguments, (lambda line: bool(line.strip()), is_generation))
            firsts.append(first)
            generations.append(generation)
        add("first line of a run", firsts, 1.0)
        add("first generation of a run", generations, 10.0)
        with tempfile.TemporaryDirectory() as cache:
            compiled = [kernels(os.path.join(cache, str(again)))[0] for again in range(3)]
            add("compiling the kernels, CPU time", compiled, 10.0)
            cache = os.path.join(cache, "0")
            loaded = [kernels(cache) for _ in range(7)]
        if any(again for _, again in loaded):
            raise RuntimeError("compiled kernels were not found again")
        add("loading the kernels, CPU time", [took for took, _ in loaded], 0.3)
    return table
