"""What a GPU gives with the exact kernel: first whether its bits are the CPU's, then frames per second.

    python -m benchmarks.exact_gpu [--only player | learner] [--seconds 480] [--tiny]

One JSON object a line, printed as soon as it is known: `bits_equal` of every game and kind of network, one state hash
of runs on CPU and on GPU workers, and useful frames per second of growing populations next to one core and all cores;
then `bits_equal` of updates of every kind of network, and examples per second of the learner on both.
`--tiny` is for trying the script with something in place of a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py

from benchmarks.gpu import UPDATES, pool, speed
from benchmarks.learner import of_case
from benchmarks.peers import ROOT
from benchmarks.rollout import Case, cases, mutated
from benchmarks.tables import machine
from evo.algorithms import ppo, pqn
from evo.cuda.driver import STAND_IN, device_of_process
from evo.cuda.launch import Device
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

EPISODES = 32
GENERATIONS = {"ga_snake": 20, "cma_snake": 20, "ppo_snake": 3}
POPULATIONS = (512, 4096, 16384, 65536)
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
            yield name, environment, small if len(environment.shape) < 3 else Policy(conv=[[8, 3, 1]], norm="layer")
    snake = registry.find("environments", "snake").Options
    for seen in ("planes", "ego", "local", "features"):
        options = snake(id="snake", observation=seen, mask="fatal", starvation=50)
        yield f"snake, {seen}", registry.environment_of(options), Policy(conv=[[8, 3, 1]], activation="tanh")
    for name, policy in (("all layers", Policy(layers=LAYERS)), ("1.2 million weights", Policy(preset="seed"))):
        yield f"snake, {name}", registry.environment_of(snake(id="snake", **BOARD)), policy


def bits(clock: Clock, device: Device, most: int) -> bool:
    """Print whether golden episodes and a segment have the bits of the CPU's kernel; return whether all do."""
    equal = True
    for name, environment, policy in list(played())[:most]:
        began, error = time.monotonic(), ""
        try:
            network = Network.of(policy, environment)
            CudaRollout(Rollout(network, environment), device).check(segments=True)
        except EvoError as wrong:
            equal, error = False, str(wrong)
        clock.say(game=name, bits_equal=not error, error=error, seconds=round(time.monotonic() - began, 1))
    return equal


def hashes(clock: Clock, tiny: bool) -> None:
    """Print the state hashes of runs on CPU and on GPU workers, and their seconds."""
    for name, generations in list(GENERATIONS.items())[: 1 if tiny else None]:
        if clock.left < 60:
            clock.say(run=name, skipped="no time")
            continue
        found = {}
        for kind in ("cpu", "gpu"):
            words = [str(ROOT / "experiments" / f"{name}.toml"), "--set", f"workers.kind={kind}", "--json"]
            words += ["--set", "learner.arithmetic=exact"] if name == "ppo_snake" else []
            words += ["--generations", "2" if tiny else str(generations), "--set", "test.every=0"]
            words += [word for option in TINY for word in ("--set", option)] if tiny else []
            command = [sys.executable, "-m", "evo.run", *words]
            with tempfile.TemporaryDirectory() as place:
                there = {**os.environ, "PYTHONPATH": str(ROOT)}
                done = subprocess.run(command, cwd=place, env=there, capture_output=True, text=True, check=False)
            found[kind] = json.loads(done.stdout.splitlines()[-1])
        seconds = {kind: round(one["seconds"] or 0, 1) for kind, one in found.items()}
        one_hash = found["cpu"]["state_hash"] == found["gpu"]["state_hash"]
        clock.say(run=name, one_hash=one_hash, seconds=seconds, error=found["gpu"]["error"])


def tasks(case: Case, candidates: int, published: str) -> list[Task]:
    """Return mutants of one network, as evolution has them, in one task."""
    _, source = case.candidates()
    weights = replace(source(candidates, 0), published=published)
    return [Task(weights, Episodes(episode_keys(0, Purpose.TRAINING, 0, EPISODES)))]


def speeds(clock: Clock, case: Case, slot: dict[str, str], tiny: bool) -> None:
    """Print useful frames per second on one core, on all cores, and on the GPU."""
    parents, _ = case.candidates()
    with tempfile.NamedTemporaryFile(suffix=".h5") as file:  # where `pool` looks for it
        with h5py.File(file.name, "w") as published:
            published["weights"] = parents
        name, few, cores = Path(file.name).name, 2 if tiny else 32, hardware.cores()
        with pool(case, [{}], "lanes") as workers:
            core = speed(workers, tasks(case, few, name))
        with pool(case, [{}] * cores, "lanes") as workers:
            every = speed(workers, tasks(case, few, name) * (2 * cores))
        clock.say(case=case.name, weights=case.network.size, core=round(core), cores=cores, all_cores=round(every))
        with pool(case, [slot], "lanes") as workers:
            for candidates in (2,) if tiny else POPULATIONS:
                if clock.left < 30 or candidates * case.network.size > LARGEST:
                    break
                found = speed(workers, tasks(case, candidates, name))
                ratios = {"of_core": round(found / core, 1), "of_all_cores": round(found / every, 2)}
                clock.say(case=case.name, candidates=candidates, frames_per_second=round(found), **ratios)


def learned_bits(clock: Clock, device: Device, most: int) -> bool:
    """Print whether updates have the bits of the CPU's learner, for every kind of network and loss; return it."""
    equal = True
    for number, (name, (shape, policy)) in enumerate(list(NETWORKS.items())[:most]):
        losses: list[Any] = [ppo.PPOLoss(3)]
        if number < 2:
            losses += [ppo.PPOLoss(3, is_gaussian=True), pqn.PQNLoss(3, True, 1.0)]
        for loss in losses:
            began, error = time.monotonic(), ""
            outputs = 4 if getattr(loss, "is_gaussian", False) else 1
            network = Network.build(Policy(**policy), shape, 3, outputs)
            try:
                CudaLearner(network, hardware.cores(), loss, 0.5, device).warm_up()
            except EvoError as wrong:
                equal, error = False, str(wrong)
            taken, kind = round(time.monotonic() - began, 1), type(loss).__name__
            clock.say(updates=name, loss=kind, outputs=outputs, bits_equal=not error, error=error, seconds=taken)
    return equal


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
        found = of_case(case, learners, 1 if tiny else 5)
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
    parser.add_argument("--most", type=int, default=100, help="games whose bits are compared (100)")
    parser.add_argument("--only", choices=("player", "learner"), default="", help="what is measured (both)")
    arguments = parser.parse_args()
    clock, stand_in = Clock(arguments.seconds), os.environ.get(STAND_IN, "")
    visible = os.environ.get(hardware.VISIBLE, "0")
    os.environ[hardware.VISIBLE] = "0" if visible == "-1" else visible  # the package says so: others want no GPU
    slot = {hardware.VISIBLE: os.environ[hardware.VISIBLE], CUDA_PLAYER: "1"}
    try:
        device = device_of_process()
        clock.say(device=device.name, stand_in=stand_in, machine=machine())
        equal = True
        if arguments.only != "learner":
            equal = bits(clock, device, arguments.most)
            clock.say(BITS_EQUAL=equal)
            for case in map(mutated, cases()[: 1 if arguments.tiny else None]):
                speeds(clock, case, slot, arguments.tiny)
            hashes(clock, arguments.tiny)
        if arguments.only != "player":
            updates_equal = learned_bits(clock, device, arguments.most)
            updates_equal = learned_speeds(clock, arguments.tiny) and updates_equal
            clock.say(UPDATES_EQUAL=updates_equal)
            equal = equal and updates_equal
    except EvoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
