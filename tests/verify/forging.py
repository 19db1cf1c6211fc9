"""Changes a run as somebody would who wants it to be believed: checksums, hashes and the chain all follow."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.files.arrays import array_digest, encode, next_hash
from evo.files.durable import lines_of
from evo.store.champion import encode_champion, read_champion, write_champion
from evo.store.checkpoints import population_file, read_records, read_state, record_file
from evo.store.manifest import FileStamp, Line, Manifest, header, parse

Arrays = dict[str, NDArray[Any]]


def manifest_of(directory: Path) -> Manifest:
    return parse(lines_of(directory / "manifest.jsonl"), "manifest")


def write_lines(directory: Path, lines: list[Line], *, chained: bool = True) -> None:
    """Write the manifest anew; with `chained`, every state hash follows, and the champion says the new one."""
    manifest = manifest_of(directory)
    previous = manifest.first_hash
    for number, line in enumerate(lines):
        if chained:
            previous = next_hash(previous, line.generation, line.arrays)
            lines[number] = dataclasses.replace(line, state_hash=previous)
    data = header(manifest.identity) + b"".join(line.encode() for line in lines)
    (directory / "manifest.jsonl").write_bytes(data)
    if chained and (directory / "champion.h5").exists():
        known = read_champion(directory).about["generations"]
        forge_champion(directory, {"state_hash": lines[known - 1].state_hash})


def forge_champion(directory: Path, facts: Mapping[str, object], weights: NDArray[np.float32] | None = None) -> None:
    champion = read_champion(directory)
    weights = champion.weights if weights is None else weights
    write_champion(directory, *encode_champion(weights, champion.layers, {**champion.about, **facts}))


def forge_state(directory: Path, generation: int, change: Callable[[Arrays], None]) -> None:
    """Change a kept state."""
    lines = list(manifest_of(directory).lines)
    state: Arrays = {name: np.array(array) for name, array in read_state(directory, lines[generation]).items()}
    change(state)
    name = population_file(generation)
    stamp = _written(directory / name, state)
    arrays = {name: digest for name, digest in lines[generation].arrays.items() if name.startswith("record/")}
    arrays |= {f"state/{name}": array_digest(name, array) for name, array in state.items()}
    files = {**lines[generation].files, name: stamp}
    lines[generation] = dataclasses.replace(lines[generation], arrays=arrays, files=files)
    write_lines(directory, lines)


def forge_record(directory: Path, generation: int, change: Callable[[Arrays], None]) -> None:
    """Change what a generation is said to have done, in the file that it shares with others."""
    lines = list(manifest_of(directory).lines)
    name = record_file(lines[generation])
    sharing = [line for line in lines if record_file(line) == name]
    records: list[Arrays] = [
        {array: np.array(values) for array, values in record.items()}
        for record in read_records(directory, name, sharing)
    ]
    change(records[generation - sharing[0].generation])
    stamp = _written(directory / name, {array: np.stack([record[array] for record in records]) for array in records[0]})
    for line, record in zip(sharing, records, strict=True):
        arrays = {array: digest for array, digest in line.arrays.items() if array.startswith("state/")}
        arrays |= {f"record/{array}": array_digest(array, values) for array, values in record.items()}
        files = {**line.files, name: stamp}
        lines[line.generation] = dataclasses.replace(line, arrays=arrays, files=files)
    write_lines(directory, lines)


def _written(path: Path, arrays: Arrays) -> FileStamp:
    data = encode(arrays)
    path.write_bytes(data)
    return FileStamp(len(data), hashlib.sha256(data).hexdigest())
