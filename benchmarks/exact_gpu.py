"""What a GPU gives with the exact kernel: first whether its bits are the CPU's, then frames per second.

    python -m benchmarks.exact_gpu [--only PART ...] [--seconds 480] [--tiny]

One JSON object a line, printed as soon as it is known: `bits_equal` of every game and kind of network, one state hash
of runs on CPU and on GPU workers, and useful frames per second of growing populations next to one core and all cores;
then `bits_equal` of updates of every kind of network, and examples per second of the learner on both.
`--tiny` is for trying the script with something in place of a GPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py

from benchmarks.gpu import UPDATES, pool
from benchmarks.learner import of_case
from benchmarks.peers import ROOT
from benchmarks.rollout import Case, cases, mutated
from benchmarks.tables import machine
from evo.algorithms import ppo, pqn
from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.cuda.driver import STAND_IN, device_of_process
from evo.cuda.rollout import CudaRollout
from evo.environment import Environment
from evo.errors import EvoError
from evo.learning.exact.cuda import CudaLearner
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins import registry
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Task
from evo.rollouts.rollout import Rollout
from evo.workers import hardware
from evo.workers.placement import CUDA_PLAYER
from evo.workers.pool import Pool

EPISODES = 32
GENERATIONS = {"ga_snake": 20, "cma_snake": 20, "ppo_snake": 3}
POPULATIONS = (512, 3072, 16384, 65536)
LAYERS = [
    "one_hot 4",
    "conv 8 3 1",
    "max_pool 3 2",
    "norm",
    "relu",
    "average_pool 2 1",
    "tanh",
    "tree 4",
    "dense 16",
    "norm",
]
TINY = ("environment.starvation=9", "ga.population=8", "ga.parents=2", "ga.elites=1", "ga.episodes=2")
NETWORKS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {  # that learn: shapes of observations, and policies
    "linear": ((9,), {"kind": "linear"}),
    "dense, normalised, tanh": ((9,), {"kind": "mlp", "dense": [64, 33], "norm": "layer", "activation": "tanh"}),
    "convolutions": ((19, 19, 3), {"conv": [[16, 3, 2], [32, 3, 2]], "dense": [256], "padding": "same"}),
    "convolutions, valid, normalised": (
        (10, 11, 5),
        {"conv": [[40, 4, 1], [7, 3, 2]], "dense": [70], "padding": "valid", "norm": "layer"},
    ),
    "all layers": ((10, 10, 1), {"layers": [line for line in LAYERS if not line.startswith("tree")]}),
    "1.2 million weights": ((10, 10, 1), {"preset": "seed", "embed": "one_hot", "codes": 4}),
}
EXACT = ("learner.arithmetic=exact",)
TINY_UPDATES = ("ppo.envs=8", "ppo.horizon=4", "ppo.envs_per_task=8", "ppo.minibatches=2")
PARTS = ("bits", "updates", "speed", "learning", "runs")
LARGEST = 1 << 32  # weights of a population, which takes seconds
BOARD = {"observation": "frame", "actions": "absolute"}


class Clock:
    """Seconds since the script began, and the lines that it prints."""

    def __init__(self, seconds: float) -> None:
        self._began, self._seconds = time.monotonic(), seconds

    @property
    def left(self) -> float:
        return self._seconds - (time.monotonic() - self._began)

    def say(self, **what: Any) -> None:
        print(json.dumps({"at": round(time.monotonic() - self._began, 1), **what}), flush=True)


def played() -> Iterator[tuple[str, Environment, Policy]]:
    """Yield every game of the catalogue, Snake with every observation, and every kind of layer."""
    small = Policy(kind="mlp", dense=[16])
    for name in registry.names("environments"):
        module = registry.find("environments", name)
        if name not in ("gymnasium", "problem"):
            environment = registry.environment_of(module.Options(id=name))
            if environment.players > 1:  # matches are played on CPUs
                continue
            yield name, environment, small if len(environment.shape) < 3 else Policy(conv=[[8, 3, 1]], norm="layer")
    snake = registry.find("environments", "snake").Options
    for seen in ("planes", "ego", "local", "features"):
        options = snake(id="snake", observation=seen, mask="fatal", starvation=50)
        yield f"snake, {seen}", registry.environment_of(options), Policy(conv=[[8, 3, 1]], activation="tanh")
    for name, policy in (("all layers", Policy(layers=LAYERS)), ("1.2 million weights", Policy(preset="seed"))):
        yield f"snake, {name}", registry.environment_of(snake(id="snake", **BOARD)), policy


def compared(clock: Clock, one: Callable[[str], str], names: Sequence[str]) -> bool:
    """Print whether each of these has the bits of the CPU, and return whether all have; processes share the GPU."""
    equal, context = True, multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, min(8, hardware.cores())), context) as processes:
        for done in as_completed([processes.submit(timed, one, name) for name in names]):
            name, error, took = done.result()
            equal = equal and not error
            clock.say(compared=name, bits_equal=not error, error=error, seconds=round(took, 1))
    return equal


def timed(one: Callable[[str], str], name: str) -> tuple[str, str, float]:
    """Return a name, what is wrong with it, and the seconds that the comparison took."""
    began = time.monotonic()
    try:
        error = one(name)
    except EvoError as wrong:
        error = str(wrong)
    return name, error, time.monotonic() - began


def one_game(wanted: str) -> str:
    """Compare golden episodes and a segment of one game and network with the CPU's kernel."""
    environment, policy = next((place, policy) for name, place, policy in played() if name == wanted)
    network = Network.of(policy, environment)
    CudaRollout(Rollout(network, environment), device_of_process()).check(segments=True)
    return ""


