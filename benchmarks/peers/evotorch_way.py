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
from numba import njit

from benchmarks.peers import answer
from benchmarks.peers.torch_network import network, translated
from evo.compiled import cache as kernel_cache
from evo.games.contract import GOES_ON
from snake.batch import Rules, make_boards, reset_board, step_board
from snake.observe import observe_many

kernel_cache.use("benchmarks.peers.evotorch_way")  # it runs as __main__


@njit(cache=True, error_model="numpy")
def _begin(boards, rules, seeds):  # type: ignore[no-untyped-def]
    for b in range(boards.state.shape[0]):
        reset_board(boards, rules, b, seeds[b % seeds.shape[0]])


@njit(cache=True, error_model="numpy")
def _advance(boards, rules, actions):  # type: ignore[no-untyped-def]
    """Play an action on every board that is not over; return how many there were."""
    played = 0
    for b in range(actions.shape[0]):
        if boards.state[b].over == GOES_ON:
            step_board(boards, rules, b, actions[b])
            played += 1
    return played


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
    form: str, policy: dict[str, Any], rules: list[int], observation: int, seeds: list[int], weights: str
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
    game = Rules(*rules)
    boards = make_boards(candidates * episodes, game.size)
    seen = np.empty((candidates * episodes, *policy["shape"]), np.float32)
    began = time.perf_counter()
    _begin(boards, game, np.array(seeds, np.uint64))
    frames = computed = 0
    while True:
        observe_many(boards, game, observation, seen)
        planes = torch.from_numpy(seen).reshape(candidates, episodes, *policy["shape"]).permute(0, 1, 4, 2, 3)
        chosen = scores(flat, planes).argmax(-1).reshape(-1).numpy()
        played = _advance(boards, game, chosen)
        frames, computed = frames + played, computed + len(chosen)
        if (boards.state["over"] != GOES_ON).all():
            break
    took = time.perf_counter() - began
    fruits = (boards.state["length"].astype(np.int64) - game.start_length).tolist()
    return {
        "seconds": took,
        "frames": frames,
        "computed": computed,
        "fruits": fruits,
        "lengths": boards.state["steps"].tolist(),
        "form": CHOSEN[key],
    }


if __name__ == "__main__":
    answer(play)
