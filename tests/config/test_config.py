"""Every experiment file ends in a validated experiment or in lines that say what is wrong and where."""

from __future__ import annotations

import os
import pickle
import re
import string
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.config.checking import FIXED
from evo.config.environments import require_plug_ins
from evo.config.experiment import Experiment
from evo.config.identity import difference
from evo.config.sections import RunOptions
from evo.errors import ConfigurationError, DataError
from evo.files.layout import FORMAT
from evo.plugins import registry
from evo.run import train
from evo.toml import key_text, value_text
from tests.helpers.calling import ROOT

PLACE = re.compile(r"(.*\.toml:([1-9]\d*:)? |--(set|seed|workers|generations|backend|algorithm)\b|and more).*")


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "experiment.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def mistakes(path: Path, *sets: str, **flags: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        Experiment.load(path, *sets, **flags)
    lines = str(caught.value).split("\n")
    for line in lines:
        assert PLACE.fullmatch(line), line
        assert line.isprintable()
    return [line.replace(f"{path}:", "") for line in lines]


def test_an_empty_file_is_an_experiment_with_every_default(tmp_path: Path) -> None:
    experiment = Experiment.load(write(tmp_path, ""))
    assert (experiment.algorithm, experiment.run.seed, experiment.environment.size) == ("ga", 1, 10)
    assert experiment.options is experiment.sections["ga"]
    assert experiment.policy.inference == "lanes"


def test_a_library_may_give_numbers_of_numpy_tuples_and_paths(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "run": {"seed": np.int64(3)},
        "policy": {"conv": np.array([[8, 3, 1]]), "dense": (4,)},
        "ga": {"sigma": np.float32(0.5), "population": np.int32(128)},
    }
    built = Experiment.build(**sections)
    assert (built.run.seed, built.policy.conv, built.policy.dense) == (3, [[8, 3, 1]], [4])
    assert (built.sections["ga"].sigma, built.sections["ga"].population) == (0.5, 128)
    assert isinstance(sections["policy"]["dense"], tuple)
    loaded = Experiment.load(write(tmp_path, ""), seed=np.int64(7), generations=np.uint8(9))
    assert (loaded.run.seed, loaded.generations) == (7, 9)


def test_a_library_call_that_makes_no_sense_is_told_in_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    with pytest.raises(ConfigurationError, match=r"sead: is no flag of an experiment - did you mean `seed`\?"):
        Experiment.load(path, sead=3)
    with pytest.raises(ConfigurationError, match="changes are texts, one after the other"):
        Experiment.load(path, ["ga.sigma=1"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"must be what Experiment.load\(FILE\)"):
        next(train(path))  # type: ignore[arg-type]


def test_what_a_run_starts_from_may_be_relative_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    path = write(tmp_path / "sub", '[run]\ninit_from = "../first"\n')
    (tmp_path / "first").mkdir()
    monkeypatch.chdir(tmp_path)
    assert Experiment.load(path).run.init_from == str(tmp_path / "sub" / ".." / "first")
    (tmp_path.parent / "first").mkdir(exist_ok=True)
    assert Experiment.load(path).run.init_from == "../first"  # the working directory comes first


@pytest.mark.parametrize("text", ["", "[run]\nseed = 1\n"])
def test_a_resolved_file_that_was_cut_off_is_no_file_of_an_earlier_version(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"has no \[provenance\]; it was cut off"):
        Experiment.load(write(tmp_path, text), resolved=True)


def test_the_engine_of_the_forward_pass_is_part_of_a_runs_identity(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    played = {name: Experiment.load(path, f"policy.inference={name}") for name in ("auto", "lanes", "tensorflow")}
    assert played["auto"].identity() == played["lanes"].identity()
    assert 'policy.inference: "lanes" in the run, "tensorflow" now' in difference(
        played["lanes"].identity(), played["tensorflow"].identity()
    )
    assert (
        Experiment.load(write(tmp_path, played["tensorflow"].to_toml())).identity() == played["tensorflow"].identity()
    )
    with pytest.raises(ConfigurationError, match=r'policy\.inference: must be one of "auto", "lanes"'):
        Experiment.load(path, "policy.inference=lanes-bfloat16")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ('strategy = "mirrored"\ndevices = ["gpu0"]', 'devices: "gpu0" is not a device'),
        ('strategy = "mirrored"\ndevices = ["CPU:0", "CPU:0"]', 'devices: "CPU:0" is named twice'),
        (
            'strategy = "mirrored"\ndevices = ["CPU:0", "CPU:1"]',
            "devices: CPU:1 needs logical_cpus = 2 or more",
        ),
        ('devices = ["GPU:0", "GPU:1"]', 'devices: strategy "one" computes on one'),
        ('strategy = "multiworker"\nlogical_cpus = 2', "logical_cpus: a process of multiworker is one device"),
        ('strategy = "multiworker"\ndevices = ["GPU:0"]', "devices: 1 for 2 workers"),
        ("staleness = 1", 'staleness: only strategy "parameter-server"'),
        ("logical_cpus = 2", 'logical_cpus: strategy "one" computes on one device'),
        ("processes = 3", 'processes: strategy "one" has one; "multiworker" has several'),
        ('strategy = "mirrored"\nprocesses = 3', 'processes: strategy "mirrored" has one'),
    ],
)
def test_mistakes_about_a_learner_s_devices_have_their_line(tmp_path: Path, keys: str, told: str) -> None:
    (line,) = mistakes(write(tmp_path, f"[learner]\n{keys}\n"))
    assert f"learner.{told}" in line or f"learner: {told}" in line, line


