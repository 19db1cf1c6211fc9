"""Runs whose workers play on a GPU, for which Numba's simulator stands in: the hash of workers on the CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.cuda.driver import STAND_IN
from evo.errors import DeviceLostError
from evo.evaluators import processes, serial
from evo.records import Episodes, Task, WeightSource
from evo.training import session
from evo.workers import hardware
from evo.workers.hardware import VISIBLE
from tests.cuda.comparing import assert_equal
from tests.cuda.test_cuda import needs_cuda
from tests.helpers.specs import make, spec

ROOT = Path(__file__).parents[2]
SIMULATED = {"NUMBA_ENABLE_CUDASIM": "1", VISIBLE: "0", STAND_IN: "tests.cuda.simulator:Simulator"}
TINY = """
[run]
generations = 2
[environment]
id = "catch"
[policy]
conv = [[2, 3, 3]]
dense = []
[validation]
every = 2
episodes = 3
finalists = 1
[test]
every = 0
episodes = 70
[ga]
population = 6
parents = 2
elites = 1
episodes = 3
[ppo]
envs = 4
horizon = 6
envs_per_task = 2
minibatches = 1
epochs = 1
"""


def run(where: Path, *words: str, code: int = 0, **environment: str) -> dict[str, Any]:
    """Run the command, and return the JSON that it ends with."""
    (where / "tiny.toml").write_text(TINY)
    line = [sys.executable, "-m", "evo.run", *words, "--json"]
    there = {**os.environ, **environment}
    done = subprocess.run(line, cwd=where, env=there, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stderr[-3000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}


def comparable(summary: dict[str, Any]) -> list[Any]:
    return [summary[name] for name in ("status", "state_hash", "frames", "champion")]


@pytest.mark.long
def test_a_worker_on_a_gpu_gives_the_hash_of_the_cpu(tmp_path: Path) -> None:
    expected = run(tmp_path, "tiny.toml", "--backend", "serial")
    found = run(tmp_path, "tiny.toml", "--set", "workers.kind=gpu", **SIMULATED)
    assert comparable(found) == comparable(expected)
    assert "1 worker on GPU 0 (CUDA simulator)" in found["stderr"]


@pytest.mark.long
def test_workers_on_gpus_and_cpus_share_tasks_and_one_that_is_killed_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = {"kind": "gpu", "count": 2}
    made = spec(tmp_path, {"id": "catch"}, {"conv": [[2, 3, 3]], "dense": []}, workers)
    source = WeightSource(*np.full((2, 4), -1, np.int32), np.arange(4, dtype=np.uint64), np.zeros(4, np.float32))
    tasks = [Task(source.some([k]), Episodes(np.arange(3, dtype=np.uint64))) for k in (0, 1, 2, 3) * 3]
    expected = make(serial, made_for_cpu := replace(made, workers=processes.Options())).map(tasks).results
    assert made_for_cpu.workers.kind == "auto"
    for name, value in SIMULATED.items():
        monkeypatch.setenv(name, value)
    pool = make(processes, made)
    try:
        replaced, killed, both = 0, False, False
        while not (both and replaced):  # the worker on the GPU starts later, with its golden episodes
            played = pool.map(tasks)
            for found, wanted in zip(played.results, expected, strict=True):
                assert_equal(found, wanted)
            replaced, both = replaced + played.effort.replaced, all(played.effort.busy)
            if both and not killed:
                os.kill(pool.pids[0], signal.SIGKILL)
                killed = True
    finally:
        pool.close()


@pytest.mark.long
def test_a_run_goes_on_from_a_gpu_to_the_cpu_and_back(tmp_path: Path) -> None:
    expected = run(tmp_path, "tiny.toml", "--generations", "3", "--backend", "serial")
    gpu = ("--set", "workers.kind=gpu")
    first = run(tmp_path, "tiny.toml", "--generations", "1", "--run-dir", "r", *gpu, **SIMULATED)
    assert first["generations"] == 1
    run(tmp_path, "--resume", "r", "--generations", "2", "--set", "workers.kind=cpu")
    found = run(tmp_path, "--resume", "r", "--generations", "3", *gpu, **SIMULATED)
    assert comparable(found) == comparable(expected)


@pytest.mark.long
def test_segments_on_a_gpu_give_the_hash_of_the_cpu(tmp_path: Path) -> None:
    words = ("tiny.toml", "--algorithm", "ppo", "--set", "learner.arithmetic=exact")
    expected = run(tmp_path, *words, "--backend", "serial")
    found = run(tmp_path, *words, "--backend", "serial", "--set", "workers.kind=gpu", **SIMULATED)
    assert comparable(found) == comparable(expected)


@pytest.mark.long
def test_a_device_that_is_missing_or_has_other_bits_ends_a_run_with_5(tmp_path: Path) -> None:
    words = ("tiny.toml", "--set", "workers.kind=gpu")
    assert "sees no GPU" in run(tmp_path, *words, code=5, **{VISIBLE: "-1"})["error"]
    wrong = {**SIMULATED, STAND_IN: "tests.cuda.test_gpu_runs:WrongDevice"}
    found = run(tmp_path, *words, "--backend", "serial", code=5, **wrong)
    assert "does not compute the bits of the CPU's kernel" in found["error"]


@needs_cuda
@pytest.mark.skipif(bool(hardware.found()), reason="it has a GPU")
def test_a_gpu_that_does_not_exist_ends_a_run_also_beside_workers_on_cpus(tmp_path: Path) -> None:
    words = ("tiny.toml", "--set", "workers.kind=gpu", "--set", "workers.count=2", "--generations", "100000")
    assert "NVIDIA's driver cannot be loaded" in run(tmp_path, *words, code=5, **{VISIBLE: "63"})["error"]


@pytest.mark.long
def test_an_environment_that_is_no_compiled_game_is_refused(tmp_path: Path) -> None:
    words = (
        "tiny.toml",
        "--set",
        "environment.id=gymnasium:CartPole-v1",
        "--set",
        "policy.kind=mlp",
        "--set",
        "policy.conv=[]",
    )
    found = run(tmp_path, *words, "--backend", "serial", "--set", "workers.kind=gpu", code=2, **SIMULATED)
    assert "only compiled games" in found["error"]


@needs_cuda
@pytest.mark.long
def test_a_power_in_a_game_of_a_file_is_refused_with_its_line(tmp_path: Path) -> None:
    skeleton, product = (ROOT / "evo" / "cli" / "skeletons" / "game.py").read_text(), "2.0 * state.walker[b] / "
    assert skeleton.count(product) == 1
    (tmp_path / "own.py").write_text(skeleton.replace(product, "2.0 * state.walker[b] ** 0.3 / "))
    line = skeleton[: skeleton.index(product)].count("\n") + 1
    words = ("--plugin", "own", "--backend", "serial", "--set", "environment.id=own", "--set", "policy.kind=mlp")
    gpu = ("--set", "policy.conv=[]", "--set", "workers.kind=gpu")
    there = {VISIBLE: "0", STAND_IN: "tests.cuda.ptx_on_cpu:PtxOnCpu"}
    found = run(tmp_path, "tiny.toml", *words, *gpu, code=2, **there)
    assert f"a power, in own.py:{line}, has them where" in found["error"]
    assert found["error"] in found["stderr"]
    assert "Traceback" not in found["stderr"]


def WrongDevice() -> Any:  # a class that is made where the simulator is
    from tests.cuda.simulator import Simulator

    class Wrong(Simulator):
        def run(self, program: Any, arguments: Any, blocks: int, threads: int, results: Any, *how: Any) -> None:
            super().run(program, arguments, blocks, threads, results, *how)
            results[0][0] += 1

    return Wrong()


def LostDevice() -> Any:
    from tests.cuda.simulator import Simulator

    class Lost(Simulator):  # for good, after golden episodes of both environments and one task
        def run(self, program: Any, arguments: Any, blocks: int, threads: int, results: Any, *how: Any) -> None:
            with open("launches", "a+") as file:
                if file.write(".") and file.tell() > 3:
                    raise DeviceLostError("an illegal memory access (700)")
            super().run(program, arguments, blocks, threads, results, *how)

    return Lost()


def HangingDevice() -> Any:
    from tests.cuda.simulator import Simulator

    class Hanging(Simulator):
        def run(self, *how: Any) -> None:
            time.sleep(900)

    return Hanging()


def script(*words: str, code: int = 0, **environment: str) -> list[dict[str, Any]]:
    """Return what the script for GPUs prints."""
    line, there = [sys.executable, "-m", "benchmarks.exact_gpu", "--tiny", *words], {**os.environ, **environment}
    done = subprocess.run(line, cwd=ROOT, env=there, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
def test_the_script_for_gpus_takes_no_run_that_fails_for_equal() -> None:
    wrong = {**SIMULATED, STAND_IN: "tests.cuda.test_gpu_runs:WrongDevice"}
    *_, before, last = script("--only", "runs", code=1, **wrong)
    assert "does not compute the bits" in before["why"]
    assert last["BITS_EQUAL"] is False


@pytest.mark.long
def test_the_script_for_gpus_ends_in_time_and_says_what_it_left_out() -> None:
    hangs = {**SIMULATED, STAND_IN: "tests.cuda.test_gpu_runs:HangingDevice"}
    last = script("--only", "bits", "updates", "--most", "1", "--seconds", "35", **hangs)[-1]
    assert last["BITS_EQUAL"] == last["UPDATES_EQUAL"] == "in part"
    assert last["left_out"] == {"bits": ["acrobot"], "updates": ["all of updates"]}


@needs_cuda
@pytest.mark.long
def test_the_script_for_gpus_in_its_tiny_form() -> None:
    there = {VISIBLE: "0", STAND_IN: "tests.cuda.ptx_on_cpu:PtxOnCpu"}
    last = script("--only", "bits", "updates", "jax", "--most", "1", **there)[-1]
    assert last["BITS_EQUAL"] is last["UPDATES_EQUAL"] is True
    assert list(last["left_out"]) == ["jax"]  # which is not installed here


@pytest.mark.long
def test_a_run_whose_only_gpu_is_lost_ends_with_5_and_goes_on_with_cpus(tmp_path: Path) -> None:
    expected = run(tmp_path, "tiny.toml", "--backend", "serial")
    lost = {**SIMULATED, STAND_IN: "tests.cuda.test_gpu_runs:LostDevice"}
    found = run(tmp_path, "tiny.toml", "--set", "workers.kind=gpu", "--run-dir", "r", code=5, **lost)
    assert found["generations"] == 1
    assert "on GPU 0 gives up: it has lost its GPU: an illegal memory access (700); no worker" in found["error"]
    assert "--set workers.kind=cpu; 1 generation is saved; continue with: " in found["stderr"]
    found = run(tmp_path, "--resume", "r", "--set", "workers.kind=cpu")
    assert comparable(found) == comparable(expected)


def test_auto_plays_where_a_probe_finds_more_frames_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    experiment = Experiment.load(tmp_path / "tiny.toml", "run.algorithm=ga", "workers.count=auto")
    monkeypatch.setattr(hardware, "visible", lambda: ("0",))
    monkeypatch.setattr(session, "find_spec", lambda name: name)
    speeds = {"gpu": 0.0, "cpu": 100.0}
    monkeypatch.setattr(session, "frames_per_second", lambda one, *_: speeds[one.workers.kind])
    for gpu, expected in ((0.0, "auto"), (1e9, "gpu")):
        speeds["gpu"] = gpu
        assert session.on_fastest(experiment, tmp_path).workers.kind == expected
        assert f"workers play on {'GPUs' if gpu else 'the CPU'}: 1 GPU plays" in capfd.readouterr().err
    monkeypatch.setattr(hardware, "visible", tuple)
    assert session.on_fastest(experiment, tmp_path) is experiment
    assert not capfd.readouterr().err


def test_the_probe_plays_fresh_candidates(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    experiment = Experiment.load(tmp_path / "tiny.toml", "run.algorithm=ga", "workers.count=1")
    assert session.frames_per_second(experiment, tmp_path, 2, 1, 3) > 0
