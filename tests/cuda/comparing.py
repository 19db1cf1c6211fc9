"""Play tasks on a device and with the CPU's kernel, and compare every bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from evo.cuda.launch import Device
from evo.cuda.rollout import CudaPlayer, CudaRollout
from evo.cuda.table import LANES
from evo.environment import Environment
from evo.games.step import some
from evo.networks.network import Network, Options
from evo.plugins import registry
from evo.records import ActionRule, Episodes, Result, Segment, Task, WeightSource, joined
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
    threads: int = 64  # 0: as in runs
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
    assert (found.actions is None) == (expected.actions is None)
    for one, other in zip(found.actions or (), expected.actions or (), strict=True):
        np.testing.assert_array_equal(one, other, "actions")
    for part in ("transitions", "envs"):
        theirs, ours = getattr(expected, part), getattr(found, part)
        assert (theirs is None) == (ours is None)
        for name, values in vars(theirs or ours).items() if theirs is not None else ():
            np.testing.assert_array_equal(getattr(ours, name), values, name)


def compare(
    case: Case,
    device: Device,
    candidates: int = 6,
    episodes: int = 40,
    envs: int = 40,
    steps: int = 12,
    recorded: bool = False,
) -> int:
    """Play episodes, also `recorded`, and segments in `envs`, also several tasks at once; return how many frames."""
    environment = case.environment()
    network = Network.of(Options(**case.policy), environment, case.extra)
    source, parents = candidates_of(network, candidates, case.crossover, case.scale)
    ours, theirs = CudaRollout(Rollout(network, environment), device, case.threads), Rollout(network, environment)
    player = CudaPlayer([ours], SimpleNamespace(matrix=lambda *_: parents))
    seeds, how = np.random.default_rng(2).integers(0, 1 << 63, episodes).astype(np.uint64), ActionRule(case.rule, 0.2)
    frames = 0

    def played(*tasks: Task) -> list[Result]:
        nonlocal frames
        found = player.play_all(tasks)  # first: memory that it does not write has no right values by chance
        expected = [theirs.play(task, parents) for task in tasks]
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
        frames += sum(result.frames for result in expected)
        return expected

    played(Task(source, Episodes(seeds), how), Task(source.some([1]), Episodes(seeds[:3]), how))
    if episodes > LANES:  # which two blocks play
        played(Task(source.some([1]), Episodes(seeds), how))
    if envs:
        assert environment.game is not None
        states = environment.game.begin(seeds[:1] + np.arange(envs, dtype=np.uint64))
        parts = slice(0, envs // 2), slice(envs // 2, None)
        tasks = [Task(source.some([0]), Segment(some(states, part), steps), how) for part in parts]
        states = joined([result.envs for result in played(*tasks) if result.envs is not None])
        played(Task(source.some([0]), Segment(states, steps), how))
        broken = source.some(np.flatnonzero(source.rows == 4)[:1].tolist())
        if len(broken):
            assert not player.play(Task(broken, Segment(states, steps), how)).finite.any()
    if recorded:
        ours.few, ours._steps, ours._play_on_cpu = 1, 1, None  # so they are played again, with room for all steps
        each = Episodes(seeds), Episodes(seeds[:3])
        played(*(Task(source.some([k]), each[k], how, record_transitions=True) for k in (0, 1)))
        played(*(Task(source.some(slice(2)), play, how, record_actions=True) for play in each))
        del ours._play_on_cpu  # plays all where a candidate is not finite
        played(Task(source, each[1], how, record_actions=True))
    return frames
