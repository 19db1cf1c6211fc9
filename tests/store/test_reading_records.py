"""The records of all generations come in order, and every file of them is read once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evo.errors import DataError
from evo.files.layout import RECORDS
from evo.store import checkpoints
from evo.store.store import Store


def filled(directory: Path) -> Store:
    """Return a run of seven generations in four files of records; the first one left none."""
    store = Store.create(directory, "", {"seed": 1})
    for generation in range(7):
        record = {} if generation == 0 else {"actions": np.full((2, 3), generation, np.int8)}
        store.commit(generation, {"weights": np.zeros(1, np.float32)}, record, {})
        if generation in (2, 3, 5):
            store.flush()
    return store


def test_records_come_in_order_and_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    verified = checkpoints.verified
    monkeypatch.setattr(checkpoints, "verified", lambda *asked: (read.append(asked[1]), verified(*asked))[1])
    with filled(tmp_path / "run") as store:
        records = iter(store.records())
        assert next(records) == {}
        assert read == []  # nothing is read before it is asked for
        assert [int(record["actions"][0, 0]) for record in records] == [1, 2, 3, 4, 5, 6]
    assert len(read) == len(set(read)) == 4
    assert all(name.startswith(f"{RECORDS}/") for name in read)


def test_a_record_that_was_changed_is_named(tmp_path: Path) -> None:
    filled(tmp_path / "run").close()
    path = sorted((tmp_path / "run" / RECORDS).iterdir())[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with Store.open(tmp_path / "run") as store, pytest.raises(DataError, match=path.name):
        list(store.records())
