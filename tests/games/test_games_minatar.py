"""MinAtar's games equal those of the package minatar step by step, with its random draws, and compiled their own."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import deque
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.games.catalogue import _minatar
from evo.testing.environments import PlainEnv
from tests.helpers.sampling import sampled

GAMES = ("breakout", "freeway", "asterix", "space_invaders")
TRACES = json.loads(gzip.decompress((Path(__file__).parent / "minatar_traces.json.gz").read_bytes()))


class Draws:
    """Stands in for the random numbers of a game: those that MinAtar drew (benchmarks/peers/minatar_traces.py)."""

    def __init__(self, game: Any, patch: pytest.MonkeyPatch) -> None:
        self.left: deque[int] = deque()
        for module in (game, _minatar):
            for name in vars(module).keys() & {"below", "uniform"}:
                patch.setattr(module, name, getattr(self, name))

    def below(self, random: Any, n: int) -> int:
        number = self.left.popleft()
        assert number < n
        return number

    def uniform(self, random: Any, low: float, high: float) -> float:
        return low + (high - low) * (self.below(random, 100) + 0.5) / 100


@pytest.mark.parametrize("name", sampled(GAMES, *range(2)))
def test_every_step_is_that_of_minatar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    game = import_module(f"evo.games.catalogue.{name}")
    draws = Draws(game, monkeypatch)
    for case in TRACES["games"][name]:
        plain = game.make(game.Options(id=name, **case["options"])).plain()
        for episode in case["episodes"]:
            draws.left.extend(episode["begin"])
            plain.begin(0, 0)
            digest, digests = digest_of(plain), episode["digests"]
            last = len(episode["actions"]) - 1
            for i, action in enumerate(episode["actions"]):
                assert not draws.left
                assert f"{digest % 256:02x}" == digests[2 * i : 2 * i + 2], (case["options"], i)
                draws.left.extend(episode["draws"][i])
                reward, status = plain.step(0, int(action))
                assert (reward, status) == (int(episode["rewards"][i]), i == last and episode["ended"])
                digest = digest_of(plain, digest)
            assert not draws.left
            assert f"{digest % 256:02x}" == digests[-2:]


def digest_of(plain: Any, before: int = 0) -> int:
    seen = plain.observe(0)
    assert {0.0, 1.0} == {*np.unique(seen).tolist()}
    return zlib.crc32(np.packbits(seen.astype(np.bool_)), before)


@pytest.mark.long
@pytest.mark.parametrize("name", GAMES)
def test_compiled_equals_plain(name: str) -> None:
    game = import_module(f"evo.games.catalogue.{name}")
    for actions, sticky in (("minimal", 0.1), ("full", 0.0)):
        environment = game.make(game.Options(id=name, actions=actions, sticky=sticky, max_steps=300))
        compiled, plain = environment.env(), PlainEnv(environment.plain())
        random, seen = np.random.default_rng(5), set()
        assert compiled.observation_space == plain.observation_space
        assert compiled.action_space.n == {"minimal": len(game.MINIMAL), "full": 6}[actions]
        for seed in range(8):
            mine, theirs = compiled.reset(seed=seed), plain.reset(seed=seed)
            steps, over = 0, False
            while not over:
                np.testing.assert_array_equal(mine[0], theirs[0])
                assert mine[1:] == theirs[1:]
                action = random.integers(compiled.action_space.n)
                mine, theirs = compiled.step(action), plain.step(action)
                steps, over = steps + 1, mine[2] or mine[3]
            np.testing.assert_array_equal(mine[0], theirs[0])
            assert mine[1:] == theirs[1:]
            seen.add(steps)
        assert len(seen) > 1 or seen == {300}


@pytest.mark.parametrize("name", GAMES)
def test_pictures_have_the_colours_of_minatar(name: str) -> None:
    game = import_module(f"evo.games.catalogue.{name}")
    environment = game.make(game.Options(id=name))
    plain, channels = environment.plain(), environment.shape[2]
    palette = np.array(TRACES["palettes"][str(channels)])
    assert np.abs(_minatar.palette(channels) - palette).max() <= 0.51
    plain.begin(0, 3)
    for _ in range(20):
        if plain.step(0, 1)[1]:
            plain.begin(0, 4)
        seen = plain.observe(0)
        highest = (seen * np.arange(1, channels + 1)).max(axis=2).astype(int)
        np.testing.assert_array_equal(plain.picture(0), _minatar.palette(channels)[highest])
