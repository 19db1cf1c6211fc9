"""A game that is one file of plain Python, or a folder: what its author makes of it, and the environment it gives."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

from evo.environment import RANDOM, Environment, Shown, computed_once
from evo.errors import OptionError
from evo.games.checking import check_game, drawn, failures_named
from evo.games.declaration import Declaration, GameOptions
from evo.games.plain import PlainGame, random_action
from evo.games.seats import played_in_turn
from evo.mistakes import mistakes_text
from evo.options import OF_TRAINER
from evo.plugins import mistakes
from evo.records import GOES_ON
from evo.toml import plain

STEP_SECONDS = 2e-5  # of one environment behind Gymnasium's interface


@dataclass(frozen=True, kw_only=True, eq=False)
class Game(Declaration):
    """A game as its author declares it, with the fields of `Declaration`; called, the environment of options."""

    plugs_into: ClassVar[str] = "environments"
    options_base: ClassVar[tuple[type, str]] = GameOptions, "evo.games.GameOptions"

    def __call__(self, options: GameOptions) -> GameEnvironment:
        """Return the environment that `options` describe; one that is played in turn, where players are several."""
        return GameEnvironment(self if self.players == 1 else played_in_turn(self), options)

    def __reduce__(self) -> Any:
        if self.author is not None:
            return played_in_turn, (self.author,)
        for module in (self.module, self.options.__module__):  # what is called `make` there, not lambdas
            if getattr(sys.modules[module], "make", None) is self:
                return game_in, (module,)
        raise TypeError(f"game {self.module}: only a game that is called `make` in its module is pickled")


DECLARED = (  # what an author may give as a function of options
    *("shape", "actions", "continuous", "action_names", "observation_names", "codes", "symmetry"),
    *("episode_metrics", "score_bounds"),
)


def _declared(name: str) -> Any:
    """Return a property of an environment that is what the author has declared, for its options."""
    return computed_once(lambda self: self.definition.of(getattr(self.definition, name), self.options))


@dataclass(frozen=True)
class GameEnvironment(Environment):
    """A game with its options."""

    dear: ClassVar[bool] = False
    definition: Game
    options: Any  # a GameOptions of the kind that the game declares

    shape, actions, continuous = _declared("shape"), _declared("actions"), _declared("continuous")
    action_names, observation_names = _declared("action_names"), _declared("observation_names")
    codes, symmetry, players = _declared("codes"), _declared("symmetry"), _declared("players")
    episode_metrics, score_bounds = _declared("episode_metrics"), _declared("score_bounds")

    @computed_once
    def action_bounds(self) -> tuple[float, float]:
        """Return what continuous actions are clipped to."""
        return self.definition.action_low, self.definition.action_high

    def __post_init__(self) -> None:
        """Call the author's functions of options here, where a mistake in them is one in the experiment."""
        for name in DECLARED:
            getattr(self, name)
        self.definition.opponents_of(self.options)

    @computed_once
    def sources(self) -> str:
        """Return a hash of the files and data of a game that is not ours, less `render`, which changes no result."""
        from evo.games.compiling import sources_of

        ours = self.definition.module.partition(".")[0] in mistakes.OURS
        return "" if ours else sources_of(self.definition, self.options)

    @computed_once
    def baselines(self) -> Mapping[str, Callable[[int], float]]:
        """Return the game's own players, or the random one."""
        if self.definition.baselines is not None:
            return self.definition.baselines(self.options)
        return {RANDOM: partial(play_at_random, self)}

    @computed_once
    def opponents(self) -> Any:
        """Return the options of networks that play the other seats; None where baselines do."""
        return self.options.opponents if self.options.opponents.networks else None

    @computed_once
    def baseline_seconds(self) -> Mapping[str, float]:
        """Return what the players take; the random one, where every episode lasts until it is truncated."""
        if self.definition.baseline_seconds is not None:
            return self.definition.baseline_seconds(self.options)
        return {RANDOM: STEP_SECONDS * self.options.max_steps}

    @computed_once
    def game(self) -> Any:
        """Return the compiled game."""
        from evo.games.compiling import compiled_game

        return compiled_game(self.definition, self.options)

    def plain(self, count: int = 1) -> PlainGame:
        """Return `count` environments in plain Python, the reference of the compiled ones."""
        return PlainGame(self.definition, self.options, count)

    def check(self) -> None:
        """Play a few episodes in plain Python, once a process; ConfigurationError says what breaks the contract."""
        if self not in _checked:
            check_game(self.plain)
            _checked.add(self)

    def env(self, render_mode: str | None = None) -> Any:
        """Return the compiled game behind Gymnasium's interface."""
        from evo.games.envs import GameEnv

        return GameEnv(self, render_mode)

    def vector_env(self, num_envs: int, **how: Any) -> Any:
        """Return `num_envs` environments behind Gymnasium's interface for vectors; `how` is as there."""
        from evo.games.envs import GameVectorEnv

        return GameVectorEnv(self, num_envs, **how)

    @computed_once
    def visible(self) -> bool:
        """Return whether the author draws pictures."""
        return self.definition.render is not None or self.definition.shown is not None

    def replayed(self, seed: int, actions: Sequence[Any], *, pictures: bool = True) -> tuple[list[Shown], float]:
        """Play the actions again in plain Python, where every index is checked; no positions where none are drawn.

        ConfigurationError names the function that fails; RuntimeError: the actions do not end the episode.
        """
        game, total, status = self.plain(), 0, GOES_ON
        positions: list[Shown] = []

        def show(caption: str = "") -> None:
            if self.visible and pictures:
                positions.append(drawn(game, 0, caption, positions))

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
        return positions, float(values.get("score", total / 1000))

    def metrics_of_episode(self, info: Mapping[str, Any], truncated: bool) -> tuple[int, ...]:
        """Return the metrics of an episode that was played through Gymnasium's interface."""
        return tuple(int(info[name]) for name in self.episode_metrics)


