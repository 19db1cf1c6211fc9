"""Run directories and names that somebody made up: every command ends with a line, and the terminal stays as it was."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import socket
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.cli.main import main
from evo.cli.terminal.display import Display
from evo.cli.terminal.screen import Screen
from evo.config.experiment import Experiment
from evo.errors import CONTROL, ConfigurationError, notice, printable
from evo.files.arrays import ArrayDigest, encode, first_hash, next_hash
from evo.files.durable import with_checksum, without_checksum
from evo.store.champion import encode_champion, facts_of, read_champion, split_layers
from evo.store.run_directory import refuse_existing
from tests.helpers.sampling import sampled

SMALL = """
run = {generations = 2}
environment = {size = 5, window = 5, starvation = 30}
policy = {kind = "mlp", dense = [4]}
workers = {backend = "serial"}
test = {every = 2, episodes = 4}
[ga]
population = 8
parents = 4
elites = 2
episodes = 2
"""
ESCAPE = "\x1b[2J\x9b2J\r\u202e"
COMMANDS = (["evaluate", "--episodes", "2"], ["replay"], ["resume", "--generations", "3"])


def typed(*words: str) -> tuple[int, str]:
    """Run a command; return its exit code and all that the terminal was shown, which has no control characters."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = main(words)
    shown = output.getvalue()
    assert all(line.isprintable() for line in shown.split("\n")), shown
    assert "Traceback" not in shown
    return code, shown


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    (place / "small.toml").write_text(SMALL)
    code, shown = typed("run", str(place / "small.toml"), "--run-dir", str(place / "run"), "--quiet")
    assert code == 0, shown
    return place / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def with_identity(run: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change the identity in the manifest and its checksum, as somebody who means it would."""
    first, _, rest = (run / "manifest.jsonl").read_bytes().partition(b"\n")
    value = without_checksum(first)
    identity = change(dict(value["identity"]))
    value |= {"identity": identity, "state_hash": first_hash(identity) if isinstance(identity, dict) else "00" * 32}
    (run / "manifest.jsonl").write_bytes(with_checksum(value) + b"\n" + rest)


def with_lines(run: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the lines of the manifest, with all checksums and hashes as if a run had written it."""
    lines = [without_checksum(line) for line in (run / "manifest.jsonl").read_bytes().splitlines()]
    change(lines)
    before = lines[0]["state_hash"] = first_hash(lines[0]["identity"])
    for number, line in enumerate(lines[1:]):
        arrays = {name: ArrayDigest(*one) for name, one in line["arrays"].items()}
        before = line["state_hash"] = next_hash(before, number, arrays)
    (run / "manifest.jsonl").write_bytes(b"".join(with_checksum(line) + b"\n" for line in lines))


def with_facts(run: Path, **facts: object) -> None:
    """Change facts of the champion, and of them the score."""
    champion = read_champion(run)
    about = {**champion.about, **facts}
    about["test"] = {**champion.about["test"], **dict(facts.get("test", {}))}  # type: ignore[call-overload]
    text = np.frombuffer(facts_of(champion.weights, champion.layers, about), np.uint8)
    (run / "champion.h5").write_bytes(encode({"about": text, **split_layers(champion.weights, champion.layers)}))


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def elsewhere(path: Path) -> None:
    """Put a link to an empty directory of somebody else in the place of a folder."""
    other = path.parent.parent / "elsewhere"
    other.mkdir()
    if path.exists():
        shutil.rmtree(path)
    path.symlink_to(other)


def instead(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(data)


def fifo(name: str) -> Callable[[Path], object]:
    return lambda run: ((run / name).unlink(missing_ok=True), os.mkfifo(run / name))


def link(name: str) -> Callable[[Path], object]:
    return lambda run: ((run / name).unlink(missing_ok=True), (run / name).symlink_to("/etc/passwd"))


HOSTILE: dict[str, Callable[[Path], object]] = {
    "no identity": lambda run: with_identity(run, lambda identity: {}),
    "an identity of nothing": lambda run: with_identity(run, lambda identity: dict.fromkeys(identity)),
    "an identity of lists": lambda run: with_identity(run, lambda identity: {key: [[None]] for key in identity}),
    "an identity that is a list": lambda run: with_identity(run, lambda identity: [identity]),
    "an identity without end": lambda run: with_identity(run, lambda identity: nested(900)),
    "an identity that is deep": lambda run: with_identity(run, lambda identity: nested(30)),
    "an identity that clears the screen": lambda run: with_identity(run, lambda identity: {**identity, ESCAPE: ESCAPE}),
    "an algorithm that clears the screen": lambda run: with_identity(run, lambda one: {**one, "algorithm": ESCAPE}),
    "a configuration that clears the screen": instead("config.resolved.toml", b'[run]\n"\\u001b[2J" = "\\u009b2J"'),
    "a configuration that is a pickle": instead("config.resolved.toml", pickle.dumps(SMALL)),
    "a configuration that is a pipe": fifo("config.resolved.toml"),
    "a configuration that is another file": link("config.resolved.toml"),
    "a manifest that is a pickle": instead("manifest.jsonl", pickle.dumps({})),
    "a manifest that is a pipe": fifo("manifest.jsonl"),
    "a manifest that is another file": link("manifest.jsonl"),
    "a manifest of brackets": instead("manifest.jsonl", b"[" * 300_000 + b"\n"),
    "a champion that is a pickle": instead("champion.h5", pickle.dumps(SMALL)),
    "a champion that is a pipe": fifo("champion.h5"),
    "a champion that is another file": link("champion.h5"),
    "metrics that are a pipe": fifo("metrics.jsonl"),
    "metrics that are another file": link("metrics.jsonl"),
    "a fingerprint that is a pipe": fifo("fingerprint"),
    "a lock that is another file": link("lock"),
    "a lock of nobody": instead("lock", ESCAPE.encode()),
    "a population elsewhere": lambda run: elsewhere(run / "population"),
    "records elsewhere": lambda run: elsewhere(run / "records"),
    "published weights elsewhere": lambda run: elsewhere(run / "published"),
    "a place for damage elsewhere": lambda run: (
        elsewhere(run / "damaged"),
        instead("population/gen-000001.h5", b"damage")(run),
    ),
}


@pytest.mark.parametrize("what", sampled(HOSTILE, *range(0, len(HOSTILE), 6)))
def test_every_command_on_a_hostile_run_directory_ends_with_a_line(run: Path, what: str) -> None:
    HOSTILE[what](run)
    for command, *flags in COMMANDS:
        code, shown = typed(command, str(run), *flags)
        assert code in (0, 2, 3, 5), shown
        assert code == 0 or shown.strip()
    if (run.parent / "elsewhere").exists():
        assert os.listdir(run.parent / "elsewhere") == []
    files = [path for path in run.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not any(b"root:x:" in path.read_bytes() for path in files)


NUMBERS: dict[str, Callable[[Path], object]] = {
    "seconds that no float can be": lambda run: with_lines(run, lambda lines: lines[1].update(seconds=10**400)),
    "seconds without an end": lambda run: with_lines(run, lambda lines: lines[1].update(cpu_seconds="inf")),
    "a fitness that no float can be": lambda run: with_facts(run, fitness=10**400),
    "a score that no float can be": lambda run: with_facts(run, test={"mean": 10**400}),
    "a score whose square is none": lambda run: with_facts(run, test={"mean": 1e200}),
    "an interval that no float can be": lambda run: with_facts(run, test={"ci95": [-(10**400), 10**400]}),
    "a block of no test": lambda run: with_facts(run, test={"block": 10**18}),
    "half a block": lambda run: with_facts(run, test={"block": 0.5}),
    "no episode": lambda run: with_facts(run, test={"episodes": 0}),
    "a game that is a text": lambda run: with_lines(run, lambda lines: lines[0]["identity"].update(game="mine")),
}


@pytest.mark.parametrize("what", sampled(NUMBERS, *range(0, len(NUMBERS), 3)))
def test_numbers_that_nothing_computes_with_are_a_line(run: Path, what: str) -> None:
    NUMBERS[what](run)
    for command in ("verify", "compare", "report", "doctor"):
        code, shown = typed(command, str(run))
        assert code in (0, 3, 5), shown
    (run.parent / "small.toml").write_text(SMALL)
    with chdir(run.parent):
        code, shown = typed("run", "small.toml", "--set", "run.init_from=run", "--dry-run")
    assert code in (0, 3), shown


def test_no_digest_of_a_file_outside_is_shown(run: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1234")
    text = (run / "config.resolved.toml").read_text()
    (run / "config.resolved.toml").write_text(text.replace('init_from = ""', f'init_from = "{tmp_path}/secret"'))
    shown = "".join(typed(word, str(run))[1] for word in ("doctor", "verify", "report"))
    shown += (run / "report.html").read_text()
    assert 'init_from: "" in the run, "missing" now' in shown
    assert hashlib.sha256(b"1234").hexdigest() not in shown


@pytest.mark.parametrize("name", ["start.h5", "opponent-0.h5"])
def test_a_copy_of_a_network_is_a_plain_file_of_the_run(run: Path, name: str) -> None:
    shutil.copytree(run, run.parent / "elsewhere")
    for target in ("elsewhere", "elsewhere/champion.h5", "nowhere", ""):
        (run / name).symlink_to(run.parent / target) if target else (run / name).mkdir()
        for command in ("resume", "verify", "evaluate", "report"):
            code, shown = typed(command, str(run))
            assert code == 3
            assert shown.endswith(f"{run / name}: a link or a folder, not a file of the run\n")
        (run / name).unlink() if target else (run / name).rmdir()
    shutil.copy(run / "champion.h5", run / name)
    assert typed("resume", str(run))[0] == 0


def test_a_start_that_is_typed_is_not_passed_over_for_the_copy(run: Path) -> None:
    text = (run / "config.resolved.toml").read_text()
    (run / "config.resolved.toml").write_text(text.replace('init_from = ""', 'init_from = "first"'))
    shutil.copy(run / "champion.h5", run / "start.h5")
    known = Experiment.load(run / "config.resolved.toml", resolved=True)
    named = Experiment.load(run / "config.resolved.toml", "run.init_from=second", resolved=True)
    assert (known.run.init_from, named.run.init_from) == (str(run / "start.h5"), "second")


def test_a_run_that_nobody_touched_is_not_refused(run: Path) -> None:
    for command, *flags in COMMANDS:
        assert typed(command, str(run), *flags)[0] == 0


def test_a_run_of_format_1_is_refused_by_a_line_that_says_what_to_do(run: Path) -> None:
    first, _, rest = (run / "manifest.jsonl").read_bytes().partition(b"\n")
    (run / "manifest.jsonl").write_bytes(with_checksum({**without_checksum(first), "format": 1}) + b"\n" + rest)
    config = run / "config.resolved.toml"
    config.write_text(config.read_text().replace("format = 2\n", ""))
    for command in ("evaluate", "replay", "resume"):
        code, shown = typed(command, str(run))
        assert code == 3
        assert "was written in format 1 by an earlier snake-evo; this version reads format 2: train again" in shown


def test_a_champion_of_another_file_is_refused_and_named(run: Path) -> None:
    HOSTILE["a champion that is a pickle"](run)
    for command in ("evaluate", "replay"):
        code, shown = typed(command, str(run))
        assert code == 3
        assert "champion.h5: not a readable HDF5 file of arrays; it seems to be a pickle" in shown


def test_a_file_of_facts_that_are_none_is_measured_again(run: Path) -> None:
    champion = read_champion(run)
    for facts in (
        {},
        {"test": 5},
        {"test": {"episodes": 4}},
        {"test": {**champion.about["test"], "ci95": 1}},
    ):
        about = {**champion.about, "test": None, **facts}
        (run / "champion.h5").write_bytes(encode_champion(champion.weights, champion.layers, about)[0])
        code, shown = typed("resume", str(run), "--json")
        assert code == 0, shown
        score = json.loads(shown.splitlines()[-1])["champion"]["test"]
        assert score == json.loads(json.dumps(champion.about["test"]))


def test_a_film_that_cannot_be_written_is_one_line(run: Path) -> None:
    code, shown = typed("replay", str(run), "--gif", "/proc/film.gif")
    assert code == 5
    assert "cannot write /proc/film.gif" in shown


def test_a_film_is_not_written_into_a_pipe_that_nobody_reads(run: Path) -> None:
    pipe = run.parent / "film.gif"
    os.mkfifo(pipe)
    code, shown = typed("replay", str(run), "--gif", str(pipe))
    assert code == 2
    assert "no file can be written there" in shown


# Names


LONG = "x" * 300


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", LONG),
        ("evaluate", f"run/{LONG}"),
        ("replay", LONG),
        ("replay", "run", "--gif", f"{LONG}.gif"),
        ("export", LONG, "--to", "npz", "out.npz"),
        ("export", "run", "--to", "npz", f"{LONG}.npz"),
        ("resume", LONG),
        ("verify", LONG),
        ("run", f"{LONG}.toml"),
        ("run", "small.toml", "--run-dir", LONG),
        ("run", "small.toml", "--set", f"run.init_from={LONG}"),
        ("run", "small.toml", "--plugin", LONG),
    ],
    ids=lambda words: " ".join(words).replace(LONG, "LONG"),
)
def test_a_name_longer_than_a_file_may_have_is_a_mistake(run: Path, words: tuple[str, ...]) -> None:
    (run.parent / "small.toml").write_text(SMALL)
    with chdir(run.parent):
        code, shown = typed(*words)
        assert code == 2
        assert "File name too long" in shown or words[-2] == "--plugin"
        assert len(shown.splitlines()) <= 3  # the first two lines of a run, and the mistake
        assert sorted(os.listdir(run.parent)) == ["run", "small.toml"]


def test_the_longest_name_that_a_file_may_have_is_written(run: Path) -> None:
    with chdir(run.parent):
        assert typed("export", "run", "--to", "npz", "x" * 251 + ".npz")[0] == 0


def test_a_current_directory_that_was_deleted_is_one_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "deleted").mkdir()
    with chdir(tmp_path / "deleted"):
        (tmp_path / "deleted").rmdir()
        for words in (("evaluate", str(run)), ("run", "small.toml"), ("resume", str(run))):
            code, shown = typed(*words)
            assert (code, len(shown.splitlines())) == (2, 1)
            assert "the current directory was deleted" in shown


@pytest.mark.parametrize("name", [".", "", "../empty", "absolute"])
def test_a_run_does_not_replace_the_current_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "empty").mkdir()
    name = str(tmp_path / "empty") if name == "absolute" else name
    with chdir(tmp_path / "empty"):
        code, shown = typed("run", "../small.toml", "--run-dir", name)
        wanted = f"{Path(name)} is the current directory, which a run replaces; choose another --run-dir\n"
        assert (code, shown, os.listdir()) == (2, wanted, [])


