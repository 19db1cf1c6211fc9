"""Games in plain Python, which Numba compiles, and all that the file of a game imports from the trainer.

Importing this registers the games of the catalogue with Gymnasium, as "evo/catch-v0"; the rest loads when it is used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium.envs.registration as gymnasium_registry

if TYPE_CHECKING:
    from evo.compiled.exact import cos, exp, sin, tanh
    from evo.games.declaration import GameOptions
    from evo.games.game import Game
    from evo.games.primitives import below, draw_number, flat, get, get_signed, normal, one_of, put, steps_played
    from evo.games.primitives import uniform as uniform
    from evo.records import GOES_ON, TERMINATED, TRUNCATED

__all__ = [
    "GOES_ON", "TERMINATED", "TRUNCATED", "Game", "GameOptions", "below", "cos", "draw_number", "exp", "flat", "get",
    "get_signed", "normal", "one_of", "put", "register", "sin", "steps_played", "tanh", "uniform",
]  # fmt: skip

PLACES = "evo.compiled.exact", "evo.games.primitives", "evo.records", "evo.games.declaration", "evo.games.game"


def __getattr__(name: str) -> Any:
    for module in PLACES if name in __all__ else ():  # the first ones load fastest
        if hasattr(found := import_module(module), name):
            return getattr(found, name)
    raise AttributeError(f"module 'evo.games' has no attribute {name!r}")


def register(module: str, version: int = 0, name: str = "") -> None:
    """Register the game in a module with Gymnasium, as "evo/NAME-v0"; `gymnasium.make` takes the game's options.

    NAME is that of the module, unless it is given. ModuleNotFoundError where there is no such module.
    """
    name = f"evo/{name or module.rpartition('.')[2]}-v{version}"
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"no module {module}")
    gymnasium_registry.registry.pop(name, None)
    gymnasium_registry.register(
        id=name,
        entry_point=f"evo.games.game:make_env {module}",  # not by kwargs, which experiments may replace
        vector_entry_point=f"evo.games.game:make_vector_env {module}",
    )


for _file in sorted((Path(__file__).parent / "catalogue").glob("[!_]*.py")):
    register(f"evo.games.catalogue.{_file.stem}")
