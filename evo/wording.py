"""How things that a user wrote are spoken of: safe to print, and with a guess at what was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return " - did you mean ...?" with the closest of the known names, or nothing where none is close."""
    close = difflib.get_close_matches(wrong[:100], list(known), 1)
    return f" - did you mean `{close[0]}`?" if close else ""


def counted(count: int, noun: str) -> str:
    """Return a number of things, as in 1 generation or 3 generations."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # what moves a cursor or begins a line


def printable(text: str) -> str:
    """Return the text with everything escaped that could move a terminal's cursor or hide what stands there."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def printable_lines(text: str) -> str:
    """Return the text with everything escaped but the ends of its lines."""
    return "\n".join(printable(line) for line in text.split("\n"))
