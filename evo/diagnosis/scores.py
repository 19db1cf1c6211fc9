"""What the champion's scores show: that it is worse than chance, was chosen by luck, or was still improving."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evo.diagnosis.signs import Checked, Finding, Signs
from evo.environment import RANDOM
from evo.errors import EvoError
from evo.numbers import figure
from evo.plugins.registry import command
from evo.training.testing import BASELINE_SECONDS, Baseline, baseline

MOST_OPTIMISM = 0.3  # of the validation return
CERTAIN = 3.0  # standard errors by which the last quarter exceeds the one before
LEAST = 3  # generations of a quarter


def chance(signs: Signs, players: Mapping[str, Baseline] | None) -> Checked | None:
    """Look for a champion whose interval lies below that of the random player, which plays where it did not before."""
    score, random = signs.run.score, _random(signs) if players is None else players.get(RANDOM)
    if score is None or random is None:
        return None
    label = f"champion's score {figure(score.mean)}, random player {figure(random.mean)}"
    if score.episodes < 2 or random.episodes < 2 or score.ci95[1] >= random.ci95[0]:
        return Checked(label)
    return Checked(
        label,
        Finding(
            "worse_than_random",
            "The champion is worse than the random player.",
            f"The champion scores {figure(score.mean)}, a random player {figure(random.mean)}.{_greedy(signs)}",
            f"Try {'' if signs.section == 'ppo' else '--algorithm ppo, or '}more generations: "
            f"--set run.generations={4 * len(signs.run.metrics)}.",
        ),
    )


def _greedy(signs: Signs) -> str:
    """Say how to play a champion otherwise than by its highest output, where it has one."""
    if signs.run.environment.continuous:
        return ""
    other = command("evo", "evaluate", str(signs.run.directory), "--mode", "sample")
    return f" It always takes its highest output and may repeat itself: `{other}` plays it otherwise."


def _random(signs: Signs) -> Baseline | None:
    """Return what the random player scores on the champion's test episodes; None where it cannot play."""
    score = signs.run.score
    try:
        if score is None or RANDOM not in signs.run.environment.players:
            return None
        return baseline(signs.run.environment, RANDOM, score.episodes, score.block, BASELINE_SECONDS)
    except EvoError:
        return None


def optimism(signs: Signs) -> Checked | None:
    """Look for finalists whose training returns were luck, and for a champion whose validation return was."""
    if signs.run.config.environment.training:
        return None  # training episodes are others, and their returns too
    gap, validation = signs.late("optimism"), signs.last("validation")
    test = signs.last("test_return")
    size = max(abs(validation), abs(signs.last("best") - signs.last("mean")))
    pieces = []
    if math.isfinite(gap):
        pieces.append(("training", gap, f"Finalists return {figure(gap)} less in validation than in training"))
    if math.isfinite(test):
        pieces.append(
            ("validation", validation - test, f"The champion returns {figure(validation - test)} less on test episodes")
        )
    if not pieces or not size > 0:
        return None
    label = ", ".join(f"{name} gap {figure(value)}" for name, value, _ in pieces)
    worst = [(name, value, text) for name, value, text in pieces if value > MOST_OPTIMISM * size]
    if not worst:
        return Checked(label)
    changes = {
        "training": signs.more_episodes(2 * signs.episodes),
        "validation": f"--set validation.episodes={4 * signs.run.config.validation.episodes}",
    }
    return Checked(
        label,
        Finding(
            "optimism_gap",
            "Scores are optimistic: what was chosen was lucky.",
            f"{'; '.join(text for _, _, text in worst)}, where the validation return is {figure(validation)}.",
            f"Choose by more episodes: {' '.join(changes[name] for name, _, _ in worst)}.",
        ),
    )


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
