"""What is wrong with the numbers, or the end, of a Gymnasium environment of a user's own is said in a line."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from itertools import count
from pathlib import Path

import pytest

from evo.config.experiment import Experiment
from evo.plugins.directory import kept
from evo.process import HASHES
from evo.rollouts import gymnasium_episodes
from evo.run import train
from evo.store.run import Run
from tests.helpers.calling import ROOT, called, command
from tests.helpers.sampling import sampled

SKELETONS = ROOT / "evo" / "cli" / "skeletons"
NUMBERS = count()
REWARD, SHOWN = "-0.01", "self.walker / 5 - 1"
EVOLVED = ("--algorithm", "ga", "--set", "ga.population=16", "--set", "ga.parents=4", "--set", "ga.elites=2")
SMALL = (*EVOLVED, "--generations", 1)
Written = Callable[..., tuple[object, ...]]
pytestmark = pytest.mark.filterwarnings("ignore:.*WARN")  # of Gymnasium's own checks


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Return a function that writes the environment of `evo new` with replaced parts, and returns the command line."""

    def write(*parts: tuple[str, str]) -> tuple[object, ...]:
        source, name = (SKELETONS / "environment.py").read_text(), f"faulty{next(NUMBERS)}"
        for old, new in parts:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        texts = (source, (SKELETONS / "environment.toml").read_text())
        for ending, text in zip(("py", "toml"), texts, strict=True):
            (tmp_path / f"{name}.{ending}").write_text(text.replace("my_env", name).replace("MyEnv", name.capitalize()))
        return f"{name}.toml", "--plugin", name, "--run-dir", "run", *SMALL, "--backend", "serial"

    return write


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (REWARD, "float('nan')", ".step gave the reward nan"),
        (REWARD, "-float('inf')", ".step gave the reward -inf"),
        (REWARD, "np.longdouble('1e400')", ".step gave the reward inf"),
        (SHOWN, "float('nan')", " gave an observation with nan at [0]"),
        ("self.door / 5 - 1], np.float32)", "1e308], np.float64)", " gave an observation with inf at [1]"),
    ],
)
@pytest.mark.parametrize("algorithm", ["ga", "ppo"])
def test_numbers_that_are_not_finite_are_named_at_the_start(
    written: Written, tmp_path: Path, old: str, new: str, told: str, algorithm: str
) -> None:
    words = written((old, new))
    out, err = called(tmp_path, *words, "--algorithm", algorithm, "--json", code=2)
    error = f"environment.id: {str(words[2]).capitalize()}{told}"
    assert json.loads(out.splitlines()[-1])["error"] == error
    assert err.splitlines()[-1] == error
    assert "deterministic" not in err


@pytest.mark.long
def test_numbers_that_are_not_finite_are_named_by_workers_too(written: Written, tmp_path: Path) -> None:
    words = written((REWARD, "float('nan')"))
    with command(tmp_path, *words[:-1], "processes", "--workers", 2) as process:
        told = process.communicate(timeout=300)[1]
    assert process.returncode == 2
    assert told.splitlines()[-1] == f"environment.id: {str(words[2]).capitalize()}.step gave the reward nan"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            REWARD,
            "-0.01 if self.walker < 8 else float('nan')",
            ".step gave a reward that is NaN or beyond 1e+150; the network that played ranks worst",
        ),
        (
            REWARD,
            "1e160 * (1 + self.walker)",
            ".step gave a reward that is NaN or beyond 1e+150; the network that played ranks worst",
        ),
        (
            SHOWN,
            "self.walker / 5 - 1 if self.walker < 8 else np.inf",
            " gave an observation with inf at [0]; the network",
        ),
    ],
)
def test_numbers_that_are_not_finite_later_are_named_once(
    written: Written, tmp_path: Path, old: str, new: str, told: str
) -> None:
    words = written((old, new))
    err = called(tmp_path, *words)[1]
    assert err.count(f"note: {str(words[2]).capitalize()}{told}") == 1


