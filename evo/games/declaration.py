"""What the author of a game declares, and the options that an [environment] section of a game has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.environment import Shown
from evo.errors import ConfigurationError, did_you_mean
from evo.games.primitives import zeros_of
from evo.options import IN_TRAINING, OF_TRAINER, EnvironmentOptions, Section, added

COMPILED = (  # functions of a game
    "begin", "step", "turn", "observe", "observe_lanes", "cell", "draw", "mask", "metrics", "save", "load",
)  # fmt: skip
MOST_PLAYERS = 8
LARGEST = float(np.finfo(np.float32).max)


def whole(name: str, value: Any, lowest: int, highest: int) -> int:
    """Return `value` as an int; ValueError where it is no integer or lies outside [lowest, highest]."""
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"{name} is a whole number, not {value!r}") from None
    if not lowest <= number <= highest:
        raise ValueError(f"{name} is {number}, not between {lowest} and {highest}")
    return number


class Opponents(Section):
    """Who plays the other seats of a game of several players."""

    players: list[str] = Field(
        [],
        description="`random` and baselines of the game; each episode draws one; [] = all of them; training can add "
        "networks: `population` or `hall` (champions of the run so far); validation can add `hall`",
    )
    count: int = Field(4, ge=1, le=256, description="opponents per generation, if networks are among `players`")
    files: list[str] = added([], description="champion files, or runs, that are in the hall from the beginning")
    draw: Literal["uniform", "recent", "prioritised"] = added(
        "uniform",
        description="how networks are drawn from the hall in training: recent = from the newest `count`; prioritised "
        "= by the squared share of games that finalists of the last validation lose to them",
    )
    learn_from: Literal["one", "all"] = added(
        "one", description="seats that PPO, A2C and PQN learn from when the network plays itself: one of them or all"
    )
    epsilon: float = Field(0.0, ge=0, le=1, description="probability that a greedy opponent takes a random action")

    def _check(self) -> None:
        if (self.files or self.draw != "uniform") and "hall" not in self.players:
            raise ValueError(f"{'files' if self.files else 'draw'}: is about the hall, which is not among the players")
        if self.learn_from != "one" and "population" not in self.players:
            raise ValueError("learn_from: is about the population, which is not among the players")

    @property
    def networks(self) -> list[str]:
        """Return what networks play, of those of NETWORKS."""
        return [name for name in self.players if name in NETWORKS]

    @property
    def baselines(self) -> list[str]:
        """Return what needs no learning."""
        return [name for name in self.players if name not in NETWORKS]


NETWORKS = ("population", "hall")
ALL_BASELINES = Opponents()


class GameOptions(EnvironmentOptions):
    """What every [environment] section of a game has; a game's own options are further fields, which are numbers.

    The game's functions are given them as `options`: a truth as 0 or 1, a choice of Literal texts as its place, an
    option `a` of a table `t` as `t_a`.
    """

    id: str = Field("", description="which environment")
    max_steps: int = Field(1000, ge=1, le=1_000_000_000, description="steps after which an episode is truncated")
    opponents: Opponents = added(ALL_BASELINES, description="who plays the other seats of a game of several players")

    @property
    def scored(self) -> dict[str, Any]:
        """Return the rules and who plays in a test, where no network of a file does."""
        return self.model_dump(exclude={**dict.fromkeys(IN_TRAINING, True), "opponents": {"files"}})

    @property
    def numbers(self) -> dict[str, int | float]:
        """Return the options as numbers, by their names; ConfigurationError where one is none."""
        numbers: dict[str, int | float] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name in OF_TRAINER | {"opponents"}:
                continue
            if isinstance(value, Section):
                numbers |= {f"{name}_{inner}": getattr(value, inner) for inner in type(value).model_fields}
                continue
            if isinstance(value, str) and value in get_args(field.annotation):
                value = get_args(field.annotation).index(value)
            if not isinstance(value, int | float):
                raise ConfigurationError(
                    f"game {type(self).__module__}: the option {name} is a {type(value).__name__}; options of games "
                    "are int, float, bool, or Literal of texts"
                )
            numbers[name] = value if isinstance(value, float) else int(value)
        return numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Declaration:
    """A game: its options, its state, and its functions in plain Python, which Numba compiles.

    `arrays` returns the state of one environment, a NamedTuple of numbers and arrays, of which only types and shapes
    count; the functions are given arrays with a place for each environment b first. They are
    begin(state, options, b, random), step(state, options, b, action, random), which returns a reward and whether the
    episode has ended, and observe(state, options, b, out), which writes what is not zero to `out`, float32 [*shape].
    mask(state, options, b, out) writes 1 for actions that are allowed, metrics(state, options, b, out) a whole number
    for each of `episode_metrics`. render(state, options, b) is never compiled, and returns a picture, uint8 [H, W, 3].
    What is annotated as a Callable of options as well may be a function of them.

    Of a game of several `players`, observe, mask and metrics are given the player before `out`, and step(state,
    options, b, actions, rewards, random) writes the reward of each player, and returns whether the episode has ended.
    Where turn(state, options, b) says who moves next, it is given one action, else one of each player.
    """

    options: type[GameOptions]
    arrays: Callable[[Any], Any]
    shape: tuple[int, ...] | Callable[[Any], tuple[int, ...]]  # of an observation
    actions: int | Callable[[Any], int]  # how many choices, or how many numbers where they are continuous
    begin: Callable[..., Any]
    step: Callable[..., Any]
    observe: Callable[..., Any]
    players: int = 1
    turn: Callable[..., Any] | None = None  # (state, options, b), returns the player that moves next
    mask: Callable[..., Any] | None = None
    metrics: Callable[..., Any] | None = None
    episode_metrics: tuple[str, ...] = ()
    score_bounds: tuple[float, float] | Callable[[Any], tuple[float, float]] | None = None
    action_names: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()  # of choices, or of an action's numbers
    observation_names: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()  # of each number of an observation
    continuous: bool = False  # whether an action is an array of numbers, float64 [A]
    action_low: float = -1.0  # continuous actions are brought into these bounds
    action_high: float = 1.0
    low: Any = -LARGEST  # smallest values of an observation, for Gymnasium
    high: Any = LARGEST

    # What is shown: pixels, or positions with pixels and text of their own.
    render: Callable[..., NDArray[np.uint8]] | None = None
    shown: Callable[..., Shown] | None = None  # (state, options, b); not compiled
    live_metrics: tuple[str, ...] = ()  # those of `episode_metrics` that Gymnasium's info has at every step

    # What is known of the game.
    # Players that need no learning, by name: functions from the seed of an episode to its score; of a game of several
    # players compiled ones, (state, options, b, player, random), which return an action.
    baselines: Callable[[Any], Mapping[str, Callable[..., Any]]] | None = None
    baseline_seconds: Callable[[Any], Mapping[str, float]] | None = None  # about what they take for an episode
    symmetry: Any = ""  # transforms that keep the value of an observation: "", "mirror" or "dihedral"
    codes: Any = 0  # how many codes 0, 1, 2, ... the values of an observation are; 0: they are none

    # For speed.
    masked: Any = True  # whether `mask` rules any action out
    zeroed: bool = True  # whether `out` holds zeros when `observe` is called; False: it writes every value
    observe_lanes: Callable[..., Any] | None = None  # (state, options, index, out [*shape, L]), writes every value
    # (state, options, b, lane, out [*shape, L]), on GPUs, where all threads repeat the first cell between the two
    cell: Callable[..., Any] | None = None  # writes the first cell, as all cells are before `draw`
    draw: Callable[..., Any] | None = None  # writes what is another value
    save: Callable[..., Any] | None = None  # (state, options, b, row), writes every byte of the row
    load: Callable[..., Any] | None = None  # (state, options, b, row), returns whether the row can be a snapshot
    snapshot_size: Any = 0  # bytes of the row that `save` writes

    author: Declaration | None = None  # a game of several players, for which this one stands; never declared

    @property
    def written(self) -> Declaration:
        """Return the game as its author has written it."""
        return self.author or self

    @property
    def module(self) -> str:
        """Return the name of the module that the game is written in."""
        return self.step.__module__

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that Numba compiles, of those that there are, by name."""
        return {name: function for name in COMPILED if (function := getattr(self, name)) is not None}

    def baselines_of(self, options: Any) -> dict[str, Callable[..., Any]]:
        """Return the compiled baselines of a game of several players, by name."""
        return {} if self.written.baselines is None else dict(self.written.baselines(options))

    def opponents_of(self, options: Any) -> tuple[int, ...]:
        """Return baselines of the other seats: -1 at random, -2 - n is baseline n; ConfigurationError: no such."""
        named: Opponents = options.opponents
        if self.players == 1:
            if named != ALL_BASELINES:
                raise ConfigurationError("environment.opponents: the game has one player")
            return ()
        known = ["random", *self.baselines_of(options)]
        if wrong := [name for name in named.players if name not in (*known, *NETWORKS)]:
            meant = did_you_mean(wrong[0], [*known, *NETWORKS]) or f" (there are {', '.join((*known, *NETWORKS))})"
            raise ConfigurationError(f"environment.opponents.players: unknown opponent {wrong[0]}{meant}")
        return tuple(-1 - known.index(name) for name in named.players or known if name in known)

    def masks_actions(self, options: Any) -> bool:
        """Return whether actions may be ruled out."""
        return self.mask is not None and bool(self.of(self.masked, options))

    def state_of(self, options: Any) -> Any:
        """Return the state of one environment; ConfigurationError: `arrays` makes no NamedTuple of such."""
        state = self.of(self.arrays, options)
        try:
            zeros_of(state if hasattr(state, "_fields") else None, 1)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            must = "must be a function of options that returns a NamedTuple of numbers and arrays"
            raise ConfigurationError(f"game {self.module}: arrays {must}, not {state!r:.60}") from error
        return state

    def of(self, value: Any, options: Any) -> Any:
        """Return a value that may depend on options; ConfigurationError where its function fails."""
        if not callable(value):
            return value
        try:
            return value(options)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            where = f"{Path(value.__code__.co_filename).name}:{value.__code__.co_firstlineno}"
            raise ConfigurationError(f"game {self.module}: {where}: {type(error).__name__}: {error}") from error
