"""What a GPU gives with the exact kernel: first whether its bits are the CPU's, then frames per second.

    python -m benchmarks.exact_gpu [--only PART ...] [--seconds 480] [--jax PYTHON] [--tiny]

One JSON object a line, printed as soon as it is known: whether every game and kind of network has the CPU's bits, and
runs on CPU and on GPU workers have one state hash; useful frames per second of growing populations next to one core and
all cores; bits of updates; evosax's form in JAX on the same GPU; examples per second of the learner; and what a probe
of `workers.kind = "auto"` says. A part that fails, as where a package is missing, says so, and others go on. The last
line has BITS_EQUAL and UPDATES_EQUAL: true, false, or "in part" where something was left out for time, which it lists;
it is printed when the seconds are over, whatever still runs. `--tiny` is for trying the script with something in place
of a GPU, as with `--tiny --most 1 --only bits`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.gpu import UPDATES, pool
from benchmarks.gpu_bits import NO_TIME, Clock, compared, one_game, one_update, played, updates
from benchmarks.learner import of_case
from benchmarks.peers import ROOT
from benchmarks.rollout import Case, cases, mutated
from benchmarks.tables import machine
from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.cuda.driver import STAND_IN, device_of_process
from evo.errors import EvoError
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins import registry
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Task
from evo.workers import hardware
from evo.workers.placement import CUDA_PLAYER
from evo.workers.pool import Pool

EPISODES = 32
GENERATIONS = {"ga_snake": 20, "cma_snake": 20, "ppo_snake": 3}
POPULATIONS = (512, 3072, 16384, 65536)
TINY = ("environment.starvation=9", "ga.population=8", "ga.parents=2", "ga.elites=1", "ga.episodes=2")
EXACT = ("learner.arithmetic=exact",)
TINY_UPDATES = ("ppo.envs=8", "ppo.horizon=4", "ppo.envs_per_task=8", "ppo.minibatches=2")
RESERVED = 60.0  # seconds for what comes after runs
JAX_MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
LARGEST = 1 << 32  # weights of a population, which takes seconds
LARGEST_FILE = 1 << 31  # weights that JAX reads
TOO_LARGE = "so many weights are too large"
GRACE = 15.0  # seconds after the limit in which what runs may end by itself
PARTS_OF = {"BITS_EQUAL": ("bits", "runs"), "UPDATES_EQUAL": ("updates",)}


def ended(words: Sequence[str], seconds: float) -> tuple[dict[str, Any], str]:
    """Return the summary of a run, which has an "error" where it did not end well, and what it said."""
    there = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "evo.run", *words, "--json"]
    with tempfile.TemporaryDirectory() as place:
        try:
            done = subprocess.run(
                command, cwd=place, env=there, capture_output=True, text=True, check=False, timeout=max(seconds, 1)
            )
        except subprocess.TimeoutExpired:
            return {"error": NO_TIME}, ""
    lines = done.stdout.splitlines()
    summary: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": done.stderr[-500:]}
    return summary, done.stderr


def hashes(clock: Clock, tiny: bool) -> bool:
    """Print the state hashes of runs on CPU and on GPU workers, both at once; return whether all are equal."""
    equal = True
    for name, generations in list(GENERATIONS.items())[: 1 if tiny else None]:
        words = [str(ROOT / "experiments" / f"{name}.toml"), "--set", "test.every=0"]
        words += ["--generations", "2" if tiny else str(generations)]
        words += [word for option in TINY if tiny for word in ("--set", option)]
        learns = ["learner.arithmetic=exact", "learner.device={}"] if name == "ppo_snake" else []

        def on(kind: str, words: list[str] = words, learns: list[str] = learns) -> dict[str, Any]:
            settings = [word for one in ("workers.kind={}", *learns) for word in ("--set", one.format(kind))]
            return ended([*words, *settings], clock.left - RESERVED)[0]

        with ThreadPoolExecutor(2) as both:
            cpu, gpu = both.map(on, ("cpu", "gpu"))
        if error := cpu.get("error") or gpu.get("error"):
            clock.leave_out(name, error)
            equal = equal and error == NO_TIME
            continue
        one_hash = cpu["state_hash"] == gpu["state_hash"]
        seconds = {"cpu": round(cpu["seconds"], 1), "gpu": round(gpu["seconds"], 1)}
        clock.say(run=name, generations=gpu["generations"], one_hash=one_hash, seconds=seconds)
        equal = equal and one_hash
    return equal


def probe(clock: Clock, tiny: bool) -> bool:
    """Print where workers.kind = "auto" plays ga_snake, and what its probe says."""
    words = [str(ROOT / "experiments" / "ga_snake.toml"), "--generations", "1", "--set", "test.every=0"]
    words += [word for option in TINY if tiny for word in ("--set", option)]
    summary, said = ended(words, clock.left)
    lines = [line for line in said.splitlines() if "workers play on" in line]
    if error := summary.get("error"):
        clock.leave_out("ga_snake", error)
    clock.say(auto=lines or "no probe")
    return True


def speed_cases() -> list[Case]:
    """Return mutants of a small network in CartPole, of the two networks of Snake, and of ga_snake's."""
    game: Any = registry.environment_of(registry.find("environments", "cartpole").Options(id="cartpole"))
    small = Network.of(Policy(kind="mlp", dense=[16]), game)
    flagship = Experiment.load(ROOT / "experiments" / "ga_snake.toml")
    window: Any = environment_of(flagship.environment)
    evolved = Case("ga_snake", flagship.network(), window, 0, 0, sigma=0.1)
    return [Case("cartpole", small, game, 0, 0, sigma=0.1), *map(mutated, cases()), evolved]


