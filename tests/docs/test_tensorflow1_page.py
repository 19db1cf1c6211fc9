"""The page for those who come from TensorFlow 1 has a row a capability, and its commands run tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_faults_page import found_in

PAGE = (Path(__file__).parents[2] / "docs" / "from_tensorflow1.md").read_text()
ROWS = {int(row[1]): row[2] for row in re.finditer(r"^\| (\d+) \| .+? \| (\*.+) \|$", PAGE, re.MULTILINE)}
COMMAND = re.compile(r"`python (?:-m pytest|-m evo export|docs/examples/)[^`]*`")
TESTS = re.compile(r'`python -m pytest( -m "")?((?: tests/[\w/]+\.py)+)(?: -k (?:"([\w ]+)"|(\w+)))?`')


def test_every_capability_has_its_row_and_what_works_has_a_command() -> None:
    assert list(ROWS) == list(range(1, 50))
    for number, told in ROWS.items():
        assert re.match(r"\*(works|replaced by|not here, because)\*", told), number
        assert COMMAND.search(told) or not told.startswith("*works*"), number


@pytest.mark.parametrize("number", ROWS)
def test_every_test_that_a_row_names_is_run_by_its_command(number: int) -> None:
    named = re.findall(r"`python -m pytest[^`]*`", ROWS[number])
    assert len(named) == len(TESTS.findall(ROWS[number]))
    for long, files, several, one in TESTS.findall(ROWS[number]):
        names = re.findall(r"tests/([\w/]+)\.py", files)
        found = {name: slow for file in names for name, slow in found_in(file).items()}
        for word in (several or one or "test").split(" or "):
            chosen = [slow for name, slow in found.items() if word in name]
            assert chosen, word
            assert long or not all(chosen), word  # long ones need the flag
