from __future__ import annotations

import json
import os
import random
from pathlib import Path

import h5py
import numpy as np
import pytest

from evo.errors import DataError
from evo.store.champion import Champion, encode_champion, read_champion
from evo.store.store import Store
from tests.store.committing import IDENTITY

WEIGHTS = np.random.default_rng(1).random(38, np.float32)
LAYERS = (("conv_0.kernel", (3, 3, 1, 2)), ("conv_0.bias", (2,)), ("dense.kernel", (6, 3)))
ABOUT = {"generation": 12, "fitness": 3.5, "lineage": [1, 2, 3], "test": None}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Store.create(tmp_path / "run", "", IDENTITY) as store:
        store.write_champion(WEIGHTS, LAYERS, ABOUT)
    return tmp_path / "run"


def assert_same(champion: Champion) -> None:
    assert np.array_equal(champion.weights, WEIGHTS)
    assert champion.weights.dtype == np.float32
    assert champion.layers == LAYERS
    assert champion.about == ABOUT


def test_a_champion_comes_back_from_its_run_and_from_its_file_alone(run: Path, tmp_path: Path) -> None:
    assert_same(read_champion(run))
    os.rename(run / "champion.h5", tmp_path / "mine.h5")
    assert_same(read_champion(tmp_path / "mine.h5"))


def test_anyone_can_read_the_layers_as_plain_arrays(run: Path) -> None:
    with h5py.File(run / "champion.h5", "r") as file:
        assert set(file) == {"about", *(name for name, _ in LAYERS)}
        assert np.array_equal(file["conv_0.kernel"], WEIGHTS[:18].reshape(3, 3, 1, 2))
        assert np.array_equal(file["dense.kernel"], WEIGHTS[20:].reshape(6, 3))
    readable = json.loads((run / "champion.json").read_text())
    assert readable["about"] == ABOUT
    assert readable["layers"][1] == ["conv_0.bias", [2]]


def test_a_champion_waits_for_the_generations_before_it_and_the_newest_one_wins(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", "", IDENTITY) as store:
        store.write_champion(WEIGHTS + 1, LAYERS, {})
        assert not (tmp_path / "run" / "champion.h5").exists()
        store.write_champion(WEIGHTS, LAYERS, ABOUT)
        store.flush()
        assert_same(read_champion(tmp_path / "run"))


def test_layers_must_fill_the_vector() -> None:
    for layers in (LAYERS[:2], (*LAYERS, ("more", (1,))), (LAYERS[0], LAYERS[0], ("a", (2,)))):
        with pytest.raises(ValueError, match="layers"):
            encode_champion(WEIGHTS, layers, {})
    with pytest.raises(ValueError, match="JSON"):
        encode_champion(WEIGHTS, LAYERS, {"fitness": float("nan")})


def test_a_missing_or_foreign_champion_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing"):
        read_champion(tmp_path / "nothing")
    with h5py.File(run / "champion.h5", "w") as file:
        file["weights"] = WEIGHTS
    with pytest.raises(DataError, match=r"champion\.h5: has no array 'about'"):
        read_champion(run)
    (run / "champion.h5").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(DataError, match="not a readable HDF5"):
        read_champion(run)


def mutants_give_the_champion_or_are_refused(path: Path, mutants: int) -> int:
    dice = random.Random(mutants)
    whole = path.read_bytes()
    refused = 0
    for _ in range(mutants):
        data = bytearray(whole)
        place = dice.randrange(len(data))
        if dice.random() < 0.7:
            data[place] ^= 1 << dice.randrange(8)
        else:
            del data[place:]
        path.write_bytes(data)
        try:
            assert_same(read_champion(path))
        except DataError:
            refused += 1
    return refused


def test_200_mutants_give_the_same_champion_or_are_refused(run: Path) -> None:
    assert mutants_give_the_champion_or_are_refused(run / "champion.h5", 200) > 60


@pytest.mark.long
def test_5000_mutants_give_the_same_champion_or_are_refused(run: Path) -> None:
    mutants_give_the_champion_or_are_refused(run / "champion.h5", 5000)