def tasks(case: Case, candidates: int, published: str) -> list[Task]:
    """Return mutants of one network, as evolution has them, in one task."""
    _, source = case.candidates()
    weights = replace(source(candidates, 0), published=published)
    return [Task(weights, Episodes(episode_keys(0, Purpose.TRAINING, 0, EPISODES)))]


def speed(workers: Pool, tasks: list[Task]) -> tuple[float, float]:
    """Return frames a second, once everything is compiled, and the seconds."""
    workers.map(tasks)
    began = time.perf_counter()
    results = workers.map(tasks).results
    took = time.perf_counter() - began
    return sum(result.frames for result in results) / took, took


def speeds(clock: Clock, case: Case, slot: dict[str, str], tiny: bool) -> None:
    """Print useful frames per second on one core, on all cores, and on the GPU."""
    parents, _ = case.candidates()
    with tempfile.NamedTemporaryFile(suffix=".h5") as file:  # where `pool` looks for it
        with h5py.File(file.name, "w") as published:
            published["weights"] = parents
        name, cores = Path(file.name).name, hardware.cores()
        few = 2 if tiny else max(4, min(512, 1_000_000 // case.network.size))
        with pool(case, [{}], "lanes") as workers:
            core, _ = speed(workers, tasks(case, few, name))
        with pool(case, [{}] * cores, "lanes") as workers:
            every, _ = speed(workers, tasks(case, few, name) * (2 * cores))
        clock.say(case=case.name, weights=case.network.size, core=round(core), cores=cores, all_cores=round(every))
        with pool(case, [slot], "lanes") as workers:
            for candidates in (2,) if tiny else POPULATIONS:
                if not fits(clock, case, candidates, LARGEST):
                    break
                found, took = speed(workers, tasks(case, candidates, name))
                ratios = {"of_core": round(found / core, 1), "of_all_cores": round(found / every, 2)}
                clock.say(
                    case=case.name,
                    candidates=candidates,
                    frames_per_second=round(found),
                    seconds=round(took, 2),
                    **ratios,
                )


def learned_speeds(clock: Clock, tiny: bool) -> bool:
    """Print examples per second of all updates of a generation, on all cores and on the GPU; return equal hashes."""
    equal, cores = True, hardware.cores()
    for name, case in list(UPDATES.items())[: 1 if tiny else None]:
        if not clock.has_time(name):
            break
        learners = {
            "cpu": (*EXACT, f"learner.threads={cores}"),
            "gpu": (*EXACT, f"learner.threads={cores}", "learner.device=gpu"),
        }
        if tiny:
            learners = {kind: (*words, *TINY_UPDATES) for kind, words in learners.items()}
        found = of_case(case, learners, 1 if tiny else 3)
        one_hash = len({*found["hashes"].values()}) == 1
        equal = equal and one_hash
        speeds = {kind: found["examples"] / min(found[kind]) for kind in learners}
        ratio = round(speeds["gpu"] / speeds["cpu"], 2)
        rounded = {kind: round(speed) for kind, speed in speeds.items()}
        clock.say(updates=name, one_hash=one_hash, cores=cores, examples_per_second=rounded, of_all_cores=ratio)
    return equal


def fits(clock: Clock, case: Case, candidates: int, most: int) -> bool:
    """Return whether so many candidates have at most `most` weights, and time; else say that they are left out."""
    what = f"{case.name}, {candidates} candidates"
    if candidates * case.network.size > most:
        clock.leave_out(what, TOO_LARGE)
        return False
    return clock.has_time(what)


def in_jax(clock: Clock, python: str, tiny: bool) -> bool:
    """Print useful frames per second of evosax's form in JAX, of the same mutants of both networks of Snake."""
    for case in speed_cases()[1:3]:
        options = case.network.options.model_dump(include={"conv", "dense", "padding"})
        policy = {**options, "shape": case.network.shape, "outputs": case.network.outputs, "size": case.network.size}
        parents, source = case.candidates()
        for candidates in (2,) if tiny else POPULATIONS:
            if not fits(clock, case, candidates, LARGEST_FILE):
                break
            with tempfile.NamedTemporaryFile(suffix=".npy") as file:
                np.save(file, Rebuilder(case.network).all(parents, source(candidates, 0)))
                file.flush()
                what = {"policy": policy, "weights": file.name, "episodes": EPISODES, **({"turns": 1} if tiny else {})}
                command = [python, "-m", "benchmarks.peers.jax_scan", json.dumps(what)]
                there = {**os.environ, **JAX_MEMORY, "PYTHONPATH": str(ROOT)}
                done = subprocess.run(
                    command, cwd=ROOT, env=there, capture_output=True, text=True, check=False, timeout=clock.left
                )
            if done.returncode:
                clock.leave_out(f"{case.name}, {candidates} candidates", done.stderr.strip().rpartition("\n")[2])
                break
            clock.say(jax=case.name, **json.loads(done.stdout.splitlines()[-1]))
    return True


def speeds_of_all(clock: Clock, tiny: bool) -> bool:
    """Print useful frames per second of every case."""
    slot = {hardware.VISIBLE: os.environ[hardware.VISIBLE], CUDA_PLAYER: "1"}
    for case in speed_cases()[: 1 if tiny else None]:
        if clock.has_time(case.name):
            speeds(clock, case, slot, tiny)
    return True


PARTS: dict[str, Callable[[Clock, argparse.Namespace], bool]] = {  # in the order in which they are made
    "bits": lambda clock, how: compared(clock, one_game, [name for name, _, _ in played()][: how.most]),
    "runs": lambda clock, how: hashes(clock, how.tiny),
    "speed": lambda clock, how: speeds_of_all(clock, how.tiny),
    "updates": lambda clock, how: compared(clock, one_update, list(updates())[: how.most]),
    "jax": lambda clock, how: in_jax(clock, how.jax, how.tiny),
    "learning": lambda clock, how: learned_speeds(clock, how.tiny),
    "auto": lambda clock, how: probe(clock, how.tiny),
}


def summarise(clock: Clock, equal: dict[str, bool]) -> int:
    """Print the last line, and return the exit code: 1 where a part has failed, or a bit differs."""
    told: dict[str, object] = {}
    for name, parts in PARTS_OF.items():
        if asked := [part for part in parts if part in equal]:
            whole = not any(part in clock.left_out for part in asked)
            told[name] = all(equal[part] for part in asked) and (whole or "in part")
    failed = [part for part, fine in equal.items() if not fine]
    clock.say(**told, of=[*equal], left_out=clock.left_out, failed=failed)
    return 1 if failed else 0


def stop(clock: Clock, equal: dict[str, bool]) -> None:
    """End this process where what it calls has not ended in time, as a driver that hangs; summarise before that."""
    clock.leave_out("the rest")
    code = summarise(clock, equal)
    for process in multiprocessing.active_children():
        process.kill()
    os._exit(code)


def out_of_time(*_: object) -> None:
    """Interrupt what runs."""
    raise TimeoutError(NO_TIME)


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exact_gpu", description="A GPU with the exact kernel.")
    parser.add_argument("--seconds", type=float, default=480, help="of all measurements, about (480)")
    parser.add_argument("--tiny", action="store_true", help="a few frames of each, to try the script")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts of all (all)")
    parser.add_argument("--most", type=int, default=100, help="games whose bits are compared (100)")
    parser.add_argument("--jax", default=sys.executable, metavar="PYTHON", help="interpreter that has JAX (this one)")
    arguments = parser.parse_args()
    clock, stand_in = Clock(arguments.seconds), os.environ.get(STAND_IN, "")
    if os.environ[hardware.VISIBLE] == "-1":  # the package says so: others want no GPU
        os.environ[hardware.VISIBLE] = [*hardware.usable(None, hardware.found()), "0"][0]  # or its first instance
    try:
        clock.say(device=device_of_process().name, stand_in=stand_in, machine=machine())
    except EvoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    equal: dict[str, bool] = {}
    late = threading.Timer(max(clock.left, 0) + GRACE, stop, (clock, equal))
    late.daemon = True
    late.start()
    signal.signal(signal.SIGALRM, out_of_time)
    signal.setitimer(signal.ITIMER_REAL, max(clock.left, 1))
    for name in [part for part in PARTS if part in arguments.only]:
        clock.part, equal[name] = name, True
        try:
            if clock.has_time(f"all of {name}"):
                equal[name] = PARTS[name](clock, arguments)
        except (TimeoutError, subprocess.TimeoutExpired):
            clock.leave_out("the rest")
        except Exception as error:  # of whatever kind: other parts are measured
            equal[name] = False
            clock.say(part=name, failed=f"{type(error).__name__}: {error}")
    signal.setitimer(signal.ITIMER_REAL, 0)
    late.cancel()
    return summarise(clock, equal)


if __name__ == "__main__":
    sys.exit(main())
