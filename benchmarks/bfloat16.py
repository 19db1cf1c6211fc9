"""Large networks in bfloat16 and float32, with the lanes kernel and with TensorFlow, on one core.

bfloat16 is another arithmetic, and not the same one on every machine: it is played only where
`policy.inference = "lanes-bfloat16"` or `"tensorflow-bfloat16"` asks for it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.rollout import cases, fresh, needed_flops
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Task
from evo.rollouts.player import Player, RunSpec, make_player

EPISODES = (16, 32, 64, 128)
CANDIDATES = 4
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


def run(form: Form) -> Table:
    """Return the table of the large network."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    case = cases()[1]
    policy = case.network.options
    with tempfile.TemporaryDirectory() as directory:
        spec = RunSpec(Path(directory), case.environment.options, policy)
        players: dict[str, Player] = {}
        for inference in WAYS:
            kind = inference.removesuffix("-bfloat16")
            played = policy.model_copy(update={"inference": inference})
            here = replace(spec, policy=played, inference=kind)  # type: ignore[arg-type]
            players[inference] = make_player(here)
        speeds, agree = _measured(players, 1 if form.smoke else 5)
    limit = gemm_flops() / needed_flops(case.network)
    table = Table(
        "A large network in bfloat16, one core",
        f"Useful frames per second of {CANDIDATES} fresh networks of 1.18 million weights; medians over alternating "
        "rounds. *Ratio* is the kernel with bfloat16 pairs divided by the exact kernel. *Agree* is the share of its "
        "episodes that are as long as with the exact kernel. The limit is a large bfloat16 matrix product in "
        "TensorFlow on one thread.",
        ("episodes", *(f"{name}" for name in WAYS.values()), "ratio", "agree", "limit"),
    )
    for episodes in EPISODES:
        found = [speeds[inference, episodes] for inference in WAYS]
        ratio = median(b / a for a, b in zip(found[0], found[OURS], strict=True))
        row = [str(episodes), *(number(median(speed)) for speed in found), f"{ratio:.2f}"]
        table.rows.append([*row, f"{agree[episodes]:.2f}", number(limit)])
        if agree[episodes] < AGREES:
            raise RuntimeError(f"bfloat16 plays other games: {agree[episodes]:.2f} of episodes are as long")
        name = f"seed in bfloat16: frames/s and core, {episodes} episodes"
        table.limits.append(Limit(name, median(found[OURS]), TARGET, best=max(found[OURS])))
    return table


def _measured(players: dict[str, Player], rounds: int) -> tuple[dict[tuple[str, int], list[float]], dict[int, float]]:
    speeds: dict[tuple[str, int], list[float]] = {}
    agree: dict[int, float] = {}
    for _ in range(rounds + 1):  # the first one compiles
        for episodes in EPISODES:
            task = Task(fresh(CANDIDATES, 0), Episodes(episode_keys(0, Purpose.TRAINING, 0, episodes)))
            lengths = {}
            for inference, player in players.items():
                results = []
                took = seconds(lambda: results.append(player.play(task)))  # noqa: B023
                speeds.setdefault((inference, episodes), []).append(results[0].frames / took)
                lengths[inference] = results[0].lengths
            agree[episodes] = float(np.mean(lengths["lanes"] == lengths["lanes-bfloat16"]))
    return {key: found[1:] for key, found in speeds.items()}, agree
