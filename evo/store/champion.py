"""The champion's files: champion.h5 is self-contained, champion.json is a readable copy of its facts.

champion.h5 has the weights, one float32 array per layer array, and "about", JSON with its checksum. Two files cannot be
renamed in one step, so no needed fact is in champion.json alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError, counted
from evo.files.arrays import Layout, array_layout, decode, encode, entries
from evo.files.durable import read_file, replace_file, resources, sync_directory, with_checksum, without_checksum
from evo.files.layout import CHAMPION, FORMAT, LARGEST_CHAMPION, READABLE, check_format
from evo.networks.network import Network
from evo.records import LARGEST_FLOAT
from evo.store.manifest import Line, whole

ABOUT_LARGEST = 1 << 20
KERAS = {"layers", "model_weights", "optimizer_weights", "vars", "top_level_model_weights"}  # entries of Keras files

BLOCK, LAST_BLOCK = 1_000_000, 4000  # test episodes of a block, and the number of the last one
MOST = 1e3 * LARGEST_FLOAT  # of a number in a score: intervals are wider than what they are of

SHARED = ("algorithm", "seed", "environment", "policy")  # facts that the identity of its run has too

Layers = Sequence[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Score:
    """What a network scores on test episodes: the game's own score, or the return where it has none."""

    episodes: int  # played
    mean: float  # score of an episode, and so are `median` and `max`
    ci95: tuple[float, float]  # 95 % interval of the mean over all possible episodes (Gaffke, 2005); NaN with one
    median: float
    max: float
    win_rate: float | None  # 0 to 1; None where there is no win
    win_ci95: tuple[float, float] | None  # its 95 % interval (Wilson, 1927)
    mean_length: float  # frames of an episode
    block: int = 0  # which million of test episodes, from 0
    mean_return: float | None = None  # on the same episodes; None in files that do not have it


@dataclass(frozen=True)
class ChampionScore:
    """How the champion did in validation, and in its test."""

    fitness: float  # mean validation return
    test: Score | None = None  # None before a test


class Champion(NamedTuple):
    """The network of a run that validated best, as its file has it."""

    weights: NDArray[np.float32]  # [P]
    layers: tuple[tuple[str, tuple[int, ...]], ...]  # name and shape of each array in `weights`
    about: Mapping[str, Any]  # other facts, by name (docs/file-formats.md)

    @property
    def score(self) -> Score | None:
        """The test score; None before a test, or where it has another form."""
        return score_in(self.about)

    def fits(self, network: Network) -> bool:
        """Return whether its arrays are those of a network."""
        return list(self.layers) == network_layers(network)

    def mistakes(self, identity: Mapping[str, Any], lines: Sequence[Line]) -> Iterator[str]:
        """Yield the signs that it is not of the run with this identity and these lines of the manifest."""
        for name in SHARED:
            if self.about.get(name) != identity.get(name):
                yield f"its {name} is not the run's"
        known = self.about.get("generations")
        if type(known) is not int or known < 1:
            yield "does not state its generation"
        elif known > len(lines):
            yield f"states {counted(known, 'generation')}, but the run has {len(lines)}"
        elif lines[known - 1].state_hash != self.about.get("state_hash"):
            yield f"its state hash is not that of generation {known - 1}"


def score_in(about: Mapping[str, Any]) -> Score | None:
    """Return the test score among the facts of a champion's file; None where it has another form."""
    try:
        score = Score(**about["test"])
        intervals = [score.ci95, score.win_ci95 or (None, None)]
        bounds = [bound for low, high in intervals for bound in (low, high)]
    except (KeyError, TypeError, ValueError):
        return None
    numbers = [score.mean, score.median, score.max, score.mean_length]
    rest = [number for number in (*bounds, score.win_rate, score.mean_return) if number is not None]
    if not all(isinstance(n, int | float) and abs(n) <= MOST for n in (*numbers, *rest)):
        return None
    of_test = type(score.episodes) is type(score.block) is int
    if not of_test or not (1 <= score.episodes <= BLOCK and 0 <= score.block <= LAST_BLOCK):
        return None
    low, high = (math.nan if bound is None else bound for bound in score.ci95)
    return replace(score, ci95=(low, high))


def network_layers(network: Network) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of every array of a network, in the order of its weights."""
    arrays = network.split(np.empty(network.size, np.float32))
    return list(zip(network.names(), [array.shape for array in arrays], strict=True))


def split_layers(weights: NDArray[np.float32], layers: Layers) -> dict[str, NDArray[np.float32]]:
    """Return the arrays of a flat vector by name.  # weights [P]"""
    ends = np.cumsum([prod(shape) for _, shape in layers])
    parts = zip(layers, np.split(weights, ends[:-1]), strict=True)
    return {name: part.reshape(shape) for (name, shape), part in parts}