@pytest.mark.parametrize("algorithm", ["ppo", *(pytest.param(name, marks=pytest.mark.long) for name in ("a2c", "dqn"))])
def test_rewards_whose_sums_are_beyond_float32_end_a_run_in_a_line(
    written: Written, tmp_path: Path, algorithm: str
) -> None:
    learns = ("--set", "dqn.learning_starts=1") if algorithm == "dqn" else ()
    words = written((REWARD, "-3e38"), ("1.0 if found", "3e38 if found"))
    (line,) = called(tmp_path, *words, "--algorithm", algorithm, *learns, code=5)[1].splitlines()[-1:]
    assert line.startswith(
        "the loss of update 1 is not finite, so learning cannot go on; the last commit is intact: scale"
    )


@pytest.mark.parametrize(("reward", "scored"), [("1e308", "inf"), ("1e200", "e+201")])
def test_a_random_player_of_scores_beyond_any_limit_is_left_out_of_a_comparison(
    written: Written, tmp_path: Path, reward: str, scored: str
) -> None:
    words = written((REWARD, reward))
    called(tmp_path, *words)
    err = called(tmp_path, "compare", "run", *words[1:3], program="evo", code=5)[1]
    (line,) = [
        line for line in err.splitlines() if line.startswith("note: the baseline random is left out: it scored ")
    ]
    assert f"{scored}, and scores go up to 1e+150" in line


def test_an_episode_without_an_end_is_noticed(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gymnasium_episodes, "LONG", 50)
    words = written(("found or not 0 < self.walker < 10", "False"), (", max_episode_steps=50", ""))
    err = called(tmp_path, *words, "--set", "environment.max_steps=60")[1]
    name = str(words[2]).capitalize()
    assert err.count(f"note: an episode of {name} has 50 steps and goes on; environment.max_steps = N ends it") == 1


MADE = '        """Take the options of environment.kwargs; this one has none."""\n'
RESET = "        super().reset(seed=seed)\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "backend"),
    [
        (MADE, "serial"),
        pytest.param(RESET, "serial", marks=pytest.mark.long),
        pytest.param(RESET, "processes", marks=pytest.mark.long),
    ],
)
def test_a_run_is_written_and_read_in_its_place_where_its_environment_changes_the_directory(
    written: Written, tmp_path: Path, where: str, backend: str
) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "asset").touch()
    moved = f"{where}        import os\n        os.chdir({str(tmp_path / 'assets')!r})\n"
    step = "        self.walker += 1 if action == 1 else -1\n"
    words = written((where, moved), (step, f"        open('asset').close()\n{step}"))
    plugin = words[1:3]
    out, err = called(tmp_path, *words[:-1], backend, "--workers", 2, "--set", "test.episodes=5")
    assert "python -m evo evaluate run " in out + err
    out, err = called(tmp_path, "verify", "run", *plugin, program="evo")
    assert "everything that could be checked agrees" in out + err
    for number in (1, 2):
        line = called(tmp_path, "evaluate", "run", *plugin, "--block", 7, "--episodes", 5, program="evo")[0]
        assert ("evaluated on block 7" in line) == (number == 2)
    for command_line in (("replay", "run", "--json"), ("report", "run"), ("resume", "run", "--generations", 2)):
        called(tmp_path, *command_line, *plugin, program="evo")
    experiment = Experiment.load(tmp_path / str(words[0]), algorithm="ga", generations=1, backend=backend)
    with chdir(tmp_path):
        assert [row.generation for row in train(experiment, "trained")] == [0]
        assert Path("trained", "champion.h5").exists()
        assert len(Run("trained").metrics) == 1
    assert sorted(path.name for path in (tmp_path / "assets").iterdir()) == ["asset"]


