"""What a run takes of memory and of the disk, seen from outside: pages of real processes, bytes of real files."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.evaluators import processes
from evo.files.arrays import encode
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import Episodes, Task, WeightSource
from evo.store import store as directory
from evo.store.store import Store
from tests.evaluators.test_evaluators import children
from tests.helpers.calling import ROOT, SMALL, after, command, small_with, summary_of
from tests.helpers.sampling import sampled
from tests.helpers.specs import make, spec

LARGE = small_with(
    run="generations = 400", environment="size = 5\nwindow = 5\nstarvation = 5",
    policy='kind = "mlp"\ndense = [2000]', workers="count = 2",
    validation="every = 1000\nepisodes = 1\nfinalists = 1", test="every = 1000\nepisodes = 2",
    ga="population = 12\nparents = 4\nelites = 2\nepisodes = 1",
)  # fmt: skip
LARGE_WEIGHTS = (5 * 25 + 1) * 2000 + 2001 * 3


def kilobytes(pid: int, what: str, file: str = "") -> int:
    """Return the sum of a field of /proc/PID/smaps, of the mappings of one file or (in a rolled-up form) of all."""
    if not file:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(re.search(rf"^{what}:\s+(\d+) kB$", text, re.MULTILINE)[1])  # type: ignore[index]
    total, inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(file)
        elif inside and line.startswith(f"{what}:"):
            total += int(line.split()[1])
    return total


def everybody(pid: int, what: str = "Pss") -> float:
    """Return the memory of a process and all its descendants in megabytes; shared pages count once."""
    return sum(kilobytes(one, what) for one in (pid, *children(pid))) * 1024 / 1e6


@pytest.mark.long
def test_workers_share_the_pages_of_published_weights_and_are_small(tmp_path: Path) -> None:
    network, rows = Network.build(Policy(kind="mlp", dense=[2000]), (5, 5, 5), 3), 12
    assert network.size == LARGE_WEIGHTS
    weights = np.random.default_rng(1).normal(size=(rows, network.size)).astype(np.float32)
    (tmp_path / "weights.h5").write_bytes(encode({"weights": weights}))
    every = np.arange(rows, dtype=np.int32)
    source = WeightSource(
        every, np.full(rows, -1, np.int32), np.zeros(rows, np.uint64), np.zeros(rows, np.float32), "none", "weights.h5"
    )
    task = Task(source, Episodes(np.arange(1, dtype=np.uint64)))
    environment: dict[str, Any] = {"id": "snake", "size": 5, "window": 5, "starvation": 5}
    whole = weights.nbytes // 1024
    pool = make(processes, spec(tmp_path, environment, network.options.model_dump(), {"count": 3}))
    try:
        end = time.monotonic() + 120
        seen: list[int] = []
        while len(seen) < 3 or min(seen) < whole:  # until each of them has read every row
            assert time.monotonic() < end, seen
            pool.map([task] * 6)
            seen = [kilobytes(pid, "Rss", "weights.h5") for pid in pool.pids if pid]
        for pid in pool.pids:
            assert kilobytes(pid, "Private_Dirty", "weights.h5") == 0
            assert kilobytes(pid, "Pss", "weights.h5") <= whole * 1.2 / 3
            assert kilobytes(pid, "Rss") * 1024 < 200e6
    finally:
        pool.close()


@pytest.mark.long
def test_the_published_experiment_takes_less_than_600_megabytes_in_all(tmp_path: Path) -> None:
    words = (ROOT / "experiments" / "ga_snake.toml", "--run-dir", "run", "--workers", 2, "--set", "ga.episodes=4")
    with command(tmp_path, *words) as process:
        after(process, 2)
        assert len(children(process.pid)) == 3  # two workers, and the process that forks them
        assert everybody(process.pid) < 600


def grown(where: Path, first: int, last: int) -> tuple[float, float]:
    """Return what a run of a large network takes after so many generations, and so many, in megabytes."""
    (where / "large.toml").write_text(LARGE)
    with command(where, "large.toml", "--run-dir", "run") as process:
        after(process, first)
        before = everybody(process.pid)
        after(process, last)
        return before, everybody(process.pid)


STATE = 4 * LARGE_WEIGHTS * 4 / 1e6  # megabytes of a generation's survivors


@pytest.mark.long
def test_memory_does_not_grow_with_generations(tmp_path: Path) -> None:
    before, later = grown(tmp_path, 15, 45)
    assert later - before < 5 * STATE  # and thirty generations have passed


@pytest.mark.long
def test_memory_does_not_grow_over_two_hundred_generations(tmp_path: Path) -> None:
    before, later = grown(tmp_path, 20, 220)
    assert later - before < 5 * STATE


@pytest.mark.parametrize("durable", sampled([0.0, 2.0]))
def test_a_generation_takes_less_than_200_bytes_a_candidate_beside_its_survivors(
    tmp_path: Path, durable: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "DURABLE_SECONDS", durable)  # 0: every generation has files of its own
    population, generations = 300, 12
    (tmp_path / "small.toml").write_text(SMALL.replace("population = 20", f"population = {population}"))
    summary = summary_of(tmp_path, "small.toml", "--generations", generations)
    run = tmp_path / summary["run_dir"]
    survivors = {"population", "published", "champion.h5", "champion.json"}
    files = [path for path in run.rglob("*") if path.is_file() and path.relative_to(run).parts[0] not in survivors]
    assert {path.name for path in files} >= {"manifest.jsonl", "metrics.jsonl", "config.resolved.toml"}
    records = [path for path in files if path.parent.name == "records"]
    assert (len(records) == generations) is (durable == 0.0)
    assert sum(path.stat().st_size for path in files) < 200 * population * generations
    assert len(Store.read(run).lines) == generations
