"""The page of a champion of any game that draws pictures: test episodes as it played them, with its facts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evo.errors import ConfigurationError, DataError
from evo.numbers import interval, number
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import WeightSource
from evo.report.html import element, joined, section, table, whole_page
from evo.report.replays import ShownEpisode, results_of, shown_episode
from evo.store.run import Run
from evo.training.testing import BLOCK, median_episode, playing, score_of
from evo.version import __version__

EPISODES = 32  # of which the worst, the median and the best are shown
LARGEST = 40_000  # bytes of an episode


def recorded_page(run: Run, title: str, command: str, episodes: int = EPISODES) -> bytes:
    """Return the page, on which the champion plays the worst, median and best of the first test episodes.

    ConfigurationError: the environment draws no pictures. DataError: its outputs are not finite, or its episodes are
    too long to be shown.
    """
    environment, champion = run.environment, run.champion
    if not environment.visible:
        raise ConfigurationError(f"--to html: {run.config.environment.id} draws no pictures")
    block = (run.test.block if run.test else run.config.test.block) * BLOCK
    seeds = seeds_of_test_episodes(episodes, block)
    with playing(run.config) as (evaluator, published):
        source = WeightSource.of_row(published=published.publish(champion.weights[None]))
        (result,) = results_of(evaluator, [source], seeds)
        scores = score_of(result, environment.episode_metrics)
        order = scores.argsort(kind="stable")
        named = {"Worst": int(order[0]), "Median": median_episode(scores), "Best": int(order[-1])}
        shown: list[ShownEpisode] = []
        for label, episode in named.items():
            seed = seeds[episode : episode + 1]
            (played,) = results_of(evaluator, [source], seed, record=True)
            one = shown_episode(run, f"{label} of {episodes}", played, int(seed[0]), LARGEST)
            if one is not None:
                shown.append(one)
    if not shown:
        raise DataError(f"--to html: the episodes of {run.name} are too long to be shown")
    body = joined([
        element("header", element("h1", title), element("p", _summary(run), class_="verdict")),
        section("Episodes", element("div", id="replays"), element("noscript", "Episodes need JavaScript.")),
        section("Facts", table(["fact", "value"], _facts(run, command, float(np.mean(scores))), class_="facts")),
    ])  # fmt: skip
    data = {"replays": [{"label": one.label, "score": one.score, "steps": one.steps, **one.frames} for one in shown]}
    return whole_page(title, body, data, ("replays.js",))


def _summary(run: Run) -> str:
    how_well = "" if run.test is None else f", with a mean test score of {number(run.test.mean)}"
    size = run.config.network().size
    return f"{run.config.algorithm} has trained {size:,} weights to play {run.config.environment.id}{how_well}."


def _facts(run: Run, command: str, mean: float) -> Iterator[tuple[str, object]]:
    """Yield names and values; `mean` is that of the episodes of which some are shown."""
    about = run.champion.about
    if (test := run.test) is not None:
        played = f"{test.episodes:,} test episodes of block {test.block}"
        yield "score", f"{number(test.mean)} (95 % interval {interval(test.ci95)}) on {played}"
    yield "mean of those shown from", number(mean)
    yield "algorithm", f"{about.get('algorithm')}, seed {about.get('seed')}"
    yield "state hash", element("code", str(about.get("state_hash", "unknown")))
    yield "written by", f"snake-evo {__version__}"
    yield "command", element("code", command)
