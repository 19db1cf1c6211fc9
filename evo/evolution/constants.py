"""Constants of CMA-ES and its relatives from the number of weights and candidates; logarithms by decimal arithmetic.

Hansen, "The CMA Evolution Strategy: A Tutorial" (2016), table 1, with positive weights only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
from numpy.typing import NDArray

_DIGITS = Context(prec=30)  # of correctly rounded logarithms: the same on every machine, unlike math.log


def ln(x: float) -> float:
    """Return the natural logarithm of a positive number, with the same bits on every machine."""
    return float(_DIGITS.ln(Decimal(x)))


def recombination_weights(count: int) -> NDArray[np.float64]:
    """Return ln((count + 1) / 2) - ln(rank) for the better half, 0 for the others, with sum 1 (eq. 49).  # [count]"""
    raw = [max(0.0, ln((count + 1) / 2) - ln(rank)) for rank in range(1, count + 1)]
    return np.array(raw) / math.fsum(raw)


@dataclass(frozen=True)
class CmaConstants:
    """What CMA-ES derives from n weights and a number of candidates."""

    weights: NDArray[np.float64]  # [candidates] of recombination, best first
    selected: float  # mu_eff, the effective number of selected candidates
    path_rate: float  # c_sigma, of the path that controls the step size
    damping: float  # d_sigma
    covariance_path_rate: float  # c_c
    rank_one: float  # c_1
    rank_selected: float  # c_mu
    expected_length: float  # chi_n, of a normally distributed vector

    @classmethod
    def of(cls, n: int, candidates: int, *, separable: bool = False) -> CmaConstants:
        """Return the constants; those of a diagonal covariance learn (n + 2) / 3 times faster (Ros, Hansen, 2008)."""
        weights = recombination_weights(candidates)
        selected = 1 / math.fsum(weights * weights)
        path_rate = (selected + 2) / (n + selected + 5)
        faster = (n + 2) / 3 if separable else 1.0
        rank_one = faster * 2 / ((n + 1.3) * (n + 1.3) + selected)
        rank_selected = faster * 2 * (selected - 2 + 1 / selected) / ((n + 2) * (n + 2) + selected)
        return cls(
            weights=weights,
            selected=selected,
            path_rate=path_rate,
            damping=1 + 2 * max(0.0, math.sqrt((selected - 1) / (n + 1)) - 1) + path_rate,
            covariance_path_rate=(4 + selected / n) / (n + 4 + 2 * selected / n),
            rank_one=min(1.0, rank_one),
            rank_selected=min(1 - min(1.0, rank_one), rank_selected),
            expected_length=math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n)),
        )
