"""Writes tests/games/swingup_steps.json: steps of EvoJAX's cart-pole swing-up from random states, to hold ours to them.

Run by hand in the environment of JAX's peers: `.peers/jax/bin/python benchmarks/peers/evojax_swingup.py`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
from evojax.task import cartpole  # noqa: E402

STEPS = 100
TARGET = Path(__file__).parent.parent.parent / "tests" / "games" / "swingup_steps.json"


def main() -> None:
    """Write states, actions, the states and observations that follow, rewards and ends."""
    draw = random.Random(1)
    steps = []
    for _ in range(STEPS):
        state = [draw.uniform(-2.4, 2.4), draw.uniform(-10, 10), draw.uniform(-7, 7), draw.uniform(-10, 10)]
        action = draw.uniform(-1.5, 1.5)
        after = cartpole.update_state(jnp.array([action]), jnp.array(state))
        told = after, cartpole.get_obs(after), cartpole.get_reward(after), cartpole.out_of_screen(after)
        steps.append([state, action, *(value.tolist() for value in told)])
    TARGET.write_text("[\n" + ",\n".join(map(json.dumps, steps)) + "\n]\n")


if __name__ == "__main__":
    main()
