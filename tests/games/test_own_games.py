"""Games of a user's own: what is wrong with one is said in a line, before the run and not after it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import evo.games
from evo.cli import training
from evo.errors import ConfigurationError
from evo.games import checking, envs
from evo.games.batch import NEXT_STEP
from evo.games.game import GameEnvironment, play_at_random
from evo.plugins import mistakes
from evo.records import ActionRule, Episodes, Segment, Task
from evo.testing import game_tests
from evo.testing.environments import EMPTY, FRESH, GameTests, rollout_of
from evo.training import testing
from evo.training.testing import Recording
from tests.helpers.calling import ROOT, command, summary_of
from tests.helpers.sampling import sampled

SKELETON = (ROOT / "evo" / "cli" / "skeletons" / "game.py").read_text()
NUMBERS = count()
Written = Callable[..., GameEnvironment]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Return a function that writes the game of `evo new` with replaced parts, and returns its environment."""
    monkeypatch.chdir(tmp_path)

    def write(*parts: tuple[str, str], **options: Any) -> GameEnvironment:
        source, name = SKELETON, f"own{next(NUMBERS)}"
        for old, new in parts:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return game_tests(name, **options).environment

    return write


PICTURE = "    picture = np.full((1, options.cells, 3), (24, 28, 38), np.uint8)\n"


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ("    picture = [][0]\n", "render failed outside of its arrays (own"),
        ("    raise RuntimeError('no font')\n", r"render failed \(own\d+\.py:57\): RuntimeError: no font"),
        ("    return np.zeros((4, 4), np.uint8)\n", "render returned a picture of shape (4, 4), and must return uint8"),
        (f"{PICTURE}    state.door[b] = 3\n", "render changed the state, and may only read it"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_named_before_the_run(written: Written, new: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told if "\\" in told else re.escape(told)):
        written((PICTURE, new)).check()


def test_a_function_that_may_only_read_the_state_is_named_where_it_changes_it(written: Written) -> None:
    """A counter in `observe` went unnoticed until the run had ended, with a line that named something else."""
    observe = ("    out[1] = 1.0 if", "    state.walker[b] += 1\n    out[1] = 1.0 if")
    with pytest.raises(ConfigurationError, match=r"game own\d+: observe changed the state, and may only read it"):
        written(observe).check()


def test_pictures_of_one_episode_have_one_size(written: Written) -> None:
    grows = "    picture = np.full((1 + state.walker[b] % 2, options.cells, 3), (24, 28, 38), np.uint8)\n"
    environment = written((PICTURE, grows))
    said = r"game own\d+: render returned a picture of shape \(\d, \d+, 3\) after one of .* have one size"
    with pytest.raises(ConfigurationError, match=said):
        environment.replayed(1, [1] * 20)


@pytest.mark.long
def test_a_run_is_complete_where_a_picture_of_its_game_fails_late(
    written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails = (
        "    if state.walker[b] <= 0 or state.walker[b] >= options.cells - 1:\n        raise RuntimeError('no font')\n"
    )
    environment = written((PICTURE, PICTURE + fails), cells=51)
    name = environment.definition.module
    (tmp_path / "own.toml").write_text(
        f'[environment]\nid = "{name}"\ncells = 51\n[policy]\nkind = "linear"\n[test]\nepisodes = 70\n'
    )
    words = ("--plugin", name, "--generations", 1, "--set", "ga.population=128", "--backend", "serial")
    summary = summary_of(tmp_path, "own.toml", *words, "--run-dir", "run")
    assert summary["status"] == "done"
    assert summary["champion"]["test"]["episodes"] == 70
    actions = np.ones(25, np.int8)
    seed = next(seed for seed in range(20) if environment.env().reset(seed=seed)[0][1] > 0)
    game = Recording(seed, actions, 0.76)
    game.check(environment)
    training.show_end(game, environment)
    assert f"game {name}: render failed ({name}.py:59): RuntimeError: no font" in capsys.readouterr().err


def test_the_picture_of_a_game_is_no_part_of_what_a_run_plays(written: Written) -> None:
    one, other = written(), written((PICTURE, f"{PICTURE}    # another one\n"))
    assert one.sources == other.sources
    assert one.sources != written(("return 1.0, True", "return 2.0, True")).sources
    called = written(
        (PICTURE, f"{PICTURE}    # compiled\n"), ("    out[1] = 1.0 if", "    render\n    out[1] = 1.0 if")
    )
    again = written(("    out[1] = 1.0 if", "    render\n    out[1] = 1.0 if"))
    assert called.sources != again.sources


READS = "import numpy as np\nimport own_prizes\nfrom own_prizes import PRIZES, doubled\n"
PRIZES = """from pathlib import Path
from numba import njit
PRIZE = float(Path(__file__).with_name("prize.txt").read_text())
PRIZES = 0.0, PRIZE
@njit
def doubled(number):
    return PRIZE * (number + number)
"""


CHOSEN = """
prizes = {1: lambda: 1.0, 3: lambda: 3.0}
if PRIZES[1] == 1:
    def prize(): return 1.0
else:
    def prize(): return 3.0
chosen = prizes[PRIZES[1]]
def factor(by=PRIZES[1]): return by
def made(by):
    def factor(): return by
    return factor
gain, cost = made(PRIZES[1]), made(4.0 - PRIZES[1])
"""
FROM_FILES = ["PRIZES[1]", "own_prizes.PRIZE", "doubled(0.5)", "own_prizes.doubled(0.5)"]
AT_IMPORT = ["chosen()", "prize()", "factor()", "gain() - cost()"]


@pytest.mark.parametrize("read", FROM_FILES + AT_IMPORT)
def test_what_a_game_reads_from_other_files_is_part_of_it(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    (tmp_path / "own_prizes.py").write_text(PRIZES)
    monkeypatch.syspath_prepend(tmp_path)
    sources = []
    for prize in (1, 3, 1):
        (tmp_path / "prize.txt").write_text(str(prize))
        monkeypatch.delitem(sys.modules, "own_prizes", raising=False)
        environment = written(("import numpy as np\n", READS + CHOSEN), ("return 1.0, True", f"return {read}, True"))
        sources.append(environment.sources)
    assert sources[0] == sources[2] != sources[1]


@pytest.mark.parametrize("made", ["5", "None", "State([[1], [2, 3]], 0)"])
def test_arrays_that_make_no_state_are_refused(written: Written, made: str) -> None:
    old = "State(walker=np.int32(0), door=np.int32(0))"
    with pytest.raises(ConfigurationError, match=r"arrays must be a function of options that returns a Named"):
        _ = written((old, made)).sources


@pytest.mark.parametrize(
    "declared",
    [
        ("walker=np.int32(0)", "walker=np.zeros(int(PRIZES[1]))"),
        ("actions=2,", "actions=2, mask=prize if PRIZES[1] == 1 else None,"),
        ("actions=2,", "actions=2, continuous=True, action_high=PRIZES[1],"),
    ],
)
def test_what_a_game_declares_is_part_of_it(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: tuple[str, str]
) -> None:
    (tmp_path / "own_prizes.py").write_text(PRIZES)
    monkeypatch.syspath_prepend(tmp_path)
    sources = []
    for prize in (1, 3, 1):
        (tmp_path / "prize.txt").write_text(str(prize))
        monkeypatch.delitem(sys.modules, "own_prizes", raising=False)
        sources.append(written(("import numpy as np\n", READS + CHOSEN), declared).sources)
    assert sources[0] == sources[2] != sources[1]


@pytest.mark.long
def test_a_game_whose_data_have_changed_is_compiled_again_and_its_runs_are_not_gone_on_with(tmp_path: Path) -> None:
    source = SKELETON.replace("import numpy as np\n", READS).replace("return 1.0, True", "return PRIZES[1], True")
    (tmp_path / "own_reader.py").write_text(source)
    (tmp_path / "own_prizes.py").write_text(PRIZES)
    (tmp_path / "own.toml").write_text('[environment]\nid = "own_reader"\ncells = 3\n[policy]\nkind = "linear"\n')
    words = ("own.toml", "--plugin", "own_reader", "--generations", 1, "--backend", "serial", "--set")
    scores = []
    for prize in (1, 3):
        (tmp_path / "prize.txt").write_text(str(prize))
        summary = summary_of(tmp_path, *words, "ga.population=32", "--run-dir", f"run{prize}", apart=True)
        scores.append(summary["champion"]["test"]["mean_return"])
    assert scores == [1, 3]
    with command(tmp_path, "--resume", "run1", "--plugin", "own_reader", "--generations", 2) as resumed:
        assert "the code of the game" in resumed.communicate()[1]
    assert resumed.returncode == 2


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ("(0.5, 0.2)", "score_bounds is (0.5, 0.2), and must be the lowest and then the highest score"),
        ("(0.5, 0.5)", "score_bounds is (0.5, 0.5), and must be"),
        ("(0, float('inf'))", "score_bounds is (0, inf), and must be"),
        ("0.5", "score_bounds is 0.5, and must be"),
        ("(0, 1, 2)", "score_bounds is (0, 1, 2), and must be"),
        ("lambda options: (3, 4)", "score_bounds is 3 to 4, and an episode of random actions scores"),
    ],
)
def test_bounds_that_no_score_can_have_are_refused(written: Written, bounds: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        written(("    actions=2,", f"    actions=2, score_bounds={bounds},")).check()


@pytest.mark.long
def test_bounds_that_test_episodes_leave_are_named_once_and_do_not_narrow_the_interval(
    written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = written(("    actions=2,", "    actions=2, score_bounds=(-10.0, 0.11),"))
    for _ in range(2):
        found = testing.baselines(environment, 20)["random"]
        assert found.mean < found.ci95[1] <= 1.0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "score_bounds of the environment are -10 to 0.11, but a test episode scores 0.9" in told[0]


DOOR = "below(random, 2) * (options.cells - 1)"
IMPORT = "import numpy as np\n"


@pytest.mark.parametrize(
    ("source", "imported", "name"),
    [
        ("np.random.randint(2) * (options.cells - 1)", IMPORT, "np.random"),
        ("chance.randint(0, 1) * (options.cells - 1)", f"{IMPORT}import random as chance\n", "random"),
        ("(rand() < 0.5) * (options.cells - 1)", f"{IMPORT}from numpy.random import rand\n", "rand"),
        (
            "helper() * (options.cells - 1)",
            f"{IMPORT}\ndef helper():\n    return np.random.randint(2)\n\n",
            "np.random",
        ),
    ],
)
def test_random_numbers_from_elsewhere_are_found_in_the_source(
    written: Written, source: str, imported: str, name: str
) -> None:
    environment = written((DOOR, source), (IMPORT, imported))
    with pytest.raises(ConfigurationError, match=rf": it uses {re.escape(name)} \(own\d+\.py:\d+\): draw random"):
        environment.check()


def test_a_state_that_is_named_random_and_the_episodes_own_numbers_are_fine(written: Written) -> None:
    written((IMPORT, f"{IMPORT}import random\n"), (DOOR, f"np.int32({DOOR})")).check()


def test_a_beginning_that_differs_with_few_seeds_is_found(written: Written) -> None:
    counted = f"{IMPORT}from itertools import count\n\nBEGUN = count()\n"
    environment = written((IMPORT, counted), (DOOR, "(next(BEGUN) % 97 == 96) * (options.cells - 1)"))
    with pytest.raises(ConfigurationError, match=r"two episodes of seed \d+ differ in what begin writes"):
        environment.check()


WITH_WON = "    actions=2, episode_metrics=('won',), metrics=lambda state, options, b, out: out.fill(1),"
CELLS = 'cells: int = Field(11, ge=3, le=101, description="length of the corridor")'


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (CELLS, "cells = 11", "the option cells = 11 has no type; write one, as in `cells: int = 11`"),
        ("max_steps: int = Field(50,", "max_steps = Field(50,", "the option max_steps has no type; write one"),
        (CELLS, "cells: int = 11\n    id: int = 3", "the option id is the trainer's; name yours otherwise"),
        (CELLS, "cells: int = 11\n    training: float = 3.0", "the option training is the trainer's"),
        ("Options(GameOptions)", "Options", "define `Options`, a subclass of evo.games.GameOptions"),
        ("\nmake = Game(", "\ngame = Game(", "name it make, as in `make = Game(...)`, not game"),
        (
            "    actions=2,",
            "    actions=2, action_names=('left', 3),",
            "action_names is ('left', 3), and must be a tuple",
        ),
        ("    actions=2,", "    actions=2, action_names='lr',", "action_names is 'lr', and must be a tuple of texts"),
        ("shape=(2,)", "shape=(20000, 20000)", "whose product is at most 4,194,304"),
        (
            CELLS,
            f"wide: float = float('inf')\n    {CELLS}",
            "the option wide has the default inf, and must have a finite",
        ),
        (
            "    actions=2,",
            "    actions=2, baselines=lambda options: None,",
            "baselines returned None, and must return func",
        ),
        ("    actions=2,", WITH_WON.replace("1", "5"), "metrics wrote 5 as won, and must write 0 or 1"),
        ("    actions=2,", WITH_WON.replace("'won'", "'a', 'a'"), "is ('a', 'a'); it must be a tuple of names, each"),
        ("    actions=2,", WITH_WON.replace("'won'", "'a\\n'"), r"is ('a\n',); it must be a tuple of names, each"),
    ],
)
def test_what_is_declared_wrongly_is_told_in_a_line(written: Written, old: str, new: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told)) as raised:
        mistakes.check_environment(written((old, new)), "own")
    assert "\n" not in str(raised.value)


