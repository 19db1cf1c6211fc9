"""Tiny cases in Numba's CUDA simulator: a program, since the simulator is chosen when Numba is imported.

NUMBA_ENABLE_CUDASIM=1 python -m tests.cuda.simulated tiny|one|others
"""

from __future__ import annotations

import sys

from tests.cuda import learning
from tests.cuda.comparing import Case, compare
from tests.cuda.simulator import Simulator

POOLED = ["one_hot 4", "max_pool 2 2", "tanh", "average_pool 2 1", "norm", "relu", "tree 2", "norm", "tanh"]
ALL_LAYERS = [*POOLED[:4], "conv 2 2 1", "norm", "relu", "tree 2", "gru 3", "norm", "tanh", "lstm 2"]
BOARD = {"size": 4, "starvation": 3, "observation": "frame", "mask": "fatal"}
SMALLEST = {"size": 4, "starvation": 2}
TINY = (
    Case("snake", SMALLEST, {"conv": [[2, 3, 2]], "dense": [3]}),
    Case("snake", SMALLEST, {"kind": "mlp", "dense": [3], "norm": "layer"}, crossover="layers", scale=3),
)
ONE = (Case("snake", BOARD, {"layers": ALL_LAYERS}, "softmax", "layers", 3),)
OTHERS = (
    Case("cartpole", {"max_steps": 7}, {"kind": "mlp", "dense": [9], "norm": "layer", "activation": "tanh"}, "softmax"),
    Case("catch", {}, {"layers": ["conv 3 3 3", "gru 3", "lstm 2"]}, "epsilon_greedy", "layers", 3),
    Case("snake", {**BOARD, "starvation": 9}, {"layers": POOLED}),
    Case("snake", {"size": 6, "starvation": 3}, {"conv": [[6, 3, 2]], "dense": [9]}),
)
UPDATES = learning.Updates((3, 3, 1), {"conv": [[2, 2, 2]], "dense": [3], "norm": "layer"}, counts=(3,))

if __name__ == "__main__":
    for case in {"tiny": TINY, "one": ONE, "others": OTHERS}[sys.argv[1]]:
        how = (6, 2, 0) if case in TINY else (6, 3, 2, 4)  # segments of the tiny ones take seconds to compile
        frames = compare(Case(**{**vars(case), "threads": 16}), Simulator(), *how, recorded=case is OTHERS[0])
        print(case, frames, "frames", flush=True)
    if sys.argv[1] != "tiny":
        learning.compare(UPDATES, Simulator(), (4,))
        print(UPDATES, flush=True)
