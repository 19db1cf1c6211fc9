"""What MinAtar's games share (Young and Tian, 2019; package minatar 1.0.15): board, options, sticky actions."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, uniform

NONE, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


MAX_STEPS: int = Field(5000, ge=1, le=1_000_000_000, description="steps after which an episode is truncated")
ACTIONS: Literal["minimal", "full"] = Field(
    "minimal", description="those that the game uses, or all six: none, left, up, right, down, fire"
)
STICKY: float = Field(0.1, ge=0.0, le=1.0, description="probability that the previous action is repeated")


class Options(GameOptions):
    """The [environment] section of a game that stays as hard as it is."""

    max_steps: int = MAX_STEPS
    actions: Literal["minimal", "full"] = ACTIONS
    sticky: float = STICKY


class RampingOptions(GameOptions):
    """The [environment] section of a game that gets harder."""

    max_steps: int = MAX_STEPS
    actions: Literal["minimal", "full"] = ACTIONS
    sticky: float = STICKY
    ramping: bool = Field(True, description="whether the game gets harder with time")


def played(state, options, b, action, random, minimal):
    """Return what is played, one of all six actions: the one that is chosen or, at times, that of the step before."""
    if not (options.sticky > 0.0 and uniform(random, 0.0, 1.0) < options.sticky):
        state.last[b] = minimal[action] if options.actions == 0 else action
    return state.last[b]


def picture(observe, state, options, b, channels):
    """Draw the board in the colours of MinAtar's window: black, or that of the last channel that is set in a cell."""
    seen = np.zeros((10, 10, channels), np.float32)
    observe(state, options, b, seen)
    return palette(channels)[(seen * np.arange(1, channels + 1)).max(axis=2).astype(np.int64)]


def palette(channels):
    """Return black and `channels` colours of a helix in the cube of colours (Green, 2011), as seaborn spaces them."""
    lightness = (256 * np.arange(1, channels + 1) // (channels + 1))[:, None] / 255
    angle = 2 * np.pi * (0.5 / 3 - 1.5 * lightness)
    turned = np.cos(angle) * (-0.14861, -0.29227, 1.97294) + np.sin(angle) * (1.78277, -0.90649, 0.0)
    colours = lightness + lightness * (1 - lightness) / 2 * turned
    return np.rint(np.vstack([np.zeros(3), colours]).clip(0, 1) * 255).astype(np.uint8)


def game(minimal, channels, **declared):
    """Return a game with these fields, of whose actions `minimal` matter, seen as a board of 10 x 10 cells."""
    observe = declared["observe"]
    return Game(
        shape=(10, 10, channels),
        actions=lambda options: len(minimal) if options.actions == "minimal" else 6,
        render=lambda state, options, b: picture(observe, state, options, b, channels),
        low=0.0,
        high=1.0,
        **declared,
    )