def test_what_a_player_returns_must_be_a_score(written: Written) -> None:
    environment = written(("    actions=2,", "    actions=2, baselines=lambda options: {'mine': str},"))
    with pytest.raises(ConfigurationError, match=r"the baseline mine returned '[0-9]+', and must return a score"):
        testing.baselines(environment, 2)


HELPER = f"{IMPORT}\n\ndef helper(random, b):\n    return [uniform(random, 0.0, b) for _ in range(1)][0]\n"
MOVE = "    state.walker[b] += 1 if action == 1 else -1\n"


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (
            [(MOVE, f"{MOVE}    if options.cells > 11:\n        return uniform(random, 0.0, 1.0), True\n")],
            "step (FILE:45) uses uniform, which is not defined; add `from evo.games import uniform`",
        ),
        (
            [(MOVE, f"{MOVE}    if options.cells > 11:\n        return 1.0, Stat is None\n")],
            "step (FILE:45) uses Stat, which is not defined - did you mean `State`?",
        ),
        (
            [(MOVE, f"{MOVE}    if options.cells > 11:\n        return helper(random, b), True\n"), (IMPORT, HELPER)],
            "helper (FILE:11) uses uniform, which is not defined; add",
        ),
    ],
)
def test_a_name_that_is_not_defined_is_told_where_no_episode_uses_it(
    written: Written, parts: list[tuple[str, str]], told: str
) -> None:
    environment = written(*parts)
    name = environment.definition.module
    with pytest.raises(ConfigurationError, match=re.escape(f"game {name}: {told.replace('FILE', f'{name}.py')}")):
        environment.check()


