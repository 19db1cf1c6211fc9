"""Large networks in bfloat16 and float32, with the lanes kernel and with TensorFlow, on one core.

bfloat16 is another arithmetic, and not the same one on every machine: it is played only where
`policy.inference = "lanes-bfloat16"` or `"tensorflow-bfloat16"` asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.rollout import Case, cases, mutated, needed_flops
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Player, Task
from evo.rollouts.player import RunSpec, make_player

EPISODES = (16, 64)
CANDIDATES = 4
ROUNDS = 5
TARGET = 12_000.0  # useful frames a second and core
AGREES = 0.5  # of episodes are as long as the exact kernel's, at the least: rounding changes near ties
WAYS = {
    "lanes": "exact kernel", "lanes-bfloat16": "bfloat16 pairs",
    "tensorflow": "TensorFlow, float32", "tensorflow-bfloat16": "TensorFlow, bfloat16",
}  # fmt: skip
OURS = list(WAYS).index("lanes-bfloat16")


def gemm_flops(side: int = 1024) -> float:
    """Return the operations a second of a large bfloat16 matrix product in TensorFlow on one thread."""
    import tensorflow as tf

    a = tf.cast(tf.random.stateless_uniform((side, side), (1, 2)), tf.bfloat16)
    product: Callable[[], object] = tf.function(lambda: tf.reduce_sum(tf.matmul(a, a)))
    product()
    return 2.0 * side**3 / min(seconds(product) for _ in range(5))


@dataclass(frozen=True)
class Given:
    """Published weights that players find without files."""

    parents: NDArray[np.float32]

    def matrix(self, name: str, size: int) -> NDArray[np.float32]:
        """Return all parents."""
        return self.parents


def run(form: Form) -> Table:
    """Return the table of the large network."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    fresh = cases()[1]
    kinds = {"fresh": fresh, "mutated": mutated(fresh)}
    policy = fresh.network.options
    files = Given(kinds["mutated"].candidates()[0])
    spec = RunSpec(Path(), fresh.environment.options, policy)
    players: dict[str, Player] = {}
    for inference in WAYS:
        kind = inference.removesuffix("-bfloat16")
        played = policy.model_copy(update={"inference": inference})
        here = replace(spec, policy=played, inference=kind)  # type: ignore[arg-type]
        players[inference] = make_player(here, files)
    limit = gemm_flops() / needed_flops(fresh.network)
    table = Table(
        "A large network in bfloat16, one core",
        f"Useful frames per second of {CANDIDATES} networks of 1.18 million weights; medians over alternating rounds. "
        "Networks are freshly initialised, or mutants of one fresh network with sigma 0.1, as in evolution. *Ratio* is "
        "the kernel with bfloat16 pairs divided by the exact kernel, which skips the many zeros of fresh networks. "
        "*Agree* is the share of its episodes that are as long as with the exact kernel. The limit is a large bfloat16 "
        "matrix product in TensorFlow on one thread.",
        ("networks, episodes", *(f"{name}" for name in WAYS.values()), "ratio", "agree", "limit"),
    )
    for name, case in kinds.items():
        speeds, agree = _measured(players, case, 1 if form.smoke else ROUNDS)
        for episodes in EPISODES:
            found = [speeds[inference, episodes] for inference in WAYS]
            ratio = median(b / a for a, b in zip(found[0], found[OURS], strict=True))
            row = [f"{name}, {episodes}", *(number(median(speed)) for speed in found), f"{ratio:.2f}"]
            table.rows.append([*row, f"{agree[episodes]:.2f}", number(limit)])
            if agree[episodes] < AGREES:
                raise RuntimeError(f"bfloat16 plays other games: {agree[episodes]:.2f} of episodes are as long")
            what = f"seed in bfloat16, {name}: frames/s and core, {episodes} episodes"
            table.limits.append(Limit(what, median(found[OURS]), TARGET, best=max(found[OURS])))
    return table


def _measured(
    players: dict[str, Player], case: Case, rounds: int
) -> tuple[dict[tuple[str, int], list[float]], dict[int, float]]:
    speeds: dict[tuple[str, int], list[float]] = {}
    agree: dict[int, float] = {}
    _, source = case.candidates()
    for _ in range(rounds + 1):  # the first one compiles
        for episodes in EPISODES:
            task = Task(source(CANDIDATES, 0), Episodes(episode_keys(0, Purpose.TRAINING, 0, episodes)))
            lengths = {}
            for inference, player in players.items():
                results = []
                took = seconds(lambda: results.append(player.play(task)))  # noqa: B023
                speeds.setdefault((inference, episodes), []).append(results[0].frames / took)
                lengths[inference] = results[0].lengths
            agree[episodes] = float(np.mean(lengths["lanes"] == lengths["lanes-bfloat16"]))
    return {key: found[1:] for key, found in speeds.items()}, agree
