"""Files are short, a class has a name of its own, and options have few ancestors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evo.options import Section
from evo.plugins import registry
from tests.imports.lines import ROOT, code_lines, sources, table

MOST_LINES, MOST_COLUMNS = 350, 120
CLASS = re.compile(r"^ *class (\w+)[(\[:]", re.MULTILINE)
# Every module of a folder of the registry has its `Options`, and a game its `State`; `snake.Game` is an interface too.
SAME_NAME = {"Options", "State", "Game"}


def test_no_file_is_long_or_wide() -> None:
    for path in sources():
        lines = (ROOT / path).read_text().splitlines()
        assert len(lines) <= MOST_LINES, path
        for line in lines:
            assert len(line.partition("  # type: ignore")[0]) <= MOST_COLUMNS, f"{path}: {line}"


def test_no_text_is_in_the_encoding_of_a_locale() -> None:
    for path in Path("evo").rglob("*.py"):
        found = re.findall(r"read_text\(\)|\btext=True|[ =]open\([^\n]*, \"[wra]\"\)", path.read_text("utf-8"))
        assert found == [], path


@pytest.mark.long
def test_code_is_counted_without_comments_docstrings_and_blank_lines() -> None:
    header, body = (
        b'"""Doc."""\n\n# note\nA = """x\n\ny"""\n\n',
        b'    """Doc.\n\n    More."""\n    return (\n        1\n    )\n',
    )
    source = header + b"def f():\n" + body
    assert code_lines(source) == 7
    (*folders, (name, files, lines, code)) = table()
    assert (name, files) == ("all", len(sources()))
    assert sum(row[2] for row in folders) == lines > code > 0


def test_one_name_is_one_class() -> None:
    homes: dict[str, list[Path]] = {}
    for path in sources():
        if path.parts[:3] != ("evo", "cli", "skeletons"):
            for name in CLASS.findall((ROOT / path).read_text()):
                homes.setdefault(name, []).append(path)
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1 and name not in SAME_NAME}
    assert twice == {}


@pytest.mark.parametrize("folder", registry.FOLDERS)
def test_options_have_two_ancestors_at_most(folder: str) -> None:
    for name in registry.names(folder):
        ancestors = registry.find(folder, name).Options.__mro__[1:]
        ours = [one for one in ancestors if issubclass(one, Section) and one is not Section]
        assert 1 <= len(ours) <= 2, (name, ours)