def test_one_of_several_devices_and_options_that_are_as_always_are_no_mistake(tmp_path: Path) -> None:
    Experiment.load(write(tmp_path, '[learner]\nlogical_cpus = 2\ndevices = ["CPU:1"]\nprocesses = 2\n'))


def test_every_mistake_is_reported_at_once_with_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """seed = 3
[run]
algorithm = "gaa"
seed = true
generations = nan
[environment]
sizee = 10
size = 3
observation = "windw"
rewards = {fruit = 0.0001, death = "x"}
[gaa]
x = 1
[policy]
conv = [[8, 3, "2"], 5]
[ga]
population = 10
elites = 1
[test]
every = 1979-05-27
""",
    )
    assert mistakes(path, "ga.parents=99", "foo", workers="0", backend="proceses") == [
        "1: seed: must be in a section, as in [run]",
        '3: run.algorithm: "gaa" is not known - did you mean `ga`? (there are '
        + ", ".join(registry.names("algorithms"))
        + "; --plugin adds others)",
        "4: run.seed: must be a whole number, not true",
        "5: run.generations: must be a whole number, not nan",
        "7: environment.sizee: unknown key - did you mean `size`?",
        "8: environment.size: must be at least 4, not 3",
        '9: environment.observation: must be one of "frame", "planes", "ego", "window", "features", "local", '
        'not "windw" - did you mean `window`?',
        '10: environment.rewards.death: must be a number, not "x"',
        "10: environment.rewards.fruit: fruit = 0.0001 is not a multiple of 0.001 within a million",
        "11: gaa: unknown section - did you mean `ga`?",
        '14: policy.conv[0][2]: must be a whole number, not "2"',
        "14: policy.conv[1]: must be a list, not 5",
        "19: test.every: must be a whole number, not a date or time",
        "--set foo: must be SECTION.KEY=VALUE, as in ga.population=256",
        '--backend: "proceses" is not known - did you mean `processes`? (there are '
        + ", ".join(registry.names("evaluators"))
        + "; --plugin adds others)",
        "--set ga.parents: 99 of a population of 10",
        '--workers: must be at least 1 or "auto", not 0',
    ]


