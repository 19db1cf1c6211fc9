"""Pages of games of several players: their rules are the game's, and their matches have the bits of the kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.games.primitives import Random, clock_of
from evo.records import GOES_ON
from tests.helpers.calling import ROOT, called, small_with
from tests.helpers.sampling import sampled
from tests.pages.pages import bits_of, core_for, core_of, data_of, environment_named, hexed, in_node, needs_node

GAMES: dict[str, dict[str, Any]] = {
    "connect_four": {},
    "duel": {"fruit_reward": 0.25, "ticks": 60},
    "centred": {"centred": True, "size": 7, "crash": -0.5},
}


@needs_node
@pytest.mark.parametrize("name", sampled(GAMES))
def test_a_page_has_the_rules_of_the_game(name: str, tmp_path: Path) -> None:
    """Random moves among those of a baseline: every observation, mask, end and return."""
    environment = environment_named("duel" if name == "centred" else name, **GAMES[name])
    baselines = environment.definition.baselines_of(environment.options)
    game, random, luck = environment.plain(), np.random.default_rng(3), clock_of(1)
    items, expected = [], []
    for seed in random.integers(0, 1 << 64, 40, np.uint64):
        luck.seed[0], luck.drawn[0], status = seed, 0, GOES_ON
        game.begin(0, int(seed))
        moves, seen, allowed = [], [], []
        while status == GOES_ON:
            seen.append(game.observe(0).copy())
            allowed.append(game.mask(0).tolist())
            player, move = int(game.state.seats_turn[0]), next(iter(baselines.values()))
            action = int(move(game.state, game.rules, 0, player, Random(luck, 0)))
            if random.random() < 0.2:
                action = int(random.choice(np.flatnonzero(game.mask(0))))
            moves.append(action)
            _, status = game.step(0, action)
        items.append([hexed(np.array([seed]))[0], moves])
        expected.append((np.array(seen), allowed, game.state.seats_returns[0].tolist()))
    job = {"kind": "matches", "options": environment.options.numbers, "inputs": expected[0][0][0].size, "items": items}
    (answers,) = in_node(tmp_path, job, core=core_for(environment.options.id, **GAMES[name]))
    for (seen, allowed, returns), answer in zip(expected, answers, strict=True):
        np.testing.assert_array_equal(
            seen.reshape(len(seen), -1).view(np.uint32), bits_of(answer["seen"], seen[0].size)
        )
        assert (answer["allowed"], answer["over"], answer["returns"]) == (allowed, True, returns)
    assert len({tuple(moves) for _, moves in items}) > 25
    assert max(len(moves) for _, moves in items) > 20
    assert {np.sign(returns[0]) for *_, returns in expected} >= {-1, 1}


@needs_node
@pytest.mark.parametrize("game", sampled(["connect_four", "duel"]))
def test_the_gallery_plays_the_recorded_matches(game: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "gallery" / f"{game}.html").read_text()
    data = data_of(page)
    count = len(data["moves"])
    job = {"kind": "test", "champion": data, "items": [data["first"] + k for k in range(count)]}
    (answers,) = in_node(tmp_path, job, core=core_for(game))
    for name, key in (("scores", "score"), ("steps", "steps"), ("checksums", "checksum")):
        assert data["recorded"][name] == [each[key] for each in answers]
    assert [len(moves) for moves in data["moves"]] == data["recorded"]["steps"]
    assert count == 200


SHORT = small_with(
    run="generations = 1", environment='id = "connect_four"\nopponents = { players = ["one_ply"] }',
    ga="population = 8\nparents = 2\nepisodes = 2",
)  # fmt: skip


@needs_node
@pytest.mark.long
def test_a_page_is_written_with_the_moves_and_the_bits_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(SHORT)
    called(tmp_path, "short.toml", "--run-dir", "run", "--no-report")
    out, _ = called(tmp_path, "export", "run", "--to", "html", "--episodes", 20, program="evo")
    assert "with 20 games to verify" in out
    page = (tmp_path / "run.html").read_text()
    data = data_of(page)
    job = {"kind": "test", "champion": data, "items": [data["first"] + k for k in range(20)]}
    (answers,) = in_node(tmp_path, job, core=core_of(page))
    assert [each["checksum"] for each in answers] == data["recorded"]["checksums"]
    assert [each["score"] for each in answers] == data["recorded"]["scores"]
    assert data["opponents"] == ["one_ply"]
    assert not re.search(r"https?:|src=|@import|url\(", page)
