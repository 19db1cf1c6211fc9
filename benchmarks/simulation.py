"""How a generation scales from one worker to thousands: simulated from measured costs, checked against measurement.

Checked twice: with tasks of a run, where workers are the limit, and with tasks in which nothing is played, where the
master is. The model is `benchmarks/pool_model.py`; assumptions, and what follows: `docs/scaling.md`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks import costs
from benchmarks.costs import Master, Masters, Own, typical
from benchmarks.peers import ROOT
from benchmarks.pool_model import BANDWIDTH, CORES, LARGEST, TRIP, WORTH, Work, generation, needed, simulate
from benchmarks.rollout import Case, cases
from benchmarks.scaling import Alone, tasks
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.config.environments import environment_of
from evo.config.experiment import Experiment, evaluator_of
from evo.evaluators import processes
from evo.networks.network import Network
from evo.player import RunSpec, make_player
from evo.records import Episodes, Evaluator, Request, Task
from evo.store.store import Store
from evo.training.beginning import make_algorithm
from evo.training.generation import addressed, play_out

WORKERS = tuple(2**i for i in range(13))  # 1 to 4,096
CHECKED = (1, 2, 4)
ALONE = 3  # times that every task is played by itself
GENERATIONS = 12  # of experiments/ga_snake.toml before one is looked at
# On the large board alone, and with as many episodes as fill the lanes.
WORK = ("environment.training={starvation = 40}", "ga.sigma_path=false", "ga.episodes=32")
LENGTHS = (100, 1000, 3000)  # frames of an episode
AGREES = 0.15  # by which prediction and measurement may differ
EMPTY = (1, 2, 8)  # workers that answer at once
EMPTY_AGREES = 0.5  # by which they may differ there, where all that is measured is the master


def _in_mid_run(experiment: Experiment, directory: Path, generations: int) -> Request:
    """Return what an experiment asks for after so many generations."""
    algorithm = make_algorithm(experiment, environment_of(experiment.environment))
    evaluator = evaluator_of(experiment, directory)
    try:
        with Store.create(directory, experiment.to_toml(), experiment.identity()) as store:
            for number_ in range(generations):
                metrics = play_out(algorithm.generation(number_), evaluator, store.publish)
                store.commit(number_, algorithm.state(), algorithm.record(), metrics)
            store.flush()  # so that tasks name files that stay
            rounds = algorithm.generation(generations)
            request = next(rounds)
            assert request.weights is not None
            tasks = addressed(replace(request, weights=request.weights.copy()), store.publish)[1]
            rounds.close()
            return Request(None, tasks)
    finally:
        evaluator.close()


def _played(experiment: Experiment, directory: Path, tasks: Sequence[Task]) -> tuple[NDArray[np.float64], int, int]:
    """Return the seconds of every task, played one after the other, and the frames and lane slots of all."""
    player = make_player(RunSpec(directory, experiment.environment, experiment.policy))
    player.play(tasks[0])
    took = np.empty((ALONE, len(tasks)))
    for again in range(ALONE):
        frames = slots = 0
        for i, task in enumerate(tasks):
            results = []
            took[again, i] = seconds(lambda: results.append(player.play(task)))  # noqa: B023
            frames, slots = frames + results[0].frames, slots + results[0].lane_slots
    return np.median(took, 0), frames, slots


def measured(
    experiment: Experiment, directory: Path, tasks: Sequence[Task], rounds: int
) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Return the seconds of each round in which pools of CHECKED workers play tasks, and of playing without a master.

    For the latter as many processes, but no more than cores, play all tasks each for itself; all take turns.
    """
    cores, pools, without = len(os.sched_getaffinity(0)), {}, {}
    took: dict[int, list[float]] = {workers: [] for workers in CHECKED}
    alone: dict[int, list[float]] = {min(workers, cores): [] for workers in CHECKED}
    spec = RunSpec(directory, experiment.environment, experiment.policy)
    try:
        for workers in CHECKED:
            sized = processes.one_worker(experiment.workers).model_copy(update={"count": workers})
            pools[workers] = evaluator_of(_with_workers(experiment, sized), directory)
            pools[workers].map(tasks)
        for workers in alone:
            without[workers] = Alone(spec, workers)
            without[workers].seconds(tasks[:1])
        for _ in range(rounds):
            for workers, pool in pools.items():
                took[workers].append(seconds(lambda: pool.map(tasks)))  # noqa: B023
            for workers, players in without.items():
                alone[workers].append(players.seconds(tasks))
    finally:
        opened: list[Evaluator | Alone] = [*pools.values(), *without.values()]
        for one in opened:
            one.close()
    return took, alone


