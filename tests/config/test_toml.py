"""Keys are found where they are, and what is written is read back."""

from __future__ import annotations

import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.config.experiment_file import key_lines
from evo.toml import key_text, section_text, value_text


def test_lines_of_everything_that_toml_can_write() -> None:
    text = '''# comment = 1
top = "a = [b" # c = 2
"quoted key" = 3
[one]
a.b.c = [
  1, # [not.a.table]
  "]", { inside = 1 },
]
d = {e = {f = 1}, "g.h" = [{i = 2}], j = 3}
text = """
[not.a.table]
k = 1 \\"""
"""
literal = \'\'\'
l = 2
\'\'\'\'
[ two . "three four" ]
m = 1979-05-27 07:32:00
[[list]]
n = 1.5e3
[[list]]
o = -inf
'''
    tomllib.loads(text)
    assert key_lines(text) == {
        ("top",): 2,
        ("quoted key",): 3,
        ("one",): 4,
        ("one", "a"): 5,
        ("one", "a", "b"): 5,
        ("one", "a", "b", "c"): 5,
        ("one", "d"): 9,
        ("one", "text"): 10,
        ("one", "literal"): 14,
        ("two",): 17,
        ("two", "three four"): 17,
        ("two", "three four", "m"): 18,
        ("list",): 19,
        ("list", "n"): 20,
        ("list", "o"): 22,
    }


VALUES = st.recursive(
    st.integers() | st.floats(allow_nan=False) | st.booleans() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(tables=st.dictionaries(st.text(), st.dictionaries(st.text(), VALUES, max_size=4), max_size=4))
def test_what_is_written_is_read_back_and_found_on_its_line(tables: dict[str, dict[str, object]]) -> None:
    text = "\n".join(section_text(name, table) for name, table in tables.items())
    assert tomllib.loads(text) == tables
    lines = key_lines(text)
    rows = text.split("\n")
    assert all(row.isprintable() for row in rows)
    for name, table in tables.items():
        assert rows[lines[name,] - 1] == f"[{key_text(name)}]"
        for key, value in table.items():
            assert rows[lines[name, key] - 1] == f"{key_text(key)} = {value_text(value)}"


def test_a_float_stays_a_float_and_notes_stay_comments() -> None:
    text = section_text("a", {"x": 1.0, "y": None, "z": math.inf}, {"x": "of y = 2"})
    assert text == "[a]\nx = 1.0  # of y = 2\nz = inf\n"


def test_what_toml_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="TOML has no object"):
        value_text(object())
