"""Workers that start: what they wait for is named, and what cannot be forked is spawned."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from evo.errors import ConfigurationError, ResourceError
from evo.workers.channel import WorkerSpec
from evo.workers.pool import Pool
from tests.evaluators.test_evaluators import alive, master, until, want
from tests.workers.players import Job

PLAYERS = "tests.workers.players:"


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
@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_what_a_process_waits_for_while_it_starts_is_named(player: str, prepare: str, start: str) -> None:
    if start == "spawn":
        player, prepare = "make_waiting", ""
    with Pool(spec(player, None, prepare, start=start, deadline=1.0), [{}]) as pool:
        with pytest.raises(ResourceError, match=r"workers cannot start: for 1 seconds .*\(\w+\.py:\d+\)") as raised:
            pool.map([Job(1)])
        assert ("workers.start=spawn" in str(raised.value)) == (start == "forkserver")


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


def test_a_process_that_leaves_nothing_is_forked(tmp_path: Path) -> None:
    with Pool(spec(prepare="prepare_at_work"), [{}]) as pool:
        assert pool.map([Job(1)]).notices == []


@pytest.mark.parametrize("steps", [True, False])
def test_a_worker_that_plays_steps_is_not_taken_for_hung_and_one_that_is_replaced_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: bool
) -> None:
    monkeypatch.setattr("evo.workers.pool.FIRST_DEADLINE", 1.0)
    with Pool(spec("make_slow", tmp_path, deadline=1.0), [{}]) as pool:
        played = pool.map([Job(1, 0.3, "" if steps else "silence")])
    assert played.effort.replaced == (0 if steps else 1)
    said = r"a worker made no progress for 1 seconds \(see workers.deadline\); another one plays its task again"
    assert [bool(re.fullmatch(said, text)) for text in played.notices] == ([] if steps else [True])


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
