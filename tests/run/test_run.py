"""Whole runs, by the command: what they compute does not depend on how, and nothing that is committed is lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evo
from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError
from evo.records import Episodes, Generation, Played, Request, Result, Task, WeightSource
from evo.run import Row, generations
from evo.store.champion import read_champion
from evo.store.store import Store
from evo.training.beginning import open_or_begin
from evo.training.generation import Quarantine, play_out
from evo.training.session import Session
from tests.helpers.calling import KEYS, ROOT, SMALL, after, called, command, small_with, summary_of
from tests.helpers.sampling import sampled

SCORE = ["episodes", "mean", "ci95", "median", "max", "win_rate", "win_ci95", "mean_length", "block", "mean_return"]


def test_a_run_ends_with_a_summary_of_a_champion_that_was_tested_on_test_episodes(small: Path) -> None:
    summary = summary_of(small, "small.toml")
    assert (summary["status"], summary["error"], summary["generations"]) == ("done", None, 4)
    assert summary["run_dir"] == "runs/small-ga-seed1-001"
    score = summary["champion"]["test"]
    assert list(score) == SCORE
    assert score["episodes"] == 20
    assert score["ci95"][0] <= score["mean"] <= score["ci95"][1]
    with Store.open(small / summary["run_dir"]) as store:
        assert (store.state_hash, store.spent.frames + store.spent.frames_validating) == (
            summary["state_hash"],
            summary["frames"],
        )
        assert store.spent.seconds == pytest.approx(summary["seconds"])
    about = read_champion(small / summary["run_dir"]).about
    assert about["test"] == score
    assert about["state_hash"] == summary["state_hash"]
    assert about["fitness"] == summary["champion"]["fitness"]
    assert about["lineage"]["key"] >= 0


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_directory_can_have_is_named_by_the_library(small: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"File name too long|is not the path of a file or a directory"):
        next(iter(evo.train(Experiment.load(small / "small.toml"), name)))


def test_frames_are_the_steps_of_training_and_validation_and_of_nothing_else(small: Path) -> None:
    once = summary_of(small, "small.toml", "--set", "test.every=100")
    often = summary_of(small, "small.toml", "--set", "test.every=1")
    assert once["frames"] == often["frames"] > 0
    assert once["state_hash"] == often["state_hash"]


def test_a_row_prints_its_generation_its_returns_and_the_test_score_in_a_line() -> None:
    metrics = {"validation": -0.0, "best": -0.5, "mean": -12345678.0, "frames": 3.0, "test": 12.5}
    row = Row(9, metrics, None, False, Path("run"))
    assert str(row) == "generation 9  best -0.5  mean -1.23457e+07  validation 0  test score 12.5"


def test_a_run_that_ends_between_validations_looks_at_its_last_networks_and_goes_on_as_if_it_had_not(
    small: Path,
) -> None:
    words = ("small.toml", "--set", "validation.every=10", "--seed", 4)
    straight = summary_of(small, *words, "--run-dir", "straight")
    first = summary_of(small, *words, "--generations", 1, "--run-dir", "run")
    second = summary_of(small, "--resume", "run", "--generations", 2)
    assert read_champion(small / "run").about["generation"] == 1  # with this seed, generation 1 improves
    assert second["champion"]["fitness"] > first["champion"]["fitness"]
    third = summary_of(small, "--resume", "run", "--generations", 4)
    assert third == {**straight, "run_dir": "run", "seconds": third["seconds"]}
    files = [(small / run / "champion.h5").read_bytes() for run in ("run", "straight")]
    assert files[0] == files[1]
    assert called(small, "verify", "run", "--all", program="evo")[1] == ""


def test_a_champion_is_written_again_whole_where_the_run_was_killed_before_it_was_written(small: Path) -> None:
    rarely = ("--set", "validation.every=10", "--seed", 4)
    summary_of(small, "small.toml", *rarely, "--generations", 2, "--run-dir", "run")
    files = [small / "run" / name for name in ("champion.h5", "champion.json")]
    before = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    summary_of(small, "--resume", "run")
    assert [file.read_bytes() for file in files] == before
    assert read_champion(small / "run").about["lineage"]


def test_the_fingerprint_of_learning_is_computed_once_and_not_in_every_generation(small: Path) -> None:
    experiment, asked = Experiment.load(small / "small.toml"), []
    with open_or_begin(experiment, small / "run") as store, Session(experiment, store) as session:
        session.algorithm.algorithm.fingerprint = lambda: asked.append(store.next_generation) or ""  # type: ignore[method-assign]
        assert len(list(generations(session))) == 4
    assert asked == [0]


def test_another_seed_is_another_run(small: Path) -> None:
    hashes = {summary_of(small, "small.toml", "--seed", seed, "--generations", 1)["state_hash"] for seed in (1, 2)}
    assert len(hashes) == 2


@pytest.mark.parametrize("workers", [pytest.param((1, 3), marks=pytest.mark.long), (2,)], ids=["1 and 3", "2"])
def test_serial_and_any_number_of_processes_end_in_one_hash_and_one_score(
    small: Path, workers: tuple[int, ...]
) -> None:
    ways = [("--backend", "serial"), *(("--backend", "processes", "--workers", n) for n in workers)]
    summaries = [summary_of(small, "small.toml", *way) for way in ways]
    assert len({summary["state_hash"] for summary in summaries}) == 1
    assert len({json.dumps(summary["champion"]) for summary in summaries}) == 1
    assert len({summary["frames"] for summary in summaries}) == 1


def test_a_run_that_stopped_and_was_resumed_equals_a_straight_one(small: Path) -> None:
    straight = summary_of(small, "small.toml", "--run-dir", "straight")
    half = summary_of(small, "small.toml", "--run-dir", "halves", "--generations", 2)
    assert half["state_hash"] != straight["state_hash"]
    whole = summary_of(small, "--resume", "halves", "--generations", 4)
    for key in ("generations", "frames", "state_hash", "champion"):
        assert whole[key] == straight[key], key
    assert whole["seconds"] > half["seconds"]
    champions = [read_champion(small / name) for name in ("straight", "halves")]
    assert champions[0].weights.tobytes() == champions[1].weights.tobytes()
    assert champions[0].about == champions[1].about


def test_a_total_that_is_reached_leaves_nothing_to_do_and_says_so(small: Path) -> None:
    before = summary_of(small, "small.toml", "--run-dir", "run")
    out, _ = called(small, "--resume", "run", "--json")
    assert "nothing to do: 4 generations done, 4 asked for" in out
    assert json.loads(out.splitlines()[-1]) == before


def test_a_run_killed_before_its_test_gets_it_when_it_is_resumed(small: Path) -> None:
    before = summary_of(small, "small.toml", "--run-dir", "run")
    for name in ("champion.h5", "champion.json"):
        (small / "run" / name).unlink()
    again = summary_of(small, "--resume", "run")
    assert again["champion"] == before["champion"]
    assert (small / "run" / "champion.h5").exists()


@pytest.mark.long
def test_a_new_total_is_remembered_by_the_next_resume(small: Path) -> None:
    summary_of(small, "small.toml", "--run-dir", "run", "--generations", 2)
    with command(small, "--resume", "run", "--generations", 1000) as process:
        after(process, 3)
    with command(small, "--resume", "run") as process:
        assert "1,000 generations" in after(process, 3)


def test_a_changed_option_that_changes_results_is_refused_and_forked_instead(small: Path) -> None:
    first = summary_of(small, "small.toml", "--run-dir", "run")
    refused = summary_of(small, "--resume", "run", "--set", "ga.sigma=0.5", code=2)
    assert "ga.sigma: 0.1 in the run, 0.5 now" in refused["error"]
    change = ("--set", "ga.sigma=0.5", "--generations", 6)
    forked = summary_of(small, "--resume", "run", *change, "--fork", "other")
    assert (forked["run_dir"], forked["generations"]) == ("runs/other", 6)
    assert forked["state_hash"] != first["state_hash"]
    out, err = called(small, "--resume", "run", *change, "--fork", "another", "--json")
    assert "note: --fork: ga.sigma: no effect, as the run goes on with the values in its state" in err
    assert json.loads(out.splitlines()[-1])["generations"] == 6
    with Store.read(small / "run") as source, Store.read(small / "runs" / "other") as other:
        assert np.array_equal(source.read_state(3)["weights"], other.read_state(0)["weights"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code", "backend"),
    [
        (signal.SIGINT, 130, "serial"),
        (signal.SIGINT, 130, "processes"),
        (signal.SIGTERM, 143, "processes"),  # one is in test_signals.py
        (signal.SIGHUP, 129, "processes"),
    ],
)
def test_a_signal_ends_a_run_and_what_is_committed_goes_on(
    small: Path, number: signal.Signals, code: int, backend: str
) -> None:
    words = ("small.toml", "--run-dir", "run", "--generations", 500, "--backend", backend, "--json")
    with command(small, *words) as process:
        out = after(process, 3)
        os.killpg(process.pid, number)  # a terminal's Ctrl-C reaches every process of the group
        rest, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    summary = json.loads((out + rest).splitlines()[-1])
    assert (list(summary), summary["status"]) == (KEYS, "interrupted")
    assert summary["generations"] >= 3
    assert err.splitlines()[-1].endswith("continue with: python -m evo resume run")
    assert "Traceback" not in err
    total = ("--generations", summary["generations"] + 2, "--backend", "serial")
    resumed = summary_of(small, "--resume", "run", *total)
    straight = summary_of(small, "small.toml", "--run-dir", "straight", *total)
    assert resumed["state_hash"] == straight["state_hash"]
    assert resumed["champion"] == straight["champion"]


@pytest.mark.long
@pytest.mark.parametrize("backend", [pytest.param("serial", marks=pytest.mark.long), "processes"])
def test_an_interrupt_does_not_wait_for_the_generation_nor_for_a_task(small: Path, backend: str) -> None:
    hours = ("--set", "ga.episodes=100000", "--set", "ga.population=1000", "--set", "environment.starvation=100000")
    summary_of(small, "small.toml", "--generations", 1)  # compiles, which may be waited for
    with command(small, "small.toml", "--run-dir", "run", "--backend", backend, *hours) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(5)  # enough to be playing
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        took = time.monotonic() - began
    assert process.returncode == 130, err
    assert "0 generations are saved" in err
    assert took < 20  # two seconds, on a machine that has nothing else to do


@pytest.mark.long
def test_a_reader_that_leaves_does_not_stop_a_run(small: Path) -> None:
    with command(small, "small.toml", "--run-dir", "run") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 0
    with Store.read(small / "run") as store:
        assert store.next_generation == 4


def test_a_failure_ends_with_a_summary_too(small: Path) -> None:
    (small / "taken").mkdir()
    (small / "taken" / "file").touch()
    summary = summary_of(small, "small.toml", "--run-dir", "taken", code=2)
    assert summary["status"] == "failed"
    assert "is not empty" in summary["error"]
    assert summary_of(small, "--resume", "nothing", code=3)["status"] == "failed"
    assert summary_of(small, "small.toml", "--nonsense", code=2)["generations"] is None


@pytest.mark.long
def test_two_masters_do_not_share_a_run(small: Path) -> None:
    with command(small, "small.toml", "--run-dir", "run", "--generations", 1000) as process:
        after(process, 1)
        refused = summary_of(small, "--resume", "run", code=4)
    assert refused["status"] == "failed"


@pytest.mark.parametrize(("budget", "said"), [("frames = 100", "frames"), ("validation = -0.9", "validation return")])
def test_a_budget_stops_between_generations_and_is_recorded(small: Path, budget: str, said: str) -> None:
    out, _ = called(small, "small.toml", "--run-dir", "run", "--set", f"run.budget={{{budget}}}", "--json")
    summary = json.loads(out.splitlines()[-1])
    assert (summary["status"], summary["generations"]) == ("done", 1)
    assert said in read_champion(small / "run").about["stopped"]
    straight = summary_of(small, "small.toml", "--generations", 1)
    assert summary["state_hash"] == straight["state_hash"]


@pytest.mark.long
def test_what_cannot_be_expected_of_workers_is_told(small: Path) -> None:
    many = os.cpu_count() or 1
    _, err = called(small, "small.toml", "--generations", 1, "--workers", 1000)
    assert "ignored" in err
    _, err = called(small, "small.toml", "--generations", 1, "--backend", "processes", "--workers", many + 1)
    assert f"{many + 1} workers share" in err


def test_a_learner_s_options_are_of_no_use_to_an_algorithm_without_gradients_and_a_note_says_so(tmp_path: Path) -> None:
    learner = "[learner]\nthreads = 1\nstrategy = 'mirrored'\nlogical_cpus = 2\n"
    (tmp_path / "small.toml").write_text(SMALL + learner)
    _, err = called(tmp_path, "small.toml", "--run-dir", "run", "--algorithm", "ga", "--generations", 1)
    (line,) = [line for line in err.splitlines() if "learner" in line]
    assert line.endswith("learner.strategy and learner.logical_cpus are ignored: ga computes no gradients")
    (tmp_path / "small.toml").write_text(SMALL + "[learner]\nthreads = 1\n")
    assert "learner" not in called(tmp_path, "small.toml", "--run-dir", "usual", "--generations", 1)[1]


def test_quiet_shows_no_line_a_generation(small: Path) -> None:
    out, _ = called(small, "small.toml", "--quiet")
    assert "generation " not in out
    assert "test episodes" in out


def test_evaluate_equals_what_the_run_itself_measured(small: Path) -> None:
    masked = ("--set", "environment.mask=reverse")  # so that other tests compile the same
    score = summary_of(small, "small.toml", "--run-dir", "run", *masked)["champion"]["test"]
    words = ("evaluate", "run", "--json")
    for more in ((), ("--episodes", 20), ("--backend", "processes", "--workers", 2)):
        out, _ = called(small, *words, *more, program="evo")
        assert json.loads(out.splitlines()[-1]) == {**score, "mode": "greedy"}
    sampled = json.loads(called(small, *words, "--mode", "sample", program="evo")[0])
    assert (sampled["mode"], sampled["episodes"]) == ("sample", 20)
    assert sampled["mean_length"] != score["mean_length"]
    more = json.loads(called(small, *words, "--episodes", 300, program="evo")[0])
    assert more["episodes"] == 300


@pytest.mark.long
def test_another_block_has_other_episodes_and_says_how_often_it_was_looked_at(small: Path) -> None:
    summary_of(small, "small.toml", "--run-dir", "run")
    everyday = called(small, "evaluate", "run", "--block", 0, program="evo")[0]
    first = called(small, "evaluate", "run", "--block", 7, program="evo")[0]
    again = called(small, "evaluate", "run", "--block", 7, program="evo")[0]
    assert everyday.splitlines()[0] != first.splitlines()[0]
    assert again == first + "evaluated on block 7 1 time before: choose nothing by this score\n"
    assert called(small, "evaluate", "run", "--block", 0, program="evo")[0] == everyday
    by_itself = called(small, "evaluate", "run/champion.h5", "--block", 7, "--episodes", 20, program="evo")[0]
    assert by_itself == first


@pytest.mark.parametrize(("other", "said"), sampled([("--seed", "seed"), ("--generations", "states 2 generations")]))
def test_a_champion_of_another_run_is_refused_unless_it_is_named_itself(small: Path, other: str, said: str) -> None:
    called(small, "small.toml", "--run-dir", "run", "--generations", 1)
    called(small, "small.toml", "--run-dir", "other", "--generations", 1, other, 2)
    shutil.copy(small / "other" / "champion.h5", small / "run" / "champion.h5")
    for words in (("evaluate", "run"), ("replay", "run"), ("export", "run", "champion.npz", "--to", "npz")):
        _, err = called(small, *words, program="evo", code=3)
        assert err.startswith("run/champion.h5: is not of this run: ")
        assert said in err
    called(small, "evaluate", "run/champion.h5", "--episodes", 2, "--backend", "serial", program="evo")


def test_evaluate_and_replay_look_at_a_run_while_its_master_is_at_work_and_change_nothing(small: Path) -> None:
    summary_of(small, "small.toml", "--run-dir", "run")
    with Store.open(small / "run"):
        files = {path: path.stat().st_mtime_ns for path in sorted((small / "run").rglob("*"))}
        called(small, "evaluate", "run", program="evo")
        called(small, "replay", "run", program="evo")
        assert {path: path.stat().st_mtime_ns for path in sorted((small / "run").rglob("*"))} == files


@pytest.mark.long
@pytest.mark.parametrize("environment", sampled(["snake", "gymnasium:CartPole-v1"]))
def test_a_replay_gives_what_a_port_can_be_checked_with(small: Path, environment: str) -> None:
    (small / "other.toml").write_text(small_with(environment=f'id = "{environment}"'))
    called(small, "other.toml", "--run-dir", "run", "--generations", 1)
    out, _ = called(small, "replay", "run", "--episode", 3, "--json", program="evo")
    facts = json.loads(out.splitlines()[-1])
    assert list(facts) == ["episode", "seed", "steps", "score", "outputs_sha256", "actions"]
    assert facts["episode"] == 3
    run = evo.Run(small / "run")
    policy = run.champion
    assert repr(policy).startswith(f"<Policy of ga for {environment}: observations ({policy.network.shape[0]},")
    assert repr(policy).endswith(f" actions, {policy.network.size:,} weights>")
    env = environment_of(run.config.environment).env()
    observation, info = env.reset(seed=facts["seed"])
    outputs, total = [], 0.0
    for number, action in enumerate(facts["actions"], 1):
        outputs.append(policy.scores(observation))
        assert (outputs[-1] == policy.scores(np.asarray(observation)[np.newaxis])[0]).all()
        assert policy(observation, info.get("action_mask")) == action
        observation, reward, terminated, truncated, info = env.step(action)
        total += reward
        assert (terminated or truncated) == (number == facts["steps"])
    assert facts["score"] == info.get("score", total)
    assert facts["outputs_sha256"] == hashlib.sha256(np.stack(outputs).astype("<f4").tobytes()).hexdigest()
    assert len(out.splitlines()) == 2  # nothing is drawn: some environments need a package for that
    if environment == "snake":
        assert "--film FILE saves it" in called(small, "replay", "run", program="evo")[0]


@pytest.mark.long
def test_a_replay_shows_the_score_that_the_test_episode_had(small: Path) -> None:
    summary_of(small, "small.toml", "--run-dir", "run")
    scores = []
    for episode in range(10):
        out, _ = called(small, "replay", "run", "--episode", episode, program="evo")
        board, last = out.splitlines()[:-1], out.splitlines()[-1]
        assert board[-1].split()[:2] == ["score", last.split()[4]]
        scores.append(int(last.split()[4]))
    out, _ = called(small, "replay", "run", "--gif", "film.gif", program="evo")
    assert out.endswith(", saved to film.gif\n")
    assert (small / "film.gif").read_bytes().startswith(b"GIF8")
    first_ten = json.loads(called(small, "evaluate", "run", "--episodes", 10, "--json", program="evo")[0])
    assert sum(scores) / 10 == first_ten["mean"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("evaluate", "nothing"), 3, "nothing: no such file or directory"),
        (("evaluate", "run", "--episodes", "0"), 2, "--episodes: must be a whole number from 1"),
        (("evaluate", "run", "--episodes", "many"), 2, "--episodes: must be a whole number from 1"),
        (("replay", "run", "--episode", "-1"), 2, "--episode"),
        (("replay", "run", "--gif", "nowhere/film.gif"), 2, "no file can be written there"),
        (("replay", "run", "--gif", "film.mp4"), 2, "the file name must end with .gif"),
        (("replay", "run", "--film", "film.avi"), 2, "the file name must end with .gif or .webp or .mp4"),
    ],
)
def test_what_cannot_be_evaluated_or_replayed_is_told_in_a_line(
    small: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    summary_of(small, "small.toml", "--run-dir", "run", "--generations", 1)
    _, err = called(small, *words, program="evo", code=code)
    assert said in err
    assert "Traceback" not in err


class Echo:
    """An evaluator that answers with the file that each task names."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def map(self, tasks: Any) -> Played:
        self.asked.append([task.weights.published for task in tasks])
        empty = np.zeros((1, 1), np.int64)
        return Played(
            [Result(empty, empty.astype(np.int32), empty[..., None].astype(np.int32), empty > 0, n, n) for n in (1, 2)]
        )

    def close(self) -> None:
        pass


