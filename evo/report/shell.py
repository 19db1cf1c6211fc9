"""What every page has: one file with its style, scripts and data inside, and the places of its charts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from evo.report.charts import Chart
from evo.report.markup import Markup, element, escaped, json_in_script

STYLES = ("uPlot.min.css", "report.css")
CHARTS = ("uPlot.iife.min.js", "charts.js")  # the scripts that draw charts
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src 'sha256-{}'"


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
    script = "\n".join(asset(name) for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "title": element("title", title),
        "policy": escaped(POLICY.format(digest)),
        "style": "\n".join(asset(name) for name in STYLES),
        "body": body,
        "data": json_in_script(data),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], asset("report.html")).encode()


def asset(name: str) -> str:
    """Return a file of the page."""
    return (files("evo.report") / "assets" / name).read_text("utf-8")
