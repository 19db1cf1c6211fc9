"""The sections of an experiment file that belong to no algorithm, environment or policy."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field

from evo.environment import Starts
from evo.options import Section, added
from evo.records import Spent

VALIDATION_SHARE = TEST_SHARE = 20  # training episodes for each one of validation, and of test, where frames are costly
FEWEST, FEWEST_TESTED, FINALISTS = 32, 32, 4  # validation episodes, test episodes, networks per validation there
SELDOM, FEW = 40, 4  # generations between validations for which there are fewer episodes, and how many at least

ROUNDED = ", since budgets are checked between generations"
SPENT = {  # what a budget can limit, and in words how much of it was spent
    "frames": ("frame", "{:,} were played"),
    "seconds": ("second", "training took {:.0f}"),
    "forward_passes": ("forward pass", "{:,} were computed"),
    "multiply_adds": ("multiply-add", "{:,} were computed"),
    "cpu_seconds": ("CPU second", "training took {:.0f}"),
}


def one_or_more(*none: object) -> BeforeValidator:
    """Return a validator that wraps a single value in a list; a value among `none` becomes an empty list."""
    return BeforeValidator(lambda given: given if isinstance(given, list) else [] if given in none else [given])


def _limit(none: float, what: str) -> Any:
    return Field(none, ge=0, description=f"{what} after which the run ends; 0 = no limit")


class Budget(Section):
    """Looked at between generations: a run stops early where one of these is reached."""

    frames: int = _limit(0, "frames of training")
    seconds: float = _limit(0.0, "seconds of training, over all resumes,")
    validation: float | None = Field(
        None,
        description="mean validation return of the champion at which the run ends; not set = no limit",
    )
    forward_passes: int = _limit(0, "forward passes, in playing and learning,")
    multiply_adds: int = _limit(0, "multiply-adds of forward and backward passes")
    cpu_seconds: float = _limit(0.0, "processor seconds of master and workers")

    def limits(self) -> dict[str, int | float]:
        """Return the amounts that are limited, by name."""
        return {name: limit for name, limit in self.model_dump(include=set(SPENT)).items() if limit}

    def reached(self, spent: Spent, fitness: float | None) -> str:
        """Return a message that says which limit is reached; empty if none is. `fitness` is None without a champion."""
        amounts = asdict(spent)
        for name, limit in self.limits().items():
            amount = amounts[name]
            if amount >= limit:
                return f"the budget of {amount_text(name, limit)} is spent; {SPENT[name][1].format(amount)}{ROUNDED}"
        if self.validation is not None and fitness is not None and fitness >= self.validation:
            return f"the champion's validation return {fitness:z.3f} has reached {self.validation:g}"
        return ""


def amount_text(name: str, amount: float) -> str:
    """Return an amount of what a budget limits, in words, as in 20,000 frames or 1 second."""
    number = f"{amount:g}" if name.endswith("seconds") else f"{amount:,}"
    return f"{number} {SPENT[name][0] if amount == 1 else plural(name)}"


def plural(name: str) -> str:
    """Return what a budget limits, in words, as in forward passes."""
    noun = SPENT[name][0]
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


class RunOptions(Section):
    """The [run] section: what is trained, and for how long."""

    algorithm: str = Field("ga", description="which algorithm trains; its section is read")
    seed: int = Field(1, ge=0, lt=1 << 64, description="random seed of training and validation")
    generations: int = Field(300, ge=1, le=10_000_000, description="number of generations in total")
    starts: int = added(
        1,
        ge=1,
        le=1000,
        description="number of evolutionary searches, each of start_generations; the best one then continues",
    )
    start_generations: Annotated[list[Annotated[int, Field(ge=1, le=10_000_000)]], one_or_more(0, None, "")] = added(
        [], description="generations of each search, if there are several starts; a list: the ends of its stages"
    )
    start_return: Annotated[list[float], one_or_more(None, "")] = added(
        [],
        description="candidates' median return that takes a search to the next stage, or in the last stage makes it "
        "the final search; one value per stage, or none",
    )
    budget: Budget = Field(Budget(), description="limits that end a run early, checked between generations")
    keep_every: int = Field(
        100, ge=1, le=10_000_000, description="generations between checkpoints that are kept for good"
    )
    init_from: str = Field(
        "",
        description="a run directory, champion.h5, .keras, .weights.h5 or .onnx file to start from, relative to the "
        "working directory or else this file",
    )

    def _check(self) -> None:
        stages, enough = self.start_generations, self.start_return
        if (self.starts > 1) != bool(stages):
            raise ValueError("start_generations, starts: set it where there are several starts, and nowhere else")
        if self.starts == 1 and enough:
            raise ValueError("start_return, starts: there is one search; set it where there are several starts")
        if any(later <= earlier for earlier, later in pairwise([0, *stages])):
            raise ValueError(f"start_generations: must rise, not {stages}")
        if len(enough) != len(stages) and (enough or len(stages) > 1):
            raise ValueError(
                f"start_return: one value for each of the {len(stages)} start_generations, not {len(enough)}"
            )

    @property
    def searches(self) -> Starts:
        """The searches that begin one after the other."""
        stages = tuple(self.start_generations)
        return Starts(self.starts, stages, tuple(self.start_return) or (math.inf,) * len(stages))


class ValidationOptions(Section):
    """The [validation] section: how the champion is chosen, in the same way for every algorithm."""

    every: int = Field(
        10, ge=1, le=10_000_000, description="generations between validations; by default more for Gymnasium"
    )
    episodes: int = Field(
        256,
        ge=1,
        le=100_000,
        description="validation episodes per finalist, fixed for a run; by default fewer for Gymnasium",
    )
    finalists: int = Field(16, ge=1, le=1000, description="most networks per validation; by default 4 for Gymnasium")

    def affordable(self, candidates: int, episodes: float) -> Self:
        """Return these options with a twentieth of all training `episodes` in validation, where that is not set.

        Where so few episodes are seldom, they are fewer and more often: up to a tenth of them.
        """
        chosen = {name: getattr(self, name) for name in self.model_fields_set}
        finalists = chosen.setdefault("finalists", min(FINALISTS, candidates))
        networks = VALIDATION_SHARE * min(finalists, candidates)
        if not chosen.keys() & {"every", "episodes"} and (few := int(SELDOM * episodes / networks)) < FEWEST:
            chosen["episodes"] = max(FEW, few)
            chosen["every"] = max(SELDOM, math.ceil(networks * chosen["episodes"] / episodes / 2))
        each = min(256, max(FEWEST, int(episodes * chosen.get("every", 10) / networks)))
        often = max(10, math.ceil(networks * chosen.setdefault("episodes", each) / episodes))
        chosen.setdefault("every", often)
        return self.model_copy(update={**chosen, "every": min(chosen["every"], 10_000_000)})


class TestOptions(Section):
    """The [test] section: the champion's score on test episodes, which is only reported."""

    every: int = Field(
        10, ge=0, le=10_000_000, description="generations between tests; 0 = only at the end, the default for Gymnasium"
    )
    episodes: int = Field(
        1000, ge=1, le=1_000_000, description="test episodes, the same for every run; by default fewer for Gymnasium"
    )
    block: int = Field(
        0,
        ge=0,
        le=4000,
        description="which block of a million test episodes; 0 = the one that every run uses by default",
    )

    def affordable(self, episodes: float) -> Self:
        """Return these options with a test at the end, of a twentieth of all training episodes, where not set."""
        few = {"every": 0, "episodes": min(1000, max(FEWEST_TESTED, int(episodes / TEST_SHARE)))}
        return self.model_copy(update={name: few[name] for name in few.keys() - self.model_fields_set})

    def due(self, generation: int) -> bool:
        """Return whether there is a test after a generation that is not the last."""
        return bool(self.every) and (generation + 1) % self.every == 0

    def count(self, generations: int) -> int:
        """Return how many tests a run of `generations` has."""
        return max(1, -(-generations // self.every)) if self.every else 1
