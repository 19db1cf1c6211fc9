"""The learner on a GPU gives the bits of the learner on CPUs, as PTX that a CPU runs; and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.gpu_bits import NETWORKS
from evo.algorithms.ppo import PPOLoss
from evo.cuda.driver import STAND_IN
from evo.errors import ConfigurationError, DeviceError, DeviceMemoryError
from evo.learning.exact.cuda import CudaLearner
from evo.learning.twin_critics import CriticLoss
from evo.networks.network import Network, Options
from evo.setup import LearnerOptions
from evo.workers.hardware import VISIBLE
from tests.cuda.learning import Updates, compare
from tests.cuda.simulator import Simulator
from tests.cuda.test_cuda import needs_cuda
from tests.cuda.test_gpu_runs import comparable, run

TWO = {"conv": [[5, 3, 2], [7, 3, 1]], "dense": [9]}
CASES = (
    Updates((4,), {"kind": "mlp", "dense": [9, 40]}, "pqn", (300, 129)),
    Updates((4,), {"kind": "linear"}, counts=(1, 128)),
    Updates((5, 4, 2), {"conv": [[3, 3, 2]], "dense": [6], "norm": "layer"}, "dqn", (131, 40)),
    Updates((5, 6, 2), TWO, masked=True, clip=0.0),
    Updates((5, 6, 2), {**TWO, "norm": "layer", "activation": "tanh"}, "gaussian"),
    Updates((7, 6, 3), {"conv": [[33, 4, 1], [16, 3, 3]], "dense": [70, 8], "padding": "valid"}, counts=(40, 260)),
    Updates((6, 6, 1), NETWORKS["all layers"][1], "a2c"),
)
TINY = Network.build(Options(kind="mlp", dense=[3]), (4,), 2, 1)


@needs_cuda
@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_updates_in_ptx_that_a_cpu_runs_are_those_of_the_cpu_in_both_orders_of_threads(case: Updates) -> None:
    from tests.cuda.ptx_on_cpu import PtxOnCpu

    compare(case, PtxOnCpu(), (8,))
    compare(case, PtxOnCpu(reverse=True), (16, 8))


@needs_cuda
@pytest.mark.long
def test_a_device_with_other_bits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cuda.ptx_on_cpu import PtxOnCpu

    learner = CudaLearner(TINY, 1, PPOLoss(2), 0.5, PtxOnCpu(), (8,))
    learner.warm_up()
    monkeypatch.setattr(learner, "_limit", learner._limit / 100)
    with pytest.raises(DeviceError, match="does not compute the bits of the exact learner"):
        learner.warm_up()


@needs_cuda
@pytest.mark.long
def test_a_run_that_learns_on_a_gpu_has_the_hash_of_the_cpu(tmp_path: Path) -> None:
    words = ("tiny.toml", "--algorithm", "ppo", "--backend", "serial", "--set", "learner.arithmetic=exact")
    expected = run(tmp_path, *words)
    there = {VISIBLE: "0", STAND_IN: "tests.cuda.ptx_on_cpu:PtxOnCpu"}
    assert comparable(run(tmp_path, *words, "--set", "learner.device=gpu", **there)) == comparable(expected)


@pytest.mark.parametrize(
    ("policy", "loss", "named"),
    [
        ({"layers": ["dense 4", "gru 3"]}, PPOLoss(2), "networks with memory are not learned"),
        ({"layers": ["dense 4", "tree 2"]}, PPOLoss(2), "tree layers are not learned"),
        ({"layers": ["dense 4"]}, CriticLoss(2, False, 0.0), "CriticLoss is not computed"),
    ],
)
def test_what_gpus_do_not_learn_is_refused(policy: dict[str, Any], loss: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"learner.device: {named} on GPUs yet"):
        CudaLearner(Network.build(Options(**policy), (4,), 2, 1), 1, loss, 0.5, Simulator())


def test_a_batch_of_more_numbers_than_kernels_count_is_refused() -> None:
    learner = CudaLearner(TINY, 1, PPOLoss(2), 0.5, Simulator())
    with pytest.raises(DeviceMemoryError, match=r"a batch of 200,000,000 examples needs .* of at most 9; take smaller"):
        learner._launches_for(200_000_000)


def test_the_option_is_of_exact_updates_and_changes_no_identity() -> None:
    assert LearnerOptions(device="gpu").is_exact
    assert LearnerOptions(device="gpu").identity() == LearnerOptions(arithmetic="exact").identity()
    with pytest.raises(ValidationError, match='device: "gpu" computes exact updates in float32; leave out strategy'):
        LearnerOptions(device="gpu", strategy="mirrored")
    with pytest.raises(ValidationError, match="leave out arithmetic"):
        LearnerOptions(device="gpu", arithmetic="tensorflow")
