"""Cart-pole swing-up: swing a hanging pole up by pushing its cart, and hold it up (EvoJAX's, Tang et al., 2022)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, cos, normal, sin, uniform

GRAVITY, CART, POLE, LENGTH, FRICTION = 9.82, 0.5, 0.5, 0.6, 0.1  # metres, kilograms, seconds
FORCE, STEP, EDGE = 10.0, 0.01, 2.4


class State(NamedTuple):
    """The cart and its pole."""

    place: Any  # of the cart
    speed: Any
    angle: Any  # of the pole: 0 is upright, pi hangs down
    turning: Any  # radians a second


class Options(GameOptions):
    """The [environment] section of cart-pole swing-up."""

    harder: bool = Field(False, description="begin anywhere on the track and at high speed, not near rest")


def begin(state, options, b, random):
    """Begin with a pole that hangs down, near rest or, in the harder task, far from it."""
    if options.harder:
        state.place[b] = uniform(random, -EDGE, EDGE)
        state.speed[b] = uniform(random, -10.0, 10.0)
        state.angle[b] = uniform(random, -math.pi / 2.0, math.pi / 2.0) + math.pi
        state.turning[b] = uniform(random, -10.0, 10.0)
    else:
        state.place[b] = normal(random, 0.0, 0.2)
        state.speed[b] = normal(random, 0.0, 0.2)
        state.angle[b] = normal(random, math.pi, 0.2)
        state.turning[b] = normal(random, 0.0, 0.2)


def step(state, options, b, action, random):
    """Push the cart; the reward is highest for an upright pole in the middle, and the track has ends."""
    force, speed, turning = action[0] * FORCE, state.speed[b], state.turning[b]
    s, c, mass, arm = sin(state.angle[b]), cos(state.angle[b]), CART + POLE, POLE * LENGTH
    pull = -2.0 * arm * (turning * turning) * s + 3.0 * POLE * GRAVITY * s * c + 4.0 * force - 4.0 * FRICTION * speed
    turn = -3.0 * arm * (turning * turning) * s * c + 6.0 * mass * GRAVITY * s + 6.0 * (force - FRICTION * speed) * c
    state.place[b] += speed * STEP
    state.angle[b] += turning * STEP
    state.speed[b] = speed + pull / (4.0 * mass - 3.0 * POLE * (c * c)) * STEP
    state.turning[b] = turning + turn / (4.0 * LENGTH * mass - 3.0 * arm * (c * c)) * STEP
    reward = (cos(state.angle[b]) + 1.0) / 2.0 * cos(state.place[b] / EDGE * (math.pi / 2.0))
    return reward, abs(state.place[b]) > EDGE


def observe(state, options, b, out):
    """Show the cart's place and speed, and the pole's direction and speed."""
    out[0] = state.place[b]
    out[1] = state.speed[b]
    out[2] = cos(state.angle[b])
    out[3] = sin(state.angle[b])
    out[4] = state.turning[b]


def render(state, options, b):
    """Draw the track, the cart and its pole."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (150, 100), (24, 28, 38))
    draw, x = ImageDraw.Draw(picture), 75 + 28 * state.place[b]
    draw.line((75 - 28 * EDGE, 60, 75 + 28 * EDGE, 60), (139, 148, 158), 1)
    draw.rectangle((x - 8, 55, x + 8, 63), (88, 166, 255))
    end = x + 45 * sin(state.angle[b]), 58 - 45 * cos(state.angle[b])
    draw.line((x, 58, *end), (126, 231, 135), 4)
    return np.asarray(picture)


make = Game(
    options=Options,
    arrays=lambda options: State(place=0.0, speed=0.0, angle=0.0, turning=0.0),
    shape=(5,),
    actions=1,
    continuous=True,
    begin=begin,
    step=step,
    observe=observe,
    render=render,
    action_names=("force",),
    observation_names=("place", "speed", "cosine", "sine", "turning"),
)
