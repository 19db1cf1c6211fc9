"""What keeps evolution from improving: luck in selection, the size of mutations, a population without variety."""

from __future__ import annotations

import math

import numpy as np

from evo.diagnosis.signs import Checked, Signs, checked, found, power_of_two
from evo.errors import DataError, counted
from evo.numbers import figure, percent
from evo.store.run import Run

LEAST_SIGNAL, ENOUGH_SIGNAL = 2.5, 5.0  # variance between candidates over that of luck; healthy runs have 5 and more
FEW_EPISODES = 4  # with fewer it is itself known so badly that it must be enough
SMALL_STEP, USUAL_STEP = 0.1, 0.2  # sigma over the root mean square of the weights; healthy: 0.15 to 0.3
LARGE_FIRST_STEP, GOOD_FIRST_STEP = 2.0, 0.5  # the same in the first mutated generation
SUCCESS, FAILURE = 0.1, 0.015  # share of children that beat their parent; 1/5 is Rechenberg's rule (1973)
NEAR_COPIES = 0.02  # diversity
LEAST_TURNOVER = 0.05  # share of new networks among survivors


def evolution(signs: Signs) -> list[Checked]:
    """Return the checks of a run of evolution; a finding that explains others comes first, and hides them."""
    if not math.isfinite(signs.late("signal_to_noise")) and signs.option("population") is None:
        return []
    checks = [near_copies(signs), stale_elites(signs)]
    if not found(checks):
        size = step(signs)
        if found([size]) and found([size])[0].name == "sigma_too_small":
            checks += [size]  # near copies play alike, whatever the number of episodes
        elif found([noise := noisy_selection(signs)]):
            checks += [noise]
        else:
            checks += [noise, first_step(signs), size]
    return [check for check in checks if check is not None]


