"""An episode is seen step by step: positions, scores of all actions, and what these depend on."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from evo.cli.terminal.playback import occlusion
from evo.store.champion import encode_champion, read_champion
from tests.helpers.calling import SMALL, called

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("small")
    (where / "small.toml").write_text(SMALL)
    called(where, "small.toml", "--run-dir", "run", "--no-report")
    return where


def test_what_is_hidden_changes_the_scores_by_what_it_contributes() -> None:
    weights = np.random.default_rng(1).normal(size=(6 * 5 * 2, 3)).astype(np.float32)
    seen = np.random.default_rng(2).normal(size=(6, 5, 2)).astype(np.float32)
    change = occlusion(lambda x: x.reshape(len(x), -1) @ weights, seen)
    each = seen.reshape(30, 2, 1) * weights.reshape(30, 2, 3)
    np.testing.assert_allclose(change, np.abs(each.sum(axis=1)).sum(axis=1).reshape(6, 5), rtol=1e-4, atol=1e-5)
    line = occlusion(lambda x: x @ weights[:4], seen.ravel()[:4])
    pixel = occlusion(lambda x: x.reshape(len(x), -1) @ weights[:4], seen.ravel()[:4].reshape(1, 1, 4))
    assert np.array_equal(pixel, line)
    np.testing.assert_allclose(line[0], np.abs(seen.ravel()[:4, None] * weights[:4]).sum(axis=1), rtol=1e-4)


def test_outputs_that_lie_as_far_apart_as_floats_are_shown(small: Path) -> None:
    far = np.array([[3e38, -3e38]], np.float32)
    changes = occlusion(lambda x: far * np.sign(x - 0.5), np.ones(1, np.float32))
    assert 1e39 < changes[0, 0] < np.inf
    champion = read_champion(small / "run")
    champion.weights[-3:] = -3e38, 3e38, 0.0  # the biases of the outputs
    (small / "far.h5").write_bytes(encode_champion(*champion)[0])
    out, _ = called(small, "replay", "far.h5", "--step", "0", "--episode", "0", program="evo")
    assert [line.count("▇") for line in out.splitlines() if re.search(r"\d{39}", line)] == [0, 10]


def test_large_pictures_are_hidden_in_squares_that_cover_all_of_them() -> None:
    seen = np.ones((50, 30, 1), np.float32)
    change = occlusion(lambda x: x.sum(axis=(1, 2, 3))[:, None], seen)
    assert change.shape == (17, 10)
    assert change.sum() == 50 * 30


def test_a_step_shows_the_position_the_scores_and_what_they_depend_on(small: Path) -> None:
    facts = called(small, "replay", "run", "--episode", 3, "--json", program="evo")[0]
    actions = [int(action) for action in re.search(r'"actions": ?\[([0-9, ]+)\]', facts)[1].split(",")]
    for step in (0, len(actions) - 1):
        out = called(small, "replay", "run", "--episode", 3, "--step", step, program="evo")[0]
        scores = {name: float(score) for name, score in re.findall(r"^ (left|straight|right) +(-?[0-9.]+)", out, re.M)}
        (played,) = re.findall(r"^ (left|straight|right) .* played", out, re.M)
        assert played == ["left", "straight", "right"][actions[step]]
        assert scores[played] == max(scores.values())
        assert f" step {step} of {len(actions)}" in out
        assert "what the outputs depend on" in out
        assert "█" in out  # of a map, the strongest
    last = called(small, "replay", "run", "--episode", 3, "--step", len(actions), program="evo")[0]
    assert "over" in last
    assert f"the end, after {len(actions)} steps" in last
    err = called(small, "replay", "run", "--episode", 3, "--step", len(actions) + 1, program="evo", code=2)[1]
    assert f"--step: must be 0 to {len(actions)}, the steps of test episode 3" in err


@pytest.mark.long
def test_a_candidate_of_any_generation_is_shown_and_has_the_return_that_it_had(small: Path) -> None:
    words = ("replay", "run", "--generation", 2, "--candidate", 7)
    whole = called(small, *words, program="evo")[0]
    assert "the process that played it did not crash" in whole
    scores = []
    for episode in range(4):
        out = called(small, *words, "--episode", episode, "--gif", "film.gif", program="evo")[0]
        assert (small / "film.gif").read_bytes()[:6] in (b"GIF87a", b"GIF89a")
        scores.append(int(re.search(rf"generation 2, episode {episode}: score (\d+)", out)[1]))
    assert "step 1 of" in called(small, *words, "--step", 1, program="evo")[0]
    assert (
        "must be 0 to 3, the episodes of that generation"
        in called(small, *words, "--episode", 4, program="evo", code=2)[1]
    )
    facts = json.loads(called(small, *words, "--episode", 2, "--json", program="evo")[0].splitlines()[-1])
    assert (facts["episode"], facts["score"]) == (2, scores[2])
    mean = float(re.search(r"mean return (-?[0-9.]+)", whole)[1])
    assert sum(scores) / 4 - 1 <= mean <= sum(scores) / 4 + 3  # deaths cost 1, full boards bring 10


@pytest.mark.long
def test_a_candidate_is_shown_in_the_environment_that_it_was_trained_in(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    sets = ("--set", "environment.training={starvation=2}", "--generations", 2)
    called(tmp_path, "small.toml", "--run-dir", "run", "--no-report", *sets)
    for candidate in (1, 7):
        words = ("replay", "run", "--generation", 1, "--candidate", candidate, "--episode", 1)
        assert "score" in called(tmp_path, *words, "--json", program="evo")[0].splitlines()[-2]
    err = called(tmp_path, "replay", "run", "--step", 1, "--gif", "film.gif", program="evo", code=2)[1]
    assert "not allowed with" in err


@pytest.mark.long
def test_keys_go_forwards_and_back_and_leave(small: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    line = [sys.executable, "-m", "evo", "replay", "run", "--episode", "0", "--step"]
    process = subprocess.Popen(line, cwd=small, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    text, began = "", time.monotonic()
    keys = iter([(" step 0 of", b"\x1b[C"), (" step 1 of", b"\x1b[C"), (" step 2 of", b"\x1b[D"), (" step 1 of", b"q")])
    waiting, key = next(keys)
    while time.monotonic() - began < 120 and process.poll() is None:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                text += ESCAPES.sub("", os.read(ours, 65536).decode())
            except OSError:
                break
            if waiting in text:
                os.write(ours, key)
                text = ""
                waiting, key = next(keys, ("nothing", b""))
    assert process.wait(30) == 0
    assert waiting == "nothing"
    os.close(ours)
