"""Every command that a run suggests does what it is suggested for, typed exactly as it is printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import evo
from evo.errors import printable
from evo.errors import typed as typed_words
from evo.plugins import registry
from tests.helpers.calling import SMALL, called, small_with
from tests.helpers.sampling import sampled

WALK = small_with(environment='id = "treacherous"')
PLUGIN = ("--plugin", "tests.workers.treacherous")
SPENT = ("--set", "run.budget={frames = 1}")


def suggested(out: str) -> list[list[str]]:
    return [shlex.split(line)[2:] for line in out.splitlines() if line.startswith("python -m ")]


def typed(where: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Type a command in a new session, which has loaded no plug-in."""
    monkeypatch.setattr(registry, "_loaded", {})
    return called(where, *words[1:], program=words[0].removeprefix("evo."))[0]


@pytest.mark.parametrize(("text", "plugin"), sampled([(SMALL, ()), (WALK, PLUGIN)], 1))
@pytest.mark.parametrize("budget", [(), pytest.param(SPENT, marks=pytest.mark.long)])
def test_the_commands_at_the_end_of_a_run_work(
    tmp_path: Path, text: str, plugin: tuple[str, ...], budget: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(text)
    out, _ = called(tmp_path, "small.toml", *plugin, *budget, "--set", "run.generations=2", "--run-dir", "a run")
    commands = suggested(out)
    names = [words[1] for words in commands if words[1] != "doctor"]  # suggested where nothing shows that it learns
    assert names == (["evaluate", "resume"] if plugin else ["replay", "evaluate", "resume"])
    assert ("1 frame is spent; " in out) == ("since budgets are checked between generations" in out) == bool(budget)
    for words in commands:
        assert typed(tmp_path, words, monkeypatch)
    lines = (tmp_path / "a run" / "manifest.jsonl").read_text().splitlines()
    assert len(lines) - 1 == (2 if budget else 4)


@pytest.mark.long
def test_a_run_that_needs_a_plug_in_is_not_accused_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.toml").write_text(WALK)
    called(tmp_path, "small.toml", *PLUGIN, "--set", "run.generations=1", "--run-dir", "run")
    monkeypatch.setattr(registry, "_loaded", {})
    out, err = called(tmp_path, "verify", "run", "--json", program="evo", code=2)
    assert err == (
        "run: this run needs treacherous, which is not one of the environments here; add the plug-in that has it: "
        "--plugin treacherous, or package.treacherous\n"
    )
    assert "DIFFERS" not in out
    assert json.loads(out)["status"] == "failed"
    assert "everything that could be checked agrees" in called(tmp_path, "verify", "run", *PLUGIN, program="evo")[0]
    monkeypatch.setattr(registry, "_loaded", {})
    assert "--plugin" in called(tmp_path, "evaluate", "run", program="evo", code=2)[1]


@pytest.mark.long
def test_a_library_run_finds_a_plug_in_that_is_loaded_before_or_given(tmp_path: Path) -> None:
    registry.load(["tests.workers.treacherous"])
    (tmp_path / "small.toml").write_text(WALK)
    experiment = evo.Experiment.load(tmp_path / "small.toml", generations=1, backend="processes", workers=1)
    assert len(list(evo.train(experiment, tmp_path / "run"))) == 1
    with pytest.raises(evo.EvoError, match="--plugin nowhere"):
        next(evo.train(experiment, tmp_path / "other", plugins=["nowhere"]))
    assert not (tmp_path / "other").exists()


def test_words_of_any_bytes_are_typed_so_that_a_shell_reads_the_same() -> None:
    words = ["a run", "it's", "caf\u00e9", os.fsdecode(b"r\xff'\\n"), "", "$HOME"]
    line = f"printf '%s\\0' {typed_words(words)}"
    shown = subprocess.run(["bash", "-c", line], check=True, capture_output=True).stdout
    assert shown.split(b"\0")[:-1] == [os.fsencode(word) for word in words]
    assert line.isprintable()


@pytest.mark.parametrize("name", [b"r\xff", b"-dash"])
def test_a_run_in_a_directory_of_any_name_suggests_commands_that_work(small: Path, name: bytes) -> None:
    out, _ = called(small, "small.toml", "--generations", 1, f"--run-dir={os.fsdecode(name)}", "--no-report")
    line = next(line for line in out.splitlines() if " evaluate " in line)
    name = subprocess.run(["bash", "-c", f"printf '%s ' {line}"], check=True, capture_output=True).stdout.split()[4]
    assert "test episodes" in called(small, "evaluate", os.fsdecode(name), program="evo")[0]


@pytest.mark.parametrize("name", ["a\nb", "runs/a\x1b[31m", "a\u2028b/run"])
def test_a_name_that_no_command_takes_is_refused_in_python_too(small: Path, name: str) -> None:
    experiment = evo.Experiment.load(small / "small.toml")
    told = re.escape(printable(name)) + "': no name or value holds line ends or control characters$"
    with pytest.raises(evo.EvoError, match=told):
        next(evo.train(experiment, small / name))
    with pytest.raises(evo.EvoError, match=told):
        evo.sweep(small / "small.toml", "ga.sigma=0.1,0.2", directory=small / name)
    assert called(small, "small.toml", "--run-dir", name, code=2)[1].startswith(f"'{printable(name)}': no name")
    assert sorted(os.listdir(small)) == ["small.toml"]


TIRING = """
import gymnasium
import numpy as np


class Tiring(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)
    steps = 0  # of all episodes

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        type(self).steps += 1
        if self.steps > 5000:
            raise ValueError("tired")
        return np.zeros(2, np.float32), float(action), self.steps % 3 == 0, False, {}


gymnasium.register(id="Tiring-v0", entry_point=Tiring, max_episode_steps=10)
"""


OF_A_SCRIPT = """
import evo
from evo.plugins.registry import command
{imports}
experiment = evo.Experiment.build(
    run={{"algorithm": "ga"}}, environment={{"id": "gymnasium:{id}"}}, policy={{"kind": "mlp", "dense": [2]}},
    workers={{"backend": "serial"}}, ga={{"population": 4, "parents": 2, "elites": 1, "episodes": 1}},
    validation={{"episodes": 1, "finalists": 1}}, test={{"episodes": 2}},
)
next(evo.train(experiment, "run"))
evo.write_report("run")
print(command("evo", "evaluate", "run"))
evo.minimise(lambda x: float(sum(x * x)), 2, generations=1, run_dir="other")
print(command("evo", "evaluate", "other"))
"""
NEEDS_IT = " # needs the script: no command finds what that defines"


@pytest.mark.long
@pytest.mark.parametrize(
    ("imports", "name", "given"),
    sampled(
        [
            ("import inside.tiring_there", "Tiring-v0", " --plugin inside.tiring_there"),
            ("import gymnasium, tiring; gymnasium.register('Own-v0', entry_point=tiring.Tiring)", "Own-v0", NEEDS_IT),
            ("import gymnasium, bare; gymnasium.register('Own-v0', entry_point=bare.Tiring)", "Own-v0", NEEDS_IT),
            ("import tiring\nevo.plugins.registry.load(['tiring'])", "Tiring-v0", " --plugin tiring"),
            ("import gymnasium", "CartPole-v1", ""),
        ],
    ),
)
def test_an_environment_that_a_script_imports_is_named_in_commands_or_they_say_that_they_need_the_script(
    tmp_path: Path, imports: str, name: str, given: str
) -> None:
    (tmp_path / "inside").mkdir()
    for file in ("tiring.py", "inside/tiring_there.py"):
        (tmp_path / file).write_text(TIRING)
    (tmp_path / "bare.py").write_text(TIRING.partition("gymnasium.register")[0])
    (tmp_path / "inside" / "__init__.py").touch()
    (tmp_path / "script.py").write_text(OF_A_SCRIPT.format(imports=imports, id=name))
    ran = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, second = ran.stdout.splitlines()
    assert first == f"python -m evo evaluate run{given}"
    assert second.endswith(NEEDS_IT)
    page = (tmp_path / "run" / "report.html").read_text()
    if given == NEEDS_IT:
        assert "The script or notebook that began this run trains the same again" in page
        return
    assert f"<code>python -m evo verify run{given}</code>" in page
    line = first.replace("python", shlex.quote(sys.executable), 1)
    found = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert (found.returncode, "test episodes" in found.stdout) == (0, True), found.stderr


def test_an_error_in_a_late_step_says_what_is_saved_and_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "tiring.py").write_text(TIRING)
    text = small_with(run="generations = 1000", environment='id = "gymnasium:Tiring-v0"')
    (tmp_path / "small.toml").write_text(text)
    _, err = called(tmp_path, "small.toml", "--plugin", "tiring", "--run-dir", "run", "--no-report", code=2)
    (line,) = (line for line in err.splitlines() if "tired" in line)
    assert re.search(r"; [\d,]+ generations? (is|are) saved; continue with: .* resume run --plugin tiring$", line)
