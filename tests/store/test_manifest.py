from __future__ import annotations

import io
import os
import random
from pathlib import Path

import numpy as np
import pytest

from evo.errors import DataError
from evo.files.arrays import array_digest, first_hash, next_hash
from evo.files.durable import LONGEST, lines_in, lines_of, with_checksum, without_checksum
from evo.store.manifest import FileStamp, Line, Manifest, header, parse

IDENTITY = {"seed": 1, "ga": {"sigma": 0.1}}


def lines(count: int) -> list[Line]:
    made: list[Line] = []
    state_hash = first_hash(IDENTITY)
    for generation in range(count):
        arrays = {"state/n": array_digest("n", np.array([generation], np.int64))}
        state_hash = next_hash(state_hash, generation, arrays)
        files = {f"population/gen-{generation:06d}.h5": FileStamp(10, "ab" * 32)}
        spent = (7 + generation, 1 << 40, 0.5)
        made.append(Line(generation, state_hash, arrays, 100 + generation, 0.25, generation == 1, files, *spent))
    return made


def parsed(data: bytes) -> Manifest:
    return parse(lines_in(io.BytesIO(data)), "m")


def encoded(count: int) -> bytes:
    return header(IDENTITY) + b"".join(line.encode() for line in lines(count))


def test_what_was_written_is_read_back() -> None:
    data = encoded(4)
    manifest = parsed(data)
    assert manifest.lines == lines(4)
    assert manifest.identity == IDENTITY
    assert manifest.ends[-1] == len(data)
    assert manifest.damage == ""
    assert not manifest.torn


def test_a_hole_is_passed_over_and_the_lines_around_it_are_read(tmp_path: Path) -> None:
    """A manifest and metrics of 200 GB that took 20 KB were read to their end, for half an hour."""
    path = tmp_path / "lines"
    with path.open("wb") as file:
        file.write(b"one\n")
        for size in (1 << 33, 1 << 40, 1 << 42):
            file.truncate(size)
            file.seek(0, os.SEEK_END)
            file.write(b"a few bytes" * 9 + b"\n" * (size == 1 << 40) + b"two\n" * (size == 1 << 40))
        file.truncate(1 << 43)
    found, first = list(lines_of(path)), (1 << 40) + 100
    assert found == [(4, b"one\n"), (first, b"\n"), (first + 4, b"two\n"), (1 << 43, b" ")]
    assert list(lines_in(io.BytesIO(b"x" * LONGEST + b"y" * LONGEST + b"\nz"))) == [
        (2 * LONGEST + 1, b"\n"),
        (2 * LONGEST + 2, b"z"),
    ]


def test_every_end_is_where_a_shorter_manifest_would_end() -> None:
    assert list(parsed(encoded(4)).ends) == [len(encoded(count)) for count in range(5)]


def test_a_manifest_cut_at_any_byte_gives_the_generations_that_are_whole() -> None:
    data = encoded(3)
    ends = parsed(data).ends
    for size in range(ends[0], len(data)):
        manifest = parsed(data[:size])
        whole = sum(end <= size for end in ends) - 1
        assert manifest.lines == lines(whole)
        assert manifest.torn == (size not in ends)


def test_a_first_line_that_does_not_hold_is_refused() -> None:
    data = encoded(1)
    for broken in (b"", b"{}\n", data[:20], data.replace(b'"seed":1', b'"seed":2', 1), data[5:]):
        with pytest.raises(DataError, match="m: line 1: "):
            parsed(broken)


def test_an_identity_that_is_nested_without_end_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(40):
        deep = {"a": deep}
    with pytest.raises(DataError, match="too deeply"):
        parsed(header(deep))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (1, "m: was written in format 1 .* reads format 2: train again"),
        (3, "m: was written in format 3 by a later snake-evo; .* reads format 2: use the version that wrote it"),
        ("2", "m: has format '2'; this version reads format 2"),
        (None, "m: has format None; this version reads format 2"),
    ],
)
def test_another_format_is_refused_in_one_line(found: object, text: str) -> None:
    with pytest.raises(DataError, match=text):
        parsed(with_checksum({"format": found, "identity": {}, "state_hash": ""}) + b"\n")


def test_damage_in_the_middle_is_named_and_ends_the_valid_part() -> None:
    texts = encoded(5).split(b"\n")
    texts[3] = texts[3].replace(b'"frames":102', b'"frames":103')
    manifest = parsed(b"\n".join(texts))
    assert manifest.lines == lines(2)
    assert manifest.damage.startswith("line 4: its checksum")
    assert not manifest.torn


def test_a_changed_line_with_its_own_checksum_breaks_the_chain() -> None:
    texts = encoded(5).split(b"\n")
    value = without_checksum(texts[3])
    value["arrays"]["state/n"][2] = "00" * 32
    texts[3] = with_checksum(value)
    manifest = parsed(b"\n".join(texts))
    assert len(manifest.lines) == 2
    assert "state hash does not follow" in manifest.damage


@pytest.mark.parametrize("order", [(0, 1, 3), (0, 2, 1, 3), (0, 1, 1, 2)])
def test_missing_swapped_and_doubled_lines_are_refused(order: tuple[int, ...]) -> None:
    made = lines(4)
    data = header(IDENTITY) + b"".join(made[number].encode() for number in order)
    manifest = parsed(data)
    assert [line.generation for line in manifest.lines] == list(range(len(manifest.lines)))
    assert len(manifest.lines) < len(order)
    assert "is generation" in manifest.damage
    assert not manifest.torn


def test_a_file_outside_the_run_is_never_named() -> None:
    for path in ("../../etc/passwd", "/etc/passwd", "population/../x.h5", "population/gen-000000.h5\n"):
        line = lines(1)[0]
        data = header(IDENTITY) + Line(0, line.state_hash, line.arrays, files={path: FileStamp(1, "ab" * 32)}).encode()
        assert parsed(data).lines == []


@pytest.mark.parametrize("text", [b"[" * 100_000, b"1", b"null", b'"x"', b"\xff\xfe"])
def test_a_hostile_line_is_only_a_line_that_does_not_hold(text: bytes) -> None:
    assert parsed(encoded(1) + text + b"\n").lines == lines(1)


def mutant(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    kind = dice.randrange(4)
    place = dice.randrange(len(data))
    if kind == 0:
        changed[place] ^= 1 << dice.randrange(8)
    elif kind == 1:
        del changed[place:]
    elif kind == 2:
        changed[place : place + 64] = dice.randbytes(64)
    else:
        del changed[place : place + dice.randrange(1, 200)]
    return bytes(changed)


def valid_part_is_a_prefix(mutants: int) -> int:
    dice = random.Random(1)
    data, whole = encoded(6), lines(6)
    refused = 0
    for _ in range(mutants):
        try:
            manifest = parsed(mutant(data, dice))
        except DataError:
            refused += 1
            continue
        assert manifest.lines == whole[: len(manifest.lines)]
        assert manifest.identity == IDENTITY
    return refused


def test_of_300_mutants_only_a_prefix_of_the_original_is_valid() -> None:
    assert 0 < valid_part_is_a_prefix(300) < 300


@pytest.mark.long
def test_of_20000_mutants_only_a_prefix_of_the_original_is_valid() -> None:
    valid_part_is_a_prefix(20_000)