def updates() -> dict[str, tuple[str, Any, int]]:
    """Return the networks, losses and outputs of an action whose updates are compared, by name."""
    found: dict[str, tuple[str, Any, int]] = {f"PPO, {name}": (name, ppo.PPOLoss(3), 1) for name in NETWORKS}
    for name in list(NETWORKS)[:2]:
        found[f"PPO, continuous, {name}"] = name, ppo.PPOLoss(3, is_gaussian=True), 4
        found[f"PQN, {name}"] = name, pqn.PQNLoss(3, True, 1.0), 1
    return found


def one_update(wanted: str) -> str:
    """Compare updates of one network and loss with the CPU's learner."""
    name, loss, outputs = updates()[wanted]
    shape, policy = NETWORKS[name]
    network = Network.build(Policy(**policy), shape, 3, outputs)
    CudaLearner(network, hardware.cores(), loss, 0.5, device_of_process()).warm_up()
    return ""


def hashes(clock: Clock, tiny: bool) -> bool:
    """Print the state hashes of runs on CPU and on GPU workers, and their seconds; return whether all are equal."""
    equal = True
    for name, generations in list(GENERATIONS.items())[: 1 if tiny else None]:
        if clock.left < 60:
            clock.say(run=name, skipped="no time")
            continue
        found = {}
        for kind in ("cpu", "gpu"):
            words = [str(ROOT / "experiments" / f"{name}.toml"), "--set", f"workers.kind={kind}", "--json"]
            words += (
                ["--set", "learner.arithmetic=exact", "--set", f"learner.device={kind}"] if name == "ppo_snake" else []
            )
            words += ["--generations", "2" if tiny else str(generations), "--set", "test.every=0"]
            words += [word for option in TINY for word in ("--set", option)] if tiny else []
            command = [sys.executable, "-m", "evo.run", *words]
            with tempfile.TemporaryDirectory() as place:
                there = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
                done = subprocess.run(command, cwd=place, env=there, capture_output=True, text=True, check=False)
            found[kind] = json.loads(done.stdout.splitlines()[-1])
        seconds = {kind: round(one["seconds"] or 0, 1) for kind, one in found.items()}
        one_hash = None is not found["cpu"]["state_hash"] == found["gpu"]["state_hash"]
        clock.say(run=name, one_hash=one_hash, seconds=seconds, error=found["gpu"]["error"])
        equal = equal and one_hash
    return equal


def speed_cases() -> list[Case]:
    """Return mutants of the two networks of Snake, and CartPole with a small one."""
    game: Any = registry.environment_of(registry.find("environments", "cartpole").Options(id="cartpole"))
    small = Network.of(Policy(kind="mlp", dense=[16]), game)
    flagship = Experiment.load(ROOT / "experiments" / "ga_snake.toml")
    window: Any = environment_of(flagship.environment)
    evolved = Case("ga_snake", flagship.network(), window, 0, 0, sigma=0.1)
    return [*map(mutated, cases()), Case("cartpole", small, game, 0, 0, sigma=0.1), evolved]


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
                if clock.left < 30 or candidates * case.network.size > LARGEST:
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
        if clock.left < 30:
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


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exact_gpu", description="A GPU with the exact kernel.")
    parser.add_argument("--seconds", type=float, default=480, help="of all measurements, about (480)")
    parser.add_argument("--tiny", action="store_true", help="a few frames of each, to try the script")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts of all (all)")
    parser.add_argument("--most", type=int, default=100, help="games whose bits are compared (100)")
    arguments = parser.parse_args()
    clock, stand_in = Clock(arguments.seconds), os.environ.get(STAND_IN, "")
    visible = os.environ.get(hardware.VISIBLE, "0")
    os.environ[hardware.VISIBLE] = "0" if visible == "-1" else visible  # the package says so: others want no GPU
    slot = {hardware.VISIBLE: os.environ[hardware.VISIBLE], CUDA_PLAYER: "1"}
    try:
        device = device_of_process()
        clock.say(device=device.name, stand_in=stand_in, machine=machine())
        equal = True
        if "bits" in arguments.only:
            equal = compared(clock, one_game, [name for name, _, _ in played()][: arguments.most])
            clock.say(BITS_EQUAL=equal)
        if "updates" in arguments.only:
            updates_equal = compared(clock, one_update, list(updates())[: arguments.most])
            clock.say(UPDATES_EQUAL=updates_equal)
            equal = equal and updates_equal
        if "speed" in arguments.only:
            for case in speed_cases()[: 1 if arguments.tiny else None]:
                speeds(clock, case, slot, arguments.tiny)
        if "learning" in arguments.only:
            equal = learned_speeds(clock, arguments.tiny) and equal
        if "runs" in arguments.only:
            equal = hashes(clock, arguments.tiny) and equal
    except EvoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