def game_in(module: str) -> Game:
    """Return the game that a module calls `make`."""
    make: Game = import_module(module).make
    return make


def make_env(module: str, /, render_mode: str | None = None, **options: Any) -> Any:
    """Return the game in a module, with these options, behind Gymnasium's interface; OptionError: one is wrong."""
    return environment_with(module, options).env(render_mode)


def make_vector_env(
    module: str,
    /,
    num_envs: int = 1,
    render_mode: str | None = None,
    autoreset_mode: Any = "NextStep",
    copy: bool = True,
    **options: Any,
) -> Any:
    """Return `num_envs` environments of the game in a module behind Gymnasium's interface for vectors."""
    how = {"render_mode": render_mode, "autoreset_mode": autoreset_mode, "copy": copy}
    return environment_with(module, options).vector_env(num_envs, **how)


def __getattr__(name: str) -> Any:
    """Return a function for the game in a module, by "make_env MODULE", as it is registered with Gymnasium."""
    function, _, module = name.partition(" ")
    if not module or function not in ("make_env", "make_vector_env"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(globals()[function], module)


def environment_with(module: str, options: Mapping[str, Any]) -> GameEnvironment:
    """Return the environment of the game in a module with these options; OptionError names those that are wrong."""
    make, name = game_in(module), module.rpartition(".")[2]
    values = {"id": name, **plain(options)}
    if theirs := {key for key in values.keys() & OF_TRAINER if values[key] != name}:  # an id may name this game
        raise OptionError(f"game {name}: {', '.join(sorted(theirs))}: of experiments alone, not of one environment")
    if wrong := mistakes_text(make.options, values, IN_GYMNASIUM):
        raise OptionError(f"game {name}: {wrong}")
    return make(make.options.model_validate(values, context=IN_GYMNASIUM))


IN_GYMNASIUM = {"truncated_outside": True}  # options of episodes without an end are fine: a TimeLimit may end them
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
