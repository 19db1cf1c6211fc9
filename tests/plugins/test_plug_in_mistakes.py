"""Whatever a plug-in does wrong is said in a line that names it, the function and what is expected; exit code 2."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

from evo.errors import ConfigurationError
from evo.plugins import code as code_of_plugins
from evo.plugins import registry
from tests.helpers.calling import ROOT, called, command, small_with, summary_of
from tests.helpers.sampling import sampled

ENVIRONMENT = """
import sys
import gymnasium
import numpy as np
from evo import environment
from evo.options import EnvironmentOptions
plugs_into = "environments"
class Options(EnvironmentOptions):
    id: str = "here"
class Env(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}
    def step(self, action):
        return np.zeros(3, np.float32), 1.0, True, False, {}
class Environment(environment.Environment):
    shape, actions, episode_metrics = (3,), 2, ("score",)
    def env(self):
        return Env()
    def metrics_of_episode(self, info, truncated):
        return (1,)
def make(options):
    return Environment()
"""
WAITING = """
import time
import gymnasium
import numpy as np
class Waiting(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        if "{where}" == "reset":
            time.sleep(1000)
gymnasium.register("{id}-v0", Waiting)
if "{where}" == "import":
    time.sleep(1000)
"""
SOONER = ("-c", "from evo.plugins import mistakes; mistakes.LONG = 0.5; from evo.cli import main; main.main_run()")
NUMBERS = count()
CLIMBER = (Path(__file__).parent / "climber.py").read_text()


def written(tmp_path: Path, source: str, old: str, new: str) -> str:
    """Write a plug-in with a mistake; return its name, which no other test has imported."""
    assert source.count(old) == 1
    name = f"mistaken{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(source.replace(old, new))
    return name


def failed(tmp_path: Path, name: str, *words: object) -> str:
    out, err = called(tmp_path, "small.toml", "--plugin", name, *words, "--json", code=2)
    assert "Traceback" not in err
    assert "bug" not in err
    summary = json.loads(out.splitlines()[-1])
    assert (summary["status"], summary["error"]) == ("failed", err.splitlines()[-1])
    assert name in summary["error"]
    return str(summary["error"])


STEP = "return np.zeros(3, np.float32), 1.0, True, False, {}"
RESET = "return np.zeros(3, np.float32), {}\n"


@pytest.mark.parametrize("wrong", ["mine", 3, [3], [None]])
def test_plug_ins_are_a_list_of_modules_or_names(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="plugins: a list of modules or their names"):
        registry.load(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (STEP, "sys.exit(0)", "Env.step called sys.exit(0) ("),
        (STEP, "return 1 / 0", "Env.step raised ZeroDivisionError: division by zero ("),
        (STEP, "return None", "Env.step gave None in step 1; it must give an observation, a reward, terminated"),
        (
            STEP,
            "return np.zeros(4, np.float32), 1.0, True, False, {}",
            "an observation of shape (4,) in step 1; its shape must be (3,)",
        ),
        (STEP, "return np.zeros(3, np.float32), 'much', True, False, {}", "gave the reward 'much' in step 1"),
        (RESET, "return np.zeros(3, np.float32)\n", "it must give an observation and info"),
        (RESET, "raise KeyError('x')\n", "Env.reset raised KeyError: 'x' ("),
        ("(3,), 2,", "(3,), 0,", "actions is 0; it must be a positive whole number, at most 128"),
        ("(3,), 2,", "(3,), 129,", "actions is 129; it must be a positive whole number, at most 128"),
        ("shape, actions, ", "other, actions, ", "shape is None; it must be a tuple of positive whole numbers"),
        ("(3,), 2,", "3, 2,", "shape is 3; it must be a tuple of positive whole numbers"),
        ('("score",)', '"score"', "episode_metrics is 'score'; it must be a tuple of names"),
        ("return (1,)", "return (1, 2)", "Environment.metrics_of_episode raised ValueError"),
        ("return (1,)", "return (1 << 63,)", "Environment.metrics_of_episode raised OverflowError"),
        ("return (1,)", "return info['none']", "metrics_of_episode raised KeyError"),
        ("return Environment()", "sys.exit()", "make called sys.exit() ("),
        ("return Environment()", "pass", "shape is None"),
        ("class Env(", "sys.exit(0)\nclass Env(", "its import ended with sys.exit(0)"),
        ("class Env(", "raise KeyboardInterrupt\nclass Env(", "its import ended with KeyboardInterrupt"),
        ("class Env(", "import asyncio; raise asyncio.CancelledError\nclass Env(", "ended with CancelledError"),
        ("return Environment()", "raise KeyboardInterrupt", "make raised KeyboardInterrupt ("),
        (STEP, "raise KeyboardInterrupt", "Env.step raised KeyboardInterrupt ("),
    ],
)
def test_a_mistake_of_an_environment_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    name = written(tmp_path, ENVIRONMENT, old, new)
    (tmp_path / "small.toml").write_text(small_with(environment=f'id = "{name}"'))
    assert said in failed(tmp_path, name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (STEP, "sys.exit(0)", "Env.step called sys.exit(0) ("),
        (STEP, "raise KeyboardInterrupt", "Env.step raised"),
        ("return (1,)", "return 1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_mistake_in_a_worker_is_named_as_well(tmp_path: Path, old: str, new: str, said: str) -> None:
    name = written(tmp_path, ENVIRONMENT, old, new)
    (tmp_path / "small.toml").write_text(small_with(environment=f'id = "{name}"'))
    assert said in failed(tmp_path, name, "--backend", "processes", "--workers", 1)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return Finalists(self.weights)", "return self.weights", "Climber.finalists gave a value of type ndarray"),
        (
            "return Finalists(self.weights)",
            "return Finalists(self.weights[:, 1:])",
            "finalists gave a value of type nd",
        ),
        ("Request(self.weights, ", "Request(self.weights[:, 1:], ", "generation gave a value of type ndarray, float32"),
        ("[Task(source, Episodes(seeds))]", "[5]", "Climber.generation gave a value of type int; it must yield"),
        ("WeightSource(zero, ", "WeightSource(zero + 1, ", "in which candidate 0 names row 1 of 1 published row;"),
        ('return {"position": self.weights}', "return {'../x': self.weights}", "gave the array '../x' of float32"),
        ('return {"position": self.weights}', "return {'champion': self.weights}", "gave the array 'champion' of"),
        ("return self.played", "return {'x': np.array([{}])}", "Climber.record gave the array 'x' of object; it must"),
        ('return {"position": self.weights}', "pass", "Climber.state gave a value of type NoneType"),
        ("return self.played", "return {'played': 3}", "Climber.record gave a value of type dict"),
        ("yield Request(", "yield (", "Climber.generation gave a value of type tuple; it must yield Requests"),
        ('return {"mean": 0.0, ', "return {1: 0.0, ", "Climber.generation gave a value of type dict"),
        ('return {"mean": 0.0, ', "return {'generation': 0.0, ", "generation: metric 'generation' is 0.0; it must"),
        ('return {"mean": 0.0, ', "return {'test': 77.0, ", "Climber.generation: metric 'test' is 77.0; it must be"),
        ('return {"mean": 0.0, ', "return {'a b': 0.0, ", "Climber.generation: metric 'a b' is 0.0; it must be"),
        ('return {"mean": 0.0, ', "return {'mean': 'high', ", "generation: metric 'mean' is 'high'; it must be"),
        ('return {"mean": 0.0, ', "return {'seconds_learning': 1j, ", "metric 'seconds_learning' is 1j; it must be"),
        ("key = np.array([", "import sys; sys.exit(0); key = np.array([", "Climber.generation called sys.exit(0) ("),
        ("key = np.array([", "raise KeyboardInterrupt; key = np.array([", "generation raised KeyboardInterrupt ("),
        ("key = np.array([", "return {}\n        key = np.array([", "Climber.generation gave a value of type NoneType"),
        (
            "key = np.array([",
            "import evo; evo.Experiment.build(environment={'size': 'x'}); key = np.array([",
            "Climber.generation raised ConfigurationError: experiment:1: environment.size: must be a whole number",
        ),
        (
            "return Finalists(self.weights)",
            "import evo; return Finalists(evo.Run('nowhere').champion.weights)",
            "Climber.finalists raised DataError: nowhere: no such file or directory (mistaken",
        ),
        ("zero, seeds = ", "zero, seeds, more = ", "Climber.generation raised ValueError: not enough values"),
        ("class Options(AlgorithmOptions)", "class Options", "define `Options`, a subclass of"),
        ("return Climber(setup)", "Climber(setup)", "make gave a value of type NoneType, no subclass of Algorithm"),
        (
            "class Climber(Algorithm):",
            "class Climber(Algorithm):\n    notices = 'a line'",
            "Climber.notices is 'a line'; it",
        ),
        ("class Climber(Algorithm)", "class Climber", "make gave a value of type Climber, no subclass of Algorithm"),
        ("[Task(source, Episodes(seeds))]", "iter([])", "Climber.generation gave a value of type list_iterator"),
        ("Task(source, ", "Task(zero, ", "a task in which weights is a ndarray; it must be a WeightSource"),
        (
            "np.full(1, 0.1, np.float32))",
            "np.zeros(2))",
            "a task in which sigmas of its WeightSource is array([0., 0.]);",
        ),
        ("zero - 1, key", "[-1], key", "a task in which mates of its WeightSource is [-1]; it must be an array of 1"),
        ("0.1, np.float32))", '0.1, np.float32), "both")', "a task in which crossover is 'both'; it must be none"),
        ("Episodes(seeds)", "seeds", "a task in which play is a ndarray; it must be Episodes or a Segment"),
        ("Episodes(seeds)", "Episodes([1, 2])", "a task in which seeds is [1, 2]; it must be an array of one or more"),
        ("Episodes(seeds)", "Episodes(seeds[:0])", "a task in which seeds is array([], dtype=uint64); it must be"),
        ("Episodes(seeds)", "Episodes(seeds * 1.0)", "a task in which seeds is array(["),
        ("Episodes(seeds)", "Episodes(seeds), 'softmax'", "a task in which action_rule is 'softmax'; it must be an"),
        ("Episodes(seeds)", "Episodes(seeds), training=1", "a task in which training is 1; there is one environment"),
        ("Finalists(self.weights)", "Finalists(self.weights, ['a'])", "Climber.finalists gave a value of type list"),
        ("Finalists(self.weights)", "Finalists(self.weights, None, np.zeros(2))", "finalists gave a value of type nd"),
        ('return {"position": self.weights}', "return {'hall_of_fame': self.weights}", "gave the array 'hall_of_fame'"),
        (
            'section."""',
            'section."""\n    at: object = print',
            "option at has the default <built-in function print>, which",
        ),
        ('section."""', 'section."""\n    at: int = "x"', "the option at has the default 'x': Input should be a valid"),
    ],
)
def test_a_mistake_of_an_algorithm_is_named(small: Path, old: str, new: str, said: str) -> None:
    name = written(small, CLIMBER, old, new)
    assert said in failed(small, name, "--algorithm", name)


