"""How many frames of Snake one core plays with different networks: ours, one graph call per frame, and the limit.

    python -m benchmarks --only rollout [--run RUN_DIR]

The limit is the arithmetic of the network at the speed of a large float32 matrix product on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.seed_way import SeedWay
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.games.catalogue import snake
from evo.games.game import GameEnvironment
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.randomness.streams import Purpose, episode_keys, stream
from evo.records import Episodes, Task, WeightSource
from evo.rollouts.rollout import Rollout

EPISODES = (16, 32, 64)
SECONDS = 0.25  # that one measurement of ours should take
ROUNDS = 9
PEER_FRAMES = 1000
PREDICTS = 3  # calls of Keras's `predict` in a round


@dataclass(frozen=True)
class Case:
    """A network, a game, and what its speed should be."""

    name: str
    network: Network
    environment: GameEnvironment
    frames_target: float  # useful frames a second and core
    ratio_target: float  # times the usual way
    sigma: float = 0.0  # candidates are mutants of a fresh network, by so much, instead of fresh ones

    def candidates(self) -> tuple[NDArray[np.float32], Callable[[int, int], WeightSource]]:
        """Return published parents, and what gives a number of candidates, from another number on."""
        parents = np.empty((0, self.network.size), np.float32)
        if not self.sigma:
            return parents, fresh
        first = np.empty((1, self.network.size), np.float32)
        Rebuilder(self.network).rebuild(parents, fresh(1, 0), 0, first[0])
        return first, lambda count, start: children(1, count, self.sigma, start)


def cases() -> list[Case]:
    """Return the two networks that speed is followed on."""
    tiny = Policy(conv=[[8, 3, 1], [16, 3, 2]], dense=[64], padding="same")
    planes = snake.Options(observation="planes", actions="absolute", starvation=100)
    frame = snake.Options(observation="frame", actions="absolute", starvation=100, tail="fatal")
    return [
        _case("tiny", tiny, planes, 400_000, 20.0),
        _case("seed", Policy(preset="seed"), frame, 7_500, 5.0),
    ]


def mutated(case: Case) -> Case:
    """Return a case with networks as evolution has them: behind a relu half of everything is zero.

    Of a fresh one, whose biases are zero, nearly all that sees an empty part of the board is.
    """
    return replace(case, name=f"{case.name}, mutated", sigma=0.1)


def _case(name: str, policy: Policy, options: snake.Options, frames: float, ratio: float) -> Case:
    environment = snake.make(options)
    return Case(name, Network.build(policy, environment.shape, environment.actions), environment, frames, ratio)


def needed_flops(network: Network) -> int:
    """Return the multiplications and additions of a frame, without those that would only meet padding."""
    total = 0
    for layer in network.layers:
        rows = _taps(layer.height, layer.kernel, layer.stride, layer.pad, layer.out_height)
        columns = _taps(layer.width, layer.kernel, layer.stride, layer.pad, layer.out_width)
        total += 2 * rows * columns * layer.channels * layer.filters
    return total


def _taps(side: int, kernel: int, stride: int, pad: int, outputs: int) -> int:
    starts = [i * stride - pad for i in range(outputs)]
    return sum(min(kernel, side - start) - max(0, -start) for start in starts)


def gemm_flops(side: int = 1024, repeats: int = 3) -> float:
    """Return the floating-point operations a second of a large float32 matrix product on one thread."""
    a, b = np.ones((side, side), np.float32), np.ones((side, side), np.float32)
    out = np.empty((side, side), np.float32)
    best = min(seconds(lambda: np.matmul(a, b, out)) for _ in range(repeats))
    return 2.0 * side**3 / best


def fresh(candidates: int, first: int) -> WeightSource:
    """Return networks drawn anew, from number `first` on."""
    keys = [stream(0, Purpose.INITIAL, 0, first + i) for i in range(candidates)]
    none = np.full(candidates, -1, np.int32)
    return WeightSource(none, none, np.array(keys, np.uint64), np.ones(candidates, np.float32))


def children(parents: int, candidates: int, sigma: float, first: int = 0) -> WeightSource:
    """Return mutants of the first `parents` rows of a published matrix, in turn, from number `first` on."""
    rows = np.arange(first, first + candidates, dtype=np.int32) % parents
    keys = [stream(0, Purpose.MUTATION, 0, first + i) for i in range(candidates)]
    sigmas = np.full(candidates, sigma, np.float32)
    return WeightSource(rows, np.full(candidates, -1, np.int32), np.array(keys, np.uint64), sigmas)


def compare(case: Case, rounds: int, enough: float, clock: Callable[[], float]) -> tuple[list[list[str]], list[Limit]]:
    """Play its candidates our way and the usual way in turns; return the rows and limits of a case."""
    rollout, peer = Rollout(case.network, case.environment), SeedWay(case.network, case.environment)
    parents, source = case.candidates()
    weights = np.empty(case.network.size, np.float32)
    seeds = episode_keys(0, Purpose.TRAINING, 0, max(EPISODES))
    rebuilder = Rebuilder(case.network)
    rebuilder.rebuild(parents, source(1, 0), 0, weights)
    peer.set_weights(weights)
    peer.play(seeds, 50)  # traces the graph
    candidates = {n: _enough(rollout, parents, source, seeds[:n], enough) for n in EPISODES}
    ours: dict[int, list[float]] = {episodes: [] for episodes in EPISODES}
    busy: dict[int, float] = {}
    theirs, limits, predicts = [], [], []
    peer.predict(1)
    for _ in range(rounds):
        for episodes, count in candidates.items():
            task = Task(source(count, 0), Episodes(seeds[:episodes]))
            speed, busy[episodes] = _speed(rollout, task, parents, clock)
            ours[episodes].append(speed)
        frames, took, turn = 0, 0.0, 0
        while frames < PEER_FRAMES:  # networks that die at once need many episodes
            rebuilder.rebuild(parents, source(1, turn), 0, weights)
            peer.set_weights(weights)
            began = clock()
            frames += peer.play(seeds, PEER_FRAMES - frames)[1]
            took, turn = took + clock() - began, turn + 1
        theirs.append(frames / took)
        limits.append(gemm_flops() / needed_flops(case.network))
        predicts.append(PREDICTS / seconds(lambda: peer.predict(PREDICTS)))
    limit, peer_speed, predict = median(limits), median(theirs), median(predicts)
    rows = []
    for episodes in EPISODES:
        speed = median(ours[episodes])
        ratio = median(a / b for a, b in zip(ours[episodes], theirs, strict=True))
        rows.append(
            [f"{case.name}, {episodes} episodes", number(speed), f"{busy[episodes]:.2f}", f"{speed / limit:.2f}"]
            + [number(peer_speed), f"{ratio:.1f}", number(predict), number(limit)]
        )
    last = EPISODES[-1]
    times = median(a / b for a, b in zip(ours[last], theirs, strict=True))
    return rows, [
        *(
            Limit(
                f"{case.name}: frames/s and core, {n} episodes", median(ours[n]), case.frames_target, best=max(ours[n])
            )
            for n in EPISODES
        ),
        Limit(f"{case.name}: times one graph call per frame, {last} episodes", times, case.ratio_target, ratio=True),
    ]


def _enough(
    rollout: Rollout,
    parents: NDArray[np.float32],
    source: Callable[[int, int], WeightSource],
    seeds: NDArray[np.uint64],
    enough: float,
) -> int:
    """Return how many candidates take about `enough` seconds."""
    few = 4
    rollout.play(Task(source(1, 0), Episodes(seeds)), parents)  # compiles
    took = seconds(lambda: rollout.play(Task(source(few, 0), Episodes(seeds)), parents))
    return max(few, min(4096, round(few * enough / took)))


def _speed(
    rollout: Rollout, task: Task, parents: NDArray[np.float32], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Return useful frames a second and the share of lane slots that were useful."""
    results = []
    took = seconds(lambda: results.append(rollout.play(task, parents)), clock)
    return results[0].frames / took, results[0].frames / results[0].lane_slots


