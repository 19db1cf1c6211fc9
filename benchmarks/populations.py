"""A population of different networks, played our way and the peers': the same networks, board and number of episodes.

EvoTorch plays our boards, so its episodes are ours and are compared one by one. EvoJAX and evosax play Jumanji's Snake,
with the same planes and the same end, so their episodes are as long as ours on average.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Peer, interpreter, missing
from benchmarks.rollout import Case, cases, gemm_flops, mutated, needed_flops
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.games.catalogue import snake
from evo.networks.candidates import Rebuilder
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Result, Task
from evo.rollouts.rollout import Rollout

EPISODES, STEPS = 16, 100  # of a candidate; an episode ends after so many steps at the latest
CANDIDATES = {"tiny": 64, "seed": 4}
ROUNDS = 3
AGREES = 0.97  # of episodes are equal where the boards are; scores that are nearly equal may flip
LENGTHS = 0.4  # by which mean lengths may differ where the boards are others,
ERRORS = 4.0  # or so many standard errors, where episodes are few
RATIO = 2.0


@dataclass
class Way:
    """One way to play, and what it did in every round."""

    name: str
    play: Callable[[], dict[str, Any]]  # seconds, frames, computed, lengths
    same_boards: bool
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def speed(self, what: str) -> float:
        """Return `what` a second, the median over rounds."""
        return float(median(played[what] / played["seconds"] for played in self.rounds))


def measured(case: Case, form: Form, table: Table) -> None:
    """Add the rows of one network."""
    options = snake.Options(**{**case.environment.options.model_dump(), "max_steps": STEPS})
    case = replace(case, environment=snake.make(options))
    parents, source = case.candidates()
    candidates = CANDIDATES[case.name.split(",")[0]]
    task = Task(source(candidates, 0), Episodes(episode_keys(0, Purpose.TRAINING, 0, EPISODES)))
    rollout = Rollout(case.network, case.environment)
    rollout.play(task, parents)  # compiles

    def ours() -> dict[str, Any]:
        results: list[Result] = []
        took = seconds(lambda: results.append(rollout.play(task, parents)))
        lengths = results[0].lengths.ravel().tolist()
        return {"seconds": took, "frames": results[0].frames, "computed": results[0].lane_slots, "lengths": lengths}

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "weights.npy"
        _save(case, task, parents, file)
        peers, ways = _peers(case, form, table, file, task)
        ways.insert(0, Way("ours", ours, True))
        try:
            for _ in range(1 if form.smoke else ROUNDS):
                for way in ways:
                    way.rounds.append(way.play())
        finally:
            for peer in peers:
                peer.close()
    limit = gemm_flops() / needed_flops(case.network)
    for way in ways:
        _check(way, ways[0])
        _add(way, ways[0], limit, case.name, table)
    if torch := [ratio(ways[0], way, "computed") for way in ways if way.name.startswith("EvoTorch")]:
        table.limits.append(
            Limit(f"{case.name}: times all frames that EvoTorch computes", min(torch), RATIO, ratio=True)
        )


def _save(case: Case, task: Task, parents: NDArray[np.float32], file: Path) -> None:
    weights = np.empty((len(task.weights), case.network.size), np.float32)
    rebuilder = Rebuilder(case.network)
    for k, row in enumerate(weights):
        rebuilder.rebuild(parents, task.weights, k, row)
    np.save(file, weights)


def _peers(case: Case, form: Form, table: Table, file: Path, task: Task) -> tuple[list[Peer], list[Way]]:
    """Return the peers, and their ways: fresh networks in the usual form and in the fastest, mutated ones in that."""
    network, options = case.network, case.environment.options
    policy = {
        **network.options.model_dump(include={"conv", "dense", "padding"}),
        "shape": network.shape, "outputs": network.outputs, "size": network.size,
    }  # fmt: skip
    peers, ways = list[Peer](), list[Way]()
    usual = [] if case.sigma else ["usual"]
    assert isinstance(task.play, Episodes)
    if python := form.peers and interpreter(form.peers, "evotorch"):
        torch = Peer(python, "evotorch_way")
        what = {
            "policy": policy, "environment": options.model_dump(), "weights": str(file),
            "seeds": task.play.seeds.tolist(),
        }  # fmt: skip
        peers.append(torch)
        for which in (*usual, "fastest"):
            _add_way(ways, "EvoTorch", partial(torch.ask, form=which, **what), True)
    else:
        table.without(missing("evotorch", "EvoTorch"))
    if python := form.peers and interpreter(form.peers, "jax"):
        jax = Peer(python, "evojax_way")
        peers.append(jax)
        for name in ("EvoJAX", "evosax"):
            what = {
                "way": name, "policy": policy, "size": options.size, "steps": STEPS, "episodes": EPISODES,
                "weights": str(file),
            }  # fmt: skip
            for which in (*usual, "fastest"):
                _add_way(ways, name, partial(jax.ask, form=which, **what), False)
    else:
        table.without(missing("jax", "EvoJAX and evosax"))
    return peers, ways


def _add_way(ways: list[Way], library: str, play: Callable[[], dict[str, Any]], same_boards: bool) -> None:
    """Add a way once it has compiled, unless its form is there already."""
    name = f"{library}, {play()['form']}"
    if name not in [way.name for way in ways]:
        ways.append(Way(name, play, same_boards))


def _check(way: Way, ours: Way) -> None:
    """Raise RuntimeError where a way has not played what it should have."""
    for played, wanted in zip(way.rounds, ours.rounds, strict=True):
        lengths, ends = np.array(played["lengths"]), np.array(wanted["lengths"])
        told = json.dumps({"ours": ends.mean(), way.name: lengths.mean()})
        if lengths.sum() != played["frames"] or lengths.min() < 1 or lengths.max() > STEPS:
            raise RuntimeError(f"{way.name}: {played['frames']} frames in episodes of {lengths.sum()}; {told}")
        if len(lengths) != len(ends):
            raise RuntimeError(f"{way.name}: {len(lengths)} episodes instead of {len(ends)}")
        if way.same_boards and (lengths == ends).mean() < AGREES:
            raise RuntimeError(
                f"{way.name}: only {(lengths == ends).mean():.2f} of episodes are as long as ours; {told}"
            )
        error = np.sqrt((lengths.var() + ends.var()) / len(ends))
        if not way.same_boards and abs(lengths.mean() - ends.mean()) > max(LENGTHS * ends.mean(), ERRORS * error):
            raise RuntimeError(f"{way.name}: episodes are not as long as ours on average; {told}")


def _add(way: Way, ours: Way, limit: float, name: str, table: Table) -> None:
    frames, computed = way.speed("frames"), way.speed("computed")
    row = [f"{name}, {way.name}", number(frames), number(computed)]
    if way is ours:
        table.rows.append([*row, "", "", f"{frames / limit:.2f}"])
        return
    useful, every = ratio(ours, way, "frames"), ratio(ours, way, "computed")
    table.rows.append([*row, f"{useful:.1f}", f"{every:.2f}", f"{computed / limit:.2f}"])


def ratio(ours: Way, way: Way, what: str) -> float:
    """Return how many of our useful frames a second there are for one of `what` theirs, the median over rounds."""
    pairs = zip(ours.rounds, way.rounds, strict=True)
    return float(median(a["frames"] / a["seconds"] / (b[what] / b["seconds"]) for a, b in pairs))


def run(form: Form) -> Table:
    """Return the table of both networks and every peer whose environment is there."""
    table = Table(
        "Playing a population, compared with other libraries, one core",
        f"{EPISODES} episodes per candidate of at most {STEPS} steps; medians over rounds in which all libraries "
        "alternate. Networks are freshly initialised, or *mutated*: mutants of one fresh network with sigma 0.1, as in "
        "evolution. Fresh biases are zero, which makes ours faster. Other libraries play in the form that their users "
        "write (`vmap` of convolutions), and in the fastest of the forms that we tried, which give the same scores: "
        "`vmap` or a loop over candidates, convolutions or matrix products with patches. *Useful* frames belong to "
        "episodes that are still running. The other libraries step all episodes until the last one ends, which counts "
        "as *computed*. *Ratio* is our useful frames per second divided by theirs; *of computed* is the ratio if none "
        "of their frames were wasted. *Of limit* is our useful frames, or all frames that they compute, divided by the "
        "arithmetic limit (a large float32 matrix product on one thread), which counts products with zeros too.",
        ("network, library", "useful frames/s", "computed/s", "ratio", "of computed", "of limit"),
    )
    for case in cases():
        for both in (case, mutated(case)):
            measured(both, form, table)
    return table
