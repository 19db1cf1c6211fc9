"""TensorFlow as every test of learning has it: one thread, which a process decides once."""

from __future__ import annotations

from typing import Any

import pytest

from evo.setup import LearnerOptions


@pytest.fixture(scope="session", autouse=True)
def tensorflow() -> Any:
    from evo.learning.tensorflow import start_tensorflow

    return start_tensorflow(LearnerOptions(threads=1))
