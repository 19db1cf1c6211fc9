"""Values as TOML has them, and writing TOML that tomllib reads back as the same values."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

MOST_DIGITS = 300  # of a whole number in a file: a float holds it


def plain(value: Any) -> Any:
    """Return a value as a TOML file would give it: numbers of NumPy, arrays, tuples and paths become what it has."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    as_python = getattr(value, "tolist", None)
    return as_python() if callable(as_python) else value


def unfit(value: object) -> str:
    """Return what is wrong with a number or a text that no experiment file can have; empty: nothing."""
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        return f"has a huge whole number, of more than {MOST_DIGITS} digits"
    if isinstance(value, str) and value != value.encode(errors="replace").decode():
        return "is not UTF-8, as all of an experiment is; give the file or folder another name"
    return ""


def value_of(text: str) -> object:
    """Return the TOML value of this text, or the text itself where it is no TOML; ValueError: it is not UTF-8."""
    if wrong := unfit(text):
        raise ValueError(f"it {wrong}")
    try:
        tables = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return tables["value"] if len(tables) == 1 else text


def value_text(value: object) -> str:
    """Return a value as TOML writes it; TypeError where TOML has no such value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)  # inf and nan are spelled as in Python
    if isinstance(value, str):
        value = value.encode(errors="backslashreplace").decode()  # a path that is not UTF-8, which TOML cannot have
        return "".join(c if c.isprintable() else _escaped(c) for c in json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key_text(key)} = {value_text(item)}" for key, item in value.items())
        return f"{{{inside}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(value_text, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _escaped(character: str) -> str:
    return f"\\U{ord(character):08x}" if ord(character) > 0xFFFF else f"\\u{ord(character):04x}"


def key_text(key: str) -> str:
    """Return a key as TOML writes it, bare where possible."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else value_text(key)


def section_text(name: str, values: Mapping[str, object], notes: Mapping[str, str] | None = None) -> str:
    """Return a section, one key per line, with the key's entry of `notes` as a comment; values of None are left out."""
    lines = [f"[{key_text(name)}]"]
    for key, value in values.items():
        if value is not None:
            note = (notes or {}).get(key, "")
            lines.append(f"{key_text(key)} = {value_text(value)}" + (f"  # {note}" if note else ""))
    return "\n".join(lines) + "\n"
