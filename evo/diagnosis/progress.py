"""Whether a run was still learning when it ended: then more generations come before other options."""

from __future__ import annotations

import math

import numpy as np

from evo.diagnosis.signs import Signs, figure
from evo.plugins.registry import command

CERTAIN = 3.0  # standard errors by which the last quarter exceeds the one before
LEAST = 3  # generations of a quarter


def still_rising(signs: Signs) -> str:
    """Return a note where the mean return of the last quarter of a run is above that of the third; else nothing."""
    returns = signs.run.column("mean")
    quarter = len(returns) // 4
    third, last = returns[-2 * quarter : -quarter], returns[-quarter:]
    if quarter < LEAST or not np.isfinite([*third, *last]).all():
        return ""
    error = math.sqrt((third.var(ddof=1) + last.var(ddof=1)) / quarter)
    if last.mean() - third.mean() <= CERTAIN * error:
        return ""
    more = command("evo", "resume", str(signs.run.directory), "--generations", str(2 * len(returns)))
    before, now = figure(float(third.mean())), figure(float(last.mean()))
    return (
        f"returns were still rising ({before} in the third quarter, {now} in the last): train longer before you change "
        f"options: {more}"
    )
