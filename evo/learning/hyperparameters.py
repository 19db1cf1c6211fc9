"""Hyperparameters that several gradient methods have, and schedules as functions of the frames played."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from evo.errors import ConfigurationError

Points = list[list[float]]  # [frames, value], frames rising from 0


def annealed(initial: float, final: float, over: int, frames: int, points: Sequence[Sequence[float]] = ()) -> float:
    """Anneal linearly from `initial` to `final` over the first `over` frames; with `over` 0 return `initial`.

    Where there are `points`, they are the schedule, as in `value_at`.
    """
    if points:
        return value_at(points, frames)
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


# Updates, and what they learn from
LearningRate = Annotated[float, Field(gt=0, le=1, description="initial learning rate of Adam")]
LearningRateFinal = Annotated[float, Field(gt=0, le=1, description="final learning rate of Adam, where it is annealed")]
LearningRateFrames = Annotated[
    int, Field(ge=0, description="frames over which the learning rate is annealed; 0 = constant")
]
MaxGradientNorm = Annotated[float, Field(ge=0, description="clip gradients to this global norm; 0 = no clipping")]
Envs = Annotated[int, Field(ge=1, le=65536, description="parallel environments")]
Horizon = Annotated[int, Field(ge=1, le=65536, description="steps per environment and generation (rollout length)")]
Epochs = Annotated[int, Field(ge=1, le=1000, description="passes over the transitions of a generation")]
GaeLambda = Annotated[float, Field(ge=0, le=1, description="lambda of generalised advantage estimation")]

# Discount factor
Gamma = Annotated[float, Field(ge=0, le=1, description="discount factor")]
GammaInitial = Annotated[float, Field(ge=0, le=1, description="initial discount factor")]
GammaFinal = Annotated[float, Field(ge=0, le=1, description="final discount factor, where it is annealed")]
GammaFrames = Annotated[int, Field(ge=0, description="frames over which gamma is annealed; 0 = constant")]
GammaPoints = Annotated[
    Points,
    AfterValidator(lambda points: _checked(points) if points else points),
    Field(
        exclude_if=lambda points: not points,
        description="discount factor as points [frames, gamma], interpolated linearly, in place of other options of "
        "gamma; [] = those",
    ),
]

# Policy gradients
EntropyCoefficient = Annotated[float, Field(ge=0, le=10, description="initial weight of the entropy bonus")]
EntropyCoefficientFinal = Annotated[
    float, Field(ge=0, le=10, description="final weight of the entropy bonus, where it is annealed")
]
EntropyCoefficientFrames = Annotated[
    int, Field(ge=0, description="frames over which the entropy coefficient is annealed; 0 = constant")
]
ValueCoefficient = Annotated[float, Field(ge=0, le=100, description="weight of the value loss")]
NormaliseAdvantages = Annotated[
    bool, Field(description="normalise a generation's advantages to mean 0, standard deviation 1")
]
NormaliseObservations = Annotated[
    bool, Field(description="normalise observations by their running mean and standard deviation; not for a CNN")
]
NormaliseRewards = Annotated[
    bool, Field(description="divide rewards by the running standard deviation of discounted returns")
]

# Q-learning
Epsilon = Annotated[
    Points,
    AfterValidator(_checked),
    Field(description="probability of a random action: points [frames, epsilon], interpolated linearly"),
]
HuberDelta = Annotated[float, Field(ge=0, description="TD error above which the loss is linear; 0 = squared loss")]
BoardSymmetry = Annotated[bool, Field(description="augment transitions by random symmetries of the board")]
Dueling = Annotated[bool, Field(description="dueling network: Q = V + A - mean(A); adds an output")]
ReplaySize = Annotated[int, Field(ge=1, le=1 << 30, description="capacity of the replay buffer, in transitions")]
LearningStarts = Annotated[int, Field(ge=1, description="transitions in the replay buffer before the first update")]
FramesPerUpdate = Annotated[int, Field(ge=1, description="frames played per update")]
BatchSize = Annotated[int, Field(ge=1, le=1 << 20, description="transitions per update")]
NSteps = Annotated[int, Field(ge=1, le=1000, description="steps of n-step returns")]
Double = Annotated[
    bool,
    Field(description="double Q-learning: the online network chooses the action that the target network values"),
]
TargetTau = Annotated[
    float, Field(ge=0, le=1, description="soft update coefficient (Polyak) of the target network; 0 = never")
]
TargetEvery = Annotated[
    int, Field(ge=0, description="updates between copies to the target network; 0 = soft updates by target_tau")
]
Prioritized = Annotated[bool, Field(description="prioritised replay, by TD error; false = uniform")]
PriorityExponent = Annotated[float, Field(gt=0, le=2, description="exponent alpha of priorities")]
ImportanceExponent = Annotated[float, Field(ge=0, le=1, description="initial importance-sampling exponent beta")]
ImportanceExponentFrames = Annotated[
    int, Field(ge=0, description="frames over which beta is annealed to 1; 0 = constant")
]
EPSILON = [[0.0, 1.0], [500_000.0, 0.02], [3_000_000.0, 0.001]]  # default schedule of Q-learning


def check_q_learning(environment: Any, symmetry: bool) -> None:
    """Raise ConfigurationError where actions are continuous, or a symmetry is asked for and none is declared."""
    if environment.continuous:
        raise ConfigurationError(
            "run.algorithm: Q-learning chooses among discrete actions, and this environment's are continuous; use "
            "ppo, a2c or reinforce"
        )
    if symmetry and not environment.symmetry:
        raise ConfigurationError("symmetry: this environment declares no symmetry; use symmetry = false")


def check_replay(replay_size: int, learning_starts: int, target_every: int, target_tau: float) -> None:
    """Raise ValueError where options of Q-learning from a replay buffer leave nothing to learn from, or towards."""
    if learning_starts > replay_size:
        raise ValueError(f"learning_starts: {learning_starts} of a replay_size of {replay_size}")
    if not target_every and not target_tau:
        raise ValueError("target_tau: 0 never changes the target; give it, or target_every")