def _with_workers(experiment: Experiment, workers: object) -> Experiment:
    return type(experiment)(**{**vars(experiment), "workers": workers})


def work_of(name: str, experiment: Experiment, directory: Path, tasks: Sequence[Task], own: Own) -> tuple[Work, float]:
    """Return a kind of generation, measured, and its share of lane slots that were busy."""
    durations, frames, slots = _played(experiment, directory, tasks)
    network, first = experiment.network(), tasks[0]
    assert isinstance(first.play, Episodes)
    rebuild = _rebuilding(network)
    candidates = sum(len(task.weights) for task in tasks)
    frame = max(durations.sum() - candidates * rebuild, 0.1 * durations.sum()) / frames
    return Work(
        name, durations, len(first.weights), frame, rebuild, len(first.play.seeds), durations / durations.mean(), own,
        4 * network.size,
    ), frames / slots  # fmt: skip


def _rebuilding(network: Network) -> float:
    from benchmarks.rollout import children
    from evo.networks.candidates import Rebuilder

    rebuilder = Rebuilder(network)
    parents = np.zeros((1, network.size), np.float32)
    out, source = parents[0].copy(), children(1, 1, 0.1)
    rebuilder.rebuild(parents, source, 0, out)
    return median(seconds(lambda: rebuilder.rebuild(parents, source, 0, out)) for _ in range(5))


def check(form: Form, master: Master, place: Path, own: Own) -> tuple[Table, Work]:
    """Return the table that holds predictions against measurements, and what was measured."""
    experiment = Experiment.load(ROOT / "experiments" / "ga_snake.toml", *WORK)
    request = _in_mid_run(experiment, place / "run", GENERATIONS)
    work, busy = work_of("ga_snake", experiment, place / "run", request.tasks, own)
    found, alone = measured(experiment, place / "run", request.tasks, 5)
    most = max(alone)
    gain = median(most * one / all_ for one, all_ in zip(alone[1], alone[most], strict=True))
    table = Table(
        "Scaling, simulated and measured",
        f"Seconds of playing generation {GENERATIONS} of experiments/ga_snake.toml on one board, with 32 episodes a "
        f"candidate ({len(request.tasks)} tasks), by number of workers; medians of alternating rounds. The simulation "
        f"is given the time of each task alone, the master's work per task ({1e6 * master.task:.0f} us) and per poll "
        f"for results ({1e6 * master.loop:.0f} us, and {1e6 * master.slot:.1f} us per worker), and the transfer time "
        f"of a task ({1e6 * master.transit:.0f} us). For each round it is given how long all tasks take in a process "
        f"without a master, alone and next to others ({most} do {gain:.2f} times as much as one), and that workers "
        "share the cores.",
        ("workers", "simulated, s", "measured, s", "simulated / measured", "speed, relative to one worker"),
    )
    for workers in CHECKED:
        beside = min(workers, most)
        slower = [workers / beside * took / work.durations.sum() for took in alone[beside]]
        predicted = [simulate(work.durations * s, workers, master, master.transit)[0] for s in slower]
        ratio = median(a / b for a, b in zip(predicted, found[workers], strict=True))
        speed = median(a / b for a, b in zip(found[1], found[workers], strict=True))
        row = [str(workers), number(median(predicted)), number(median(found[workers])), f"{ratio:.2f}"]
        table.rows.append([*row, f"{speed:.2f}"])
        name = f"{workers} workers: prediction off by"
        table.limits.append(Limit(name, off(ratio, 1.0), AGREES, most=True))
    table.limits.append(Limit("lane utilisation in that generation of 32 episodes", busy, 0.80))
    return table, work


