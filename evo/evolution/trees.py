"""Decision trees as DEAP's typed genetic programming has them, and as the flat weights of a network with a tree layer.

A tree is a gp.PrimitiveTree of splits (input, threshold, below, from there on) and actions. Weights hold it as a
complete tree of the layer's depth: what is below a shallow leaf has the same action everywhere. So reading weights
drops every split between equal actions, and those that splits above have decided.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
from deap import gp
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.kernels.layout import input_of
from evo.networks.network import Network

# Types are numbers: DEAP's crossover draws from a set of them, whose order must be the same in every process.
TREE, INPUT, THRESHOLD = 0, 1, 2
SPLIT = gp.Primitive("split", (INPUT, THRESHOLD, TREE, TREE), TREE)
HALVINGS = 8  # sizes of first thresholds: up to the largest one, up to its half, and so on


class Trees:
    """Makes, varies and converts the trees of one network, whose hidden layer is a tree and nothing else."""

    def __init__(self, network: Network, largest: float) -> None:
        """`largest` is the largest size of a first threshold. ConfigurationError: the network is no decision tree."""
        if [layer.kind for layer in network.layers] != ["tree", "dense"]:
            raise ConfigurationError('the policy must be a decision tree alone, as in policy.layers = ["tree 5"]')
        self._network, self._largest = network, largest
        layer = network.layers[0]
        self.inputs, self.actions, self._leaves = layer.channels, network.outputs, layer.filters
        self.depth = self._leaves.bit_length() - 1

    def grown(self, least: int, most: int) -> list[Any]:
        """Return a random tree of at most `most` splits from root to leaf, and of at least `least`."""
        if most == 0 or (least <= 0 and random.random() < 0.5):
            return [gp.Terminal(random.randrange(self.actions), False, TREE)]
        below, above = (self.grown(least - 1, most - 1) for _ in range(2))
        return [SPLIT, self._input(), self._threshold(), *below, *above]

    def mutated(self, tree: gp.PrimitiveTree, nudge: float) -> tuple[gp.PrimitiveTree]:
        """Mutate a tree: move one of its thresholds with probability `nudge`, else replace a random part of it."""
        if random.random() < nudge:
            self._nudge(tree)
            return (tree,)
        replaced: tuple[gp.PrimitiveTree] = gp.mutUniform(tree, self._part, None)
        return replaced

    def _part(self, pset: Any, type_: int) -> list[Any]:
        if type_ == TREE:
            return self.grown(0, 2)
        return [self._input() if type_ == INPUT else self._threshold()]

    def _nudge(self, tree: gp.PrimitiveTree) -> None:
        """Move one threshold of a tree by up to a half of itself."""
        thresholds = [k for k, node in enumerate(tree) if node.ret == THRESHOLD]
        if thresholds:
            k = random.choice(thresholds)
            value = tree[k].value
            size = max(abs(value), math.ldexp(self._largest, -HALVINGS))
            tree[k] = _threshold(value + 0.5 * size * (2 * random.random() - 1))

    def _input(self) -> gp.Terminal:
        return gp.Terminal(random.randrange(self.inputs), False, INPUT)

    def _threshold(self) -> gp.Terminal:
        size = math.ldexp(self._largest, -random.randrange(HALVINGS))
        return _threshold(size * (2 * random.random() - 1))

    def weights(self, tree: gp.PrimitiveTree) -> NDArray[np.float32]:
        """Return a tree as weights; a leaf's scores are 1 for its action and 0 for all others.  # [P]"""
        weights = np.zeros(self._network.size, np.float32)
        inputs, thresholds, kernel, _ = self._network.split(weights)  # views
        inputs[:] = 0.5
        nodes = iter(tree)

        def write(node: Any, at: int, first: int, leaves: int) -> None:
            if node.arity == 0:
                kernel[first : first + leaves, node.value] = 1
                return
            inputs[at], thresholds[at] = next(nodes).value + 0.5, next(nodes).value
            write(next(nodes), 2 * at + 1, first, leaves // 2)
            write(next(nodes), 2 * at + 2, first + leaves // 2, leaves // 2)

        write(next(nodes), 0, 0, self._leaves)
        return weights

    def tree(self, weights: NDArray[np.float32]) -> list[Any]:
        """Return the nodes of the tree that weights hold, without splits that decide nothing.  # [P] -> nodes"""
        inputs, thresholds, kernel, bias = self._network.split(weights)
        best = np.argmax(kernel + bias, axis=1).tolist()

        def read(at: int, first: int, leaves: int, known: dict[int, tuple[float, float]]) -> list[Any]:
            """Return the nodes from node `at` on; of inputs, lowest values and those that they are below are known."""
            if len(set(best[first : first + leaves])) == 1:
                return [gp.Terminal(best[first], False, TREE)]
            number, half = int(input_of(inputs[at], self.inputs)), leaves // 2
            low, high = known.get(number, (-math.inf, math.inf))
            threshold = float(thresholds[at])
            if threshold >= high:
                return read(2 * at + 1, first, half, known)
            if threshold <= low:
                return read(2 * at + 2, first + half, half, known)
            below = read(2 * at + 1, first, half, {**known, number: (low, threshold)})
            above = read(2 * at + 2, first + half, half, {**known, number: (threshold, high)})
            if below == above:
                return below
            return [SPLIT, gp.Terminal(number, False, INPUT), _threshold(threshold), *below, *above]

        return read(0, 0, self._leaves, {})


def _threshold(value: float) -> gp.Terminal:
    return gp.Terminal(float(np.float32(value)), False, THRESHOLD)
