"""Recorded observations are rebuilt alike by any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from evo.environments import snake
from evo.learning import collecting
from evo.learning.collecting import begin_envs, observed


@pytest.mark.parametrize("count", [1, 7, 8, 64])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_observations_are_the_same_for_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, count: int, threads: int
) -> None:
    monkeypatch.setattr(collecting, "PART", 3)
    environment = snake.make(snake.Options(size=6, observation="window"))
    rows = begin_envs(environment, 1, 0, count).snapshots
    wanted = environment.game.observe(rows)
    assert len(np.unique(wanted, axis=0)) > count // 2
    np.testing.assert_array_equal(observed(environment, rows, threads=threads), wanted)
    out = np.full_like(wanted, np.nan)
    assert observed(environment, rows, out, threads) is out
    np.testing.assert_array_equal(out, wanted)