@pytest.mark.parametrize("word", ["a\nb", "a\x1b[2Jb", "a\x9b2J", "a\u2028b", "a\rb", "\0", "a\x7f"])
def test_no_word_of_the_command_line_moves_the_cursor(tmp_path: Path, word: str) -> None:
    with chdir(tmp_path):
        for words in (["run", word], ["run", "x.toml", "--run-dir", word], ["evaluate", word], ["resume", word]):
            code, shown = typed(*words)
            assert code == 2
            assert "control characters" in shown
        assert os.listdir(tmp_path) == []


def test_a_folder_whose_name_turns_the_writing_round_is_shown_escaped(run: Path) -> None:
    turned = run.rename(run.with_name("a\u202ebc"))
    with chdir(run.parent):
        for words in (
            ["report", turned.name],
            ["replay", turned.name, "--film", f"{turned.name}.gif"],
            ["export", turned.name, "--to", "csv", f"{turned.name}.csv"],
            ["export", turned.name, "--to", "npz", f"{turned.name}.npz"],
            ["export", turned.name, "--to", "html", "--episodes", "1", "--output", f"{turned.name}.html"],
        ):
            code, shown = typed(*words)
            assert code == 0, shown


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "/a", "~", "~root", "-x", ".hidden", "a b", "é", "x" * 65, "a\\b"]
)
def test_a_fork_has_a_plain_name(run: Path, name: str) -> None:
    with chdir(run.parent):
        code, shown = typed("resume", str(run), f"--fork={name}")
        assert (code, "is not a plain name" in shown) == (2, True)
        assert sorted(os.listdir(run.parent)) == ["run"]


