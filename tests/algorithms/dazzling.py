"""A plug-in environment that shows numbers so large that the square of any error about them is infinite."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from evo import environment
from evo.options import EnvironmentOptions

plugs_into = "environments"


class Options(EnvironmentOptions):
    """The [environment] section."""

    id: str = Field("dazzling", description="this one")


class Environment(environment.Environment):
    shape: tuple[int, ...] = (3,)
    actions: int = 2

    def env(self) -> Dazzle:  # type: ignore[override]
        return Dazzle()


class Dazzle:
    """Eight steps long."""

    def reset(self, seed: int) -> Any:
        self._steps = 0
        return self._seen(), {}

    def step(self, action: int) -> Any:
        self._steps += 1
        return self._seen(), 1.0, self._steps == 8, False, {}

    def _seen(self) -> np.ndarray:
        return np.full(3, 1e25, np.float32)

    def close(self) -> None:
        pass


def make(options: Options) -> Environment:
    return Environment()
