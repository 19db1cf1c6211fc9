"""Every game of ours keeps the contract; and who breaks it is told which function does."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
import pytest

from evo.errors import ConfigurationError
from evo.games import Game, GameOptions
from evo.games.catalogue import catch
from evo.mistakes import mistakes_text
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import WORST, Episodes, Segment, Task, WeightSource
from evo.rollouts.rollout import Rollout
from evo.testing import game_tests
from evo.testing.environments import PlainEnv
from tests.helpers.calling import command, summary_of
from tests.helpers.sampling import sampled

CATALOGUE = Path(__file__).parents[2] / "evo" / "games" / "catalogue"
GAMES = sorted(["snake", *(path.stem for path in CATALOGUE.glob("[!_]*.py"))])

QUICK = ("catch",)  # the others in the long tests: each is compiled for a quarter of a minute

for name in GAMES:
    found = game_tests(name)
    globals()[f"Test_{name}"] = found if name in QUICK else pytest.mark.long(found)


BROKEN = {
    "observe wrote nan to out[9, 2, 0]": ("state.paddle[b], 0] = 1.0", "state.paddle[b], 0] = float('nan')"),
    "observe wrote inf to out[0, ": ("state.column[b], 0] = 1.0", "state.column[b], 0] = 1e39"),
    "step failed outside of its arrays": ("state.row[b] += 1", "state.row[b + 7] += 1"),
    "step failed outside of its arrays (broken.py:38": ("state.row[b] += 1", "state.row[b, 1] += 1"),
    "): RecursionError: maximum recursion": (
        "state.row[b] += 1",
        "return step(state, options, b, action, random)",
    ),
    "begin changed row of another environment": ("state.row[b] = 0", "state.row[0] = 5"),
    "two episodes of seed 1 differ in what begin writes": (
        "below(random, options.columns)",
        "begin.__dict__.setdefault('n', []).append(0) or len(begin.__dict__['n']) % 5",
    ),
    "step takes (state, options, b, random, action), and must take (state, options, b, action, random)": (
        "def step(state, options, b, action, random)",
        "def step(state, options, b, random, action)",
    ),
    "render takes (state), and must take (state, options, b)": (
        "def render(state, options, b)",
        "def render(state)",
    ),
    "observe takes (state, b, out), and must take (state, options, b, out)": (
        "def observe(state, options, b, out)",
        "def observe(state, b, out)",
    ),
    "action_names has 3 names for 4 values": ("    actions=3,", "    actions=4,"),
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


LATE = """
from typing import NamedTuple
import numpy as np
from numpy.typing import NDArray
from evo.games import Game, GameOptions

class Options(GameOptions):
    end: int = 300

class State(NamedTuple):
    step: NDArray[np.int32]
    marks: NDArray[np.int8]

def begin(state, options, b, random):
    state.step[b] = 0

def step(state, options, b, action, random):
    state.step[b] += 1
    mark = state.marks[b, min(state.step[b], 299)]  # there are 250
    return 1.0 + 0.0 * mark, state.step[b] == options.end

def observe(state, options, b, out):
    out[0] = 1.0

