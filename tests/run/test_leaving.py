"""Scripts that leave a training before its end: whatever was yielded is there, with the champion of that moment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import evo
from evo.config.experiment import Experiment
from evo.store.store import Store
from evo.training.session import Session
from tests.helpers.calling import SMALL

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

OTHERS: dict[str, tuple[str, ...]] = {
    "ppo": ("ppo.envs=4", "ppo.horizon=8", "ppo.minibatches=2", "ppo.asynchronous=true"),
    "dqn": ("dqn.envs=4", "dqn.horizon=8", "dqn.learning_starts=40", "dqn.replay_size=100", "dqn.batch_size=8"),
    "sep_cma_es": (),
    "nsga2": (),
    "map_elites": (),
    "erl": (),
}
QUICK = ("a script that holds it",)
PARALLEL = [
    pytest.param("a script that holds it", "processes", marks=pytest.mark.long),
    pytest.param("os.fork with a collection", "processes", marks=pytest.mark.long),
]
SERIAL = [pytest.param(one, "serial", marks=[] if one in QUICK else [pytest.mark.long]) for one in ENDINGS]


def left(where: Path, program: str, backend: str, *changes: str) -> None:
    (where / "small.toml").write_text(SMALL)
    done = subprocess.run(
        [sys.executable, "-c", BEGIN.format(backend=backend) + program],
        cwd=where, capture_output=True, text=True, timeout=120,
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


@pytest.mark.parametrize(("ending", "backend"), [*SERIAL, *PARALLEL])
def test_a_script_that_ends_while_it_trains_loses_and_prints_nothing(tmp_path: Path, ending: str, backend: str) -> None:
    left(tmp_path, ENDINGS[ending], backend)
    one_more = "generator" in ending or "thread" in ending or "fork" in ending
    assert_complete(tmp_path / "run", 4 if one_more else 3)


@pytest.mark.long
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


def test_a_loop_that_is_left_leaves_a_validated_champion_and_complete_metrics(small: Path) -> None:
    experiment = Experiment.load(small / "small.toml", "validation.every=100")
    for row in evo.train(experiment, small / "run"):
        before = dict(row.metrics)
        row.metrics["mean"] *= -1  # whoever shows a row may change it
        row.metrics["own"] = "text"
        if row.generation == 2:
            break
    assert_complete(small / "run", 3)
    found = evo.Run(small / "run").metrics[-1]
    assert (found["mean"], "own" in found) == (before["mean"], False)
    *_, last = evo.train(experiment, small / "run")
    *_, straight = evo.train(experiment, small / "straight")
    hashes = [Store.read(small / name).state_hash for name in ("run", "straight")]
    assert hashes[0] == hashes[1]
    assert last.champion == straight.champion


@pytest.mark.parametrize("algorithm", ["ga", *(pytest.param(one, marks=pytest.mark.long) for one in OTHERS)])
def test_a_row_has_its_network_until_the_next_one_and_a_run_has_the_latest(small: Path, algorithm: str) -> None:
    changes = OTHERS.get(algorithm, ())
    experiment = Experiment.load(small / "small.toml", *changes, algorithm=algorithm, generations=4)
    rows, weights = [], []
    for stop in (2, 4):
        for row in evo.train(experiment, small / "run"):
            rows.append(row)
            weights.append(row.policy.weights)
            if row.generation + 1 == stop:
                break
        assert np.array_equal(evo.Run(small / "run").latest.weights, weights[-1])
    assert len({one.tobytes() for one in weights}) > (algorithm != "nsga2")  # whose best may stay the same
    assert np.array_equal(rows[-1].policy.weights, weights[-1])
    with pytest.raises(evo.EvoError, match=r"row\.policy: the run has gone on"):
        _ = rows[-2].policy


def test_a_run_of_no_generation_has_no_latest_network(small: Path) -> None:
    experiment = Experiment.load(small / "small.toml")
    rows = evo.train(experiment, small / "run")
    next(rows)
    rows.close()
    shutil.copytree(small / "run", small / "none")
    (small / "none" / "manifest.jsonl").write_text("")
    with pytest.raises(evo.EvoError):
        _ = evo.Run(small / "none").latest


@pytest.mark.long
def test_environments_that_a_script_registers_itself_are_refused_with_what_to_do(tmp_path: Path) -> None:
    program = """
import gymnasium, evo
gymnasium.register("Mine-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv", max_episode_steps=9)
small = {"population": 4, "parents": 2, "elites": 1, "episodes": 1}
for backend in ("serial", "processes"):
    experiment = evo.Experiment.build(
        run={"generations": 1}, environment={"id": "gymnasium:Mine-v0"}, policy={"kind": "linear"}, ga=small,
        workers={"backend": backend}, validation={"episodes": 2}, test={"episodes": 2},
    )
    try:
        print(len([*evo.train(experiment, backend)]))
    except evo.EvoError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, text=True,
        capture_output=True, timeout=240, check=True,
    )  # fmt: skip
    serial, processes = done.stdout.splitlines()
    assert serial == "1"
    assert 'plugins=["MODULE"]' in processes
    assert 'backend = "serial"' in processes
