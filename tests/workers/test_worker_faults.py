"""Whole runs whose workers are harmed in every way: nothing shows, or one line names the candidate to blame."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from evo.randomness.streams import Purpose, episode_keys
from evo.rollouts.gymnasium_episodes import PROBED
from evo.store.store import Store
from tests.evaluators.test_evaluators import alive, children, until
from tests.helpers.calling import called, small_with, summary_of
from tests.workers.treacherous import HARM

POPULATION, EPISODES, CONTENDERS, SELECT = 24, 3, 2, 4
WALK = small_with(
    run="generations = 3", environment='id = "treacherous"', policy='kind = "linear"',
    workers='backend = "processes"\ncount = 2',
    validation=f"every = 1\nepisodes = {SELECT}\nfinalists = {CONTENDERS}", test="episodes = 6",
    ga=f"population = {POPULATION}\nparents = 4\nelites = 2\nepisodes = {EPISODES}\nsigma = 1.0",
)  # fmt: skip
PLUGIN = ("--plugin", "tests.workers.treacherous")


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "walk.toml").write_text(WALK)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    return tmp_path


def run(where: Path, name: str, *words: object, code: int = 0) -> dict[str, object]:
    return summary_of(where, "walk.toml", "--run-dir", name, *PLUGIN, *words, code=code)


def walks(where: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the walks of every generation of an undisturbed run, and those on test episodes, in order."""
    with monkeypatch.context() as patch:
        patch.setenv("WALKS", str(where / "walks"))
        run(where, "undisturbed", "--backend", "serial")
    checked = f"{PROBED[0]:016x}:"  # a seed of the check before the run
    every = [name for name in (where / "walks").read_text().split() if not name.startswith(checked)]
    size = POPULATION * EPISODES + CONTENDERS * SELECT
    return [every[first : first + size] for first in range(0, len(every), size)]


