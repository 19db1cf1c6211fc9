"""A comparison as text, its grids as Markdown, CSV or LaTeX, and as figures, PNG and SVG."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evo.comparison.methods import Method, Pair, Plot, Reached, Reaching, plots
from evo.comparison.tables import Comparison, Table
from evo.errors import cell, extra, printable
from evo.files.durable import resources
from evo.numbers import UNKNOWN, interval, number
from evo.statistics import LEVEL
from evo.training.accounting import COUNTED

NOBODY = Reaching(0.0, ())
KINDS = ("png", "svg")  # of figures
SIZE, DOTS = (6.4, 4.0), 200  # inches; dots per inch
SETTINGS = {"svg.hashsalt": "evo", "text.parse_math": False}  # equal data, equal files; names are text
NOT_IN_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": r"$<$",
    ">": r"$>$", **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip
SPENT_FORMS = {"frames": "{:,.0f}", "forward_passes": "{:,.0f}", "multiply_adds": "{:.3g}", "cpu_seconds": "{:,.1f} s"}
WITHIN = (
    "An interval between seeds says how far the result of a method is known, one within a champion how far that of a "
    "single network is."
)
WINS = f"A method wins where p, corrected for all pairs by Holm's method, is at most {LEVEL:g}."
LONGER = (
    ". With > N, fewer than half of the runs are known to reach it, and none spent more than N. Runs are tested now "
    "and then, so the score may have been reached earlier, after the test before."
)


class Column(NamedTuple):
    """A column of a grid."""

    title: str
    text: Callable[[Any], str]  # of a row
    meaning: str = ""


class Grid(NamedTuple):
    """Rows of figures with their columns."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    heading: str = ""
    about: str = ""  # what is to be known before reading it
    remark: str = ""  # small print of a page

    @property
    def titles(self) -> list[str]:
        """The titles of the columns."""
        return [column.title for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """The text of every cell, by row."""
        return [[column.text(row) for column in self.columns] for row in self.rows]

    @property
    def meanings(self) -> dict[str, str]:
        """What the columns mean, by title."""
        return {column.title: column.meaning for column in self.columns if column.meaning}


def _known(form: str, value: float | None) -> str:
    return UNKNOWN if value is None else form.format(value)


def _seeds(method: Method) -> str:
    failed = f" of {len(method.runs)}" * (len(method.scores) < len(method.runs))
    return f"{len(method.scores)}{failed}"


def _p_value(value: float | None) -> str:
    return "< 0.001" if value is not None and value < 0.001 else _known("{:.3f}", value)


def _spent(name: str) -> Callable[[Reached], str]:
    """Return the column of what was spent until a score was reached."""

    def text(one: Reached) -> str:
        median = one.medians.get(name)
        over = name in one.medians and median is None
        return f"> {SPENT_FORMS[name].format(one.spent[name])}" if over else _known(SPENT_FORMS[name], median)

    return text


METHODS = (
    Column("method", lambda one: one.name),
    Column("seeds", _seeds, "runs that have a score"),
    Column("mean score", lambda one: number(one.mean), "mean of the champions' test scores over the seeds"),
    Column("95 % between seeds", lambda one: "one seed" if len(one.scores) == 1 else interval(one.ci95),
           "interval for the mean over very many seeds (Student's t)"),
    Column("IQM", lambda one: number(one.interquartile_mean),
           "interquartile mean: without the highest and the lowest quarter of the seeds"),
    Column("95 % of IQM", lambda one: interval(one.interquartile_ci95),
           "interval for the interquartile mean over very many seeds (bootstrap)"),
    Column("lowest to highest seed", lambda one: interval((one.lowest, one.highest)),
           "scores of the worst and of the best seed: no interval; it widens with more seeds"),
    Column("± within a champion", lambda one: number(one.within),
           "half the width of the interval of one champion's score; more test episodes shrink it"),
    Column("frames a run", lambda one: _known("{:,.0f}", one.frames),
           "environment steps of training, mean over the seeds"),
    Column("forward passes", lambda one: _known("{:,.0f}", one.forward_passes),
           "outputs of networks computed, one per observation"),
    Column("multiply-adds", lambda one: _known("{:.3g}", one.multiply_adds),
           "multiplications in the networks, each with an addition"),
    Column("CPU", lambda one: _known("{:,.0f} s", one.cpu_seconds), "processor time of all processes"),
    Column("training", lambda one: _known("{:,.0f} s", one.seconds), "time of training, without tests"),
    Column("weights", lambda one: f"{one.weights:,}", "number of weights of the network"),
)  # fmt: skip
PAIRS = (
    Column("first", lambda pair: pair.first),
    Column("second", lambda pair: pair.second),
    Column("P(first > second)", lambda pair: number(pair.probability),
           "how often a run of the first method scores higher than one of the second; 0.5: no difference"),
    Column("95 %", lambda pair: interval(pair.probability_ci95),
           "interval of that probability (bootstrap over seeds)"),
    Column("p", lambda pair: _p_value(pair.p_value),
           "how often seeds of two equal methods would differ at least as much"),
    Column("p, Holm", lambda pair: _p_value(pair.p_adjusted),
           "p, made larger because several pairs are compared (Holm's correction)"),
    Column("verdict", lambda pair: pair.verdict, "which method wins, if one does"),
)  # fmt: skip
REACHED = (
    Column("method", lambda one: one.method),
    Column("runs that reach it", lambda one: f"{one.reached} of {one.runs}"
           + f" ({one.unknown} not known: no test in metrics.jsonl)" * bool(one.unknown)),
    Column("frames", _spent("frames")),
    Column("forward passes", _spent("forward_passes")),
    Column("multiply-adds", _spent("multiply_adds")),
    Column("CPU", _spent("cpu_seconds")),
)  # fmt: skip


def grids(table: Table) -> Iterator[Grid]:
    """Yield the methods of a table, its pairs, and what it took to reach a score."""
    yield Grid(METHODS, table.methods, remark=WITHIN)
    if table.pairs:
        yield Grid(PAIRS, table.pairs, "Pairs", remark=WINS)
    if table.reaching and table.reaching.methods:
        score = number(table.reaching.score)
        about = (
            f"Spent until the best network so far had {score} in a test of the run: median over the runs, where those "
            "that never had count as longer"
        )
        yield Grid(REACHED, table.reaching.methods, f"Time to {score}", about, f"{about}{LONGER}")


def _blocks(
    comparison: Comparison, heading: str, grid: Callable[[Grid], str], notes: Callable[[Sequence[str]], list[str]],
    text: Callable[[str], str],
) -> str:  # fmt: skip
    """Return a heading, the grids and the notes of every table, then the notes of all."""
    blocks = []
    for table in comparison.tables:
        blocks.append(heading.replace("TITLE", text(table.title)))
        for one in grids(table):
            blocks += [text(one.about), grid(one)]
        blocks += notes(_notes(table))
    return "\n\n".join(filter(None, [*blocks, *notes(comparison.notes)])) + "\n"


def markdown(comparison: Comparison) -> str:
    """Return a heading, the grids and the notes of every table."""

    def grid(one: Grid) -> str:
        rules = ["---", *["--:"] * (len(one.columns) - 1)]
        rows = [one.titles, rules, *([_escaped(text) for text in row] for row in one.cells)]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def notes(texts: Sequence[str]) -> list[str]:
        return ["\n".join(f"- {_escaped(note)}" for note in texts)]

    return _blocks(comparison, "### TITLE", grid, notes, str)


def latex(comparison: Comparison) -> str:
    """Return plain tabulars, which need no package, with the notes below."""

    def grid(one: Grid) -> str:
        head, *rows = (" & ".join(map(_tex, row)) + r" \\" for row in [one.titles, *one.cells])
        body = "\n".join([r"\hline", head, r"\hline", *rows, r"\hline"])
        return f"\\begin{{tabular}}{{l{'r' * (len(one.columns) - 1)}}}\n{body}\n\\end{{tabular}}"

    def notes(texts: Sequence[str]) -> list[str]:
        return [_tex(sentence(note)) for note in texts]

    return _blocks(comparison, r"\paragraph{TITLE}", grid, notes, _tex)


def comma_separated(comparison: Comparison) -> str:
    """Return all methods, all pairs and all notes, each with a header of its own and an empty line between them."""
    methods, pairs, reached, notes = list[Any](), list[Any](), list[Any](), list[Any]()
    for table in comparison.tables:
        place = {"environment": table.environment, "track": table.track}
        methods += [{**place, **_flat(one), "seeds": len(one.scores)} for one in table.methods]
        pairs += map(_flat, table.pairs)
        for one in (found := table.reaching or NOBODY).methods:
            medians = {name: one.medians.get(name) for name in COUNTED}
            reached.append({**_flat(one), "score": found.score, **medians})
        notes += _notes(table)
    texts = []
    for rows in (methods, pairs, reached, [{"note": note} for note in (*notes, *comparison.notes)]):
        if rows:
            text, lines = io.StringIO(), [[*rows[0]], *([*row.values()] for row in rows)]
            csv.writer(text, lineterminator="\n").writerows([[*map(cell, line)] for line in lines])
            texts.append(text.getvalue())
    return "\n".join(texts)


def _flat(row: Method | Pair | Reached) -> dict[str, object]:
    """Return the words and numbers of a row by name, and the ends of an interval by two."""
    flat = dict[str, object]()
    for name, value in vars(row).items():
        if name.endswith("ci95"):
            flat[f"{name}_low"], flat[f"{name}_high"] = value or (None, None)
        elif name == "runs" and not isinstance(value, int):
            flat[name] = len(value)
        elif not isinstance(value, tuple | dict):
            flat["method" if name == "name" else name] = value
    return flat


FORMATS: dict[str, Callable[[Comparison], str]] = {"markdown": markdown, "csv": comma_separated, "latex": latex}


def _notes(table: Table) -> list[str]:
    players = [
        f"{name} {number(baseline.mean)} ({interval(baseline.ci95)}, {baseline.episodes} episodes)"
        for name, baseline in table.baselines.items()
    ]
    lines = [f"players that need no learning: {', '.join(players)}"] if players else []
    return [*lines, *table.notes]


def _escaped(text: str) -> str:
    return re.sub(r"\||<(?=[a-zA-Z/!?])", r"\\\g<0>", text.replace("\n", " "))  # neither a cell's end nor HTML


def _tex(text: str) -> str:
    return re.sub(r"[\\~^±<>&%$#_{}]", lambda match: NOT_IN_LATEX[match[0]], text.replace("\n", " "))


def sentence(note: str) -> str:
    """Return a note as a sentence."""
    return f"{note[:1].upper()}{note[1:]}."


def library() -> Any:
    """Return the module `matplotlib`, with figures; ConfigurationError where it is missing."""
    extra("matplotlib.figure", "--figures")
    return extra("matplotlib", "--figures")


def write_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write all figures of a comparison into a folder, and return their paths; ResourceError where that fails."""
    matplotlib, written = library(), list[Path]()
    with resources("write to", folder), matplotlib.rc_context(SETTINGS):
        folder.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(comparison.tables, 1):
            suffix = f"-{number}" if len(comparison.tables) > 1 else ""
            for plot in plots(table.methods):
                figure = _drawn(matplotlib, plot, table.environment)
                for kind in KINDS if plot.curves else ():
                    path = folder / f"{plot.name}{suffix}.{kind}"
                    figure.savefig(path, dpi=DOTS, metadata={"Date": None} if kind == "svg" else None)
                    written.append(path)
    return written


def _drawn(matplotlib: Any, plot: Plot, title: str) -> Any:
    figure = matplotlib.figure.Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    lines = []
    for curve in plot.curves:
        is_a_line = curve.x[0] < curve.x[-1]  # else all runs had one test, with the same amount spent
        lines += axes.plot(curve.x, curve.mean, "-" if is_a_line else "o")
        axes.fill_between(curve.x, curve.low, curve.high, color=lines[-1].get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel(plot.across)
    axes.set_ylabel(f"{plot.up}, {plot.about}", wrap=True)
    axes.set_title(printable(title), fontsize="small", wrap=True)
    axes.grid(alpha=0.3)
    names = [f"{printable(curve.method)} ({curve.seeds})" for curve in plot.curves]
    axes.legend(lines, names, fontsize="small", title="method (seeds)", title_fontsize="small")
    return figure
