"""The command line as a process: exit codes, last lines, and what is said when something is wrong."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from evo.cli.commands import list as list_command
from evo.cli.main import main, main_run
from evo.config.checking import FIXED
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError
from evo.files.arrays import first_hash
from evo.files.layout import FORMAT
from evo.options import Section
from evo.plugins import registry
from evo.store.champion import ChampionScore, Score
from evo.store.metrics import Summary
from evo.store.run_directory import free_directory, in_free_directory
from tests.helpers.calling import called
from tests.helpers.sampling import sampled

ROOT = Path(__file__).parents[2]
KEYS = ["status", "error", "run_dir", "algorithm", "seed", "generations", "frames", "seconds", "state_hash", "champion"]


def evo(*words: str, cwd: Path = ROOT, module: str = "evo", apart: bool = False) -> subprocess.CompletedProcess[str]:
    """Call a command in this process, or in one of its own, which takes ten times as long."""
    if apart:
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    out, err = io.StringIO(), io.StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        code = (main if module == "evo" else main_run)([*words])
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def last(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == KEYS
    return dict(found)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text("[run]\nseed = 5\n[ga]\npopulation = 8\nparents = 4\nelites = 2\n")
    return path


def test_help_lists_the_commands_that_exist() -> None:
    done = evo("--help", apart=True)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    listed = re.findall(r"^  (\w+) +\S", done.stdout, re.MULTILINE)
    assert listed == registry.names("cli.commands", "main") == sorted(listed)
    assert {"run", "resume", "list"} <= set(listed)
    for name in listed:
        shown = evo(name, "--help", apart=True)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout.startswith(f"usage: python -m evo {name} ")


def test_an_unknown_command_or_flag_is_guessed_at() -> None:
    done = evo("rum", apart=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "python -m evo: rum is not a command - did you mean `run`?\n"
    done = evo("run", "x.toml", "--sed", "3", "--json", apart=True)
    assert done.returncode == 2
    assert done.stderr == "python -m evo run: unrecognized arguments: --sed 3 - did you mean `--seed`?\n"
    assert last(done)["status"] == "failed"


def test_a_choice_is_guessed_at(tmp_path: Path) -> None:
    told = called(tmp_path, "export", "run", "--to", "kears", program="evo", code=2)[1]
    assert told.startswith("evo export: argument --to: invalid choice: 'kears' (")
    assert told.endswith(" - did you mean `keras`?\n")


def test_a_dry_run_prints_what_loads_again_and_writes_nothing(experiment: Path, tmp_path: Path) -> None:
    done = evo("run", str(experiment), "--dry-run", "--json", "--seed", "7", "--set", "ga.sigma=0.5", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    resolved = "".join(done.stdout.splitlines(keepends=True)[:-1])
    assert tomllib.loads(resolved)["ga"]["sigma"] == 0.5
    assert sorted(tmp_path.iterdir()) == [experiment]
    (tmp_path / "resolved.toml").write_text(resolved)
    expected = Experiment.load(tmp_path / "resolved.toml")
    assert last(done) == {
        **dict.fromkeys(KEYS),
        "status": "done",
        "algorithm": "ga",
        "seed": 7,
        "generations": 0,
        "frames": 0,
        "seconds": 0.0,
        "state_hash": first_hash(expected.identity()),
    }


@pytest.mark.parametrize(
    ("algorithm", "sections"), sampled([("ga", ["ga"]), ("ppo", ["learner", "ppo"]), ("dqn", ["learner", "dqn"])], 1)
)
def test_a_dry_run_prints_exactly_what_counts(experiment: Path, algorithm: str, sections: list[str]) -> None:
    done = evo("run", str(experiment), "--dry-run", "--algorithm", algorithm)
    told = tomllib.loads(done.stdout)
    assert sorted(told) == sorted(["run", "environment", "policy", "workers", "validation", "test", *sections])
    assert told["policy"]["activation"] == "relu"


DAMAGED = f"run.seed = true\nprovenance.format = {FORMAT}\n"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    sampled(
        [
            ([], 2, "give an experiment file, such as experiments/ga_snake.toml; `evo resume RUN_DIR` continues a run"),
            (["missing.toml"], 2, "missing.toml: cannot be read: No such file"),
            (["."], 2, ".: is a directory"),
            (["small.toml", "--seed", "x"], 2, "--seed: must be a whole number"),
            (["small.toml", "--algorithm", "pg"], 2, "choose ppo, a2c or reinforce"),
            (["small.toml", "--run-dir", "."], 2, ". exists and is not empty"),
            (["small.toml", "--run-dir", "small.toml/x"], 2, "small.toml is a file; choose"),
            (["small.toml", "--resume", "."], 2, "EXPERIMENT cannot go with --resume"),
            (["small.toml", "--fork", "x"], 2, "go with --resume"),
            (["--resume", "."], 3, "is not a run"),
            (["--resume", "missing"], 3, "missing is not a run: there is no such directory"),
            (["--resume", "damaged"], 3, "damaged/config.resolved.toml:1: run.seed"),
            (["--resume", "whole", "--set", "ga.sigma=x"], 2, "--set ga.sigma: must be a number"),
            (["--resume", "whole", "--set", "ga.sigma=1.5"], 2, "ga.sigma: 0.1 in the run, 1.5 now"),
            (["--resume", "whole", "--seed", "8"], 2, "seed: 5 in the run, 8 now"),
            (["small.toml", "--plugin", "no_such_module"], 2, "--plugin no_such_module: No module named"),
            (["small.toml", "--run-dir", "/proc/x/y"], 5, "cannot create /proc/x/y: No such file or directory"),
            (["small.toml", "--run-dir", "new", "--algorithm", "gp"], 2, "the policy must be a decision tree alone"),
        ],
        *(0, 1, 3, 9, 13, 16, 17),
    ),
)
def test_each_mistake_has_its_exit_code_and_no_traceback_and_nothing_is_said_before(
    words: list[str], code: int, reason: str, experiment: Path, tmp_path: Path
) -> None:
    for name, text in {"damaged": DAMAGED, "whole": Experiment.load(experiment).to_toml({"format": FORMAT})}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.resolved.toml").write_text(text)
    before = sorted(tmp_path.rglob("*"))
    done = evo(*words, "--json", cwd=tmp_path, module="evo.run")
    assert done.returncode == code
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    summary = last(done)
    assert len(done.stdout.splitlines()) == 1  # nothing was said before
    assert summary["status"] == "failed"
    assert reason in str(summary["error"])
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", [["plan"], ["run"], ["sweep", "--over", "ga.sigma=1,2"]])
def test_a_run_in_the_place_of_an_experiment_is_said_to_be_resumed_by_a_command_that_exists(
    tmp_path: Path, words: list[str]
) -> None:
    _, err = called(tmp_path, *words, ".", program="evo", code=2)
    assert err == ".: is a directory, not an experiment; `evo resume` continues a run\n"


@pytest.mark.long
def test_a_fork_of_a_taken_name_is_told_to_take_another(experiment: Path, tmp_path: Path) -> None:
    few = ("--set", "validation.episodes=4", "--set", "test.episodes=4", "--backend", "serial")
    called(tmp_path, experiment, "--run-dir", "runs/one", "--generations", "1", "--no-report", *few)
    _, err = called(tmp_path, "resume", "runs/one", "--fork", "one", program="evo", code=2)
    resume = "resume it with `python -m evo resume runs/one`, or choose another --fork"
    assert err == f"runs/one exists and is not empty; {resume}\n"


def test_what_a_resume_may_change_is_no_difference(experiment: Path) -> None:
    resolved = experiment.with_name("resolved.toml")
    resolved.write_text(Experiment.load(experiment).to_toml({"format": FORMAT}))
    before = Experiment.load(resolved, resolved=True)
    after = Experiment.load(resolved, "test.every=3", resolved=True, workers="2", backend="serial", generations="9")
    assert after != before
    assert after.identity() == before.identity()
    assert after.generations == 9


@pytest.mark.long
def test_a_reader_that_has_read_enough_is_no_failure(experiment: Path) -> None:
    command = f"{sys.executable} -m evo run {experiment} --dry-run --json"
    pipe = f"({command}; echo $? >&2) | true"
    assert (
        subprocess.run(["sh", "-c", pipe], cwd=ROOT, stderr=subprocess.PIPE, timeout=60, check=False).stderr == b"0\n"
    )


@pytest.mark.parametrize(
    "words", sampled(["--help", "run --help", "list ga", "run experiments/ga_snake_6x6.toml --dry-run"], 0, 2)
)
@pytest.mark.parametrize(
    ("line", "why"),
    sampled(
        [
            ("{} > /dev/full", "No space left on device"),
            ("{} >&-", "Bad file descriptor"),
            ("ulimit -f 0; {} > $FILE", "File too large"),
        ],
        *range(2),
    ),
)
def test_what_standard_output_has_lost_is_an_error_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, line: str, why: str
) -> None:
    monkeypatch.setenv("FILE", str(tmp_path / "file"))
    shell = line.format(f"{sys.executable} -m evo {words}")
    done = subprocess.run(["sh", "-c", shell], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 5
    assert done.stderr == f"standard output: {why}; what was printed is not complete\n"


@pytest.mark.long
def test_where_no_temporary_directory_takes_a_file_that_is_said() -> None:
    line = f"ulimit -f 0; exec {sys.executable} -m evo evaluate champions/ppo_snake_full.h5 --episodes 1"
    ended = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (5, "")
    *_, said = ended.stderr.splitlines()
    assert said.startswith("No usable temporary directory found in [")
    assert said.endswith("; make room in one of them, or set TMPDIR")


PLUGIN = """
import os, signal, time
from evo.options import AlgorithmOptions
plugs_into = "algorithms"
{trouble}
class Options(AlgorithmOptions):
    pass
