"""The charts of a report as JSON values; `assets/charts.js` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evo.report.ancestry import Ancestry
from evo.report.curves import POINTS, Curves, curves_of, rounded
from evo.store.run import Run
from evo.training.accounting import PARTS
from evo.training.testing import Baseline

FEWEST_POINTS = 50  # of a curve, however many runs there are
MOST_SMALL = 60  # small charts
SCORES = ("test", "best", "mean", "validation")
DASHES = {"test": 0, "validation": 0, "mean": 1, "best": 2}  # line styles; runs differ in colour
FIRST = (  # of the small charts; the others follow by name
    "loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "gradient_norm", "learning_rate",
    "q_value", "epsilon", "replay_size", "sigma", "mean_length", "best_fitness", "mean_fitness", "lane_utilisation",
)  # fmt: skip
TIMES = {
    "seconds_acting": "acting", "seconds_learning": "learning", "seconds_master": "master",
    "seconds_moving": "moving", "seconds_idle": "idle",
}  # fmt: skip
Chart = dict[str, Any]
assert set(TIMES) == set(PARTS)


class Charts:
    """The charts of runs that are overlaid."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.curves = [curves_of(run, max(FEWEST_POINTS, POINTS // len(runs))) for run in runs]
        self.several = len(runs) > 1

    def scores(self, baselines: Mapping[str, Baseline]) -> Chart | None:
        """Return the test score, with the interval of the last one, and what other players score."""
        series = self._series(["test"])
        if not series:
            return None
        spans = []
        for number, run in enumerate(self.runs):
            if run.score is not None and run.score.episodes > 1:
                low, high = map(rounded, run.score.ci95)
                spans.append({"run": number, "low": low, "high": high})
        levels = [{"label": name, "value": rounded(other.mean)} for name, other in baselines.items()]
        return {"kind": "lines", "series": series, "levels": levels, "spans": spans, "y": "score"}

    def returns(self) -> Chart | None:
        """Return what training and validation brought."""
        names = ["validation", "mean"] if self.several else ["validation", "mean", "best"]
        series = self._series(names)
        return {"kind": "lines", "series": series, "y": "return"} if series else None

    def time(self) -> Chart | None:
        """Return where the seconds of every generation went, each part on top of those before; one run only."""
        columns = self.curves[0].columns
        parts = [name for name in TIMES if any(columns.get(name, []))]
        if self.several or not parts:
            return None
        total = [0.0] * len(self.curves[0].generation)
        series = []
        for name in parts:
            total = [before + (value or 0.0) for before, value in zip(total, columns[name], strict=True)]
            shown = [rounded(value, 4) for value in total]
            series.append({"run": 0, "label": TIMES[name], "values": shown, "own": columns[name]})
        usual = sorted(total)[(len(total) - 1) * 9 // 10]
        top = 2 * usual if max(total) > 4 * usual > 0 else max(total)
        return {"kind": "stack", "series": series, "y": "seconds", "top": rounded(top), "longest": max(total)}

    def others(self) -> list[tuple[str, Chart]]:
        """Return a small chart of every other column that changes, by the column's name."""
        shown = {*SCORES, *(() if self.several else TIMES)}
        names = {name for curves in self.curves for name in curves.columns} - shown
        order = [*(name for name in FIRST if name in names), *sorted(names.difference(FIRST))]
        changing = [name for name in order if not all(_constant(curves, name) for curves in self.curves)]
        return [(name, {"kind": "small", "series": self._series([name]), "y": name}) for name in changing[:MOST_SMALL]]

    def constant(self) -> list[tuple[str, Any]]:
        """Return the columns of a single run that never change, with their value."""
        if self.several:
            return []
        columns = self.curves[0].columns
        names = sorted(name for name in columns if _constant(self.curves[0], name) and name not in SCORES)
        return [(name, next(value for value in columns[name] if value is not None)) for name in names]

    def axes(self) -> list[Chart]:
        """Return what curves can be drawn over, by run."""
        return [
            {"name": run.name, "generation": curves.generation, "frames": curves.frames, "seconds": curves.seconds}
            for run, curves in zip(self.runs, self.curves, strict=True)
        ]

    def _series(self, names: Sequence[str]) -> list[Chart]:
        found = []
        for number, (run, curves) in enumerate(zip(self.runs, self.curves, strict=True)):
            for place, name in enumerate(names):
                values = curves.columns.get(name, [])
                if any(value is not None for value in values):
                    label = (
                        f"{run.name} {name}" if self.several and len(names) > 1 else run.name if self.several else name
                    )
                    colour = number if self.several else place
                    found.append(
                        {"run": number, "label": label, "values": values, "colour": colour, "dash": DASHES.get(name, 0)}
                    )
        return found


def lineage(ancestry: Ancestry) -> Chart | None:
    """Return the training returns of the champion's ancestors."""
    line = ancestry.lineage[::-1]
    if len(line) < 2:
        return None
    births = [i for i, one in enumerate(line) if not one.kept]
    series = {
        "label": "ancestor",
        "values": [one.mean_return for one in line],
        "colour": 0,
        "dash": 0,
        "points": births,
    }
    return {"kind": "lines", "x": [one.generation + 1 for one in line], "series": [series], "y": "mean return"}


def heat(ancestry: Ancestry) -> Chart | None:
    """Return how returns are distributed in every generation."""
    found = ancestry.histogram
    if found is None or len(found.generations) < 2:
        return None
    return {"kind": "heat", "x": found.generations, "edges": found.edges, "counts": found.counts, "y": "return"}


def _constant(curves: Curves, name: str) -> bool:
    return len({value for value in curves.columns.get(name, []) if value is not None}) < 2
