"""The ways of EvoJAX and evosax to play a population, on Jumanji's Snake: compiled by XLA, a fixed number of steps.

EvoJAX: its own SimManager, which gives every episode a copy of its candidate's weights. evosax: all candidates and
their episodes in one scan. Both play finished episodes on to the end, and so are their frames counted apart from those
that were computed. Boards are seen as our planes or our frame, so that weights mean the same.

The usual form is `vmap` of convolutions. The other forms give the same scores; the fastest one on this machine is
measured too.
"""

from __future__ import annotations

import logging
import time
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from evojax.policy.base import PolicyNetwork
from evojax.sim_mgr import SimManager
from evojax.task.base import VectorizedTask
from flax import struct
from jumanji.environments import Snake

from benchmarks.peers import answer
from benchmarks.peers.jax_network import FORMS, USUAL, scorer

Record = TypeVar("Record")


@dataclass_transform(frozen_default=True)
def record(kind: type[Record]) -> type[Record]:
    """Return a class as a dataclass whose values JAX looks into."""
    made: type[Record] = struct.dataclass(kind)
    return made


@record
class Episode:
    """One game, and what was counted of it until it ended."""

    state: Any
    obs: Any
    hunger: Any
    fruits: Any
    steps: Any
    over: Any


class Game(VectorizedTask):  # type: ignore[misc]
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
        played: tuple[Any, Any, Any] = self._step(state, action)
        return played

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


def fastest(policy: dict[str, Any], flat: Any, episodes: int) -> str:
    """Return the form that scores one step of all episodes in the shortest time, least of five; all score alike."""
    seen = jax.random.uniform(jax.random.PRNGKey(0), (len(flat), episodes, *policy["shape"]))
    took: dict[str, float] = {}
    usual = jax.jit(scorer(policy, USUAL))(flat, seen)
    for form in FORMS:
        score = jax.jit(scorer(policy, form))
        if not jnp.allclose(score(flat, seen), usual, rtol=1e-3, atol=1e-3 * jnp.abs(usual).max()):
            raise RuntimeError(f"{form}: other scores than {USUAL}")
        for _ in range(5):
            began = time.perf_counter()
            score(flat, seen).block_until_ready()
            took[form] = min(took.get(form, 9e9), time.perf_counter() - began)
    return min(took, key=lambda form: took[form])


class Network(PolicyNetwork):  # type: ignore[misc]
    """A policy of EvoJAX's, which is given a copy of its candidate's weights for every episode.

    As in EvoJAX's own policies it scores each copy by itself in the usual form; in others one copy a candidate.
    """

    def __init__(self, policy: dict[str, Any], form: str, episodes: int) -> None:
        self.num_params, self._episodes = policy["size"], 1 if form == USUAL else episodes
        self._score = scorer(policy, form)

    def get_actions(self, t_states: Any, params: Any, p_states: Any) -> tuple[Any, Any]:
        """Return the best action of every episode."""
        seen = t_states.obs.reshape(-1, self._episodes, *t_states.obs.shape[1:])
        return jnp.argmax(self._score(params[:: self._episodes], seen), -1).reshape(-1), p_states


class Ways:
    """Both ways for one network; compiled once."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def play(
        self, way: str, form: str, policy: dict[str, Any], size: int, steps: int, episodes: int, weights: str
    ) -> Any:
        """Return what candidates of a file of weights [K, P] did, and how long it took; form: "usual" or "fastest"."""
        flat = jnp.asarray(np.load(weights))
        key = f"{way} {form} {policy} {len(flat)} {episodes}"
        if key not in self._made:
            game = Game(size, steps, policy["shape"][-1] == 5)
            chosen = USUAL if form == "usual" else fastest(policy, flat, episodes)
            make = self._evojax if way == "EvoJAX" else self._evosax
            self._made[key] = chosen, make(game, policy, chosen, len(flat), episodes)
            jax.block_until_ready(self._made[key][1](flat))  # compiles
        chosen, made = self._made[key]
        began = time.perf_counter()
        played = jax.block_until_ready(made(flat))
        took = time.perf_counter() - began
        return {
            "seconds": took,
            "frames": int(played.steps.sum()),
            "computed": steps * episodes * len(flat),
            "fruits": np.asarray(played.fruits).ravel().tolist(),
            "lengths": np.asarray(played.steps).ravel().tolist(),
            "form": chosen,
        }

    def _evojax(self, game: Game, policy: dict[str, Any], form: str, candidates: int, episodes: int) -> Any:
        quiet = logging.getLogger("evojax")
        quiet.setLevel(logging.WARNING)
        network = Network(policy, form, episodes)
        manager = SimManager(episodes, 1, candidates, 1, network, game, game, seed=0, logger=quiet)
        return lambda flat: manager.eval_params(flat, test=False)[1]

    def _evosax(self, game: Game, policy: dict[str, Any], form: str, candidates: int, episodes: int) -> Any:
        score, begin, advance = scorer(policy, form), jax.vmap(game.begin), jax.vmap(jax.vmap(game.advance))

        def whole(weights: Any, keys: Any) -> Any:
            def step(now: Any, _: Any) -> Any:
                return advance(now, jnp.argmax(score(weights, now.obs), -1))[0], None

            first = jax.tree.map(lambda x: jnp.broadcast_to(x, (candidates, *x.shape)), begin(keys))
            return jax.lax.scan(step, first, None, game.max_steps)[0]

        play, keys = jax.jit(whole), iter(range(1 << 30))
        return lambda flat: play(flat, jax.random.split(jax.random.PRNGKey(next(keys)), episodes))


if __name__ == "__main__":
    answer(Ways().play)
