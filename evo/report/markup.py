"""HTML from text: everything that is not markup of ours is escaped."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from evo.errors import printable

LONGEST = 24  # characters of a name that stays in one line


class Markup(str):
    """Text that is HTML already."""


def escaped(value: object) -> Markup:
    """Return any text as HTML that shows it, with control characters spelled out."""
    return value if isinstance(value, Markup) else Markup(html.escape(printable(str(value))))


def breakable(text: str) -> Markup:
    """Return text whose long names may go on in the next line, after an underscore or a slash."""
    long = rf"\S{{{LONGEST + 1},}}"
    return Markup(re.sub(long, lambda name: re.sub(r"(?<=[_/])(?=[\w-])", "<wbr>", name[0]), escaped(text)))


def element(name: str, *content: object, **attributes: object) -> Markup:
    """Return an element; attributes of None are left out, and `class_` is class."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{''.join(map(escaped, content))}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Return parts one after the other."""
    return Markup("\n".join(map(escaped, parts)))


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], numbers: Sequence[int] = (), **attributes: object
) -> Markup:
    """Return a table that scrolls by itself where it is too wide; columns `numbers` are aligned to the right."""

    def cells(kind: str, row: Sequence[object]) -> Markup:
        shown = (element(kind, cell, class_="number" if i in numbers else None) for i, cell in enumerate(row))
        return element("tr", *shown)

    head = element("thead", cells("th", heads))
    body = element("tbody", *(cells("td", row) for row in rows))
    return element("div", element("table", head, body, **attributes), class_="wide", tabindex="0")


def section(title: str, *content: object) -> Markup:
    """Return a section with a heading."""
    return element("section", element("h2", title), *content)


def details(title: str, *content: object) -> Markup:
    """Return what is shown when its title is clicked."""
    return element("details", element("summary", title), *content)


def quiet(*content: object) -> Markup:
    """Return a paragraph of small print."""
    return element("p", *content, class_="quiet")


def json_in_script(value: Any) -> Markup:
    """Return JSON that cannot end the script element that it stands in, nor begin a comment there."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
