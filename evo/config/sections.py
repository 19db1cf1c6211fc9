"""The sections of an experiment file that belong to no algorithm, environment or policy."""

from __future__ import annotations

from pydantic import Field

from evo.errors import counted
from evo.plugins.options import Section

ROUNDED = ", since budgets are checked between generations"


class Budget(Section):
    """Looked at between generations: a run stops early where one of these is reached."""

    frames: int = Field(0, ge=0, description="frames played in training; 0 = no limit")
    seconds: float = Field(0.0, ge=0, description="seconds of training, over all resumes; 0 = no limit")
    validation: float | None = Field(None, description="mean validation return of the champion")

    def spent(self, frames: int, seconds: float, fitness: float | None) -> str:
        """Return a message that says which limit is reached; empty if none is. `fitness` is None without a champion."""
        if self.frames and frames >= self.frames:
            return f"the budget of {counted(self.frames, 'frame')} is spent; {frames:,} were played{ROUNDED}"
        if self.seconds and seconds >= self.seconds:
            return f"the budget of {self.seconds:g} seconds is spent; training took {seconds:.0f}{ROUNDED}"
        if self.validation is not None and fitness is not None and fitness >= self.validation:
            return f"the champion's validation return {fitness:z.3f} has reached {self.validation:g}"
        return ""


class Run(Section):
    """The [run] section: what is trained, and for how long."""

    algorithm: str = Field("ga", description="which algorithm trains; its section is read")
    seed: int = Field(1, ge=0, lt=1 << 64, description="random seed of training and validation")
    generations: int = Field(300, ge=1, le=10_000_000, description="number of generations in total")
    budget: Budget = Field(
        Budget(),
        description="limits checked between generations: frames, seconds, or a validation return; 0 = none",
    )
    init_from: str = Field("", description="a run directory or a champion.h5 to start from")


class Validation(Section):
    """The [validation] section: how the champion is chosen, alike for every algorithm."""

    every: int = Field(10, ge=1, le=10_000_000, description="generations between validations")
    episodes: int = Field(256, ge=1, le=100_000, description="validation episodes per finalist, fixed for a run")
    finalists: int = Field(16, ge=1, le=1000, description="networks per validation, at most")


class Test(Section):
    """The [test] section: the champion's score on test episodes, which is only reported."""

    every: int = Field(10, ge=1, le=10_000_000, description="generations between tests")
    episodes: int = Field(1000, ge=1, le=1_000_000, description="test episodes, the same for every run")
    block: int = Field(0, ge=0, le=4000, description="which million of test episodes; 0 is what every run looks at")
