"""CartPole: a cart is pushed left or right to hold up a pole (Barto, Sutton and Anderson, 1983; Gymnasium's v1)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, cos, sin, uniform

GRAVITY, FORCE, SECONDS = 9.8, 10.0, 0.02  # the last for one step
POLE_MASS, MASS = 0.1, 1.1  # of the pole, and of the cart with it
HALF_LENGTH, MASS_LENGTH = 0.5, 0.05  # of the pole; the latter times its mass
FARTHEST, LARGEST_ANGLE = 2.4, 12 * 2 * math.pi / 360  # an episode ends beyond them
WIDE, HIGH = 150, 100  # pixels of a picture


class State(NamedTuple):
    """One cart and one pole."""

    x: Any  # of the cart
    speed: Any
    angle: Any  # of the pole, clockwise from the upright
    spin: Any  # by which it changes, a second


class Options(GameOptions):
    """The [environment] section of CartPole."""

    max_steps: int = Field(500, ge=1, le=1_000_000_000, description="steps after which an episode is truncated")
    velocities: bool = Field(
        True, exclude_if=bool, description="show velocities too; without them a network needs memory"
    )


def begin(state, options, b, random):
    """Put the cart near the middle and the pole nearly upright, both nearly at rest."""
    state.x[b] = uniform(random, -0.05, 0.05)
    state.speed[b] = uniform(random, -0.05, 0.05)
    state.angle[b] = uniform(random, -0.05, 0.05)
    state.spin[b] = uniform(random, -0.05, 0.05)


def step(state, options, b, action, random):
    """Push the cart to the left (0) or to the right (1) for one fiftieth of a second."""
    speed, angle, spin = state.speed[b], state.angle[b], state.spin[b]
    force = FORCE if action == 1 else -FORCE
    cosine, sine = cos(angle), sin(angle)
    push = (force + MASS_LENGTH * (spin * spin) * sine) / MASS
    inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * (cosine * cosine) / MASS)
    turn = (GRAVITY * sine - cosine * push) / inertia
    state.x[b] += SECONDS * speed
    state.speed[b] = speed + SECONDS * (push - MASS_LENGTH * turn * cosine / MASS)
    state.angle[b] = angle + SECONDS * spin
    state.spin[b] = spin + SECONDS * turn
    return 1.0, abs(state.x[b]) > FARTHEST or abs(state.angle[b]) > LARGEST_ANGLE


def observe(state, options, b, out):
    """Show place and speed of the cart, then angle and spin of the pole; or place and angle alone."""
    if options.velocities:
        out[0], out[1], out[2], out[3] = state.x[b], state.speed[b], state.angle[b], state.spin[b]
    else:
        out[0], out[1] = state.x[b], state.angle[b]


def render(state, options, b):
    """Draw the track, the cart and the pole."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (WIDE, HIGH), (24, 28, 38))
    draw, scale, ground = ImageDraw.Draw(picture), WIDE / (2.2 * FARTHEST), 80
    x, angle, length = WIDE / 2 + state.x[b] * scale, state.angle[b], 2 * HALF_LENGTH * scale * 1.6
    draw.line((0, ground, WIDE, ground), (139, 148, 158))
    draw.rectangle((x - 12, ground - 6, x + 12, ground + 6), (88, 166, 255))
    draw.line((x, ground, x + length * math.sin(angle), ground - length * math.cos(angle)), (227, 179, 65), 4)
    return np.asarray(picture)


make = Game(
    options=Options,
    arrays=lambda options: State(x=0.0, speed=0.0, angle=0.0, spin=0.0),
    shape=lambda options: (4 if options.velocities else 2,),
    actions=2,
    begin=begin,
    step=step,
    observe=observe,
    render=render,
    action_names=("left", "right"),
    observation_names=lambda options: ("x", "speed", "angle", "spin")[:: 1 if options.velocities else 2],
    score_bounds=lambda options: (1.0, float(options.max_steps)),
)
