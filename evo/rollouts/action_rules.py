"""Action rules: how an action follows from the network's outputs, with the same bits on every IEEE-754 machine.

Draws are named words of Philox, by the episode's seed and the step; arithmetic is additions and multiplications only.
A normal number is the Irwin-Hall sum of twelve uniform ones, less 6, which has mean 0 and variance 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from evo.compiled import cache as kernel_cache
from evo.compiled.functions import exp, tanh
from evo.environment import Environment
from evo.games import contract
from evo.networks.network import Network
from evo.randomness.philox_compiled import draw, philox
from evo.randomness.streams import Purpose

kernel_cache.use(__name__)

SOFTMAX, EPSILON_GREEDY, GAUSSIAN, SQUASHED, NOISY, UNIFORM = range(1, 7)
RULES = {  # None: compiled without any draw
    "greedy": None, "softmax": SOFTMAX, "epsilon_greedy": EPSILON_GREEDY,
    "gaussian": GAUSSIAN, "squashed": SQUASHED, "noisy": NOISY, "uniform": UNIFORM,  # of continuous actions
}  # fmt: skip
ACTION, EXPLORE = int(Purpose.ACTION), np.int64(Purpose.EXPLORE)
SQUARINGS = 10
LOWEST, HIGHEST = -20.0, 2.0  # log standard deviations are clipped to these
SQUASHED_LOWEST, SQUASHED_HIGHEST = -5.0, 2.0  # what outputs of -1 and 1 mean as log standard deviations
SATURATED = 18.0  # beyond it, tanh is 1 in float64
UNIT = 2.0**-32
LUCK = np.uint64(0x9E3779B97F4A7C15)  # sets the draws of baselines apart from those of the game


def fits(kind: str, environment: Environment, network: Network) -> bool:
    """Return whether actions of an environment can follow from a network's outputs by this kind of rule.

    Gaussian actions are continuous, with a mean and a log standard deviation each.
    """
    if kind in ("gaussian", "squashed"):
        return environment.continuous and network.outputs >= 2 * environment.actions
    return kind == "greedy" or environment.continuous == (kind in ("noisy", "uniform"))


@njit(cache=True, error_model="numpy", nogil=True)
def exp_by_squaring(x):  # type: ignore[no-untyped-def]
    """Return exp(x) for x <= 2 by additions and multiplications only.

    (1 + y + y^2/2 + y^3/6 + y^4/24)^1024 with y = x / 1024, in float64; 0 below -600. Published runs have drawn their
    actions by its last bits, which differ from those of `evo.compiled.exact.exp`.
    """
    if x < -600.0:
        return 0.0
    y = x * (1.0 / 1024.0)
    power = 1.0 + y * (1.0 + y * (0.5 + y * (1.0 / 6.0 + y * (1.0 / 24.0))))
    for _ in range(SQUARINGS):
        power = power * power
    return power


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def choose_action(scores, width, lane, allowed, rule, epsilon, seed, step):  # type: ignore[no-untyped-def]
    """Return the action of a lane, the lowest of equals, or -1 where a score is not finite or nothing is allowed.

    `scores` flat float32 [A or more, width]; `allowed` int8 [A]; `rule` one of RULES. Draws are those of step `step` of
    the episode `seed`.
    """
    best = -1
    for action in range(allowed.shape[0]):
        score = scores[action * width + lane]
        if not np.isfinite(score):
            return -1
        if allowed[action] and (best < 0 or score > scores[best * width + lane]):
            best = action
    if rule is None or best < 0:
        return best
    word, coin, _, _ = philox(seed, np.uint64(step), np.uint64(0), np.uint64(ACTION), np.uint64(0))
    if rule == EPSILON_GREEDY:
        if np.float64(coin) * (1.0 / 4294967296.0) >= epsilon:
            return best
        left = np.int64(0)
        for action in range(allowed.shape[0]):
            left += allowed[action]
        left = draw(seed, np.int64(step), left, EXPLORE)
        for action in range(allowed.shape[0]):
            if allowed[action]:
                if left == 0:
                    return action
                left -= 1
    top = np.float64(scores[best * width + lane])
    total = 0.0
    for action in range(allowed.shape[0]):
        if allowed[action]:
            total += exp_by_squaring(np.float64(scores[action * width + lane]) - top)
    threshold = np.float64(word) * (1.0 / 4294967296.0) * total
    for action in range(allowed.shape[0]):
        if allowed[action]:
            threshold -= exp_by_squaring(np.float64(scores[action * width + lane]) - top)
            if threshold < 0.0:
                return action
    return best


@njit(inline="always")
def baseline_action(state, rules, masked, b, number, seed, allowed, luck):  # type: ignore[no-untyped-def]
    """Return the action in environment b of baseline -2 - `number` of the game, or a random one where that is -1.

    -1 where it is not allowed, or none is.
    """
    if masked is not None:
        contract.mask(state, rules, b, allowed)
    if number == -1:
        left = np.int64(0)
        for action in range(allowed.shape[0]):
            left += allowed[action]
        left, action = draw(seed, state.clock.steps[b], max(left, 1), np.int64(ACTION)), 0
        while action < allowed.shape[0] and (left > 0 or allowed[action] == 0):
            left -= allowed[action]
            action += 1
    else:
        luck.seed[b] = seed ^ LUCK
        luck.drawn[b] = state.clock.steps[b] << 16
        action = contract.baseline(state, rules, b, -2 - number, luck)
    return action if 0 <= action < allowed.shape[0] and allowed[action] else np.int64(-1)


@njit(cache=True, error_model="numpy", nogil=True)
def standard_normal(seed, step, number):  # type: ignore[no-untyped-def]
    """Return normal number `number` of a step of an episode: the Irwin-Hall sum of twelve, less 6."""
    total = 0.0
    for block in range(3):
        w0, w1, w2, w3 = philox(seed, np.uint64(step), np.uint64(number), np.uint64(ACTION), np.uint64(block))
        total += (np.float64(w0) + np.float64(w1)) + (np.float64(w2) + np.float64(w3))
    return (total + 6.0) * UNIT - 6.0  # every word stands for the middle of its interval


@njit(cache=True, error_model="numpy", nogil=True)
def squashed_log_deviation(output):  # type: ignore[no-untyped-def]
    """Return the log standard deviation that an output from -1 to 1 means."""
    return SQUASHED_LOWEST + 0.5 * (SQUASHED_HIGHEST - SQUASHED_LOWEST) * (output + 1.0)


@njit(cache=True, error_model="numpy", nogil=True)
def _drawn(rule, epsilon, mean, deviation, seed, step, d):  # type: ignore[no-untyped-def]
    """Return number `d` of a continuous action by its outputs; `deviation` is read where the rule has such outputs."""
    if rule == UNIFORM:
        word, _, _, _ = philox(seed, np.uint64(step), np.uint64(d), np.uint64(ACTION), np.uint64(0))
        return (np.float64(word) + 0.5) * (2.0 * UNIT) - 1.0
    normal = standard_normal(seed, step, d)
    if rule == GAUSSIAN:
        return mean + exp_by_squaring(min(max(deviation, LOWEST), HIGHEST)) * normal
    if rule == NOISY:
        return min(max(mean + epsilon * normal, -1.0), 1.0)
    noise = tanh(min(max(exp(squashed_log_deviation(deviation)) * normal, -SATURATED), SATURATED))
    return (mean + noise) / (1.0 + mean * noise)  # tanh(u + v) of tanh u, the mean, and tanh v


@njit(cache=True, error_model="numpy", nogil=True)
def draw_action(scores, width, lane, rule, epsilon, seed, step, action):  # type: ignore[no-untyped-def]
    """Write a lane's continuous action, its means or, with a rule, a draw; return whether all is finite.

    `scores` flat float32 [O, width]: D means, then of some rules D outputs of deviations, then anything; `action` [D],
    of float32 or of its values in float64.
    """
    count = action.shape[0]
    spread = False
    if rule is not None:
        spread = rule in (GAUSSIAN, SQUASHED)
    for d in range(2 * count if spread else count):
        if not np.isfinite(scores[d * width + lane]):
            return False
    for d in range(count):
        value = np.float64(scores[d * width + lane])
        if rule is not None:
            deviation = np.float64(scores[(count + d) * width + lane]) if spread else 0.0
            value = _drawn(rule, epsilon, value, deviation, seed, step, d)
        action[d] = np.float32(value)
    return True


@njit(inline="always")
def choose(  # type: ignore[no-untyped-def]
    state, rules, masked, b, seed, scores, width, lane, rule, epsilon, allowed, continuous
):  # fmt: skip
    """Return the action of environment b in the episode of a seed, and whether there is one: scores may not be finite.

    `allowed` int8 [A] is written where the game is `masked`, which is None where it is not; the rest is as in `decide`.
    """
    if masked is not None:
        contract.mask(state, rules, b, allowed)
    return decide(scores, width, lane, allowed, rule, epsilon, seed, state.clock.steps[b], continuous)


# Numba chooses between choices and continuous actions by the type of `continuous` when it compiles a rollout.


def decide(
    scores: Any, width: int, lane: int, allowed: Any, rule: Any, epsilon: float, seed: int, step: int, continuous: Any
) -> tuple[Any, bool]:
    """Return a lane's action as a game takes it, and whether there is one.

    `continuous` is None where actions are choices, or else a buffer, float64 [D], which holds the action.
    """
    raise NotImplementedError


def write_action(actions: Any, place: int, action: Any, continuous: Any) -> None:
    """Record an action.  # actions int8 [M], or float32 [M, D]"""


