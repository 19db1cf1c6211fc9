"""Novelty: how far a candidate's behaviour is from that of its nearest neighbours (Lehman and Stanley, 2011)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UNIT = 1_000_000  # novelty in whole numbers: a millionth of the range of a measure
LARGEST = 8192  # candidates, whose distances from one another are all computed
ROWS = 256  # candidates at a time


def novelty(behaviour: NDArray[np.int64], neighbours: int) -> NDArray[np.int64]:
    """Return the mean distance of each candidate from so many nearest others, in millionths.  # [N, D] -> [N]

    A distance is the sum over measures of their differences, each in the range that the measure has among all. The sums
    are added in order, so they have the same bits on every machine. Zero where a candidate is alone.
    """
    count = len(behaviour)
    most = min(neighbours, count - 1)
    if most < 1:
        return np.zeros(count, np.int64)
    values = behaviour.astype(np.float64)
    low = values.min(axis=0)
    extent = values.max(axis=0) - low
    places = (values - low) / np.where(extent > 0, extent, 1.0)
    found = np.empty(count, np.int64)
    for first in range(0, count, ROWS):
        some = places[first : first + ROWS]
        distances = np.zeros((len(some), count))
        for measure in range(places.shape[1]):
            distances += np.abs(some[:, measure, np.newaxis] - places[np.newaxis, :, measure])
        nearest = np.sort(distances, axis=1)[:, 1 : most + 1]  # the first is the candidate itself, or its equal
        found[first : first + ROWS] = np.rint(UNIT * (np.cumsum(nearest, axis=1)[:, -1] / most))
    return found
