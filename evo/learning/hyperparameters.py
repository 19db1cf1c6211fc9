"""Hyperparameters that several gradient methods have, and schedules as functions of the frames played."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from evo.errors import ConfigurationError
from evo.learning.learner import Pieces
from evo.networks.network import Network

Points = list[list[float]]  # [frames, value], frames rising from 0


def scheduled(options: Any, name: str, at: int, unit: str = "frames") -> float:
    """Return an option after `at` frames, by the options of its schedule: NAME_points, or NAME_final, NAME_frames.

    `unit` "generations" reads NAME_generations.
    """
    if points := getattr(options, f"{name}_points", None):
        return value_at(points, at)
    over = getattr(options, f"{name}_{unit}", 0)
    initial: float = getattr(options, name)
    return annealed(initial, getattr(options, f"{name}_final", initial), over, at)


def annealed(initial: float, final: float, over: int, frames: int) -> float:
    """Anneal linearly from `initial` to `final` over the first `over` frames; with `over` 0 return `initial`."""
    if not over:
        return initial
    return final if frames >= over else initial + (final - initial) * (frames / over)


def value_at(points: Sequence[Sequence[float]], frames: int) -> float:
    """Return the value after `frames`, interpolated linearly between points; after the last point it is constant."""
    for (start, one), (end, other) in pairwise(points):
        if frames < end:
            return one + (other - one) * (frames - start) / (end - start)
    return float(points[-1][1])


def _checked(points: Points) -> Points:
    """Return points; ValueError unless they are [frames, value], frames rising from 0, every value in [0, 1]."""
    if not points or any(len(point) != 2 for point in points):
        raise ValueError("not a list of [frames, value]")
    if points[0][0] != 0:
        raise ValueError(f"begins at frame {points[0][0]:g}, not at 0")
    if any(one[0] >= other[0] for one, other in pairwise(points)):
        raise ValueError("frames do not rise")
    for frames, value in points:
        if not 0 <= value <= 1:
            raise ValueError(f"{value:g} at frame {frames:g} is not between 0 and 1")
    return points


LearningRate = Annotated[float, Field(gt=0, le=1, description="initial learning rate of Adam")]
LearningRateFinal = Annotated[float, Field(ge=0, le=1, description="final learning rate of Adam, if it is annealed")]
LearningRateFrames = Annotated[
    int, Field(ge=0, description="frames over which the learning rate is annealed; 0 = constant")
]
MaxGradientNorm = Annotated[float, Field(ge=0, description="clip gradients to this global norm; 0 = no clipping")]
Envs = Annotated[int, Field(ge=1, le=65536, description="parallel environments")]
Horizon = Annotated[int, Field(ge=1, le=65536, description="steps per environment and generation (rollout length)")]
GaeLambda = Annotated[float, Field(ge=0, le=1, description="lambda of generalised advantage estimation")]
Episodes = Annotated[int, Field(ge=1, le=65536, description="whole episodes per generation, if whole_episodes is set")]
WholeEpisodes = Annotated[
    bool,
    Field(
        exclude_if=lambda whole: not whole,
        description="play whole episodes, not segments of horizon steps; an update then waits for the longest one",
    ),
]
EnvsPerTask = Annotated[int, Field(ge=1, le=65536, description="environments (or whole episodes) per task")]
Asynchronous = Annotated[bool, Field(description="learn while the next generation is played (policy lag of one)")]
GammaFinal = Annotated[float, Field(ge=0, le=1, description="final discount factor, if it is annealed")]
GammaFrames = Annotated[int, Field(ge=0, description="frames over which gamma is annealed; 0 = constant")]
GammaPoints = Annotated[
    Points,
    AfterValidator(lambda points: _checked(points) if points else points),
    Field(
        exclude_if=lambda points: not points,
        description="schedule of gamma as points [frames, gamma], interpolated linearly, in place of the other gamma "
        "options; [] = none",
    ),
]

# Networks with memory
LONGEST = 32  # steps of a piece, unless more are asked for
Bptt = Annotated[
    int,
    AfterValidator(lambda steps: _power_of_two(steps)),
    Field(
        ge=0,
        le=128,
        exclude_if=lambda steps: not steps,
        description="steps of backpropagation through time in a network with memory, a power of two; 0 = horizon, "
        f"rounded down, at most {LONGEST}",
    ),
]
BurnIn = Annotated[
    int,
    Field(
        ge=0,
        le=127,
        exclude_if=lambda steps: not steps,
        description="first of the bptt steps, which only update the state and have no loss",
    ),
]


def _power_of_two(steps: int) -> int:
    if steps & (steps - 1):
        raise ValueError("not a power of two, as 1, 2, 4, ..., 128")
    return steps


def pieces_of(options: Any, network: Network) -> Pieces | None:
    """Return how a network with memory learns by options bptt, burn_in and horizon; None without memory.

    ConfigurationError: no step would be left behind the burn-in.
    """
    if not network.memory:
        return None
    steps = options.bptt or 1 << (min(options.horizon, LONGEST).bit_length() - 1)
    if options.burn_in >= steps:
        raise ConfigurationError(f"burn_in: {options.burn_in} of {steps} steps (bptt) leave none to learn from")
    return Pieces(steps, options.burn_in)


# Replay buffers
NStep = Annotated[int, Field(ge=1, le=1000, description="steps of n-step returns")]
ReplaySize = Annotated[int, Field(ge=1, le=1 << 30, description="capacity of the replay buffer, in transitions")]
LearningStarts = Annotated[int, Field(ge=1, description="transitions in the replay buffer before the first update")]
FramesPerUpdate = Annotated[int, Field(ge=1, description="frames played per update")]
BatchSize = Annotated[int, Field(ge=1, le=1 << 20, description="transitions per update")]


def check_learning_starts(learning_starts: int, replay_size: int) -> None:
    """Raise ValueError where learning would never start."""
    if learning_starts > replay_size:
        raise ValueError(f"learning_starts: {learning_starts} of a replay_size of {replay_size}")


# Q-learning
Epsilon = Annotated[
    Points,
    AfterValidator(_checked),
    Field(description="probability of a random action: points [frames, epsilon], interpolated linearly"),
]
EPSILON = [[0.0, 1.0], [500_000.0, 0.02], [3_000_000.0, 0.001]]  # default schedule
HuberDelta = Annotated[float, Field(ge=0, description="TD error above which the loss is linear; 0 = squared loss")]
BoardSymmetry = Annotated[bool, Field(description="augment transitions with random symmetries of the board")]
Dueling = Annotated[bool, Field(description="dueling network: Q = V + A - mean(A); adds an output")]


def check_q_learning(environment: Any, symmetry: bool) -> None:
    """Raise ConfigurationError where actions are continuous, or a symmetry is asked for and none is declared."""
    if environment.continuous:
        raise ConfigurationError(
            "run.algorithm: Q-learning chooses among discrete actions, and this environment's are continuous; use "
            "ppo, a2c, reinforce, sac or td3"
        )
    if symmetry and not environment.symmetry:
        raise ConfigurationError("symmetry: this environment declares no symmetry; use symmetry = false")
