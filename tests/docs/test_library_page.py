"""Every example of docs/library.md runs, in order; importing evo is instant; what it exports is what it says."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import evo
from evo.store.store import Store

ROOT = Path(__file__).parents[2]
EXPORTED = {
    "AskTell",
    "Comparison",
    "Estimate",
    "EvoError",
    "Experiment",
    "League",
    "Optimum",
    "Policy",
    "Problem",
    "Row",
    "Run",
    "Score",
    "Search",
    "SweepResult",
    "compare",
    "league",
    "make_algorithm",
    "maximise",
    "minimise",
    "plan",
    "sweep",
    "train",
    "write_report",
}


@pytest.mark.long
def test_the_examples_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(), re.DOTALL)
    assert len(examples) == 15
    namespace: dict[str, object] = {}
    for number, example in enumerate(examples, 1):
        exec(compile(example, f"example {number}", "exec"), namespace)
    elites = evo.Run("archive").elites
    assert elites
    assert all(0 <= elite.cell[0] < 20 for elite in elites)
    assert len({elite.cell for elite in elites}) == len(elites)
    state = Store.read(tmp_path / "archive").read_state(5)
    assert [elite.policy.weights.tobytes() for elite in elites] == [row.tobytes() for row in state["weights"]]
    assert [elite.fitness for elite in elites] == (state["fitness"] / 2000).tolist()
    with pytest.raises(evo.EvoError, match="keeps no archive"):
        _ = evo.Run("first").elites


def test_what_is_exported_is_what_is_promised() -> None:
    assert set(evo.__all__) == EXPORTED
    assert all(getattr(evo, name) is not None for name in evo.__all__)
    assert set(dir(evo)) >= EXPORTED
    assert not EXPORTED & {path.stem for path in (ROOT / "evo").iterdir()}  # an imported module would hide the export
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        evo.trian  # noqa: B018
    assert (ROOT / "evo" / "py.typed").exists()
    assert (ROOT / "snake" / "py.typed").exists()


def test_importing_evo_is_instant_and_loads_nothing() -> None:
    program = (
        "import sys, time\nbefore = time.process_time()\nimport evo\ntook = time.process_time() - before\n"
        "print(took, *[name for name in ('numpy', 'pydantic', 'numba', 'tensorflow') if name in sys.modules])"
    )
    best = float("inf")
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
        seconds, *loaded = done.stdout.split()
        assert loaded == []
        best = min(best, float(seconds))
    assert best < 0.05


def test_a_champion_refuses_other_shapes_and_obeys_a_mask(tmp_path: Path) -> None:
    import numpy as np

    experiment = evo.Experiment.build(environment={"size": 5}, policy={"kind": "linear"})
    network = experiment.network()
    weights = np.zeros(network.size, np.float32)
    network.split(weights)[-1][:] = [1, 3, 2]
    policy = evo.Policy(network, weights, experiment)
    seen = np.zeros(network.shape)
    assert policy(seen) == 1
    assert policy(seen, np.array([1, 0, 1])) == 2
    assert policy(np.zeros((4, *network.shape))).tolist() == [1] * 4
    with pytest.raises(ValueError, match=r"action masks of shape \(3, 4\), where \(4, 3\) fits"):
        policy(np.zeros((4, *network.shape)), np.ones((3, 4)))
    with pytest.raises(ValueError, match="observations of shape"):
        policy(np.zeros(3))
    for wrong in (np.ma.masked_array(seen, seen == 0), seen.astype(complex), seen.astype(str)):
        with pytest.raises(TypeError, match="masked"):
            policy(wrong)
    with pytest.raises(TypeError, match="masked"):
        policy(seen, np.ma.masked_array([1, 1, 1], [False, True, False]))


def test_ask_comes_before_tell() -> None:
    with pytest.raises(RuntimeError, match="ask"):
        evo.AskTell(evo.make_algorithm(evo.Experiment.build())).tell([])


def test_arguments_of_another_kind_are_refused_in_one_line() -> None:
    one, experiment = "duel:random", evo.Experiment.build()
    for call, said in (
        (lambda: evo.compare(["runs/first"]), r"compare: \['runs/first'\] is not the path of a file or a directory"),
        (lambda: evo.write_report(b"runs/first"), r"run_dirs: b'runs/first' is not the path"),
        (lambda: evo.sweep(3, "ga.sigma=0.1"), "file: 3 is not the path"),
        (lambda: evo.sweep("x.toml", ["ga.sigma=0.1"]), "name an option with its values"),
        (lambda: evo.sweep("x.toml", "ga.sigma=0.1", directory=3), "directory: 3 is not the path"),
        (lambda: evo.sweep("x.toml", "ga.sigma=0.1", sets=None), "sets: must be a list of assignments"),
        (lambda: evo.league([]), "a league needs two players or more"),
        (lambda: evo.league(one), "a league needs two players or more"),
        (lambda: evo.league(None), "a league needs two players or more"),
        (lambda: evo.plan(experiment, 4), "workers: must be a list of numbers of workers, as in .2, 4., not 4"),
        (lambda: evo.plan(experiment, [0]), "workers: must be a whole number from 1 to 100000, not 0"),
        (lambda: evo.plan(experiment, seconds="2"), "seconds: must be a positive number, not '2'"),
        (lambda: evo.plan("x.toml"), r"experiment: must be what Experiment\.load"),
        (lambda: evo.make_algorithm(None), r"experiment: must be what Experiment\.load"),
    ):
        with pytest.raises(evo.EvoError, match=rf"^{said}"):
            call()  # type: ignore[no-untyped-call]


def test_a_loop_that_is_left_keeps_what_was_yielded(tmp_path: Path) -> None:
    experiment = evo.Experiment.build(
        run={"generations": 9}, environment={"size": 5}, policy={"kind": "linear"}, workers={"backend": "serial"},
        validation={"episodes": 2}, test={"episodes": 2},
        ga={"population": 4, "parents": 2, "elites": 1, "episodes": 1},
    )  # fmt: skip
    began = time.monotonic()
    for row in evo.train(experiment, tmp_path / "run"):
        if row.generation == 2:
            break
    del row
    assert time.monotonic() - began < 60
    assert len(evo.Run(tmp_path / "run").curves["best"]) == 3
