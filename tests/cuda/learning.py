"""Learn on a device and on the CPU, and compare every bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.algorithms.a2c import PolicyGradientLoss
from evo.algorithms.dqn import DQNLoss
from evo.algorithms.ppo import PPOLoss
from evo.algorithms.pqn import PQNLoss
from evo.cuda.launch import Device
from evo.learning.exact.cuda import SIDES, CudaLearner
from evo.learning.exact.learner import NUMBERS, ExactLearner
from evo.networks.network import Network, Options

SETTINGS = {"entropy_coefficient": 0.03, "value_coefficient": 0.7, "clip_range": 0.2, "value_clip_range": 0.3}


@dataclass(frozen=True)
class Updates:
    """Which updates are compared: of a network, by batches of these sizes."""

    shape: tuple[int, ...]
    policy: dict[str, Any] = field(default_factory=dict)
    loss: str = "ppo"
    counts: tuple[int, ...] = (150, 7)
    masked: bool = False
    clip: float = 0.5

    def __str__(self) -> str:
        return f"{self.loss} {self.shape} {self.policy}"

    def make(self) -> tuple[Network, Any, dict[str, NDArray[Any]], NDArray[np.float32]]:
        """Return network, loss, data and weights."""
        draw, count, actions = np.random.default_rng(3), max(self.counts) + 5, 3
        extra = {"pqn": 0, "gaussian": actions + 1}.get(self.loss, 1)
        network = Network.build(Options(**self.policy), self.shape, actions, extra)
        seen = draw.integers(0, 4, (count, *self.shape)) * (draw.random((count, *self.shape)) < 0.5)
        names = (*NUMBERS, "log_probabilities")
        data = {name: draw.normal(size=count).astype(np.float32) for name in names}
        data["log_probabilities"] = np.float32(-1.1) + data["log_probabilities"] / np.float32(8)
        data["observations"] = seen.astype(np.float32)
        data["next_observations"] = data["observations"][::-1]
        data["next_action_masks"] = draw.random((count, actions)) < 0.7
        data["next_action_masks"][:, 0] = True
        data["actions"] = draw.integers(0, actions, count).astype(np.int32)
        if self.masked:
            data["action_masks"] = draw.random((count, actions)) < 0.7
            data["action_masks"][np.arange(count), data["actions"]] = True
        if self.loss == "gaussian":
            data["actions"] = draw.normal(size=(count, actions)).astype(np.float32)
        loss: Any = {
            "ppo": PPOLoss(actions), "gaussian": PPOLoss(actions, is_gaussian=True),
            "a2c": PolicyGradientLoss(actions), "pqn": PQNLoss(actions, False, 0.5),
            "dqn": DQNLoss(actions, True, 0.5, True),
        }[self.loss]  # fmt: skip
        return network, loss, data, draw.normal(0, 0.2, network.size).astype(np.float32)


def compare(case: Updates, device: Device, sides: tuple[int, ...] = SIDES) -> None:
    """Make the same updates on a device and on the CPU; every value, weight and moment is the same."""
    learner = compared(case, device, sides)
    learner.close()
    learner.close()  # frees nothing twice


def compared(case: Updates, device: Device, sides: tuple[int, ...] = SIDES) -> CudaLearner:
    """Compare as `compare`, and return the learner of the device."""
    network, loss, data, weights = case.make()
    ours = CudaLearner(network, 1, loss, case.clip, device, sides)
    theirs = ExactLearner(network, 1, loss, case.clip)
    for learner in (ours, theirs):
        learner.begin(weights)
        if learner.has_target:
            learner.set_target(weights[::-1])
        learner.load(data)
    draw = np.random.default_rng(5)
    for number, count in enumerate(case.counts):
        rows = draw.permutation(len(data["actions"]))[:count].astype(np.int32)
        gradient = ours.gradients(rows, SETTINGS), ours.gradient
        expected = theirs.gradients(rows, SETTINGS), theirs.gradient
        for name, values in expected[0].items():
            np.testing.assert_array_equal(gradient[0][name], values, name)
        np.testing.assert_array_equal(gradient[1], expected[1], "gradient")
        found, wanted = (learner.update(rows, 1e-2, SETTINGS) for learner in (ours, theirs))
        for name, values in wanted.items():
            np.testing.assert_array_equal(found[name], values, name)
        device.receive(ours._gradients)
        np.testing.assert_array_equal(ours._gradients[: network.size], theirs.gradient, "gradient of an update")
        if case.loss == "dqn":  # moves, then is copied
            for learner in (ours, theirs):
                learner.update_target(0.125, 2 * number)
            np.testing.assert_array_equal(ours.target_weights(), theirs.target_weights(), "target")
        outputs = (
            learner.outputs(data["observations"].reshape(len(data["actions"]), -1), rows) for learner in (ours, theirs)
        )
        np.testing.assert_array_equal(*outputs, "outputs after an update")
    for name, array in theirs.state().items():
        np.testing.assert_array_equal(ours.state()[name], array, name)
    theirs.close()
    return ours
