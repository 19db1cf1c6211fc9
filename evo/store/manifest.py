"""The manifest: one line per committed generation, checked by a CRC and chained by the state hash.

docs/file-formats.md has its keys. A line is canonical JSON; "crc" comes last and is the CRC-32 of the line without it.
"""

from __future__ import annotations

import itertools
import os
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from evo.errors import DataError, ResourceError
from evo.files.arrays import ArrayDigest, first_hash, next_hash
from evo.files.durable import append, read_at, resources, with_checksum, without_checksum
from evo.files.layout import FORMAT, MANIFEST, check_format
from evo.records import LARGEST_FLOAT, NOTHING, Spent

DEEPEST = 32  # nested objects in an identity, at most; a valid one has five

SPENT, SECONDS = tuple(field.name for field in fields(Spent)), ("seconds", "cpu_seconds")
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
    forward_passes: int = 0
    multiply_adds: int = 0
    cpu_seconds: float = 0.0
    frames_validating: int = 0

    @property
    def spent(self) -> Spent:
        """Return the amounts that the generation has spent."""
        return Spent(**{name: getattr(self, name) for name in SPENT})

    @property
    def is_forked(self) -> bool:
        """Whether this is the state that a fork copied from another run."""
        return self.generation == 0 and not self.frames and not any(name.startswith("record/") for name in self.arrays)

    def encode(self) -> bytes:
        """Return the line as bytes, with its newline."""
        return with_checksum({**vars(self), "arrays": dict(self.arrays), "files": dict(self.files)}) + b"\n"


class Totals(NamedTuple):
    """Sums over the first `lines` lines."""

    lines: int = 0
    spent: Spent = NOTHING
    best: int = -1  # the newest generation that brought a champion

    def plus(self, line: Line) -> Totals:
        """Return the sums with one more line."""
        return Totals(self.lines + 1, self.spent.plus(line.spent), line.generation if line.best else self.best)

    def up_to(self, durable: Sequence[Line], pending: Sequence[Line]) -> Totals:
        """Return the sums with all lines that are not in them yet, of which the pending ones may be durable too."""
        totals, first = self, pending[0].generation if pending else len(durable)
        for number in range(self.lines, first + len(pending)):
            totals = totals.plus(pending[number - first] if number >= first else durable[number])
        return totals


class StoredLines(Sequence[Line]):
    """The lines of an open manifest, read as they are asked for: a million generations take eight megabytes."""

    def __init__(self, descriptor: int, ends: array[int]) -> None:
        """`ends` are the offsets after line 0, 1, ... of the file."""
        self._descriptor, self.ends = descriptor, ends
        last = self._text(len(self) - 1) if len(ends) > 1 else b""
        self._appended = ends[-1] - len(last), last  # what was appended last, and where
        self._last = _parse_line(last[:-1]) if last else None

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            first, last, _ = index.indices(len(self))
            return StoredLines(self._descriptor, self.ends[first : max(first, last) + 1])
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        if index % len(self) == len(self) - 1:
            return self._last
        try:
            return _parse_line(self._text(index % len(self))[:-1])
        except ValueError as error:
            raise DataError(f"{MANIFEST}: the line of generation {index % len(self)} has changed: {error}") from error

    def extend(self, path: Path, lines: Sequence[Line]) -> None:
        """Append lines durably; ResourceError: that fails, or the file is not as this process left it."""
        self.require_own(path)
        with resources("write", path):
            texts = [line.encode() for line in lines]
            self._appended = self.ends[-1], b"".join(texts)
            append(self._descriptor, self._appended[1], durable=True)
        self._last = lines[-1]
        self.ends.extend(itertools.accumulate(map(len, texts[1:]), initial=self.ends[-1] + len(texts[0])))

    def _text(self, index: int) -> bytes:
        return read_at(self._descriptor, self.ends[index + 1] - self.ends[index], self.ends[index])

    def require_own(self, path: Path) -> None:
        """Raise a ResourceError unless the file ends as this process left it; undo an append that was interrupted."""
        with resources("read", path):
            end, (start, data), ours = self.ends[-1], self._appended, os.fstat(self._descriptor)
            there = os.stat(path, follow_symlinks=False) if os.path.lexists(path) else None
            if there is not None and os.path.samestat(ours, there) and ours.st_size >= end:
                found = read_at(self._descriptor, len(data) + 1, start)
                if found == data if end > start else data.startswith(found):
                    if ours.st_size > end:
                        os.ftruncate(self._descriptor, end)
                    return
        size = "it is gone" if there is None else f"it has {there.st_size:,} bytes"
        raise ResourceError(
            f"{path}: another program changed it while the run trained: {size}, and the run had written {end:,}; "
            "nothing more is written. A resume continues from what is intact, and gives the same results"
        )


