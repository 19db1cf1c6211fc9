"""The page of faults names tests that exist, and leaves none of the long ones out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| fault |")]
FAULTS = [
    *("store/test_store_faults", "store/test_sandbox", "config/test_config_fuzz"),
    *("run/test_golden_hash", "run/test_signals"),
]


def found_in(name: str, *signs: str) -> dict[str, bool]:
    """Return the tests of a file, and whether each is a long one, as "mark.long" or another of these signs says."""
    tree = ast.parse((ROOT / "tests" / f"{name}.py").read_bytes())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    of_all = [node.value for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    return {
        node.name: any(
            sign in ast.unparse(one) for one in (*of_all, *node.decorator_list) for sign in ("mark.long", *signs)
        )
        for node in functions
    }


@pytest.mark.parametrize("row", ROWS, ids=[row.split(" | ")[0][2:] for row in ROWS])
def test_every_row_ends_with_a_command_whose_tests_exist(row: str) -> None:
    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
    assert len(cells) == 5
    assert all(cells)
    command = re.fullmatch(r'`python -m pytest( -m "")?((?: tests/[\w/]+\.py(?:::\w+)?)+)( -k "[\w ]+")?`', cells[-1])
    assert command, cells[-1]
    long = []
    for file, test in re.findall(r"tests/([\w/]+)\.py(?:::(\w+))?", command[2]):
        found = found_in(file, "sampled(")  # of which some cases are long
        assert not test or test in found
        words = [word for word in re.findall(r"\w+", (command[3] or "")[4:]) if word != "or"]
        for word in words:
            assert any(word in name for name in found)
        long += [
            is_long
            for name, is_long in found.items()
            if name == test or not (test or (words and not any(word in name for word in words)))
        ]
    assert bool(command[1]) == any(long)  # a long one needs the flag, others do not


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize("name", FAULTS)
def test_every_long_test_of_a_fault_is_on_the_page(name: str) -> None:
    for test, long in found_in(name).items():
        assert not long or test in PAGE or f'-m "" tests/{name}.py`' in PAGE
