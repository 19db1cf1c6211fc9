"""A segment played in plain Python behind Gymnasium's interface: what the compiled one must equal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.kernels import lanes as kernel
from evo.networks.network import Network
from evo.randomness.philox_compiled import episode_seed
from evo.records import GOES_ON, SEGMENT_END, TERMINATED, TRUNCATED, ActionRule
from evo.rollouts.action_rules import RULES, choose_action


class ReadableLane:
    """One lane: its episodes follow each other behind Gymnasium's interface."""

    def __init__(self, environment: Any, first: int) -> None:
        self.env = environment.env()
        self.first, self.episode, self.environment = first, 0, environment
        self._reset()

    def _reset(self) -> None:
        self.seed = int(episode_seed(np.uint64(self.first), self.episode))
        self.seen, self.info = self.env.reset(seed=self.seed)
        self.step, self.returns_so_far = 0, 0.0

    def play(
        self, network: Network, weights: NDArray[np.float32], horizon: int, how: ActionRule
    ) -> dict[str, list[Any]]:
        """Return every step's values by name, and those of `after` and of ended episodes."""
        names = ("seen", "allowed", "actions", "rewards", "ends", "outputs", "after", "next_outputs", "ended")
        out: dict[str, list[Any]] = {name: [] for name in names}
        for t in range(horizon):
            scores = kernel.scores(network, weights, self.seen[None])[0]
            mask = self.info["action_mask"]
            action = choose_action(scores, 1, 0, mask, RULES[how.kind], how.epsilon, np.uint64(self.seed), self.step)
            for name, value in (("seen", self.seen.copy()), ("allowed", mask.copy()), ("actions", action)):
                out[name].append(value)
            out["outputs"].append(scores)
            self.seen, reward, terminated, truncated, self.info = self.env.step(action)
            self.step, self.returns_so_far = self.step + 1, self.returns_so_far + reward
            end = TERMINATED if terminated else TRUNCATED if truncated else SEGMENT_END if t == horizon - 1 else GOES_ON
            out["rewards"].append(reward)
            out["ends"].append(end)
            if end in (TRUNCATED, SEGMENT_END):
                out["after"].append(self.seen.copy())
                out["next_outputs"].append(kernel.scores(network, weights, self.seen[None])[0])
            if end in (TERMINATED, TRUNCATED):
                out["ended"].append((round(self.returns_so_far * 1000), self.step, self.info["score"]))
                self.episode += 1
                self._reset()
        return out
