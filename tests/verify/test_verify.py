"""Verifying: a run that is what it says is found so, and whatever is changed in one is found and named."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.files.arrays import first_hash
from evo.files.durable import checksummed
from evo.plugins import registry
from evo.store.champion import read_champion
from evo.store.manifest import header
from evo.store.run import Run
from evo.training.validation import Validated
from tests.helpers.calling import ROOT, SMALL, after, called, command, summary_of
from tests.run.test_resume import NAMES, tensorflow, written  # noqa: F401
from tests.verify.forging import forge_champion, forge_record, forge_state, manifest_of, write_lines
from tests.workers import test_worker_faults as worker_faults
from tests.workers.test_worker_faults import only_once, walk, walks  # noqa: F401

KEYS = ["ok", "generations", "state_hash", "replayed", "not_replayable"]
GENERATIONS, POPULATION = 5, 20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that stopped after every generation, so that every file is durable by itself; and its state hash."""
    place = tmp_path_factory.mktemp("made")
    (place / "small.toml").write_text(SMALL)
    words: tuple[object, ...] = ("small.toml", "--run-dir", "run", "--set", "workers.candidates_per_task=5")
    for total in range(1, GENERATIONS + 1):
        summary = summary_of(place, *words, "--generations", total)
        words = ("--resume", "run")
    return place / "run", summary["state_hash"]


@pytest.fixture
def run(made: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "run"))


def verified(run: Path, *words: object, code: int = 0) -> tuple[dict[str, Any], str]:
    """Verify a run, and return the last line's object and all that was printed."""
    out, err = called(run.parent, "verify", run, *words, "--json", code=code, program="evo")
    assert "Traceback" not in err
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert list(found) == KEYS
    assert found["ok"] == (code == 0)
    return found, out


def refused(run: Path, *words: object) -> str:
    """Verify a run that is not what it says; return what was said about that."""
    _, out = verified(run, *words, code=3)
    return "\n".join(line for line in out.splitlines() if line.startswith("DIFFERS"))


def kept(run: Path) -> list[int]:
    return sorted(int(path.stem[4:]) for path in (run / "population").iterdir())


def replayable(run: Path) -> list[int]:
    """The generations whose state before is kept."""
    return [0, *(generation + 1 for generation in kept(run) if generation < GENERATIONS - 1)]


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def snapshot(directory: Path) -> dict[Path, tuple[int, bytes]]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_run_is_what_it_says_and_nothing_in_it_is_touched(run: Path, made: tuple[Path, str]) -> None:
    before = snapshot(run)
    found, out = verified(run)
    assert (found["generations"], found["state_hash"]) == (GENERATIONS, made[1])
    assert found["replayed"] >= 64
    assert found["not_replayable"] == POPULATION * (GENERATIONS - len(replayable(run)))
    for said in ("recomputed over 5 generations", "1 older checkpoints are not kept", "its test score on 20 episodes"):
        assert said in out
    assert "rebuilt from its parent and its noise" in out or "no checkpoint before them is kept" in out
    assert snapshot(run) == before


def test_one_generation_is_not_called_generations(small: Path) -> None:
    summary_of(small, "small.toml", "--run-dir", "run", "--generations", 1)
    out = verified(small / "run", "--all")[1]
    assert "agrees: 1 generation, state hash" in out
    assert "recomputed over 1 generation\n" in out
    assert "every hashed array of 1 whole generation\n" in out


def test_everything_is_every_candidate_of_every_generation(run: Path) -> None:
    found, out = verified(run, "--all")
    assert (found["replayed"], found["not_replayable"]) == (GENERATIONS * POPULATION, 0)
    assert f"every hashed array of {GENERATIONS} whole generations" in out
    assert "finds the same weights" in out


@pytest.mark.long
def test_a_replay_of_everything_goes_on_where_no_state_is_kept(run: Path) -> None:
    for generation in kept(run)[:-3]:
        (run / "population" / f"gen-{generation:06}.h5").unlink()
    found, _ = verified(run, "--all")
    assert found["replayed"] == GENERATIONS * POPULATION
    assert verified(run)[0]["not_replayable"] > 0


