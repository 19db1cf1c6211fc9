"""Lines of JSON, each with a checksum as its last key: appended whole, and read one at a time."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from evo.errors import ResourceError
from evo.files.durable import open_regular, resources, write_all

LONGEST = 1 << 24  # bytes of a line that is written, and that is read whole

_CHECKSUM = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_CHECKSUM_LENGTH = len(b',"crc":"00000000"}')


def canonical_json(value: object) -> bytes:
    """Return canonical JSON: sorted keys, no spaces, UTF-8. Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def with_checksum(body: Mapping[str, object]) -> bytes:
    """Return canonical JSON with its CRC as the last key."""
    return checksummed(canonical_json(body))


def checksummed(text: bytes) -> bytes:
    """Return the JSON of an object that is not empty, with its CRC as the last key."""
    return text[:-1] + b',"crc":"%08x"}' % zlib.crc32(text)


def without_checksum(text: bytes) -> dict[str, Any]:
    """Return the object in a text with its checksum. Raises ValueError where it is incomplete or its CRC differs."""
    match = _CHECKSUM.fullmatch(text, max(len(text) - _CHECKSUM_LENGTH, 0))
    if match is None:
        raise ValueError("it is incomplete")
    body = text[:-_CHECKSUM_LENGTH] + b"}"
    if zlib.crc32(body) != int(match[1], 16):
        raise ValueError("its checksum is wrong")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield as `lines_in` for a regular file. Raises DataError where there is none, ResourceError where reading fails.

    A file of any size takes the memory of one line.
    """
    with (
        open_regular(path) as descriptor,
        resources("read", path),
        os.fdopen(descriptor, "rb", closefd=False) as file,
    ):
        yield from lines_in(file)


def lines_in(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the offset after each line, and the line with its newline, which an incomplete last one lacks.

    A line of more than LONGEST bytes is yielded as an empty one.
    """
    end = 0
    while text := file.readline(LONGEST):
        end, rest = end + len(text), text
        while not rest.endswith(b"\n") and (rest := file.readline(LONGEST)):
            end, text = end + len(rest), b"\n" if rest.endswith(b"\n") else b" "
        yield end, text


def append(descriptor: int, data: bytes, *, durable: bool) -> None:
    """Append complete lines to a file that is open for that; where it fails with an OSError, all or nothing is added.

    Raises ResourceError where a line is longer than a reader takes.
    """
    if len(data) > LONGEST and max(map(len, data.splitlines())) > LONGEST:
        raise ResourceError(f"a line of more than {LONGEST} bytes could not be read back: use fewer arrays or options")
    size = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
