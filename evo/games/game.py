"""A game that is one file of plain Python: what its author declares, and the environment that this gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from evo.environment import RANDOM, Environment, Shown
from evo.errors import ConfigurationError
from evo.games.checking import check_game, drawn, failures_named
from evo.games.pictures import Picture
from evo.games.plain import PlainEnv, PlainGame, random_action
from evo.options import OF_TRAINER, EnvironmentOptions, mistakes_text
from evo.plugins import mistakes
from evo.records import GOES_ON

if TYPE_CHECKING:
    from evo.games.contract import CompiledGame
    from evo.games.envs import GameEnv, GameVectorEnv

LARGEST = float(np.finfo(np.float32).max)
STEP_SECONDS = 2e-5  # of one environment behind Gymnasium's interface


class GameOptions(EnvironmentOptions):
    """What every [environment] section of a game has; a game's own options are further fields, which are numbers.

    The game's functions are given them as `options`: a truth as 0 or 1, a choice of Literal texts as its place.
    """

    id: str = Field("", description="which environment")
    max_steps: int = Field(1000, ge=1, le=1_000_000_000, description="steps after which an episode is truncated")

    @property
    def numbers(self) -> dict[str, int | float]:
        """Return the options as numbers, by their names; ConfigurationError where one is none."""
        numbers: dict[str, int | float] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name in OF_TRAINER:
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
class Game:
    """A game: its options, its state, and its functions in plain Python, which Numba compiles.

    `arrays` returns the state of one environment, a NamedTuple of numbers and arrays, of which only types and shapes
    count; the functions are given arrays with a place for each environment b first. They are
    begin(state, options, b, random), step(state, options, b, action, random), which returns a reward and whether the
    episode has ended, and observe(state, options, b, out), which writes what is not zero to `out`, float32 [*shape].
    mask(state, options, b, out) writes 1 for actions that are allowed, metrics(state, options, b, out) a whole number
    for each of `episode_metrics`. render(state, options, b) is never compiled, and returns a picture, uint8 [H, W, 3].
    """

    plugs_into: ClassVar[str] = "environments"
    options_base: ClassVar[tuple[type, str]] = GameOptions, "evo.games.GameOptions"

    options: type[GameOptions]
    arrays: Callable[[Any], Any]
    shape: tuple[int, ...] | Callable[[Any], tuple[int, ...]]  # of an observation
    actions: int | Callable[[Any], int]  # how many choices, or how many numbers where they are continuous
    begin: Callable[..., Any]
    step: Callable[..., Any]
    observe: Callable[..., Any]
    mask: Callable[..., Any] | None = None
    metrics: Callable[..., Any] | None = None
    episode_metrics: tuple[str, ...] = ()
    render: Callable[..., NDArray[np.uint8]] | None = None
    score_bounds: tuple[float, float] | Callable[[Any], tuple[float, float]] | None = None
    action_names: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()  # of choices, or of an action's numbers
    observation_names: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()  # of each number of an observation
    continuous: bool = False  # whether an action is an array of numbers, float64 [A]
    action_low: float = -1.0  # continuous actions are brought into these bounds
    action_high: float = 1.0
    low: Any = -LARGEST  # smallest values of an observation, for Gymnasium
    high: Any = LARGEST

    @property
    def module(self) -> str:
        """Return the name of the module that the game is written in."""
        return self.step.__module__

    def __call__(self, options: GameOptions) -> GameEnvironment:
        """Return the environment that `options` describe."""
        return GameEnvironment(self, options)

    def of(self, value: Any, options: Any) -> Any:
        """Return a value that may depend on options; ConfigurationError where its function fails."""
        if not callable(value):
            return value
        try:
            return value(options)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            where = f"{Path(value.__code__.co_filename).name}:{value.__code__.co_firstlineno}"
            raise ConfigurationError(f"game {self.module}: {where}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class GameEnvironment(Environment):
    """A game with its options."""

    definition: Game
    options: GameOptions

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of an observation."""
        shape: tuple[int, ...] = self.definition.of(self.definition.shape, self.options)
        return shape

    @cached_property
    def actions(self) -> int:
        """Return the number of actions."""
        actions: int = self.definition.of(self.definition.actions, self.options)
        return actions

    @property
    def action_names(self) -> tuple[str, ...]:
        """Return a name for each action, where the author has given them."""
        names: tuple[str, ...] = self.definition.of(self.definition.action_names, self.options)
        return names

    @property
    def observation_names(self) -> tuple[str, ...]:
        """Return a name for each number of an observation, where the author has given them."""
        names: tuple[str, ...] = self.definition.of(self.definition.observation_names, self.options)
        return names

    @property
    def continuous(self) -> bool:
        """Return whether actions are numbers, not choices."""
        return self.definition.continuous

    @property
    def episode_metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics of an episode."""
        return self.definition.episode_metrics

    @property
    def score_bounds(self) -> tuple[float, float] | None:
        """Return the lowest and the highest score, where the author has given them."""
        bounds: tuple[float, float] | None = self.definition.of(self.definition.score_bounds, self.options)
        return bounds

    @property
    def sources(self) -> str:
        """Return a hash of the files of a game that is not ours, less `render`, which changes no result."""
        from evo.games.compiling import sources_of

        ours = self.definition.module.partition(".")[0] in mistakes.OURS
        return "" if ours else sources_of(self._functions, self.definition.render)

    @property
    def _functions(self) -> Any:
        from evo.games.compiling import Functions

        return Functions(*(getattr(self.definition, name) for name in Functions._fields))

    @property
    def players(self) -> Mapping[str, Callable[[int], float]]:
        """Return the random player."""
        return {RANDOM: partial(play_at_random, self)}

    @property
    def player_seconds(self) -> Mapping[str, float]:
        """Return what the random player takes where every episode lasts until it is truncated."""
        return {RANDOM: STEP_SECONDS * self.options.max_steps}

    @cached_property
    def game(self) -> CompiledGame:
        """Return the compiled game."""
        from evo.games.compiling import adapt, batch_of, rules_of
        from evo.games.contract import CompiledGame

        definition, example = self.definition, self.definition.arrays(self.options)
        bounds = (definition.action_low, definition.action_high) if definition.continuous else None
        adapt(type(example), self._functions, bounds)
        return CompiledGame(
            make_state=partial(batch_of, example),
            rules=rules_of(self.options.numbers),
            shape=self.shape,
            actions=self.actions,
            episode_metrics=self.episode_metrics,
            masked=definition.mask is not None,
            continuous=definition.continuous,
        )

    def plain(self, count: int = 1) -> PlainGame:
        """Return `count` environments in plain Python, the reference of the compiled ones."""
        return PlainGame(self.definition, self.options, self.shape, self.actions, count)

    def plain_env(self) -> PlainEnv:
        """Return the game in plain Python behind Gymnasium's interface."""
        return PlainEnv(self.plain())

    def check(self) -> None:
        """Play a few episodes in plain Python, once a process; ConfigurationError says what breaks the contract."""
        if self not in _checked:
            check_game(self.plain)
            _checked.add(self)

    def env(self) -> GameEnv:
        """Return the compiled game behind Gymnasium's interface."""
        from evo.games.envs import GameEnv

        return GameEnv(self)

    def vector_env(self, num_envs: int, **how: Any) -> GameVectorEnv:
        """Return `num_envs` environments behind Gymnasium's interface for vectors; `how` is as there."""
        from evo.games.envs import GameVectorEnv

        return GameVectorEnv(self, num_envs, **how)

    @property
    def visible(self) -> bool:
        """Return whether the author draws pictures."""
        return self.definition.render is not None

    def replayed(self, seed: int, actions: Sequence[Any], *, pictures: bool = True) -> tuple[list[Shown], float]:
        """Play the actions again in plain Python, where every index is checked; no positions without `render`.

        ConfigurationError names the function that fails; RuntimeError: the actions do not end the episode.
        """
        game, total, status = self.plain(), 0, GOES_ON
        shown: list[Shown] = []

        def show(caption: str = "") -> None:
            if self.visible and pictures:
                shown.append(Picture(drawn(game, 0), caption))

        with failures_named(game, "begin"):
            game.begin(0, seed)
        show()
        for action in actions:
            with failures_named(game, "step"):
                reward, status = game.step(0, action)
            total += round(1000 * reward)
            show(f"return {total / 1000:g}{'  over' if status != GOES_ON else ''}")
        if status == GOES_ON:
            raise RuntimeError(f"the actions do not end the episode of seed {seed}")
        values = dict(zip(self.episode_metrics, game.metrics(0).tolist(), strict=True))
        return shown, float(values.get("score", total / 1000))

    def metrics_of_episode(self, info: Mapping[str, Any], truncated: bool) -> tuple[int, ...]:
        """Return the metrics of an episode that was played through Gymnasium's interface."""
        return tuple(int(info[name]) for name in self.episode_metrics)


