"""PPO on registered Gymnasium environments, compared with Stable-Baselines3: the same network, batches and epochs.

    python -m benchmarks --only gymnasium [--peers DIR]

Both run in the peers' environment, which has MuJoCo, Box2D and the Arcade Learning Environment. Without it nothing is
measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import ROOT, interpreter, missing
from benchmarks.ppo import WARM, Lines, add_pair, checked, of_peer, ours, speed
from benchmarks.tables import Form, Table

EXPERIMENT = ROOT / "experiments" / "gymnasium" / "ppo_pendulum.toml"  # whose options are all replaced
FASTER = 2.0  # times Stable-Baselines3's frames
PEER = "Stable-Baselines3"
NATURE = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]  # the convolutions of Mnih et al., 2015, as in its CnnPolicy
ATARI = {
    "kwargs": {"frameskip": 1}, "wrappers": ["gymnasium.wrappers:AtariPreprocessing"], "stack": 4,
    "max_steps": 4000,  # of the champion's episode, in which a first policy of Breakout may wait for ever
}  # fmt: skip
OF_BOTH = {
    "learning_rate": 3e-4, "gamma": 0.99, "gae_lambda": 0.95, "clip_range": 0.2, "entropy_coefficient": 0.0,
    "value_coefficient": 0.5, "max_gradient_norm": 0.5, "whole_episodes": False, "normalise_rewards": False,
    "learning_rate_frames": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A game, and how it is learned."""

    id: str
    envs: int = 16
    horizon: int = 128
    epochs: int = 10
    minibatches: int = 8
    generations: int = 20  # that are counted
    turns: int = 3
    environment: dict[str, Any] = field(default_factory=dict)
    conv: list[list[int]] = field(default_factory=list)
    dense: tuple[int, ...] = (64, 64)

    @property
    def options(self) -> dict[str, Any]:
        """The options of both."""
        own = {name: getattr(self, name) for name in ("envs", "horizon", "epochs", "minibatches")}
        return {**OF_BOTH, **own}

    @property
    def setting(self) -> tuple[str, ...]:
        """What ours is set to."""
        sections: dict[str, dict[str, Any]] = {
            "environment": {"id": f"gymnasium:{self.id}", **self.environment},
            "policy": {"kind": "cnn" if self.conv else "mlp", "conv": self.conv, "dense": [*self.dense]},
            "ppo": self.options,
            "workers": {"count": 2},
        }
        if self.conv:
            sections["policy"]["padding"] = "valid"
        lines = []
        for name, values in sections.items():
            lines += [f"{name}.{key}={_toml(value)}" for key, value in values.items() if value != []]
        return tuple(lines)

    def frames(self, generations: int) -> int:
        """Return the frames of generations."""
        return generations * self.envs * self.horizon


def _atari(name: str) -> Case:
    return Case(f"ALE/{name}-v5", 8, 128, 4, 4, 2, 1, ATARI, NATURE, (512,))


CASES = (
    Case("CartPole-v1"),
    Case("LunarLander-v3"),
    Case("Hopper-v5"),
    _atari("Pong"),
    _atari("Breakout"),
)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def theirs(python: Path, case: Case, generations: int) -> Lines:
    """Return frames and seconds after each rollout of Stable-Baselines3."""
    described = {"id": case.id, "dense": case.dense, "pixels": bool(case.conv), "ppo": case.options, "threads": 2}
    return of_peer(python, "sb3_gymnasium", described, case.frames(generations))


def run(form: Form) -> Table:
    """Return the table of frames a second of both."""
    table = Table(
        "PPO on Gymnasium environments",
        "Frames per second on two cores, learning included. CartPole, LunarLander and Hopper: 16 environments of 128 "
        "steps a generation, hidden layers of 64 and 64, 10 epochs of 8 minibatches. Pong and Breakout: 84 x 84 x 4 "
        "pixels, 8 environments of 128 steps, the CNN of Mnih et al. (2015), 4 epochs of 4 minibatches. Ours plays on "
        "two workers; Stable-Baselines3 steps its DummyVecEnv and learns with two threads. Medians over generations "
        "and alternating runs.",
        ("environment", PEER, "ours", "ratio"),
    )
    python = form.peers and interpreter(form.peers, "gymnasium")
    if not python:
        table.without(missing("gymnasium", PEER))
        return table
    for case in CASES[:1] if form.smoke else CASES:
        # One more, which is not counted: the line of the last generation comes after the champion's episodes.
        counts, ends = WARM + case.generations + 1, (-1e6, 1e6)
        found: list[tuple[float, float]] = []
        for _ in range(1 if form.smoke else case.turns):
            other = checked(PEER, theirs(python, case, counts), case.frames(counts), ends)
            plugins = ("ale_py",) if case.conv else ()
            own = ours(counts, case.setting, experiment=EXPERIMENT, python=str(python), plugins=plugins)
            own = checked("ours", own, case.frames(counts), ends)
            found.append((speed(own[:-1]), speed(other[:-1])))
        add_pair(table, case.id, f"{case.id}: times {PEER}'s frames", FASTER, found)
    return table
