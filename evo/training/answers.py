"""Whether the tasks that an algorithm of a plug-in asks for are what the protocol says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from evo.networks.candidates import unpublished
from evo.records import ActionRule, EnvStates, Episodes, Segment, WeightSource


def wrong_in(task: Any, published: int, rules: Collection[str], only_environment: bool) -> str:
    """Return what is wrong in a task of a plug-in, where `published` rows can be named; empty: nothing."""
    source, count = task.weights, 0
    play: Any = task.play
    if not isinstance(source, WeightSource):
        return f"weights is a {type(source).__name__}; it must be a WeightSource"
    for name, kinds in (("rows", "i"), ("mates", "i"), ("keys", "iu"), ("sigmas", "f")):
        count = count or np.size(source.rows)
        if not is_row(array := vars(source)[name], kinds, count):
            return f"{name} of its WeightSource is {_text(array)}; it must be an array of {count} numbers of its type"
    if source.crossover not in ("none", "uniform", "layers"):
        return f"crossover is {source.crossover!r:.60}; it must be none, uniform or layers"
    if not isinstance(play, Episodes | Segment):
        return f"play is a {type(play).__name__}; it must be Episodes or a Segment"
    if isinstance(play, Episodes) and not (np.size(play.seeds) and is_row(play.seeds, "iu", np.size(play.seeds))):
        return f"seeds is {_text(play.seeds)}; it must be an array of one or more uint64"
    if (isinstance(play, Segment) or task.record_transitions) and count != 1:
        return f"transitions are recorded of {count} candidates; they are recorded of one at a time"
    if isinstance(play, Segment) and type(play.envs) is not EnvStates:
        return f"envs of its Segment is a {type(play.envs).__name__}; it must be EnvStates"
    if not isinstance(task.action_rule, ActionRule) or task.action_rule.kind not in rules:
        return f"action_rule is {task.action_rule!r:.60}; it must be an ActionRule, one of {', '.join(rules)}"
    if task.training != 0 and only_environment:
        return f"training is {task.training!r:.60}; there is one environment of training, which is 0"
    return unpublished(source, published)


def _text(value: object) -> str:
    return " ".join(repr(value).split())[:60]


def is_row(array: Any, kinds: str, count: int) -> bool:
    """Return whether this is an array [count] of numbers of one of these kinds."""
    return isinstance(array, np.ndarray) and array.dtype.kind in kinds and array.shape == (count,)
