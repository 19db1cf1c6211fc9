"""What keeps a run from improving.

Of evolution: luck in selection, the size of mutations, a population without variety. Of gradient methods: updates that
are too large, a policy that explores no more, values that predict nothing.
"""

from __future__ import annotations

import math

import numpy as np

from evo.diagnosis.signs import Check, Signs, checked, found, mean, power_of_two
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

MOST_KL = 0.02  # approximate KL divergence of a generation's updates; healthy runs of PPO have less
GOOD_KL = 0.01
EXPLODING = 10.0  # gradient norm over what it was in the first quarter, and over the limit that clips it
COLLAPSED, LOW = 0.02, 0.7  # entropy over that of the uniform policy
LEAST_EXPLAINED = 0.02  # explained variance of the values; where it is 0, they are no better than a constant
CONSTANT = 1e-4  # explained variance of values that are all the same, but for rounding
LEAST_UPDATES = 300  # values explain little at first
LATE = 0.25  # share of a run that says how it ends


def evolution(signs: Signs) -> list[Check]:
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


def near_copies(signs: Signs) -> Check | None:
    """Look for a population that has collapsed to one network."""
    diversity = signs.late("diversity")
    if math.isnan(diversity):
        return None
    label = f"diversity {figure(diversity)}"
    if diversity >= NEAR_COPIES:
        return Check(label)
    age = None if signs.option("crossover") == "mean" else takeover(signs.run)  # else children have one ancestor
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


def stale_elites(signs: Signs) -> Check | None:
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


def noisy_selection(signs: Signs) -> Check | None:
    """Look for selection by luck. Means over many candidates average it out, so less signal is enough for them."""
    signal, episodes = signs.late("signal_to_noise"), signs.episodes
    averages = signs.section == "es" or signs.option("parents") is None or signs.option("crossover") == "mean"
    if math.isnan(signs.late("improving")) and averages:
        return None if math.isnan(signal) else Check(f"signal to noise {figure(signal)}")
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
        f"Play more: {signs.set('episodes', more)}.",
        not signal >= (ENOUGH_SIGNAL if episodes < FEW_EPISODES else LEAST_SIGNAL),
    )


def first_step(signs: Signs) -> Check | None:
    """Look for mutations that are larger than the weights that they change."""
    sizes, sigmas = signs.column("weight_rms"), signs.column("sigma")
    known = np.flatnonzero(np.isfinite(sizes[:-1]) & (sigmas[1:] > 0))
    if not len(known):
        return None
    size, sigma = float(sizes[known[0]]), float(sigmas[known[0] + 1])
    if not size > 0:
        return Check("first sigma")
    label = f"first sigma over weights {figure(sigma / size)}"
    return checked(
        label,
        "sigma_too_large",
        "Sigma is too large: a mutation replaces the network that it should change.",
        f"The first children had a median sigma of {figure(sigma)}, {figure(sigma / size)} times the size of the "
        f"weights, {figure(size)} (root mean square); it is now {figure(signs.last('weight_rms'))}.",
        f"Mutate less: {signs.set('sigma', figure(GOOD_FIRST_STEP * size))}.",
        sigma > LARGE_FIRST_STEP * size,
    )


def step(signs: Signs) -> Check | None:
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
        wrong = "Sigma is too small: many mutations improve the network, but each only a little."
        better = figure(base * min(USUAL_STEP / ratio, 10.0)) if ratio else figure(USUAL_STEP * size)
        return checked(label, "sigma_too_small", wrong, evidence, f"Mutate further: {signs.set('sigma', better)}.")
    wrong = "Sigma is now too large for this network: hardly any mutation improves it."
    change = f"Mutate less: {signs.set('sigma', figure(base / 2))}."
    return checked(label, "sigma_too_large", wrong, evidence, change, improving < FAILURE)


def gradients(signs: Signs) -> list[Check]:
    """Return the checks of a run of a gradient method."""
    if not signs.options.learns or signs.option("learning_rate") is None:
        return []
    steps, gradient = divergence(signs), explosion(signs)
    checks = [steps, gradient, entropy(signs)]
    if not found([steps, gradient]):
        checks.append(values(signs))
    return [check for check in checks if check is not None]


def divergence(signs: Signs) -> Check | None:
    """Look for updates that throw the policy too far."""
    kl, clipped = signs.late("approx_kl"), signs.late("clip_fraction")
    if math.isnan(kl) or math.isnan(clipped):  # of a single update it is 0
        return None
    label = f"approximate KL divergence {figure(kl)}, clipped {percent(clipped)}"
    rate, norm, limit = signs.late("learning_rate"), signs.late("gradient_norm"), signs.option("max_gradient_norm")
    if kl <= MOST_KL:
        highest = float(np.nanmax(signs.column("gradient_norm")))
        return checked(
            label,
            "learning_rate_too_large",
            "The learning rate is far too large: after an early update, the network ignores observations.",
            f"The value is the same for all observations, and the gradient norm, {figure(highest)} at its highest, "
            f"is {figure(norm)}; the learning rate is {figure(rate)}.",
            f"Begin again, and learn more slowly: {lower_rate(signs, 0.1)}.",
            constant_values(signs),
        )
    return checked(
        label,
        "learning_rate_too_large",
        "The learning rate is far too large: every generation changes the policy too much.",
        f"Updates of a generation change the policy by an approximate KL divergence of {figure(kl)} (healthy runs: up "
        f"to 0.02), and {percent(clipped)} of the ratios are clipped; the learning rate is {figure(rate)}, the "
        f"gradient norm {figure(norm)} (limit {limit}).",
        f"Learn more slowly: {lower_rate(signs, math.sqrt(GOOD_KL / kl))}.",
    )


