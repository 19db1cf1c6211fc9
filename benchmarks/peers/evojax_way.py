"""The ways of EvoJAX and evosax to play a population, on Jumanji's Snake: compiled by XLA, a fixed number of steps.

EvoJAX: its own SimManager, which gives every episode a copy of its candidate's weights. evosax: `vmap` over candidates
and, inside of it, over episodes, in one scan. Both play finished episodes on to the end, and so are their frames
counted apart from those that were computed. Boards are seen as our planes or our frame, so that weights mean the same.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from evojax.policy.base import PolicyNetwork
from evojax.sim_mgr import SimManager
from evojax.task.base import VectorizedTask
from flax import struct
from jumanji.environments import Snake

from benchmarks.peers import answer


@struct.dataclass
class Episode:
    """One game, and what was counted of it until it ended."""

    state: Any
    obs: Any
    hunger: Any
    fruits: Any
    steps: Any
    over: Any


class Game(VectorizedTask):
    """Jumanji's Snake, seen as our networks see it, and over after `steps`."""

    def __init__(self, size: int, steps: int, planes: bool) -> None:
        self.env, self.max_steps, self.planes = Snake(size, size, steps), steps, planes
        self.obs_shape, self.act_shape, self.test = (size, size, 5 if planes else 1), (4,), False
        self.size = size
        self._reset, self._step = jax.jit(jax.vmap(self.begin)), jax.jit(jax.vmap(self.advance))

    def reset(self, key: Any) -> Any:
        """Return fresh games of keys [B, 2]."""
        return self._reset(key)

    def step(self, state: Any, action: Any) -> tuple[Any, Any, Any]:
        """Return all games after actions [B], with what that earned, and which are over."""
        return self._step(state, action)

    def seen(self, state: Any, hunger: Any) -> Any:
        """Return planes (head, body, age, fruit, hunger), or the one plane that numbers them."""
        head = jnp.zeros((self.size, self.size)).at[tuple(state.head_position)].set(1.0)
        fruit = jnp.zeros((self.size, self.size)).at[tuple(state.fruit_position)].set(1.0)
        body = (state.body_state > 0) * (1.0 - head)
        if not self.planes:
            return (head + 2 * fruit + 3 * body)[..., None]
        age = state.body_state / self.size**2
        return jnp.stack([head, body, age, fruit, jnp.full_like(head, hunger / self.max_steps)], -1)

    def begin(self, key: Any) -> Episode:
        """Return a fresh game."""
        state, _ = self.env.reset(key)
        zero = jnp.int32(0)
        return Episode(state, self.seen(state, 0), zero, zero, zero, jnp.int32(0))

    def advance(self, episode: Episode, action: Any) -> tuple[Episode, Any, Any]:
        """Return the game after an action, what that earned, and whether it is over."""
        state, timestep = self.env.step(episode.state, action)
        ate = timestep.reward > 0
        hunger = jnp.where(ate, 0, episode.hunger + 1)
        alive = 1 - episode.over
        done = timestep.last().astype(jnp.int32)
        after = Episode(
            state, self.seen(state, hunger), hunger, episode.fruits + alive * ate, episode.steps + alive,
            jnp.maximum(episode.over, done),
        )  # fmt: skip
        return after, timestep.reward, done


def scores(policy: dict[str, Any], weights: Any, x: Any) -> Any:
    """Return the scores of observations [B, H, W, C] by one flat vector, in the order of Keras.  # [B, A]"""
    start = 0

    def take(*shape: int) -> Any:
        nonlocal start
        start += int(np.prod(shape))
        return weights[start - int(np.prod(shape)) : start].reshape(shape)

    for filters, kernel, stride in policy["conv"]:
        kernels, bias = take(kernel, kernel, x.shape[-1], filters), take(filters)
        dimensions = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(
            x, kernels, (stride, stride), policy["padding"].upper(), dimension_numbers=dimensions
        )
        x = jax.nn.relu(x + bias)
    x = x.reshape(len(x), -1)
    for units in policy["dense"]:
        x = jax.nn.relu(x @ take(x.shape[-1], units) + take(units))
    return x @ take(x.shape[-1], policy["outputs"]) + take(policy["outputs"])


class Network(PolicyNetwork):
    """A policy of EvoJAX's: one candidate's weights for every episode."""

    def __init__(self, policy: dict[str, Any]) -> None:
        self.num_params = policy["size"]
        self._scores = jax.vmap(lambda weights, x: scores(policy, weights, x[None])[0])

    def get_actions(self, t_states: Any, params: Any, p_states: Any) -> tuple[Any, Any]:
        """Return the best action of every episode."""
        return jnp.argmax(self._scores(params, t_states.obs), -1), p_states


class Ways:
    """Both ways for one network; compiled once."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def play(self, way: str, policy: dict[str, Any], size: int, steps: int, episodes: int, weights: str) -> Any:
        """Return what candidates of a file of weights [K, P] did, and how long it took."""
        flat = jnp.asarray(np.load(weights))
        key = f"{way} {policy} {len(flat)} {episodes}"
        if key not in self._made:
            game = Game(size, steps, policy["shape"][-1] == 5)
            made = self._evojax(game, policy, len(flat), episodes) if way == "EvoJAX" else self._evosax(game, policy)
            self._made[key] = partial(made, episodes=episodes)
            jax.block_until_ready(self._made[key](flat))  # compiles
        began = time.perf_counter()
        played = jax.block_until_ready(self._made[key](flat))
        took = time.perf_counter() - began
        return {
            "seconds": took,
            "frames": int(played.steps.sum()),
            "computed": steps * episodes * len(flat),
            "fruits": np.asarray(played.fruits).ravel().tolist(),
            "lengths": np.asarray(played.steps).ravel().tolist(),
        }

    def _evojax(self, game: Game, policy: dict[str, Any], candidates: int, episodes: int) -> Any:
        quiet = logging.getLogger("evojax")
        quiet.setLevel(logging.WARNING)
        manager = SimManager(episodes, 1, candidates, 1, Network(policy), game, game, seed=0, logger=quiet)
        return lambda flat, episodes: manager.eval_params(flat, test=False)[1]

    def _evosax(self, game: Game, policy: dict[str, Any]) -> Any:
        def one(weights: Any, keys: Any) -> Any:
            def step(now: Any, _: Any) -> Any:
                return jax.vmap(game.advance)(now, jnp.argmax(scores(policy, weights, now.obs), -1))[0], None

            return jax.lax.scan(step, jax.vmap(game.begin)(keys), None, game.max_steps)[0]

        whole = jax.jit(jax.vmap(one, (0, None)))
        keys = iter(range(1 << 30))
        return lambda flat, episodes: whole(flat, jax.random.split(jax.random.PRNGKey(next(keys)), episodes))


if __name__ == "__main__":
    answer(Ways().play)
