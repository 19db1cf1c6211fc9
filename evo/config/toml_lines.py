"""The lines of the keys of a TOML file, which tomllib does not give."""

from __future__ import annotations

import re
import tomllib

Path = tuple[str, ...]  # of a key, from the top of the file

TOKEN = re.compile(
    r"""
      (?P<newline> \n )
    | (?P<skip> [ \t\r]+ | \#[^\n]* )
    | (?P<text> \"{3} (?:[^\\]|\\.)*? \"{3} (?!\") | '{3} .*? '{3} (?!') | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' )
    | (?P<bare> [A-Za-z0-9_:+-]+ )
    | (?P<equals> = )
    | (?P<open> [\[{] )
    | (?P<close> [\]}] )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def key_lines(text: str) -> dict[Path, int]:
    """Return the first line of every key and table of valid TOML, counted from 1.

    Keys inside of a value have none: an inline table or an array has one line, that of its key.
    """
    lines: dict[Path, int] = {}
    table: Path = ()  # of the last [header]
    key: list[str] = []
    in_value, depth, line = False, 0, 1
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if in_value:
            depth += (kind == "open") - (kind == "close")
            if kind == "newline" and not depth:
                in_value, key = False, []
        elif kind in ("text", "bare"):
            key.append(tomllib.loads(f"key = {token}")["key"] if kind == "text" else token)
        elif kind == "equals" or (kind == "close" and key):  # the second bracket of [[...]] finds no key
            in_value, path = kind == "equals", (*table, *key) if kind == "equals" else tuple(key)
            for length in range(1, min(len(path), 8) + 1):  # nothing that is known lies deeper than 8 tables
                lines.setdefault(path[:length], line)
            if not in_value:
                table, key = path, []
        line += token.count("\n")
    return lines
