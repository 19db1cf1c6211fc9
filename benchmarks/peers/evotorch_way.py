"""EvoTorch's way to play a population: `torch.func.vmap` over candidates, all their episodes in step until the last.

A loop over candidates gives the same scores, and is faster for large networks; the faster form is measured too. The
network is a `ModuleExpectingFlatParameters` of EvoTorch's; the boards are ours, so it waits for no environment.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from evotorch.neuroevolution.net.functional import ModuleExpectingFlatParameters

from benchmarks.peers import answer
from benchmarks.peers.torch_network import network, translated
from evo.games.batch import SAME_STEP, Batch
from evo.games.catalogue import snake
from evo.records import GOES_ON


def forms(module: Any) -> dict[str, Any]:
    """Return functions of weights [K, P] and planes [K, E, C, H, W] that return scores [K, E, A]; the usual first."""
    return {
        "vmap": torch.func.vmap(module, in_dims=(0, 0)),
        "loop": lambda flat, planes: torch.stack([module(*both) for both in zip(flat, planes, strict=True)]),
    }


def fastest(module: Any, flat: Any, planes: Any) -> str:
    """Return the form that scores one step of all episodes in the shortest time, least of five; all score alike."""
    took: dict[str, float] = {}
    first, second = (score(flat, planes) for score in forms(module).values())
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-3 * float(first.abs().max())):
        raise RuntimeError("the loop scores otherwise than vmap")
    for _ in range(5):
        for name, score in forms(module).items():
            began = time.perf_counter()
            score(flat, planes)
            took[name] = min(took.get(name, 9e9), time.perf_counter() - began)
    return min(took, key=lambda name: took[name])


CHOSEN: dict[str, str] = {}


@torch.no_grad()  # type: ignore[untyped-decorator]
def play(
    form: str, policy: dict[str, Any], environment: dict[str, Any], seeds: list[int], weights: str
) -> dict[str, Any]:
    """Return what candidates of a file of weights [K, P] did in these episodes; form: "usual" or "fastest"."""
    torch.set_num_threads(1)
    net = network(policy)
    module = ModuleExpectingFlatParameters(net, disable_autograd_tracking=True)
    flat = torch.from_numpy(translated(np.load(weights), net))
    candidates, episodes = len(flat), len(seeds)
    key = f"{form} {policy} {candidates} {episodes}"
    if key not in CHOSEN:
        height, width, channels = policy["shape"]
        first = torch.rand(candidates, episodes, channels, height, width)
        CHOSEN[key] = "vmap" if form == "usual" else fastest(module, flat, first)
    scores = forms(module)[CHOSEN[key]]
    envs = snake.make(snake.Options(**environment))
    boards = Batch(envs.game, candidates * episodes, SAME_STEP)
    everywhere, random = np.ones(candidates * episodes, np.bool_), np.random.Generator(np.random.Philox(key=0))
    began = time.perf_counter()
    boards.begin(everywhere, [seeds[b % episodes] for b in range(candidates * episodes)], random)
    frames = computed = 0
    fruits, lengths = np.zeros(candidates * episodes, np.int64), np.zeros(candidates * episodes, np.int64)
    playing = everywhere.copy()
    while playing.any():
        planes = torch.from_numpy(boards.out).reshape(candidates, episodes, *policy["shape"]).permute(0, 1, 4, 2, 3)
        chosen = scores(flat, planes).argmax(-1).reshape(-1).numpy()
        boards.step(chosen)
        lengths += playing
        frames, computed = frames + int(playing.sum()), computed + len(chosen)
        ended = playing & (boards.status != GOES_ON)
        fruits[ended] = boards.ended.episode_metrics[ended, envs.episode_metrics.index("score")]
        playing &= ~ended
    took = time.perf_counter() - began
    return {
        "seconds": took,
        "frames": frames,
        "computed": computed,
        "fruits": fruits.tolist(),
        "lengths": lengths.tolist(),
        "form": CHOSEN[key],
    }


if __name__ == "__main__":
    answer(play)
