"""What learns may act in TensorFlow too: any number of workers, a stop, and whole episodes lead to one state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.calling import summary_of

TINY = """
[run]
generations = 3
[environment]
size = 5
observation = "ego"
starvation = 12
mask = "reverse"
[policy]
conv = [[3, 3, 2]]
dense = [4]
inference = "tensorflow"
[workers]
backend = "serial"
[learner]
threads = 2
[validation]
every = 2
episodes = 6
[test]
every = 3
episodes = 8
[ppo]
envs = 6
horizon = 8
envs_per_task = 3
minibatches = 3
[reinforce]
envs_per_task = 3
episodes = 4
[dqn]
envs = 6
horizon = 8
envs_per_task = 3
replay_size = 100
learning_starts = 40
frames_per_update = 8
batch_size = 16
"""


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
