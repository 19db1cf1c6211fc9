"""What learns may act in TensorFlow too: any number of workers, a stop, and whole episodes lead to one state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.calling import small_with, summary_of

TINY = small_with(
    run="generations = 3",
    environment='size = 5\nobservation = "ego"\nstarvation = 12\nmask = "reverse"',
    policy='conv = [[3, 3, 2]]\ndense = [4]\ninference = "tensorflow"',
    learner="threads = 2",
    ppo="envs = 6\nhorizon = 8\nenvs_per_task = 3\nminibatches = 3",
    reinforce="envs_per_task = 3\nepisodes = 4",
    dqn="envs = 6\nhorizon = 8\nenvs_per_task = 3\nreplay_size = 100\nlearning_starts = 40\nframes_per_update = 8\n"
    "batch_size = 16",
)


@pytest.mark.long
@pytest.mark.parametrize("way", ["ppo", "dqn", "reinforce"])
def test_a_run_that_acts_in_tensorflow_ends_in_one_state(way: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ("--algorithm", way)
    straight = summary_of(tmp_path, "tiny.toml", "--run-dir", "straight", *words, apart=True)
    how = ("tiny.toml", "--run-dir", "stopped", "--backend", "processes", "--workers", 2, *words, "--generations", 1)
    summary_of(tmp_path, *how, apart=True)
    resumed = summary_of(tmp_path, "--resume", "stopped", "--generations", 3, apart=True)
    assert resumed["state_hash"] == straight["state_hash"]
    lanes = ("--set", "policy.inference=lanes")
    exact = summary_of(tmp_path, "tiny.toml", "--run-dir", "exact", *words, *lanes, apart=True)
    assert exact["frames"] > 0
    assert exact["state_hash"] != straight["state_hash"]
