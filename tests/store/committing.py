"""A small run whose every generation is a function of its number, and a process that commits it until it is killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray

from evo.errors import EvoError
from evo.store.store import Store

IDENTITY = {"seed": 1, "algorithm": "ga"}

Arrays = dict[str, NDArray[np.generic]]


def state(generation: int, rows: int = 8) -> Arrays:
    dice = default_rng(generation)
    return {"weights": dice.random((rows, 33), np.float32), "sigma": np.float64(dice.random()) * np.ones(())}


def record(generation: int) -> Arrays:
    dice = default_rng([generation, 1])
    candidates = 16 + generation // 7
    return {
        "keys": dice.integers(0, 1 << 63, candidates, np.uint64),
        "returns": dice.integers(-5, 5, candidates),
        "chosen": dice.random(candidates) < 0.5,
    }


def metrics(generation: int) -> dict[str, float]:
    return {"frames": 10 + generation, "seconds": 0.25, "best": float(generation)}


def commit(store: Store, generation: int, rows: int = 8) -> None:
    store.commit(
        generation, state(generation, rows), record(generation), metrics(generation), best=generation % 11 == 5
    )


def straight(directory: Path, generations: int) -> list[str]:
    """Return h[-1], h[0], ... of the undisturbed run."""
    with Store.create(directory, "", IDENTITY) as store:
        hashes = [store.state_hash]
        for generation in range(generations):
            commit(store, generation)
            hashes.append(store.state_hash)
    return hashes


def main(directory: str, generations: str, pause: str, rows: str, quiet: str = "", log: str = "") -> int:
    """Commit; say "durable N" after every flush that returned, and "refused: ..." when a commit failed."""
    path = Path(directory)

    def say(*words: object) -> None:
        if log:
            with open(log, "a") as file:
                print(*words, file=file)
        elif not quiet:
            print(*words, flush=True)

    try:
        with Store.open(path) if path.exists() else Store.create(path, "", IDENTITY) as store:
            say("ready")
            while store.next_generation < int(generations):
                store.publish(state(store.next_generation)["weights"])  # type: ignore[arg-type]
                commit(store, store.next_generation, int(rows))
                time.sleep(float(pause))
                if store.next_generation % 3 == 0:
                    store.flush()
                    say("durable", store.next_generation)
    except EvoError as error:
        say("refused:", error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
