"""The game of Snake: rules, compiled boards, observations, Gymnasium environments, players and pictures.

`import snake` registers "evo/Snake-v0" with Gymnasium and compiles nothing: what needs Numba loads when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

if TYPE_CHECKING:
    from snake.envs import SnakeEnv as SnakeEnv
    from snake.envs import SnakeVectorEnv as SnakeVectorEnv
    from snake.players import PLAYERS as PLAYERS
    from snake.players import play as play
    from snake.rules import Game as Game

PUBLIC = {
    "Game": "snake.rules",
    "PLAYERS": "snake.players",
    "SnakeEnv": "snake.envs",
    "SnakeVectorEnv": "snake.envs",
    "play": "snake.players",
}

register(
    id="evo/Snake-v0",
    entry_point="snake.envs:SnakeEnv",
    vector_entry_point="snake.envs:SnakeVectorEnv",
)


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'snake' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *PUBLIC]