def test_a_game_whose_file_is_here_is_named_with_how_to_load_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "maze.py").touch()
    (line,) = mistakes(write(tmp_path, '[environment]\nid = "maze"\n'))
    assert line.endswith('maze.py is here: add --plugin maze (in Python plugins=["maze"])')


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("environment.id=CartPole-v1", '"CartPole-v1" is not known - did you mean `gymnasium:CartPole-v1`?'),
        ("environment.id=tetris", 'a registered one is named as in "gymnasium:CartPole-v1"'),
        ("environment.id=gymnasium:CartPol-v1", "Did you mean: `CartPole`?"),
        ("environment.id=gymnasium:", "registered name"),
        ("environment.id=3", "must be text in quotes, not 3"),
        ("env.size=3", "--set env.size: unknown section - did you mean `environment`?"),
    ],
)
def test_a_wrong_name_of_an_environment_is_all_that_is_said_of_it(tmp_path: Path, typed: str, said: str) -> None:
    snake = '[environment]\nsize = 6\nobservation = "planes"\nstarvation = 50\n'
    (line,) = mistakes(write(tmp_path, snake), typed)
    assert line.startswith(f"--set {typed.partition('=')[0]}: ")
    assert said in line


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ('[policy]\nkind = "cnn"\nconv = [[8, 12, 1]]\npadding = "valid"\n[environment]\nwindow = 9', 3, "too small"),
        ('[policy]\n\nkind = "cnn"\n[environment]\nid = "gymnasium:CartPole-v1"', 3, "image"),
        ("[environment]\n\nstarvation = 0", 1, "max_steps"),
        ('[environment]\nsize = 8\nactions = "absolute"', 3, "relative"),
        ("[environment]\nsize = 8\n\nwindow = 16", 4, "odd"),
        ("[ga]\npopulation = 100\nparents = 101", 3, "population of 100"),
        ('[workers]\nmemory = "limit"', 1, "memory_limit_mb"),
        ('[environment]\nid = "snakes"', 2, "did you mean `snake`?"),
        ("[environment]\nid = 5", 2, "text in quotes"),
        ('[environment]\nid = "gymnasium:NoSuch-v1"', 2, "NoSuch"),
        ('[environment]\nid = "gymnasium:antigravity:CartPole-v1"', 2, "--plugin"),
        ("ga = 5", 1, "must be a section [ga]"),
        ("[[run]]", 1, "must be a section [run]"),
        ("[provenance]\na = 1", 1, "run directory"),
        ("[run]\nseed = 18446744073709551616", 2, "less than 18446744073709551616"),
        ("[run]\nseed = -1", 2, "at least 0"),
        ("[ga]\nsigma = inf", 2, "finite"),
        ("[ga]\n\nsigma = true", 3, "a number"),
        ('[ga]\npopulation = "512"', 2, 'must be a whole number, not "512"'),
        ("[ga]\npopulation = 512.0", 2, "must be a whole number, not 512.0; write 512"),
        ("[run]\nbudget = { frames = 1e6 }", 2, "must be a whole number, not 1000000.0; write 1_000_000"),
        ("[ga]\npopulation = 512.5", 2, "must be a whole number, not 512.5"),
        ("[ga]\nalive_steps = 2147483648", 2, "must be at most 10000000, not 2147483648"),
        ("[ga]\n\nsigma = 0x" + "f" * 6000, 3, "huge"),
        ("[run]\nbudget = { frames = 1" + "0" * 300 + " }", 2, "run.budget: has a huge whole number"),
        ("[run]\nalgorithm = 0.5", 2, "text in quotes"),
    ],
)
def test_a_contradiction_names_the_line_that_can_be_changed(tmp_path: Path, text: str, place: int, word: str) -> None:
    (line,) = mistakes(write(tmp_path, text))
    assert line.startswith(f"{place}: ")
    assert word in line


