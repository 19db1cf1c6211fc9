"""Digests of the champions' files that an experiment names, by which its identity knows them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from evo.errors import ConfigurationError, DataError, ResourceError
from evo.files.durable import read_file
from evo.files.layout import CHAMPION, LARGEST_CHAMPION, NETWORKS, OPPONENT, near
from evo.games.declaration import GameOptions
from evo.mistakes import shown
from evo.networks.model_files import refuse_graph
from evo.options import EnvironmentOptions

CONTENT = "content of "  # keys of an identity, with the name of a file of opponents


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


def copies_in(directory: Path, options: EnvironmentOptions) -> dict[str, Path]:
    """Return where a run directory has its copy of each of `opponents.files`, by the name."""
    return {name: directory / OPPONENT.format(place) for place, name in enumerate(opponents_named(options))}


def of_copies(changed: Sequence[str]) -> dict[str, str]:
    """Return the lines of a difference that are about copies in a run directory, with what each is a copy of."""
    started = (line for line in changed if line.startswith('init_from: "') and '""' not in line)
    found = dict.fromkeys(started, "the champion that it started from")
    return found | {line: "an opponent's file" for line in changed if line.startswith(CONTENT)}
