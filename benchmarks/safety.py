"""What it costs that nothing is lost: a commit's share of a generation, and reading a champion in a process of its own.

    python -m benchmarks --only safety

A generation is one of experiments/ga_snake.toml, as it is run: worker processes, hash chain, files, every fsync. Its
episodes grow with what is learned, so the first generations are not counted, and later ones pay a smaller share.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.config.environments import environment_of
from evo.config.experiment import Experiment, evaluator_of
from evo.files.layout import CHAMPION
from evo.store import sandbox
from evo.store.champion import encode_champion, read_champion
from evo.store.store import Store
from evo.training.beginning import make_algorithm
from evo.training.generation import play_out

EXPERIMENT = Path(__file__).parent.parent / "experiments" / "ga_snake.toml"
SHARE = 0.02
READING = 0.3  # seconds
RUNS = 3
FIRST = 300  # generations that are not counted; WARM in the short form
WARM = 1  # starts the workers


def generations(first: int, count: int, directory: Path, *, each: bool = False) -> tuple[float, float, float]:
    """Run `count` generations after the `first` ones; return the seconds of playing, of publishing and of committing.

    With `each` every generation is on the disk before the next one begins.
    """
    experiment = Experiment.load(EXPERIMENT)
    algorithm = make_algorithm(experiment, environment_of(experiment.environment))
    evaluator = evaluator_of(experiment, directory)
    publishing = 0.0
    try:
        with Store.create(directory, experiment.to_toml(), experiment.identity()) as store:
            publish = store.publish

            def timed(weights: np.ndarray) -> str:
                nonlocal publishing
                began = time.perf_counter()
                try:
                    return publish(weights)
                finally:
                    publishing += time.perf_counter() - began

            store.publish = timed  # type: ignore[method-assign]
            committing = began = 0.0
            for generation in range(first + count):
                metrics = play_out(algorithm.generation(generation), evaluator, store.publish)
                state, record = algorithm.state(), algorithm.record()
                if generation < first:
                    store.commit(generation, state, record, metrics)
                    store.flush()
                    publishing, began = 0.0, time.perf_counter()
                    continue
                committing += seconds(lambda: store.commit(generation, state, record, metrics))  # noqa: B023
                if each or generation == first + count - 1:
                    committing += seconds(store.flush)
            took = time.perf_counter() - began
    finally:
        evaluator.close()
    return took - committing - publishing, publishing, committing


def reading(directory: Path, rounds: int) -> tuple[float, float]:
    """Return the seconds to read a champion of 1.2 million weights, in a process of its own and in ours."""
    weights = np.ones(1_200_000, np.float32)
    (directory / CHAMPION).write_bytes(encode_champion(weights, [("kernel", (1_200_000,))], {})[0])
    apart, ours = [], []
    for _ in range(rounds):
        apart.append(seconds(lambda: sandbox.read_champion(directory)))
        ours.append(seconds(lambda: read_champion(directory)))
    return median(apart), median(ours)


def run(form: Form) -> Table:
    """Return the table."""
    smoke = form.smoke
    first, count = (WARM, 6) if smoke else (FIRST, 20)
    runs, alternatives = [], []
    with tempfile.TemporaryDirectory(dir=os.getcwd(), prefix=".benchmark-") as place:  # the disk that runs are on
        for again in range(1 if smoke else RUNS):
            runs.append(generations(first, count, Path(place) / f"run{again}"))
            if not smoke:
                alternatives.append(generations(first, count, Path(place) / f"each{again}", each=True))
        apart, ours = reading(Path(place), 3 if smoke else 7)
    playing, publishing, committing = (median(took) for took in zip(*runs, strict=True))
    at_once = "" if smoke else number(median(took[2] for took in alternatives) / count)
    total = playing + publishing + committing
    share = committing / total
    table = Table(
        "Cost of commits and of reading untrusted champions",
        f"Seconds per generation of experiments/ga_snake.toml, over its generations {first + 1} to "
        f"{first + count}, and their share; "
        f"medians of {len(runs)} runs, in turns with the alternative. "
        "A commit is everything from the copy of the state to the last fsync; commits within two seconds share their "
        "files. The alternative makes each commit durable by itself. An untrusted champion is read in a sandbox; the "
        "alternative reads it in the same process.",
        ("what", "ours, s", "share", "alternative, s"),
        [
            ["playing and selection", number(playing / count), f"{playing / total:.4f}", ""],
            ["publishing weights", number(publishing / count), f"{publishing / total:.4f}", ""],
            ["commit", number(committing / count), f"{share:.4f}", at_once],
            ["reading an untrusted champion of 1.2 million weights", number(apart), "", number(ours)],
        ],
        [
            Limit("commit, share of a generation", share, SHARE, most=True, ratio=True),
            Limit("reading an untrusted champion, s", apart, READING, most=True),
        ],
    )
    return table