@pytest.mark.parametrize(
    ("content", "place", "word"),
    [
        (b"[run]\nseed = 1\nseed = 2", 3, "overwrite"),
        (b"[run]\n[ga]\n[run]\n", 3, "twice"),
        (b"[run]\nseed = \n", 2, "Invalid value"),
        (b"[run]\nseed = [1,\n", 2, "end of the file"),
        (b"[run]\n# caf\xe9\n", 2, "UTF-8"),
        (b"\xef\xbb\xbf[run]\n", 1, "byte order mark"),
        ("[run]\nseed = 1".encode("utf-16"), 1, "byte order mark"),
        (b"[run]\nseed = 1\0\n", 2, "NUL"),
        (b"[run]\nseed = " + b"1" * 5000, 1, "digits"),
        (b"a = " + b"[" * 30_000 + b"]" * 30_000, 1, "nested"),
        (b"a = " + b"[" * 200_000, 1, "64 KiB"),
        (b"[run]\n" + b".".join([b"a"] * 20_000) + b" = 1", 2, "nested"),
        (b"[run]\n" + b" . ".join([b"'a.b'"] * 8_000) + b" = 1", 2, "nested"),
        (b"a = 2024-02-31", 1, ""),
        (b"#" * (64 * 1024 + 1), 1, "64 KiB"),
    ],
)
def test_hostile_content_is_refused_in_one_line(tmp_path: Path, content: bytes, place: int, word: str) -> None:
    (line,) = mistakes(write(tmp_path, content))
    assert line.startswith(f"{place}: ")
    assert word in line
    assert len(line) < 300


LONG = {
    "digits": "9",
    "letters": "a",
    "quotes": '"',
    "quoted": '"a" ',
    "words": "a ",
    "spaces": " ",
    "escapes": "\\",
    "parts": "a.",
    "brackets": "[",
    "braces": "{a=",
    "keys": "x=1\n",
    "lines": "\n",
}


