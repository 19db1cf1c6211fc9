"""The manifest: one line per committed generation, checked by a CRC and chained by the state hash.

    line 0       {"format": 2, "identity": {...}, "state_hash": h[-1], "crc": ...}
    line g + 1   {"arrays": {NAME: [dtype, shape, digest]}, "best": bool, "files": {PATH: [size, SHA-256]},
                  "frames": played, "generation": g, "seconds": taken, "state_hash": h[g],
                  "forward_passes": computed, "multiply_adds": of them, "cpu_seconds": taken, "crc": ...}

A line is canonical JSON; "crc" comes last and is the CRC-32, as eight hexadecimal digits, of the line without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evo.errors import DataError
from evo.files.durable import resources, write_all
from evo.files.hashing import ArrayDigest, first_hash, next_hash
from evo.files.layout import FORMAT, check_format
from evo.files.lines import with_checksum, without_checksum
from evo.records import Spent

DEEPEST = 32  # nested objects in an identity, at most; a valid one has five

Number = TypeVar("Number", int, float)

_HASH = re.compile(r"[0-9a-f]{64}")
_PATH = re.compile(r"population/gen-\d{6,}\.h5|records/gen-\d{6,}-\d{6,}\.h5")


class FileStamp(NamedTuple):
    """Size in bytes and SHA-256 of an immutable file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Line:
    """One committed generation."""

    generation: int
    state_hash: str
    arrays: Mapping[str, ArrayDigest]
    frames: int = 0
    seconds: float = 0.0
    best: bool = False
    files: Mapping[str, FileStamp] = field(default_factory=dict)
    forward_passes: int | None = None  # None where a version wrote the line that did not count them
    multiply_adds: int | None = None
    cpu_seconds: float | None = None

    @property
    def spent(self) -> Spent:
        """Return what the generation has spent."""
        return Spent(self.frames, self.seconds, self.forward_passes, self.multiply_adds, self.cpu_seconds)

    def encode(self) -> bytes:
        """Return the line as bytes, with its newline."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return with_checksum({**known, "arrays": dict(self.arrays), "files": dict(self.files)}) + b"\n"


@dataclass(frozen=True)
class Manifest:
    """The valid part of a manifest."""

    identity: Mapping[str, Any]
    first_hash: str
    lines: tuple[Line, ...]
    ends: tuple[int, ...]  # the offset after line 0, 1, ...
    damage: str = ""  # what is wrong with the first invalid line; empty: nothing
    torn: bool = False  # the invalid rest is only an interrupted append


def header(identity: Mapping[str, object]) -> bytes:
    """Return the first line of the manifest of a run."""
    return with_checksum({"format": FORMAT, "identity": identity, "state_hash": first_hash(identity)}) + b"\n"


def append(path: Path, lines: Sequence[Line], size: int) -> int:
    """Append lines durably to a manifest of `size` bytes; return its new size. Raises ResourceError on failure."""
    data = b"".join(line.encode() for line in lines)
    with resources("write", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_size != size:  # an interrupted append
                os.ftruncate(descriptor, size)
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
    return size + len(data)


def parse(data: bytes, source: str) -> Manifest:
    """Return the manifest up to its first invalid line. Raises DataError where line 1 is invalid."""
    texts = data.split(b"\n")
    rest = texts.pop()  # b"" where the last line ends in a newline
    try:
        if not texts:
            raise ValueError("it is incomplete")
        identity, previous = _parse_header(texts[0], source)
    except ValueError as error:
        raise DataError(f"{source}: line 1: {error}") from error
    lines: list[Line] = []
    ends = [len(texts[0]) + 1]
    for number, text in enumerate(texts[1:]):
        try:
            line = _parse_line(text)
            if line.generation != number:
                raise ValueError(f"it is generation {line.generation} where {number} should be")
            if line.state_hash != next_hash(previous, number, line.arrays):
                raise ValueError("its state hash does not follow from the previous line")
        except ValueError as error:
            torn = not any(map(_has_checksum, texts[number + 2 :])) and not _has_checksum(text)
            damage = f"line {number + 2}: {error}"
            return Manifest(identity, first_hash(identity), tuple(lines), tuple(ends), damage, torn)
        lines.append(line)
        ends.append(ends[-1] + len(text) + 1)
        previous = line.state_hash
    damage = f"line {len(lines) + 2}: it is incomplete" if rest else ""
    return Manifest(identity, first_hash(identity), tuple(lines), tuple(ends), damage, bool(rest))


def _parse_header(text: bytes, source: str) -> tuple[dict[str, Any], str]:
    value = without_checksum(text)
    check_format(value.get("format"), source)
    identity, state_hash = value.get("identity"), value.get("state_hash")
    if not _shallow(identity, DEEPEST):
        raise ValueError("its identity is nested too deeply")
    if not isinstance(identity, dict) or state_hash != first_hash(identity):
        raise ValueError("its state hash is not that of its identity")
    return identity, str(state_hash)


def _parse_line(text: bytes) -> Line:
    value = without_checksum(text)
    try:
        line = Line(
            generation=whole(value["generation"]),
            state_hash=_hash(value["state_hash"]),
            arrays={
                str(name): ArrayDigest(str(dtype), tuple(map(whole, shape)), _hash(digest))
                for name, (dtype, shape, digest) in value["arrays"].items()
            },
            frames=whole(value["frames"]),
            seconds=float(value["seconds"]),
            best=value["best"] is True,
            forward_passes=_if_there(whole, value.get("forward_passes")),
            multiply_adds=_if_there(whole, value.get("multiply_adds")),
            cpu_seconds=_if_there(float, value.get("cpu_seconds")),
            files={_path(path): FileStamp(whole(size), _hash(sha)) for path, (size, sha) in value["files"].items()},
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError("it lacks the fields of a generation") from error
    return line


def _if_there(of: Callable[[Any], Number], value: object) -> Number | None:
    return None if value is None else of(value)


def _shallow(value: object, depth: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_shallow(item, depth - 1) for item in inside)


def _has_checksum(text: bytes) -> bool:
    try:
        without_checksum(text)
    except ValueError:
        return False
    return True


def whole(value: object) -> int:
    """Return a JSON value if it is an integer in [0, 2^63). Raises ValueError otherwise."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a count")
    return value


def _hash(value: object) -> str:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ValueError(f"{value!r} is not a SHA-256")
    return value


def _path(value: object) -> str:
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        raise ValueError(f"{value!r} is not a file of a run")
    return value