def test_names_that_hints_say_the_module_of_games_has_are_there() -> None:
    assert {*evo.games.__all__} >= checking.FROM_GAME


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        ("-0.0001", "step returned the reward -0.0001, which counts as 0: rewards are kept in thousandths"),
        ("0.0005", "step returned the reward 0.0005, which counts as 0: rewards are kept in thousandths"),
        ("-0.0006", ""),
        ("0.3 - 0.1 - 0.2", ""),
    ],
)
def test_a_reward_that_counts_as_zero_is_noticed_once(
    written: Written, reward: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = written(("return -0.01,", f"return {reward},"))
    for cells in (11, 13):
        environment.definition(environment.options.model_copy(update={"cells": cells})).check()
    line = f"note: game {environment.definition.module}: {told}\n" if told else ""
    assert capsys.readouterr().err == line


OBSERVE = "    observe=observe,\n"


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([(OBSERVE, "")], "Game(...) lacks observe"),
        ([(OBSERVE, ""), ("    step=step,\n", "")], "Game(...) lacks step and observe"),
        ([(OBSERVE, "    observ=observe,\n")], "Game(...) has no field observ - did you mean `observe`?"),
        ([("make = Game(", "int('x')\nmake = Game(")], "invalid literal for int() with base 10: 'x'"),
        ([("make = Game(", "Gama\nmake = Game(")], "its import ended with NameError: name 'Gama' is not defined"),
    ],
)
def test_a_file_that_cannot_be_imported_is_told_with_its_line(
    written: Written, parts: list[tuple[str, str]], told: str
) -> None:
    number = 1 + SKELETON[: SKELETON.index("make = Game(")].count("\n")
    with pytest.raises(ConfigurationError) as raised:
        written(*parts)
    assert re.fullmatch(rf"--plugin (own\d+): \1\.py:{number}: {re.escape(told)}", str(raised.value))