def constant_values(signs: Signs) -> bool:
    """Return whether values depend on nothing at the end of a run: they then explain no variance at all."""
    explained = signs.column("explained_variance")
    late = explained[len(explained) - math.ceil(LATE * len(explained)) :]
    return bool((np.abs(late[np.isfinite(late)]) < CONSTANT).all() and np.isfinite(late).any())


def lower_rate(signs: Signs, factor: float) -> str:
    """Return the words that multiply the learning rate, also the final one where it is annealed."""
    names = ["learning_rate", *(["learning_rate_final"] if signs.option("learning_rate_frames") else [])]
    return " ".join(signs.set(name, f"{factor * float(signs.option(name) or 0):.1g}") for name in names)


def explosion(signs: Signs) -> Check | None:
    """Look for gradients that grow without bound."""
    norms = signs.column("gradient_norm")
    late, early = signs.late("gradient_norm", LATE), mean(norms[: math.ceil(LATE * len(norms))])
    broken = int((~np.isfinite(norms) & (signs.column("updates") > 0)).sum()) if np.isfinite(norms).any() else 0
    if math.isnan(late):
        return None
    label, limit = f"gradient norm {figure(late)}", float(signs.option("max_gradient_norm") or 0.0)
    critics = signs.options.replays and not limit  # without clipping, their norm grows with the values that they learn
    return checked(
        label,
        "exploding_gradient",
        "The gradient explodes.",
        f"Its norm before clipping went from {figure(early)} in the first quarter of the run to {figure(late)} in the "
        f"last one, and clipping to {limit:g} keeps only its direction.",
        f"Learn more slowly: {lower_rate(signs, 1 / 3)}.",
        bool(broken) or (late > EXPLODING * max(early, limit) and not critics),
    )


def entropy(signs: Signs) -> Check | None:
    """Look for a policy that explores no more, or that nothing keeps exploring."""
    now, coefficient = signs.late("entropy", LATE), signs.option("entropy_coefficient")
    actions = signs.run.environment.actions
    if math.isnan(now) or coefficient is None or signs.run.environment.continuous or actions < 2:
        return None
    most = math.log(actions)
    label = f"entropy {figure(now)} of at most {figure(most)}"
    evidence = f"The entropy of the policy is {figure(now)} nats, {percent(now / most)} of that of random actions"
    change, final = signs.set("entropy_coefficient", f"{3 * coefficient:.1g}" if coefficient else "0.01"), 0.0
    if signs.option("entropy_coefficient_frames"):
        final = float(signs.option("entropy_coefficient_final") or 0.0)
        change += " " + signs.set("entropy_coefficient_final", f"{3 * final:.1g}" if final else "0.001")
    if now < COLLAPSED * most:
        wrong = "Entropy has collapsed: the policy no longer explores."
        evidence += f", with an entropy coefficient of {coefficient:g}."
        return checked(label, "entropy_collapse", wrong, evidence, f"Reward exploration more: {change}.")
    wrong = "There is no entropy bonus: nothing keeps the policy from settling too early."
    evidence += ", and the entropy coefficient is 0."
    low = coefficient == 0 and final == 0 and now < LOW * most
    return checked(label, "no_entropy_bonus", wrong, evidence, f"Reward exploration: {change}.", low)


def values(signs: Signs) -> Check | None:
    """Look for values that do not predict returns, so that advantages are noise."""
    explained, loss = signs.late("explained_variance", LATE), signs.late("value_loss", LATE)
    if math.isnan(explained):
        return None
    label = f"explained variance {figure(explained)}"
    coefficient = float(signs.option("value_coefficient") or 0.0)
    changes = [signs.set("value_coefficient", f"{max(2 * coefficient, 0.5):g}")]
    changes += [] if signs.option("normalise_rewards") else [signs.set("normalise_rewards", "true")]
    return checked(
        label,
        "value_error",
        "The value error is large: the values predict nothing, so advantages are as noisy as returns.",
        f"Values explain {percent(explained)} of the variance of returns in the last quarter of the run, and the value "
        f"loss is {figure(loss)}.",
        f"Weight the value loss more, or normalise rewards: {' or '.join(changes)}.",
        bool(explained < LEAST_EXPLAINED and np.nansum(signs.column("updates")) >= LEAST_UPDATES),
    )
