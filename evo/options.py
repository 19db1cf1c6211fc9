"""The base classes of the sections of an experiment file: of any, of [environment], of an algorithm's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from evo.mistakes import mistakes_text, name_of
from evo.toml import unfit

IN_TRAINING = {"training", "training_generations"}  # options of [environment] that change training episodes alone
OF_TRAINER = IN_TRAINING | {"id"}  # which no environment has
EPISODE_LENGTH = 256  # assumed where segments are played, to say how many episodes those are


class Section(BaseModel):
    """One section of the experiment file: strict types, no unknown keys, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for name, field in cls.model_fields.items():
            if isinstance(field.default, float) and not isfinite(field.default):
                raise ValueError(f"the option {name} has the default {field.default}, and must have a finite number")
            if callable(field.default) or isinstance(field.default, bytes | set | frozenset | complex):
                raise ValueError(f"the option {name} has the default {field.default!r:.60}, which TOML cannot write")

    @model_validator(mode="before")
    @classmethod
    def _as_files_have_it(cls, values: Any) -> Any:
        options = values.items() if isinstance(values, Mapping) else ()
        found = {name: next(filter(None, (unfit(one) for _, one in leaves(value))), "") for name, value in options}
        if any(found.values()):
            raise ValueError(*(f"{name}: {wrong}" for name, wrong in found.items() if wrong))
        return values

    @model_validator(mode="after")
    def _checked(self) -> Self:
        for name in type(self).model_fields:
            if nothing := next((path for path, one in leaves(getattr(self, name)) if path and one is None), ()):
                raise ValueError(f"{name}: {name_of(nothing)} is None, which no experiment file can say; leave it out")
        self._check()
        return self

    def _check(self) -> None:
        """Raise a ValueError where options do not fit together."""


def leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], object]]:
    """Yield what is in tables and lists, within each other too, and keys that are texts, with the place of each."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        yield path, value
    for key, one in inner or ():
        if isinstance(key, str):
            yield path, key
        yield from leaves(one, (*path, key))


def added(default: Any, **how: Any) -> Any:
    """Return the Field of an option that older runs lack: where it has its default, it is no part of an identity."""
    return Field(default, exclude_if=lambda value: value == default, **how)


class EnvironmentOptions(Section):
    """What every [environment] section has."""

    id: str  # the name of a module in evo/environments, and after a colon what it is to make
    training: dict[str, JsonValue] | list[dict[str, JsonValue]] = Field(
        {},
        exclude_if=lambda changes: not changes,
        description="options with other values in training episodes, as in {max_steps = 100}; {} = none; of a list of "
        "such tables, generations take turns",
    )

    training_generations: int = added(
        0,
        ge=0,
        description="generations after which training has the same options as validation and test; 0 = never",
    )

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # some options are dicts, which have none

    @field_validator("training", mode="before")
    @classmethod
    def _tables(cls, value: Any) -> Any:
        if isinstance(value, list) and not all(isinstance(one, dict) for one in value):
            raise ValueError("a list must have tables, as in [{max_steps = 100}, {}]")
        return value

    @model_validator(mode="after")
    def _fit_for_training(self) -> Self:
        if self.training_generations and not self.training:
            raise ValueError("training_generations: training is empty, so there is nothing that could end")
        for name, changes in self.changes.items():
            if fixed := changes.keys() & OF_TRAINER:
                raise ValueError(f"{name}: {', '.join(sorted(fixed))} cannot be another one")
            if wrong := mistakes_text(type(self), self._with(changes)):
                raise ValueError(f"{name}: {wrong}")
        return self

    @property
    def changes(self) -> dict[str, dict[str, JsonValue]]:
        """Return what training changes, for each generation in turn, by the place in the section; empty: nothing."""
        if isinstance(self.training, list):
            return {f"training[{number}]": one for number, one in enumerate(self.training)}
        return {"training": self.training} if self.training else {}

    def in_training(self) -> tuple[Self, ...]:
        """Return the options that training episodes have, of each generation in turn; empty: these."""
        return tuple(type(self).model_validate(self._with(changes)) for changes in self.changes.values())

    def _with(self, changes: dict[str, JsonValue]) -> dict[str, Any]:
        options = self.model_dump(exclude=IN_TRAINING)
        for name, value in changes.items():
            before = options.get(name)
            options[name] = before | value if isinstance(value, dict) and isinstance(before, dict) else value
        return options

    def title(self) -> str:
        """Return the environment in a few words, for the first line of a run."""
        return self.id

    @property
    def in_tensorflow(self) -> bool:
        """Return whether episodes compute with TensorFlow, on a device that the process is pinned to."""
        return False

    @property
    def track(self) -> dict[str, Any]:
        """Return the options that say what a player sees and may do; only players of one track are compared."""
        return {}

    @property
    def meaning(self) -> dict[str, Any]:
        """Return the options that say what a network's numbers mean, where no shape shows it."""
        return {}

    @property
    def fixed_shape_hint(self) -> str:
        """Return what makes observations of one shape where other options differ; empty: nothing does."""
        return ""

    @property
    def scored(self) -> dict[str, Any]:
        """Return the options of the game that is played and scored: without its track, and without mere rewards."""
        return self.model_dump(exclude=IN_TRAINING)