@pytest.mark.parametrize("what", LONG)
def test_no_text_takes_long_to_refuse(tmp_path: Path, what: str) -> None:
    began = time.process_time()
    for head in ("", "[ga]\nsigma = ", '[run]\nalgorithm = "', "[ga]\n"):
        path = write(tmp_path, head + LONG[what] * ((60_000 - len(head)) // len(LONG[what])))
        ends_well(path)
    assert time.process_time() - began < 5


@pytest.mark.long
def test_thousands_of_mistakes_are_not_all_told(tmp_path: Path) -> None:
    for text in ("\n".join(f"[a{i}]" for i in range(8000)), "[ga]\n" + "\n".join(f"a{i} = 1" for i in range(6000))):
        lines = mistakes(write(tmp_path, text))
        assert len(lines) == 51
        assert lines[-1] == "and more of the same"


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    for name, word in {"pipe": "regular", "folder": "directory", "loop": "symbolic", "none": "No such file"}.items():
        (line,) = mistakes(tmp_path / f"{name}.toml")
        assert not re.match(r"\d", line)  # no line of it is wrong
        assert word in line
    with pytest.raises(ConfigurationError, match="not a regular file"):
        Experiment.load("/dev/null")
    with pytest.raises(ConfigurationError, match="is not the path of a file"):
        Experiment.load("a\0b.toml")


def test_control_characters_in_a_name_are_escaped(tmp_path: Path) -> None:
    (line,) = mistakes(write(tmp_path, '[ga]\n"sig\\u001b[2Jma" = 1'))
    assert "\\x1b" in line
    assert mistakes(tmp_path / "experiment.toml", "ga.sig\x1bma=2")[1].startswith("--set ga.sig\\x1bma")


def test_later_sources_override_earlier_ones(tmp_path: Path) -> None:
    path = write(tmp_path, "[run]\nseed = 2\ngenerations = 10\n[ga]\ngenerations = 20\n[workers]\ncount = 1")
    assert Experiment.load(path).generations == 20
    assert Experiment.load(path, "ga.generations=0").generations == 10
    assert Experiment.load(path, "ga.generations=30").generations == 30
    assert Experiment.load(path, "ga.generations=30", generations="40").generations == 40
    assert Experiment.load(path, "run.seed=3").run.seed == 3
    assert Experiment.load(path, "run.seed=3", seed="4", workers="auto", backend=None).run.seed == 4
    assert Experiment.load(path, "environment.rewards.win=2.5").environment.rewards.win == 2.5
    assert Experiment.load(path, "environment.rewards.win=2.5").environment.rewards.death == -1.0
    assert Experiment.load(path, "environment.observation=planes").environment.observation == "planes"
    assert Experiment.load(path, 'environment.observation="ego"').environment.observation == "ego"


def test_a_value_cannot_smuggle_another_key_in(tmp_path: Path) -> None:
    (line,) = mistakes(write(tmp_path, ""), "ga.population=8\n[run]\nseed=7")
    assert line.startswith("--set ga.population: must be a whole number")


def test_the_resolved_file_loads_to_an_equal_experiment(tmp_path: Path) -> None:
    text = """
[run]
budget = {frames = 5, validation = 1.5}
[policy]
preset = "seed"
[environment]
observation = "frame"
actions = "absolute"
tail = "fatal"
starvation = 100
rewards = {win = 0.25}
"""
    first = Experiment.load(write(tmp_path, text), "ga.sigma=1e-7", "run.seed=18446744073709551615")
    about = {"format": FORMAT, "versions": {"numpy": "2"}, "git_commit": 'a"b\\\x7f\n'}
    resolved = write(tmp_path, first.to_toml(about))
    again = Experiment.load(resolved, resolved=True)
    assert again == first
    assert again.identity() == first.identity()
    assert again.to_toml() == first.to_toml()
    assert again.policy.conv == [[100, 4, 1], [200, 3, 1]]
    assert mistakes(resolved)[0].endswith("in a run directory; remove the section")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('policy = "a\\n\\nverified.\\r\\u001b.keras"', r' policy: "a\n\nverified.\r\u001b.keras": '),
        ('[policy]\nlayers = ["dense 4", "x\\n1: done"]', r'2: policy.layers[1]: "x\n1: done" is not known'),
    ],
)
def test_no_text_of_a_file_makes_a_line_of_its_own(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Experiment.load(file := write(tmp_path, text))
    assert str(caught.value).startswith(f"{file}:{line}")
    assert str(caught.value).isprintable()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_run_of_another_version_is_named_and_a_mistyped_option_is_not(tmp_path: Path) -> None:
    text = Experiment.load(write(tmp_path, "")).to_toml({"format": FORMAT})
    resolved = write(tmp_path, text.replace("[workers]\n", "[workers]\nof_before = 0\n"))
    with pytest.raises(ConfigurationError, match=r"workers.of_before: unknown key.*\n.*another version of snake-evo"):
        Experiment.load(resolved, resolved=True)
    with pytest.raises(ConfigurationError) as mistyped:
        Experiment.load(write(tmp_path, text), "workers.of_now=0", resolved=True)
    assert "another version" not in str(mistyped.value)


def test_the_identity_holds_what_changes_results_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    identity = Experiment.load(path).identity()
    for same in (
        "workers.count=3",
        "test.every=3",
        "ga.generations=4",
        "run.generations=4",
        "policy.inference=lanes",
    ):
        assert Experiment.load(path, same).identity() == identity
    assert Experiment.load(path, "environment.rewards={fruit=1}").identity() == identity
    for other in ("run.seed=2", "environment.size=9", "policy.dense=[17]", "ga.sigma=0.2", "validation.episodes=9"):
        assert Experiment.load(path, other).identity() != identity
    lines = difference(identity, Experiment.load(path, "run.seed=2", "environment.rewards.win=3").identity())
    assert lines == ["environment.rewards.win: 10.0 in the run, 3.0 now", "seed: 1 in the run, 2 now"]


def test_an_option_without_a_value_has_its_default_again(tmp_path: Path) -> None:
    path = write(tmp_path, "[ga]\nsigma = 0.5\n[environment]\nsize = 6\nrewards = { win = 3.0 }\n")
    (tmp_path / "plain").mkdir()
    plain = write(tmp_path / "plain", "[environment]\nsize = 6\n")
    assert Experiment.load(path, "ga.sigma=", "environment.rewards=") == Experiment.load(plain)
    assert Experiment.load(path, "ga.sigma=", "ga.sigma=0.7").options.sigma == 0.7
    assert Experiment.load(path, "ga.sigma=0.7", "ga.sigma= ").options.sigma == Experiment.load(plain).options.sigma
    assert Experiment.load(path, "ppo.gamma=", "run.init_from=") == Experiment.load(path)  # nothing sets them
    (told,) = mistakes(path, "ga.sgma=")
    assert told == "--set ga.sgma: unknown key - did you mean `sigma`?"
    (told,) = mistakes(path, "run.test.episodes=8")
    assert told == "--set run.test.episodes: run.test: unknown key - [test] is a section of its own; leave `run.` out"
    told = mistakes(path, "ga.restart_population=2")[0]
    assert told.startswith("--set ga.restart_population: unknown key; known are ")  # it is no population
    assert mistakes(path, "ga.sigma.more=")[0].startswith("--set ga.sigma.more: unknown key")
    assert mistakes(path, "gaa.sigma=")[0].startswith("--set gaa.sigma: unknown section - did you mean `ga`?")
    (told,) = mistakes(path, "ga.population=10", "ga.parents=")
    assert told.startswith("--set ga.parents: 16 of a population of 10")


@pytest.mark.parametrize("event", ["starved", "step"])
def test_only_a_reward_of_this_event_that_is_given_is_part_of_the_identity(tmp_path: Path, event: str) -> None:
    path = write(tmp_path, "")
    assert event not in Experiment.load(path).identity()["environment"]["rewards"]
    assert (
        Experiment.load(path, f"environment.rewards.{event}=-0.5").identity()["environment"]["rewards"][event] == -0.5
    )


def test_a_preset_and_its_layers_are_the_same_identity(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    layers = ["policy.conv=[[100, 4, 1], [200, 3, 1]]", "policy.dense=[200]", "policy.padding=valid"]
    assert Experiment.load(path, "policy.preset=seed").identity() == Experiment.load(path, *layers).identity()


def test_a_plugin_must_say_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing_much.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("nothing_much", "nowhere_at_all", "", ".relative"):
        with pytest.raises(ConfigurationError, match=re.escape(f"--plugin {module}:")):
            registry.load([module])


# Whatever is written, the end is an experiment or a ConfigurationError with a place on every line.

SECTIONS = {name: list(model.model_fields) for name, model in FIXED.items()} | {
    name: list(registry.find("algorithms", name).Options.model_fields) for name in registry.names("algorithms")
}
SECTIONS["environment"] = list(registry.find("environments", "snake").Options.model_fields)
SCALARS = st.one_of(
    st.integers(-(1 << 70), 1 << 70),
    st.integers(0, 20),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(
        ["auto", "snake", "gymnasium:CartPole-v1", "ego", "relative", "valid", "mlp", "seed", "ga", "limit"]
    ),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


def ends_well(path: Path, *sets: str) -> Experiment | None:
    try:
        experiment = Experiment.load(path, *sets)
    except ConfigurationError as error:
        for line in str(error).split("\n"):
            assert PLACE.fullmatch(line), line
            assert line.isprintable()
        return None
    resolved = write(path.parent, experiment.to_toml({"format": FORMAT}))
    assert Experiment.load(resolved, resolved=True) == experiment
    return experiment


@st.composite
def experiments(draw: st.DrawFn) -> str:
    lines = []
    for section in draw(st.lists(st.sampled_from(sorted(SECTIONS)), unique=True, max_size=4)):
        lines.append(f"[{section}]")
        keys = st.sampled_from(SECTIONS[section]) | st.text(max_size=4)
        for key in draw(st.lists(keys, unique=True, max_size=4)):
            lines.append(f"{key_text(key)} = {value_text(draw(VALUES))}")
    return "\n".join(lines)


@given(text=experiments())
def test_any_values_end_well(text: str, folder: Path) -> None:
    ends_well(write(folder, text))


@given(text=st.text(st.sampled_from(list("[]{}=,.#'\"\\\n\t 01eaxrung-_:\x00é")), max_size=60) | st.binary(max_size=60))
def test_any_bytes_end_well(text: str | bytes, folder: Path) -> None:
    ends_well(write(folder, text))


@given(
    section=st.sampled_from(sorted(SECTIONS)),
    data=st.data(),
    value=VALUES.map(value_text) | st.text(string.printable, max_size=20),
)
def test_any_assignment_ends_well(section: str, data: st.DataObject, value: str, folder: Path) -> None:
    key = data.draw(st.sampled_from(SECTIONS[section]) | st.text(max_size=4))
    ends_well(write(folder, ""), f"{section}.{key}={value}", data.draw(st.text(max_size=10)))


@pytest.mark.parametrize("value", ["{", "{0}", "a{b}"])
def test_a_text_where_a_list_is_wanted_is_told_as_it_is(folder: Path, value: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f'must be a list, as in ["{value}"], not "{value}"')):
        Experiment.load(write(folder, ""), f"learner.devices={value}")


def test_small_variations_of_a_good_file_are_mostly_good(tmp_path: Path) -> None:
    good = [
        ("environment.size", "8"),
        ("ga.population", "100"),
        ("policy.kind", "mlp"),
        ("run.seed", "9"),
        ("ga.sigma_spread", "1.0"),
    ]
    for key, value in good:
        assert ends_well(write(tmp_path, ""), f"{key}={value}") is not None


def test_the_default_of_every_option_is_valid_by_itself(tmp_path: Path) -> None:
    for name, model in FIXED.items():
        for key, info in model.model_fields.items():
            assert info.description, f"{name}.{key} has no description"
    assert Experiment.load(write(tmp_path, Experiment.load(write(tmp_path, "")).to_toml())).run == RunOptions()


def test_options_of_another_backend_are_validated_kept_and_ignored(tmp_path: Path) -> None:
    text = '[workers]\nresources = {GPU = 0.5}\naddress = "auto"\n'
    path = write(tmp_path, text)
    on_processes, on_ray = Experiment.load(path), Experiment.load(path, backend="ray")
    assert on_processes.other_backends == {"resources": {"GPU": 0.5}, "address": "auto"}
    assert (on_ray.workers.resources, on_ray.workers.address) == ({"GPU": 0.5}, "auto")
    again = Experiment.load(write(tmp_path, on_processes.to_toml()), backend="ray")
    assert again.workers == on_ray.workers
    (line,) = mistakes(write(tmp_path, "[workers]\nresources = {GPU = 2}\n"))
    assert line == "2: workers.resources: a worker computes on one GPU or a part of it; GPU must be at most 1"
    (line,) = mistakes(write(tmp_path, "[workers]\nresource = 1\n"))
    assert "workers.resource: unknown key" in line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[ppo]\nn_steps = 8\n", "2: ppo.n_steps: unknown key - it is called `horizon` here"),
        (
            '[run]\nalgorithm = "ddpg"\n',
            '2: run.algorithm: "ddpg" is not one of the algorithms here; for continuous actions choose td3 or sac, '
            "ppo, or evolution, as pgpe or sep_cma_es",
        ),
        (
            "[ppo]\nvf_coef = 0.5\n",
            "2: ppo.vf_coef: unknown key - "
            "set value_coefficient, of half the squared error: twice that of Stable-Baselines3",
        ),
        ("[ppo]\nent_coef = 0.1\n", "2: ppo.ent_coef: unknown key - it is called `entropy_coefficient` here"),
        (
            '[sac]\nent_coef = "auto"\n',
            '2: sac.ent_coef: unknown key - set temperature with learn_temperature = false; "auto" is the default',
        ),
        (
            "[ppo]\npolicy_kwargs = {}\n",
            "2: ppo.policy_kwargs: unknown key - set options of [policy], as dense = [64, 64]",
        ),
        ("[policy]\nnet_arch = [64]\n", "2: policy.net_arch: unknown key - it is called `dense` here"),
        (
            '[run]\nalgorithm = "recurrent_ppo"\n',
            '2: run.algorithm: "recurrent_ppo" is ppo here, with policy.memory = "lstm:UNITS"',
        ),
        ("[ga]\npopsize = 8\n", "2: ga.popsize: unknown key - it is called `population` here"),
        *(
            (
                f"[{section}]\ntotal_timesteps = 8\n",
                f"2: {section}.total_timesteps: unknown key - "
                "set run.budget.frames (steps), or run.generations (rollouts)",
            )
            for section in ("run", "ppo")
        ),
        (
            "[ppo]\nbatch_size = 64\n",
            "2: ppo.batch_size: unknown key - set minibatches = envs x horizon / batch_size",
        ),
        (
            "[environment]\ntraining = { sise = 5 }\n",
            "2: environment.training: sise: unknown key - did you mean `size`?",
        ),
        (
            "[environment]\ntraining = { size = 3 }\n",
            "2: environment.training: size: must be at least 4, not 3",
        ),
    ],
)
def test_names_of_other_libraries_and_mistakes_in_training_rules_are_told_in_our_words(
    tmp_path: Path, text: str, told: str
) -> None:
    assert mistakes(write(tmp_path, text)) == [told]


