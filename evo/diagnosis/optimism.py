"""Measure selection bias: in training returns of finalists, and in the validation return of the champion."""

from __future__ import annotations

import math

from evo.diagnosis.signs import Checked, Finding, Signs, figure

MOST_OPTIMISM = 0.3  # of the validation return


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