def make(*_): ...
"""


@pytest.mark.parametrize(
    ("trouble", "code", "said"),
    sampled(
        [
            ("raise RuntimeError('broken\\x1b[2J')", 2, "its import ended with RuntimeError: broken"),
            ("raise SystemExit(0)", 2, "its import ended with sys.exit(0)"),
            ("raise MemoryError", 5, "out of memory"),
            ("raise OSError(28, 'No space left on device')", 5, "No space left"),
            ("raise OSError(13, 'odd')", 2, "its import ended with PermissionError: [Errno 13] odd"),
            ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", 130, "interrupted"),
            ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", 143, "interrupted"),
            ("os.kill(os.getpid(), signal.SIGHUP); time.sleep(9)", 129, "interrupted"),
        ],
        *range(2),
    ),
)
def test_however_it_ends_the_last_line_is_the_summary(
    trouble: str, code: int, said: str, experiment: Path, tmp_path: Path
) -> None:
    (tmp_path / "troubled.py").write_text(PLUGIN.format(trouble=trouble))
    done = evo(
        "run", str(experiment), "--plugin", "troubled", "--json", cwd=tmp_path, apart=code > 100 or "sys.exit" in said
    )
    assert done.returncode == code
    assert said in done.stderr
    assert ("Traceback" in done.stderr) == (code == 1)
    assert "\x1b" not in done.stderr
    assert last(done)["status"] == ("interrupted" if code > 100 else "failed")


@pytest.mark.long
def test_a_hang_up_that_is_ignored_stays_ignored(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "troubled.py").write_text(PLUGIN.format(trouble="os.kill(os.getpid(), signal.SIGHUP)"))
    command = ["sh", "-c", f"trap '' HUP; exec {sys.executable} -m evo run {experiment} --plugin troubled --dry-run"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False).returncode == 0


def test_list_shows_on_one_screen_everything_that_can_be_named(tmp_path: Path) -> None:
    out = called(tmp_path, "list", program="evo")[0]
    assert len(out.splitlines()) <= 60
    for folder in registry.FOLDERS:
        for name in registry.names(folder):
            assert re.search(rf"^  {name} +{re.escape(registry.summary(folder, name))}$", out, re.MULTILINE)
    for name in FIXED:
        assert re.search(rf"^  {name} +\w", out, re.MULTILINE)


@pytest.mark.long
def test_list_of_a_name_shows_all_of_its_options(tmp_path: Path) -> None:
    for folder in ("algorithms", "environments"):
        for name in registry.names(folder):
            out = called(tmp_path, "list", name, program="evo")[0]
            for key, info in registry.find(folder, name).Options.model_fields.items():
                assert re.search(rf"^ +{key} .*{re.escape(info.description)}", out, re.MULTILINE)
    assert "  start = " in called(tmp_path, "list", "processes", program="evo")[0]
    assert "  episodes = 256 " in called(tmp_path, "list", "validation", program="evo")[0]
    assert '; empty = none ("" | tanh)' in called(tmp_path, "list", "policy", program="evo")[0]
    assert "did you mean `snake`?" in called(tmp_path, "list", "snak", program="evo", code=2)[1]


def bounded(schema: Mapping[str, Any], root: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[float]]]:
    """Yield the name and the bounds of every number in a JSON schema, also of tables, unions and items of lists."""
    for key, field in schema["properties"].items():
        inner = [field, *field.get("anyOf", []), field.get("items", {}), *field.get("items", {}).get("anyOf", [])]
        inner.append(field["additionalProperties"] if isinstance(field.get("additionalProperties"), dict) else {})
        names = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
        if bounds := [one[name] for one in inner for name in names if name in one]:
            yield prefix + key, bounds
        if reference := field.get("$ref"):
            yield from bounded(root["$defs"][reference.rpartition("/")[2]], root, f"{prefix}{key}.")


def listed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `evo list NAME` prints."""
    list_command.main(Namespace(name=name, plugin=[]))
    return capsys.readouterr().out