def read_action(actions: Any, place: int, continuous: Any) -> Any:
    """Return a recorded action as a game takes it."""


@overload(decide)
def _decide(scores, width, lane, allowed, rule, epsilon, seed, step, continuous):  # type: ignore[no-untyped-def]
    def choice(scores, width, lane, allowed, rule, epsilon, seed, step, continuous):  # type: ignore[no-untyped-def]
        action = choose_action(scores, width, lane, allowed, rule, epsilon, seed, step)
        return action, action >= 0

    def numbers(scores, width, lane, allowed, rule, epsilon, seed, step, continuous):  # type: ignore[no-untyped-def]
        finite = draw_action(scores, width, lane, rule, epsilon, seed, step, continuous)
        return continuous, finite

    return choice if isinstance(continuous, types.NoneType) else numbers


@overload(write_action)
def _write_action(actions, place, action, continuous):  # type: ignore[no-untyped-def]
    def choice(actions, place, action, continuous):  # type: ignore[no-untyped-def]
        actions[place] = action

    def numbers(actions, place, action, continuous):  # type: ignore[no-untyped-def]
        for d in range(continuous.shape[0]):
            actions[place, d] = action[d]

    return choice if isinstance(continuous, types.NoneType) else numbers


@overload(read_action)
def _read_action(actions, place, continuous):  # type: ignore[no-untyped-def]
    def choice(actions, place, continuous):  # type: ignore[no-untyped-def]
        return np.int64(actions[place])

    def numbers(actions, place, continuous):  # type: ignore[no-untyped-def]
        for d in range(continuous.shape[0]):
            continuous[d] = actions[place, d]
        return continuous

    return choice if isinstance(continuous, types.NoneType) else numbers
