"""A decision tree as a Python function that needs no library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, printable

if TYPE_CHECKING:
    from evo.environment import Normalisation
    from evo.networks.network import Network
    from evo.store.run import Run


TAKEN = ("observation", "min", "max", "float")  # names that the function uses itself


def python_file(run: Run) -> str:
    """Return a file with the champion as a function; ConfigurationError where it is no decision tree."""
    from evo.config.environments import environment_of

    network, environment = run.config.network(), environment_of(run.config.environment)
    try:
        text = python_of(
            network,
            run.champion.weights,
            environment.observation_names,
            environment.action_names,
            environment.normalisation,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"--to python writes decision trees: {error}") from error
    about = ", ".join(
        f"{name} {run.champion.about[name]}" for name in ("algorithm", "seed") if name in run.champion.about
    )
    return f'"""A decision tree that plays {_name(run)} ({about})."""\n\n\n{text}'


def _name(run: Run) -> str:
    """Return what the champion plays, in a few words without quotes."""
    return json.dumps(run.config.environment.title()).strip('"').replace('"', "'").replace("\\", "/")


def python_of(
    network: Network,
    weights: NDArray[np.float32],
    inputs: Sequence[str] = (),
    actions: Sequence[str] = (),
    normalisation: Normalisation | None = None,
) -> str:
    """Return `act(observation)`, which takes the numbers of an observation in order and returns an action.

    weights [P]; names of inputs and actions may be left out. With `normalisation` the function takes observations as
    they are before it. ConfigurationError where the network is no tree.
    """
    from evo.evolution.trees import INPUT, Trees

    trees = Trees(network, 1.0)
    nodes = trees.tree(weights)
    used = sorted({node.value for node in nodes if node.ret == INPUT})
    names = {k: inputs[k] if k < len(inputs) and _is_free(inputs[k], inputs) else f"input_{k}" for k in used}
    choices = {a: f"  # {printable(actions[a])}" if a < len(actions) else "" for a in range(trees.actions)}
    lines = ["def act(observation):", f'    """Return an action, from 0 to {trees.actions - 1}."""']
    lines += [f"    {names[k]} = {_number(k, normalisation)}" for k in used]
    cut = shortest if normalisation is None else halfway
    return "\n".join([*lines, *_branches(iter(nodes), names, choices, cut, "    ")]) + "\n"


def _number(k: int, by: Normalisation | None) -> str:
    """Return what number `k` of an observation is to the tree."""
    if by is None:
        return f"observation[{k}]"
    mean, deviation = float(by.mean.flat[k]), float(by.deviation.flat[k])
    return f"min(max((float(observation[{k}]) - {mean!r}) / {deviation!r}, {-by.limit}), {by.limit})"


def _is_free(name: str, names: Sequence[str]) -> bool:
    """Return whether a variable can have this name, which no other input has."""
    return name.isidentifier() and not iskeyword(name) and name not in TAKEN and names.count(name) == 1


def _branches(
    nodes: Iterator[Any], names: dict[int, str], actions: dict[int, str], cut: Callable[[float], float], indent: str
) -> Iterator[str]:
    node = next(nodes)
    if node.arity == 0:
        yield f"{indent}return {node.value}{actions[node.value]}"
        return
    name, threshold = names[next(nodes).value], cut(next(nodes).value)
    yield f"{indent}if {name} < {threshold!r}:"
    yield from _branches(nodes, names, actions, cut, indent + "    ")
    yield from _branches(nodes, names, actions, cut, indent)


def shortest(threshold: float) -> float:
    """Return the number of fewest digits that divides all float32 values as `threshold`, itself a float32, does."""
    below = _below(threshold)
    return next(short for digits in range(1, 18) if below < (short := float(f"{threshold:.{digits}g}")) <= threshold)


def halfway(threshold: float) -> float:
    """Return the number that divides float64 values as `threshold` divides them when they are rounded to float32."""
    return (_below(threshold) + float(threshold)) / 2


def _below(threshold: float) -> float:
    return float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