@pytest.mark.long
def test_list_shows_the_range_of_every_number_that_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    models: dict[str, type[Section]] = dict(FIXED)
    for folder in registry.FOLDERS:
        models |= {name: registry.find(folder, name).Options for name in registry.names(folder)}
    found = 0
    for name, model in models.items():
        out, schema = listed(name, capsys), model.model_json_schema()
        for key, bounds in bounded(schema, schema):
            if key in FIXED["workers"].model_fields and name in registry.names("evaluators"):
                continue  # listed by `evo list workers`
            line = re.search(rf"^  {re.escape(key)} .*\((?:each )?([^()]+)\)$", out, re.MULTILINE)
            assert line, f"{name}: {key} shows no range"
            assert [float(n.replace(",", "")) for n in re.findall(r"-?\d[\d,.e+-]*\d|-?\d", line[1])] == bounds, line[0]
            found += 1
    assert found > 150
    assert "seed of training and validation (at least 0, below 18,446,744,073,709,551,616)" in listed("run", capsys)
    assert re.search(r"^  gae_lambda .*\(0 to 1\)$", listed("ppo", capsys), re.MULTILINE)
    assert re.search(r"^  count .*\(1 to 1,024\)$", listed("workers", capsys), re.MULTILINE)
    assert re.search(r"^  gpus .*\(each 0 to 1,024\)$", listed("processes", capsys), re.MULTILINE)


