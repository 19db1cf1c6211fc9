"""PPO by Stable-Baselines3 on our game: the peer, given our own compiled boards, so that it waits for no environment.

    python -m benchmarks.peers.sb3_way EXPERIMENT.json SECONDS FRAMES RETURN

Prints a JSON line a rollout: frames and the mean return of the last hundred episodes; ends by whichever limit
is reached first.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from benchmarks.peers.torch_network import trunk
from snake import SnakeVectorEnv


class Boards(VecEnv):  # type: ignore[misc]
    """Our compiled boards as Stable-Baselines3 wants them: planes first, finals in `infos`."""

    def __init__(self, count: int, options: dict[str, Any], seed: int) -> None:
        self.first_seed = seed
        self.boards = SnakeVectorEnv(num_envs=count, autoreset_mode="SameStep", **options)
        seen, played = self.boards.single_observation_space, self.boards.single_action_space
        assert isinstance(seen, gymnasium.spaces.Box)
        height, width, planes = seen.shape
        space = gymnasium.spaces.Box(0.0, 1.0, (planes, height, width), np.float32)
        super().__init__(count, space, played)

    def reset(self) -> Any:
        seen, _ = self.boards.reset(seed=self.first_seed)
        return np.moveaxis(seen, -1, 1)

    def step_async(self, actions: Any) -> None:
        self.actions = actions

    def step_wait(self) -> Any:
        seen, rewards, terminated, truncated, info = self.boards.step(self.actions)
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(done):
            infos[i]["terminal_observation"] = np.moveaxis(info["final_obs"][i], -1, 0)
            infos[i]["TimeLimit.truncated"] = bool(truncated[i])
        return np.moveaxis(seen, -1, 1), rewards.astype(np.float32), done, infos

    def close(self) -> None:
        self.boards.close()

    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, name: str, *arguments: Any, indices: Any = None, **options: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Trunk(BaseFeaturesExtractor):  # type: ignore[misc]
    """The hidden layers of our network."""

    def __init__(self, space: Any, policy: dict[str, Any]) -> None:
        super().__init__(space, policy["dense"][-1])
        planes, side, _ = space.shape
        self.layers = torch.nn.Sequential(
            *trunk((side, side, planes), policy["conv"], policy["dense"], policy["padding"])
        )

    def forward(self, seen: Any) -> Any:
        return self.layers(seen)


class Told(BaseCallback):  # type: ignore[misc]
    """Prints how far learning has come at the end of every rollout."""

    def __init__(self, seconds: float, frames: int, good: float) -> None:
        super().__init__()
        self.seconds, self.frames, self.good = seconds, frames, good
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        recent = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        mean = float(np.mean(recent)) if recent else float("nan")
        passed = time.perf_counter() - self.began
        print(json.dumps({"frames": self.num_timesteps, "mean": mean}), flush=True)
        if passed > self.seconds or self.num_timesteps >= self.frames or mean >= self.good:
            sys.exit(0)


def main(described: str, seconds: str, frames: str, good: str) -> None:
    """Learn what the experiment of a JSON object says."""
    experiment = json.loads(described)
    torch.set_num_threads(experiment["threads"])
    ppo = experiment["ppo"]
    boards = VecMonitor(Boards(ppo["envs"], experiment["environment"], experiment["seed"]))
    model = PPO(
        "MlpPolicy", boards, n_steps=ppo["horizon"], batch_size=ppo["envs"] * ppo["horizon"] // ppo["minibatches"],
        n_epochs=ppo["epochs"], learning_rate=ppo["learning_rate"], gamma=ppo["gamma"], gae_lambda=ppo["gae_lambda"],
        clip_range=ppo["clip_range"], ent_coef=ppo["entropy_coefficient"], vf_coef=ppo["value_coefficient"],
        max_grad_norm=ppo["max_gradient_norm"], device="cpu", seed=experiment["seed"],
        policy_kwargs={
            "features_extractor_class": Trunk,
            "features_extractor_kwargs": {"policy": experiment["policy"]},
            "net_arch": [],
            "normalize_images": False,
        },
    )  # fmt: skip
    model.learn(1 << 40, callback=Told(float(seconds), int(frames), float(good)))


if __name__ == "__main__":
    main(*sys.argv[1:])
