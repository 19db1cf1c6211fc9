"""gymnax's games alone: random actions in many environments, compiled by XLA, with the observation of every step kept.

Its `step` makes a new game for every environment at every step, because under `vmap` both branches are computed. With
a pool, games that end go on as games that were made beforehand, and every observation is computed once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers import answer

MADE: dict[Any, Any] = {}
POOL = 16  # games for each environment, which take turns
ACTIONS = 64  # steps after which the actions repeat


def play(game: str, environments: int, steps: int, resets: str) -> dict[str, Any]:
    """Return the processor time of `steps` in all environments, without compiling, and what shows that they were.

    `resets` is "step" or "pool".
    """
    key = (game, environments, steps, resets)
    if key not in MADE:
        env, params = gymnax.make(game)
        actions = drawn(env.action_space(params), environments)
        run = jax.jit(playing(env, params, environments, steps, resets))
        MADE[key] = run.lower(jax.random.key(0), actions).compile(), actions
    run, actions = MADE[key]
    began = time.process_time()
    rewards, ends, seen = jax.block_until_ready(run(jax.random.key(1), actions))
    took = time.process_time() - began
    shape, dtype = list(seen.shape), str(seen.dtype)
    return {"seconds": took, "rewards": float(rewards), "ends": int(ends), "shape": shape, "dtype": dtype}


def drawn(space: Any, environments: int) -> Any:
    """Return actions drawn beforehand.  # [ACTIONS, environments], or [ACTIONS, environments, A] numbers"""
    draw = np.random.default_rng(0)
    if isinstance(space, gymnax.environments.spaces.Discrete):
        return jnp.asarray(draw.integers(space.n, size=(ACTIONS, environments)), jnp.int32)
    return jnp.asarray(draw.uniform(space.low, space.high, (ACTIONS, environments, *space.shape)), jnp.float32)


def playing(env: Any, params: Any, environments: int, steps: int, resets: str) -> Callable[[Any, Any], Any]:
    """Return a function of a key and actions that plays: the sum of rewards, the number of ends, and what is seen."""
    begin = jax.vmap(env.reset, in_axes=(0, None))
    advance = jax.vmap(env.step, in_axes=(0, 0, 0, None))
    if resets == "pool":
        advance = pooled(env)

    def run(key: Any, actions: Any) -> Any:
        key, first, pool_key = jax.random.split(key, 3)
        rows = POOL if resets == "pool" else 1
        pool = jax.vmap(begin, in_axes=(0, None))(jax.random.split(pool_key, (rows, environments)), params)[1]

        def step(carry: Any, number: Any) -> Any:
            key, state, rewards, ends, _ = carry
            key, now = jax.random.split(key)
            keys, action = jax.random.split(now, environments), actions[number % ACTIONS]
            if resets == "pool":
                fresh = jax.tree.map(lambda games: games[number % POOL], pool)
                seen, state, reward, over = advance(keys, state, action, params, fresh)
            else:
                seen, state, reward, terminated, truncated, _ = advance(keys, state, action, params)
                over = terminated | truncated
            return (key, state, rewards + reward.sum(), ends + over.sum(), seen), None

        seen, state = begin(jax.random.split(first, environments), params)
        carry = (key, state, jnp.float32(0), jnp.int32(0), seen)
        return jax.lax.scan(step, carry, jnp.arange(steps))[0][2:]

    return run


def pooled(env: Any) -> Callable[..., Any]:
    """Return a step of all environments, in which those that end go on as others.  # seen, state, reward, over"""

    def advance(key: Any, state: Any, action: Any, params: Any, fresh: Any) -> Any:
        _, state, reward, terminated, _ = env.step_env(key, state, action, params)
        over = terminated | env.is_truncated(state, params)
        state = jax.tree.map(lambda new, old: jax.lax.select(over, new, old), fresh, state)
        return env.get_obs(state, params), state, reward, over

    everywhere: Callable[..., Any] = jax.vmap(advance, in_axes=(0, 0, 0, None, 0))
    return everywhere


if __name__ == "__main__":
    answer(play)
