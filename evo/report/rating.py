"""The rating over time of a run of several players: a league of its champions and the baselines of its validation."""

from __future__ import annotations

from typing import Any

import numpy as np

from evo.comparison.league import RoundRobin, baseline_of, played
from evo.report.charts import rounded
from evo.report.html import Chart
from evo.rollouts.seatings import SeatPlayer
from evo.store.run import Run
from evo.training.opponents import HALL, SINCE

CHAMPIONS = 8  # that play, evenly from the first one to the newest
EPISODES = 16  # of a pair, from each seat


def rating_over_time(run: Run) -> Chart | None:
    """Return the ratings of champions over generations, in one league with the baselines, which are played here.

    None where the run has no hall of fame, or fewer than two champions.
    """
    state = run.store.load() if run.store.next_generation else {}
    hall, since, network = state.get(HALL), state.get(SINCE), run.config.network()
    if hall is None or since is None or hall.shape != (len(since), network.size):
        return None
    own = np.flatnonzero(np.asarray(since, np.int64) >= 0)  # without networks of files
    if len(own) < 2:
        return None
    last, count = len(own) - 1, min(CHAMPIONS, len(own))
    rows = [int(own[k * last // (count - 1)]) for k in range(count)]
    generations = [int(since[row]) + 1 for row in rows]
    champions = [SeatPlayer(str(g), 0, network, hall[row]) for g, row in zip(generations, rows, strict=True)]
    options: Any = run.config.environment
    baselines = [baseline_of(run.config, name) for name in options.opponents.baselines]
    found = {
        one.name: one for one in played(RoundRobin(run.config, [*champions, *baselines]), episodes=EPISODES).players
    }
    rated = [found[one.name] for one in champions]
    series = {
        "label": "champion", "colour": 0, "dash": 0, "x": generations, "values": [rounded(one.rating) for one in rated],
        "low": [rounded(one.ci95[0]) for one in rated], "high": [rounded(one.ci95[1]) for one in rated],
    }  # fmt: skip
    levels = [{"label": one.name, "value": rounded(found[one.name].rating)} for one in baselines]
    return {"kind": "lines", "series": [series], "levels": levels, "across": "generation", "y": "rating"}