@pytest.mark.long
def test_a_sample_is_as_large_as_asked_for_in_whole_tasks_and_always_the_same(run: Path) -> None:
    (run / "champion.h5").unlink()  # which would be in the sample, beside what is asked for
    assert verified(run, "--sample", 0)[0]["replayed"] == 0
    assert verified(run, "--sample", 1)[0]["replayed"] == 5
    numbers = [verified(run, "--sample", 12)[0]["replayed"] for _ in range(2)]
    assert 12 <= numbers[0] == numbers[1] <= 12 * 5
    assert verified(run, "--sample", 10_000)[0]["replayed"] == POPULATION * len(replayable(run))


@pytest.mark.parametrize(
    ("file", "place", "said"),
    [
        ("records/gen-000002-000002.h5", 2000, "records/gen-000002-000002.h5: corrupt"),
        ("population/gen-000003.h5", 2000, "population/gen-000003.h5: corrupt"),
        ("population/gen-000000.h5", -1, "population/gen-000000.h5: corrupt"),
        ("champion.h5", -1, "champion.h5: "),
        ("champion.h5", 90, "champion.h5: "),
        ("champion.json", 300, "champion.json"),
    ],
)
def test_one_bit_of_a_file_is_found(run: Path, file: str, place: int, said: str) -> None:
    flip(run / file, place)
    assert said in refused(run, "--sample", 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda line: line.replace(b'"mean": ', b'"mean": 1'), "line 3: its checksum is wrong"),
        (lambda line: checksummed(re.sub(rb'"frames": \d+', b'"frames": 1', line[: line.rindex(b',"crc"')] + b"}"))
         + b"\n",
         "has other frames than in the manifest"),
    ],
)  # fmt: skip
def test_a_changed_line_of_the_metrics_is_found_by_verify_and_by_the_doctor(
    run: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    assert "every line has its checksum" in verified(run, "--sample", 0)[1]
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join([*lines[:2], change(lines[2]), *lines[3:]]))
    assert said in refused(run, "--sample", 0)
    found = json.loads(called(run.parent, "doctor", "run", "--json", program="evo")[0].splitlines()[-1])
    (damaged,) = [one["evidence"] for one in found["findings"] if one["name"] == "damaged_files"]
    assert damaged.startswith("metrics.jsonl: ")
    assert said in damaged


@pytest.mark.parametrize(("name", "generation"), [("best", 0), ("mean", 3), ("validation", 0)])
def test_a_metric_that_was_not_played_is_found_by_playing_everything(run: Path, name: str, generation: int) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    changed = next(line for line in map(json.loads, lines[::-1]) if line["generation"] == generation)
    del changed["crc"]
    changed[name] += 30.0
    lines.append(checksummed(json.dumps(changed).encode()) + b"\n")  # the last line of a generation counts
    (run / "metrics.jsonl").write_bytes(b"".join(lines))
    assert f"generation {generation}: {name} {changed[name]} in metrics.jsonl" in refused(run, "--all")


