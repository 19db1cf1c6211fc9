"""The game of Snake, `evo.games.catalogue.snake`, by itself: one game in plain Python, players, Gymnasium environments.

`import snake` registers "evo/Snake-v0" with Gymnasium and compiles nothing: what needs Numba loads when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evo.games import register

if TYPE_CHECKING:
    from evo.games.catalogue.snake.players import PLAYERS as PLAYERS
    from evo.games.catalogue.snake.players import play as play
    from evo.games.catalogue.snake.position import Game as Game

PUBLIC = {
    "Game": "evo.games.catalogue.snake.position",
    "PLAYERS": "evo.games.catalogue.snake.players",
    "play": "evo.games.catalogue.snake.players",
}
MODULE = "evo.games.catalogue.snake"

register(MODULE, name="Snake")


def SnakeEnv(*, render_mode: str | None = None, **options: Any) -> Any:
    """Return one board behind Gymnasium's interface; the options are those of an experiment's [environment].

    `reset(seed=s)` begins the episode of seed s, as `snake.rules.Game(seed=s)` does. ValueError names a wrong option.
    """
    return import_module("evo.games.game").make_env(MODULE, render_mode, **options)


def SnakeVectorEnv(num_envs: int = 1, *, render_mode: str | None = None, **options: Any) -> Any:
    """Return many boards, stepped in one compiled call; also takes `autoreset_mode` and `copy`."""
    return import_module("evo.games.game").make_vector_env(MODULE, num_envs, render_mode, **options)


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'snake' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *PUBLIC]
