"""Evaluations until functions of the BBOB collection are solved, compared with pycma and cmaes.

    python -m benchmarks --only bbob [--peers DIR]

No time is measured: the figures are the same on a busy machine. Without the peers' environment ours stands alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import exp, log
from statistics import mean, median

from benchmarks.peers import Peer, interpreter, missing
from benchmarks.peers.cma_way import FUNCTIONS, MANY, SIGMA, SIZE, TARGET, instance, told
from benchmarks.tables import Form, Limit, Table, number
from evo import Search

SEEDS, BUDGET = 15, 100_000
TRIED = 3  # seeds: where none of them solves a function with one optimum, the others are not tried
SHORT = ("sphere", "rosenbrock")  # with one seed, of the short form
ALGORITHMS = {False: "cma_es", True: "sep_cma_es"}  # by whether the covariance matrix is diagonal
PEERS = ("pycma", "cmaes")
LEAST = 0.8  # pycma's evaluations over ours, where both have solved a function


def ours(diagonal: bool, name: str, seed: int) -> int:
    """Return the evaluations of an `evo.Search`; 0: not solved."""
    options = {"population": MANY.get(name, 12), "sigma": SIGMA}  # 12 = 4 + 3 ln 20, as the peers have
    search = Search(instance(name, seed)[1], ALGORITHMS[diagonal], seed=seed + 1, minimise=True, **options)
    return told(name, seed, BUDGET, search.ask, lambda _, values: search.tell(values))


def theirs(peer: Peer, library: str, diagonal: bool, name: str, seed: int) -> int:
    """Return the evaluations of another library."""
    asked = {"library": library, "name": name, "budget": BUDGET, "diagonal": diagonal}
    return int(peer.ask(**asked, seed=seed)["evaluations"])


def counted(solve: Callable[[str, int], int], name: str, seeds: range) -> list[int]:
    """Return the evaluations of each seed, or of the first TRIED, where none of these solves the function."""
    tried = len(seeds) if name in MANY else TRIED
    found = [solve(name, seed) for seed in seeds[:tried]]
    return [*found, *(solve(name, seed) for seed in seeds[tried:])] if any(found) else found


def cell(evaluations: list[int]) -> str:
    """Return the median of the seeds that solved a function, and how many did where some did not."""
    solved = [count for count in evaluations if count]
    share = "" if len(solved) == len(evaluations) else f" ({len(solved)}/{len(evaluations)})"
    return (number(median(solved)) if solved else "-") + share


def run(form: Form) -> list[Table]:
    """Return a table for full covariance matrices, and one for diagonal ones."""
    python = form.peers and interpreter(form.peers, "cma")
    with ExitStack() as stack:
        peer = stack.enter_context(Peer(python, "cma_way")) if python else None
        return [_table(form, peer, diagonal) for diagonal in ALGORITHMS]


def _table(form: Form, peer: Peer | None, diagonal: bool) -> Table:
    kind, seeds = "separable" if diagonal else "full", range(1 if form.smoke else SEEDS)
    table = Table(
        f"Functions of BBOB by {kind} CMA-ES",
        f"Median evaluations until a function of {SIZE} numbers is within {TARGET:g} of its optimum, over {len(seeds)} "
        "seeds, each with its own optimum, rotation and start; in brackets how many seeds did it within "
        f"{BUDGET:,}. A function with one optimum that none of the first {TRIED} seeds solves is not tried with "
        f"others. Populations of 12, for Rastrigin's function {MANY['rastrigin']}; sigma {SIGMA:g}; no restarts. Our "
        "vectors are of float32, which resolves 1e-8 not at all of cigar and different powers, and not always of "
        "ellipsoids. "
        f"Ours is `evo.Search` with `{ALGORITHMS[diagonal]}`, which also evaluates its mean in every generation.",
        ("function", "ours", *(PEERS if peer else ())),
    )
    ratios = []
    names = [name for name, (_, rotated) in FUNCTIONS.items() if not (rotated and diagonal)]
    for name in SHORT if form.smoke else names:
        found = [counted(partial(ours, diagonal), name, seeds)]
        if peer:
            found += [counted(partial(theirs, peer, library, diagonal), name, seeds) for library in PEERS]
        table.rows.append([name, *map(cell, found)])
        if peer and all(map(any, found[:2])):
            own, pycma = (median(filter(None, counts)) for counts in found[:2])
            ratios.append(log(pycma / own))
    if ratios:
        what = f"{kind} CMA-ES: pycma's evaluations over ours, geometric mean of solved functions"
        table.limits.append(Limit(what, exp(mean(ratios)), LEAST, ratio=True))
    if peer is None:
        table.without(missing("cma", "pycma and cmaes"))
    return table
