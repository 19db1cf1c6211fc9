"""One HTML file in which a champion plays: template, style, scripts and data; it loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import string
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

CORE = ("philox.js", "snake.js", "network.js", "episode.js")  # what plays; also runs in a worker and in Node
INTERFACE = ("drawing.js", "interface.js", "verification.js")
STYLE, TEMPLATE = "page.css", "page.html"


def page(title: str, summary: str, facts: Iterable[tuple[str, str]], data: Mapping[str, Any]) -> str:
    """Return the page; equal arguments give an equal page. Nothing of the arguments is read as HTML or as a script.

    `facts` are names and values, `data` is JSON that the scripts read.
    """
    core, interface, style = script(CORE), script(INTERFACE), text(STYLE)
    return string.Template(text(TEMPLATE)).substitute(
        title=html.escape(title),
        summary=html.escape(summary),
        facts="\n".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts),
        scripts=" ".join(f"'{digest(part)}'" for part in (core, interface)),
        styles=f"'{digest(style)}'",
        style=style,
        data=inert(data),
        core=core,
        interface=interface,
    )


def text(name: str) -> str:
    """Return the text of a file of the folder `browser`."""
    return files("evo.pages").joinpath("browser", name).read_text("utf-8")


def script(names: Iterable[str]) -> str:
    """Return scripts as one, in strict mode."""
    return '"use strict";\n' + "\n".join(map(text, names))


def inert(data: Mapping[str, Any]) -> str:
    """Return JSON that cannot end its element, nor begin a comment or another one."""
    plain = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def digest(part: str) -> str:
    """Return the source expression by which the page's security policy lets this script or style run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode('ascii')}"
