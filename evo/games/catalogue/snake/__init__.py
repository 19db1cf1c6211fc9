"""Snake: the head looks for fruits, and the body grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from evo.games import Game, GameOptions
from evo.games.catalogue.snake import observations, pictures, players, rules
from evo.options import IN_TRAINING, OF_TRAINER, Section


class Rewards(Section):
    """Rewards, in multiples of 0.001."""

    fruit: float = Field(1.0, description="reward for a fruit")
    death: float = Field(-1.0, description="reward for a collision with a wall or the body")
    win: float = Field(10.0, description="reward for filling the board, added to that of the last fruit")
    starved: float = Field(
        0.0, exclude_if=lambda value: not value, description="reward for `starvation` steps without a fruit"
    )
    step: float = Field(
        0.0, exclude_if=lambda value: not value, description="reward for a step that neither eats nor collides"
    )

    @model_validator(mode="after")
    def _thousandths(self) -> Rewards:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if abs(value) > 1e6 or round(value * 1000) / 1000 != value:
                raise ValueError(f"{name} = {value} is not a multiple of 0.001 within a million")
        return self


class Options(GameOptions):
    """The [environment] section of Snake."""

    id: Literal["snake"] = Field("snake", description="which environment")
    size: int = Field(10, ge=4, le=64, description="cells along a side of the board")
    observation: Literal["frame", "planes", "ego", "window", "features", "local"] = Field(
        "window",
        description="the whole board (frame, planes), turned with the head (ego), centred on it (window), or alike "
        "for boards of any size (local); or twelve numbers: where the fruit, the tail and dangers are (features)",
    )
    window: int = Field(
        0,
        ge=0,
        le=127,
        description="side of the window in cells: odd, may exceed the board; 0 = 2 size - 1, or 7 for local",
    )
    actions: Literal["relative", "absolute"] = Field(
        "relative", description="3 relative to the head (left, straight, right), or 4 absolute"
    )
    mask: Literal["none", "reverse", "fatal"] = Field(
        "none", description="actions that are masked: reversing, or all fatal ones"
    )
    starvation: int = Field(
        200, ge=0, le=1_000_000, description="steps without a fruit after which an episode is truncated; 0 = never"
    )
    max_steps: int = Field(
        0, ge=0, le=1_000_000_000, description="steps after which an episode is truncated; 0 = never"
    )
    tail: Literal["legal", "fatal"] = Field(
        "legal", description="entering the cell that the tail leaves in the same step: legal, or fatal"
    )
    start_length: int = Field(1, ge=1, le=64, description="cells of the snake at the start of an episode, at most size")
    rewards: Rewards = Field(Rewards(), description="rewards of events, multiples of 0.001")

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Options:
        if self.observation in ("ego", "window", "features", "local") and self.actions != "relative":
            raise ValueError(f'actions: observation "{self.observation}" turns with the head, so use "relative"')
        if self.window and self.window % 2 == 0:
            raise ValueError(f"window: {self.window} is not an odd number")
        if not (self.starvation or self.max_steps or (info.context or {}).get("truncated_outside")):
            raise ValueError("max_steps: required where starvation = 0, or an episode may never end")
        if self.start_length > self.size:
            raise ValueError(f"start_length: {self.start_length} does not fit a board of side {self.size}")
        return self

    def title(self) -> str:
        """Return the board and what is seen of it, as in `snake 10x10, seen as window 19x19x5`."""
        return f"snake {self.size}x{self.size}, seen as {self._seen}"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the shape of an observation: rows, columns, planes."""
        return observations.observation_shape(self)

    @property
    def _seen(self) -> str:
        return f"{self.observation} {'x'.join(map(str, self.shape))}"

    @property
    def track(self) -> dict[str, Any]:
        """Return what is seen of the board, and which actions there are."""
        return {"observation": self._seen, "actions": self.actions, "mask": self.mask}

    @property
    def scored(self) -> dict[str, Any]:
        """Return the rules; the score is the number of fruits, whatever the rewards are."""
        return self.model_dump(exclude=IN_TRAINING | {"observation", "window", "actions", "mask", "rewards"})

    @property
    def fixed_shape_hint(self) -> str:
        """Return the width of a window that fits boards of every size."""
        if self.observation != "window" or self.window:
            return ""
        return f"a view of fixed size serves boards of every size, as with environment.window = {self.shape[0]}"

    @property
    def of_rules(self) -> dict[str, Any]:
        """Return the options of `snake.rules.Game`."""
        return self.model_dump(exclude=OF_TRAINER | {"observation", "window", "mask"})


def symmetry(options: Options) -> str:
    """Return "mirror" where the head looks up in every picture, "dihedral" of other pictures."""
    if options.observation == "features":
        return ""
    return "mirror" if options.observation in ("ego", "window", "local") else "dihedral"


def baselines_of(options: Options) -> Mapping[str, Callable[[int], float]]:
    """Return the random, greedy, shortest-path and Hamiltonian players."""
    return {name: partial(players.score_of, name, options) for name in players.PLAYERS}


def baseline_seconds(options: Options) -> Mapping[str, float]:
    """Return what the players take, as measured on boards of 36 and of 100 cells."""
    cells = options.size**2 / 100
    return {
        "random": 0.001 * cells, "greedy": 0.005 * cells**1.5, "shortest": 0.55 * cells**2.6,
        "hamiltonian": 0.06 * cells**2,
    }  # fmt: skip


make = Game(
    options=Options,
    arrays=rules.arrays,
    shape=observations.observation_shape,
    actions=lambda options: 3 if options.actions == "relative" else 4,
    begin=rules.begin,
    step=rules.step,
    observe=observations.observe,
    zeroed=False,
    observe_lanes=observations.observe_lanes,
    cell=observations.cell,
    draw=observations.draw,
    mask=rules.mask,
    masked=lambda options: options.mask != "none",
    metrics=rules.metrics,
    episode_metrics=rules.EPISODE_METRICS,
    live_metrics=("score",),
    save=rules.save,
    load=rules.load,
    snapshot_size=rules.snapshot_size,
    render=pictures.render,
    shown=pictures.shown,
    score_bounds=lambda options: (0.0, float(options.size**2 - options.start_length)),
    action_names=lambda options: ("left", "straight", "right") if options.actions == "relative" else rules.HEADINGS,
    observation_names=lambda options: observations.FEATURE_NAMES if options.observation == "features" else (),
    codes=lambda options: 4 if options.observation == "frame" else 0,  # nothing, the head, the fruit and the body
    symmetry=symmetry,
    baselines=baselines_of,
    baseline_seconds=baseline_seconds,
    low=lambda options: observations.LOWEST[observations.OBSERVATIONS.index(options.observation)],
    high=lambda options: observations.HIGHEST[observations.OBSERVATIONS.index(options.observation)],
)
