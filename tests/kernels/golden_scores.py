"""Scores of fixed networks as one hash; as a program, also what instructions made them, for processors to be compared.

Run it with NUMBA_CPU_NAME and NUMBA_CPU_FEATURES set, and an empty NUMBA_CACHE_DIR: assembly is not kept in the cache.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from evo.kernels import lanes, layout
from evo.kernels.vectors import WIDTHS
from evo.networks.candidates import Rebuilder, noise
from evo.networks.network import Network, Options
from evo.rollouts.action_rules import EPSILON_GREEDY, GAUSSIAN, SOFTMAX, choose_action, draw_action, exp_by_squaring

# Filters that are no multiple of the block, strides, both paddings, a side of one cell, and dense layers alone.
NETWORKS = (
    (Options(conv=[[8, 3, 2], [11, 3, 1]], dense=[16]), (19, 19, 5), 3),
    (Options(conv=[[7, 4, 1], [9, 3, 1]], dense=[20], padding="valid"), (10, 10, 1), 4),
    (Options(conv=[[3, 5, 3]], dense=[]), (4, 7, 2), 3),
    (Options(conv=[[17, 1, 1]], dense=[5]), (1, 1, 6), 2),
    (Options(kind="mlp", dense=[33, 8]), (4,), 2),
    (Options(kind="linear"), (6, 6, 5), 4),
)


NORMED = (
    (Options(conv=[[8, 3, 2], [11, 3, 1]], dense=[16], norm="layer"), (19, 19, 5), 3),
    (Options(conv=[[3, 5, 3]], dense=[23, 1], norm="layer"), (4, 7, 2), 3),
    (Options(kind="mlp", dense=[33, 8], norm="layer"), (4,), 2),
)


# Layers that are computed from what is not zero: of 8, 10 and 4 blocks of filters, the last of each in part or whole.
LARGE = (
    (Options(conv=[[40, 3, 1], [120, 4, 2]], dense=[150, 16]), (9, 8, 3), 3),
    (Options(kind="mlp", dense=[1100, 63], norm="layer"), (4,), 2),
)


def weights_of(network: Network, key: int) -> np.ndarray:
    """Return a fresh network with biases, so that every weight counts.  # [P]"""
    weights, biases = np.empty(network.size, np.float32), np.empty(network.size, np.float32)
    rebuilder = Rebuilder(network)
    rebuilder.fresh(np.uint64(key), weights)
    noise(np.uint64(key + 1000), biases)
    return weights + np.where(rebuilder.fresh_scale == 0, np.float32(0.1) * biases, np.float32(0))


def golden(networks: Sequence[tuple[Options, tuple[int, ...], int]] = NETWORKS, least: float = -np.inf) -> str:
    """Return the SHA-256 of the scores of every network on twenty observations, of zeros below `least`."""
    digest = hashlib.sha256()
    for key, (options, shape, actions) in enumerate(networks):
        network = Network.build(options, shape, actions)
        observations = np.empty(20 * int(np.prod(shape)), np.float32)
        noise(np.uint64(key + 2000), observations)
        observations = (np.float32(0.37) * observations).reshape(20, *shape)
        observations[observations < least] = 0
        weights = weights_of(network, key)
        scores = lanes.scores(network, weights, observations).astype("<f4").tobytes()
        for width in WIDTHS:
            if not scores.startswith(lanes.scores(network, weights, observations[:width]).astype("<f4").tobytes()):
                return f"network {key} differs at {width} lanes"
        digest.update(scores)
    return digest.hexdigest()


def chosen() -> str:
    """Return the SHA-256 of actions that are drawn by scores, as choices and as numbers, and of the exp_by_squaring."""
    scores = np.empty(4000, np.float32)
    noise(np.uint64(3000), scores)
    rows, allowed, numbers = scores.reshape(1000, 4), np.array([1, 1, 0, 1], np.int8), np.empty(2, np.float32)
    digest = hashlib.sha256(np.array([exp_by_squaring(-0.37 * k) for k in range(1000)], "<f8").tobytes())
    for step, row in enumerate(rows):
        drawn = [choose_action(row, 1, 0, allowed, rule, 0.4, np.uint64(7), step) for rule in (SOFTMAX, EPSILON_GREEDY)]
        draw_action(row, 1, 0, GAUSSIAN, 0.0, np.uint64(7), step, numbers)
        digest.update(np.array(drawn, np.int8).tobytes() + numbers.astype("<f4").tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    hashes = {"golden": golden(), "normed": golden(NORMED), "large": golden(LARGE, 0.65), "chosen": chosen()}
    assembly = "".join(lanes.score_all.inspect_asm().values())
    wide = {name: assembly.count(name) for name in ("%xmm", "%ymm", "%zmm", "fmadd")}
    print(json.dumps({**hashes, "block": layout.BLOCK, "length": len(assembly), **wide}))
