"""Train networks that play games; docs/library.md has examples. What is exported is loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from evo.version import __version__ as __version__

if TYPE_CHECKING:
    from evo.comparison.league import League, league
    from evo.comparison.tables import Comparison
    from evo.comparison.training import compare
    from evo.config.experiment import Experiment
    from evo.environments.problem import Problem
    from evo.errors import EvoError
    from evo.optimum import Optimum, Search, maximise, minimise
    from evo.planning.estimate import Estimate, plan
    from evo.report.page import write_report
    from evo.run import Row, train
    from evo.store.champion import Score
    from evo.store.policy import Policy
    from evo.store.run import Run
    from evo.sweeps.sweeping import SweepResult, sweep
    from evo.training.beginning import make_algorithm
    from evo.training.generation import AskTell

__all__ = [
    "AskTell", "Comparison", "Estimate", "EvoError", "Experiment", "League", "Optimum", "Policy", "Problem", "Row",
    "Run", "Score", "Search", "SweepResult", "compare", "league", "make_algorithm", "maximise", "minimise", "plan",
    "sweep", "train", "write_report",
]  # fmt: skip

_HOMES = {
    "comparison.league": ("League", "league"),
    "comparison.tables": ("Comparison",),
    "comparison.training": ("compare",),
    "config.experiment": ("Experiment",),
    "environments.problem": ("Problem",),
    "errors": ("EvoError",),
    "optimum": ("Optimum", "Search", "maximise", "minimise"),
    "planning.estimate": ("Estimate", "plan"),
    "report.page": ("write_report",),
    "run": ("Row", "train"),
    "store.champion": ("Score",),
    "store.policy": ("Policy",),
    "store.run": ("Run",),
    "sweeps.sweeping": ("SweepResult", "sweep"),
    "training.beginning": ("make_algorithm",),
    "training.generation": ("AskTell",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"evo.{module}"), name)
            return found
    raise AttributeError(f"module 'evo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
