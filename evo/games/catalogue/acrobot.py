"""Acrobot: two links hang from a bar, and a motor between them swings them up (Sutton, 1996; Gymnasium's v1)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, cos, sin, uniform

GRAVITY, SECONDS = 9.8, 0.2  # the latter for one step; links weigh 1, are 1 long, and have a moment of inertia of 1
MIDDLE = 0.5  # of a link: where its mass is
FASTEST_1, FASTEST_2 = 4 * math.pi, 9 * math.pi
SIDE = 120  # pixels of a picture
NAMES = ("cos_1", "sin_1", "cos_2", "sin_2", "spin_1", "spin_2")  # of the numbers of an observation


class State(NamedTuple):
    """Two links."""

    angle_1: Any  # of the first link, from hanging down
    angle_2: Any  # of the second link, from the first
    spin_1: Any  # by which they change, a second
    spin_2: Any


class Options(GameOptions):
    """The [environment] section of Acrobot."""

    max_steps: int = Field(500, ge=1, le=1_000_000_000, description="steps after which an episode is truncated")
    velocities: bool = Field(
        True, exclude_if=bool, description="show velocities too; without them a network needs memory"
    )


def begin(state, options, b, random):
    """Let both links hang down, nearly at rest; as in Gymnasium, the numbers are rounded to float32."""
    state.angle_1[b] = np.float32(uniform(random, -0.1, 0.1))
    state.angle_2[b] = np.float32(uniform(random, -0.1, 0.1))
    state.spin_1[b] = np.float32(uniform(random, -0.1, 0.1))
    state.spin_2[b] = np.float32(uniform(random, -0.1, 0.1))


def accelerations(torque, angle_1, angle_2, spin_1, spin_2):
    """Return by how much both spins change a second, as in the book of Sutton and Barto."""
    cosine, sine = cos(angle_2), sin(angle_2)
    d1 = MIDDLE * MIDDLE + (1.0 + MIDDLE * MIDDLE + 2.0 * MIDDLE * cosine) + 1.0 + 1.0
    d2 = (MIDDLE * MIDDLE + MIDDLE * cosine) + 1.0
    phi2 = MIDDLE * GRAVITY * cos(angle_1 + angle_2 - math.pi / 2.0)
    pull = (MIDDLE + 1.0) * GRAVITY * cos(angle_1 - math.pi / 2.0)
    phi1 = -MIDDLE * (spin_2 * spin_2) * sine - 2.0 * MIDDLE * spin_2 * spin_1 * sine + pull + phi2
    above = torque + d2 / d1 * phi1 - MIDDLE * (spin_1 * spin_1) * sine - phi2
    second = above / (MIDDLE * MIDDLE + 1.0 - d2 * d2 / d1)
    return -(d2 * second + phi1) / d1, second


def wrapped(angle):
    """Return an angle from -pi to pi."""
    while angle > math.pi:
        angle = angle - 2.0 * math.pi
    while angle < -math.pi:
        angle = angle + 2.0 * math.pi
    return angle


def step(state, options, b, action, random):
    """Turn the second link by a torque of -1, 0 or 1 for a fifth of a second, by one step of Runge and Kutta's rule."""
    torque, half = action - 1.0, SECONDS / 2.0
    p, q, v, w = state.angle_1[b], state.angle_2[b], state.spin_1[b], state.spin_2[b]
    dv1, dw1 = accelerations(torque, p, q, v, w)
    v2, w2 = v + half * dv1, w + half * dw1
    dv2, dw2 = accelerations(torque, p + half * v, q + half * w, v2, w2)
    v3, w3 = v + half * dv2, w + half * dw2
    dv3, dw3 = accelerations(torque, p + half * v2, q + half * w2, v3, w3)
    v4, w4 = v + SECONDS * dv3, w + SECONDS * dw3
    dv4, dw4 = accelerations(torque, p + SECONDS * v3, q + SECONDS * w3, v4, w4)
    sixth = SECONDS / 6.0
    p = wrapped(p + sixth * (v + 2.0 * v2 + 2.0 * v3 + v4))
    q = wrapped(q + sixth * (w + 2.0 * w2 + 2.0 * w3 + w4))
    v = v + sixth * (dv1 + 2.0 * dv2 + 2.0 * dv3 + dv4)
    w = w + sixth * (dw1 + 2.0 * dw2 + 2.0 * dw3 + dw4)
    state.angle_1[b], state.angle_2[b] = p, q
    state.spin_1[b] = min(max(v, -FASTEST_1), FASTEST_1)
    state.spin_2[b] = min(max(w, -FASTEST_2), FASTEST_2)
    up = -cos(p) - cos(q + p) > 1.0  # the end is more than the length of a link above the bar
    return (0.0 if up else -1.0), up


def observe(state, options, b, out):
    """Show cosine and sine of both angles, then, with velocities, both spins."""
    out[0], out[1] = cos(state.angle_1[b]), sin(state.angle_1[b])
    out[2], out[3] = cos(state.angle_2[b]), sin(state.angle_2[b])
    if options.velocities:
        out[4], out[5] = state.spin_1[b], state.spin_2[b]


def render(state, options, b):
    """Draw both links, the bar and the height to reach."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (SIDE, SIDE), (24, 28, 38))
    draw, middle, scale = ImageDraw.Draw(picture), SIDE / 2, SIDE / 4.4
    draw.line((0, middle - scale, SIDE, middle - scale), (139, 148, 158))
    x, y, angle = middle, middle, 0.0
    for turn, colour in ((state.angle_1[b], (88, 166, 255)), (state.angle_2[b], (126, 231, 135))):
        angle += turn
        end = x + scale * math.sin(angle), y + scale * math.cos(angle)
        draw.line((x, y, *end), colour, 4)
        draw.ellipse((x - 3, y - 3, x + 3, y + 3), (227, 179, 65))
        x, y = end
    return np.asarray(picture)


make = Game(
    options=Options,
    arrays=lambda options: State(angle_1=0.0, angle_2=0.0, spin_1=0.0, spin_2=0.0),
    shape=lambda options: (6 if options.velocities else 4,),
    actions=3,
    begin=begin,
    step=step,
    observe=observe,
    render=render,
    action_names=("negative", "none", "positive"),
    observation_names=lambda options: NAMES if options.velocities else NAMES[:4],
    score_bounds=lambda options: (-float(options.max_steps), 0.0),
)
