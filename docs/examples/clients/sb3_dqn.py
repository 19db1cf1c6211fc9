"""Stable-Baselines3's DQN learns Snake on a board of six by six."""

from __future__ import annotations

import gymnasium
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy

import snake  # noqa: F401  registers "evo/Snake-v0"


def main() -> None:
    """Learn for some seconds, and print the mean return."""
    env = gymnasium.wrappers.FlattenObservation(gymnasium.make("evo/Snake-v0", size=6, observation="ego"))
    model = DQN("MlpPolicy", env, learning_starts=1000, exploration_fraction=0.5, seed=1, device="cpu")
    model.learn(20_000)
    mean, deviation = evaluate_policy(model, env, 20, warn=False)
    print(f"mean return {mean:.2f} +- {deviation:.2f}")


if __name__ == "__main__":
    main()
