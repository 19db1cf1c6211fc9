"""evosax's way to play a population on any device of JAX's: all candidates and their episodes in one scan of vmaps.

    python -m benchmarks.peers.jax_scan '{"policy": {...}, "weights": "FILE.npy", "episodes": 32}'

Snake on 10 x 10 in JAX alone, since a machine with a GPU may have no other library. A fixed number of steps is
computed, whatever has ended; frames of episodes that go on are counted. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.jax_network import USUAL, scorer

SIZE, STARVATION, STEPS = 10, 100, 100  # rows and columns, steps without a fruit, and steps that are computed
MOVES = jnp.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
TURNS, SECONDS = (3, 9), 5.0  # fewest and most turns, and what they take in all
Game = dict[str, Any]


def begin(key: Any) -> Game:
    """Return a fresh game."""
    first, rest = jax.random.split(key)
    head = jax.random.randint(first, (2,), 0, SIZE)
    age = jnp.zeros((SIZE, SIZE), jnp.int32).at[head[0], head[1]].set(1)
    return {"age": age, "head": head, "fruit": placed(rest, age), "hunger": 0, "over": False, "steps": 0, "key": rest}


def placed(key: Any, age: Any) -> Any:
    """Return a free cell."""
    return jnp.argmax(jnp.where(age.ravel() > 0, -1.0, jax.random.uniform(key, (SIZE * SIZE,))))


def seen(game: Game, planes: bool) -> Any:
    """Return planes (head, body, age, fruit, hunger), or the one plane that numbers them."""
    head = jnp.zeros((SIZE, SIZE)).at[game["head"][0], game["head"][1]].set(1.0)
    fruit = jnp.zeros(SIZE * SIZE).at[game["fruit"]].set(1.0).reshape(SIZE, SIZE)
    body = (game["age"] > 0) * (1.0 - head)
    if not planes:
        return (head + 2 * fruit + 3 * body)[..., None]
    return jnp.stack([head, body, game["age"] / SIZE**2, fruit, jnp.full_like(head, game["hunger"] / STARVATION)], -1)


def advance(game: Game, action: Any) -> Game:
    """Return the game after an action."""
    to = game["head"] + MOVES[action]
    inside = jnp.all((to >= 0) & (to < SIZE))
    to = jnp.clip(to, 0, SIZE - 1)
    ate = inside & (to[0] * SIZE + to[1] == game["fruit"])
    age = jnp.where(ate, game["age"], jnp.maximum(game["age"] - 1, 0))
    dead = ~inside | (age[to[0], to[1]] > 0)
    age = age.at[to[0], to[1]].set(game["age"].max() + ate)
    key, use = jax.random.split(game["key"])
    hunger = jnp.where(ate, 0, game["hunger"] + 1)
    return {
        "age": age, "head": to, "fruit": jnp.where(ate, placed(use, age), game["fruit"]), "hunger": hunger,
        "over": game["over"] | dead | (hunger >= STARVATION), "steps": game["steps"] + ~game["over"], "key": key,
    }  # fmt: skip


def measure(policy: dict[str, Any], weights: str, episodes: int, turns: int = TURNS[1]) -> dict[str, Any]:
    """Return useful frames a second, in the best turn, of the candidates of a file of weights [K, P]."""
    flat, score, planes = jnp.asarray(np.load(weights)), scorer(policy, USUAL), policy["shape"][-1] == 5

    def whole(flat: Any, keys: Any) -> Any:
        def step(games: Game, _: Any) -> Any:
            observed = jax.vmap(jax.vmap(partial(seen, planes=planes)))(games)
            return jax.vmap(jax.vmap(advance))(games, jnp.argmax(score(flat, observed), -1)), None

        first = jax.vmap(lambda _: jax.vmap(begin)(keys))(flat)
        return jax.lax.scan(step, first, None, STEPS)[0]["steps"]

    play, keys = jax.jit(whole), jax.random.split(jax.random.PRNGKey(1), episodes)
    steps, took = jax.block_until_ready(play(flat, keys)), list[float]()
    while len(took) < min(turns, TURNS[0]) or (sum(took) < SECONDS and len(took) < turns):
        began = time.perf_counter()
        jax.block_until_ready(play(flat, keys))
        took.append(time.perf_counter() - began)
    frames = int(steps.sum())
    device = jax.devices()[0]
    return {
        "device": f"{device.platform}: {device.device_kind}", "candidates": len(flat), "seconds": min(took),
        "mean_length": frames / steps.size, "frames_per_second": frames / min(took),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