def only_once(names: list[str], part: slice = slice(None)) -> tuple[int, str]:
    """Return the number and the name of a walk that nobody else walks, in the middle of `part`."""
    counts = Counter(names)
    numbers = [i for i in range(len(names))[part] if counts[names[i]] == 1]
    return numbers[len(numbers) // 2], names[numbers[len(numbers) // 2]]


def typed(where: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Type a command that was printed."""
    return subprocess.run(["/bin/sh", "-c", line], cwd=where, capture_output=True, text=True, timeout=120)


@pytest.mark.long
@pytest.mark.parametrize("generation", [0, 2])
def test_a_candidate_that_ends_every_worker_is_named_with_the_command_that_repeats_it(
    walk: Path, monkeypatch: pytest.MonkeyPatch, generation: int
) -> None:
    number, name = only_once(walks(walk, monkeypatch)[generation], slice(POPULATION * EPISODES))
    candidate = number // EPISODES
    monkeypatch.setenv("DEADLY", name)
    summary = run(walk, "run", code=5)
    assert (summary["status"], summary["generations"]) == ("failed", generation)
    line = str(summary["error"])
    assert "\n" not in line
    assert line.startswith(f"candidate {candidate} of generation {generation} ended every worker")
    assert "SIGSEGV" in line
    again, _ = re.findall(r"with: (.*?)(?:;|$)", line)
    words = f"--generation {generation} --candidate {candidate} --plugin tests.workers.treacherous"
    assert again == f"python -m evo replay run {words}"
    repeated = typed(walk, again)
    assert repeated.returncode == 5, repeated.stderr
    assert f"generation {generation} (not committed: the run stopped in this generation" in repeated.stdout
    assert f"candidate {candidate} of generation {generation} ended its worker, which was killed by SIGSEGV" in (
        repeated.stderr
    )


@pytest.mark.long
def test_after_a_candidate_that_ends_every_worker_others_can_be_repeated_and_the_run_resumed(
    walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, name = only_once(walks(walk, monkeypatch)[2], slice(POPULATION * EPISODES))
    candidate = number // EPISODES
    monkeypatch.setenv("DEADLY", name)
    again, resume = re.findall(r"with: (.*?)(?:;|$)", str(run(walk, "run", code=5)["error"]))
    innocent = typed(walk, again.replace(f"--candidate {candidate}", f"--candidate {(candidate + 1) % POPULATION}"))
    assert (innocent.returncode, innocent.stderr) == (0, "")
    assert "the process that played it did not crash" in innocent.stdout
    assert typed(walk, resume).returncode == 0
    resumed, straight = Store.read(walk / "run"), summary_of(walk, "--resume", "run", *PLUGIN)
    assert resumed.next_generation == 3
    assert (
        straight["state_hash"] == run(walk, "worst", "--set", "workers.on_poison=worst", "--workers", 1)["state_hash"]
    )


@pytest.mark.long
def test_a_poisoned_candidate_ranks_worst_alone_and_the_record_says_so(
    walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, name = only_once(walks(walk, monkeypatch)[1], slice(POPULATION * EPISODES))
    candidate = number // EPISODES
    monkeypatch.setenv("DEADLY", name)
    worst = ("--set", "workers.on_poison=worst")
    run(walk, "workers-3", *worst, "--workers", 3)
    _, err = called(walk, "walk.toml", "--run-dir", "workers-1", *PLUGIN, *worst, "--workers", 1)
    hashes = {Store.read(walk / name).state_hash for name in ("workers-1", "workers-3")}
    assert len(hashes) == 1
    harmed, undisturbed = Store.read(walk / "workers-3"), Store.read(walk / "undisturbed")
    assert hashes != {undisturbed.state_hash}
    assert harmed.lines[0].state_hash == undisturbed.lines[0].state_hash  # what did not happen is in no hash
    record, wanted = harmed.read_record(1), undisturbed.read_record(1)
    assert record["poisoned"].tolist() == [[0, candidate]]
    others = np.arange(POPULATION) != candidate
    assert record["return"][candidate] == -np.inf
    assert candidate not in record["survivors"]
    for column in ("parent", "key", "return", "frames"):
        assert np.array_equal(record[column][others], wanted[column][others])
    assert f"candidate {candidate} of generation 1 ended every worker" in err
    assert "ranks worst" in err


@pytest.mark.long
def test_where_tensorflow_plays_a_poisoned_candidate_ranks_worst_alone_too_however_tasks_are_cut(
    walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, name = only_once(walks(walk, monkeypatch)[1], slice(POPULATION * EPISODES))
    monkeypatch.setenv("DEADLY", name)
    worst = ("--set", "policy.inference=tensorflow", "--set", "workers.on_poison=worst", "--workers", 1)
    champions = {
        str(run(walk, f"cut-{cut}", *worst, "--set", f"workers.candidates_per_task={cut}")["champion"])
        for cut in (5, POPULATION)
    }
    assert len(champions) == 1
    assert Store.read(walk / "cut-5").read_record(1)["poisoned"].tolist() == [[0, number // EPISODES]]


@pytest.mark.long
def test_a_contender_that_is_poisoned_is_not_crowned_and_its_round_is_named(
    walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, name = only_once(walks(walk, monkeypatch)[0], slice(POPULATION * EPISODES, None))
    monkeypatch.setenv("DEADLY", name)
    contender = number - POPULATION * EPISODES  # each of its episodes is a task, and candidates count over all tasks
    error = str(run(walk, "run", code=5)["error"])
    assert f"candidate {contender} of generation 0, in round 1, ended every worker" in error
    repeated = typed(walk, re.findall(r"with: (.*?);", error)[0])
    assert repeated.returncode == 5
    assert "which was killed by SIGSEGV" in repeated.stderr
    run(walk, "worst", "--set", "workers.on_poison=worst", "--generations", 1)
    assert Store.read(walk / "worst").read_record(0)["poisoned"].tolist() == [[1, contender]]


@pytest.mark.long
def test_where_every_candidate_ends_its_workers_none_is_named(walk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADLY", "all")
    few = ("--set", "ga.population=4", "--set", "ga.parents=2", "--set", "ga.elites=1")
    error = run(walk, "run", "--set", "workers.on_poison=worst", *few, code=5)["error"]
    assert "none is named as the cause" in str(error)


@pytest.mark.long
def test_a_champion_that_cannot_be_measured_is_kept_and_repeated_by_evaluate(
    walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADLY", walks(walk, monkeypatch)[-1][0])
    summary = run(walk, "run", "--set", "workers.on_poison=worst", code=5)
    assert summary["generations"] == 3
    line = str(summary["error"])
    assert line.endswith("repeat that with: python -m evo evaluate run --plugin tests.workers.treacherous")
    repeated = typed(walk, line.partition("with: ")[2])
    assert repeated.returncode == 5
    assert "SIGSEGV" in repeated.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--generation", "9", "--candidate", "0"),
        ("--generation", "1", "--candidate", str(POPULATION)),
        ("--generation", "0", "--candidate", "0", "--round", "5"),
        ("--generation", "1"),
        ("--round", "1"),
    ],
)
def test_a_candidate_that_there_is_none_of_is_a_mistake(walk: Path, words: tuple[str, ...]) -> None:
    run(walk, "run", "--generations", 2, "--backend", "serial")
    _, err = called(walk, "replay", "run", *PLUGIN, *words, program="evo", code=2)
    assert "--" in err
    assert "Traceback" not in err


def prepare(folder: Path, faults: list[str]) -> None:
    """Prepare two faults for each generation from the second on, in different episodes and at different steps."""
    folder.mkdir()
    for i, fault in enumerate(faults):
        seed = int(episode_keys(1, Purpose.TRAINING, 1 + i // 2, EPISODES)[i % 2])
        (folder / f"{fault}-{seed:016x}-{i % 5}").touch()


@pytest.mark.long
def test_every_fault_in_one_run_leaves_no_trace_in_the_hash(walk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("--generations", 7, "--set", "workers.candidates_per_task=2")
    reference = run(walk, "undisturbed", "--backend", "serial", *few)
    prepare(walk / "faults", [*HARM, "kill", "exit", "segv", "memory", "kill", "kill"])
    monkeypatch.setenv("TREACHERY", str(walk / "faults"))
    harmed = run(walk, "harmed", "--workers", 3, *few, "--set", "workers.deadline=1")
    assert list((walk / "faults").iterdir()) == []  # all of them have happened
    for key in ("state_hash", "frames", "champion"):
        assert harmed[key] == reference[key]


def test_no_process_outlives_a_killed_master_by_two_seconds(walk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(walk / "faults", ["spin", "stop"])
    monkeypatch.setenv("TREACHERY", str(walk / "faults"))
    words = [sys.executable, "-m", "evo.run", "walk.toml", *PLUGIN, "--workers", "3", "--set", "workers.deadline=300"]
    with subprocess.Popen(
        [*words, "--set", "workers.candidates_per_task=2"], cwd=walk, stdout=subprocess.DEVNULL
    ) as it:
        assert until(lambda: not list((walk / "faults").iterdir()), 60)
        family = children(it.pid)
        assert len(family) == 4  # the fork server, and workers of which one spins and one is stopped
        it.send_signal(signal.SIGKILL)
        it.wait()
        assert until(lambda: not any(map(alive, family)), 2.0)
