"""What is said where memory does not suffice: how much was asked for, of how much, and by which option."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.errors import ResourceError
from evo.planning import memory
from evo.training.generation import shortage_named
from evo.workers import hardware
from tests.helpers.calling import called


def test_a_lack_of_memory_names_the_options_that_are_larger_than_usual() -> None:
    large = {"envs": 65536, "horizon": 4096, "epochs": 1}
    experiment = Experiment.build(run={"algorithm": "ppo", "generations": 10**6}, ppo=large, environment={"size": 12})
    told = (
        r"^out of memory; Unable to allocate .* for an array with shape .*; this (machine has|process may have) "
        r"[0-9.]+ GB; take less of ppo\.envs = 65536 or ppo\.horizon = 4096 or environment\.size = 12$"
    )
    with pytest.raises(ResourceError, match=told), shortage_named(experiment):
        np.zeros((1 << 30, 1 << 20))
    with pytest.raises(ResourceError, match="; take a smaller network, or fewer"), shortage_named(Experiment.build()):
        np.zeros((1 << 30, 1 << 20))


def test_a_container_s_limit_of_memory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hardware.memory(tmp_path)
    assert whole is not None
    assert whole > 1 << 28
    (tmp_path / "memory.max").write_text("max\n")
    assert hardware.memory(tmp_path) == whole
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1000000\n")
    assert hardware.memory(tmp_path) == 1_000_000
    (tmp_path / "memory.max").write_text("900000\n")
    assert hardware.memory(tmp_path) == 900_000
    monkeypatch.setattr(memory, "LIMITS", (tmp_path / "memory.max", tmp_path / "memory.current"))
    (tmp_path / "memory.current").write_text("300000\n")
    assert memory.available() == 600_000


@pytest.mark.long
def test_a_replay_buffer_that_cannot_be_had_is_named_by_its_option(small: Path) -> None:
    words = ("--algorithm", "dqn", "--set", f"dqn.replay_size={1 << 30}", "--set", "environment.size=64")
    told = called(small, "small.toml", *words, code=5)[1].splitlines()[-1]
    assert told.startswith("out of memory; Unable to allocate ")
    assert " GB; take less of dqn.replay_size = 1073741824" in told
