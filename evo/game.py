"""All that the file of a game imports from the trainer."""

from __future__ import annotations

from evo.compiled.exact import cos, exp, sin, tanh
from evo.environments.drawing import below, normal, uniform
from evo.environments.game import Game, GameOptions, register
from evo.records import GOES_ON, TERMINATED, TRUNCATED

__all__ = [
    "GOES_ON", "TERMINATED", "TRUNCATED", "Game", "GameOptions", "below", "cos", "exp", "normal", "register",
    "sin", "tanh", "uniform",
]  # fmt: skip
