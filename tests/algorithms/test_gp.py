"""Decision trees: as weights and as DEAP's trees they are the same, variation keeps them legal, and they learn."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from deap import gp as deap_gp

from evo.algorithms import gp
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError
from evo.evolution.toolbox import drawing_from
from evo.evolution.trees import INPUT, SPLIT, THRESHOLD, TREE, Trees
from evo.exports.networks import python_of, shortest
from evo.kernels import lanes
from evo.kernels.layout import input_of
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network, Options
from evo.run import train
from evo.setup import Setup
from evo.testing import algorithm_tests

NETWORK = Network.build(Options(layers=["tree 4"]), (5,), 3)
TREES = Trees(NETWORK, 2.0)
TestGp = algorithm_tests("evo.algorithms.gp", {"layers": ["tree 3"]}, population=8, elites=2, episodes=2)


def grown(key: int, depth: int = 4) -> deap_gp.PrimitiveTree:
    with drawing_from(key):
        return deap_gp.PrimitiveTree(TREES.grown(2, depth))


def decided(tree: deap_gp.PrimitiveTree, seen: np.ndarray) -> int:
    """Return the action of a tree, by going through its nodes in order."""
    nodes = iter(tree)
    node = next(nodes)
    while node.arity:
        number, threshold = next(nodes).value, next(nodes).value
        if seen[number] >= threshold:  # leave out the first branch
            left = 1
            while left:
                left += next(nodes).arity - 1
        node = next(nodes)
    return int(node.value)


def test_a_tree_decides_the_same_as_nodes_as_weights_and_as_python() -> None:
    seen = np.random.default_rng(1).standard_normal((200, 5)).astype(np.float32)
    shapes = set()
    for key in range(60):
        tree = grown(key)
        for node in tree:  # observations that are thresholds themselves
            if node.ret == THRESHOLD:
                seen[key, key % 5] = node.value
        weights = TREES.weights(tree)
        expected = [decided(tree, one) for one in seen]
        assert np.argmax(lanes.scores(NETWORK, weights, seen), axis=1).tolist() == expected
        written: dict[str, object] = {}
        exec(python_of(NETWORK, weights), written)
        assert [written["act"](one) for one in seen.tolist()] == expected  # type: ignore[operator]
        shapes.add((len(tree), tree.height))
    assert len(shapes) > 10


def test_reading_weights_drops_splits_that_decide_nothing_and_nothing_else() -> None:
    seen = np.random.default_rng(2).standard_normal((500, 5)).astype(np.float32)
    fewer = 0
    for key in range(60):
        tree = grown(key)
        read = deap_gp.PrimitiveTree(TREES.tree(TREES.weights(tree)))
        assert [decided(read, one) for one in seen] == [decided(tree, one) for one in seen]
        assert TREES.tree(TREES.weights(read)) == list(read)
        assert len(read) <= len(tree)
        fewer += len(read) < len(tree)
    assert 0 < fewer < 60


def test_a_split_that_one_above_has_decided_is_dropped() -> None:
    def split(number: int, threshold: float, below: list[Any], above: list[Any]) -> list[Any]:
        nodes = [deap_gp.Terminal(number, False, INPUT), deap_gp.Terminal(threshold, False, THRESHOLD)]
        return [SPLIT, *nodes, *below, *above]

    left, stay, right = ([deap_gp.Terminal(action, False, TREE)] for action in range(3))
    inner = split(1, 2.0, split(1, 3.0, left, right), split(1, 1.0, right, stay))
    same = split(0, 0.5, inner, left)
    tree = deap_gp.PrimitiveTree(split(0, 0.5, same, split(0, 0.5, left, right)))
    assert TREES.tree(TREES.weights(tree)) == split(0, 0.5, split(1, 2.0, left, stay), right)


@pytest.mark.parametrize("nudge", [0.0, 1.0])
def test_a_mutation_moves_one_threshold_where_it_is_a_nudge_and_else_replaces_a_part(nudge: float) -> None:
    mutate, moved = made(nudge=nudge).toolbox.mutate, []
    for key in range(40):
        tree = grown(key)
        with drawing_from(key):
            (other,) = mutate(deap_gp.PrimitiveTree(tree))
        pairs = [(one, two) for one, two in zip(tree, other, strict=False) if one != two]
        moved.append(
            len(tree) == len(other)
            and [one.ret for one, _ in pairs] == [THRESHOLD]
            and all(abs(two.value - one.value) <= max(abs(one.value), 2**-8) * 0.501 for one, two in pairs)
        )
    assert all(moved) if nudge else sum(moved) < 20


@pytest.mark.parametrize("largest", [0.5, 60.0])
def test_first_thresholds_have_sizes_up_to_the_largest(largest: float) -> None:
    request = next(made(population=200, largest_threshold=largest).generation(0))
    trees = [TREES.tree(weights) for weights in request.weights]
    sizes = [abs(node.value) for tree in trees for node in tree if node.ret == THRESHOLD]
    assert largest / 2 < max(sizes) <= largest
    assert min(sizes) < largest / 20


def made(**options: Any) -> gp.GeneticProgramming:
    """Return the algorithm with these options, from random trees."""
    return gp.GeneticProgramming(gp.Options(**{"episodes": 1, **options}), Setup(1, NETWORK, None, 16))


def test_names_and_short_thresholds_are_in_the_function_that_is_exported() -> None:
    weights = TREES.weights(
        deap_gp.PrimitiveTree(
            [
                SPLIT,
                deap_gp.Terminal(1, False, INPUT),
                deap_gp.Terminal(float(np.float32(0.7)), False, THRESHOLD),
                deap_gp.Terminal(2, False, TREE),
                deap_gp.Terminal(0, False, TREE),
            ]
        )
    )
    text = python_of(NETWORK, weights, ("place", "speed", "x", "y", "z"), ("left", "stay", "right"))
    assert text.splitlines()[2:] == [
        "    speed = observation[1]",
        "    if speed < 0.699999988:",  # not 0.7, which is above the threshold in float32
        "        return 2  # right",
        "    return 0  # left",
    ]
    next_to_half = float(np.nextafter(np.float32(0.5), np.float32(1)))  # 0.5 itself is below it
    assert 0.5 < shortest(next_to_half) <= next_to_half
    for name in ("a b", "lambda", "observation", "twice"):  # of which no variable can be made, or not one alone
        text = python_of(NETWORK, weights, ("twice", name, "x", "y", "z"))
        assert "input_1 = observation[1]" in text
        compile(text, "tree.py", "exec")


def test_operators_keep_trees_within_their_depth_and_draw_from_named_streams() -> None:
    state = random.getstate()
    one, other = (
        gp.make(gp.Options(population=40, elites=2), Setup(seed, NETWORK, SimpleNamespace(continuous=False)))
        for seed in (1, 1)
    )
    for number in range(6):
        population = one._next(number)
        random.random()  # what others draw changes nothing
        assert np.array_equal(population, other._next(number))
        assert len(np.unique(population, axis=0)) >= 30
        for algorithm in (one, other):
            algorithm._take(population, np.arange(len(population)))
        heights = [deap_gp.PrimitiveTree(nodes).height for nodes in one._trees()]
        assert max(heights) <= 4
    random.setstate(state)
    with drawing_from(3):
        random.random()
    assert random.getstate() == state


def test_a_fresh_tree_compares_any_input_with_thresholds_of_both_signs() -> None:
    weights, seen = np.empty(NETWORK.size, np.float32), set()
    for key in range(8):
        Rebuilder(NETWORK).fresh(np.uint64(key), weights)
        inputs, thresholds, kernel, bias = NETWORK.split(weights)
        seen |= {int(input_of(weight, TREES.inputs)) for weight in inputs}
        assert thresholds.min() < -0.3 < 0.3 < thresholds.max()
        assert kernel.std() > 0.1
        assert not bias.any()
    assert seen == set(range(TREES.inputs))


def test_elites_are_the_best_and_stay_unchanged() -> None:
    algorithm = gp.make(gp.Options(population=40, elites=3), Setup(1, NETWORK, SimpleNamespace(continuous=False)))
    first = algorithm._next(0)
    fitness = np.random.default_rng(1).permutation(40)
    algorithm._take(first, fitness)
    assert np.array_equal(algorithm._next(1)[:3], first[np.argsort(-fitness)[:3]])


@pytest.mark.parametrize(
    ("layers", "continuous"), [(["dense 4"], False), (["tree 2", "relu", "dense 3"], False), (["tree 2"], True)]
)
def test_it_says_what_it_needs(layers: list[str], continuous: bool) -> None:
    network = Network.build(Options(layers=layers), (4,), 2)
    with pytest.raises(ConfigurationError, match="choices" if continuous else "decision tree alone"):
        gp.make(gp.Options(), Setup(1, network, SimpleNamespace(continuous=continuous)))


@pytest.mark.long
def test_a_tree_learns_to_hold_up_the_pole(tmp_path: Path) -> None:
    experiment = Experiment.build(
        run={"algorithm": "gp", "generations": 25},
        environment={"id": "cartpole"},
        policy={"layers": ["tree 3"]},
        workers={"backend": "serial"},
        validation={"every": 5, "episodes": 64},
        test={"every": 25, "episodes": 64},
        gp={"population": 128, "episodes": 8},
    )
    best = [row.metrics["best"] for row in train(experiment, tmp_path / "run")]
    assert best[0] < 300 < 450 < best[-1]