def test_an_algorithm_whose_state_does_not_restore_is_not_resumed(small: Path) -> None:
    line = 'self.weights = np.array(state["position"], np.float32)'
    name = written(small, CLIMBER, line, "pass")
    called(small, "small.toml", "--plugin", name, "--algorithm", name, "--generations", 1, "--run-dir", "run")
    _, said = called(small, "--resume", "run", "--plugin", name, "--generations", 2, code=2)
    assert "Climber.restore gave the array 'position' of another value; after it `state` must return" in said


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("sub/mine.py", "sub.mine"), ("./mine", "mine"), ("mine.py", "mine"), ("../sub/mine", "sub.mine")],
)
def test_a_path_in_place_of_a_plug_in_s_module_is_answered_with_the_module(typed: str, meant: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"--plugin {re.escape(typed)}: give the module.* {re.escape(meant)}$"
    ):
        registry.load([typed])


@pytest.mark.parametrize("ending", ["", ".py"])
def test_a_name_that_no_file_can_have_is_that_of_no_module(ending: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^--plugin a{{300}}{ending}: (No module|give the module)"):
        registry.load(["a" * 300 + ending])


def test_a_file_elsewhere_is_answered_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    said = f"--plugin {tmp_path}/mine.py: cannot be named from here: type the command in {tmp_path}, with --plugin mine"
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        registry.load([f"{tmp_path}/mine.py"])


@pytest.mark.parametrize("typed", ["sub{}/mine.py", "./sub{}/mine.py", "{here}/sub{}/mine.py"])
def test_a_file_below_the_current_directory_is_a_plug_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    folder = f"sub{next(NUMBERS)}"
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "mine.py").write_text(CLIMBER)
    monkeypatch.setattr(registry, "_loaded", {})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    registry.load([typed.format(folder[3:], here=tmp_path)])
    assert registry.loaded() == (f"{folder}.mine",)  # what workers import, and suggested commands name
    assert "mine" in registry.names("algorithms")