@pytest.mark.long
def test_missing_lines_of_the_metrics_are_named_by_verify_and_by_the_doctor(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    removed = [b'"generation": 2,', b'"generation": 3,']
    (run / "metrics.jsonl").write_bytes(b"".join(line for line in lines if not any(map(line.count, removed))))
    said = "metrics.jsonl: 2 of 5 generations lack a readable line, from 2 on"
    assert said in verified(run, "--sample", 0)[1]  # the disk may have been full
    assert f"   {said}.\n" in called(run.parent, "doctor", "run", program="evo")[0]


def test_a_run_of_another_version_is_no_run_that_lies(run: Path) -> None:
    path = run / "config.resolved.toml"
    path.write_text(path.read_text().replace("\n[workers]\n", "\n[workers]\nof_before = 1\n", 1))
    found, out = verified(run, code=3)
    assert re.search("^DIFFERS .*another version of snake-evo began this run", out, re.MULTILINE)
    assert out.splitlines()[-2].startswith("nothing can be replayed here, for what DIFFERS; the rest agrees: ")
    assert "is not what it says" not in out
    assert (found["replayed"], found["not_replayable"]) == (0, GENERATIONS * POPULATION)


@pytest.mark.parametrize(("section", "key", "value"), [("", "noise", 99), ("validation", "finalists", None)])
def test_a_run_with_what_only_another_version_sets_is_no_run_that_lies(
    run: Path, section: str, key: str, value: object
) -> None:
    manifest = manifest_of(run)
    identity: dict[str, Any] = json.loads(json.dumps(manifest.identity))
    part = identity[section] if section else identity
    part.pop(key) if value is None else part.update({key: value})
    lines = list(manifest.lines)
    (run / "manifest.jsonl").write_bytes(header(identity))  # with the hashes that such a run has
    write_lines(run, lines)
    made = {**read_champion(run).about["provenance"], "configuration": first_hash(identity)}
    forge_champion(run, {"provenance": made})
    _, out = verified(run, code=3)
    assert re.search("^DIFFERS .*another version of snake-evo began this run", out, re.MULTILINE)
    assert out.splitlines()[-2].startswith("nothing can be replayed here, for what DIFFERS; the rest agrees: ")
    assert "is not what it says" not in out


@pytest.mark.parametrize("number", [0, 1, GENERATIONS])
def test_one_bit_of_a_line_of_the_manifest_is_found(run: Path, number: int) -> None:
    texts = (run / "manifest.jsonl").read_bytes().splitlines(keepends=True)
    flip(run / "manifest.jsonl", sum(map(len, texts[:number])) + 50)
    found, out = verified(run, "--sample", 0, code=3)
    assert found["generations"] == max(number - 1, 0)
    assert f"line {number + 1}" in out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state_hash": "ab" * 32}, "state hash does not follow"),
        ({"generation": 7}, "it is generation 7 where 2 should be"),
        ({"frames": 1}, "generation 2: 1 frames and "),
        ({"files": {}}, "generation 2 names no record file"),
    ],
)
def test_a_line_with_a_checksum_of_its_own_is_found(run: Path, change: dict[str, Any], said: str) -> None:
    lines = list(manifest_of(run).lines)
    lines[2] = dataclasses.replace(lines[2], **change)
    write_lines(run, lines, chained=False)
    assert said in refused(run, "--all")


def test_a_file_of_another_generation_is_found(run: Path) -> None:
    lines = list(manifest_of(run).lines)
    lines[2] = dataclasses.replace(lines[2], files={**lines[3].files, **lines[2].files})
    write_lines(run, lines, chained=False)
    assert "generation 2 names population/gen-000003.h5" in refused(run, "--sample", 0)


@pytest.mark.parametrize("file", ["records/gen-000001-000001.h5", "population/gen-000004.h5"])
def test_a_file_that_is_missing_and_that_retention_keeps_is_found(run: Path, file: str) -> None:
    (run / file).unlink()
    assert f"{file}: missing" in refused(run, "--sample", 0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tournament = 4", "tournament = 9", "ga.tournament: 4 in the run, 9 now"),
        ("seed = 1", "seed = 2", "seed: 1 in the run, 2 now"),
        ("dense = [4]", "dense = [5]", "policy.dense: [4] in the run, [5] now"),
        ("tournament = 4", "tournament = ", "config.resolved.toml:"),
    ],
)
def test_another_configuration_is_found_and_nothing_replayed(run: Path, old: str, new: str, said: str) -> None:
    path = run / "config.resolved.toml"
    path.write_text(path.read_text().replace(f"\n{old} ", f"\n{new} ", 1))
    found, out = verified(run, code=3)
    assert said in out
    assert (found["replayed"], found["not_replayable"]) == (0, GENERATIONS * POPULATION)


def test_a_configuration_that_changes_no_result_is_no_disagreement(run: Path) -> None:
    path = run / "config.resolved.toml"
    path.write_text(
        path.read_text().replace("\nevery = 2 ", "\nevery = 3 ").replace("\ngenerations = 5", "\ngenerations = 9")
    )
    verified(run)


@pytest.mark.long
def test_a_return_that_everything_else_agrees_with_is_found_by_playing(run: Path) -> None:
    def flatter(record: dict[str, Any]) -> None:
        record["return"][7] += 1000

    forge_record(run, 1, flatter)
    verified(run, "--sample", 0)
    for words in ((), ("--all",)):
        said = refused(run, *words)
        assert "generation 1: record/return: candidate 7 has" in said
        assert said.count("DIFFERS") == 1


@pytest.mark.long
def test_a_forgery_where_no_state_before_is_kept_is_found_by_playing_everything(run: Path) -> None:
    generation = next(g for g in range(GENERATIONS) if g not in replayable(run))

    def flatter(record: dict[str, Any]) -> None:
        record["return"][7] += 1000

    forge_record(run, generation, flatter)
    verified(run)
    assert f"generation {generation}: record/return: candidate 7" in refused(run, "--all")


