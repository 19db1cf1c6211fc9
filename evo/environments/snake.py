"""Snake, played in compiled code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo.plugins.options import EnvironmentOptions, Section

if TYPE_CHECKING:
    import gymnasium

    from evo.records import EnvStates, Transitions
    from snake.batch import Rules


class Rewards(Section):
    """What a step earns, in multiples of 0.001."""

    fruit: float = Field(1.0, description="for a fruit")
    death: float = Field(-1.0, description="for running into a wall or the body")
    win: float = Field(10.0, description="for filling the board, beside the last fruit's")

    @model_validator(mode="after")
    def _thousandths(self) -> Rewards:
        for name in ("fruit", "death", "win"):
            value = getattr(self, name)
            if abs(value) > 1e6 or round(value * 1000) / 1000 != value:
                raise ValueError(f"{name} = {value} is not a multiple of 0.001 within a million")
        return self


class Options(EnvironmentOptions):
    """The [environment] section of Snake."""

    id: Literal["snake"] = Field("snake", description="which environment")
    size: int = Field(10, ge=4, le=64, description="cells along a side of the board")
    observation: Literal["frame", "planes", "ego", "window"] = Field("window", description="what the network sees")
    window: int = Field(0, ge=0, description="odd side of the window in cells; 0 = 2 size - 1")
    actions: Literal["relative", "absolute"] = Field("relative", description="turns of the head, or compass points")
    mask: Literal["none", "reverse", "fatal"] = Field("none", description="actions that are ruled out: another league")
    starvation: int = Field(200, ge=0, le=1_000_000, description="steps without a fruit that truncate; 0 = none")
    max_steps: int = Field(0, ge=0, le=1_000_000_000, description="steps that truncate an episode; 0 = none")
    tail: Literal["legal", "fatal"] = Field("legal", description="may the cell that the tail leaves be entered")
    start_length: int = Field(1, ge=1, le=64, description="cells of the snake at the start")
    rewards: Rewards = Field(Rewards(), description="what a step earns")

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        if self.observation in ("ego", "window") and self.actions != "relative":
            raise ValueError(f'actions: observation "{self.observation}" turns with the head, so use "relative"')
        if self.window and (self.window % 2 == 0 or self.window > 2 * self.size - 1):
            raise ValueError(f"window: {self.window} is not an odd number up to 2 size - 1 = {2 * self.size - 1}")
        if not self.starvation and not self.max_steps:
            raise ValueError("max_steps: required where starvation = 0, or an episode may never end")
        if self.start_length > self.size:
            raise ValueError(f"start_length: {self.start_length} does not fit a board of side {self.size}")
        return self

    @property
    def side(self) -> int:
        """Return the side of the observation in cells."""
        if self.observation != "window":
            return self.size
        return self.window or 2 * self.size - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of an observation: rows, columns, planes."""
        return (self.side, self.side, {"frame": 1, "planes": 5, "ego": 6, "window": 5}[self.observation])

    @property
    def action_count(self) -> int:
        """Return the number of actions."""
        return 3 if self.actions == "relative" else 4


@dataclass(frozen=True)
class Environment:
    """Snake as a worker needs it: compiled rules and observation codes, and a Gymnasium form of the same."""

    options: Options
    episode_metrics: tuple[str, ...] = field(default=("score", "won", "starved"), init=False)
    continuous: bool = field(default=False, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of an observation."""
        return self.options.shape

    @property
    def actions(self) -> int:
        """Return the number of actions."""
        return self.options.action_count

    @cached_property
    def rules(self) -> Rules:
        """Return the rules as the compiled game takes them."""
        from snake.batch import Rules

        o = self.options
        return Rules(
            size=o.size,
            tail_fatal=int(o.tail == "fatal"),
            starvation=o.starvation,
            max_steps=o.max_steps,
            start_length=o.start_length,
            relative=int(o.actions == "relative"),
            reward_fruit=round(o.rewards.fruit * 1000),
            reward_death=round(o.rewards.death * 1000),
            reward_win=round(o.rewards.win * 1000),
        )

    @property
    def codes(self) -> tuple[int, int | None]:
        """Return the codes of the observation and of the mask in the compiled game; None where nothing is masked."""
        from snake.observe import OBSERVATIONS
        from snake.rules import MASKS

        return OBSERVATIONS.index(self.options.observation), MASKS.index(self.options.mask) or None

    def begin(self, first: NDArray[np.uint64]) -> EnvStates:
        """Return lanes at the beginning of their first episodes, whose seeds are `first` [L]."""
        from evo.rollouts.segments import begin

        return begin(self.rules, first)

    def observe(self, snapshots: NDArray[np.uint8], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return what the network sees of boards that were saved, in `out` if given.  # [M, S] -> [M, H, W, C]"""
        from snake.snapshots import observe_saved

        if out is None:
            out = np.empty((len(snapshots), *self.shape), np.float32)
        observe_saved(self.rules, self.codes[0], snapshots, out)
        return out

    def play_again(
        self, lanes: EnvStates, actions: NDArray[np.int8], keep: bool = True
    ) -> tuple[Transitions | None, EnvStates]:
        """Return the steps (if `keep`) that these actions were from there on, and where they led.  # actions [L, T]"""
        from evo.rollouts.replay import play_segment_again

        return play_segment_again(self, lanes, actions, keep)

    @property
    def symmetry(self) -> Literal["mirror", "dihedral"]:
        """Return which other forms of a board are seen as boards too: where the head looks up, its mirror image."""
        return "mirror" if self.options.observation in ("ego", "window") else "dihedral"

    def env(self) -> gymnasium.Env:
        """Return the same game behind Gymnasium's interface."""
        from snake.envs import SnakeEnv

        keys = self.options.model_dump(exclude={"id"})
        return SnakeEnv(**keys)

    def metrics_of_episode(self, info: Mapping[str, Any], truncated: bool) -> tuple[int, ...]:
        """Return the episode_metrics of an episode from what its last step said."""
        score = int(info["score"])
        return score, int(score + self.options.start_length == self.options.size**2), int(truncated)


def make(options: Options) -> Environment:
    """Return the environment that `options` describe."""
    return Environment(options)
