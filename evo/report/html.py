"""HTML from text, where everything that is not markup of ours is escaped, and files of it that need nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from evo.errors import ConfigurationError, printable
from evo.files.durable import replace_file, resources

LONGEST = 24  # characters of a name that stays in one line
STYLES = ("uPlot.min.css", "report.css")
CHARTS = ("uPlot.iife.min.js", "charts.js")  # the scripts that draw charts
REPLAYS = ("canvas.js", "replays.js")  # those that play episodes
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {}"
READ = 'const report = JSON.parse(document.getElementById("data").textContent);'
# What a page shows that is cut off, or whose scripts were changed or failed: the last of them removes it.
DAMAGED = "Not all of this page works: it is cut off, was changed, or is too new for this browser."
WATCH = 'addEventListener("DOMContentLoaded", () => document.getElementById("damaged")?.removeAttribute("hidden"));'
WHOLE = 'document.getElementById("damaged").remove();'
OURS, OURS_WITHIN = b'<meta name="generator" content="snake-evo">', 200  # what marks a page, in its first bytes
Chart = dict[str, Any]  # as `assets/charts.js` draws it


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
    stated = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{stated}>{''.join(map(escaped, content))}</{name}>")


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


def header(title: str, first: object, others: Iterable[object] = (), notes: Sequence[object] = ()) -> Markup:
    """Return the head of a page: title, verdict, further paragraphs, and notes if there are any."""
    listed = [element("ul", *(element("li", note) for note in notes), class_="notes")] if notes else []
    said = element("p", first, class_="verdict"), *(element("p", one) for one in others)
    return element("header", element("h1", title), *said, *listed)


def section(title: str, *content: object) -> Markup:
    """Return a section with a heading."""
    return element("section", element("h2", title), *content)


def details(title: str, *content: object) -> Markup:
    """Return text that is shown when its title is clicked."""
    return element("details", element("summary", title), *content)


def quiet(*content: object) -> Markup:
    """Return a paragraph of small print."""
    return element("p", *content, class_="quiet")


class Drawn:
    """The charts of a page, in the order of their places."""

    def __init__(self) -> None:
        self.charts: list[Chart] = []

    def figure(self, chart: Chart | None, title: str, about: str = "") -> Markup:
        """Return the place of a chart, and nothing where there is no chart."""
        if chart is None:
            return Markup("")
        self.charts.append({**chart, "title": title})
        caption = element("figcaption", element("b", title), *([", ", about] if about else []))
        place = element("div", class_="plot", data_chart=len(self.charts) - 1)
        return element("figure", caption, place, class_=f"chart {chart['kind']}")


def whole_page(title: str, body: Markup, data: Mapping[str, Any], scripts: Sequence[str]) -> bytes:
    """Return the whole file, which runs these scripts and nothing else, and loads nothing."""
    script = "\n".join([READ, *map(asset, scripts), WHOLE])
    parts = {
        "title": element("title", title),
        "policy": escaped(POLICY.format(digests(WATCH, script))),
        "style": "\n".join(asset(name) for name in STYLES),
        "damaged": damaged(),
        "body": body,
        "data": inert(data),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], asset("report.html")).encode()


def inert(data: Mapping[str, Any]) -> str:
    """Return JSON that cannot end its element, nor begin a comment or another one."""
    plain = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def damaged() -> Markup:
    """Return the line that a page shows where it is not whole, and the script that shows it then."""
    line = element("p", DAMAGED, id="damaged", class_="card", role="alert", hidden="")
    return joined([line, element("script", Markup(WATCH))])


def digests(*parts: str) -> str:
    """Return the source expressions by which a page's security policy lets these scripts or styles run."""
    hashes = (hashlib.sha256(part.encode()).digest() for part in parts)
    return " ".join(f"'sha256-{base64.b64encode(one).decode('ascii')}'" for one in hashes)


def write_page(page: bytes, path: Path) -> Path:
    """Write a page, whole or not at all."""
    with resources("write", path):
        replace_file(path, page, durable=False)
    return path


def refuse_foreign(path: Path) -> None:
    """Raise a ConfigurationError where there is something else than a page of this program."""
    with resources("read", path):
        if not path.exists() and not path.is_symlink():
            return
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                if OURS in file.read(OURS_WITHIN):
                    return
    raise ConfigurationError(f"{path} is there, and is no page of this program; move it away, or name another file")


def asset(name: str) -> str:
    """Return a file of the page."""
    return (files("evo.report") / "assets" / name).read_text("utf-8")
