"""Scripts that leave a training before its end: whatever was yielded is there, with the champion of that moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import evo
from evo.config.experiment import Experiment
from evo.store.store import Store
from evo.training.session import Session
from tests.helpers.calling import ROOT, SMALL

BEGIN = """\
import os, sys, threading
import evo
experiment = evo.Experiment.load("small.toml", "validation.every=100", "test.every=100", "workers.backend={backend}")
rows = evo.train(experiment, "run")
for _ in range(3):
    next(rows)
"""
ENDINGS = {
    "a script that holds it": "",
    "an object that holds itself": "class Own: pass\nown = Own(); own.self, own.rows = own, rows; del rows, own",
    "a generator that holds it": "def outer():\n    yield from rows\nmore = outer(); next(more)",
    "sys.exit": "sys.exit(0)",
    "a thread that has ended": "thread = threading.Thread(target=next, args=[rows]); thread.start(); thread.join()",
    "a fork that ends first": "if os.fork() == 0:\n    sys.exit(0)\nos.wait()\nnext(rows)",
    "os.fork with a collection": "if os.fork() == 0:\n    rows.close(); sys.exit(0)\nos.wait()\nnext(rows)",
}

PARALLEL = [(ending, "processes") for ending in ("a script that holds it", "os.fork with a collection")]


def left(where: Path, program: str, backend: str, *changes: str) -> None:
    (where / "small.toml").write_text(SMALL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN.format(backend=backend) + program],
        cwd=where, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def assert_complete(run: Path, generations: int) -> None:
    """The newest generation is committed, validated and logged as where a run ends with it."""
    found = evo.Run(run, trusted=True)
    assert found.notes == []
    assert found.store.next_generation == generations
    assert len(found.metrics) == generations
    assert all(found.metrics)
    assert found.champion.about["generations"] == generations
    assert found.metrics[-1]["validation"] == found.fitness
    store = Store.open(run)
    try:
        with Session(found.config, store) as session:
            assert session._validate_last() == found.fitness
            assert np.array_equal(session.algorithm.best, found.champion.weights)
    finally:
        store.close()


@pytest.mark.parametrize(("ending", "backend"), [*((ending, "serial") for ending in ENDINGS), *PARALLEL])
def test_a_script_that_ends_while_it_trains_loses_and_prints_nothing(tmp_path: Path, ending: str, backend: str) -> None:
    left(tmp_path, ENDINGS[ending], backend)
    one_more = "generator" in ending or "thread" in ending or "fork" in ending
    assert_complete(tmp_path / "run", 4 if one_more else 3)


def test_a_thread_that_is_cut_off_by_the_end_loses_no_generation(tmp_path: Path) -> None:
    program = """
seen = threading.Event()
def go_on():
    global experiment
    for row in evo.train(evo.Experiment.load("small.toml", "run.generations=100000"), "other"):
        if row.generation == 5:
            seen.set()
threading.Thread(target=go_on, daemon=True).start()
seen.wait()
"""
    left(tmp_path, program, "serial")
    assert evo.Run(tmp_path / "other").store.next_generation > 5


def test_a_loop_that_is_left_leaves_a_validated_champion_and_complete_metrics(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    experiment = Experiment.load(tmp_path / "small.toml", "validation.every=100")
    for row in evo.train(experiment, tmp_path / "run"):
        if row.generation == 2:
            break
    assert_complete(tmp_path / "run", 3)
    *_, last = evo.train(experiment, tmp_path / "run")
    *_, straight = evo.train(experiment, tmp_path / "straight")
    hashes = [Store.read(tmp_path / name).state_hash for name in ("run", "straight")]
    assert hashes[0] == hashes[1]
    assert last.champion == straight.champion
