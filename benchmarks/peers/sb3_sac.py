"""SAC by Stable-Baselines3 on a registered Gymnasium environment, stepped side by side in one process.

    python -m benchmarks.peers.sb3_sac EXPERIMENT.json SECONDS FRAMES

Prints a JSON line a rollout, as `benchmarks.peers.sb3_way` does.
"""

from __future__ import annotations

import json
import math
import sys

import torch
from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.peers.sb3_way import Told


def main(described: str, seconds: str, frames: str) -> None:
    """Learn what the experiment of a JSON object says."""
    experiment = json.loads(described)
    torch.set_num_threads(experiment["threads"])
    sac, envs = experiment["sac"], make_vec_env(experiment["id"], experiment["sac"]["envs"], seed=experiment["seed"])
    model = SAC(
        "MlpPolicy", envs, learning_rate=sac["learning_rate"], buffer_size=sac["replay_size"],
        learning_starts=sac["learning_starts"], batch_size=sac["batch_size"], tau=sac["target_tau"],
        gamma=sac["gamma"], train_freq=sac["horizon"],
        gradient_steps=sac["envs"] * sac["horizon"] // sac["frames_per_update"], device="cpu", seed=experiment["seed"],
        policy_kwargs={"net_arch": experiment["dense"]},
    )  # fmt: skip
    model.learn(1 << 40, callback=Told(float(seconds), int(frames), math.inf))


if __name__ == "__main__":
    main(*sys.argv[1:])
