"""The lines of the keys of a TOML file, which tomllib does not give."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

Path = tuple[str, ...]  # of a key, from the top of the file

TOKEN = re.compile(
    r"""
      (?P<newline> \n )
    | (?P<skip> [ \t\r]+ | \#[^\n]* )
    | (?P<text> \"{3} (?:[^\\]|\\.)*? \"{3} (?!\") | '{3} .*? '{3} (?!') | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' )
    | (?P<bare> [A-Za-z0-9_:+-]+ )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def key_lines(text: str) -> dict[Path, int]:
    """Return the first line of every key and table of valid TOML, counted from 1.

    Keys of tables in arrays have none; their array has one.
    """
    lines: dict[Path, int] = {}
    table: Path = ()  # of the last [header]
    open_brackets: list[tuple[str, Path]] = []  # and the table that an open one belongs to
    key: list[str] = []
    in_header = in_value = False
    for kind, token, line in _tokens(text):
        if not in_value and kind in ("text", "bare"):
            key.append(_unquoted(token) if kind == "text" else token)
        elif kind == "newline" and not open_brackets:
            in_value, key = False, []
        elif token == "[" and not in_value:
            in_header, key = True, []
        elif token == "]" and in_header:
            if key:  # the second bracket of [[...]] finds it empty
                table = tuple(key)
                _note(lines, table, line)
                key = []
            in_header = False
        elif token == "=" and not in_value:
            here = (open_brackets[-1][1] if open_brackets else table) + tuple(key)
            if all(bracket == "{" for bracket, _ in open_brackets):
                _note(lines, here, line)
            in_value, key = True, []
            value_of = here
        elif token in ("{", "[") and in_value:
            open_brackets.append((token, value_of))
            in_value = token == "["
        elif token in ("}", "]") and open_brackets:
            open_brackets.pop()
            in_value, key = True, []
        elif token == "," and open_brackets:
            in_value, key = open_brackets[-1][0] == "[", []
    return lines


def _note(lines: dict[Path, int], path: Path, line: int) -> None:
    for length in range(1, min(len(path), 8) + 1):  # nothing that is known lies deeper than 8 tables
        lines.setdefault(path[:length], line)


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    line = 1
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup or "", match.group()
        if kind != "skip":
            yield kind, token, line
        line += token.count("\n")


def _unquoted(token: str) -> str:
    value: str = tomllib.loads(f"key = {token}")["key"]
    return value
