"""Whether a GPU has the CPU's bits: of every game, kind of layer and kind of update, each in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from evo.algorithms import dqn, ppo, pqn
from evo.cuda.driver import device_of_process
from evo.cuda.rollout import CudaRollout
from evo.environment import Environment
from evo.errors import EvoError
from evo.learning.exact.cuda import CudaLearner
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins import registry
from evo.rollouts.rollout import Rollout
from evo.workers import hardware

LAYERS = [
    *("one_hot 4", "conv 6 3 1", "max_pool 3 2", "norm", "relu", "average_pool 2 1", "tanh", "tree 4", "dense 9"),
    "norm",
]
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
BOARD = {"observation": "frame", "actions": "absolute"}


ENOUGH = 30.0  # seconds without which nothing more is begun
NO_TIME = "no time was left"


class Clock:
    """Seconds since the script began, and the lines that it prints."""

    def __init__(self, seconds: float) -> None:
        self._began, self._seconds = time.monotonic(), seconds
        self.part, self.left_out = "", dict[str, list[str]]()  # what was not done of each part

    @property
    def left(self) -> float:
        return self._seconds - (time.monotonic() - self._began)

    def say(self, **what: Any) -> None:
        print(json.dumps({"at": round(time.monotonic() - self._began, 1), **what}), flush=True)

    def leave_out(self, what: str, why: str = NO_TIME) -> None:
        """Say that something is not done, and why."""
        self.left_out.setdefault(self.part, []).append(what)
        self.say(part=self.part, left_out=what, why=why)

    def has_time(self, what: str) -> bool:
        """Return whether something may be begun; else say that it is left out."""
        if self.left < ENOUGH:
            self.leave_out(what)
        return self.left >= ENOUGH


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
    remembering = Policy(layers=["conv 3 3 2", "gru 9", "norm", "lstm 5"])
    for name, policy in (
        ("all layers", Policy(layers=LAYERS)), ("memory", remembering), ("1.2 million weights", Policy(preset="seed")),
    ):  # fmt: skip
        yield f"snake, {name}", registry.environment_of(snake(id="snake", **BOARD)), policy


def compared(clock: Clock, one: Callable[[str], str], names: Sequence[str]) -> bool:
    """Print whether each of these has the bits of the CPU, and return whether all have; processes share the GPU.

    What has not ended when no time is left, as where the GPU hangs, is left out.
    """
    equal, context, waiting = True, multiprocessing.get_context("spawn"), [*names]
    processes = ProcessPoolExecutor(max(1, min(8, hardware.cores())), context)
    try:
        for done in as_completed([processes.submit(timed, one, name) for name in names], max(clock.left, 1)):
            name, error, took = done.result()
            waiting.remove(name)
            equal = equal and not error
            clock.say(compared=name, bits_equal=not error, error=error, seconds=round(took, 1))
    except TimeoutError:
        for name in waiting:
            clock.leave_out(name)
    finally:
        for process in multiprocessing.active_children():
            process.kill()
        processes.shutdown(cancel_futures=True)
    return equal


def timed(one: Callable[[str], str], name: str) -> tuple[str, str, float]:
    """Return a name, what is wrong with it, and the seconds that the comparison took."""
    began = time.monotonic()
    try:
        error = one(name)
    except Exception as wrong:  # of whatever kind: others are compared
        error = str(wrong) if isinstance(wrong, EvoError) else f"{type(wrong).__name__}: {wrong}"
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
        found[f"DQN, {name}"] = name, dqn.DQNLoss(3, True, 1.0, True), 1
    return found


def one_update(wanted: str) -> str:
    """Compare updates of one network and loss with the CPU's learner."""
    name, loss, outputs = updates()[wanted]
    shape, policy = NETWORKS[name]
    network = Network.build(Policy(**policy), shape, 3, outputs)
    CudaLearner(network, hardware.cores(), loss, 0.5, device_of_process()).warm_up()
    return ""
