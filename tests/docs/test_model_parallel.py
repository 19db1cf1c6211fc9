"""The example of model parallelism runs, stays on its devices, and learns what one device learns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "model_parallel.py"


@pytest.mark.long
def test_forward_and_backward_of_every_stage_stay_on_its_device_and_change_nothing() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=300, check=True)
    weights, gradients, moved, differs = done.stdout.splitlines()[-4:]
    assert weights.split() == ["weights", "on", *["CPU:0"] * 2, *["CPU:1"] * 2, *["CPU:2"] * 4]
    assert gradients.split() == ["gradients", "on", "CPU:0", "CPU:1", "CPU:2"]
    assert float(moved.split()[-1]) > 0.01
    assert float(differs.split()[-1]) <= 1e-6
