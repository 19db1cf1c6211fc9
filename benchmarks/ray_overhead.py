"""What Ray costs compared with processes on one machine: a task, a generation's weights, and what crosses its store.

    python -m benchmarks.ray_overhead

Needs Ray (requirements-ray.lock). Tasks are as small as they get, so that nothing but their way is measured; both
backends have two workers and are measured in turn in this run, so that their ratio means something on a busy machine.
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.tables import Table, number, seconds
from evo.evaluators import processes, ray
from evo.games.catalogue import snake
from evo.learning.collecting import begin_envs, segment_tasks
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.player import RunSpec
from evo.records import ActionRule, Episodes, Task, WeightSource

ENVIRONMENT = snake.Options(size=5, starvation=1)
POLICY = Policy(kind="linear")
WORKERS, ROUNDS = 2, 5
TASKS = 400
PUBLISHED = 32 << 20  # bytes of weights
LANES, HORIZON = 64, 128  # of a segment


def tiny(count: int) -> list[Task]:
    """Return tasks of one candidate that plays one step."""
    return [Task(WeightSource.of_row(-1), Episodes(np.zeros(1, np.uint64))) for _ in range(count)]


def fresh(place: Path, number: int, columns: int) -> list[Task]:
    """Return a task that names weights which nobody has seen."""
    name = f"w-{number}.h5"
    with h5py.File(place / name, "w") as file:
        file["weights"] = np.full((PUBLISHED // (4 * columns), columns), number, np.float32)
    return [Task(WeightSource.of_row(published=name), Episodes(np.zeros(1, np.uint64)))]


def measure(place: Path) -> Table:
    """Return the table of a run."""
    options, alone = ray.Options(count=WORKERS), processes.Options(count=WORKERS)
    spec = RunSpec(place, ENVIRONMENT, POLICY)
    many, one = tiny(TASKS), tiny(1)
    environment = snake.make(ENVIRONMENT)
    columns = Network.build(POLICY, environment.shape, environment.actions).size
    lanes = begin_envs(environment, 1, 0, LANES)
    (segment,) = segment_tasks(lanes, HORIZON, LANES, ActionRule())
    segment = Task(one[0].weights, segment.play, segment.action_rule)
    figures: dict[str, dict[str, list[float]]] = {"ray": {}, "processes": {}}
    with ray.make(options, spec) as on_ray, processes.make(alone, spec) as on_processes:
        started = seconds(partial(on_ray.map, one))
        pools: dict[str, Any] = {"ray": on_ray, "processes": on_processes}
        on_processes.map(many)
        per_task = on_ray.map(many).effort.bytes_sent / TASKS
        for number_of_round in range(ROUNDS):
            large = fresh(place, number_of_round, columns)
            for name, pool in pools.items():
                for what, tasks in (("many", many), ("one", one), ("large", large), ("segment", [segment])):
                    taken = seconds(partial(pool.map, tasks)) / len(tasks)
                    figures[name].setdefault(what, []).append(taken)
        size = on_ray.map([segment]).effort.bytes_received
    middle = {name: {key: statistics.median(values) for key, values in kept.items()} for name, kept in figures.items()}
    rows = []
    for what, title in (
        ("many", f"a task of {per_task:.0f} bytes, {TASKS} in flight"),
        ("one", "a task, alone: there and back"),
        ("large", f"the same, with {PUBLISHED / 1e6:.1f} MB of new weights"),
        ("segment", f"a segment of {LANES * HORIZON:,} steps, {size / 1e6:.2f} MB"),
    ):
        ours, theirs = middle["ray"][what], middle["processes"][what]
        rows.append([title, f"{number(1e3 * ours)} ms", f"{number(1e3 * theirs)} ms", number(ours / theirs)])
    rows.append(["starting, until the first result", f"{number(started)} s", "-", "-"])
    note = f"{WORKERS} workers each, medians of {ROUNDS} rounds in turn"
    return Table("What Ray costs", note, ("what", "ray", "processes", "ray / processes"), rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        print(measure(Path(place)).markdown())


if __name__ == "__main__":
    main()
