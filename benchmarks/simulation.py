"""How a generation scales from one worker to thousands: simulated from measured costs, checked against measurement.

The simulation is of the loop in `evo/evaluators/processes.py`: the master hands a task to every worker that waits,
and one more to each that plays, as long as more than two for each are left; looks for results, takes in those that
have arrived, and begins again. A worker that has answered goes on with what it has, or waits for its next.
Assumptions, and what follows: `docs/scaling.md`.
"""

from __future__ import annotations

import heapq
import os
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks import costs
from benchmarks.costs import Master, Own
from benchmarks.peers import ROOT
from benchmarks.rollout import Case, cases
from benchmarks.scaling import Alone
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.config import loading
from evo.config.experiment import Experiment, environment_of, evaluator_of
from evo.evaluators import processes
from evo.records import Episodes, Request, Task
from evo.rollouts.player import RunSpec, make_player
from evo.store.store import Store
from evo.training.generation import addressed, make_algorithm, play_out

WORKERS = tuple(2**i for i in range(13))  # 1 to 4,096
CHECKED = (1, 2, 4)
ALONE = 3  # times that every task is played by itself
GENERATIONS = 12  # of experiments/ga_snake.toml before one is looked at
CORES = 32  # assumed of a machine: workers beyond these are elsewhere
BANDWIDTH = 1.25e9  # bytes a second that the master's machine sends, assumed: 10 Gbit/s
TRIP = 1e-4  # seconds to another machine and back, assumed
LENGTHS = (100, 1000, 3000)  # frames of an episode
WORTH = 0.5  # of a worker's time is spent playing
LARGEST = 1 << 20  # population that is looked at
AGREES = 0.15  # by which prediction and measurement may differ


def simulate(durations: NDArray[np.float64], workers: int, master: Master, transit: float) -> tuple[float, float]:
    """Return the seconds until the results of all tasks are there, and the share of them that the master works.

    `durations` [N] are seconds of playing, in the order of tasks; `transit` is a task's way and its result's.
    """
    now = worked = 0.0
    waiting = deque(durations.tolist())
    idle, alone = list(range(workers)), dict[int, None]()  # alone: whoever plays and has no task for afterwards
    playing: list[tuple[float, int]] = []  # when a worker's result is there
    ahead: dict[int, tuple[float, float]] = {}  # when a worker's next task is there, and how long it takes
    while waiting or playing:
        for worker in [idle.pop() for _ in range(min(len(idle), len(waiting)))]:
            now, worked = now + master.task / 2, worked + master.task / 2
            heapq.heappush(playing, (now + transit + waiting.popleft(), worker))
            alone[worker] = None
        while alone and len(waiting) > 2 * workers:
            now, worked = now + master.task / 2, worked + master.task / 2
            ahead[alone.popitem()[0]] = (now + transit, waiting.popleft())
        now = max(now, playing[0][0])
        look = master.loop + master.slot * workers
        until = now
        while playing and playing[0][0] <= until:
            ended, worker = heapq.heappop(playing)
            look += master.task / 2
            if worker in ahead:
                there, takes = ahead.pop(worker)
                heapq.heappush(playing, (max(ended, there) + takes, worker))
                alone[worker] = None
            else:
                del alone[worker]
                idle.append(worker)
        now, worked = now + look, worked + look
    return now, worked / now


