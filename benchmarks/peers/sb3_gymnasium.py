"""PPO by Stable-Baselines3 on a registered Gymnasium environment, stepped side by side in one process.

    python -m benchmarks.peers.sb3_gymnasium EXPERIMENT.json FRAMES

Prints a JSON line a rollout, as `benchmarks.peers.sb3_way` does.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from typing import Any

import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecFrameStack

from benchmarks.peers.sb3_way import Told


class Hidden(BaseFeaturesExtractor):  # type: ignore[misc]
    """The hidden layers of our network, which actor and critic share."""

    def __init__(self, space: Any, dense: list[int]) -> None:
        super().__init__(space, dense[-1])
        sizes = [int(np.prod(space.shape)), *dense]
        layers = [(torch.nn.Linear(*pair), torch.nn.ReLU()) for pair in itertools.pairwise(sizes)]
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), *(part for pair in layers for part in pair))

    def forward(self, seen: Any) -> Any:
        return self.layers(seen)


def environments(experiment: dict[str, Any]) -> Any:
    """Return the environments side by side; of pixels, preprocessed and with the last four pictures."""
    if not experiment["pixels"]:
        return make_vec_env(experiment["id"], experiment["ppo"]["envs"], seed=1)
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    envs = make_vec_env(
        experiment["id"], experiment["ppo"]["envs"], seed=1, env_kwargs={"frameskip": 1},
        wrapper_class=AtariPreprocessing, wrapper_kwargs={"grayscale_newaxis": True},
    )  # fmt: skip
    return VecFrameStack(envs, 4)


def main(described: str, frames: str) -> None:
    """Learn what the experiment of a JSON object says."""
    experiment = json.loads(described)
    torch.set_num_threads(experiment["threads"])
    ppo = experiment["ppo"]
    hidden = {"features_extractor_class": Hidden, "features_extractor_kwargs": {"dense": experiment["dense"]}}
    model = PPO(
        "CnnPolicy" if experiment["pixels"] else "MlpPolicy", environments(experiment), n_steps=ppo["horizon"],
        batch_size=ppo["envs"] * ppo["horizon"] // ppo["minibatches"],
        n_epochs=ppo["epochs"], learning_rate=ppo["learning_rate"], gamma=ppo["gamma"], gae_lambda=ppo["gae_lambda"],
        clip_range=ppo["clip_range"], ent_coef=ppo["entropy_coefficient"], vf_coef=ppo["value_coefficient"],
        max_grad_norm=ppo["max_gradient_norm"], device="cpu", seed=1,
        policy_kwargs={"net_arch": [], **({} if experiment["pixels"] else hidden)},
    )  # fmt: skip
    model.learn(1 << 40, callback=Told(math.inf, int(frames), math.inf))


if __name__ == "__main__":
    main(*sys.argv[1:])