@dataclass(frozen=True)
class Idle:
    """A round in which pools played nothing: the master's costs, and seconds per task by number of workers."""

    master: Master
    used: dict[int, float]  # of the master's processor
    took: dict[int, float]


def idle_rounds(form: Form, tasks: Sequence[Task]) -> list[Idle]:
    """Measure the master's costs, and in turns with that pools as runs have them, whose workers answer at once."""
    rounds = []
    with ExitStack() as stack:
        masters = stack.enter_context(Masters(form.smoke))
        pools = {workers: stack.enter_context(costs.idle_pool(workers)) for workers in EMPTY}
        for again in range(6 if form.smoke else 16):
            used, took = dict[int, float](), dict[int, float]()
            master = masters.measure(tasks)
            for workers, pool in pools.items():
                before = time.process_time()
                took[workers] = seconds(lambda: pool.map(tasks)) / len(tasks)  # noqa: B023
                used[workers] = (time.process_time() - before) / len(tasks)
            if again:  # in the first one workers start
                rounds.append(Idle(master, used, took))
    return rounds


def empty(rounds: Sequence[Idle], tasks: int, *, clock: bool = True) -> Table:
    """Return the table that holds predictions against measurements where workers answer at once."""
    table = Table(
        "Scaling where the master is the limit, simulated and measured",
        f"{tasks} tasks in which nothing is played, by number of workers, in microseconds per task; medians of "
        f"{len(rounds)} rounds. *CPU time* is the master's. In every round its costs are measured first, with pools "
        "that never prefetch; the simulation is given these, and predicts pools as runs have them. A master that costs "
        "twice as much takes twice as long here, which the table above could not show. Times are compared where "
        "workers and master have a core each.",
        ("workers", "CPU time, simulated", "measured", "time, simulated", "measured"),
    )
    for workers in EMPTY:
        simulated = [simulate(np.zeros(tasks), workers, x.master, x.master.transit) for x in rounds]
        whole = [took / tasks for took, _ in simulated]
        own = [took * busy / tasks for took, busy in simulated]
        used, took = [x.used[workers] for x in rounds], [x.took[workers] for x in rounds]
        table.rows.append([str(workers), *(number(1e6 * median(x)) for x in (own, used, whole, took))])
        compared = [("CPU time", own, used)]
        if clock and workers < len(os.sched_getaffinity(0)):
            compared.append(("time", whole, took))
        for what, predicted, found in compared:
            ratio = median(a / b for a, b in zip(predicted, found, strict=True))
            name = f"{workers} workers, empty tasks: {what} off by"
            table.limits.append(Limit(name, off(ratio, 1.0), EMPTY_AGREES, most=True))
    return table


def off(predicted: float, measured_: float) -> float:
    """Return by how much the larger of two durations exceeds the other, as a share of that."""
    return max(predicted / measured_, measured_ / predicted) - 1


def predictions(works: Sequence[tuple[Work, int, float]], master: Master, workers: Sequence[int]) -> Table:
    """Return the table of what each number of workers brings, for each (kind, population, frames of an episode)."""
    names = [f"{work.name}, {population:,} of {length:,.0f} frames" for work, population, length in works]
    table = Table(
        "Scaling, predicted",
        "Speed relative to one worker, the share of time that workers play, and the share of time that the master "
        f"works, by population and mean episode length. Machines of {CORES} cores, {BANDWIDTH * 8 / 1e9:.0f} Gbit/s, "
        f"{1e6 * TRIP:.0f} us round trip; see docs/scaling.md.",
        ("workers", *names),
    )
    alone = [generation(work, population, length, 1, master)[0] for work, population, length in works]
    saturated = ["more than shown"] * len(works)
    for count in workers:
        row = [f"{count:,}"]
        for i, (work, population, length) in enumerate(works):
            whole, playing, busy = generation(work, population, length, count, master)
            row.append(f"{alone[i] / whole:,.1f}x, {playing:.0%}, {busy:.0%}")
            if busy >= 0.5 and saturated[i].startswith("more"):
                saturated[i] = f"{count:,}"
        table.rows.append(row)
    table.rows.append(["the master works half of the time from (workers)", *saturated])
    return table