def test_list_shows_the_keys_of_a_table_and_the_id_of_a_game(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(r"^  budget\.frames = 0 +\w.*\(at least 0\)$", listed("run", capsys), re.MULTILINE)
    assert re.search(r"^  budget\.validation \(not set\) +\w", listed("run", capsys), re.MULTILINE)
    assert re.search(r"^  rewards\.death = -1\.0 +\w", listed("snake", capsys), re.MULTILINE)
    assert '  id = "catch" ' in listed("catch", capsys)


@pytest.mark.parametrize("words", [["evo", "list"], ["evo.run", "experiments/ga_snake_6x6.toml"]])
def test_without_its_packages_the_program_says_which_environment_to_use(words: list[str]) -> None:
    line = [sys.executable, "-S", "-m", *words]  # -S: as a Python in which nothing is installed
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert re.fullmatch(rf"{sys.executable} has no package \w+; activate the environment .*\n", done.stderr)


def test_an_option_that_a_network_of_this_kind_has_not_is_said_to_have_no_effect(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text('[policy]\nkind = "mlp"\ndense = [4]\n')
    words = ("small.toml", "--dry-run", "--set", "policy.conv=[[8, 3, 1]]")
    assert called(tmp_path, *words)[1] == "note: --set policy.conv has no effect: policy.kind is mlp\n"
    words = ("small.toml", "--dry-run", "--set", "policy.conv=", "--set", "policy.dense=[8]")
    assert called(tmp_path, *words)[1] == ""


def test_an_option_of_another_algorithm_is_said_to_have_no_effect(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text("[dqn]\ngamma = 0.9\n")
    words = ("small.toml", "--dry-run", "--set", "dqn.gamma=0.5", "--set", "ga.sigma=0.2")
    note = "note: --set dqn.gamma has no effect: the algorithm is ga, not dqn\n"
    assert called(tmp_path, *words)[1] == note
    assert called(tmp_path, *words[:4], "--algorithm", "dqn")[1] == ""


def test_a_summary_has_every_key_and_null_for_what_is_not_finite() -> None:
    score = Score(3, float("nan"), (float("-inf"), 1.5), 1.0, 2.0, None, None, 7.0)
    summary = Summary(status="done", champion=ChampionScore(0.5, score))
    found = json.loads(summary.to_json())
    assert list(found) == KEYS
    assert found["champion"]["test"] == {
        "episodes": 3,
        "mean": None,
        "ci95": [None, 1.5],
        "median": 1.0,
        "max": 2.0,
        "win_rate": None,
        "win_ci95": None,
        "mean_length": 7.0,
        "mean_return": None,
        "block": 0,
    }


def test_a_run_that_nobody_named_gets_the_first_free_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = Path("some where/ga snake.toml")
    assert free_directory(experiment, "ga", 3) == Path("runs/ga-snake-ga-seed3-001")
    for number in (1, 3):
        Path(f"runs/ga-snake-ga-seed3-00{number}").mkdir(parents=True)
    assert free_directory(experiment, "ga", 3) == Path("runs/ga-snake-ga-seed3-002")
    assert free_directory(Path("--...toml"), "ga", 3).name == "run-ga-seed3-001"

    def overtaken(directory: Path) -> Path:
        if directory.name.endswith("2"):
            directory.mkdir()
            raise ConfigurationError("is there")
        return directory

    assert in_free_directory(experiment, "ga", 3, overtaken) == Path("runs/ga-snake-ga-seed3-004")


def test_a_refusal_for_another_reason_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def refused(directory: Path) -> Mapping[str, str]:
        raise ConfigurationError("never")

    with pytest.raises(ConfigurationError, match="never"):
        in_free_directory(Path("a.toml"), "ga", 1, refused)


def test_a_wheel_holds_experiments_champions_and_pages_and_list_says_where(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
    names = {name.partition(".data/data/")[2] for name in files}
    for folder in ("report/browser", "games/catalogue/snake/page", "report/assets"):
        assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "evo" / folder).iterdir()} <= files
    for folder, kind in (("experiments", "toml"), ("champions", "h5")):
        for path in (ROOT / folder).glob(f"*.{kind}"):
            assert f"share/snake-evo/{folder}/{path.name}" in names
    assert f"experiments to start from: {ROOT / 'experiments'}\n" in called(tmp_path, "list", program="evo")[0]


@pytest.mark.parametrize(
    ("name", "value"), [("NUMBA_DISABLE_JIT", "1"), ("NUMBA_NUM_THREADS", "0"), ("NUMBA_NUM_THREADS", "x")]
)
def test_settings_that_keep_numba_from_compiling_are_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    (tmp_path / "small.toml").touch()
    monkeypatch.setenv(name, value)
    _, err = called(tmp_path, "small.toml", "--dry-run", code=2)
    assert err.startswith(f"{name} is ")
    assert len(err.splitlines()) == 1


ENDLESS = """
import sys
from evo.cli import training
from evo.cli.main import main_run
training.PATIENCE = 1.0
sys.exit(main_run())
"""


@pytest.mark.long
def test_a_first_generation_of_endless_episodes_says_what_limits_them(tmp_path: Path) -> None:
    text = '[environment]\nid = "gymnasium:CliffWalking-v1"\n[workers]\nbackend = "serial"\n[policy]\nkind = "mlp"\n'
    (tmp_path / "walk.toml").write_text(text)
    line = [sys.executable, "-c", ENDLESS, "walk.toml", "--generations", "1", "--run-dir", "run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = next(line for line in process.stdout if "goes on after" in line)
        finally:
            process.kill()
        assert process.stderr is not None
        advice = "episodes of CliffWalking-v1 may be endless; --set environment.max_steps=N ends them after N steps"
        assert said == f"the first generation goes on after 1 s; {advice}\n"
        assert f"note: {advice}\n" in process.stderr.read()