def test_a_file_whose_name_is_another_module_s_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text(CLIMBER)
    (tmp_path / "for.py").write_text(CLIMBER)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"--plugin json\.py: json is .*__init__\.py for Python; rename yours"):
        registry.load(["json.py"])
    (tmp_path / "sys.py").write_text(CLIMBER)
    with pytest.raises(ConfigurationError, match=r"--plugin sys\.py: sys is its own for Python; rename yours"):
        registry.load(["sys.py"])
    with pytest.raises(ConfigurationError, match=r"--plugin for\.py: give the module as Python names it, for$"):
        registry.load(["for.py"])


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("..os", "os"),
        ("../os.py", "os"),
        ("./a/b.py", "a.b"),
        (".", "as in package.my_game"),
        ("../", "as in package.my_game"),
    ],
)
def test_dots_are_no_part_of_the_module_that_is_suggested(typed: str, named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        registry.load([typed])
    assert str(caught.value) == f"--plugin {typed}: give the module as Python names it, {named}"


@pytest.mark.long
def test_workers_and_a_resumed_run_find_a_plug_in_that_is_given_as_a_file(small: Path) -> None:
    (small / "inner").mkdir()
    (small / "inner" / "mine.py").write_text(CLIMBER)
    words = ("--plugin", "inner/mine.py", "--backend", "processes", "--workers", 1, "--generations")
    first = summary_of(small, "small.toml", "--algorithm", "mine", *words, 1, "--run-dir", "run", apart=True)
    assert first["generations"] == 1
    assert summary_of(small, "--resume", "run", *words, 2, apart=True)["generations"] == 2


def anew(where: Path, *words: object, code: int = 0) -> tuple[str, str]:
    """Call a command of `evo` after the plug-ins are forgotten, as a new process has not imported them."""
    for name in {name.partition(".")[0] for name in registry.loaded()}:
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]
    registry._loaded.clear()
    code_of_plugins.of_plugin.cache_clear()
    importlib.invalidate_caches()
    return called(where, *words, code=code, program="evo")


