"""What differs between the options of two runs, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evo.config.contents import CONTENT, as_named, by_copies
from evo.errors import printable
from evo.files.arrays import FORKED_FROM
from evo.networks.keras_models import layers_of
from evo.options import EnvironmentOptions
from evo.plugins import code
from evo.toml import value_text

ARITHMETIC = "learner.arithmetic"  # of an identity
MODEL = "environment.model"  # of an identity: the description of a Keras model


def difference(
    one: Mapping[str, Any], other: Mapping[str, Any], options: EnvironmentOptions | None = None
) -> list[str]:
    """Return a line for every key that differs; arithmetic stands for all that it depends on, code comes last.

    Names of files in lines are those in `options`.
    """
    one, other = by_copies(one), by_copies(other)
    others = (code.PLUGINS, FORKED_FROM)
    ours, theirs = (_flat({key: value for key, value in each.items() if key not in others}) for each in (one, other))
    keys, common = sorted(ours.keys() | theirs.keys()), ours.keys() & theirs.keys()
    keys = [key for key in keys if key in common or not key.startswith(CONTENT)]  # others are in the environment
    differing = [key for key in keys if ours.get(key) != theirs.get(key)]
    if ARITHMETIC in differing:
        differing = [key for key in differing if key == ARITHMETIC or not key.startswith("learner.")]
    if one.get(code.GAME) and other.get(code.GAME):
        differing = [key for key in differing if not key.startswith(f"{code.GAME}.")]
    names = {key: key if options is None else as_named(key, options) for key in differing}
    return [_line(key, name, ours, theirs) for key, name in names.items()] + code.changes(one, other)


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {prefix + key: item}
    return flat


def _line(key: str, name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return the line of a key; of a Keras model it has the layers, since its description is no text for a reader."""
    one, other = (_text(values, key) for values in (ours, theirs))
    if key == MODEL:
        one, other = (layers_of(values.get(key)) for values in (ours, theirs))
        if one == other:
            return f"{key}: another Keras model, of the same layers ({one}) with other options or fixed weights"
    return f"{printable(name)}: {one} in the run, {other} now"


def _text(values: Mapping[str, Any], key: str) -> str:
    if values.get(key) is None:
        return "nothing"
    try:
        return value_text(values[key])
    except TypeError:  # from a manifest that no run has written
        return "a value that TOML does not have"
