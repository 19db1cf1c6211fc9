"""EnvPool's Snake alone, in C++: random actions on many boards, on one thread; its boards are 12 x 12."""

from __future__ import annotations

import time
from typing import Any

import envpool
import numpy as np

from benchmarks.peers import answer

MADE: dict[int, Any] = {}


def play(boards: int, size: int, steps: int) -> dict[str, Any]:
    """Return the steps that were played on all boards, how long that took, and what shows that they were."""
    if boards not in MADE:
        MADE[boards] = envpool.make_gymnasium("Jumanji/Snake-v1", num_envs=boards, num_threads=1)
        MADE[boards].reset()
    actions = np.random.default_rng(0).integers(0, 4, (steps, boards)).astype(np.int32)
    fruits, ends = 0.0, 0
    began = time.perf_counter()
    for chosen in actions:
        seen, rewards, terminated, truncated, _ = MADE[boards].step(chosen)
        fruits, ends = fruits + float(rewards.sum()), ends + int(terminated.sum() + truncated.sum())
    took = time.perf_counter() - began
    shape = list(seen["grid"].shape)
    if shape[1:3] != [size, size]:
        raise ValueError(f"boards of {shape}")
    return {"seconds": took, "steps": boards * steps, "fruits": fruits, "ends": ends, "planes": shape}


if __name__ == "__main__":
    answer(play)
