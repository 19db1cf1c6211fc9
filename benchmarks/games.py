"""How many frames of our games one core plays: with a network, and alone beside Gymnasium and MinAtar.

python -m benchmarks --only games [--peers DIR]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import gymnasium
import numpy as np

from benchmarks.peers import Peer, interpreter, missing
from benchmarks.rollout import fresh
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.games.game import GameEnvironment
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins import registry
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Task
from evo.rollouts.rollout import Rollout

EMPTY = np.empty((0, 0), np.float32)
SMALL = {"catch": 1e6, "cartpole": 1e6, "acrobot": 0.0, "pendulum": 0.0, "swingup": 1e6, "game_2048": 0.0}
MINATAR = ("breakout", "freeway", "asterix", "space_invaders")
MINATAR_FRAMES, MINATAR_TIMES, GYMNASIUM_TIMES = 300_000, 20.0, 20.0  # targets
BOARDS, THEIRS = 1024, 4000  # environments of ours, and steps of MinAtar's in a round
EPISODES, ENVS = 64, 64  # of a candidate, and of Gymnasium's vector
ROUNDS = 5


def made(name: str) -> GameEnvironment:
    """Return a game of ours with its usual options."""
    module = registry.find("environments", name)
    environment: GameEnvironment = module.make(module.Options(id=name))
    return environment


def rollout_of(name: str) -> Rollout:
    """Return what plays a game with a small network."""
    environment, policy = made(name), Policy(kind="mlp", dense=[16])
    if name in MINATAR:
        policy = Policy(conv=[[16, 3, 1]], dense=[32])
    return Rollout(Network.build(policy, environment.shape, environment.actions), environment)


def with_network(name: str, candidates: int, rounds: int, clock: Callable[[], float]) -> list[float]:
    """Return the useful frames a second of fresh networks, in rounds."""
    rollout, seeds, speeds = rollout_of(name), episode_keys(0, Purpose.TRAINING, 0, EPISODES), []
    rollout.play(Task(fresh(1, 0), Episodes(seeds)), EMPTY)  # compiles
    for turn in range(rounds):
        task, frames = Task(fresh(candidates, turn * candidates), Episodes(seeds)), 0

        def work(task: Task = task) -> None:
            nonlocal frames
            frames = rollout.play(task, EMPTY).frames

        took = seconds(work, clock)
        speeds.append(frames / took)
    return speeds


def cartpole_of_gymnasium(steps: int, clock: Callable[[], float]) -> float:
    """Return the frames a second of Gymnasium's CartPole with the same network, in a vector of environments."""
    rollout = rollout_of("cartpole")
    rollout.play(Task(fresh(1, 0), Episodes(np.zeros(1, np.uint64))), EMPTY)  # packs a network
    envs = gymnasium.make_vec("CartPole-v1", ENVS, vectorization_mode="sync")
    seen, _ = envs.reset(seed=1)

    def work() -> None:
        nonlocal seen
        for _ in range(steps):
            seen, *_ = envs.step(rollout.kernel.score(seen).argmax(axis=1))

    return steps * ENVS / seconds(work, clock)


def alone(name: str, steps: int, clock: Callable[[], float]) -> float:
    """Return the steps a second of a game alone, with observations, of random actions on many boards."""
    environment = made(name)
    envs = environment.vector_env(BOARDS, copy=False)
    actions = np.random.default_rng(0).integers(environment.actions, size=(64, BOARDS))
    envs.reset(seed=0)

    def work() -> None:
        for step in range(steps):
            envs.step(actions[step % 64])

    work()
    return steps * BOARDS / seconds(work, clock)


def run(form: Form) -> list[Table]:
    """Return the table of games with networks, and of games alone."""
    rounds = 3 if form.smoke else ROUNDS
    played = Table(
        "Games of one file, one core",
        f"Useful frames per second of freshly initialised small networks (dense [16]; for MinAtar's games conv "
        f"[16, 3, 1], dense [32]), {EPISODES} episodes each; medians over rounds. The reference is Gymnasium's "
        f"CartPole in a SyncVectorEnv of {ENVS}, with the same network in our kernel.",
        ("game", "frames/s", "reference", "ratio"),
    )
    for name in ("cartpole",) if form.smoke else (*SMALL, *MINATAR):
        speeds = with_network(name, 8 if name in MINATAR else 64, rounds, form.clock)
        row = [name, number(median(speeds)), "-", "-"]
        target = MINATAR_FRAMES if name in MINATAR else SMALL[name]
        if target:
            limit = Limit(f"{name}: useful frames/s", median(speeds), target, best=max(speeds))
            played.limits.append(limit)
        if name == "cartpole":
            theirs = [cartpole_of_gymnasium(50 if form.smoke else 500, form.clock) for _ in range(rounds)]
            ratio = median(speeds) / median(theirs)
            row[2:] = [number(median(theirs)), number(ratio)]
            played.limits.append(Limit("times Gymnasium's CartPole", ratio, GYMNASIUM_TIMES, ratio=True))
        played.rows.append(row)
    return [played] if form.smoke else [played, of_minatar(form)]


def of_minatar(form: Form) -> Table:
    """Return the table of MinAtar's games alone, ours and theirs in turns."""
    table = Table(
        "MinAtar's games alone, one core",
        f"Steps per second with observations, of random actions: ours on {BOARDS:,} boards in a VectorEnv that hands "
        "out its own arrays, and MinAtar's one game; medians over rounds.",
        ("game", "ours", "MinAtar", "ratio"),
    )
    python = form.peers and interpreter(form.peers, "minatar")
    if not python:
        table.without(missing("minatar", "MinAtar"))
        return table
    with Peer(python, "minatar_game") as peer:
        for name in MINATAR:
            ask: Callable[[], dict[str, Any]] = partial(peer.ask, game=name, steps=THEIRS)
            pairs = [(alone(name, 300, form.clock), THEIRS / ask()["seconds"]) for _ in range(ROUNDS)]
            ratio = median(ours / theirs for ours, theirs in pairs)
            ours, theirs = (median(side) for side in zip(*pairs, strict=True))
            table.rows.append([name, number(ours), number(theirs), number(ratio)])
            table.limits.append(Limit(f"{name}: times MinAtar", ratio, MINATAR_TIMES, ratio=True))
    return table
