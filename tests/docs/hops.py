"""The files between the training loop and a game's step, by a trace: `python -m tests.docs.hops` prints the table.

Python's frames are read where a kernel is asked to play; compiled functions have none, so theirs are named here.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.evaluators.serial import Serial
from evo.games import contract, step
from evo.rollouts import rollout, segments
from evo.run import generations, train

ROOT = Path(__file__).parents[2]
WAYS = {
    "GA": (
        "ga_snake",
        ("ga.population=4", "ga.parents=2", "ga.elites=1", "ga.episodes=1"),
        (rollout.play_episodes, rollout.step_episode),
    ),
    "PPO": ("ppo_snake", ("ppo.envs=32", "ppo.horizon=4"), (segments.play_envs, segments.step_env)),
}
WHAT = {
    "evo/run.py": "the loop: generations, commits, rows",
    "evo/training/generation.py": "publishes weights, gives tasks to the evaluator, sends results to the algorithm",
    "evo/evaluators/serial.py": "plays tasks here (with workers: `evo/workers/pool.py` and `worker.py`)",
    "evo/rollouts/rollout.py": "rebuilds each candidate's weights, and has its kernel play them",
    "evo/rollouts/segments.py": "compiled: forward pass, choice of action, for a fixed number of steps",
    "evo/games/step.py": "compiled: records and plays a step, ends episodes",
    "evo/games/contract.py": "compiled: counts steps and rounds rewards, around the author's function",
    "evo/games/catalogue/snake/rules.py": "the game",
}
LOOP, SERIAL = generations.__code__, Serial._play.__code__
FEW_EPISODES = "validation.episodes=8", "test.episodes=8"
ASKED = {rollout.LanesKernel.play_episodes.__code__, segments.play_segment.__code__}


@contextmanager
def profiled(enter: Callable[[FrameType, str, Any], object]) -> Iterator[None]:
    """Have every call of a function seen, in all threads."""
    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def entered(file: str) -> set[str]:
    """Return the files that an experiment's third generation of four enters, without what a cold cache adds."""
    found = set[str]()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{ROOT}/evo/"):
            found.add(frame.f_code.co_filename[len(str(ROOT)) + 1 :])

    place = ROOT / "experiments" / f"{file}.toml"
    experiment = Experiment.load(place, *FEW_EPISODES, backend="serial", generations=4)
    with tempfile.TemporaryDirectory() as folder:
        rows = train(experiment, Path(folder) / "run")
        next(rows)
        next(rows)  # which writes the champion of the first one
        with profiled(enter):
            next(rows)
        rows.close()  # type: ignore[attr-defined]
    return found - {"evo/compiled/cache.py"}


def frames(frame: FrameType | None) -> list[CodeType]:
    """Return the functions of the project that lead to a frame, the outermost first."""
    found = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(f"{ROOT}/evo/"):
            found.append(frame.f_code)
        frame = frame.f_back
    return found[::-1]


def traced(file: str, changes: tuple[str, ...]) -> list[CodeType]:
    """Return the functions from the loop to the kernel, as the first generation of an experiment enters them."""
    ways: dict[CodeType, list[CodeType]] = {}

    def enter(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and (code is SERIAL or code in ASKED):
            ways.setdefault(SERIAL if code is SERIAL else LOOP, frames(frame))

    changes = (*changes, *FEW_EPISODES)
    experiment = Experiment.load(ROOT / "experiments" / f"{file}.toml", *changes, backend="serial", generations=1)
    with tempfile.TemporaryDirectory() as folder:
        rows = train(experiment, Path(folder) / "run")
        with profiled(enter):
            next(rows)
        rows.close()  # type: ignore[attr-defined]
    return ways[SERIAL][ways[SERIAL].index(LOOP) :] + ways[LOOP]


def compiled(file: str, kernels: Any) -> Iterator[CodeType]:
    """Yield the compiled functions from the kernel to the author's step."""
    environment: Any = environment_of(Experiment.load(ROOT / "experiments" / f"{file}.toml").environment)
    for function in (*kernels, step.play, contract.step):
        yield function.py_func.__code__
    yield environment.definition.step.__code__


@cache
def hops(way: str) -> dict[str, str]:
    """Return the files in order, each with the functions of it that are entered."""
    file, changes, kernels = WAYS[way]
    found: dict[str, list[str]] = {}
    for code in (*traced(file, changes), *compiled(file, kernels)):
        name = f"`{code.co_qualname}`"
        names = found.setdefault(code.co_filename[len(str(ROOT)) + 1 :], [])
        if name not in names and code.co_name != "<listcomp>":
            names.append(name)
    return {place: ", ".join(names) for place, names in found.items()}


def table() -> list[str]:
    """Return the table of the design page."""
    ga, ppo = hops("GA"), hops("PPO")
    lines = ["| file | functions of the GA | of PPO | what it does |", "|---|---|---|---|"]
    for place in sorted({**ga, **ppo}, key=list(WHAT).index):
        lines.append(f"| `{place}` | {ga.get(place, '')} | {ppo.get(place, '')} | {WHAT[place]} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