@pytest.mark.parametrize("in_package", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_run_is_not_resumed_by_other_code_of_its_plug_in_but_forked(small: Path, in_package: bool) -> None:
    name = f"changing{next(NUMBERS)}"
    folder = small / f"of_{name}" if in_package else small
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(CLIMBER)
    plugin = ("--plugin", f"of_{name}.{name}" if in_package else name)
    words = ("--algorithm", name, *plugin, "--generations")
    anew(small, "run", "small.toml", *words, 1, "--run-dir", "run")
    changed = folder / "constants.py" if in_package else folder / f"{name}.py"  # a file of the package counts
    changed.write_text(CLIMBER + "\n")
    resume = ("--resume", "run", *plugin, "--generations", 2)
    _, err = anew(small, "run", *resume, code=2)
    assert f"run was begun with other code:\nthe code of plug-in {plugin[1]} differs from that of the run\n" in err
    assert "--fork NAME" in err
    out, _ = anew(small, "verify", "run", *plugin, code=3)
    assert "not what it says" not in out
    assert f"DIFFERS  the code of plug-in {plugin[1]} differs from that of the run\n" in out
    assert "nothing can be replayed here, for what DIFFERS; the rest agrees: 1 generation" in out
    assert "generation 2/2" in anew(small, "run", *resume, "--fork", "other")[0]
    changed.unlink() if in_package else changed.write_text(CLIMBER)
    assert "generation 2/2" in anew(small, "run", *resume)[0]
    assert "agrees: 2 generations" in anew(small, "verify", "run", *plugin)[0]


@pytest.mark.parametrize(
    "line",
    sampled(
        [
            "        self.seed = setup.seed\n",
            "        zero, seeds = ",
            "        return Finalists(",
            '        return {"position"',
            "        return self.played\n",
        ],
        *range(2),
    ),
)
def test_a_run_is_written_and_read_in_its_place_where_its_algorithm_changes_the_directory(
    small: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (small / "assets").mkdir()
    (small / "assets" / "asset").touch()
    name = written(small, CLIMBER, line, f"        import os; os.chdir({str(small / 'assets')!r})\n{line}")
    text = (small / f"{name}.py").read_text()
    used = "        self.weights = self.weights + np", '        self.weights = np.array(state["position"]'
    for one in used if "self.seed" in line else used[:1] if "zero, seeds" in line else ():
        assert text.count(one) == 1
        text = text.replace(one, f"        open('asset').close()\n{one}")
    (small / f"{name}.py").write_text(
        text.replace("        self.weights = np.array(s", "        list(records)\n        self.weights = np.array(s")
    )
    monkeypatch.chdir(small)
    plugin = ("--plugin", name)
    begun = called(small, "small.toml", *plugin, "--algorithm", name, "--generations", 1, "--run-dir", "run")
    assert "python -m evo evaluate run " in "".join(begun)
    called(small, "resume", "run", "--generations", 2, *plugin, program="evo")
    assert "agrees: 2 generations" in called(small, "verify", "run", *plugin, program="evo")[0]
    assert Path.cwd() == small
    assert os.listdir("assets") == ["asset"]
    assert {"report.html", "champion.h5"} <= {*os.listdir("run")}


def test_files_of_its_folder_that_a_plug_in_imports_are_its_code_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"changing{next(NUMBERS)}"
    texts = {
        f"{name}.py": "def make():\n    import numpy, tool_of_it, evo\n",
        "tool_of_it.py": "from names_of_it import levels\nimport package_of_it.inner, no_such",
        "names_of_it/levels.py": f"import {name}",
        "package_of_it/__init__.py": "",
        "package_of_it/inner.py": "this is no Python",
        "names_of_it/others.py": "",
        "evo.py": "",
        "levels.py": "",
    }
    for file, text in texts.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    before = code_of_plugins.of_plugin.__wrapped__(name)
    for number, (file, text) in enumerate(texts.items()):
        (tmp_path / file).write_text(f"{text}\n")
        assert (code_of_plugins.of_plugin.__wrapped__(name) != before) == (number < 5)
        (tmp_path / file).write_text(text)
    assert code_of_plugins.of_plugin.__wrapped__(name) == before


LIVELY = """
import argparse, atexit
import gymnasium
import numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--level", type=int, default=3)
LEVEL = parser.parse_args().level
atexit.register(print, "bye")
class Walk(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (2,)), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.normal(size=2).astype(np.float32), {}
    def step(self, action):
        self.steps += 1
        return np.full(2, self.steps, np.float32), 1.0, self.steps >= LEVEL, False, {}
def make():
    return Walk()
gymnasium.register("lively/Walk-v0", make)
"""


@pytest.mark.long
def test_a_module_that_reads_the_command_line_prints_at_exit_and_has_a_function_make_is_a_plug_in(
    tmp_path: Path,
) -> None:
    (tmp_path / "lively.py").write_text(LIVELY)
    (tmp_path / "small.toml").write_text(small_with(environment='id = "gymnasium:lively/Walk-v0"'))
    with command(tmp_path, "small.toml", "--plugin", "lively", "--generations", 1, "--json") as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["champion"]["test"]["mean_length"] == 3
    assert err.endswith("bye\n")


@pytest.mark.parametrize("where", sampled(["import", "reset"]))
def test_a_plug_in_for_which_the_main_process_waits_is_named(tmp_path: Path, where: str) -> None:
    name = f"waiting{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(WAITING.format(where=where, id=name.title()))
    text = f'[environment]\nid = "gymnasium:{name.title()}-v0"\n[policy]\nkind = "mlp"\n'
    (tmp_path / "small.toml").write_text(text)
    words = ("small.toml", "--plugin", name, "--backend", "serial")
    with command(tmp_path, *words, program=SOONER) as process:
        assert process.stderr is not None
        late = threading.Timer(120, process.kill)
        late.start()
        said = next((line for line in process.stderr if line.startswith("note: plug-in")), "")
        process.send_signal(signal.SIGINT)
        process.communicate()
        late.cancel()
    called = "<module>" if where == "import" else "Waiting.reset"
    assert re.fullmatch(rf"note: plug-in {called} \({name}\.py:\d+\) has not returned yet; .*\n", said)
    assert process.returncode == 130


SCRIPT = """
import os, sys, evo
before = list(sys.path)
best = evo.minimise(lambda x: float(sum(x * x)), 2, generations=1, run_dir=sys.argv[1])
assert sys.path == before, sys.path
print(best.fitness)
"""


@pytest.mark.long
@pytest.mark.parametrize("deleted", sampled([False, True]))
def test_a_search_that_names_no_plug_in_imports_nothing_from_the_current_directory(
    tmp_path: Path, deleted: bool
) -> None:
    (tmp_path / "search.py").write_text(SCRIPT)
    (here := tmp_path / "here").mkdir()
    for name in ("statistics", "scipy", "cffi"):
        (here / f"{name}.py").write_text("raise SystemExit('a file of the current directory has run')")
    leave = f"rm -r {here}; " if deleted else ""
    line = f"{leave}exec {sys.executable} {tmp_path}/search.py {tmp_path}/run"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(["sh", "-c", line], cwd=here, env=environment, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "0.0\n"), ended.stderr
