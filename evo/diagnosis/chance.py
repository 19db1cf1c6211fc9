"""Whether the champion is worse than the random player, which needs no learning."""

from __future__ import annotations

from collections.abc import Mapping

from evo.diagnosis.signs import Checked, Finding, Signs, figure
from evo.environment import RANDOM
from evo.errors import EvoError
from evo.plugins.registry import command
from evo.training.testing import BASELINE_SECONDS, Baseline, baseline


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
