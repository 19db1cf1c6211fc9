"""Play tasks on a device and with the CPU's kernel, and compare every bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evo.cuda.launch import Device
from evo.cuda.rollout import CudaRollout
from evo.environment import Environment
from evo.networks.network import Network, Options
from evo.plugins import registry
from evo.records import ActionRule, Episodes, Result, Segment, Task, WeightSource
from evo.rollouts.rollout import Rollout


@dataclass(frozen=True)
class Case:
    """What is played."""

    game: str
    options: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    rule: Any = "greedy"
    crossover: Any = "uniform"
    scale: int = -1
    threads: int = 64
    extra: int = 0  # outputs behind the scores of actions

    def __str__(self) -> str:
        how = [self.game, *map(str, self.options.values()), self.rule, str(self.policy.get("layers", ""))]
        return " ".join(word for word in how if word)

    def environment(self) -> Environment:
        return registry.environment_of(registry.find("environments", self.game).Options(id=self.game, **self.options))


def candidates_of(network: Network, count: int, crossover: Any = "uniform", scale: int = -1) -> tuple[Any, Any]:
    """Return candidates that come by their weights in every way, and five parents.

    They are fresh, parents, children of both signs, and crossed ones; a child of the last parent is not finite.
    """
    random = np.random.default_rng(7)
    kinds = np.array(["fresh", "child", "crossed", "parent", "child", "broken"] * count)[:count]
    rows = np.where(kinds == "fresh", -1, random.integers(0, 3, count))
    rows = np.where(kinds == "broken", 4, rows).astype(np.int32)
    mates = np.where(kinds == "crossed", random.integers(0, 3, count), -1).astype(np.int32)
    sigmas = np.where(kinds == "parent", 0, random.choice([0.1, -0.1, 0.02], count)).astype(np.float32)
    keys = random.integers(0, 1 << 63, count).astype(np.uint64)
    parents = random.normal(0, 0.3, (5, network.size)).astype(np.float32)
    parents[4, network.size // 2] = np.inf
    return WeightSource(rows, mates, keys, sigmas, crossover=crossover, scale=scale), parents


def assert_equal(found: Result, expected: Result) -> None:
    for name in ("returns", "lengths", "episode_metrics", "finite"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
    assert found.frames == expected.frames
    assert found.lane_slots > 0
    for part in ("transitions", "envs"):
        theirs, ours = getattr(expected, part), getattr(found, part)
        assert (theirs is None) == (ours is None)
        for name, values in vars(theirs or ours).items() if theirs is not None else ():
            np.testing.assert_array_equal(getattr(ours, name), values, name)


def compare(
    case: Case, device: Device, candidates: int = 6, episodes: int = 40, envs: int = 40, steps: int = 12
) -> int:
    """Play episodes and, where there are `envs`, two segments; return how many frames."""
    environment = case.environment()
    network = Network.of(Options(**case.policy), environment, case.extra)
    source, parents = candidates_of(network, candidates, case.crossover, case.scale)
    ours, theirs = CudaRollout(Rollout(network, environment), device, case.threads), Rollout(network, environment)
    seeds, how = np.random.default_rng(2).integers(0, 1 << 63, episodes).astype(np.uint64), ActionRule(case.rule, 0.2)
    task = Task(source, Episodes(seeds), how)
    expected = theirs.play(task, parents)
    assert_equal(ours.play(task, parents), expected)
    frames = expected.frames
    if envs:
        assert environment.game is not None
        states = environment.game.begin(seeds[:1] + np.arange(envs, dtype=np.uint64))
        for _ in range(2):
            segment = Task(source.some(slice(0, 1)), Segment(states, steps), how)
            expected = theirs.play(segment, parents)
            assert_equal(ours.play(segment, parents), expected)
            assert expected.envs is not None
            states, frames = expected.envs, frames + expected.frames
        broken = source.some(np.flatnonzero(source.rows == 4)[:1].tolist())
        if len(broken):
            assert not ours.play(Task(broken, Segment(states, steps), how), parents).finite.any()
    return frames
