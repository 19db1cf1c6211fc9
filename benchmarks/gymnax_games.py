"""How many steps of our games one core plays without a network, compared with the same games of gymnax.

    python -m benchmarks --only gymnax_games [--peers DIR]

Both sides play random actions that were drawn beforehand, write the observation of every environment at every step as
float32, go on with a new episode where one ends, and sum rewards and ends. MinAtar's games of gymnax have no sticky
actions, so ours play without. gymnax computes the classic games in float32; ours do in float64, with the same bits on
every machine. Each side plays the number of environments that is fastest for it. gymnax plays all steps in one call
that XLA has compiled; ours are stepped from Python in a VectorEnv, whose steps that only begin an episode do not count.
Compiling counts for neither. Times are processor times, which other programs disturb less. Without the peer's
environment nothing is measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Peer, interpreter, missing
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.plugins import registry

LEAST = 1.0  # times gymnax's steps
ROUNDS = 5
LENGTHS = 0.15  # share by which mean lengths of episodes may differ
ACTIONS = 64  # steps after which the actions repeat


@dataclass
class Versus:
    """A game of both sides, with the options of ours; rounds of steps/s: ours, gymnax's `step`, and with a pool."""

    name: str
    theirs: str
    options: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (1024, 4096)
    frames: int = 1 << 20  # of a round, of all environments
    rounds: list[tuple[float, float, float]] = field(default_factory=list)
    mine: int = 0  # the number of environments that is fastest
    others: int = 0

    def ours(self, size: int) -> tuple[float, float]:
        """Return the steps a second of ours, and the mean length of episodes (0: none ended)."""
        module = registry.find("environments", self.name)
        environment = module.make(module.Options(id=self.name, **self.options))
        envs, draw = environment.vector_env(size, copy=False), np.random.default_rng(0)
        actions: NDArray[Any] = draw.integers(environment.actions, size=(ACTIONS, size))
        if environment.continuous:
            actions = draw.uniform(-1.0, 1.0, (ACTIONS, size, environment.actions))
        envs.reset(seed=0)
        envs.step(actions[0])  # compiles
        rewards, ends, steps = 0.0, 0, self.frames // size

        def work() -> None:
            nonlocal rewards, ends
            for step in range(steps):
                _, reward, terminated, truncated, _ = envs.step(actions[step % ACTIONS])
                rewards += float(reward.sum())
                ends += int(np.count_nonzero(terminated | truncated))

        took = seconds(work, time.process_time)
        played = steps * size - ends  # the step after an end begins an episode, and plays nothing
        return played / took, played / ends if ends else 0.0

    def asked(self, peer: Peer, size: int, resets: str) -> tuple[float, float]:
        """Return the steps a second of gymnax, and the mean length; RuntimeError where it has not played the same."""
        steps = self.frames // size
        told = peer.ask(game=self.theirs, environments=size, steps=steps, resets=resets)
        if told["shape"][0] != size or told["dtype"] != "float32" or not told["rewards"]:
            raise RuntimeError(f"gymnax has not played {self.theirs}: {told}")
        return steps * size / told["seconds"], steps * size / told["ends"] if told["ends"] else 0.0

    def prepare(self, peer: Peer) -> None:
        """Choose numbers of environments, and compile; RuntimeError where the games are not the same."""
        mine = {size: self.ours(size) for size in self.sizes}
        others = {size: self.asked(peer, size, "step") for size in self.sizes}
        self.mine = max(mine, key=lambda size: mine[size][0])
        self.others = max(others, key=lambda size: others[size][0])
        _, length = self.ours(self.others)
        for _, told in (others[self.others], self.asked(peer, self.others, "pool")):
            if length and told and abs(told / length - 1) > LENGTHS:
                raise RuntimeError(f"{self.theirs}: episodes of {told:.1f} steps, where ours have {length:.1f}")

    def take_turn(self, peer: Peer) -> None:
        """Play a round of all."""
        ours = self.ours(self.mine)[0]
        step, pool = (self.asked(peer, self.others, resets)[0] for resets in ("step", "pool"))
        self.rounds.append((ours, step, pool))


def versus() -> list[Versus]:
    """Return every game that both have."""
    plain: dict[str, Any] = {"sticky": 0.0, "max_steps": 1000}
    minatar = (256, 1024)
    return [
        Versus("catch", "Catch-bsuite"),
        Versus("cartpole", "CartPole-v1"),
        Versus("acrobot", "Acrobot-v1"),
        Versus("pendulum", "Pendulum-v1"),
        Versus("breakout", "Breakout-MinAtar", plain, minatar),
        Versus("freeway", "Freeway-MinAtar", plain | {"max_steps": 2500}, minatar),
        Versus("asterix", "Asterix-MinAtar", plain, minatar),
        Versus("space_invaders", "SpaceInvaders-MinAtar", plain, minatar),
    ]


def run(form: Form) -> Table:
    """Return the table of games alone, ours and gymnax's in turns."""
    table = Table(
        "Games alone, compared with gymnax, one core",
        "Steps per second of processor time with observations, of random actions; medians over rounds that alternate "
        "all sides. *Envs* is the number of environments that was the fastest of two: of ours, and of gymnax. Ours are "
        "stepped from Python in a VectorEnv that hands out its own arrays; gymnax plays a scan of its vectorised "
        "`step`, compiled by XLA. *Pooled*: the same rules, where games that end go on from some that were made "
        "beforehand, instead of a new game for every environment at every step. Classic games are in float64 in ours "
        "and in float32 in gymnax; MinAtar's are without sticky actions.",
        ("game", "ours", "envs", "gymnax", "envs of gymnax", "ratio", "pooled", "ratio to pooled"),
    )
    python = form.peers and interpreter(form.peers, "gymnax")
    if not python:
        table.without(missing("gymnax", "gymnax"))
        return table
    for game in versus():
        with Peer(python, "gymnax_game") as peer:
            game.prepare(peer)
            for _ in range(1 if form.smoke else ROUNDS):
                game.take_turn(peer)
        ours, theirs, pool = (median(side) for side in zip(*game.rounds, strict=True))
        ratio = median(a / b for a, b, _ in game.rounds)
        to_pooled = median(a / c for a, _, c in game.rounds)
        row = [game.name, number(ours), f"{game.mine:,}", number(theirs), f"{game.others:,}", f"{ratio:.2f}"]
        table.rows.append([*row, number(pool), f"{to_pooled:.2f}"])
        table.limits += [
            Limit(f"{game.name}: times gymnax", ratio, LEAST, ratio=True),
            Limit(f"{game.name}: times gymnax, pooled", to_pooled, LEAST, ratio=True),
        ]
    return table
