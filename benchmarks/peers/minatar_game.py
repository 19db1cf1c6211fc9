"""MinAtar's games alone: random actions in one game, with its observation at every step."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from minatar.environment import Environment

from benchmarks.peers import answer


def play(game: str, steps: int) -> dict[str, Any]:
    """Return how long so many steps took."""
    env = Environment(game)
    env.seed(1)
    env.reset()
    choices = env.minimal_action_set()
    actions = [choices[i] for i in np.random.RandomState(0).randint(len(choices), size=steps)]
    rewards = 0.0
    began = time.perf_counter()
    for action in actions:
        reward, ended = env.act(action)
        rewards += reward
        env.state()
        if ended:
            env.reset()
    return {"seconds": time.perf_counter() - began, "rewards": rewards}


if __name__ == "__main__":
    answer(play)
