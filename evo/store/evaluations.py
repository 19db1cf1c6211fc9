"""evaluations.jsonl: which blocks of test episodes a run's champions were evaluated on. No result depends on it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from evo.errors import DataError, ResourceError
from evo.files.durable import read_file, write_all

EVALUATIONS = "evaluations.jsonl"
LARGEST = 1 << 26


def looked_at(directory: Path, block: int, episodes: int) -> int:
    """Note that a block was looked at, where that can be written; return how often it had been before."""
    path, before = directory / EVALUATIONS, 0
    with suppress(DataError, ResourceError):
        for text in read_file(path, most=LARGEST).split(b"\n"):
            with suppress(ValueError, RecursionError, KeyError, TypeError):
                before += json.loads(text)["block"] == block
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        try:
            write_all(descriptor, json.dumps({"block": block, "episodes": episodes}).encode() + b"\n")
        finally:
            os.close(descriptor)
    return before