def of_run(run_dir: Path, rounds: int) -> list[list[str]]:
    """Return rows for the last population of a run: its parents' children, by the run's own options."""
    from evo.config.environments import environment_of
    from evo.config.experiment import Experiment
    from evo.files.layout import CONFIG
    from evo.store.store import Store

    experiment = Experiment.load(run_dir / CONFIG, resolved=True)
    environment = environment_of(experiment.environment)
    network = experiment.network()
    store = Store.read(run_dir)
    if not store.next_generation:
        raise SystemExit(f"{run_dir}: no generation is committed yet")
    parents = np.ascontiguousarray(store.read_state(store.next_generation - 1)["weights"], np.float32)
    rollout = Rollout(network, environment)
    source = children(len(parents), 128, experiment.options.model_dump()["sigma"])
    rollout.play(Task(children(1, 1, 0.0), Episodes(episode_keys(0, Purpose.TRAINING, 0, 1))), parents)  # compiles
    rows = []
    for episodes in EPISODES:
        task = Task(source, Episodes(episode_keys(experiment.run.seed, Purpose.TRAINING, 1 << 30, episodes)))
        speeds = [_speed(rollout, task, parents) for _ in range(rounds)]
        limit = gemm_flops() / needed_flops(network)
        speed = median(speed for speed, _ in speeds)
        name = f"trained, {network.size:,} weights, {episodes} episodes"
        rows.append([name, number(speed), f"{speeds[0][1]:.2f}", f"{speed / limit:.2f}", "", "", "", number(limit)])
    return rows


def run(form: Form) -> Table:
    """Return the table of all cases."""
    smoke = form.smoke
    table = Table(
        "Playing Snake with many different networks, one core",
        "Useful frames per second, including observation, network, choice of action and game; medians over rounds that "
        "alternate both programs. *Utilisation* is useful frames divided by lane slots. *Of limit* is our speed "
        "divided by the arithmetic limit (a large float32 matrix product on one thread), which counts products with "
        "zeros; ours skips them. *Mutated* networks are mutants of one fresh network with sigma 0.1, as in evolution; "
        "fresh ones are faster, because their biases are zero. *Graph call* is one TensorFlow graph call per frame on "
        "one thread (`benchmarks/seed_way.py`), with the same network and our compiled game; *`predict`* is Keras's "
        "`predict` per frame.",
        ("network", "ours", "utilisation", "of limit", "graph call", "ratio", "`predict`", "limit"),
    )
    tiny, seed = cases()
    for case in [seed] if smoke else [tiny, mutated(tiny), seed, mutated(seed)]:
        rows, limits = compare(case, 2 if smoke else ROUNDS, 0.3 if smoke else SECONDS, form.clock)
        table.rows += rows
        table.limits += limits
    if form.run:
        table.rows += of_run(form.run, 3)
    return table
