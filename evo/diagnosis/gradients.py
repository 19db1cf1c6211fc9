"""What keeps gradient methods from learning: updates that are too large, a policy that explores no more, bad values."""

from __future__ import annotations

import math

import numpy as np

from evo.diagnosis.signs import Checked, Signs, checked, found, mean
from evo.numbers import figure, percent

MOST_KL = 0.02  # approximate KL divergence of a generation's updates; healthy runs of PPO have less
GOOD_KL = 0.01
EXPLODING = 10.0  # gradient norm over what it was in the first quarter, and over the limit that clips it
COLLAPSED, LOW = 0.02, 0.7  # entropy over that of the uniform policy
LEAST_EXPLAINED = 0.02  # explained variance of the values; where it is 0, they are no better than a constant
CONSTANT = 1e-4  # explained variance of values that are all the same, but for rounding
LEAST_UPDATES = 300  # values explain little at first
LATE = 0.25  # share of a run that says how it ends


def gradients(signs: Signs) -> list[Checked]:
    """Return what was looked at in a run of a gradient method."""
    if not signs.options.learns or signs.option("learning_rate") is None:
        return []
    steps, gradient = divergence(signs), explosion(signs)
    checks = [steps, gradient, entropy(signs)]
    if not found([steps, gradient]):
        checks.append(values(signs))
    return [check for check in checks if check is not None]


def divergence(signs: Signs) -> Checked | None:
    """Look for updates that throw the policy too far."""
    kl, clipped = signs.late("approx_kl"), signs.late("clip_fraction")
    if math.isnan(kl) or math.isnan(clipped):  # of a single update it is 0
        return None
    label = f"approximate KL divergence {figure(kl)}, clipped {percent(clipped)}"
    rate, norm, limit = signs.late("learning_rate"), signs.late("gradient_norm"), signs.option("max_gradient_norm")
    if kl <= MOST_KL:
        highest = float(np.nanmax(signs.run.column("gradient_norm")))
        return checked(
            label,
            "learning_rate_too_large",
            "The learning rate is far too large: an early update has made the network blind.",
            f"The value is the same for all observations, and the gradient norm is {figure(norm)}, where its highest "
            f"was {figure(highest)}; the learning rate is {figure(rate)}.",
            f"Begin again, and learn more slowly: {lower_rate(signs, 0.1)}.",
            constant_values(signs),
        )
    return checked(
        label,
        "learning_rate_too_large",
        "The learning rate is far too large: every generation throws the policy away.",
        f"Updates of a generation change the policy by an approximate KL divergence of {figure(kl)} (healthy runs: up "
        f"to 0.02), and {percent(clipped)} of the ratios are clipped; the learning rate is {figure(rate)}, the "
        f"gradient norm {figure(norm)} (limit {limit}).",
        f"Learn more slowly: {lower_rate(signs, math.sqrt(GOOD_KL / kl))}.",
    )


def constant_values(signs: Signs) -> bool:
    """Return whether values depend on nothing at the end of a run: they then explain no variance at all."""
    explained = signs.run.column("explained_variance")
    late = explained[len(explained) - math.ceil(LATE * len(explained)) :]
    return bool((np.abs(late[np.isfinite(late)]) < CONSTANT).all() and np.isfinite(late).any())


def lower_rate(signs: Signs, factor: float) -> str:
    """Return the words that multiply the learning rate, also the final one where it is annealed."""
    names = ["learning_rate", *(["learning_rate_final"] if signs.option("learning_rate_frames") else [])]
    return " ".join(signs.set(name, f"{factor * float(signs.option(name) or 0):.1g}") for name in names)


def explosion(signs: Signs) -> Checked | None:
    """Look for gradients that grow without bound."""
    norms = signs.run.column("gradient_norm")
    late, early = signs.late("gradient_norm", LATE), mean(norms[: math.ceil(LATE * len(norms))])
    broken = int((~np.isfinite(norms) & (signs.run.column("updates") > 0)).sum()) if np.isfinite(norms).any() else 0
    if math.isnan(late):
        return None
    label, limit = f"gradient norm {figure(late)}", float(signs.option("max_gradient_norm") or 0.0)
    return checked(
        label,
        "exploding_gradient",
        "The gradient explodes.",
        f"Its norm before clipping went from {figure(early)} in the first quarter of the run to {figure(late)} in the "
        f"last one, and clipping to {limit:g} leaves its direction only.",
        f"Learn more slowly: {lower_rate(signs, 1 / 3)}.",
        bool(broken) or late > EXPLODING * max(early, limit),
    )


def entropy(signs: Signs) -> Checked | None:
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
        wrong = "Entropy has collapsed: the policy tries nothing else any more."
        evidence += f", with an entropy coefficient of {coefficient:g}."
        return checked(label, "entropy_collapse", wrong, evidence, f"Reward exploration more: {change}.")
    wrong = "There is no entropy bonus: nothing keeps the policy from settling too early."
    evidence += ", and the entropy coefficient is 0."
    low = coefficient == 0 and final == 0 and now < LOW * most
    return checked(label, "no_entropy_bonus", wrong, evidence, f"Reward exploration: {change}.", low)


def values(signs: Signs) -> Checked | None:
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
        f"Weight the value loss more, or bring rewards to scale: {' or '.join(changes)}.",
        bool(explained < LEAST_EXPLAINED and np.nansum(signs.run.column("updates")) >= LEAST_UPDATES),
    )
