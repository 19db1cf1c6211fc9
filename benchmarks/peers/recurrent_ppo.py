"""PPO with an LSTM by sb3-contrib's RecurrentPPO on one of our games, stepped by our compiled vector environment.

    python -m benchmarks.peers.recurrent_ppo EXPERIMENT.json SECONDS FRAMES RETURN

Prints a JSON line a rollout, as `benchmarks.peers.sb3_way` does.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import gymnasium
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

from benchmarks.peers.sb3_way import Boards, Told
from evo.games import register


class Envs(Boards):
    """Environments of a game that shows a row of numbers, whose axes stay where they are."""

    def __init__(self, envs: Any, seed: int) -> None:
        self.first_seed, self.boards = seed, envs
        VecEnv.__init__(self, envs.num_envs, envs.single_observation_space, envs.single_action_space)


def main(described: str, seconds: str, frames: str, good: str) -> None:
    """Learn what the experiment of a JSON object says."""
    experiment = json.loads(described)
    torch.set_num_threads(experiment["threads"])
    ppo, game = experiment["ppo"], experiment["environment"].pop("id")
    register(f"evo.games.catalogue.{game}")
    envs = gymnasium.make_vec(
        f"evo/{game}-v0", num_envs=ppo["envs"], autoreset_mode="SameStep", **experiment["environment"],
    )  # fmt: skip
    scaled = VecNormalize(VecMonitor(Envs(envs, experiment["seed"])), norm_obs=False, gamma=ppo["gamma"])
    model = RecurrentPPO(
        "MlpLstmPolicy", scaled if ppo["normalise_rewards"] else scaled.venv, n_steps=ppo["horizon"],
        batch_size=ppo["envs"] * ppo["horizon"] // ppo["minibatches"], n_epochs=ppo["epochs"],
        learning_rate=ppo["learning_rate"], gamma=ppo["gamma"], gae_lambda=ppo["gae_lambda"],
        clip_range=ppo["clip_range"], ent_coef=ppo["entropy_coefficient"], vf_coef=ppo["value_coefficient"] / 2,
        max_grad_norm=ppo["max_gradient_norm"], device="cpu", seed=experiment["seed"],
        policy_kwargs={
            "lstm_hidden_size": experiment["units"],
            "shared_lstm": True,
            "enable_critic_lstm": False,
            "net_arch": [],
        },
    )  # fmt: skip
    model.learn(1 << 40, callback=Told(float(seconds), int(frames), float(good)))


if __name__ == "__main__":
    main(*sys.argv[1:])
