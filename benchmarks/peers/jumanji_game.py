"""Jumanji's Snake alone: random actions on many boards, compiled by XLA, with the observation of every step kept."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
from jumanji.environments import Snake
from jumanji.wrappers import AutoResetWrapper

from benchmarks.peers import answer

MADE: dict[Any, Any] = {}


def play(boards: int, size: int, steps: int, limit: int) -> dict[str, Any]:
    """Return the steps that were played on all boards, how long that took, and what shows that they were."""
    key = (boards, size, steps, limit)
    if key not in MADE:
        MADE[key] = compiled(*key)
        jax.block_until_ready(MADE[key](jax.random.PRNGKey(0)))
    began = time.perf_counter()
    fruits, ends, planes = jax.block_until_ready(MADE[key](jax.random.PRNGKey(1)))
    took = time.perf_counter() - began
    shape = list(planes.shape)
    return {"seconds": took, "steps": boards * steps, "fruits": float(fruits), "ends": int(ends), "planes": shape}


def compiled(boards: int, size: int, steps: int, limit: int) -> Any:
    """Return a function of a key that plays so many steps."""
    env = AutoResetWrapper(Snake(size, size, limit))

    def step(now: Any, key: Any) -> Any:
        state, fruits, ends, _ = now
        state, timestep = jax.vmap(env.step)(state, jax.random.randint(key, (boards,), 0, 4))
        counts = fruits + timestep.reward.sum(), ends + timestep.last().sum()
        return (state, *counts, timestep.observation.grid), None

    def run(key: Any) -> Any:
        state, timestep = jax.vmap(env.reset)(jax.random.split(key, boards))
        first = (state, jnp.float32(0), jnp.int32(0), timestep.observation.grid)
        return jax.lax.scan(step, first, jax.random.split(key, steps))[0][1:]

    return jax.jit(run)


if __name__ == "__main__":
    answer(play)
