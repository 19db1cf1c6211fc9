"""Every game of ours keeps the contract; and who breaks it is told which function does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from calling import called

from evo.errors import ConfigurationError
from evo.games import catch
from evo.testing import game_tests

GAMES = sorted(path.stem for path in (Path(__file__).parent.parent / "evo" / "games").glob("[!_]*.py"))

QUICK = ("catch", "pendulum")  # the others in the long tests: each is compiled for a quarter of a minute

for name in GAMES:
    found = game_tests(name)
    globals()[f"Test_{name}"] = found if name in QUICK else pytest.mark.long(found)


BROKEN = {
    "observe wrote nan to out[9, 2, 0]": ("state.paddle[b], 0] = 1.0", "state.paddle[b], 0] = float('nan')"),
    "observe wrote inf to out[0, ": ("state.column[b], 0] = 1.0", "state.column[b], 0] = 1e39"),
    "step failed outside of its arrays": ("state.row[b] += 1", "state.row[b + 7] += 1"),
    "step failed outside of its arrays (broken.py:38": ("state.row[b] += 1", "state.row[b, 1] += 1"),
    "begin changed row of another environment": ("state.row[b] = 0", "state.row[0] = 5"),
    "two episodes of seed 1 differ at step 0": (
        "below(random, options.columns)",
        "begin.__dict__.setdefault('n', []).append(0) or len(begin.__dict__['n']) % 5",
    ),
    "step returned 0.0, and must return a reward": ("return 0.0, False", "return 0.0"),
    "step gave the reward nan": ("return 0.0, False", "return float('nan'), False"),
    "step returned 3 as its end": ("return 0.0, False", "return 0.0, 3"),
    "arrays made row of type float32": ("row=np.int16(0)", "row=np.float32(0)"),
    "episode_metrics and metrics go together": ("    actions=3,", "    actions=3, episode_metrics=('score',),"),
    "mask wrote [0, 0, 0]": ("    actions=3,", "    actions=3, mask=lambda state, options, b, out: out.fill(0),"),
}


@pytest.mark.parametrize("told", BROKEN)
def test_who_breaks_the_contract_is_told_how(told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(catch.__file__).read_text()
    assert BROKEN[told][0] in source
    (tmp_path / "broken.py").write_text(source.replace(*BROKEN[told], 1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    environment = game_tests("broken").environment
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        environment.check()


def test_a_game_that_cannot_be_compiled_is_told_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(catch.__file__).read_text().replace("state.row[b] += 1", "state.row[b] += {0: 1, 1: 1}[1]")
    (tmp_path / "uncompiled.py").write_text(source)
    (tmp_path / "uncompiled.toml").write_text('[environment]\nid = "uncompiled"\n[policy]\nkind = "mlp"\n')
    words = ("uncompiled.toml", "--plugin", "uncompiled", "--backend", "serial")
    told = called(tmp_path, *words, code=2)[1].splitlines()[-1]
    assert "uncompiled.py:38: Numba cannot compile `state.row[b] += {0: 1, 1: 1}[1]`; functions of a game" in told


def test_games_are_registered_with_gymnasium() -> None:
    env = gymnasium.make("evo/catch-v0", rows=6, render_mode="rgb_array")
    assert env.reset(seed=3)[0].shape == (6, 5, 1)
    assert env.render().shape == (6, 5, 3)
    assert env.metadata["render_modes"] == ["rgb_array"]
    envs = gymnasium.make_vec("evo/catch-v0", 3, autoreset_mode="SameStep", rows=6)
    seen, _ = envs.reset(seed=3)
    np.testing.assert_array_equal(seen[0], env.reset(seed=3)[0])
    for _ in range(5):
        _, rewards, terminated, _, info = envs.step(np.ones(3, np.int64))
    assert terminated.all()
    assert set(rewards) <= {-1.0, 1.0}
    assert info["final_obs"][2].shape == (6, 5, 1)


@pytest.mark.parametrize("copy", [True, False])
def test_arrays_of_a_vector_are_used_again_where_copies_are_not_asked_for(copy: bool) -> None:
    envs = gymnasium.make_vec("evo/catch-v0", 3, copy=copy)
    first, _ = envs.reset(seed=3)
    before = first.copy()
    second = envs.step(np.ones(3, np.int64))[0]
    assert (second is not first) == copy
    assert (first.tobytes() == before.tobytes()) == copy