def near_copies(signs: Signs) -> Checked | None:
    """Look for a population that has collapsed to one network."""
    diversity = signs.late("diversity")
    if math.isnan(diversity):
        return None
    label = f"diversity {figure(diversity)}"
    if diversity >= NEAR_COPIES:
        return Checked(label)
    age = takeover(signs.run)
    taken = "" if age is None else f"; one network's descendants took it over in {counted(age, 'generation')}"
    parents, population = int(signs.option("parents") or 1), int(signs.option("population") or 2)
    changes = []
    if parents < population // 16:
        changes.append(signs.set("parents", _multiple(signs, max(2, population // 8))))
    if math.isfinite(rms := signs.late("weight_rms")) and signs.late("sigma") < SMALL_STEP * rms:
        changes.append(signs.set("sigma", figure(USUAL_STEP * rms)))
    changes = changes or [signs.set("parents", _multiple(signs, min(4 * parents, population - 1)))]
    return checked(
        label,
        "collapsed_population",
        "The population has collapsed: all survivors are near copies of one network.",
        f"Their weights differ by {percent(diversity)} of their size (healthy runs: 10 % and more){taken}; "
        f"{percent(signs.late('distinct'))} of the candidates play differently.",
        f"Keep more parents and mutate further: {' '.join(changes)}.",
    )


def takeover(run: Run) -> int | None:
    """Return how many generations ago all survivors had one ancestor; None where that is unknown."""
    rows = None  # of the ancestors, among the survivors of the generation looked at
    last = run.store.next_generation - 1
    try:
        for generation, record in run.newest_records([]):
            survivors, parents = record.get("survivors"), record.get("parent")
            if survivors is None or parents is None or survivors.ndim != 1 or not len(survivors):
                return None
            rows = np.arange(len(survivors)) if rows is None else rows
            if len(rows) == 1 and generation < last:
                return last - generation
            rows = np.unique(parents[survivors[rows]])
            if rows[0] < 0:
                return None
            if len(rows) == 1:
                return last - generation + 1
    except (DataError, IndexError):
        pass
    return None


def stale_elites(signs: Signs) -> Checked | None:
    """Look for parents that are never replaced."""
    turnover, elites = signs.late("turnover"), signs.option("elites")
    if math.isnan(turnover) or elites is None:
        return None
    label, population = f"new survivors {percent(turnover)}", int(signs.option("population") or 2)
    fewer = _multiple(signs, max(1, population // 8))
    return checked(
        label,
        "stale_elites",
        "The elites are stale: parents stay for ever, and too few children are tried.",
        f"{elites} of {population} candidates are elites, and {percent(turnover)} of the survivors are new in a "
        f"generation (healthy runs: 10 % and more).",
        f"Keep fewer: {signs.set('elites', fewer)} {signs.set('parents', fewer)}.",
        turnover < LEAST_TURNOVER and 2 * elites >= population,
    )


def _multiple(signs: Signs, parents: int) -> int:
    """Return the largest number of parents up to this one that islands share equally; at least one on each."""
    islands = int(signs.option("islands") or 1)
    return max(islands, parents - parents % islands)


def noisy_selection(signs: Signs) -> Checked | None:
    """Look for selection by luck. Strategies average over their candidates, so less signal is enough for them."""
    signal, episodes = signs.late("signal_to_noise"), signs.episodes
    if math.isnan(signs.late("improving")) and signs.option("parents") is None:
        return None if math.isnan(signal) else Checked(f"signal to noise {figure(signal)}")
    if math.isnan(signal):
        if episodes > 1:
            return None
        evidence, more = "A candidate plays 1 episode, so skill cannot be distinguished from luck", 16
    else:
        evidence = (
            f"The variance between candidates is {figure(signal)} times that of luck in their means over "
            f"{counted(episodes, 'episode')} (healthy runs: {figure(ENOUGH_SIGNAL)} and more)"
        )
        more = power_of_two(min(64.0, ENOUGH_SIGNAL / max(signal, 0.05)) * episodes)
    label = f"signal to noise {'unknown' if math.isnan(signal) else figure(signal)}"
    gap = signs.late("optimism")
    return checked(
        label,
        "noisy_selection",
        "Selection is mostly luck: candidates play too few episodes.",
        f"{evidence}{f'; finalists return {figure(gap)} less in validation than in training' if gap > 0 else ''}.",
        f"Play more: {signs.more_episodes(more)}.",
        not signal >= (ENOUGH_SIGNAL if episodes < FEW_EPISODES else LEAST_SIGNAL),
    )


def first_step(signs: Signs) -> Checked | None:
    """Look for mutations that are larger than the weights that they change."""
    sizes, sigmas = signs.run.column("weight_rms"), signs.run.column("sigma")
    known = np.flatnonzero(np.isfinite(sizes[:-1]) & (sigmas[1:] > 0))
    if not len(known):
        return None
    size, sigma = float(sizes[known[0]]), float(sigmas[known[0] + 1])
    if not size > 0:
        return Checked("first sigma")
    label = f"first sigma over weights {figure(sigma / size)}"
    return checked(
        label,
        "sigma_too_large",
        "Sigma is too large: a mutation replaces the network that it should change.",
        f"The first children had a median sigma of {figure(sigma)}, {figure(sigma / size)} times the size of the "
        f"weights, {figure(size)} (root mean square); it has grown to {figure(signs.last('weight_rms'))} since.",
        f"Mutate less: {signs.set('sigma', figure(GOOD_FIRST_STEP * size))}.",
        sigma > LARGE_FIRST_STEP * size,
    )


def step(signs: Signs) -> Checked | None:
    """Look for mutations that are too small to matter, or so large that none succeeds."""
    improving, sigma, size = signs.late("improving"), signs.late("sigma"), signs.late("weight_rms")
    if sigma == 0:  # the recorded median counts elites, whose sigma is 0
        sigma = float(signs.option("sigma") or 0.0)
    if math.isnan(improving) or math.isnan(sigma) or not size > 0:
        return None
    ratio, base = sigma / size, float(signs.option("sigma") or sigma)
    label = f"improving mutations {percent(improving)}, sigma over weights {figure(ratio)}"
    surviving = signs.late("surviving_sigma")
    kept = "" if math.isnan(surviving) else f"; children that survive have {figure(surviving)}"
    evidence = (
        f"{percent(improving)} of the children beat their parent, with a median sigma of {figure(sigma)}{kept}; the "
        f"weights are of size {figure(size)} (root mean square)."
    )
    if improving > SUCCESS and ratio < SMALL_STEP:
        wrong = "Sigma is too small: many mutations improve, and each of them by little."
        better = figure(base * min(USUAL_STEP / ratio, 10.0)) if ratio else figure(USUAL_STEP * size)
        return checked(label, "sigma_too_small", wrong, evidence, f"Mutate further: {signs.set('sigma', better)}.")
    wrong = "Sigma is too large for this network now: hardly a mutation improves."
    less = f"{signs.set('sigma', figure(base / 2))} or {signs.set('sigma_halving', 100)}"
    change = f"Mutate less, or less as time goes on: {less}."
    return checked(label, "sigma_too_large", wrong, evidence, change, improving < FAILURE)
