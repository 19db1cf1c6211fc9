"""The values that a sweep tries: `ga.sigma=0.05,0.1` lists them, `ga.sigma=0.01..1:log` says between which they lie."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from evo.errors import ConfigurationError

NUMBER = r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")
KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
REFUSED = {  # keys of options that trials have in common, and why
    "run.seed": "the seeds of a sweep are common to all trials; give --seed and --seeds",
    "run.generations": "all trials have the same budget; give --generations or --set",
    "run.budget": "all trials have the same budget; give it with --set",
    "validation": "trials are compared by their validation returns, so all have the same episodes",
    "test": "it changes no training",
    "workers": "it changes no result",
}
TRAINING = "environment.training"
MOST_TRIALS = 10_000
SHORTEST, LONGEST = 1, 120  # characters of a trial's name

Values = Mapping[str, str]  # of a trial: option to value, as --set takes them


@dataclass(frozen=True)
class Axis:
    """One option and the values that it may have: a list of them, or all between two numbers."""

    key: str
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @property
    def is_range(self) -> bool:
        """Return whether values are drawn, not listed."""
        return not self.values


def axis_of(text: str) -> Axis:
    """Return the axis that an `--over` describes; ConfigurationError where it is none."""
    key, equals, values = text.partition("=")
    key, values = key.strip(), values.strip()
    if not equals or not values or not KEY.fullmatch(key):
        raise ConfigurationError(
            f"--over {text}: must be an option and its values, as in ga.sigma=0.05,0.1 or ga.sigma=0.01..1:log"
        )
    for refused, why in REFUSED.items():
        if (
            key == refused
            or key.startswith(f"{refused}.")
            or (refused == "run.generations" and key.endswith(refused[3:]))
        ):
            raise ConfigurationError(f"--over {key}: cannot be varied: {why}")
    if key.startswith("environment.") and not key.startswith(TRAINING):
        raise ConfigurationError(
            f"--over {key}: cannot be varied: validation returns of different environments are no measure of each "
            f"other; only {TRAINING} can"
        )
    if match := RANGE.fullmatch(values):
        return _range(key, *match.groups())
    listed = _split(values)
    if twice := [value for place, value in enumerate(listed) if value in listed[:place]]:
        raise ConfigurationError(f"--over {key}: {twice[0]} is named twice")
    if not all(listed):
        raise ConfigurationError(f"--over {key}: a value is empty in {values!r}")
    return Axis(key, tuple(listed))


def _range(key: str, first: str, last: str, log: str | None) -> Axis:
    low, high = float(first), float(last)
    whole = not (set(".eE") & set(first + last))
    if low >= high:
        raise ConfigurationError(f"--over {key}: {first}..{last} must go from the lower to the higher number")
    if log and low <= 0:
        raise ConfigurationError(f"--over {key}: a logarithmic range begins above 0, not at {first}")
    return Axis(key, (), low, high, bool(log), whole)


def _split(text: str) -> list[str]:
    """Return the parts between commas that are outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def axes_of(texts: Sequence[str]) -> list[Axis]:
    """Return the axes of all `--over`; ConfigurationError where two have one option."""
    axes = [axis_of(text) for text in texts]
    keys = [axis.key for axis in axes]
    if twice := [key for place, key in enumerate(keys) if key in keys[:place]]:
        raise ConfigurationError(f"--over {twice[0]}: is given twice; list all values in one")
    return axes


def grid(axes: Sequence[Axis]) -> list[Values]:
    """Return every combination; ConfigurationError where an axis is a range, or there are too many."""
    for axis in axes:
        if axis.is_range:
            raise ConfigurationError(f"--over {axis.key}: a range needs --search optuna; else list the values")
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_TRIALS:
        raise ConfigurationError(f"--over: {count:,} combinations are more than {MOST_TRIALS:,}")
    return [
        dict(zip([axis.key for axis in axes], values, strict=True)) for values in product(*(a.values for a in axes))
    ]


def name_of(values: Values) -> str:
    """Return a trial's name, a part of the names of its run directories: what was changed."""
    text = ",".join(f"{key}={value}" for key, value in values.items())
    plain = re.sub(r"[^A-Za-z0-9._,=+-]+", "-", text).strip("-.,")
    tells_apart = plain == text and SHORTEST <= len(plain) <= LONGEST  # not [[8,3]] and [8,3] without their brackets
    return plain if tells_apart else f"{plain[: LONGEST - 17]}-{_digest(text)}"


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]
