"""Workers that start: what they wait for is named, and what cannot be forked is spawned."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evo.errors import ConfigurationError, ResourceError
from evo.store.metrics import MetricsFile
from evo.workers import worker
from evo.workers.channel import WorkerSpec
from evo.workers.pool import Pool
from tests.evaluators.test_evaluators import alive, master, until, want
from tests.helpers.calling import ROOT, called, command, small_with, summary_of
from tests.helpers.sampling import sampled
from tests.releases.stored import EXPERIMENT as TINY
from tests.workers.players import Job

PLAYERS = "tests.workers.players:"
SLOW = """
import time
import gymnasium
import numpy as np


class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.seconds = 20, 0.15 * (self.np_random.random() < 0.1)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        time.sleep(self.seconds)
        self.left -= 1
        return np.zeros(3, np.float32), float(action), not self.left, False, {}


gymnasium.register("Slow-v0", Slow)
"""
EXPERIMENT = small_with(
    run="generations = 2", environment='id = "gymnasium:Slow-v0"', policy='kind = "linear"',
    workers='backend = "processes"\ncount = 2\ndeadline = 1.0', validation="episodes = 2\nfinalists = 1",
    test="episodes = 2", ga="population = 12\nparents = 4\nelites = 2\nepisodes = 4",
)  # fmt: skip


def spec(player: str = "make", context: object = None, prepare: str = "", **how: object) -> WorkerSpec:
    return WorkerSpec(PLAYERS + player, context, prepare and PLAYERS + prepare, **how)  # type: ignore[arg-type]


def test_a_process_that_compiles_ends_within_a_second_of_its_masters_death(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    started = f"WorkerSpec('{PLAYERS}make', {str(told)!r}, '{PLAYERS}prepare_and_tell')"
    with master(f"Pool({started}, [{{}}]).map([Job(1)])") as process:
        assert until(lambda: told.exists() and told.read_text() != "", 60)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert until(lambda: not alive(int(told.read_text())), 1.0)


@pytest.mark.parametrize(("player", "prepare"), [("make_waiting", ""), ("make", "make_waiting")])
@pytest.mark.parametrize("start", sampled(["forkserver", "spawn"]))
def test_what_a_process_waits_for_while_it_starts_is_named(player: str, prepare: str, start: str) -> None:
    if start == "spawn":
        player, prepare = "make_waiting", ""
    with Pool(spec(player, None, prepare, start=start, deadline=1.0), [{}]) as pool:
        with pytest.raises(ResourceError, match=r"workers cannot start: for 1 seconds .*\(\w+\.py:\d+\)") as raised:
            pool.map([Job(1)])
        assert ("workers.start=spawn" in str(raised.value)) == (start == "forkserver")


def test_a_plug_in_that_does_not_return_while_workers_start_is_named_however_busy_it_is() -> None:
    said = r"for 2 seconds \(see workers.deadline\) make_spinning .* not returned$"
    with Pool(spec("make_spinning", deadline=0.5), [{}]) as pool, pytest.raises(ResourceError, match=said):
        pool.map([Job(1)])


@pytest.mark.long
def test_a_process_that_compiles_for_long_has_no_deadline_while_it_starts() -> None:
    with Pool(spec("make_compiling", {}, deadline=0.5), [{}]) as pool:
        assert pool.map([Job(1)]).results == want([Job(1)])


def test_a_plug_in_whose_calls_take_no_processor_time_but_return_does_not_hang_while_workers_start() -> None:
    with Pool(spec("make_stepping", {}, deadline=0.5), [{}]) as pool:
        assert pool.map([Job(1)]).results == want([Job(1)])


@pytest.mark.skipif(sys.platform != "linux", reason="the states of threads are in /proc")
def test_a_process_that_gets_no_processor_while_it_starts_is_not_taken_for_one_that_waits() -> None:
    with Pool(spec("make_starved", deadline=1.0), [{}]) as pool:
        assert pool.map([Job(1)]).results == want([Job(1)])


READY = """
import time
from evo.workers import worker
from evo.workers.channel import WorkerSpec
class Master:
    send = staticmethod(print)
def look():
    time.sleep(0.4)
    return False
worker._may_run = look
with worker.watched(Master, WorkerSpec("", None, deadline=1.0)):
    time.sleep(1.2)  # ready while it is looked at
