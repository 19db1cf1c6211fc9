"""The page about a comparison: who wins, the tables, and scores against every budget."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from evo.comparison.curves import Curve, profiles, score_curves
from evo.comparison.formats import (
    MEANINGS,
    PAIR_MEANINGS,
    PAIR_TITLES,
    REACHED_TITLES,
    TITLES,
    about_reaching,
    cells,
    pair_cells,
    reached_cells,
    sentence,
)
from evo.comparison.methods import TOO_FEW, UNDECIDED, ahead
from evo.comparison.tables import Comparison, Table, no_better_than_random
from evo.config.sections import plural
from evo.errors import counted
from evo.files.durable import replace_file, resources
from evo.numbers import interval, number
from evo.report.charts import rounded
from evo.report.html import (
    CHARTS,
    LONGEST,
    Chart,
    Drawn,
    Markup,
    breakable,
    details,
    element,
    joined,
    quiet,
    section,
    table,
    whole_page,
)
from evo.statistics import LEVEL
from evo.training.accounting import COUNTED

COLOURS, DASHES = 8, 3  # of lines


def write_comparison_page(comparison: Comparison, path: Path) -> Path:
    """Write the page, whole or not at all; ResourceError where that fails."""
    data = ComparisonPage(comparison).html()
    with resources("write", path):
        replace_file(path, data, durable=False)
    return path


class ComparisonPage:
    """Collects the sections of a comparison, and the charts in them."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison, self.drawn = comparison, Drawn()

    def html(self) -> bytes:
        """Return the whole file."""
        body = joined([self._header(), *map(self._section, self.comparison.tables)])
        title = f"Comparison of {', '.join(self._names()[:4])}"
        return whole_page(title, body, {"runs": [], "charts": self.drawn.charts, "replays": []}, CHARTS)

    def _names(self) -> list[str]:
        return [method.name for one in self.comparison.tables for method in one.methods]

    def _header(self) -> Markup:
        sentences = [found for one in self.comparison.tables for found in verdicts(one)]
        if len(self._names()) > 1:
            alone = "No two of these methods see and play the same, so they are not compared with each other."
        else:
            alone = "There is only one method, so there is nothing to compare."
        first, *others = sentences or [alone]
        others += [sentence(found) for one in self.comparison.tables for found in _unlearned(one)]
        notes = [element("li", breakable(sentence(note))) for note in self.comparison.notes]
        return element(
            "header",
            element("h1", f"{counted(len(self._names()), 'method')} compared"),
            element("p", breakable(first), class_="verdict"),
            *(element("p", breakable(other)) for other in others),
            *([element("ul", *notes, class_="notes")] if notes else []),
        )

    def _section(self, one: Table) -> Markup:
        players = [
            (name, number(player.mean), interval(player.ci95), f"{player.episodes:,}")
            for name, player in one.baselines.items()
        ]
        parts: list[object] = [
            _named(TITLES, [*map(cells, one.methods)], numbers=range(1, len(TITLES))),
            _columns(MEANINGS),
            quiet("An interval between seeds says how far the result of a method is known, one within a champion how "
                  "far that of a single network is."),
            element("ul", *(element("li", breakable(note), ".") for note in one.notes)) if one.notes else "",
        ]  # fmt: skip
        if one.pairs:
            about = f"A method wins where p, corrected for all pairs by Holm's method, is at most {LEVEL:g}."
            pairs = _named(PAIR_TITLES, [*map(pair_cells, one.pairs)], "methods pairs")
            parts += [element("h3", "Pairs"), pairs, _columns(PAIR_MEANINGS), quiet(about)]
        if one.reaching and one.reaching.methods:
            rows = [*map(reached_cells, one.reaching.methods)]
            parts += [
                element("h3", f"Time to {number(one.reaching.score)}"),
                _named(REACHED_TITLES, rows, numbers=range(2, len(REACHED_TITLES))),
                quiet(
                    f"{about_reaching(one.reaching)}. With > N, fewer than half of the runs are known to reach it, and "
                    "none spent more than N. Runs are tested now and then, so the score may have been reached earlier, "
                    "after the test before."
                ),
            ]
        parts += [element("h3", "Score against what was spent"), *self._charts(one)]
        if players:
            heads = ("player that needs no learning", "mean score", "95 %", "episodes")
            parts += [element("h3", "Baselines"), table(heads, players, numbers=(1, 2, 3))]
        return section(one.title, *parts)

    def _charts(self, one: Table) -> Iterator[Markup]:
        levels = [{"label": name, "value": rounded(player.mean)} for name, player in one.baselines.items()]
        for amount in COUNTED:
            chart = lines(one, score_curves(one.methods, amount), plural(amount), "test score")
            about = "mean over seeds with its 95 % interval"
            over = f"Score over {plural(amount)}"
            yield self.drawn.figure(None if chart is None else {**chart, "levels": levels}, over, about)
        chart = lines(one, profiles(one.methods), "test score", "share of runs")
        yield self.drawn.figure(chart, "Performance profile", "the share of runs above a score, with 95 % intervals")


