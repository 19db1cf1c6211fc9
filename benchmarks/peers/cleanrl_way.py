"""PPO in the way of CleanRL's single files, in PyTorch, on our compiled boards.

    python -m benchmarks.peers.cleanrl_way EXPERIMENT.json SECONDS FRAMES RETURN

Prints a JSON line a rollout: frames and the mean return of the last hundred episodes; ends by whichever limit
is reached first. As there, an episode that is truncated counts as ended.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch.distributions.categorical import Categorical

from benchmarks.peers.torch_network import trunk
from snake import SnakeVectorEnv


def initialised(layer: Any, deviation: float = 2.0**0.5) -> Any:
    """Return a layer with orthogonal weights and biases of 0."""
    torch.nn.init.orthogonal_(layer.weight, deviation)
    torch.nn.init.constant_(layer.bias, 0.0)
    return layer


class Agent(torch.nn.Module):  # type: ignore[misc]
    """A trunk with two heads."""

    def __init__(self, shape: tuple[int, ...], actions: int, policy: dict[str, Any]) -> None:
        super().__init__()
        layers = trunk(shape, policy["conv"], policy["dense"], policy["padding"])
        weighted = (torch.nn.Conv2d, torch.nn.Linear)
        self.trunk = torch.nn.Sequential(*(initialised(x) if isinstance(x, weighted) else x for x in layers))
        self.actor = initialised(torch.nn.Linear(policy["dense"][-1], actions), 0.01)
        self.critic = initialised(torch.nn.Linear(policy["dense"][-1], 1), 1.0)

    def value(self, seen: Any) -> Any:
        return self.critic(self.trunk(seen)).view(-1)

    def act(self, seen: Any, action: Any = None) -> tuple[Any, Any, Any, Any]:
        """Return actions, their log probabilities, entropies and values."""
        hidden = self.trunk(seen)
        chances = Categorical(logits=self.actor(hidden))
        if action is None:
            action = chances.sample()
        return action, chances.log_prob(action), chances.entropy(), self.critic(hidden).view(-1)


def planes_first(seen: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(seen, -1, 1)))


def main(described: str, seconds: str, frames: str, good: str) -> None:
    """Learn what the experiment of a JSON object says."""
    experiment = json.loads(described)
    torch.set_num_threads(experiment["threads"])
    torch.manual_seed(1)
    ppo = experiment["ppo"]
    lanes, horizon = ppo["envs"], ppo["horizon"]
    boards = SnakeVectorEnv(num_envs=lanes, autoreset_mode="SameStep", **experiment["environment"])
    shown, choices = boards.single_observation_space, boards.single_action_space
    assert isinstance(shown, Box)
    assert isinstance(choices, Discrete)
    shape = shown.shape
    agent = Agent(shape, int(choices.n), experiment["policy"])
    optimizer = torch.optim.Adam(agent.parameters(), lr=ppo["learning_rate"], eps=1e-5)
    observed = torch.zeros((horizon, lanes, shape[2], shape[0], shape[1]))
    actions = torch.zeros((horizon, lanes), dtype=torch.long)
    logs, rewards, dones, values = (torch.zeros((horizon, lanes)) for _ in range(4))
    recent: deque[float] = deque(maxlen=100)
    returns = np.zeros(lanes)
    next_seen, next_done = planes_first(boards.reset(seed=1)[0]), torch.zeros(lanes)
    began, played = time.perf_counter(), 0
    while True:
        mean, passed = float(np.mean(recent)) if recent else float("nan"), time.perf_counter() - began
        print(json.dumps({"frames": played, "mean": mean}), flush=True)
        if passed > float(seconds) or played >= int(frames) or mean >= float(good):
            return
        for step in range(horizon):
            observed[step], dones[step] = next_seen, next_done
            with torch.no_grad():
                actions[step], logs[step], _, values[step] = agent.act(next_seen)
            seen, returns_so_far, terminated, truncated, _ = boards.step(actions[step].numpy())
            returns += returns_so_far
            for lane in np.flatnonzero(terminated | truncated):
                recent.append(float(returns[lane]))
                returns[lane] = 0
            rewards[step] = torch.as_tensor(returns_so_far, dtype=torch.float32)
            next_seen, next_done = planes_first(seen), torch.from_numpy((terminated | truncated).astype(np.float32))
        played += lanes * horizon
        with torch.no_grad():
            next_value, last = agent.value(next_seen), torch.zeros(lanes)
        advantages = torch.zeros_like(rewards)
        for step in reversed(range(horizon)):
            alive = 1.0 - (next_done if step == horizon - 1 else dones[step + 1])
            after = next_value if step == horizon - 1 else values[step + 1]
            delta = rewards[step] + ppo["gamma"] * after * alive - values[step]
            advantages[step] = last = delta + ppo["gamma"] * ppo["gae_lambda"] * alive * last
        update(agent, optimizer, ppo, observed, actions, logs, advantages, advantages + values)


def update(agent: Agent, optimizer: Any, ppo: dict[str, Any], *batch: Any) -> None:
    """Learn from one rollout."""
    seen, actions, logs, advantages, targets = (array.reshape(-1, *array.shape[2:]) for array in batch)
    size = len(actions) // ppo["minibatches"]
    for _ in range(ppo["epochs"]):
        order = torch.randperm(len(actions))
        for start in range(0, len(actions), size):
            part = order[start : start + size]
            _, log, entropy, value = agent.act(seen[part], actions[part])
            ratio = (log - logs[part]).exp()
            advantage = advantages[part]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = torch.clamp(ratio, 1 - ppo["clip_range"], 1 + ppo["clip_range"])
            policy_loss = torch.max(-advantage * ratio, -advantage * clipped).mean()
            value_loss = 0.5 * ((value - targets[part]) ** 2).mean()
            loss = policy_loss - ppo["entropy_coefficient"] * entropy.mean() + ppo["value_coefficient"] * value_loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(agent.parameters(), ppo["max_gradient_norm"])
            optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
