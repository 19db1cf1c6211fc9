"""Whatever an experiment says, and whatever is typed beside it, the command ends with success or with exit 2."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evo.cli.main import main
from evo.toml import value_text
from tests.config.test_config import SECTIONS, VALUES, experiments
from tests.helpers.sampling import sampled

ROOT = Path(__file__).parents[2]
GOOD = (ROOT / "experiments" / "ga_snake_6x6.toml").read_text()
NASTY = [
    "",
    "\0",
    "\x1b[2J",
    "\ud800",
    "\u202e",
    "[" * 60_000,
    "a" * 70_000,
    "9" * 5_000,
    "=",
    "[[",
    "'''",
    "nan",
    "-inf",
]

WORDS = st.one_of(
    st.sampled_from(["--set", "--seed", "--workers", "--backend", "--algorithm", "--generations", "--quiet", "--"]),
    st.builds(
        lambda section, key, value: f"--set={section}.{key}={value}",
        st.sampled_from(sorted(SECTIONS)),
        st.sampled_from(sorted({key for keys in SECTIONS.values() for key in keys})) | st.text(max_size=4),
        VALUES.map(value_text) | st.text(max_size=12),
    ),
    st.text(max_size=12),
)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A good experiment in which something has gone wrong."""
    data = bytearray(GOOD.encode())
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, len(data)))
        last = draw(st.integers(first, min(len(data), first + 30)))
        data[first:last] = draw(st.binary(max_size=12) | st.sampled_from(NASTY).map(_bytes))
    return bytes(data)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


TEXTS = experiments().map(_bytes) | spoiled() | st.binary(max_size=80)


def ends(path: Path, text: bytes, words: list[str]) -> int:
    """Run the command as it is typed, in this process, and return its exit code; what it says can be shown."""
    path.write_bytes(text)
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            code = main(["run", str(path), "--dry-run", "--json", *words])
        except SystemExit as end:  # --help
            return int(end.code or 0)
    assert all(line.isprintable() for line in errors.getvalue().split("\n"))
    assert "Traceback" not in errors.getvalue()
    assert len(errors.getvalue()) < 100_000
    last = json.loads(output.getvalue().splitlines()[-1])
    assert last["status"] == ("failed" if code else "done")
    return code


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "experiment.toml"


def try_everything(file: Path, examples: int) -> set[int]:
    codes = set()

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(text=TEXTS, words=st.lists(WORDS, max_size=4))
    def end_well(text: bytes, words: list[str]) -> None:
        code = ends(file, text, words)
        assert code in (0, 2), code
        codes.add(code)

    end_well()
    return codes


def test_any_experiment_and_any_words_end_in_success_or_exit_2(file: Path) -> None:
    assert try_everything(file, 100) == {0, 2}


@pytest.mark.long
def test_2000_experiments_and_words_end_in_success_or_exit_2(file: Path) -> None:
    assert try_everything(file, 2000) == {0, 2}


@pytest.mark.parametrize("nasty", NASTY, ids=range(len(NASTY)))
def test_nasty_text_anywhere_ends_in_success_or_exit_2(file: Path, nasty: str) -> None:
    places = [0, GOOD.index("seed = ") + 7, GOOD.index('"ga"') + 1, len(GOOD)]
    for place in places:
        assert ends(file, _bytes(GOOD[:place] + nasty + GOOD[place:]), []) in (0, 2)
    if "\0" not in nasty:
        for word in (f"--set=ga.sigma={nasty}", f"--set={nasty}=1", f"--seed={nasty}"):
            default = word == "--set=ga.sigma="  # without a value the default comes back
            assert ends(file, GOOD.encode(), [word]) == (0 if default else 2)


@pytest.mark.parametrize("number", sampled(range(4)))
def test_a_real_process_ends_the_same_way(tmp_path: Path, number: int) -> None:
    dice = random.Random(number)
    data = bytearray(GOOD.encode())
    place = dice.randrange(len(data))
    data[place : place + dice.randrange(40)] = dice.randbytes(dice.randrange(1, 40))
    (tmp_path / "experiment.toml").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "evo.run", str(tmp_path / "experiment.toml"), "--dry-run", "--json"],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 2)
    assert b"Traceback" not in done.stderr
    assert ends(tmp_path / "experiment.toml", bytes(data), []) == done.returncode
