"""The example of the page on memory keeps Gymnasium's contract, and is learned with memory alone."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import evo
from evo.config.experiment import Experiment

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "memory_len", raising=False)
    monkeypatch.delitem(gymnasium.registry, "MemoryLen-v0", raising=False)  # as another module
    evo.plugins.registry.load(("memory_len",))
    return EXAMPLES / "memory_len.toml"


def test_the_bit_is_shown_once_and_asked_for_after_as_many_steps_as_the_option_says(example: Path) -> None:
    assert Experiment.load(example).network().memory == 32
    env = gymnasium.make("MemoryLen-v0", length=3)
    check_env(env.unwrapped, skip_render_check=True)
    bits = set()
    for seed in range(20):
        first, _ = env.reset(seed=seed)
        steps = [env.step(1) for _ in range(4)]
        assert [seen[2] for seen, *_ in steps] == [0, 0, 0, 0]
        assert [seen[1] for seen, *_ in steps[:3]] == [0, 0, 1]
        assert [over for _, _, over, _, _ in steps] == [False, False, False, True]
        assert [reward for _, reward, *_ in steps] == [0, 0, 0, first[2]]
        bits.add(float(first[2]))
    assert bits == {-1.0, 1.0}


@pytest.mark.long
@pytest.mark.parametrize("memory", [True, False])
def test_the_example_is_learned_with_memory_and_not_without(tmp_path: Path, example: Path, memory: bool) -> None:
    sets = [] if memory else ["policy.memory=", "policy.dense=[32]"]
    *_, last = evo.train(Experiment.load(example, *sets, "workers.backend=serial", seed=2), tmp_path / "run")
    assert (last.metrics["test"] > 0.95) == memory
    assert memory or abs(last.metrics["test"]) < 0.2