"""


def test_a_process_that_is_ready_while_it_is_looked_at_is_not_taken_for_one_that_waits() -> None:
    ended = subprocess.run([sys.executable, "-c", READY], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.long
def test_episodes_that_are_much_longer_than_others_are_not_taken_for_hung(tmp_path: Path) -> None:
    (tmp_path / "slow_env.py").write_text(SLOW)
    (tmp_path / "slow.toml").write_text(EXPERIMENT)
    with command(tmp_path, "slow.toml", "--plugin", "slow_env", "--run-dir", "run", "--no-report") as process:
        assert process.wait(timeout=300) == 0
    lines = MetricsFile(tmp_path / "run").read()
    assert [line["workers_replaced"] for line in lines] == [0, 0]
    assert max(line["seconds"] for line in lines) > 3.0  # one of these episodes takes that long


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="what other processes have spent is in /proc")
def test_a_process_that_waits_for_one_that_computes_is_not_taken_for_hung() -> None:
    with Pool(spec(prepare="prepare_by_a_child", deadline=0.5), [{}]) as pool:
        assert pool.map([Job(1)]).results == want([Job(1)])


@pytest.mark.long
def test_a_process_that_compiles_for_longer_than_the_deadline_does_not_hang() -> None:
    with Pool(spec(prepare="prepare_at_work", deadline=0.4), [{}]) as pool:
        assert pool.map([Job(1)]).results == want([Job(1)])


@pytest.mark.parametrize(
    ("prepare", "left"),
    [("prepare_with_a_thread", r"1 thread \(engine\)"), ("prepare_with_a_file", r"1 open file \(.*levels\.txt\)")],
)
def test_where_plug_ins_leave_threads_or_files_workers_are_spawned_and_a_line_says_so(
    tmp_path: Path, prepare: str, left: str
) -> None:
    (tmp_path / "levels.txt").write_text("one")
    with Pool(spec("make", tmp_path / "levels.txt", prepare), [{}, {}]) as pool:
        played = pool.map([Job(1), Job(2)])
        assert played.results == want([Job(1), Job(2)])
        (said,) = played.notices
        assert re.fullmatch(f"workers are spawned, not forked: the import of plug-ins has left {left}", said)


@pytest.mark.long
def test_a_process_that_leaves_nothing_is_forked(tmp_path: Path) -> None:
    with Pool(spec(prepare="prepare_at_work"), [{}]) as pool:
        assert pool.map([Job(1)]).notices == []


@pytest.mark.long
@pytest.mark.parametrize("steps", [True, False])
def test_a_worker_that_plays_steps_is_not_taken_for_hung_and_one_that_is_replaced_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], steps: bool
) -> None:
    monkeypatch.setattr("evo.workers.pool.FIRST_DEADLINE", 1.0)
    with Pool(spec("make_slow", tmp_path, deadline=1.0), [{}]) as pool:
        played = pool.map([Job(1, 0.3, "" if steps else "silence")])
    assert played.effort.replaced == (0 if steps else 1)
    said = "note: a worker made no progress for 1 seconds (see workers.deadline); another one plays its task again\n"
    assert played.notices == []  # it is said at once: a round of tasks that hang takes half an hour
    assert capsys.readouterr().err == ("" if steps else said)


@pytest.mark.parametrize(
    ("mischief", "said"),
    [
        ("interrupt", "raised KeyboardInterrupt"),
        ("cancel", "raised CancelledError"),
        ("leave", r"called sys.exit\(3\)"),
    ],
)
def test_what_would_end_a_program_is_named_like_other_exceptions(tmp_path: Path, mischief: str, said: str) -> None:
    with (
        Pool(spec(), [{}]) as pool,
        pytest.raises(ConfigurationError, match=rf"a library {said} \(players\.py:\d+\)"),
    ):
        pool.map([Job(1, mischief=mischief, tally=tmp_path)])


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--algorithm", "sep_cma_es"),
        ("--algorithm", "ppo"),
        ("--algorithm", "dqn"),
        ("--algorithm", "ppo", "--set", "environment.id=connect_four"),
        ("--set", "environment.id=gymnasium:CartPole-v1"),
    ],
    ids=lambda words: " ".join(words) or "ga",
)
def test_a_run_of_any_kind_whose_workers_are_spawned_is_the_one_of_a_single_process(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    spawned = ("--backend", "processes", "--workers", 2, "--set", "workers.start=spawn")
    straight = summary_of(tmp_path, "tiny.toml", *words, "--run-dir", "straight")
    summary_of(tmp_path, "tiny.toml", *words, *spawned, "--run-dir", "run", "--generations", 2)
    resumed = summary_of(tmp_path, "--resume", "run", "--generations", 3)
    assert resumed == {**straight, "run_dir": "run", "seconds": resumed["seconds"]}
    assert 'start = "spawn"' in (tmp_path / "run" / "config.resolved.toml").read_text()
    assert "agrees: 3 generations" in called(tmp_path, "verify", "run", "--all", program="evo")[0]
    scores = [
        called(tmp_path, "evaluate", run, "--episodes", 40, "--json", program="evo")[0] for run in ("run", "straight")
    ]
    assert scores[0] == scores[1]


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="no /proc")
def test_a_process_whose_name_is_cut_within_a_character_is_watched_too() -> None:
    name = Path("/proc/self/comm")
    before = name.read_bytes()
    try:
        name.write_bytes(b"fifteen bytes \xc3")
        assert worker._stat(Path("/proc/self"))[1] == str(os.getppid())
    finally:
        name.write_bytes(before)