make = Game(
    options=Options, arrays=lambda options: State(np.int32(0), np.zeros(250, np.int8)), shape=(1,), actions=2,
    begin=begin, step=step, observe=observe,
)
"""


@pytest.mark.long
@pytest.mark.parametrize("replayed", sampled([False, True]))
def test_a_run_of_a_game_that_reads_outside_of_its_arrays_late_ends_with_its_line(
    tmp_path: Path, replayed: bool
) -> None:
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "late.toml").write_text('[environment]\nid = "late"\n[policy]\nkind = "linear"\n')
    words = ("--plugin", "late", "--generations", 1, "--set", "ga.population=128", "--backend", "serial")
    error = summary_of(tmp_path, "late.toml", *words, "--run-dir", "run", code=2, apart=True)["error"]
    assert "game late: step failed outside of its arrays (late.py:19): IndexError" in error
    if not replayed:
        return
    line = [sys.executable, "-m", "evo", "replay", "run", "--plugin", "late", "--json"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "step failed outside of its arrays (late.py:19)" in done.stderr


def test_rewards_that_all_count_as_zero_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(catch.__file__).read_text()
    (tmp_path / "faint.py").write_text(
        source.replace("1.0 if state.paddle", "1e-4 if state.paddle").replace("else -1.0", "else -1e-4")
    )
    monkeypatch.chdir(tmp_path)
    game_tests("faint").environment.check()
    assert "game faint: rewards up to 0.0001 count as 0" in capsys.readouterr().err


UNCOMPILED = {
    "dictionary": "state.row[b] += {0: 1, 1: 1}[1]",
    "list": "state.row[b] += len([x for x in (1,) if x])",
    "import": "import math; state.row[b] += int(math.sqrt(1))",
    "memory": "state.row[b] += int(state.row.copy()[b] >= 0)",
}


@pytest.mark.long
@pytest.mark.parametrize("kind", UNCOMPILED)
def test_a_game_that_cannot_be_compiled_is_told_by_its_line(kind: str, tmp_path: Path) -> None:
    line = UNCOMPILED[kind]
    source = Path(catch.__file__).read_text().replace("state.row[b] += 1", line)
    (tmp_path / f"uncompiled_{kind}.py").write_text(source)
    words = ("--set", "policy.kind=mlp", "--backend", "serial", "--plugin", f"uncompiled_{kind}")
    (tmp_path / "uncompiled.toml").write_text(f'[environment]\nid = "uncompiled_{kind}"\n')
    with command(tmp_path, "uncompiled.toml", *words) as process:  # a process of its own, as a user's
        told = process.communicate(timeout=300)[1].splitlines()[-1]
    assert process.returncode == 2
    number = 1 + source.splitlines().index(f"    {line}")
    assert f"uncompiled_{kind}.py:{number}: Numba cannot compile `{line}`; functions of a game use numbers" in told


@pytest.mark.long
def test_a_game_that_has_changed_is_not_played_on_and_what_it_scores_is_told_to_be_of_another(tmp_path: Path) -> None:
    source = Path(catch.__file__).read_text()
    (tmp_path / "changing.py").write_text(source)
    (tmp_path / "changing.toml").write_text('[environment]\nid = "changing"\n[policy]\nkind = "mlp"\ndense = [4]\n')
    words = ("--plugin", "changing", "--set", "ga.population=128", "--generations")
    summary_of(tmp_path, "changing.toml", *words, 1, "--run-dir", "run", apart=True)
    changed = source.replace("1.0 if state.paddle", "2.0 if state.paddle").replace("=(-1.0, 1.0)", "=(-1.0, 2.0)")
    (tmp_path / "changing.py").write_text(changed)
    with command(tmp_path, "--resume", "run", *words[:2], "--generations", 2) as process:
        told = process.communicate(timeout=300)[1]
    assert process.returncode == 2
    assert "the code of the game or the function differs from that of the run" in told
    line = [sys.executable, "-m", "evo", "evaluate", "run", *words[:2], "--episodes", "10"]
    done = subprocess.run([*line, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["max"] == 2.0  # compiled anew
    assert (
        "the code of the game or the function differs from that of the run; what is played now is not what"
        in done.stderr
    )


class Count(NamedTuple):
    """Steps that were played, as only `step` writes them."""

    played: Any


def nothing(state: Any, options: Any, b: int, random: Any) -> None:
    pass


def count(state: Any, options: Any, b: int, action: Any, random: Any) -> tuple[float, bool]:
    state.played[b] += 1
    return (1e300 * 1e300 if action[0] > 1.5 else 1.0), state.played[b] == 3


def show(state: Any, options: Any, b: int, out: Any) -> None:
    out[0] = state.played[b]


counting = Game(
    options=GameOptions, arrays=lambda options: Count(0), shape=(1,), actions=1, continuous=True, action_high=2.0,
    begin=nothing, step=count, observe=show,
)  # fmt: skip


@pytest.mark.long
def test_a_state_that_begin_does_not_write_is_zero_in_every_episode() -> None:
    environment = counting(GameOptions(id="counting"))
    for env in (environment.env(), PlainEnv(environment.plain())):
        for seed in range(2):
            assert env.reset(seed=seed)[0].tolist() == [0.0]
            assert [env.step(np.zeros(1))[0].tolist() for _ in range(3)] == [[1.0], [2.0], [3.0]]


@pytest.mark.long
@pytest.mark.parametrize(
    "play",
    [
        pytest.param(Episodes(np.arange(2, dtype=np.uint64)), id="episodes"),
        pytest.param(None, id="segment", marks=pytest.mark.long),
    ],
)
def test_a_candidate_with_a_reward_that_is_not_finite_has_no_finite_result(play: Any) -> None:
    environment = counting(GameOptions(id="counting"))
    rollout = Rollout(Network.build(Policy(kind="linear"), (1,), 1, 1), environment)
    play = play or Segment(environment.game.begin(np.arange(2, dtype=np.uint64)), 7)
    task = Task(WeightSource.of_row(0), play)
    for mean in (1.0, 5.0):  # the bias of the action, which is clipped to 2
        weights = np.array([[0.0, 0.0, mean, 0.0]], np.float32)
        result = rollout.play(task, weights)
        assert result.finite.tolist() == [mean < 2]
        if mean < 2:
            assert set(result.returns.ravel().tolist()) == {3000}
        elif isinstance(play, Episodes):
            assert set(result.returns.ravel().tolist()) == {WORST}


def test_two_games_with_one_state_and_different_bounds_are_refused() -> None:
    assert counting(GameOptions(id="counting")).game.continuous
    other = dataclasses.replace(counting, action_high=3.0)
    with pytest.raises(TypeError, match=r"two games have the state .*Count"):
        _ = other(GameOptions(id="counting")).game


def test_a_vector_that_resets_in_the_same_step_hands_out_what_ended() -> None:
    environment = catch.make(catch.Options(id="catch", rows=5))
    vector = environment.vector_env(3, autoreset_mode="SameStep")
    singles = [environment.env() for _ in range(3)]
    seen, _ = vector.reset(seed=np.int64(4))
    alone = [env.reset(seed=4 + i)[0] for i, env in enumerate(singles)]
    for step in range(9):
        np.testing.assert_array_equal(seen, alone)
        actions = [(step + i) % 3 for i in range(3)]
        seen, _, terminated, _, info = vector.step(np.array(actions))
        alone = [env.step(np.int64(action))[0] for env, action in zip(singles, actions, strict=True)]
        assert terminated.all() == (step % 4 == 3)
        if terminated.all():
            np.testing.assert_array_equal(np.stack(info["final_obs"]), alone)
            alone = [env.reset()[0] for env in singles]


def test_a_vector_that_resets_nothing_asks_for_it_and_resets_what_is_chosen() -> None:
    vector = catch.make(catch.Options(id="catch", rows=3)).vector_env(2, autoreset_mode="Disabled")
    vector.reset(seed=1)
    for _ in range(2):
        seen, *_ = vector.step(np.ones(2, np.int64))
    with pytest.raises(RuntimeError, match="call reset"):
        vector.step(np.ones(2, np.int64))
    after, _ = vector.reset(options={"reset_mask": np.array([True, False])})
    assert after[0].any(axis=(1, 2)).tolist() == [True, False, True]
    np.testing.assert_array_equal(after[1], seen[1])


def test_games_are_registered_with_gymnasium() -> None:
    env = gymnasium.make("evo/catch-v0", rows=6, render_mode="rgb_array")
    assert env.reset(seed=3)[0].shape == (6, 5, 1)
    assert env.render().shape == (6, 5, 3)
    assert env.metadata["render_modes"] == ["rgb_array", "ansi", "human"]
    envs = gymnasium.make_vec("evo/catch-v0", 3, autoreset_mode="SameStep", rows=6)
    seen, _ = envs.reset(seed=3)
    np.testing.assert_array_equal(seen[0], env.reset(seed=3)[0])
    for _ in range(5):
        _, rewards, terminated, _, info = envs.step(np.ones(3, np.int64))
    assert terminated.all()
    assert set(rewards) <= {-1.0, 1.0}
    assert info["final_obs"][2].shape == (6, 5, 1)


@pytest.mark.parametrize("make", [gymnasium.make, gymnasium.make_vec])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rwos": 6}, "game catch: rwos: unknown key - did you mean `rows`?"),
        ({"rows": "six"}, 'game catch: rows: must be a whole number, not "six"'),
        ({"rows": 6, "columns": 0}, "game catch: columns: must be at least 1, not 0"),
    ],
)
def test_an_option_that_is_wrong_is_told_in_a_line(make: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        make("evo/catch-v0", **options)
    assert str(raised.value) == told


def test_a_choice_that_is_wrong_is_told_with_the_close_one() -> None:
    class Options(GameOptions):
        pit: Literal["water", "larva"] = "water"

    said = 'pit: must be one of "water", "larva", not "lava" - did you mean `larva`?'
    assert mistakes_text(Options, {"id": "pond", "pit": "lava"}) == said


@pytest.mark.parametrize("copy", [True, False])
def test_arrays_of_a_vector_are_used_again_where_copies_are_not_asked_for(copy: bool) -> None:
    envs = gymnasium.make_vec("evo/catch-v0", 3, copy=copy)
    first, _ = envs.reset(seed=3)
    before = first.copy()
    second = envs.step(np.ones(3, np.int64))[0]
    assert (second is not first) == copy
    assert (first.tobytes() == before.tobytes()) == copy


def test_a_game_that_fails_at_once_is_told_with_the_line_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE.replace("state.step[b] = 0", "state.step[b] = 'x' + 0"))
    (tmp_path / "late.toml").write_text('[policy]\nkind = "linear"\n[environment]\nid = "late"\n')
    error = summary_of(tmp_path, "late.toml", "--plugin", "late", "--run-dir", "run", code=2)["error"]
    assert error.startswith("late.toml:4: environment.id: game late: begin failed (late.py:15)")


@pytest.mark.long
def test_a_game_that_fails_before_the_first_generation_leaves_no_directory_in_the_way(tmp_path: Path) -> None:
    """The corrected game trains with the same command; its kernels are those of the game that fails late."""
    words = ("late.toml", "--plugin", "late", "--generations", 1, "--run-dir", "run")
    (tmp_path / "late.toml").write_text('[policy]\nkind = "linear"\n[environment]\nid = "late"\nend = 3\n')
    (tmp_path / "late.py").write_text(
        LATE.replace("mark = ", "mark = len({1: 'a', 'b': 2}) * ")
    )  # plain Python plays it
    with command(tmp_path, *words, "--json") as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode == 2, err
    assert json.loads(out.splitlines()[-1])["run_dir"] is None
    assert not (tmp_path / "run").exists()
    (tmp_path / "late.py").write_text(LATE)
    assert summary_of(tmp_path, *words, apart=True)["status"] == "done"
