"""PPO with memory, compared with sb3-contrib's RecurrentPPO and with a GRU in the way of PureJaxRL.

    python -m benchmarks --only recurrent [--peers DIR]

The game, the layers, minibatches and epochs are the same. Without the environment of a peer it is left out.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.peers import ROOT, interpreter, missing
from benchmarks.ppo import TIMEOUT, WARM, Lines, checked, of_peer, ours, speed
from benchmarks.tables import Form, Limit, Table, number
from evo.config.experiment import Experiment

EXPERIMENT = ROOT / "experiments" / "games" / "ppo_cartpole_positions.toml"
UNITS = 64
SETTING = ("learner.threads=1", "workers.count=1")
COUNTED, TURNS, SEEDS = 5, 3, 5
GOOD, LONGEST = 400.0, 250_000  # a mean return, and frames after which nobody waits for it any more


class Peer(NamedTuple):
    """Another implementation, and what ours must reach next to it."""

    name: str
    module: str
    environment: str
    layer: str
    faster: float = 0.0  # times its frames a second; 0: no limit
    sooner: float = 0.0  # its seconds until the mean return is good, over ours; 0: no limit

    def run(self, python: Path, frames: int, good: float = math.inf, seed: int = 1) -> Lines:
        """Return frames, seconds since the command was given and the mean return after each rollout of the peer."""
        return of_peer(python, self.module, described(seed), TIMEOUT, frames, good, cores=1)

    @property
    def setting(self) -> tuple[str, ...]:
        """Our options with the same layer."""
        return (*SETTING, f"policy.memory={self.layer}:{UNITS}")


PEERS = (
    Peer("sb3-contrib's RecurrentPPO", "recurrent_ppo", "torch", "lstm", 4.0, 3.0),
    Peer("PureJaxRL's way", "purejaxrl_gru", "gymnax", "gru"),
)


def described(seed: int) -> dict[str, Any]:
    """Return what a peer learns, as a JSON object."""
    experiment = Experiment.load(EXPERIMENT, *SETTING)
    return {
        "environment": experiment.environment.model_dump(exclude={"training", "training_generations"}),
        "units": UNITS,
        "ppo": experiment.options.model_dump(),
        "threads": experiment.learner.thread_count,
        "seed": seed,
    }


def seconds_to(lines: Lines) -> float:
    """Return after how many seconds the mean return was good; infinity where it never was."""
    return min((line["seconds"] for line in lines if (line["mean"] or 0.0) >= GOOD), default=math.inf)


def run(form: Form) -> Table:
    """Return the table of frames a second, and of seconds until a mean return is good."""
    table = Table(
        "PPO with memory",
        f"CartPole without velocities, a recurrent layer of {UNITS} units, learning included, on one thread each: "
        "`experiments/games/ppo_cartpole_positions.toml`. RecurrentPPO steps our compiled vector environment; XLA "
        "compiles PureJaxRL's way with gymnax's game. Frames per second are medians over generations and alternating "
        f"runs; seconds to a mean return of {GOOD:.0f}, from the command on, medians of {SEEDS} seeds.",
        ("library, layer", "frames/s", f"seconds to {GOOD:.0f}"),
    )
    for peer in PEERS:
        python = form.peers and interpreter(form.peers, peer.environment)
        if python:
            _add(table, peer, python, form.smoke)
        else:
            table.without(missing(peer.environment, peer.name))
    return table


def _add(table: Table, peer: Peer, python: Path, smoke: bool) -> None:
    """Add the rows of a peer and of ours with the same layer, and what is held against limits."""
    options = Experiment.load(EXPERIMENT).options.model_dump()
    each, who = options["envs"] * options["horizon"], (peer.name, "ours")
    speeds: dict[str, list[float]] = {name: [] for name in who}
    for _ in range(1 if smoke else TURNS):
        frames = (WARM + COUNTED) * each
        played = peer.run(python, frames), ours(WARM + COUNTED, peer.setting, experiment=EXPERIMENT)
        for name, lines in zip(who, played, strict=True):
            speeds[name].append(speed(checked(name, lines, frames, (0, 501))))
    waits: dict[str, list[float]] = {name: [] for name in who}
    for seed in range(1, 1 if smoke else SEEDS + 1):
        waits[peer.name].append(seconds_to(peer.run(python, LONGEST, GOOD, seed)))
        waits["ours"].append(seconds_to(ours(LONGEST // each, peer.setting, GOOD, seed, EXPERIMENT)))
    for name in who:
        seconds = median(waits[name]) if waits[name] else math.nan
        wait = f"not in {LONGEST:,} frames" if math.isinf(seconds) else "" if math.isnan(seconds) else f"{seconds:.1f}"
        table.rows.append([f"{name}, {peer.layer.upper()}", number(median(speeds[name])), wait])
    ratio = median(a / b for a, b in zip(speeds["ours"], speeds[peer.name], strict=True))
    if peer.faster:
        table.limits.append(Limit(f"PPO with memory: times {peer.name}'s frames", ratio, peer.faster, ratio=True))
    if peer.sooner and not smoke:
        sooner = median(waits[peer.name]) / median(waits["ours"])
        what = f"PPO with memory: {peer.name}'s seconds to {GOOD:.0f}, over ours"
        table.limits.append(Limit(what, sooner, peer.sooner, ratio=True))