def test_a_module_may_change_the_directory_when_it_is_imported(written: Written, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    words = written(("import gymnasium\n", f"import os\nimport gymnasium\nos.chdir({str(tmp_path / 'assets')!r})\n"))
    called(tmp_path, *words)
    assert (tmp_path / "run" / "champion.h5").exists()


@pytest.mark.long
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_what_environments_have_started_ends_with_the_run(written: Written, tmp_path: Path, backend: str) -> None:
    begun = 'with open("children", "a") as file:\n            self.child = subprocess.Popen(["sleep", "600"])\n'
    words = written(
        ("import gymnasium\n", "import subprocess\nimport gymnasium\n"),
        (
            '        """Take the options of environment.kwargs; this one has none."""\n',
            f"        {begun}            print(self.child.pid, file=file)\n"
            "    def close(self):\n        self.child.kill()\n        self.child.wait()\n",
        ),
    )
    called(tmp_path, *words[:-1], backend, "--workers", 2)
    children = [int(line) for line in (tmp_path / "children").read_text().split()]
    assert len(children) > 2
    assert [child for child in children if Path(f"/proc/{child}").exists()] == []


@pytest.mark.long  # it waits for the thread
def test_a_plan_ends_where_an_environment_leaves_a_thread(written: Written, tmp_path: Path) -> None:
    option = '        """Take the options of environment.kwargs; this one has none."""\n'
    thread = "        import threading, time\n        threading.Thread(target=time.sleep, args=[600]).start()\n"
    words = written((option, option + thread))
    with command(tmp_path, "plan", *words[:3], *EVOLVED, program=("-m", "evo")) as process:
        assert process.wait(120) == 0


@pytest.mark.parametrize("backend", sampled(["serial", "processes"]))
def test_an_error_of_ours_in_an_environment_is_a_mistake_of_it(written: Written, tmp_path: Path, backend: str) -> None:
    reset = "        super().reset(seed=seed)\n"
    words = written((reset, f"        import evo\n        evo.Run('absent').champion\n{reset}"))
    err = called(tmp_path, *words[:-1], backend, code=2)[1].splitlines()[-1]
    name = str(words[2])
    assert f"plug-in {name}: {name.capitalize()}.reset raised DataError: absent" in err
    assert f"({name}.py:" in err


THINGS = "THINGS = list({'apple', 'pear', 'stone', 'snake', 'coin', 'mud'})\n"
SCRIPT = """
import evo
plugins, words = [{plugin!r}], {small!r}
experiment = evo.Experiment.load({file!r}, *words[3::2], plugins=plugins, algorithm="ga", generations=1, workers=1)
list(evo.train(experiment, "script", plugins=plugins))
"""


@pytest.mark.long
@pytest.mark.parametrize("chosen", ["", "random"])
def test_what_depends_on_hashes_of_strings_is_the_same_in_every_process(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    monkeypatch.setenv(HASHES, chosen) if chosen else monkeypatch.delenv(HASHES)
    words = written(("import gymnasium\n", f"import gymnasium\n{THINGS}"), (REWARD, "hash(THINGS[0]) / 1e19"))
    script = SCRIPT.format(file=words[0], plugin=words[2], small=EVOLVED)
    for program in (("-m", "evo.run", *words), ("-c", script)):
        with command(tmp_path, program=list(map(str, program))) as process:
            assert process.wait(300) == 0
    assert len({Run(tmp_path / name).store.state_hash for name in ("run", "script")}) == 1


@pytest.mark.parametrize("backend", sampled(["serial", "processes"]))
def test_a_run_speaks_where_its_environment_replaces_the_standard_streams(
    written: Written, tmp_path: Path, backend: str
) -> None:
    muted = f"{MADE}        import io, sys\n        sys.stdout = sys.stderr = io.StringIO()\n"
    words = written((MADE, muted))
    out = called(tmp_path, *words[:-1], backend, "--json")[0]
    assert json.loads(out.splitlines()[-1])["status"] == "done"
    assert "sead" in called(tmp_path, *words, "--set", "run.sead=1", code=2)[1]


@pytest.mark.long
def test_an_environment_that_needs_the_main_thread_is_told_of_workers(written: Written, tmp_path: Path) -> None:
    words = written((MADE, f"{MADE}        import signal\n        signal.signal(signal.SIGALRM, print)\n"))
    called(tmp_path, *words[:-1], "processes", "--workers", 1)
    err = called(tmp_path, *words, "--run-dir", "serial", code=2)[1]
    assert 'backend = "serial" plays in a thread, and workers do not' in err


def test_another_thread_leaves_streams_to_who_redirects_them_meanwhile() -> None:
    before, begun, over = sys.stdout, threading.Event(), threading.Event()

    @kept()
    def play() -> None:
        begun.set()
        over.wait(60)

    thread = threading.Thread(target=play)
    with redirect_stdout(io.StringIO()):
        thread.start()
        begun.wait(60)
    over.set()
    thread.join(60)
    assert sys.stdout is before
