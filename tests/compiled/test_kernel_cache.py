"""Compiled kernels are kept, found again by the next process, and never found after an edit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evo.cli import training
from evo.cli.terminal import display
from evo.cli.training import missing_kernels
from evo.compiled import cache as kernel_cache
from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.rollouts.rollout import LanesKernel, play_episodes
from tests.compiled.falling import Options, make
from tests.helpers.calling import called, command

ROOT = Path(__file__).parents[2]


def test_every_module_with_kernels_says_where_they_are_kept() -> None:
    modules = [path for package in ("snake", "evo") for path in (ROOT / package).rglob("*.py")]
    compiled = [path for path in modules if "@njit(" in path.read_text("utf-8")]
    assert {path.name for path in compiled} >= {
        "lanes.py",
        "tiles.py",
        "step.py",
        "batch.py",
        "compiling.py",
        "candidates.py",
    }
    for path in compiled:
        source = path.read_text("utf-8")
        assert "kernel_cache.use(__name__)" in source.partition("@njit(")[0], path


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a copy of the packages that may be edited."""
    for package in ("snake", "evo"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    "edited",
    ["evo/randomness/philox_compiled.py", "evo/rollouts/rollout.py"]
    + [f"evo/kernels/{name}.py" for name in ("lanes", "layout", "tiles")],
)
def test_an_edited_kernel_is_kept_elsewhere(sources: Path, edited: str) -> None:
    folders = [sources / "evo", sources / "snake"]
    before = kernel_cache.directory_name(map(kernel_cache.digest, folders))
    assert before == kernel_cache.directory_name(map(kernel_cache.digest, folders))
    with (sources / edited).open("a") as file:
        file.write("\n")
    assert kernel_cache.directory_name(map(kernel_cache.digest, folders)) != before