@dataclass(frozen=True)
class Manifest:
    """The valid part of a manifest."""

    identity: Mapping[str, Any]
    first_hash: str
    lines: Sequence[Line]
    ends: Sequence[int]  # the offset after line 0, 1, ...
    size: int  # bytes that were read
    damage: str = ""  # what is wrong with the first invalid line; empty: nothing
    torn: bool = False  # the invalid rest is only an interrupted append
    broken: bool = False  # the first invalid line is complete


def header(identity: Mapping[str, object]) -> bytes:
    """Return the first line of the manifest of a run."""
    return with_checksum({"format": FORMAT, "identity": identity, "state_hash": first_hash(identity)}) + b"\n"


def parse(texts: Iterable[tuple[int, bytes]], source: str, descriptor: int | None = None) -> Manifest:
    """Return the manifest up to its first invalid line; with a `descriptor`, it takes no memory. DataError: line 1."""
    reading = iter(texts)
    end, text = next(reading, (0, b""))
    try:
        identity, previous = _parse_header(_complete(text), source)
    except ValueError as error:
        raise DataError(f"{source}: line 1: {error}") from error
    lines, ends, flaw = list[Line](), array("Q", [end]), dict[str, Any]()
    for end, text in reading:
        number = len(ends) - 1
        try:
            line = _parse_line(_complete(text))
            if line.generation != number:
                raise ValueError(f"it is generation {line.generation} where {number} should be")
            if line.state_hash != next_hash(previous, number, line.arrays):
                raise ValueError("its state hash does not follow from the previous line")
        except ValueError as error:
            whole = text.endswith(b"\n")
            torn = not (whole and _has_checksum(text)) and not any(_has_checksum(later) for _, later in reading)
            flaw = {"damage": f"line {number + 2}: {error}", "torn": torn, "broken": whole}
            break
        if descriptor is None:
            lines.append(line)
        ends.append(end)
        previous = line.state_hash
    size = max([end, *(end for end, _ in reading)])
    found = lines if descriptor is None else StoredLines(descriptor, ends)
    return Manifest(identity, first_hash(identity), found, ends, size, **flaw)


def _complete(text: bytes) -> bytes:
    if not text.endswith(b"\n"):
        raise ValueError("it is incomplete")
    return text[:-1]


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
        spent: dict[str, Any] = {name: (_seconds if name in SECONDS else whole)(value[name]) for name in SPENT}
        line = Line(
            generation=whole(value["generation"]),
            state_hash=_matching(_HASH, value["state_hash"]),
            arrays={
                str(name): ArrayDigest(str(dtype), tuple(map(whole, shape)), _matching(_HASH, digest))
                for name, (dtype, shape, digest) in value["arrays"].items()
            },
            best=value["best"] is True,
            **spent,
            files={
                _matching(_PATH, path): FileStamp(whole(size), _matching(_HASH, sha))
                for path, (size, sha) in value["files"].items()
            },
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError("it lacks the fields of a generation") from error
    return line


def _shallow(value: object, depth: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_shallow(item, depth - 1) for item in inside)


def _has_checksum(text: bytes) -> bool:
    try:
        return bool(without_checksum(_complete(text)))
    except ValueError:
        return False


def whole(value: object) -> int:
    """Return a JSON value if it is an integer in [0, 2^63). Raises ValueError otherwise."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a count")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or not abs(value) < LARGEST_FLOAT:
        raise ValueError(f"{value!r} is no number of seconds")
    return float(value)


def _matching(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{value!r} is neither a SHA-256 nor a file of a run")
    return value