@pytest.mark.parametrize(
    ("algorithm", "option"), [("map_elites", "descriptors"), ("cma_me", "descriptors"), ("nsga2", "objectives")]
)
def test_a_measure_that_the_environment_does_not_have_is_a_mistake_of_the_file(
    tmp_path: Path, algorithm: str, option: str
) -> None:
    path = write(tmp_path, f'[run]\nalgorithm = "{algorithm}"\n[{algorithm}]\n{option} = ["jumps"]\n')
    (told,) = mistakes(path)
    assert told.startswith(f"4: {algorithm}.{option}: jumps unknown here; there are ")


def test_a_run_whose_plug_in_is_here_is_told_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"algorithms here; add the plug-in that has it: --plugin mine, or package\.mine$"
    ):
        require_plug_ins("run", "mine", "snake")
    (tmp_path / "mine.py").touch()
    with pytest.raises(ConfigurationError, match=r"algorithms here; mine\.py is here: add --plugin mine \(in Python "):
        require_plug_ins("run", "mine", "snake")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ga_snak.toml", " - did you mean `experiments/ga_snake.toml`?"),
        ("experiments/ga_snake", " - did you mean `experiments/ga_snake.toml`?"),
        ("./min.toml", " - did you mean `mine.toml`?"),
        ("other.toml", "; `evo list` says where experiments are"),
        ("no/other.toml", "; `evo list` says where experiments are"),
    ],
)
def test_a_missing_experiment_is_told_with_one_of_nearly_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, meant: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").mkdir()
    for name in ("mine.toml", "experiments/ga_snake.toml"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigurationError) as raised:
        Experiment.load(typed)
    assert str(raised.value) == f"{typed}: cannot be read: No such file or directory{meant}"


def test_a_run_can_be_read_without_the_other_plug_ins_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_loaded", {})
    for name in ("walks_first", "walks_second"):
        (tmp_path / f"{name}.py").write_text((ROOT / "tests/plugins/climber.py").read_text())
    registry.load(["walks_first", "walks_second"])
    text = Experiment.build(run={"algorithm": "walks_first"}).to_toml()
    assert "[walks_first]" in text
    assert "[walks_second]" not in text