def test_another_processor_or_an_edit_of_something_else_is_told_apart(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [sources / "evo", sources / "snake"]
    before = kernel_cache.directory_name(map(kernel_cache.digest, folders))
    with (sources / "evo" / "errors.py").open("a") as file:
        file.write("\n")
    assert kernel_cache.directory_name(map(kernel_cache.digest, folders)) == before
    monkeypatch.setattr(kernel_cache.config, "CPU_FEATURES", "+sse2")
    assert kernel_cache.directory_name(map(kernel_cache.digest, folders)) != before


PROGRAM = """
import numpy as np
from evo.randomness.philox_compiled import draw
print(draw(np.uint64(7), np.uint64(1), 10, np.uint64(0)), sum(draw.stats.cache_hits.values()))
"""


def start(sources: Path, cache: Path | str, program: str = PROGRAM) -> subprocess.Popen[str]:
    # -B: sources of one length that are edited within a second look unchanged to Python's own cache.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(sources)}
    words, pipe = [sys.executable, "-B", "-c", program], subprocess.PIPE
    return subprocess.Popen(words, env=environment, cwd=sources, stdout=pipe, stderr=pipe, text=True)


def ended(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.split()


def run(sources: Path, cache: Path | str, program: str = PROGRAM) -> list[str]:
    return ended(start(sources, cache, program))


@pytest.mark.long
def test_a_second_process_starts_from_the_cache_and_an_edit_in_another_file_does_not(sources: Path) -> None:
    cache = sources / "cache"
    value, hits = run(sources, cache)
    assert hits == "0"
    assert run(sources, cache) == [value, "1"]
    # Numba alone looks only at the file of `draw`, and would serve the old machine code.
    (sources / "evo" / "rounds.py").write_text("# numba\n")
    assert run(sources, cache) == [value, "0"]


@pytest.mark.long
def test_an_install_that_may_only_be_read_is_left_as_it_is(
    sources: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    folders = [path for path in (sources, *sources.rglob("*")) if path.is_dir()]
    before = sorted(sources.rglob("*"))
    for folder in folders:
        folder.chmod(0o555)
    try:
        value, hits = run(sources, cache)
        assert hits == "0"
        assert run(sources, cache) == [value, "1"]
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert sorted(sources.rglob("*")) == before  # also where we are root, and might have written
    assert list(cache.rglob("*.nbc"))


@pytest.mark.long
def test_processes_that_compile_at_once_leave_one_cache_that_the_next_one_starts_from(sources: Path) -> None:
    cache = sources / "cache"
    values = {ended(process)[0] for process in [start(sources, cache) for _ in range(4)]}
    assert len(values) == 1
    assert run(sources, cache) == [values.pop(), "1"]
    assert not [path for path in cache.rglob("*") if "tmp" in path.name]


MATCHES = """
import numpy as np
from evo.records import Episodes, Task, WeightSource
from evo.games.catalogue import tictactoe
from evo.networks.network import Network, Options
from evo.rollouts.matches import play_matches
from evo.rollouts.rollout import Rollout
env = tictactoe.make(tictactoe.Options(id="tictactoe", opponents={"players": ["random"]}))
network = Network.build(Options(kind="linear"), env.shape, env.actions)
none = np.full(1, -1, np.int32)
source = WeightSource(none, none, np.ones(1, np.uint64), np.zeros(1, np.float32))
seeds = np.arange(8, dtype=np.uint64)
Rollout(network, env).play(Task(source, Episodes(seeds)), np.empty((0, network.size), np.float32))
print(sum(play_matches.stats.cache_hits.values()), sum(play_matches.stats.cache_misses.values()))
"""


@pytest.mark.long
def test_a_second_process_plays_games_of_several_players_from_the_cache(sources: Path) -> None:
    assert [run(sources, sources / "cache", MATCHES) for _ in range(2)] == [["0", "1"], ["1", "0"]]


CONSTANT = """
from snake import edited
print(edited.value(), sum(edited.value.stats.cache_hits.values()))
"""
KERNEL = """
from numba import njit
from snake import other
from evo.compiled import cache as kernel_cache
kernel_cache.use(__name__)
@njit(cache=True)
def value():
    return other.inner() + other.CONSTANT
"""


@pytest.mark.long
def test_no_edit_of_a_function_or_a_constant_elsewhere_is_answered_by_old_machine_code(sources: Path) -> None:
    cache, said = sources / "cache", []
    (sources / "snake" / "edited.py").write_text(KERNEL)
    for inner, constant in ((1, 10), (2, 10), (2, 20), (1, 10)):
        other = f"from numba import njit\nCONSTANT = {constant}\n@njit\ndef inner():\n    return {inner}\n"
        (sources / "snake" / "other.py").write_text(other)
        os.utime(sources / "snake" / "other.py", (1, 1))  # so that nothing but its bytes tells
        said.append(run(sources, cache, CONSTANT))
    assert said == [["11", "0"], ["12", "0"], ["22", "0"], ["11", "1"]]  # the last one is the first again


@pytest.mark.long
@pytest.mark.parametrize(
    "learns_from", ["segments", *(pytest.param(one, marks=pytest.mark.long) for one in ("", "episodes"))]
)
def test_what_a_run_plays_is_there_before_its_workers_are(learns_from: str) -> None:
    script = (
        "from pathlib import Path; from tests.helpers.specs import spec; "
        "from evo.player import prepare; "
        "from evo.rollouts.rollout import play_episodes; from evo.rollouts.segments import play_envs; "
        f"prepare(spec(Path('.'), {{'id': 'snake', 'mask': 'reverse'}}, {{}}, transitions_from={learns_from!r})); "
        "print(len(play_episodes.signatures), len(play_envs.signatures))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    # Whole episodes to learn from are played with draws, and recorded.
    kinds = {"": "1 0", "segments": "1 1", "episodes": "2 0"}
    assert done.stdout.strip() == kinds[learns_from]


GAME = """
from typing import Any, NamedTuple
import numpy as np
from evo.games import Game, GameOptions
PAID = 0

class State(NamedTuple):
    paid: Any

def begin(state, options, b, random): state.paid[b] = PAID
def step(state, options, b, action, random): return 0.0, True
def observe(state, options, b, out): out[0] = PAID

make = Game(
    options=GameOptions, arrays=lambda options: State(np.int64(0)), shape=(1,), actions=2,
    begin=begin, step=step, observe=observe,
)
game = make(GameOptions()).game
"""
PLAYED = """
import numpy as np
import toy
from evo.games import contract as game
print(toy.game.begin(np.zeros(1, np.uint64)).snapshots[0, 0], sum(game._begin_many.stats.cache_hits.values()))
state = toy.game.make_state(1)
print(game.kernel_cache.is_kept(game._begin_many, state), game.kernel_cache.is_kept(game.observe_many, state))
"""


@pytest.mark.long
def test_an_edited_game_never_runs_old_machine_code_in_kernels_that_play_any_game(sources: Path) -> None:
    cache, told = sources / "cache", []
    for paid in (3, 3, 4, 3):
        (sources / "toy.py").write_text(GAME.replace("PAID = 0", f"PAID = {paid}"))
        told.append(run(sources, cache, PLAYED))
    assert told == [[value, hits, "True", "False"] for value, hits in (("3", "0"), ("3", "1"), ("4", "0"), ("3", "1"))]


@pytest.mark.long
def test_a_game_that_is_gone_keeps_no_other_from_being_played(sources: Path) -> None:
    for name in ("toy", "joy"):
        (sources / f"{name}.py").write_text(GAME.replace("PAID = 0", "PAID = 3"))
        assert run(sources, sources / "cache", PLAYED.replace("toy", name))[:2] == ["3", "0"]
        (sources / f"{name}.py").unlink()


@pytest.mark.long
def test_where_the_disk_has_no_room_code_is_compiled_again_and_a_line_says_so(tmp_path: Path) -> None:
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n{PROGRAM}"
    process = start(ROOT, tmp_path, limited + PROGRAM.replace("draw", "episode_seed").replace(", 10, np.uint64(0)", ""))
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out.split()[1::2]) == (0, ["0", "0"]), err
    (folder,) = (tmp_path / "snake-evo").iterdir()
    said = f"note: compiled code is not kept in {folder}: File too large; set NUMBA_CACHE_DIR to"
    assert err == f"{said} another folder\n"


def test_a_directory_that_cannot_be_written_is_replaced_by_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = kernel_cache.root()
    assert first == kernel_cache.root()
    assert first.parent == tmp_path
    assert first.stat().st_mode & 0o777 == 0o700
    first.chmod(0o777)  # anybody could have put machine code there
    assert kernel_cache.root() != first


@pytest.mark.parametrize("spoilt", ["writable by others", "in a folder that others may write to", "another user's"])
def test_a_directory_that_somebody_else_may_have_written_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spoilt: str
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "shared"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = os.umask(0)  # under which everything is made for everybody to write
    try:
        first = kernel_cache.root()
    finally:
        os.umask(before)
    assert (first, first.stat().st_mode & 0o777) == (tmp_path / "shared" / "snake-evo", 0o700)
    assert first.parent.stat().st_mode & 0o777 == 0o700
    assert capsys.readouterr().err == ""
    if spoilt == "writable by others":
        first.chmod(0o777)
    elif spoilt == "in a folder that others may write to":  # and may put another directory in its place
        first.parent.chmod(0o1777)
        assert kernel_cache.root() == first  # but nobody may rename what is another's there
        first.parent.chmod(0o777)
    else:
        if os.getuid():
            pytest.skip("only root can give a directory away")
        os.chown(first, 12345, 12345)
    assert kernel_cache.root() == tmp_path / f"snake-evo-{os.getuid()}"
    assert capsys.readouterr().err.startswith(f"note: {first} is not used")


def test_without_a_home_there_is_no_folder_of_the_name_of_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # of no entry in the password file
    kernel_cache.root()
    assert not (tmp_path / "~").exists()


def test_kernels_of_one_kind_of_network_or_game_are_not_those_of_another(small: Path) -> None:
    called(small, "small.toml", "--generations", 1)
    experiment = Experiment.load(small / "small.toml")
    assert not missing_kernels(experiment)
    environment = environment_of(experiment.environment)
    arguments = LanesKernel(experiment.network(), None).arguments
    assert kernel_cache.is_kept(play_episodes, *arguments, environment.game.make_state(16))
    assert not kernel_cache.is_kept(play_episodes, arguments[0], None, *arguments[2:])
    other = make(Options()).game.make_state(16)
    assert not kernel_cache.is_kept(play_episodes, *arguments, other._replace(state=other.state._replace(ball=None)))
    segments = ("--algorithm", "a2c", "--set", "a2c.envs=4", "--set", "a2c.horizon=4")
    called(small, "small.toml", "--generations", 1, *segments)
    assert not missing_kernels(Experiment.load(small / "small.toml", algorithm="a2c"))


@pytest.mark.long
def test_a_first_run_says_what_it_has_compiled_and_what_learns_is_compiled_while_workers_compile(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(small / "cache"))
    words = ["--algorithm", "ppo"]
    for option in ("ppo.envs=8", "workers.backend=processes", "workers.count=1"):
        words += ["--set", option]
    with command(small, "small.toml", "--generations", 1, *words) as process:
        lines = process.communicate(timeout=600)[0].splitlines()
    kinds = ["learning", "playing", "recording transitions"]  # the first is this process's own
    assert lines[2].endswith("once on this machine: playing, recording transitions, learning ...")
    assert [line.partition(" after ")[0] for line in lines[3:6]] == [
        f"compiled {number} of 3 ({kind})" for number, kind in enumerate(kinds, 1)
    ]
    with command(small, "small.toml", "--generations", 1, *words) as process:
        assert "compil" not in process.communicate(timeout=600)[0]


@pytest.mark.parametrize(("missing", "said"), [(False, "starting workers, then"), (True, "compiling kernels, then")])
def test_what_is_awaited_is_what_is_done(
    small: Path, missing: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = display.Display()
    monkeypatch.setattr(training, "missing_kernels", lambda experiment: ["playing"] if missing else [])
    monkeypatch.setattr(training, "display_for", lambda quiet, verbose: shown)
    out = called(small, "small.toml", "--generations", 1)[0]
    assert ("once on this machine" in out) == missing
    assert shown.awaited == f"{said} the first generation"
