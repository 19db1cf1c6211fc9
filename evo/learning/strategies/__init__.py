"""How an update is spread over devices and processes; an algorithm never learns which of these it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evo.configuration.sections import Learner as Options
    from evo.learning.learner import BetweenNetworks, Learner, Loss
    from evo.policies.network import Network


def make_learner(
    network: Network, options: Options, loss: Loss | BetweenNetworks, max_gradient_norm: float = 0.0
) -> Learner:
    """Return the learner that [learner] describes; DeviceError where a device that it names is not there."""
    if options.strategy == "one" and not options.devices:
        from evo.learning.learner import Learner

        return Learner(network, options, loss, max_gradient_norm)
    if options.strategy in ("multiworker", "parameter-server"):
        from evo.learning.strategies.cluster import ClusterLearner

        return ClusterLearner(network, options, loss, max_gradient_norm)
    from evo.learning.strategies.spread import SpreadLearner

    return SpreadLearner(network, options, loss, max_gradient_norm)