def verdicts(one: Table) -> Iterator[str]:
    """Yield a sentence about every method that wins over others, or one that says why none does."""
    beaten: dict[str, list[str]] = {}
    for pair in one.pairs:
        if pair.winner is not None:
            beaten.setdefault(pair.winner, []).append(pair.second if pair.winner == pair.first else pair.first)
    if one.pairs and not beaten:
        reasons: dict[str, list[str]] = {}
        for pair in one.pairs:
            reasons.setdefault(pair.verdict, []).append(f"{pair.first} and {pair.second}")
        parts = [f"{', '.join(pairs)}: {reason}" for reason, pairs in reasons.items()]
        text = "; ".join(parts) if len(parts) > 1 else next(iter(reasons))
        if any(pair.verdict == UNDECIDED for pair in one.pairs):
            yield f"No winner is proven on {one.environment}: {text}."
        else:
            reason = f"{text.removeprefix(f'{TOO_FEW}: ')}{_leader(one)}"
            yield f"Too few seeds to name a winner on {one.environment}: {reason}."
    means = {method.name: f"{method.name} ({number(method.mean)})" for method in one.methods}
    for winner, losers in beaten.items():
        yield f"{means[winner]} wins over {', '.join(means[loser] for loser in losers)} on {one.environment}."


def _unlearned(one: Table) -> list[str]:
    """Say which methods are no better than the random player, if any are."""
    return no_better_than_random(one.methods, {name: player.mean for name, player in one.baselines.items()})


def _leader(one: Table) -> str:
    """Say which method is ahead on every seed, where there is one."""
    name = ahead(one.methods)
    return f"; {name} is ahead on every seed" if name else ""


def lines(one: Table, curves: Sequence[Curve], across: str, up: str) -> Chart | None:
    """Return a chart of means with their intervals, a method in the same colour in all charts; None without a curve."""
    if not curves:
        return None
    series, names = [], [method.name for method in one.methods]
    for curve in curves:
        place = names.index(curve.method)
        known = bool(np.isfinite(curve.low).all() and np.isfinite(curve.high).all())
        series.append({
            "label": f"{curve.method} ({counted(curve.seeds, 'seed')})",
            "colour": place, "dash": place // COLOURS % DASHES,
            "x": _listed(curve.x), "values": _listed(curve.mean),
            "low": _listed(curve.low) if known else None, "high": _listed(curve.high) if known else None,
        })  # fmt: skip
    return {"kind": "lines", "series": series, "across": across, "y": up}


def _named(
    heads: Sequence[str], rows: Collection[Sequence[str]], class_: str = "methods", numbers: Sequence[int] = ()
) -> Markup:
    """Return a table of methods; long names go on in the next line, short ones do not."""
    shown = [[breakable(cell) for cell in row] for row in rows]
    long = " long" if any(len(cell) > LONGEST for row in rows for cell in row[:2]) else ""
    return table(heads, shown, numbers, class_=f"{class_}{long}")


def _columns(meanings: Mapping[str, str]) -> Markup:
    """Return what the columns of a table mean, to be opened."""
    return details(
        "What the columns mean", element("ul", *(element("li", element("b", n), f": {m}") for n, m in meanings.items()))
    )


def _listed(values: np.ndarray) -> list[float | None]:
    return [rounded(value) for value in values.tolist()]
