"""Games of several players behind PettingZoo's interfaces: players that alternate, or that move simultaneously.

It needs PettingZoo, the extra `pettingzoo`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from evo.games.envs import GameEnv, Info

Actions = dict[str, Any]


def env(game: str, render_mode: str | None = None, **options: Any) -> Any:
    """Return a game of several players, as "evo/duel-v0" with options, as PettingZoo's `AECEnv`, or a ValueError."""
    made, alternates = _made(game, render_mode, options)
    return AlternatingEnv(made) if alternates else parallel_to_aec(SimultaneousEnv(made))


def parallel_env(game: str, render_mode: str | None = None, **options: Any) -> Any:
    """Return a game whose players move simultaneously as PettingZoo's `ParallelEnv`; ValueError where they do not."""
    made, alternates = _made(game, render_mode, options)
    if alternates:
        raise ValueError(f"players of {game} do not move simultaneously: call evo.games.pettingzoo.env")
    return SimultaneousEnv(made)


def _made(game: str, render_mode: str | None, options: dict[str, Any]) -> tuple[GameEnv, bool]:
    made = gymnasium.make(game, render_mode=render_mode, disable_env_checker=True, **options).unwrapped
    if not isinstance(made, GameEnv) or made.definition.author is None:
        raise ValueError(f"{game} is no game of several players: call gymnasium.make")
    return made, made.definition.author.turn is not None


class _Players:
    """What both interfaces have: agents with their spaces, and what each of them is shown.

    Where a game has a mask, an observation is a dictionary of `observation` and `action_mask`, as in PettingZoo.
    """

    def __init__(self, game: GameEnv) -> None:
        super().__init__()
        author = game.definition.author
        assert author is not None
        self._game, self._masked = game, author.mask is not None
        self.possible_agents = [f"player_{player}" for player in range(author.players)]
        self.agents: list[str] = []
        self.render_mode = game.render_mode
        simultaneous, name = author.turn is None, author.module.rpartition(".")[2]
        self._actions = int(game.action_space.n)  # type: ignore[attr-defined]
        self.metadata: Info = {**game.metadata, "name": name, "is_parallelizable": simultaneous}
        self.observation_spaces = {agent: self._space() for agent in self.possible_agents}
        self.action_spaces = {agent: gymnasium.spaces.Discrete(self._actions) for agent in self.possible_agents}

    def _space(self) -> Any:
        seen: Any = self._game.observation_space
        seen = Box(seen.low, seen.high, seen.shape, seen.dtype)  # of its own, for each agent draws samples of its own
        return Dict(observation=seen, action_mask=Box(0, 1, (self._actions,), np.int8)) if self._masked else seen

    def observation_space(self, agent: str) -> Any:
        """Return what observations of an agent are."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Return what actions of an agent are."""
        return self.action_spaces[agent]

    def render(self) -> Any:
        """Return what `render_mode` asks for: pixels, uint8 [H, W, 3], or text; human is shown at once."""
        return self._game.render()

    def close(self) -> None:
        """Release nothing."""

    def _seen(self, agent: str, may_move: bool = True) -> NDArray[np.float32] | Info:
        seen, mask, _ = self._game.seen_by(self.possible_agents.index(agent))
        return {"observation": seen, "action_mask": mask * np.int8(may_move)} if self._masked else seen

    def _metrics(self) -> dict[str, Info]:
        return {agent: self._game.seen_by(player)[2] for player, agent in enumerate(self.possible_agents)}


class AlternatingEnv(_Players, AECEnv):  # type: ignore[misc]  # PettingZoo is seldom installed where types are checked
    """A game whose players alternate. At the end of an episode, `infos` have the metrics of every agent's seat."""

    def reset(self, seed: int | None = None, options: Info | None = None) -> None:
        """Begin the episode of a seed; without one, the next episode of the sequence."""
        self._game.reset(seed=seed, options=options)
        self.agents = self.possible_agents[:]
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[str, Info] = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[self._game.player]

    def observe(self, agent: str) -> NDArray[np.float32] | Info:
        """Return what an agent sees; only who is on turn has actions that are allowed."""
        over = self.terminations.get(agent, True) or self.truncations.get(agent, True)
        return self._seen(agent, agent == self.agent_selection and not over)

    def step(self, action: Any) -> None:
        """Play the action of the agent that is on turn, None where the episode is over."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        _, _, terminated, truncated, _ = self._game.step(action)
        self._cumulative_rewards[agent] = 0.0
        self.rewards = dict(zip(self.agents, self._game.rewards(), strict=True))
        self._accumulate_rewards()
        self.agent_selection = self.agents[self._game.player]
        if terminated or truncated:
            self.terminations = dict.fromkeys(self.agents, terminated)
            self.truncations = dict.fromkeys(self.agents, truncated)
            self.infos = self._metrics()


class SimultaneousEnv(_Players, ParallelEnv):  # type: ignore[misc]  # as above
    """A game whose players move simultaneously. At the end, `infos` have the metrics of every agent's seat."""

    def reset(self, seed: int | None = None, options: Info | None = None) -> tuple[dict[str, Any], dict[str, Info]]:
        """Begin the episode of a seed; without one, the next episode of the sequence."""
        self._game.reset(seed=seed, options=options)
        self.agents = self.possible_agents[:]
        return {agent: self._seen(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(
        self, actions: Actions
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]:
        """Play an action of every agent; return observations, rewards, terminations, truncations and infos.

        ValueError, before anything is played: an agent is missing, or there is no such action.
        """
        agents, terminated, truncated = self.agents, False, False
        for agent in agents:
            if agent not in actions:
                raise ValueError(f"actions: there is none of {agent}")
            try:
                self._game.check(actions[agent])
            except ValueError as error:
                raise ValueError(f"actions: {agent}: {error}") from None
        rewards = [0.0] * len(agents)
        for agent in agents:
            if not truncated:  # which may be before the last one has moved
                _, _, terminated, truncated, _ = self._game.step(actions[agent])
                rewards = self._game.rewards() if agent == agents[-1] else rewards
        over = terminated or truncated
        seen = {agent: self._seen(agent) for agent in agents}
        infos = self._metrics() if over else {agent: {} for agent in agents}
        self.agents = [] if over else agents
        ends = dict.fromkeys(agents, terminated), dict.fromkeys(agents, truncated)
        return seen, dict(zip(agents, rewards, strict=True)), *ends, infos