@dataclass(frozen=True)
class Work:
    """A kind of generation: what its tasks take and what it costs its master."""

    name: str
    durations: NDArray[np.float64]  # [N] seconds of tasks, a sample
    per_task: int  # candidates
    frame: float  # seconds of an episode's frame, one worker
    rebuild: float  # seconds of a candidate before its first frame
    episodes: int
    spread: NDArray[np.float64]  # [N] tasks' durations over their mean
    own: Own
    row: int  # bytes of a survivor

    def tasks(self, population: int, length: float) -> NDArray[np.float64]:
        """Return the seconds of the tasks of a population whose episodes have `length` frames on average."""
        each = self.per_task * (self.rebuild + self.episodes * length * self.frame)
        draw = np.random.default_rng(population)
        return each * draw.choice(self.spread, -(-population // self.per_task))

    def serial(self, population: int, survivors: int, workers: int) -> float:
        """Return the seconds of a generation in which no worker plays."""
        machines = -(-workers // CORES) - 1
        sending = machines * survivors * self.row / BANDWIDTH
        return self.own.fixed + population * self.own.candidate + survivors * self.own.survivor + sending


def generation(work: Work, population: int, length: float, workers: int, master: Master) -> tuple[float, float, float]:
    """Return the seconds of a generation, the share of workers' time that is playing, and the master's busy share."""
    durations = work.tasks(population, length)
    transit = master.transit + (TRIP if workers > CORES else 0.0)
    mapping, busy = simulate(durations, workers, master, transit)
    serial = work.serial(population, min(64, population // 8), workers)
    whole = serial + mapping
    return whole, float(durations.sum()) / (workers * whole), (serial + busy * mapping) / whole


def needed(work: Work, length: float, workers: int, master: Master, least: int) -> int:
    """Return the smallest population, a power of two, that keeps workers playing for WORTH of their time; 0: none."""
    population = max(least, 256)
    while population <= LARGEST:
        if population >= workers and generation(work, population, length, workers, master)[1] >= WORTH:
            return population
        population *= 2
    return 0


def _in_mid_run(experiment: Experiment, directory: Path, generations: int) -> Request:
    """Return what an experiment asks for after so many generations."""
    algorithm = make_algorithm(experiment, environment_of(experiment.environment))
    evaluator = evaluator_of(experiment, directory)
    try:
        with Store.create(directory, experiment.to_toml(), experiment.identity()) as store:
            for number_ in range(generations):
                metrics = play_out(algorithm.generation(number_), evaluator, store)
                store.commit(number_, algorithm.state(), algorithm.record(), metrics)
            store.flush()  # so that tasks name files that stay
            rounds = algorithm.generation(generations)
            request = next(rounds)
            assert request.weights is not None
            tasks = addressed(replace(request, weights=request.weights.copy()), store)[1]
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
        for pool in (*pools.values(), *without.values()):
            pool.close()
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


def _rebuilding(network: object) -> float:
    from benchmarks.rollout import children
    from evo.networks.candidates import Rebuilder

    rebuilder = Rebuilder(network)  # type: ignore[arg-type]
    parents = np.zeros((1, network.size), np.float32)  # type: ignore[attr-defined]
    out, source = parents[0].copy(), children(1, 1, 0.1)
    rebuilder.rebuild(parents, source, 0, out)
    return median(seconds(lambda: rebuilder.rebuild(parents, source, 0, out)) for _ in range(5))


def check(form: Form, master: Master, place: Path, own: Own) -> tuple[Table, Work]:
    """Return the table that holds predictions against measurements, and what was measured."""
    experiment = loading.load(ROOT / "experiments" / "ga_snake.toml")
    request = _in_mid_run(experiment, place / "run", 3 if form.smoke else GENERATIONS)
    work, busy = work_of("ga_snake", experiment, place / "run", request.tasks, own)
    found, alone = measured(experiment, place / "run", request.tasks, 2 if form.smoke else 5)
    most = max(alone)
    gain = median(most * one / all_ for one, all_ in zip(alone[1], alone[most], strict=True))
    table = Table(
        "Scaling, simulated and measured",
        f"Seconds of playing generation {3 if form.smoke else GENERATIONS} of experiments/ga_snake.toml "
        f"({len(request.tasks)} tasks), by number of workers; medians of alternating rounds. The simulation is "
        f"given the time of each task alone, the master's work per task ({1e6 * master.task:.0f} us) and per poll for "
        f"results ({1e6 * master.loop:.0f} us, and {1e6 * master.slot:.1f} us per worker), and the transfer time of a "
        f"task ({1e6 * master.transit:.0f} us). For each round it is given how long all tasks take in a process "
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
        away = abs(ratio - 1)
        table.limits.append(Limit(f"{workers} workers: prediction off by", away, AGREES, most=True))
    table.limits.append(Limit("lane utilisation in that generation of 32 episodes", busy, 0.80))
    return table, work


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
    for what, cost, target, best in (
        ("us per candidate", 1e6 * large.candidate, 100.0, 1e6 * least.candidate),
        ("ms per new parent", 1e3 * large.survivor, 10.0, 1e3 * least.survivor),
    ):
        table.limits.append(Limit(f"1.18 million weights: {what}", cost, target, most=True, best=best))
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
        table, small = check(form, _master(tiny, form), Path(place), own["tiny"])
        master = _master(tiny, form)
        if form.smoke:
            return [table]
        large = _large(seed, Path(place) / "large", own["seed"])
    mean = float(small.durations.mean()) / small.per_task
    length = (mean - small.rebuild) / (small.episodes * small.frame)
    works = [(small, 512, length), (small, 8192, 1000.0), (large, 1000, 1000.0), (large, 8192, 1000.0)]
    return [
        own_costs(own, least["seed"], trip, speed),
        table,
        predictions(works, master, WORKERS),
        worth((small, large), master, WORKERS[3:], LENGTHS),
    ]


def _master(case: Case, form: Form) -> Master:
    from benchmarks.scaling import tasks

    return costs.master(tasks(case, 100 if form.smoke else 400), form.smoke)


def _large(case: Case, directory: Path, own: Own) -> Work:
    from benchmarks.generations import experiment_of

    experiment = experiment_of(case, 16, 4)
    request = _in_mid_run(experiment, directory, 1)
    return work_of("1.18 million weights", experiment, directory, request.tasks, own)[0]
