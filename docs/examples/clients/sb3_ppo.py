"""Stable-Baselines3's PPO learns Catch, in a vector environment that is stepped in one compiled pass."""

from __future__ import annotations

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import evo.games  # noqa: F401  registers "evo/catch-v0" and the others


def main() -> None:
    """Learn for a few seconds, and print the mean return."""
    envs = make_vec_env("evo/catch-v0", n_envs=8, seed=1)
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=256, learning_rate=1e-3, seed=1, device="cpu")
    model.learn(30_000)
    mean, deviation = evaluate_policy(model, gymnasium.make("evo/catch-v0"), 100, warn=False)
    print(f"mean return {mean:.2f} +- {deviation:.2f} of 1")
    assert mean > 0.5


if __name__ == "__main__":
    main()
