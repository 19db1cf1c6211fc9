"""Libraries that take long to import, or are set up before: each is imported where something of it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gymnasium as gymnasium
    import keras as keras
    from deap import base as base
    from deap import tools as tools
    from gymnasium import spaces as spaces
    from gymnasium import wrappers as wrappers

    tf: Any
else:

    class Lazy:
        """A module that is imported where something of it is used."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module(self._name), name)

    gymnasium, spaces, wrappers = map(Lazy, ("gymnasium", "gymnasium.spaces", "gymnasium.wrappers"))
    base, tools, keras, tf = map(Lazy, ("deap.base", "deap.tools", "keras", "tensorflow"))
