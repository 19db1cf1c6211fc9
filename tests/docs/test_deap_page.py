"""The examples of docs/from_deap.md run, and find what DEAP's users look for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "from_deap.md").read_text()


@pytest.mark.long
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loop, ask_and_tell, objectives = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(loop + ask_and_tell, names)
    assert names["best"].fitness < 3  # of 45 where it begins
    assert names["search"].fitness < 1.5  # 0 or one of the next minima; it begins at 45
    exec(objectives, names)
    front = names["front"]
    assert front.shape == (32, 1)
    assert -0.1 < front.min() < 0.3
    assert 1.7 < front.max() < 2.1
    assert np.unique(front).size > 16
