"""How an update is distributed over devices and processes; algorithms see a `Learner` only."""

from __future__ import annotations

import os

from evo.errors import ConfigurationError, notice
from evo.lazy import tf
from evo.learning.learner import KnownLoss, Learner, Pieces
from evo.networks.network import Network
from evo.setup import CLUSTERS, LearnerOptions
from evo.workers import devices, hardware
from evo.workers.hardware import VISIBLE


def make_learner(
    network: Network,
    options: LearnerOptions,
    loss: KnownLoss,
    max_gradient_norm: float = 0.0,
    pieces: Pieces | None = None,
) -> Learner:
    """Return the learner that [learner] describes; DeviceError where a device is missing.

    ConfigurationError where a network with memory would learn with TensorFlow, or where a GPU cannot learn this.
    """
    if options.is_exact and options.device == "gpu":
        from evo.cuda.driver import device_of_process
        from evo.learning.exact.cuda import CudaLearner

        device = device_of_process("learner.device")
        return CudaLearner(network, options.thread_count, loss, max_gradient_norm, device)
    if options.is_exact:
        from evo.learning.exact.learner import ExactLearner

        return ExactLearner(network, options.thread_count, loss, max_gradient_norm, pieces)
    if network.memory:
        raise ConfigurationError(
            'learner.arithmetic: TensorFlow learns no networks with memory; use "exact", without options of TensorFlow'
        )
    if options.strategy in CLUSTERS:
        from evo.learning.distributed.cluster import ClusterLearner

        return ClusterLearner(network, options, loss, max_gradient_norm)
    if options.strategy == "one" and not options.devices:
        from evo.learning.tensorflow.learner import TensorFlowLearner as Made
    else:
        from evo.learning.distributed.replicas import ReplicatedLearner as Made
    learner = Made(network, options, loss, max_gradient_norm)
    if not options.devices:
        _note_unseen_gpus()
    return learner


def _note_unseen_gpus() -> None:
    """Note that the learner is on the CPU although this machine has a GPU."""
    if tf.config.list_physical_devices("GPU"):
        return
    visible = os.environ.get(VISIBLE)
    there = hardware.usable(visible, hardware.found() if visible is None else ())
    if there:
        notice(f"the learner is on the CPU: TensorFlow sees none of GPU {', '.join(there)}{devices.LIBRARIES}")
