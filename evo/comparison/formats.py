"""A comparison as text: Markdown, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from evo.comparison.curves import Reached, Reaching
from evo.comparison.methods import Method, Pair
from evo.comparison.tables import Comparison, Table
from evo.errors import cell
from evo.numbers import UNKNOWN, interval, number
from evo.statistics import Interval
from evo.training.accounting import COUNTED

TITLES = (
    "method", "seeds", "mean score", "95 % between seeds", "IQM", "95 % of IQM", "lowest to highest seed",
    "± within a champion", "frames a run", "forward passes", "multiply-adds", "CPU", "training", "weights",
)  # fmt: skip
REACHED_TITLES = ("method", "runs that reach it", "frames", "forward passes", "multiply-adds", "CPU")
PAIR_TITLES = ("first", "second", "P(first > second)", "95 %", "p", "p, Holm", "verdict")
MEANINGS = {
    "seeds": "runs that have a score",
    "mean score": "mean of the champions' test scores over the seeds",
    "95 % between seeds": "where the mean over very many seeds lies (Student's t)",
    "IQM": "interquartile mean: without the highest and the lowest quarter of the seeds",
    "95 % of IQM": "the same as the interval between seeds, of the interquartile mean (bootstrap)",
    "lowest to highest seed": "scores of the worst and of the best seed: no interval, and wider with more seeds",
    "± within a champion": "half the width of the interval of one champion's score; more test episodes shrink it",
    "frames a run": "environment steps of training and validation, mean over the seeds",
    "forward passes": "outputs of networks computed, one per observation",
    "multiply-adds": "multiplications in the networks, each with an addition",
    "CPU": "processor time of all processes",
    "training": "time of training, without tests",
    "weights": "number of weights of the network",
}
PAIR_MEANINGS = {
    "P(first > second)": "how often a run of the first method scores higher than one of the second; 0.5: no difference",
    "95 %": "interval of that probability (bootstrap over seeds)",
    "p": "how often seeds of two equal methods would differ at least as much",
    "p, Holm": "p, made larger because several pairs are compared (Holm's correction)",
    "verdict": "which method wins, if one does",
}
COLUMNS = (
    "environment", "league", "method", "algorithm", "seeds", "runs", "mean", "ci95_low", "ci95_high", "iqm", "iqm_low",
    "iqm_high", "lowest", "highest", "within_half_width", "frames", "forward_passes", "multiply_adds", "cpu_seconds",
    "seconds", "weights",
)  # fmt: skip
REACHED_COLUMNS = (
    "method", "score", "runs", "reached", "frames", "forward_passes", "multiply_adds", "cpu_seconds",
)  # fmt: skip
PAIR_COLUMNS = (
    "first", "second", "probability", "probability_low", "probability_high", "p_value", "p_adjusted", "winner",
    "verdict",
)  # fmt: skip
NOT_IN_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": r"$<$",
    ">": r"$>$", **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip


def parts_of(table: Table) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
    """Yield the grids of a table: a sentence about it or nothing, its titles and its rows."""
    yield "", TITLES, [*map(cells, table.methods)]
    if table.pairs:
        yield "", PAIR_TITLES, [*map(pair_cells, table.pairs)]
    if table.reaching and table.reaching.methods:
        yield about_reaching(table.reaching), REACHED_TITLES, [*map(reached_cells, table.reaching.methods)]


def markdown(comparison: Comparison) -> str:
    """Return a heading, the grids and the notes of every table."""
    texts = []
    for table in comparison.tables:
        texts.append(f"### {table.title}")
        for about, titles, rows in parts_of(table):
            texts += [about, _grid(titles, rows)] if about else [_grid(titles, rows)]
        texts.append("\n".join(f"- {_escaped(note)}" for note in _notes(table)))
    texts.append("\n".join(f"- {_escaped(note)}" for note in comparison.notes))
    return "\n\n".join(filter(None, texts)) + "\n"


def latex(comparison: Comparison) -> str:
    """Return plain tabulars, which need no package, with the notes below."""
    texts = []
    for table in comparison.tables:
        texts.append(rf"\paragraph{{{_tex(table.title)}}}")
        for about, titles, rows in parts_of(table):
            texts += [_tex(about), _tabular(titles, rows)] if about else [_tabular(titles, rows)]
        texts += [_tex(sentence(note)) for note in _notes(table)]
    texts += [_tex(sentence(note)) for note in comparison.notes]
    return "\n\n".join(texts) + "\n"


def comma_separated(comparison: Comparison) -> str:
    """Return all methods, all pairs and all notes, each with a header of its own and an empty line between them."""
    methods, pairs, reached, notes = list[Any](), list[Any](), list[Any](), list[Any]()
    for table in comparison.tables:
        methods += [
            [
                table.environment, table.league, method.name, method.algorithm, len(method.scores), len(method.runs),
                method.mean, *_ends(method.ci95), method.interquartile_mean, *_ends(method.interquartile_ci95),
                method.lowest, method.highest, method.within, method.frames, method.forward_passes,
                method.multiply_adds, method.cpu_seconds, method.seconds, method.weights,
            ]
            for method in table.methods
        ]  # fmt: skip
        pairs += [
            [
                pair.first, pair.second, pair.probability, *_ends(pair.probability_ci95), pair.p_value,
                pair.p_adjusted, pair.winner, pair.verdict,
            ]
            for pair in table.pairs
        ]  # fmt: skip
        if table.reaching:
            reached += [
                [one.method, table.reaching.score, one.runs, one.reached, *(one.medians.get(name) for name in COUNTED)]
                for one in table.reaching.methods
            ]
        notes += [[note] for note in _notes(table)]
    notes += [[note] for note in comparison.notes]
    texts = []
    for titles, rows in ((COLUMNS, methods), (PAIR_COLUMNS, pairs), (REACHED_COLUMNS, reached), (("note",), notes)):
        if rows:
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([[*map(cell, row)] for row in (titles, *rows)])
            texts.append(text.getvalue())
    return "\n".join(texts)


FORMATS: dict[str, Callable[[Comparison], str]] = {"markdown": markdown, "csv": comma_separated, "latex": latex}


def cells(method: Method) -> list[str]:
    """Return the row of a method."""
    seeds = str(len(method.scores))
    if len(method.scores) < len(method.runs):
        seeds += f" of {len(method.runs)}"
    spread = UNKNOWN if method.lowest is None else f"{number(method.lowest)} to {number(method.highest)}"
    return [
        method.name,
        seeds,
        number(method.mean),
        "one seed" if len(method.scores) == 1 else interval(method.ci95),
        number(method.interquartile_mean),
        interval(method.interquartile_ci95),
        spread,
        number(method.within),
        UNKNOWN if method.frames is None else f"{method.frames:,.0f}",
        UNKNOWN if method.forward_passes is None else f"{method.forward_passes:,.0f}",
        UNKNOWN if method.multiply_adds is None else f"{method.multiply_adds:.3g}",
        *(UNKNOWN if took is None else f"{took:,.0f} s" for took in (method.cpu_seconds, method.seconds)),
        f"{method.weights:,}",
    ]


def pair_cells(pair: Pair) -> list[str]:
    """Return the row of a pair."""
    return [
        pair.first,
        pair.second,
        number(pair.probability),
        interval(pair.probability_ci95),
        _p_value(pair.p_value),
        _p_value(pair.p_adjusted),
        pair.verdict,
    ]


def about_reaching(found: Reaching) -> str:
    """Return what the table of a score to be reached shows."""
    return (
        f"Spent until the best network so far had {number(found.score)} in a test of the run: median over the runs, "
        "where those that never had count as longer"
    )


def reached_cells(one: Reached) -> list[str]:
    """Return what a method spent until it reached the score."""
    cells = [one.method, f"{one.reached} of {one.runs}"]
    for name, form in zip(COUNTED, ("{:,.0f}", "{:,.0f}", "{:.3g}", "{:,.1f} s"), strict=True):
        median = one.medians.get(name)
        if name not in one.medians:
            cells.append(UNKNOWN)
        else:
            cells.append(f"> {form.format(one.spent[name])}" if median is None else form.format(median))
    return cells


def _p_value(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _ends(ends: Interval | None) -> Interval | tuple[None, None]:
    return ends or (None, None)


def _notes(table: Table) -> list[str]:
    """Return the notes of a table, the baselines first."""
    players = [
        f"{name} {number(baseline.mean)} ({interval(baseline.ci95)}, {baseline.episodes} episodes)"
        for name, baseline in table.baselines.items()
    ]
    lines = [f"players that need no learning: {', '.join(players)}"] if players else []
    return [*lines, *table.notes]


def _grid(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---", *["--:"] * (len(titles) - 1)], *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _tabular(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" & ".join(map(_tex, row)) + r" \\" for row in [titles, *rows]]
    columns = "l" + "r" * (len(titles) - 1)
    body = "\n".join([r"\hline", lines[0], r"\hline", *lines[1:], r"\hline"])
    return f"\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}"


def _tex(text: str) -> str:
    return re.sub(r"[\\~^±<>&%$#_{}]", lambda match: NOT_IN_LATEX[match[0]], text.replace("\n", " "))


def sentence(note: str) -> str:
    """Return a note as a sentence."""
    return f"{note[:1].upper()}{note[1:]}."