def test_a_game_without_pictures_skips_their_test(written: Written) -> None:
    tests = type("Tests", (GameTests,), {"environment": written(("    render=render,\n", ""))})()
    with pytest.raises(pytest.skip.Exception, match="has no render"):
        tests.test_pictures_are_drawn_where_there_are_any()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_the_test_of_a_vector_fails_where_one_mode_of_resets_is_wrong(
    written: Written, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    tests = type("Tests", (GameTests,), {"environment": written()})()
    tests.test_environments_of_a_vector_are_single_ones()
    kinds = {**envs.MODES, AutoresetMode[mode]: NEXT_STEP}
    monkeypatch.setattr(envs, "MODES", kinds)
    with pytest.raises((AssertionError, KeyError)):
        tests.test_environments_of_a_vector_are_single_ones()


@pytest.mark.long
@pytest.mark.parametrize("kind", sampled(["greedy", "softmax", "epsilon_greedy"]))
def test_a_mask_that_allows_nothing_after_the_checked_steps_is_named_and_ends_every_way_to_play(
    written: Written, kind: Any
) -> None:
    mask = (
        "def mask(state, options, b, out):\n    out[:] = options.cells < 12 or state.walker[b] != 7\n\n\nmake = Game("
    )
    environment = written((OBSERVE, f"{OBSERVE}    mask=mask,\n"), ("make = Game(", mask))
    environment.check()
    environment = environment.definition(environment.options.model_copy(update={"cells": 13}))
    told = rf"game {environment.definition.module}: mask allowed no action after \d+ steps of the episode of seed \d+; "
    seeds = np.arange(20, dtype=np.uint64)
    play = Episodes(seeds) if kind == "greedy" else Segment(environment.game.begin(seeds), 9)
    with pytest.raises(ConfigurationError, match=told):
        rollout_of(environment).play(Task(FRESH, play, ActionRule(kind, 1.0)), EMPTY)
    with pytest.raises(ConfigurationError, match=told):
        [play_at_random(environment, seed) for seed in range(9)]


def test_a_draw_below_nothing_ends(written: Written) -> None:
    environment = written(("below(random, 2)", "below(random, options.cells - 11)"))
    with pytest.raises(
        ConfigurationError, match=r"begin failed .*: ValueError: a draw below 0, not below a number from 1"
    ):
        environment.check()
    assert environment.env().reset(seed=1)[0].tolist() == [0.0, -1.0]  # compiled code does not raise


@pytest.mark.long
@pytest.mark.parametrize("backend", ["serial", pytest.param("processes", marks=pytest.mark.long)])
def test_a_game_that_cannot_be_compiled_leaves_no_run_directory(tmp_path: Path, backend: str) -> None:
    wrong = SKELETON.replace("return 1.0, True", 'return ([1.0, "x"][action]), True')
    (tmp_path / "own_wrong.py").write_text(wrong)
    (tmp_path / "own.toml").write_text('[environment]\nid = "own_wrong"\ncells = 3\n[policy]\nkind = "linear"\n')
    words = ("own.toml", "--plugin", "own_wrong", "--generations", 1, "--run-dir", "run", "--backend", backend)
    with command(tmp_path, *words) as trained:
        told = trained.communicate()[1]
    assert (trained.returncode, "own_wrong.py" in told, "Numba cannot compile" in told) == (2, True, True), told
    assert not (tmp_path / "run").exists()
