"""What identities say of champions' files, which they know by contents, and how two of them differ, in words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evo.errors import ConfigurationError, DataError, ResourceError, printable
from evo.files.durable import read_file
from evo.files.layout import CHAMPION, FORKED_FROM, LARGEST_CHAMPION, NETWORKS, OPPONENT, near
from evo.games.declaration import GameOptions
from evo.mistakes import shown
from evo.networks.keras_models import layers_of
from evo.networks.model_files import refuse_graph
from evo.options import EnvironmentOptions
from evo.plugins import code
from evo.toml import value_text

CONTENT = "content of "  # keys of an identity, with the name that a run's copy of a file of opponents has
ARITHMETIC = "learner.arithmetic"  # of an identity
MODEL = "environment.model"  # of an identity: the description of a Keras model


def content_of(option: str, path: Path) -> str:
    """Return the SHA-256 of a champion's file or a run's; ConfigurationError, ResourceError: it cannot be read."""
    try:
        refuse_graph(path)
        data = read_file(path / CHAMPION if path.is_dir() else path, most=LARGEST_CHAMPION)
    except ResourceError as error:
        raise ResourceError(f"{option}: {error}") from error
    except (DataError, ValueError) as error:
        meant = "" if path.exists() else near(path, NETWORKS)
        raise ConfigurationError(f"{option}: {shown(str(path))} cannot be read: {error}{meant}") from error
    return hashlib.sha256(data).hexdigest()


def opponents_named(options: EnvironmentOptions) -> dict[str, str]:
    """Return the names in all `opponents.files`, each with the option that has it first."""
    found = dict[str, str]()
    places = ("environment", *(f"environment.{place}" for place in options.changes))
    for place, one in zip(places, (options, *options.in_training()), strict=True):
        for name in one.opponents.files if isinstance(one, GameOptions) else ():
            found.setdefault(name, f"{place}.opponents.files")
    return found


def copies_in(directory: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return where a run directory has its copy of each of these `opponents.files`, by the name."""
    return {name: directory / OPPONENT.format(place) for place, name in enumerate(names)}


def names_in(environment: object) -> list[str]:
    """Return the names in all `opponents.files` of a table of options, in the order of `opponents_named`."""
    tables = _tables(environment)
    of_game = any("players" in _opponents(table) for table in tables)  # those of a plug-in's own options mean another
    return list(dict.fromkeys(name for table in tables for name in _files(table))) if of_game else []


def by_copies(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity with the names of copies in place of those in `opponents.files`, which change no result.

    Those of earlier versions have the names of an experiment file.
    """
    environment, found = identity.get("environment"), dict(identity)
    copies = {name: copy.name for name, copy in copies_in(Path(), names_in(environment)).items()}
    if not copies or not isinstance(environment, Mapping):
        return found
    renamed = dict(_renamed(environment, copies))
    if changes := environment.get("training"):
        several = isinstance(changes, list)
        renamed["training"] = [_renamed(one, copies) for one in changes] if several else _renamed(changes, copies)
    contents = {CONTENT + name: CONTENT + copy for name, copy in copies.items()}
    return {contents.get(key, key): value for key, value in (found | {"environment": renamed}).items()}


def contents_in(identity: Mapping[str, Any], options: EnvironmentOptions) -> dict[str, Any]:
    """Return the digests of `opponents.files` that an identity has, by the names in these options."""
    copies = copies_in(Path(), opponents_named(options)).items()
    return {name: identity[CONTENT + copy.name] for name, copy in copies}


def as_named(key: str, options: EnvironmentOptions) -> str:
    """Return a key of an identity that is about a copy with what the options name in its place, for a reader."""
    copies = copies_in(Path(), opponents_named(options)).items()
    return next((CONTENT + name for name, copy in copies if key == CONTENT + copy.name), key)


def _tables(environment: object) -> list[object]:
    changes = environment.get("training") if isinstance(environment, Mapping) else None
    return [environment, *(changes if isinstance(changes, list) else [changes])]


def _opponents(table: object) -> Mapping[str, Any]:
    opponents = table.get("opponents") if isinstance(table, Mapping) else None
    return opponents if isinstance(opponents, Mapping) else {}


def _files(table: object) -> list[str]:
    files = _opponents(table).get("files")
    return files if isinstance(files, list) and all(isinstance(name, str) for name in files) else []


def _renamed(table: Any, copies: Mapping[str, str]) -> Any:
    files = [copies[name] for name in _files(table)]
    return {**table, "opponents": {**table["opponents"], "files": files}} if files else table


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


def of_copies(changed: Sequence[str]) -> dict[str, str]:
    """Return the lines of a difference that are about copies in a run directory, with what each is a copy of."""
    started = (line for line in changed if line.startswith('init_from: "') and '""' not in line)
    found = dict.fromkeys(started, "the champion that it started from")
    return found | {line: "an opponent's file" for line in changed if line.startswith(CONTENT)}