def worth(works: Sequence[Work], master: Master, workers: Sequence[int], lengths: Sequence[int]) -> Table:
    """Return the table of the smallest population for which a number of workers is worth it."""
    table = Table(
        "Smallest useful population by number of workers",
        f"The smallest population, a power of two, that keeps workers playing for {WORTH:.0%} of their time, by mean "
        f"episode length in frames; -: none up to {LARGEST:,}.",
        ("workers", *(f"{work.name}, {length:,} frames" for work in works for length in lengths)),
    )
    least = {(work.name, length): 1 for work in works for length in lengths}
    for count in workers:
        row = [f"{count:,}"]
        for work in works:
            for length in lengths:
                found = least[work.name, length] and needed(work, length, count, master, least[work.name, length])
                least[work.name, length] = found
                row.append(f"{found:,}" if found else "-")
        table.rows.append(row)
    return table


def own_costs(own: dict[str, Own], least: Own, trip: float, speed: float) -> Table:
    """Return the table of what a generation costs its master; `least`: of 1.18 million weights, at the quickest."""
    table = Table(
        "Cost of a generation in the master",
        "Creating, ranking and recording a candidate, and rebuilding, publishing and committing a new parent, without "
        "the time of playing: least squares over populations of different sizes, with an evaluator that answers "
        f"immediately. TCP on this machine: {1e6 * trip:.0f} us round trip, {speed / 1e9:.1f} GB/s.",
        ("network", "per candidate, us", "per new parent, ms", "per generation, ms"),
    )
    for name, cost in own.items():
        row = [name, number(1e6 * cost.candidate), number(1e3 * cost.survivor), number(1e3 * cost.fixed)]
        table.rows.append(row)
    large = own["seed"]
    for what, measured_, target, best in (
        ("us per candidate", 1e6 * large.candidate, 100.0, 1e6 * least.candidate),
        ("ms per new parent", 1e3 * large.survivor, 10.0, 1e3 * least.survivor),
    ):
        table.limits.append(Limit(f"1.18 million weights: {what}", measured_, target, most=True, best=best))
    return table


def run(form: Form) -> list[Table]:
    """Return what was measured, how well it predicts, and the predictions."""
    tiny, seed = cases()
    own, least = dict[str, Own](), dict[str, Own]()
    own["tiny"], least["tiny"] = costs.own(tiny, ((64, 8), (1024, 8), (1024, 128)), 2 if form.smoke else 9)
    if not form.smoke:
        own["seed"], least["seed"] = costs.own(seed, ((16, 4), (1024, 4), (64, 32)), 9)
    trip, speed = costs.network()
    with tempfile.TemporaryDirectory(dir=os.getcwd(), prefix=".benchmark-") as place:
        near_empty = tasks(tiny, 200 if form.smoke else 400)
        idle = idle_rounds(form, near_empty)
        master = typical([each.master for each in idle])
        table, small = check(form, master, Path(place), own["tiny"])
        checks = [table, empty(idle, len(near_empty), clock=not form.smoke)]
        if form.smoke:
            return checks
        large = _large(seed, Path(place) / "large", own["seed"])
    mean = float(small.durations.mean()) / small.per_task
    length = (mean - small.rebuild) / (small.episodes * small.frame)
    works = [(small, 512, length), (small, 8192, 1000.0), (large, 1000, 1000.0), (large, 8192, 1000.0)]
    return [
        own_costs(own, least["seed"], trip, speed),
        *checks,
        predictions(works, master, WORKERS),
        worth((small, large), master, WORKERS[3:], LENGTHS),
    ]


def _large(case: Case, directory: Path, own: Own) -> Work:
    from benchmarks.generations import experiment_of

    experiment = experiment_of(case, 16, 4)
    request = _in_mid_run(experiment, directory, 1)
    return work_of("1.18 million weights", experiment, directory, request.tasks, own)[0]