def test_a_tilde_that_the_shell_has_left_is_no_directory(tmp_path: Path) -> None:
    with chdir(tmp_path):
        for name in ("~/run", "~", "~root/x"):
            with pytest.raises(ConfigurationError, match="not expanded by the shell"):
                refuse_existing(Path(name))
        refuse_existing(Path("./a/~b"))


def test_letters_that_no_terminal_has_are_escaped_and_others_stay() -> None:
    assert printable("a\ud800\u202e\U000e0001é") == "a\\ud800\\u202e\\U000e0001é"
    assert CONTROL.search("run é 走 a.b-c ~") is None


def test_whatever_a_run_says_can_be_shown() -> None:
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        notice(ESCAPE)
        Display().say(ESCAPE)
        Screen().say(ESCAPE)
    assert output.getvalue().count("\\x1b[2J") == 3
    assert all(line.isprintable() for line in output.getvalue().split("\n"))


def test_a_socket_in_a_run_directory_is_no_file(run: Path) -> None:
    (run / "champion.h5").unlink()
    with socket.socket(socket.AF_UNIX) as listening, chdir(run):
        listening.bind("champion.h5")
        assert typed("evaluate", ".")[0] == 3


# A champion by itself


def test_a_champion_is_measured_and_shown_by_its_file_alone(run: Path) -> None:
    (run / "champion.h5").rename(run.parent / "mine.h5")
    shutil.rmtree(run)
    code, shown = typed("evaluate", str(run.parent / "mine.h5"), "--episodes", "4", "--json")
    assert code == 0, shown
    from evo.store.sandbox import read_champion

    score = read_champion(run.parent / "mine.h5").about["test"]
    found = json.loads(shown.splitlines()[-1])
    assert {key: found[key] for key in score} == score
    assert typed("replay", str(run.parent / "mine.h5"))[0] == 0


@pytest.mark.parametrize(
    "facts",
    sampled(
        [
            {"environment": None},
            {"environment": 5},
            {"environment": {"id": "gymnasium:os:system"}},
            {"environment": {"id": "snake", "size": 10**30}},
            {"environment": {"id": "snake", "size": 6, "window": 5}},
            {"environment": nested(400)},
            {"policy": {"kind": "mlp", "dense": [5]}},
            {"policy": {"kind": ESCAPE, ESCAPE: ESCAPE}},
            {"algorithm": "../../etc/passwd"},
            {"algorithm": ["ga"]},
            {"algorithm": None, "seed": None},
            {"seed": "one"},
        ],
        *(1, 2, 3, 6, 8, 10),
    ),
    ids=str,
)
def test_a_champion_that_describes_another_game_or_network_is_refused(run: Path, facts: dict[str, object]) -> None:
    champion = read_champion(run)
    changed = encode_champion(champion.weights, champion.layers, {**champion.about, **facts})[0]
    (run / "champion.h5").write_bytes(changed)
    for command in ("evaluate", "replay"):
        code, shown = typed(command, str(run / "champion.h5"))
        same_network = facts == {"environment": {"id": "snake", "size": 6, "window": 5}}
        assert code == (0 if same_network else 3), shown