def make_env(module: str, render_mode: str | None = None, **options: Any) -> GameEnv:
    """Return the game in a module, with these options, behind Gymnasium's interface.

    ConfigurationError names options that are wrong.
    """
    from evo.games.envs import GameEnv

    return GameEnv(_made(module, options), render_mode)


def make_vector_env(
    module: str,
    num_envs: int = 1,
    render_mode: str | None = None,
    autoreset_mode: Any = "NextStep",
    copy: bool = True,
    **options: Any,
) -> GameVectorEnv:
    """Return `num_envs` environments of the game in a module behind Gymnasium's interface for vectors."""
    from evo.games.envs import GameVectorEnv

    environment = _made(module, options)
    return GameVectorEnv(environment, num_envs, render_mode=render_mode, autoreset_mode=autoreset_mode, copy=copy)


def _made(module: str, options: dict[str, Any]) -> GameEnvironment:
    make: Game = import_module(module).make
    name = module.rpartition(".")[2]
    try:
        return make(make.options(id=name, **options))
    except ValidationError as error:
        raise ConfigurationError(f"game {name}: {mistakes_text(make.options, error)}") from None


_checked: set[GameEnvironment] = set()


def play_at_random(environment: GameEnvironment, seed: int) -> float:
    """Return the score of an episode whose actions are drawn at random, from a stream that the seed names."""
    env, total, step, ended = environment.env(), 0.0, 0, False
    _, info = env.reset(seed=seed)
    while not ended:
        action = random_action(environment.definition, environment.actions, info.get("action_mask"), seed, step)
        _, reward, terminated, truncated, info = env.step(action)
        total, step, ended = math.fsum((total, reward)), step + 1, terminated or truncated
    return float(info.get("score", total))
