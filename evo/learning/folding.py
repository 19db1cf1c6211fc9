"""Weights between networks that see observations as they are and those that see them normalised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evo.learning.normalisers import Observations
from evo.networks.network import Network
from evo.records import Arrays


def unfolded(observations: Observations, weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return weights [P] that do with normalised observations what `weights` do with them as they are.

    It undoes `Observations.fold`, but for rounding.
    """
    out = weights.copy()
    kernel, bias = observations.network.split(out)[:2]  # views
    bias += (observations.moments.mean @ kernel.astype(np.float64)).astype(np.float32)
    kernel[:] = kernel * observations.moments.deviation[:, None]
    return out


def folded(network: Network, state: Arrays) -> NDArray[np.float32]:
    """Return the weights [P] of a state whose observations were normalised, for those that are not."""
    observations = Observations(network)
    observations.moments.restore(np.asarray(state["observation_moments"], np.float64))
    return observations.fold(np.asarray(state["weights"], np.float32))