def encode_champion(weights: NDArray[np.float32], layers: Layers, about: Mapping[str, object]) -> tuple[bytes, bytes]:
    """Return the bytes of champion.h5 and champion.json. Raises ValueError where layers and weights do not fit."""
    flat = np.ascontiguousarray(weights, "<f4")
    names = [name for name, _ in layers]
    if flat.ndim != 1 or sum(prod(shape) for _, shape in layers) != flat.size:
        raise ValueError(f"the layers do not add up to weights of shape {flat.shape}")
    if len(set(names)) != len(names) or "about" in names:
        raise ValueError("layers must have distinct names, and none may be 'about'")
    text = facts_of(flat, layers, about)
    data = encode({"about": np.frombuffer(text, np.uint8), **split_layers(flat, layers)})
    readable = {**without_checksum(text), "file": CHAMPION, "file_sha256": hashlib.sha256(data).hexdigest()}
    return data, json.dumps(readable, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


def facts_of(weights: NDArray[np.float32], layers: Layers, about: Mapping[str, object]) -> bytes:
    """Return the description of a champion of these weights [P], as text."""
    facts = {
        "about": dict(about),
        "format": FORMAT,
        "layers": [[name, list(shape)] for name, shape in layers],
        "weights_sha256": hashlib.sha256(weights.tobytes()).hexdigest(),
    }
    return with_checksum(facts)


def write_champion(directory: Path, data: bytes, readable: bytes) -> None:
    """Write both files of `encode_champion`, each atomically and durably."""
    with resources("write", directory / CHAMPION):
        replace_file(directory / CHAMPION, data)
        replace_file(directory / READABLE, readable)
        sync_directory(directory)


def read_champion(path: Path) -> Champion:
    """Return the champion of a trusted run (others: `evo.store.sandbox.read_champion`); DataError: it is invalid."""
    file = champion_file(path)
    text, weights = unpack(read_file(file, most=LARGEST_CHAMPION), str(file))
    return checked_champion(text, weights, str(file))


def champion_file(path: Path) -> Path:
    """Return the champion's file of a run directory, or the file itself."""
    return path / CHAMPION if path.is_dir() else path


def unpack(data: bytes, source: str) -> tuple[bytes, NDArray[np.float32]]:
    """Return the facts, as text, and the flat weights [P] of a champion's file; DataError where it is invalid."""
    present = entries(data, source)
    if "about" not in present:
        kind = "; it seems to be a Keras file" if present & KERAS else ""
        raise DataError(f"{source}: has no array 'about', so it is not a champion of a run{kind}")
    about = array_layout(data, "about", source)
    if about.dtype != "|u1" or len(about.shape) != 1 or about.shape[0] > ABOUT_LARGEST:
        raise DataError(f"{source}: not a champion: 'about' is no text of at most {ABOUT_LARGEST} bytes")
    text = decode(data, {"about": about}, source, others=True)["about"].tobytes()
    layers = _parsed(text, source)[0]
    arrays = decode(data, {"about": about, **{name: Layout("<f4", shape) for name, shape in layers}}, source)
    weights = np.concatenate([arrays[name].ravel() for name, _ in layers]).astype(np.float32, copy=False)
    return text, weights


def checked_champion(text: bytes, weights: NDArray[np.float32], source: str) -> Champion:
    """Return the champion of facts, as text, and weights [P]. Raises DataError where they do not belong together."""
    layers, digest, facts = _parsed(text, source)
    if sum(prod(shape) for _, shape in layers) != weights.size:
        raise DataError(f"{source}: its layers do not add up to its {weights.size} weights")
    if hashlib.sha256(weights.tobytes()).hexdigest() != digest:
        raise DataError(f"{source}: corrupt, the SHA-256 of its weights is wrong")
    return Champion(weights, layers, facts)


def _parsed(text: bytes, source: str) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], str, dict[str, Any]]:
    """Return the layers, the SHA-256 of the weights, and the facts."""
    try:
        stated = without_checksum(text)
        check_format(stated.get("format", 1), source)
        layers = tuple((str(name), tuple(map(whole, shape))) for name, shape in stated["layers"])
        if len({*(name for name, _ in layers), "about"}) != len(layers) + 1 or not layers:
            raise ValueError("its layers do not have distinct names")
        return layers, str(stated["weights_sha256"]), dict(stated["about"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{source}: its description is invalid ({error})") from error