class AlgorithmOptions(Section):
    """The section of an algorithm, with what the trainer needs to know of any algorithm."""

    learns: ClassVar[bool] = False  # whether it computes gradients, and so uses [learner]
    remembers: ClassVar[bool] = False  # whether what learns may have a network with memory
    replays: ClassVar[bool] = False  # whether a resume plays recorded training episodes again
    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = ""  # what is recorded; "" = no transitions
    output: ClassVar[Literal["", "tanh"]] = ""  # the activation of outputs that it needs; "" = that of [policy]
    in_probe: ClassVar[Mapping[str, Any]] = {}  # in a short probe of what a run takes: what begins late begins at once
    noise_recipe: ClassVar[int] = 1  # of its candidates; 2 where weights have standard deviations of their own

    generations: int = Field(0, ge=0, le=10_000_000, description="number of generations; 0 = run.generations")

    def extra_outputs(self, environment: Any) -> int:
        """Return how many outputs there are besides the scores of actions; ConfigurationError: it cannot act there."""
        return 0

    @property
    def plays_segments(self) -> bool:
        """Whether transitions are of environments side by side, `envs` of them, and not of whole episodes."""
        return self.transitions_from == "segments" and not getattr(self, "whole_episodes", False)

    def frames_per_generation(self) -> int:
        """Return the frames of a generation's segments; 0: it plays whole episodes."""
        return getattr(self, "envs", 0) * getattr(self, "horizon", 0) if self.plays_segments else 0

    def episodes_per_generation(self) -> float:
        """Return how many episodes a generation plays in training, of all candidates; of segments, about how many."""
        if self.plays_segments:
            return self.frames_per_generation() / EPISODE_LENGTH
        return self.candidates() * int(getattr(self, "episodes", 1))

    @property
    def needs_stationary_training(self) -> str:
        """The option that compares the fitness of generations, which must all train in one environment; empty: none."""
        return ""

    def candidates(self) -> int:
        """Return how many candidates play in a generation: its `population`, if it has one."""
        return int(getattr(self, "population", 1))

    def episodes_per_candidate(self) -> int:
        """Return over how many `episodes` a candidate's recorded return is summed; 1 without a population."""
        return int(getattr(self, "episodes", 1)) if self.candidates() > 1 else 1

    def candidates_per_task(self, flops: int) -> int:
        """Return how many candidates one task holds, by the operations of a forward pass, not by the workers."""
        return max(1, min(16, 500_000 // flops)) if self.candidates() > 1 else 1
