"""What Ray costs beside the processes of one machine: a task, a generation's weights, and what crosses its store.

    python -m benchmarks.ray_overhead

Needs Ray (requirements-ray.lock). Tasks are as small as they get, so that nothing but their way is measured; both
backends have two workers and are measured in turn in this run, so that their ratio means something on a busy machine.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.tables import Table, number, seconds
from evo.environments import snake
from evo.evaluators import processes, ray
from evo.evaluators.context import Context
from evo.learning.acting import begin_lanes, segment_tasks
from evo.records import Choose, Episodes, Task, WeightSource

ENVIRONMENT = {"id": "snake", "size": 5, "starvation": 1}
POLICY = {"kind": "linear"}
WORKERS, ROUNDS = 2, 5
TASKS = 400
ROWS, COLUMNS = 64, 131_072  # of weights that are published: 33.6 MB
LANES, HORIZON = 64, 128  # of a segment


def tiny(count: int) -> list[Task]:
    """Return tasks of one candidate that plays one step."""
    source = WeightSource(*(np.array([value], kind) for value, kind in ((-1, np.int32), (-1, np.int32))), *_named())
    return [Task(source, Episodes(np.zeros(1, np.uint64))) for _ in range(count)]


def _named() -> tuple[Any, Any]:
    return np.zeros(1, np.uint64), np.zeros(1, np.float32)


def measure(place: Path) -> Table:
    """Return the table of a run."""
    context = Context(place, ENVIRONMENT, POLICY, {"count": WORKERS})
    many, one = tiny(TASKS), tiny(1)
    lanes = begin_lanes(snake.make(snake.Options(**ENVIRONMENT)), 1, 0, LANES)
    (segment,) = segment_tasks(lanes, HORIZON, LANES, Choose())
    segment = Task(one[0].weights, segment.play, segment.choose)
    with h5py.File(place / "w.h5", "w") as file:
        file["weights"] = np.zeros((ROWS, COLUMNS), np.float32)
    figures: dict[str, dict[str, list[float]]] = {"ray": {}, "processes": {}}
    began = time.perf_counter()
    with ray.make(context) as on_ray, processes.make(context) as on_processes:
        started = time.perf_counter() - began
        pools: dict[str, Any] = {"ray": on_ray, "processes": on_processes}
        for pool in pools.values():
            pool.map(many)
        for _ in range(ROUNDS):
            for name, pool in pools.items():
                for what, tasks in (("many", many), ("one", one), ("segment", [segment])):
                    taken = seconds(partial(pool.map, tasks)) / len(tasks)
                    figures[name].setdefault(what, []).append(taken)
        bytes_of_segment = on_ray.effort.received
        weights = ray.matrix_of(place, "w.h5")
        put = statistics.median(seconds(lambda: on_ray._cluster.ray.put(weights)) for _ in range(ROUNDS))
        spec = len(on_ray._cluster.ray.cloudpickle.dumps((on_ray._context, many[0])))
    middle = {name: {key: statistics.median(values) for key, values in kept.items()} for name, kept in figures.items()}
    rows = []
    for what, title in (
        ("many", f"a task, {TASKS} in flight"),
        ("one", "a task, alone: there and back"),
        ("segment", f"a segment of {LANES * HORIZON:,} steps, {bytes_of_segment / 1e6:.2f} MB"),
    ):
        ours, theirs = middle["ray"][what], middle["processes"][what]
        rows.append([title, f"{number(1e3 * ours)} ms", f"{number(1e3 * theirs)} ms", number(ours / theirs)])
    size = weights.nbytes / 1e6
    rows.append(
        [f"publishing {size:.1f} MB of weights", f"{number(1e3 * put)} ms, {number(size / put)} MB/s", "-", "-"]
    )
    rows.append(["a task's own bytes", number(spec), "-", "-"])
    rows.append(["starting", f"{number(started)} s, both", "-", "-"])
    note = f"{WORKERS} workers each, medians of {ROUNDS} rounds in turn"
    return Table("What Ray costs", note, ("what", "ray", "processes", "ray / processes"), rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        print(measure(Path(place)).markdown())


if __name__ == "__main__":
    main()
