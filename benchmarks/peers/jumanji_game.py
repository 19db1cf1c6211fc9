"""Jumanji's Snake alone: many boards, compiled by XLA, with the observation of every step kept.

Its `AutoResetWrapper` makes a new game for every board at every step, because under `vmap` both branches are computed.
With a pool, games that end go on from one of many that were made beforehand, which is faster where games are short.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jumanji.environments import Snake
from jumanji.wrappers import AutoResetWrapper

from benchmarks.peers import answer

MADE: dict[Any, Any] = {}
POOL = 4096  # games


def play(boards: int, size: int, steps: int, limit: int, resets: str, table: list[list[int]]) -> dict[str, Any]:
    """Return the steps that were played on all boards, how long that took, and what shows that they were.

    Actions are table[cell of the head][step, modulo columns]; `resets` is "wrapper" or "pool".
    """
    key = (boards, size, steps, limit, resets, str(table))
    if key not in MADE:
        run = compiled(boards, size, steps, limit, resets, jnp.asarray(table, jnp.int32))
        MADE[key] = run.lower(jax.random.PRNGKey(0)).compile()
    began = time.perf_counter()
    fruits, ends, lengths, planes = jax.block_until_ready(MADE[key](jax.random.PRNGKey(1)))
    took = time.perf_counter() - began
    return {
        "seconds": took, "steps": boards * steps, "fruits": float(fruits), "ends": int(ends),
        "length": float(lengths) / (boards * steps), "planes": list(planes.shape),
    }  # fmt: skip


def compiled(boards: int, size: int, steps: int, limit: int, resets: str, table: Any) -> Any:
    """Return a function of a key that plays so many steps."""
    env = Snake(size, size, limit)
    advance = jax.vmap(AutoResetWrapper(env).step) if resets == "wrapper" else pooled(env)
    columns = table.shape[1]

    def run(key: Any) -> Any:
        key, pool_key = jax.random.split(key)
        pool = jax.vmap(env.reset)(jax.random.split(pool_key, POOL if resets == "pool" else 1))

        def step(now: Any, number: Any) -> Any:
            state, fruits, ends, lengths, _ = now
            head = state.head_position.row * size + state.head_position.col
            actions = table[head, (number + jnp.arange(boards)) % columns]
            state, timestep = advance(state, actions) if resets == "wrapper" else advance(state, actions, pool, number)
            counts = fruits + timestep.reward.sum(), ends + timestep.last().sum()
            return (state, *counts, lengths + state.length.sum(), timestep.observation.grid), None

        state, timestep = jax.vmap(env.reset)(jax.random.split(key, boards))
        first = (state, jnp.float32(0), jnp.int32(0), jnp.float32(0), timestep.observation.grid)
        return jax.lax.scan(step, first, jnp.arange(steps))[0][1:]

    return jax.jit(run)


def pooled(env: Any) -> Callable[..., Any]:
    """Return a step of all boards in which those that end go on as a game of a pool, each with its own random key."""

    def advance(state: Any, actions: Any, pool: Any, number: Any) -> Any:
        state, timestep = jax.vmap(env.step)(state, actions)
        over = timestep.last()
        which = (number * len(over) + jnp.arange(len(over))) % POOL

        def chosen(fresh: Any, old: Any) -> Any:
            return jnp.where(over.reshape(-1, *[1] * (old.ndim - 1)), fresh[which], old)

        keys = state.key
        state = jax.tree.map(chosen, pool[0], state).replace(key=keys)
        seen = jax.tree.map(chosen, pool[1].observation, timestep.observation)
        return state, timestep.replace(observation=seen)

    return advance


if __name__ == "__main__":
    answer(play)
