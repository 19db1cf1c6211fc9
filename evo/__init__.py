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
    "AskTell",
    "Comparison",
    "Estimate",
    "EvoError",
    "Experiment",
    "League",
    "Optimum",
    "Policy",
    "Problem",
    "Row",
    "Run",
    "Score",
    "Search",
    "SweepResult",
    "compare",
    "league",
    "make_algorithm",
    "maximise",
    "minimise",
    "plan",
    "sweep",
    "train",
    "write_report",
]

_HOMES = {
    "AskTell": "evo.training.generation",
    "Comparison": "evo.comparison.tables",
    "Estimate": "evo.planning.estimate",
    "EvoError": "evo.errors",
    "Experiment": "evo.config.experiment",
    "League": "evo.comparison.league",
    "Optimum": "evo.optimum",
    "Policy": "evo.store.policy",
    "Problem": "evo.environments.problem",
    "Row": "evo.run",
    "Run": "evo.store.run",
    "Search": "evo.optimum",
    "Score": "evo.store.champion",
    "SweepResult": "evo.sweeps.sweeping",
    "compare": "evo.comparison.training",
    "league": "evo.comparison.league",
    "make_algorithm": "evo.training.beginning",
    "maximise": "evo.optimum",
    "minimise": "evo.optimum",
    "plan": "evo.planning.estimate",
    "sweep": "evo.sweeps.sweeping",
    "train": "evo.run",
    "write_report": "evo.report.page",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'evo' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