@pytest.mark.long
def test_parents_that_are_not_those_of_the_record_are_found_by_playing_everything(run: Path) -> None:
    def stronger(state: dict[str, Any]) -> None:
        state["weights"][1] += 0.5

    forge_state(run, GENERATIONS - 1, stronger)
    verified(run, "--sample", 0)
    assert f"generation {GENERATIONS - 1}: state/weights differs in 1 of 4 rows" in refused(run, "--all")


def test_children_of_parents_that_never_were_are_found(run: Path) -> None:
    def stronger(state: dict[str, Any]) -> None:
        state["weights"] += 0.5

    forge_state(run, 0, stronger)
    assert "generation 1: record/return" in refused(run)


@pytest.mark.long
def test_a_state_that_does_not_fit_its_algorithm_is_told_without_a_traceback(run: Path) -> None:
    def nonsense(state: dict[str, Any]) -> None:
        state["weights"] = np.zeros((2, 3), np.float32)
        del state["ages"]

    forge_state(run, GENERATIONS - 1, nonsense)
    forge_state(run, 0, nonsense)
    for words in ((), ("--all",)):
        assert "state" in refused(run, *words)


def other_weights(run: Path) -> np.ndarray:
    return read_champion(run).weights + np.float32(1)


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (lambda run: forge_champion(run, {"seed": 9}), "its seed is not the run's"),
        (lambda run: forge_champion(run, {"state_hash": "ab" * 32}), "its state hash is not that of generation 4"),
        (lambda run: forge_champion(run, {"generations": 9}), "states 9 generations, but the run has 5"),
        (lambda run: forge_champion(run, {"generation": "x"}), "does not state its generation"),
        (lambda run: forge_champion(run, {"candidate": 99}), "has no candidate 99"),
        (lambda run: forge_champion(run, {"lineage": {}}), "its lineage is not that of candidate"),
        (lambda run: forge_champion(run, {"fitness": 99.0}), "is not the champion in the checkpoint of generation 4"),
        (
            lambda run: forge_champion(run, {}, other_weights(run)),
            "is not the champion in the checkpoint of generation",
        ),
    ],
)
def test_a_champion_that_is_not_the_run_s_is_found(run: Path, forge: Callable[[Path], None], said: str) -> None:
    forge(run)
    assert said in refused(run, "--sample", 0)


@pytest.mark.long
def test_a_champion_that_was_put_into_every_state_is_found_by_making_it_again(run: Path) -> None:
    """Its generation is one that can be played again, or `--all` plays what leads there."""
    weights = other_weights(run)
    born = read_champion(run).about["generation"]

    def claim(state: dict[str, Any]) -> None:
        state["champion"][0] = weights

    for generation in kept(run):
        if generation >= born:
            forge_state(run, generation, claim)
    forge_champion(run, {"test": None}, weights)
    verified(run, "--sample", 0)
    assert f"generation {born}: the replay finds another champion" in refused(run, "--all")


def test_a_test_score_that_was_not_played_is_found(run: Path) -> None:
    score = read_champion(run).about["test"]
    forge_champion(run, {"test": {**score, "mean": score["mean"] + 1}})
    assert "test score differs: mean" in refused(run, "--sample", 0)


@pytest.mark.long
def test_a_copy_that_says_something_else_is_found_and_one_of_an_earlier_state_is_what_a_kill_leaves(run: Path) -> None:
    path = run / "champion.json"
    copy = json.loads(path.read_text())
    copy["about"]["fitness"] = 99.0
    path.write_text(json.dumps(copy))
    assert "champion.json differs" in refused(run, "--sample", 0)
    copy["about"]["state_hash"] = manifest_of(run).lines[0].state_hash
    path.write_text(json.dumps(copy))
    assert "of another state than champion.h5" in verified(run, "--sample", 0)[1]


def test_what_a_kill_leaves_is_no_disagreement(run: Path) -> None:
    texts = (run / "manifest.jsonl").read_bytes().splitlines(keepends=True)
    for name in ("champion.h5", "champion.json"):
        (run / name).unlink()  # it is written after the line that it speaks of
    (run / "manifest.jsonl").write_bytes(b"".join(texts) + texts[-1][:40])
    found, out = verified(run, "--sample", 0)
    assert found["generations"] == GENERATIONS
    assert "an append is in progress, or was interrupted" in out
    assert "there is no champion yet" in out
    (run / "manifest.jsonl").write_bytes(texts[0])
    nothing = {"ok": True, "generations": 0, "state_hash": manifest_of(run).first_hash}
    assert verified(run)[0] == {**nothing, "replayed": 0, "not_replayable": 0}


