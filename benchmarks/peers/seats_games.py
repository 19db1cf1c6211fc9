"""Random moves in games of PettingZoo, one at a time, and of pgx, many in one call that XLA compiles."""

from __future__ import annotations

import time
import warnings
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pgx
from pgx.experimental.wrappers import auto_reset

from benchmarks.peers import answer

MADE: dict[Any, Any] = {}
ACTIONS = 64  # steps after which the actions repeat


def play(library: str, game: str, size: int, steps: int) -> dict[str, Any]:
    """Return how many moves were played, in how much processor time, without compiling, and how many games ended."""
    return of_pgx(game, size, steps) if library == "pgx" else of_pettingzoo(game, steps)


def of_pettingzoo(game: str, steps: int) -> dict[str, Any]:
    """Play one game after the other, as PettingZoo's pages do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env: Any = import_module(f"pettingzoo.classic.{game}.{game}").raw_env()  # without wrappers, which is faster
    size = env.action_space(env.possible_agents[0]).n
    actions = np.random.default_rng(0).integers(size, size=steps).tolist()
    moves, ends = 0, 0
    began = time.process_time()
    env.reset(seed=0)
    while moves < steps:
        seen, _, terminated, truncated, _ = env.last()
        action = actions[moves]
        if terminated or truncated or not seen["action_mask"][action]:  # which loses
            ends += 1
            moves += not (terminated or truncated)
            env.reset()
            continue
        env.step(action)
        moves += 1
    return {"seconds": time.process_time() - began, "moves": moves, "ends": ends}


def of_pgx(game: str, size: int, steps: int) -> dict[str, Any]:
    """Play many games side by side."""
    if (game, size, steps) not in MADE:
        env: Any = pgx.make(game)
        actions = jnp.asarray(np.random.default_rng(0).integers(env.num_actions, size=(ACTIONS, size)), jnp.int32)
        MADE[game, size, steps] = (
            jax.jit(playing(env, size, steps)).lower(jax.random.key(0), actions).compile(),
            actions,
        )
    run, actions = MADE[game, size, steps]
    began = time.process_time()
    ends, _ = jax.block_until_ready(run(jax.random.key(1), actions))
    return {"seconds": time.process_time() - began, "moves": size * steps, "ends": int(ends)}


def playing(env: Any, size: int, steps: int) -> Any:
    """Return a function of a key and actions that plays: how many games have ended, and what is seen."""
    advance = jax.vmap(auto_reset(env.step, env.init))

    def run(key: Any, actions: Any) -> Any:
        first, key = jax.random.split(key)

        def step(carry: Any, number: Any) -> Any:
            state, ends = carry
            keys = jax.random.split(jax.random.fold_in(key, number), size)
            state = advance(state, actions[number % ACTIONS], keys)
            return (state, ends + state.terminated.sum()), None

        state = jax.vmap(env.init)(jax.random.split(first, size))
        state, ends = jax.lax.scan(step, (state, jnp.int32(0)), jnp.arange(steps))[0]
        return ends, state.observation

    return run


if __name__ == "__main__":
    answer(play)
