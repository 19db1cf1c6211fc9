"""PPO with a GRU in JAX, in the way of PureJaxRL's `ppo_rnn`, on gymnax's CartPole without velocities.

    python -m benchmarks.peers.purejaxrl_gru EXPERIMENT.json SECONDS FRAMES RETURN

Playing and learning are one function that XLA compiles. Minibatches are pieces of `bptt` steps that begin with the
state that was recorded, as ours are. Prints a JSON line a rollout, as `benchmarks.peers.sb3_way` does.
"""

from __future__ import annotations

import json
import sys
import time
from collections import namedtuple
from functools import partial
from typing import Any

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import optax

POSITIONS = jnp.array([0, 2])  # of the numbers of an observation
EPISODES = 100  # newest ones, of which the mean return is printed; as Stable-Baselines3


# Of all environments, [T, B] each: what the policy saw, did and got, and the state before.
Steps = namedtuple("Steps", "seen begins action log value reward done state")


class InTime(nn.Module):  # type: ignore[misc]
    """A GRU over steps; its state is zero where an episode begins."""

    @partial(nn.scan, variable_broadcast="params", in_axes=0, out_axes=0, split_rngs={"params": False})
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, state: Any, step: Any) -> Any:
        seen, begins = step
        return nn.GRUCell(state.shape[-1])(jnp.where(begins[:, None], 0.0, state), seen)


class Network(nn.Module):  # type: ignore[misc]
    """A GRU, then scores of actions and a value."""

    actions: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, state: Any, seen: Any, begins: Any) -> Any:
        state, hidden = InTime()(state, (seen, begins))
        return state, nn.Dense(self.actions)(hidden), nn.Dense(1)(hidden)[..., 0]


def learning(ppo: dict[str, Any], units: int) -> tuple[Any, Any]:
    """Return functions that begin, of a key, and that play and learn once."""
    env, params = gymnax.make("CartPole-v1")
    network, envs = Network(env.num_actions), ppo["envs"]
    pieces = ppo["horizon"] * envs // ppo["bptt"]
    optimizer = optax.chain(optax.clip_by_global_norm(ppo["max_gradient_norm"]), optax.adam(ppo["learning_rate"]))
    advance = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def begin(key: Any) -> Any:
        seen, games = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, envs), params)
        state, begins = jnp.zeros((envs, units)), jnp.ones(envs, bool)
        weights = network.init(key, state, seen[None, :, POSITIONS], begins[None])
        scale = jnp.zeros(envs), jnp.zeros(envs), jnp.array([0.0, 1.0, 1e-4])  # returns, discounted ones, moments
        return weights, optimizer.init(weights), (games, seen[:, POSITIONS], begins, state, scale, key)

    def step(weights: Any, carried: Any, _: Any) -> Any:
        games, seen, begins, state, (total, discounted, moments), key = carried
        key, choose, move = jax.random.split(key, 3)
        after, scores, value = network.apply(weights, state, seen[None], begins[None])
        action = jax.random.categorical(choose, scores[0])
        log = jnp.take_along_axis(jax.nn.log_softmax(scores[0]), action[:, None], 1)[:, 0]
        moves = jax.random.split(move, envs)
        later, games, reward, terminated, truncated, _ = advance(moves, games, action, params)
        done = terminated | truncated
        total, discounted = total + reward, discounted * ppo["gamma"] + reward
        mean, variance, count = moments  # running ones of discounted returns (Chan, Golub and LeVeque, 1979)
        apart, n = discounted.mean() - mean, count + envs
        variance = (variance * count + discounted.var() * envs + apart**2 * count * envs / n) / n
        reward = reward / jnp.sqrt(variance + 1e-8) if ppo["normalise_rewards"] else reward
        row = Steps(seen, begins, action, log, value[0], reward, done, jnp.where(begins[:, None], 0.0, state))
        moments = jnp.array([mean + apart * envs / n, variance, n])
        scale = jnp.where(done, 0.0, total), jnp.where(done, 0.0, discounted), moments
        return (games, later[:, POSITIONS], done, after, scale, key), (row, jnp.where(done, total, jnp.nan))

    def loss(weights: Any, batch: Any) -> Any:
        steps, advantage, target = batch
        _, scores, value = network.apply(weights, steps.state[0], steps.seen, steps.begins)
        logs = jax.nn.log_softmax(scores)
        ratio = jnp.exp(jnp.take_along_axis(logs, steps.action[..., None], -1)[..., 0] - steps.log)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - ppo["clip_range"], 1 + ppo["clip_range"])
        policy = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
        value_loss = 0.5 * ((value - target) ** 2).mean()
        return policy + ppo["value_coefficient"] * value_loss - ppo["entropy_coefficient"] * entropy

    def update(whole: Any, learned: Any, rows: Any) -> Any:
        weights, moments = learned
        batch = jax.tree.map(lambda x: x[:, rows], whole)
        changes, moments = optimizer.update(jax.grad(loss)(weights, batch), moments)
        return (optax.apply_updates(weights, changes), moments), None

    @jax.jit  # type: ignore[untyped-decorator]
    def generation(weights: Any, moments: Any, carried: Any) -> Any:
        carried, (steps, ended) = jax.lax.scan(partial(step, weights), carried, None, ppo["horizon"])
        _, seen, begins, state, _, _ = carried
        _, _, last = network.apply(weights, state, seen[None], begins[None])

        def back(after: Any, row: Any) -> Any:
            advantage, value = after
            going_on = ppo["gamma"] * (1.0 - row.done)
            advantage = row.reward + going_on * (value + ppo["gae_lambda"] * advantage) - row.value
            return (advantage, row.value), advantage

        _, advantage = jax.lax.scan(back, (jnp.zeros(envs), last[0]), steps, reverse=True)

        def cut(x: Any) -> Any:  # [T, B, ...] -> [bptt, pieces, ...]
            parts = x.reshape(-1, ppo["bptt"], *x.shape[1:])
            return jnp.moveaxis(parts, 1, 0).reshape(ppo["bptt"], pieces, *x.shape[2:])

        whole = jax.tree.map(cut, (steps, advantage, advantage + steps.value))
        keys = jax.random.split(carried[-1], ppo["epochs"] + 1)
        order = jax.vmap(partial(jax.random.permutation, x=pieces))(keys[1:]).reshape(-1, pieces // ppo["minibatches"])
        learned, _ = jax.lax.scan(partial(update, whole), (weights, moments), order)
        return *learned, (*carried[:-1], keys[0]), ended

    return begin, generation


def main(described: str, seconds: str, frames: str, good: str) -> None:
    """Learn what the experiment of a JSON object says."""
    experiment, began, newest = json.loads(described), time.perf_counter(), jnp.empty(0)
    ppo, done, mean = experiment["ppo"], 0, float("nan")
    begin, generation = learning(ppo, experiment["units"])
    weights, moments, carried = begin(jax.random.key(experiment["seed"]))
    while True:
        print(json.dumps({"frames": done, "mean": mean}), flush=True)
        if time.perf_counter() - began > float(seconds) or done >= int(frames) or mean >= float(good):
            sys.exit(0)
        weights, moments, carried, ended = generation(weights, moments, carried)
        newest = jnp.concatenate([newest, ended[~jnp.isnan(ended)]])[-EPISODES:]
        done, mean = done + ppo["envs"] * ppo["horizon"], float(newest.mean())


if __name__ == "__main__":
    main(*sys.argv[1:])
