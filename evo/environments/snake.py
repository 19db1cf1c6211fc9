"""Snake, played in compiled code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from evo import environment
from evo.options import IN_TRAINING, OF_TRAINER, EnvironmentOptions, Section

if TYPE_CHECKING:
    import gymnasium
    import numpy as np
    from numpy.typing import NDArray

    from evo.environment import Shown
    from evo.games.contract import CompiledGame
    from snake.render import Position


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


class Options(EnvironmentOptions):
    """The [environment] section of Snake."""

    id: Literal["snake"] = Field("snake", description="which environment")
    size: int = Field(10, ge=4, le=64, description="cells along a side of the board")
    observation: Literal["frame", "planes", "ego", "window", "features", "local"] = Field(
        "window",
        description="the whole board (frame, planes), turned with the head (ego), or centred on it (window), or so "
        "that boards of any size look alike (local); twelve numbers of where the fruit, the tail and what is deadly "
        "are (features)",
    )
    window: int = Field(
        0,
        ge=0,
        le=127,
        description="odd side of the window in cells, also wider than the board; 0 = 2 size - 1, or 7 for local",
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
    rewards: Rewards = Field(
        Rewards(),
        description="rewards of events, multiples of 0.001",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        if self.observation in ("ego", "window", "features", "local") and self.actions != "relative":
            raise ValueError(f'actions: observation "{self.observation}" turns with the head, so use "relative"')
        if self.window and self.window % 2 == 0:
            raise ValueError(f"window: {self.window} is not an odd number")
        if not self.starvation and not self.max_steps:
            raise ValueError("max_steps: required where starvation = 0, or an episode may never end")
        if self.start_length > self.size:
            raise ValueError(f"start_length: {self.start_length} does not fit a board of side {self.size}")
        return self

    def title(self) -> str:
        """Return the board and what is seen of it, as in `snake 10x10, seen as window 19x19x5`."""
        return f"snake {self.size}x{self.size}, seen as {self.observation} {'x'.join(map(str, self.shape))}"

    @property
    def league(self) -> dict[str, Any]:
        """Return what is seen of the board, and which actions there are."""
        seen = f"{self.observation} {'x'.join(map(str, self.shape))}"
        return {"observation": seen, "actions": self.actions, "mask": self.mask}

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
    def of_game(self) -> dict[str, Any]:
        """Return the options that the game itself takes."""
        return self.model_dump(exclude=OF_TRAINER)

    @property
    def of_rules(self) -> dict[str, Any]:
        """Return the options of `snake.rules.Game`."""
        return self.model_dump(exclude=OF_TRAINER | {"observation", "window", "mask"})

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of an observation: rows, columns, planes."""
        from snake.rules import shape

        return shape(self.observation, self.size, self.window)

    @property
    def action_count(self) -> int:
        """Return the number of actions."""
        return 3 if self.actions == "relative" else 4


@dataclass(frozen=True)
class Environment(environment.Environment):
    """Snake as a compiled game, and behind Gymnasium's interface."""

    options: Options

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of an observation."""
        return self.options.shape

    @property
    def actions(self) -> int:
        """Return the number of actions."""
        return self.options.action_count

    @property
    def action_names(self) -> tuple[str, ...]:
        """Return where actions turn to or, where they are absolute, where they go."""
        from snake.rules import HEADINGS

        return ("left", "straight", "right") if self.options.actions == "relative" else HEADINGS

    @property
    def observation_names(self) -> tuple[str, ...]:
        """Return the names of the features."""
        from snake.rules import FEATURE_NAMES

        return FEATURE_NAMES if self.options.observation == "features" else ()

    @property
    def codes(self) -> int:
        """Return 4 where one plane shows all: nothing, the head, the fruit and the body."""
        return 4 if self.options.observation == "frame" else 0

    @cached_property
    def game(self) -> CompiledGame:
        """Return the compiled game."""
        from snake.compiled import make_game

        return make_game(**self.options.of_game)

    @property
    def episode_metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics of an episode."""
        from snake.rules import EPISODE_METRICS

        return EPISODE_METRICS

    @property
    def score_bounds(self) -> tuple[float, float]:
        """Return no fruit, and as many as fill the board."""
        return 0.0, float(self.options.size**2 - self.options.start_length)

    @property
    def players(self) -> Mapping[str, Callable[[int], float]]:
        """Return the random, greedy, shortest-path and Hamiltonian players."""
        from snake.players import PLAYERS

        return {name: partial(_score, name, self.options) for name in PLAYERS}

    @property
    def player_seconds(self) -> Mapping[str, float]:
        """Return what the players take, as measured on boards of 36 and of 100 cells."""
        cells = self.options.size**2 / 100
        return {
            environment.RANDOM: 0.001 * cells, "greedy": 0.005 * cells**1.5, "shortest": 0.55 * cells**2.6,
            "hamiltonian": 0.06 * cells**2,
        }  # fmt: skip

    @property
    def symmetry(self) -> Literal["", "mirror", "dihedral"]:
        """Return "mirror" where the head looks up in every picture, "dihedral" of other pictures."""
        if self.options.observation == "features":
            return ""
        return "mirror" if self.options.observation in ("ego", "window", "local") else "dihedral"

    def env(self) -> gymnasium.Env[Any, Any]:
        """Return the same game behind Gymnasium's interface."""
        from snake.envs import SnakeEnv

        return SnakeEnv(**self.options.of_game)

    @property
    def visible(self) -> bool:
        """Return that boards can be shown."""
        return True

    def replayed(self, seed: int, actions: Sequence[Any], *, pictures: bool = True) -> tuple[list[Shown], float]:
        """Play the actions again by the readable rules; RuntimeError where they do not end the episode."""
        from snake.render import position
        from snake.rules import Game

        game = Game(seed=seed, **self.options.of_rules)
        shown: list[Shown] = [Board(position(game))]
        for action in actions:
            game.step(int(action))
            shown.append(Board(position(game)))
        if not game.over:
            raise RuntimeError(f"the actions do not end the episode of seed {seed}")
        return shown, float(game.score)

    def metrics_of_episode(self, info: Mapping[str, Any], truncated: bool) -> tuple[int, ...]:
        """Return the metrics of an episode that was played through Gymnasium's interface."""
        score = int(info["score"])
        return score, int(score == self.score_bounds[1]), int(truncated)


@dataclass(frozen=True)
class Board:
    """A board of Snake that can be shown."""

    position: Position

    def text(self, colour: bool) -> str:
        """Return the board as lines of text."""
        from snake.render import text

        return text(self.position, colour)

    def rgb(self) -> NDArray[np.uint8]:
        """Return the board as a picture, 16 pixels a cell."""
        from snake.render import rgb

        return rgb(self.position, 16)


@lru_cache(maxsize=1 << 16)  # a report and the next run in this process ask for the same
def _score(player: str, options: Options, seed: int) -> int:
    """Return the score of a player in the episode `seed`."""
    from snake.players import play

    return play(player, seed, **options.of_rules)


def make(options: Options) -> Environment:
    """Return the environment that `options` describe."""
    return Environment(options)