@pytest.mark.long
def test_a_run_that_was_moved_or_copied_or_taken_over_is_verified(run: Path) -> None:
    (run.parent / "far").mkdir()
    moved = run.parent / "far" / "moved"
    os.rename(run, moved)
    verified(moved)
    summary_of(run.parent, "--resume", "far/moved", "--fork", "other", "--set", "ga.sigma=0.3", "--generations", 3)
    found, out = verified(run.parent / "runs" / "other", "--all")
    assert (found["generations"], found["replayed"], found["not_replayable"]) == (3, 2 * POPULATION, 1)
    assert "the state of another run" in out


@pytest.mark.long
@pytest.mark.skipif(shutil.which("unshare") is None or os.getuid() != 0, reason="mounting needs root")
def test_a_directory_that_cannot_be_written_is_verified(run: Path) -> None:
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && ! touch "$0/x" && exec "$@"'
    line = ["unshare", "-m", "sh", "-c", script, str(run), sys.executable, "-m", "evo", "verify", str(run), "--json"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if "permission denied" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["ok"]


@pytest.mark.long
def test_a_run_whose_master_is_at_work_is_verified(small: Path) -> None:
    with command(small, "small.toml", "--run-dir", "run", "--generations", 10_000) as process:
        after(process, 4)
        counts = []
        for _ in range(3):
            found, _ = verified(small / "run", "--sample", 20)
            counts.append(found["generations"])
            after(process, found["generations"] + 5)
        assert process.poll() is None
    assert counts == sorted(counts)


@pytest.mark.long
@pytest.mark.usefixtures("tensorflow")
def test_another_numeric_fingerprint_is_not_compared(small: Path) -> None:
    words = ("--set", "policy.inference=tensorflow", "--set", "workers.kind=cpu", "--backend", "serial")
    summary_of(small, "small.toml", "--run-dir", "run", "--generations", 1, *words)
    (small / "run" / "fingerprint").write_text("tensorflow of another machine")
    found, out = verified(small / "run")
    assert (found["replayed"], found["not_replayable"]) == (0, POPULATION)
    assert "not replayable here: another numeric fingerprint" in out


@pytest.mark.parametrize("name", ["fingerprint", "fingerprint.learning"])
def test_a_fingerprint_of_exact_arithmetic_is_found_and_spares_no_replay(run: Path, name: str) -> None:
    (run / name).write_text("environment-not-deterministic")
    forge_record(run, 0, lambda record: record["return"].fill(1000))
    said = refused(run, "--all")
    assert f"{name}: has a fingerprint, and the run's arithmetic is exact everywhere" in said
    assert "generation 0: record/return" in said


@pytest.mark.parametrize("words", [(), ("--all",)])
def test_every_algorithm_that_replays_is_closed(
    run: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    made, is_open = [], []
    begin, close = Validated.__init__, Validated.close

    def begun(self: Validated, *of: Any, **how: Any) -> None:
        begin(self, *of, **how)
        made.append(self)
        is_open.append(self)

    def closed(self: Validated) -> None:
        close(self)
        is_open.remove(self)

    monkeypatch.setattr(Validated, "__init__", begun)
    monkeypatch.setattr(Validated, "close", closed)
    assert verified(run, *words)[0]["replayed"]
    assert len(made) > 1
    assert not is_open


@pytest.mark.long
def test_an_algorithm_without_candidates_is_replayed_by_whole_generations(small: Path) -> None:
    plugin = ("--plugin", "tests.plugins.climber")
    summary_of(small, "small.toml", *plugin, "--algorithm", "climber", "--run-dir", "run")
    assert verified(small / "run", *plugin)[0]["replayed"] == 2
    assert verified(small / "run", *plugin, "--all")[0]["replayed"] == 4

    def flatter(record: dict[str, Any]) -> None:
        record["mean"] += 1

    forge_record(small / "run", 0, flatter)
    refused(small / "run", *plugin)


@pytest.mark.long
def test_what_was_poisoned_is_verified_without_playing_it(walk: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    _, name = only_once(walks(walk, monkeypatch)[1], slice(worker_faults.POPULATION * worker_faults.EPISODES))
    monkeypatch.setenv("DEADLY", name)
    worker_faults.run(walk, "run", "--set", "workers.on_poison=worst")
    plays = walk / "plays"
    monkeypatch.setenv("WALKS", str(plays))
    for words in ((), ("--all",)):
        found, _ = verified(walk / "run", *words, *worker_faults.PLUGIN)
        assert found["replayed"] > 0
    assert name not in plays.read_text().split()


@pytest.mark.long
def test_a_run_that_started_from_a_champion_is_verified_when_that_is_gone(run: Path) -> None:
    (run.parent / "small.toml").write_text(SMALL)
    summary_of(run.parent, "small.toml", "--set", "run.init_from=run", "--run-dir", "second", "--generations", 2)
    shutil.rmtree(run)
    assert verified(run.parent / "second", "--all")[0]["replayed"] == 2 * POPULATION
    second = run.parent / "second"
    for change, now in ((lambda copy: flip(copy, 300), r"\w{64}"), (Path.unlink, "missing")):
        change(second / "start.h5")
        told = rf'its copy of the champion that it started from: init_from: "\w{{64}}" in the run, "{now}" now'
        assert re.search(rf"DIFFERS .*second: {told}\nnothing can be replayed", verified(second, code=3)[1])
        assert re.search(rf"^{told}$", "\n".join(Run(second).notes))
    config = second / "config.resolved.toml"
    config.write_text(re.sub(r'(?m)^init_from = ".*"', 'init_from = ""', config.read_text()))
    assert "its copy" not in refused(second)  # the configuration is another one


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nothing",), 3, "nothing: no such file or directory"),
        (("run", "--sample", "x"), 2, "--sample: must be a whole number"),
        (("run", "--sample", "3", "--all"), 2, "--sample cannot go with --all"),
        (("run", "--everything"), 2, "--everything"),
    ],
)
def test_what_cannot_be_verified_is_told_in_a_line(run: Path, words: tuple[str, ...], code: int, said: str) -> None:
    out, err = called(run.parent, "verify", *words, "--json", code=code, program="evo")
    assert said in err
    assert json.loads(out.splitlines()[-1])["status"] == "failed"


@pytest.mark.parametrize("ours", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_replay_that_differs_may_be_the_fault_of_a_game_that_is_not_ours(
    ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))
    called(tmp_path, "new", "game", "doubtful", program="evo")
    game, plugin = ("catch", ()) if ours else ("doubtful", ("--plugin", "doubtful"))
    (tmp_path / "any.toml").write_text(
        f'[environment]\nid = "{game}"\n[policy]\nkind = "linear"\n[workers]\nbackend = "serial"\n'
    )
    summary_of(tmp_path, "any.toml", *plugin, "--run-dir", "run", "--generations", 2, "--set", "ga.population=96")
    assert "outside its arrays" not in verified(tmp_path / "run", "--all", *plugin)[1]

    def stronger(state: dict[str, Any]) -> None:
        state["weights"] += np.float32(0.5)

    forge_state(tmp_path / "run", 0, stronger)
    *_, last, _ = verified(tmp_path / "run", "--all", *plugin, code=3)[1].splitlines()
    tests = "run its tests, as with python -m pytest test_doubtful.py"
    cause = "" if ours else f", or its game writes outside its arrays ({tests})"
    assert last.startswith(f"this run is not what it says{cause}: 2 generations, state hash ")


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_every_algorithm_is_verified_and_a_forged_one_found(tmp_path: Path, name: str) -> None:
    summary_of(tmp_path, written(tmp_path, name), "--run-dir", "run")
    generations = len(manifest_of(tmp_path / "run").lines)
    assert verified(tmp_path / "run")[0]["replayed"] > 0
    found, out = verified(tmp_path / "run", "--all")
    assert (found["generations"], found["not_replayable"]) == (generations, 0)
    assert f"{generations} whole generations" in out

    forged = []

    def stronger(state: dict[str, Any]) -> None:
        names = ("weights", "mean", "reevaluated")  # of a strategy's distribution; of an archive that is empty as yet
        forged.append(next(name for name in names if name in state and state[name].size))
        state[forged[0]] += np.float32(0.5)

    forge_state(tmp_path / "run", 0, stronger)
    assert f"generation 0: state/{forged[0]}" in refused(tmp_path / "run", "--all")
