"""The doctor looks at memory: whether the state changes, how far back it reaches, and whether it helps."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import evo
from evo.config.experiment import Experiment
from evo.diagnosis.examination import Diagnosis, diagnosis
from evo.diagnosis.memory import memory
from evo.diagnosis.signs import Signs
from evo.networks.network import Network
from evo.store.champion import Champion
from evo.store.run import Run
from evo.store.run_directory import provenance
from evo.store.store import Store
from tests.diagnosis.test_doctor import GENERATIONS, HEALTHY
from tests.helpers.calling import ROOT

LAST, KEEP = 60.0, 20.0  # of sums: so large that a gate is open, or closed
LSTM = ("policy.memory=lstm:2",)
pytestmark = pytest.mark.long  # kernels of networks with memory take ten seconds to compile


def remembering(
    network: Network, *, reads: bool = True, forgets: bool = False, stuck: bool = False
) -> NDArray[np.float32]:
    """Return weights of a walker in the T-maze: one unit keeps the cue, another one says that this is the junction.

    One that never `reads` the first unit turns left always, and one that `forgets` has lost the cue after a step. Where
    it is `stuck`, both units are at 1 from the first step on.
    """
    weights = np.zeros(network.size, np.float32)
    kernel, _, bias, head, shift = network.split(weights)  # views
    if network.layers[0].kind == "gru":  # gates z (keeps the state), r, and the candidate
        kept, written = slice(0, 2), slice(4, 6)
        bias[0, kept] = -LAST if forgets or stuck else (KEEP, -LAST)
        kernel[:2, 0] = -LAST  # a cue is written
    else:  # gates i, f, the candidate, and o
        written = slice(4, 6)
        bias[0:2] = (LAST if forgets or stuck else -KEEP, LAST)
        kernel[:2, 0] = LAST
        bias[2:4] = LAST if stuck else -LAST if forgets else (KEEP, -LAST)
        kernel[:2, 2] = -LAST
        bias[6:8] = LAST
    bias = bias[0] if bias.ndim == 2 else bias
    kernel[:, written] = [[-3, 0], [3, 0], [0, 3]]
    if stuck:
        bias[written] = LAST
    head[0, [0, 2]] = (-2, 2) if reads else 0
    head[1, [0, 2]], shift[:3] = 20, (-8, 0, -8)
    return weights


def examined(tmp_path: Path, algorithm: str, *sets: str, **how: bool) -> tuple[Diagnosis, Run]:
    """Return what is found in a run that ended with such a walker."""
    experiment = Experiment.load(
        ROOT / "experiments" / "games" / f"{algorithm}_tmaze.toml",
        "policy.memory=gru:2",
        "environment.max_steps=60",
        *sets,
    )
    with Store.create(tmp_path / "run", experiment.to_toml(provenance()), experiment.identity()) as store:
        for generation in range(GENERATIONS):
            store.commit(generation, {"mean": np.zeros(1)}, {}, HEALTHY[algorithm], best=False)
    run = Run(tmp_path / "run")
    run._champion = Champion(remembering(experiment.network(), **how), (), {})
    return diagnosis(run, {}), run


@pytest.mark.parametrize("kind", [(), LSTM])
@pytest.mark.parametrize("algorithm", ["ppo", "ga"])
def test_a_network_that_needs_its_memory_is_healthy(tmp_path: Path, algorithm: str, kind: tuple[str, ...]) -> None:
    found, _ = examined(tmp_path, algorithm, *kind)
    assert found.findings == []
    assert any(re.match(r"return 1, with the state zeroed 0\.[3-7]", label) for label in found.looked_at)
    assert any(label.startswith("change of the state after 10 steps") for label in found.looked_at) == (
        algorithm == "ppo"
    )


@pytest.mark.parametrize("kind", [(), LSTM])
@pytest.mark.parametrize(
    ("algorithm", "how", "name", "evidence"),
    [
        ("ppo", {"reads": False}, "unused_memory", "with its state zeroed at every step"),
        ("ga", {"forgets": True}, "unused_memory", "with its state zeroed at every step"),
        ("ppo", {"forgets": True}, "vanishing_gradient", "After 10 steps, 0 of a change"),
        ("ppo", {"stuck": True, "forgets": True}, "saturated_memory", "100 % of its numbers"),
        ("ga", {"stuck": True}, "saturated_memory", "100 % of its numbers"),
    ],
)
def test_what_is_wrong_with_a_memory_is_named(
    tmp_path: Path, algorithm: str, how: dict[str, bool], name: str, evidence: str, kind: tuple[str, ...]
) -> None:
    found, run = examined(tmp_path, algorithm, *kind, **how)
    (one,) = found.findings
    assert one.name == name
    assert evidence in one.evidence
    for words in one.change.split("--set ")[1:]:
        Experiment.load(run.directory / "config.resolved.toml", words.split()[0].rstrip(".;"), resolved=True)


def test_memory_in_a_game_of_several_players_is_not_looked_at(tmp_path: Path) -> None:
    options = {"run": {"algorithm": "ga", "generations": 1}, "environment": {"id": "tictactoe"}}
    experiment = Experiment.build(**options, policy={"kind": "mlp", "dense": [4], "memory": "gru:2"})
    Store.create(tmp_path / "run", experiment.to_toml(provenance()), experiment.identity()).close()
    run, network = Run(tmp_path / "run"), experiment.network()
    run._champion = Champion(np.zeros(network.size, np.float32), (), {})
    assert memory(Signs(run)) == []


def test_episodes_that_are_too_long_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.diagnosis.memory.MOST_STEPS", 100)
    found, _ = examined(tmp_path, "ppo", forgets=True)
    assert found.findings == []
    assert not any("state" in label for label in found.looked_at)


@pytest.mark.parametrize("length", [200, 10])
def test_a_run_whose_cue_lies_too_far_back_is_found_out_and_one_that_remembers_is_not(
    tmp_path: Path, length: int
) -> None:
    sets = (f"environment.length={length}", "environment.max_steps=400", "ppo.horizon=128", "run.generations=40")
    quick = ("workers.backend=serial", "validation.every=10", "validation.episodes=64", "test.episodes=64")
    experiment = Experiment.load(ROOT / "experiments" / "games" / "ppo_tmaze.toml", *sets, *quick)
    for _ in evo.train(experiment, tmp_path / "run"):
        pass
    found = memory(Signs(Run(tmp_path / "run", trusted=True)))
    names = [one.finding.name for one in found if one.finding]
    assert names in ([["unused_memory"], ["vanishing_gradient"]] if length == 200 else [[]])
