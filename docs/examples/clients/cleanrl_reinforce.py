"""A policy gradient in one file, in CleanRL's pattern, learns Catch in Gymnasium's vector interface."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch

import evo.games  # noqa: F401


def main() -> None:
    """Learn for a few seconds, and print the mean return of the newest episodes."""
    torch.manual_seed(1)
    envs = gymnasium.make_vec("evo/catch-v0", 64, autoreset_mode="SameStep")
    size, actions = int(np.prod(envs.single_observation_space.shape)), int(envs.single_action_space.n)
    policy = torch.nn.Sequential(torch.nn.Linear(size, 32), torch.nn.ReLU(), torch.nn.Linear(32, actions))
    optimiser = torch.optim.Adam(policy.parameters(), 0.01)
    seen, _ = envs.reset(seed=1)
    returns: list[float] = []
    for _ in range(300):
        chances, rewards = [], []
        for _ in range(9):  # an episode of Catch has nine steps, and all of them begin together
            drawn = torch.distributions.Categorical(logits=policy(torch.from_numpy(seen.reshape(64, -1))))
            action = drawn.sample()
            seen, reward, *_ = envs.step(action.numpy())
            chances.append(drawn.log_prob(action))
            rewards.append(reward)
        gained = torch.from_numpy(np.sum(rewards, axis=0)).float()
        loss = -((gained - gained.mean()) * torch.stack(chances).sum(0)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        returns.append(float(gained.mean()))
    print(f"mean return {np.mean(returns[-20:]):.2f} of 1")
    assert np.mean(returns[-20:]) > 0.5


if __name__ == "__main__":
    main()
