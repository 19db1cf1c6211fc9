"""One hash, pinned: however a run is played, by whom, through which faults, on which instructions, it ends with it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

from tests.evaluators.ray.ray_nodes import needs_ray
from tests.kernels.test_lanes import without_avx512
from tests.run import shaken
from tests.run.golden_runs import PLUGIN, ended, in_every_way

ROOT = Path(__file__).parents[2]
ARM = ROOT / "build" / "arm"
# Over the arrays of every generation, with nothing before them: a new option changes the run's own hash, but not this.
GOLDEN = {
    "ga": "167f52ed88f83df0e9a41743d466e876882de7e0aae510a1a949a2b39c7be36c",
    "ppo": "9cafdb24deabe9ff74ad09a9f9ec1ffd8766141c76e58374491aff2b8be84a0b",
    "dqn": "1604cecdb80d99ab658d9ea263aea31a46ce438658c3ba20b568978540ec0004",
}


@pytest.mark.parametrize("algorithm", ["ga", "ppo"])
def test_alone_a_run_ends_with_the_pinned_hash(tmp_path: Path, algorithm: str) -> None:
    assert ended(tmp_path, 0, algorithm=algorithm)["golden"] == GOLDEN[algorithm]


@pytest.mark.long
@pytest.mark.parametrize("algorithm", GOLDEN)
def test_alone_and_on_workers_that_are_killed_a_run_ends_with_the_pinned_hash(tmp_path: Path, algorithm: str) -> None:
    before = shaken.killed
    ways = [ended(tmp_path, 0, algorithm=algorithm)]
    ways.append(ended(tmp_path, 3, resumed=True, kills=2, algorithm=algorithm))
    assert [way["golden"] for way in ways] == [GOLDEN[algorithm]] * 2
    assert ways[0] == ways[1]
    assert shaken.killed > before


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ga", "ppo", "pqn"])
def test_a_network_with_memory_ends_with_one_hash_however_it_is_played(tmp_path: Path, algorithm: str) -> None:
    before, memory = shaken.killed, ("--set", "policy.memory=gru:5")
    if algorithm != "ga":
        memory += ("--set", f"{algorithm}.bptt=8")  # not all pieces are of one environment: it has 30 steps
    ways = [ended(tmp_path, 0, more=memory, algorithm=algorithm)]
    ways.append(ended(tmp_path, 0, resumed=True, more=memory, algorithm=algorithm))
    ways.append(ended(tmp_path, 3, resumed=True, kills=2, more=memory, algorithm=algorithm))
    assert ways[0] == ways[1] == ways[2]
    assert ways[0]["golden"] != GOLDEN.get(algorithm)
    assert shaken.killed > before


@pytest.mark.long
@pytest.mark.parametrize("algorithm", GOLDEN)
def test_every_way_to_play_ends_with_the_pinned_hash(tmp_path: Path, algorithm: str) -> None:
    before = shaken.killed
    ways = in_every_way(tmp_path, 2, algorithm)
    assert [way["golden"] for way in ways] == [GOLDEN[algorithm]] * len(ways)
    assert all(way == ways[0] for way in ways)
    assert shaken.killed - before >= 6


@pytest.mark.long
@needs_ray
@pytest.mark.parametrize("algorithm", GOLDEN)
def test_on_ray_a_run_ends_with_the_pinned_hash(tmp_path: Path, algorithm: str) -> None:
    way = ended(tmp_path, 2, algorithm=algorithm, backend=("--backend", "ray"))
    assert way["golden"] == GOLDEN[algorithm]


@pytest.mark.long
@pytest.mark.skipif(
    not binding.get_host_cpu_features().get("avx2"), reason="the instruction sets of x86-64 are compared on one"
)
@pytest.mark.parametrize("algorithm", GOLDEN)
def test_another_instruction_set_ends_with_the_pinned_hash_in_every_way(algorithm: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_CPU")}
    haswell = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": without_avx512()}
    environment = {**inherited, **haswell, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, str(ROOT / "tests" / "run" / "golden_runs.py"), "1", algorithm]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "+avx512" not in found["features"]
    assert {way["golden"] for way in found["ways"]} == {GOLDEN[algorithm]}
    assert found["killed"] >= 3


@pytest.mark.long
@pytest.mark.parametrize("algorithm", GOLDEN)
def test_spawned_workers_that_are_killed_end_with_the_pinned_hash(tmp_path: Path, algorithm: str) -> None:
    before, spawned = shaken.killed, (*PLUGIN, "--set", "workers.start=spawn")
    way = ended(tmp_path, 2, resumed=True, kills=1, algorithm=algorithm, backend=spawned)
    assert way["golden"] == GOLDEN[algorithm]
    assert shaken.killed > before


@pytest.mark.long
@pytest.mark.skipif(not (ARM / "ready").exists(), reason="`make arm` brings what emulates an ARM processor")
@pytest.mark.parametrize("algorithm", GOLDEN)
def test_an_emulated_arm_processor_ends_with_the_pinned_hash(tmp_path: Path, algorithm: str) -> None:
    program = [
        "import platform, sys; from pathlib import Path; from tests.run.golden_runs import ended",
        "assert platform.machine() == 'aarch64'",
        "print(ended(Path(sys.argv[1]), 0, algorithm=sys.argv[2])['golden'])",
    ]
    emulated = ("qemu-aarch64-static", "-L", str(ARM / "root"), str(ARM / "root" / "usr" / "bin" / "python3.11"))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": f"{ARM / 'site'}{os.pathsep}{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
    }
    words = [*emulated, "-c", "\n".join(program), str(tmp_path), algorithm]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == GOLDEN[algorithm]


@pytest.mark.long
def test_two_hundred_random_kills_and_every_way_to_resume_leave_the_pinned_hash(tmp_path: Path) -> None:
    dice, before = random.Random(1), shaken.killed
    trials = 0
    while shaken.killed - before < 200 or trials < 8:
        workers, resumed = (1, 2, 3, 7)[trials % 4], trials % 8 < 4
        way = ended(tmp_path, workers, resumed=resumed, kills=6, seed=dice.randrange(1 << 30))
        assert way["golden"] == GOLDEN["ga"], (trials, workers, resumed)
        trials += 1