def test_tasks_name_the_weights_that_were_published_last(tmp_path: Path) -> None:
    zero = np.zeros(1, np.int32)
    source = WeightSource(zero, zero, zero.astype(np.uint64), zero.astype(np.float32))
    tasks = [Task(source, Episodes(np.zeros(1, np.uint64)))] * 2

    def generation() -> Generation:
        yield Request(None, tasks)
        yield Request(np.ones((1, 3), np.float32), tasks)
        results = yield Request(None, tasks)
        yield Request(np.zeros((1, 3), np.float32), tasks)
        return {"frames": float(sum(result.frames for result in results))}

    evaluator = Echo()
    with Store.create(tmp_path / "run", "", {}) as store:
        metrics = play_out(generation(), evaluator, store.publish)
        ones, zeros = store.publish(np.ones((1, 3), np.float32)), store.publish(np.zeros((1, 3), np.float32))
    assert evaluator.asked == [["", ""], [ones, ones], [ones, ones], [zeros, zeros]]
    assert metrics["frames"] == 3
    assert metrics["seconds"] > 0


@pytest.mark.parametrize("missing", ["keras", "tensorflow"])
@pytest.mark.parametrize(
    "words",
    [("--algorithm", "ppo", "--set", "learner.arithmetic=tensorflow"), ("--set", "policy.inference=tensorflow")],
)
def test_a_run_that_needs_tensorflow_makes_nothing_where_that_is_missing(
    small: Path, monkeypatch: pytest.MonkeyPatch, missing: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    summary = summary_of(small, "small.toml", *words, code=2)
    assert f"needs TensorFlow and Keras, and {missing} is not installed" in summary["error"]
    assert summary["run_dir"] is None
    assert [path.name for path in small.iterdir()] == ["small.toml"]


@pytest.mark.long
def test_a_run_that_learns_in_tensorflow_makes_nothing_where_that_is_broken(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (small / "broken" / "tensorflow").mkdir(parents=True)
    (small / "broken" / "tensorflow" / "__init__.py").write_text("raise ImportError('no libcudnn')")
    monkeypatch.setenv("PYTHONPATH", f"{small / 'broken'}:{ROOT}")
    line = [sys.executable, "-m", "evo.run", "small.toml", "--algorithm", "ppo", "--run-dir", "run"]
    words = [*line, "--set", "learner.arithmetic=tensorflow"]
    ended = subprocess.run(words, cwd=small, capture_output=True, text=True)
    assert (ended.returncode, "cannot be imported: no libcudnn" in ended.stderr) == (2, True)
    assert not (small / "run").exists()


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), lambda path: path.unlink()])
def test_a_champion_of_a_finished_run_that_is_damaged_is_written_again(
    small: Path, damage: Callable[[Path], Any]
) -> None:
    before = summary_of(small, "small.toml", "--run-dir", "run")
    champion = small / "run" / "champion.h5"
    whole = champion.read_bytes()
    damage(champion)
    assert summary_of(small, "--resume", "run")["champion"] == before["champion"]
    assert champion.read_bytes() == whole


def test_notices_that_differ_in_numbers_are_counted_and_not_repeated(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_or_begin(Experiment.load(small / "small.toml"), small / "run") as store:
        quarantine = Quarantine(store)
        for reward in range(233):
            notices = [f"step gave the reward {reward}e9", *(["other"] if reward == 7 else [])]
            quarantine.admit(Played([], notices=notices), [])
    shown = capsys.readouterr().err.splitlines()
    assert shown == [
        "note: step gave the reward 0e9",
        "note: other",
        "note: step gave the reward 9e9 (10 of this kind)",
        "note: step gave the reward 99e9 (100 of this kind)",
    ]


@pytest.mark.long
def test_of_a_run_whose_directory_was_removed_nothing_is_said_to_be_saved(small: Path) -> None:
    words = ("small.toml", "--run-dir", "run", "--generations", 100_000)
    with command(small, *words) as process:
        after(process, 2)
        process.send_signal(signal.SIGSTOP)
        shutil.rmtree(small / "run")
        process.send_signal(signal.SIGCONT)
        _, error = process.communicate(timeout=120)
    assert process.returncode == 5
    assert "run" in (said := error.splitlines()[-1])
    assert "saved" not in said
