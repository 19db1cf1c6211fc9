"""Any registered Gymnasium environment with discrete or continuous actions; observations are arrays, or flattened."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, JsonValue, field_validator, model_validator

from evo import environment
from evo.environments.instances import OPEN, Instance, close, made
from evo.environments.normalisation import normalisation_of
from evo.environments.observations import WrongObservation
from evo.environments.spaces import DRAWN, Spaces, flat, spaces_of, with_array_observations, with_known_actions
from evo.errors import ConfigurationError, MissingPluginError, OptionError, plug_in_advice
from evo.lazy import gymnasium, wrappers
from evo.mistakes import name_of, shown
from evo.options import IN_TRAINING, EnvironmentOptions, added, leaves
from evo.plugins import directory, importing, mistakes, registry
from evo.process import ALONE, is_passed_on
from evo.records import GOES_ON

PREFIX = "gymnasium:"
UNSEEN = 'What a script or notebook registers itself is known to backend = "serial" alone'
LONGEST_RANDOM = 10_000  # steps of an episode of the random player
MAKING = ("wrappers", "kwargs")  # options that may be why an environment cannot be made


class Options(EnvironmentOptions):
    """The [environment] section of a Gymnasium environment."""

    id: str = Field(description='"gymnasium:" and a registered ID, as in "gymnasium:CartPole-v1"')
    max_steps: int = Field(
        0, ge=0, le=1_000_000_000, description="steps after which an episode is truncated; 0 = as registered"
    )

    normalise: int = added(
        0,
        ge=0,
        le=1_000_000,
        description="normalise observations by their mean and standard deviation in so many steps of random play; 0 = "
        "do not",
    )
    stack: int = added(1, ge=1, le=64, description="number of newest observations that are stacked as channels")
    seed_bits: Literal[31, 64] = added(
        31, description="bits of the seeds for reset; NumPy's old generators and many emulators take no more than 32"
    )
    instances: int = added(
        16, ge=1, le=1024, description="environments that a worker keeps open and plays side by side"
    )
    rescale_actions: bool = added(
        False, description="scale continuous actions from -1 to 1 to the bounds of the environment's Box"
    )
    kwargs: dict[str, JsonValue] = added({}, description="further arguments of gymnasium.make, as in {gravity = 9.8}")
    wrappers: list[Annotated[str, Field(pattern=r"^\w+(\.\w+)*:[A-Za-z]\w*$")]] = added(
        [],
        description='wrappers, the innermost first, as in ["minigrid.wrappers:ImgObsWrapper"], from '
        "gymnasium.wrappers or a module that --plugin names",
    )

    @property
    def track(self) -> dict[str, Any]:
        """Return how observations are wrapped and normalised, how many are shown together, and what actions mean."""
        chosen = {"normalise": self.normalise, "wrappers": self.wrappers, "rescale_actions": self.rescale_actions}
        return {"stack": self.stack, **{key: value for key, value in chosen.items() if value}}

    @property
    def meaning(self) -> dict[str, Any]:
        """Return what observations and actions mean; wrappers that change rewards alone do not count."""
        chosen = {"wrappers": [one for one in self.wrappers if not _is_of_rewards(one)]}
        return {**chosen, **{name: getattr(self, name) for name in ("stack", "normalise", "rescale_actions")}}

    @property
    def scored(self) -> dict[str, Any]:
        """Return all other options."""
        return self.model_dump(exclude=IN_TRAINING | {"normalise", "stack", "wrappers", "instances", "rescale_actions"})

    @model_validator(mode="after")
    def _same_view_in_training(self) -> Self:
        others = {
            name
            for changes in self.changes.values()
            for name in changes.keys() & {"kwargs", "normalise", "stack", "wrappers"}
        }
        if self.normalise and others:
            raise ValueError(
                f"training: {', '.join(sorted(others))} cannot be another one where observations are normalised"
            )
        return self

    @field_validator("id")
    @classmethod
    def _plain(cls, value: str) -> str:
        # gymnasium.make("module:Name") imports a module, and no file may cause that.
        name = value.removeprefix(PREFIX)
        if not name or ":" in name:
            raise ValueError(f'"{value}" is not "gymnasium:" and a registered name; name its module with --plugin')
        return value

    @field_validator("kwargs")
    @classmethod
    def _without_modules(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for path, text in leaves(value):  # environments that make others pass them to gymnasium.make
            if isinstance(text, str) and importing.names_module(text):
                raise ValueError(
                    f"{name_of(path)}{': ' * bool(path)}{shown(text)} names a module to import, which no file may; "
                    "name the module with --plugin, and here the ID that it registers"
                )
        return value


def _wrapper(named: str) -> Callable[[Any], Any]:
    """Return the class that "module:Class" names; MissingPluginError: of neither gymnasium.wrappers nor a plug-in."""
    module, _, name = named.partition(":")
    if module != wrappers.__name__ and module not in registry.loaded():
        raise MissingPluginError(f"environment.wrappers: {named} needs its module: {plug_in_advice(module)}")
    try:
        found = getattr(sys.modules[module], name, None)
    except ImportError as error:  # Gymnasium loads a wrapper when it is asked for
        raise ConfigurationError(f"environment.wrappers: {named} {mistakes.exception_text(error)}") from error
    if not (isinstance(found, type) and issubclass(found, gymnasium.Wrapper)):
        raise ConfigurationError(f"environment.wrappers: {module} has no gymnasium.Wrapper of the name {name}")
    return found


def _is_of_rewards(named: str) -> bool:
    """Return whether a wrapper changes rewards alone; one that is not known here may change anything."""
    with suppress(ConfigurationError):
        found: Any = _wrapper(named)
        return issubclass(found, gymnasium.RewardWrapper | wrappers.NormalizeReward | wrappers.TimeLimit)
    return False


def is_registered(identifier: str) -> bool:
    """Return whether an environment is registered: "gymnasium:CartPole-v1", "CartPole-v1" or "CartPole"."""
    name = identifier.removeprefix(PREFIX)
    return name in gymnasium.registry or any(known.rpartition("-v")[0] == name for known in gymnasium.registry)


def _part_property(part: str, name: str) -> Any:
    """Return a property of an environment that is one of its spaces or options."""
    return environment.computed_once(lambda self: getattr(getattr(self, part), name))


@dataclass(frozen=True)
class GymnasiumEnvironment(environment.Environment):
    """A Gymnasium environment with observations of float32."""

    options: Options

    def env(self) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment; ConfigurationError where it is unknown or its spaces do not fit.

        Observations that are no Box are flattened to one, several choices are one of all their combinations, and a Box
        of actions has one dimension.
        """
        by = self.normalisation  # of an environment that is closed again
        env = self._raw()
        return env if by is None else normalised(env, by)

    @environment.computed_once
    def normalisation(self) -> environment.Normalisation | None:
        """How observations are normalised, by moments of episodes with the registered limit of steps alone."""
        if not self.options.normalise:
            return None
        options = self.options.model_copy(update={"max_steps": 0, "training": {}, "training_generations": 0})
        known = _normalisations.get(options)
        if known is None or known[0] is not self._registered:
            known = _normalisations[options] = self._registered, _normalisation_of(options)
        return known[1]

    @property
    def _registered(self) -> Any:
        """What is registered now, which may be another one later."""
        return gymnasium.registry.get(self.options.id.removeprefix(PREFIX))

    def _raw(self, **drawn: str) -> gymnasium.Env[Any, Any]:
        """Return a fresh environment whose observations are not normalised."""
        name = self.options.id.removeprefix(PREFIX)
        arguments: dict[str, Any] = {**deepcopy(self.options.kwargs), **drawn}  # an environment may change its own
        wrappers = [_wrapper(named) for named in self.options.wrappers]
        try:
            env = gymnasium.make(name, max_episode_steps=self.options.max_steps or None, **arguments)
            for one in wrappers:
                env = one(env)
        except gymnasium.error.Error as error:
            text, advice = str(error).rstrip("."), f"{plug_in_advice('MODULE')} for the module that registers it"
            if not is_registered(name):
                text += f" Or {advice}" if text.endswith("?") else f"; {advice}. {UNSEEN}"
            raise ConfigurationError(f"environment.id: {text}") from error
        except BaseException as error:
            if is_passed_on(error) or isinstance(error, OptionError):  # of a game of ours
                raise
            key, where = next((key for key in MAKING if getattr(self.options, key)), "id"), mistakes.place_of(error)
            raise ConfigurationError(
                f"environment.{key}: making {name} {mistakes.exception_text(error)}{where}"
            ) from error
        try:
            shown = with_array_observations(env, name, self.options.stack, scaled=not self.options.normalise)
            return with_known_actions(shown, name, self.options.rescale_actions)
        except ConfigurationError:
            close(env)
            raise

    @cached_property
    @directory.kept()
    def _spaces(self) -> Spaces:
        known = _known.get(self.options)
        if known is None or known[0] is not self._registered:
            env = made(self.env)
            known = _known[self.options] = self._registered, spaces_of(env, self.options.stack)
            close(env)
        return known[1]

    shape, actions = _part_property("_spaces", "shape"), _part_property("_spaces", "actions")
    continuous, action_bounds = _part_property("_spaces", "continuous"), _part_property("_spaces", "action_bounds")
    recorded_as, notices = _part_property("_spaces", "pixels"), _part_property("_spaces", "notices")
    visible = _part_property("_spaces", "drawn")
    seed_bits, instances = _part_property("options", "seed_bits"), _part_property("options", "instances")

    @environment.computed_once
    def made_by(self) -> Any:
        """Return what makes it, and the arguments that are registered; None: it is not registered."""
        with suppress(gymnasium.error.Error):
            spec = gymnasium.spec(self.options.id.removeprefix(PREFIX))
            return spec.entry_point, [spec.kwargs, spec.max_episode_steps]
        return None

    @environment.computed_once
    def entries(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the arrays of a Dict or Tuple."""
        return {name: entry.shape for name, entry in self._spaces.entries.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options: all else is made of them."""
        return {"options": self.options}

    def array_of(self, observation: Any) -> Any:
        """Return a Dict, Tuple or whole numbers, or a batch of them, as `env` shows them; other observations as is."""
        entries, pixels = self._spaces.entries, self._spaces.pixels
        whole = isinstance(observation, np.ndarray) and observation.dtype.kind in "iu"
        if whole and observation.shape[-len(self.shape) :] == self.shape:  # `env` shows pixels as fractions
            seen = observation if pixels is None else pixels.observe(observation)
            return seen if self.normalisation is None else self.normalisation.of(seen)
        nested = dict if any(isinstance(entry.path[0], str) for entry in entries.values()) else Mapping | tuple
        if not entries or not isinstance(observation, nested):
            return observation
        if self.options.stack > 1:
            raise ValueError(
                f"with environment.stack = {self.options.stack} a network sees several observations: pass the arrays "
                "of the run's environment"
            )
        try:
            seen = flat(observation, entries)
        except WrongObservation as error:
            raise ValueError("; ".join(error.args)) from None
        return seen if self.normalisation is None else self.normalisation.of(seen)

    @environment.computed_once
    def baselines(self) -> Mapping[str, Callable[[int], float]]:
        """Return the random player, whose score is NaN where an episode has no end."""
        return {environment.RANDOM: self._random_return}

    def _random_return(self, seed: int) -> float:
        with ALONE, OPEN.here.used() as instances:
            (one,) = instances.of(self, 1, False)
            one.reset(seed >> 64 - self.seed_bits)
            one.seed_samples(seed >> 64 - self.seed_bits)
            while one.step(one.sample()) == GOES_ON:
                if one.steps == LONGEST_RANDOM:
                    return math.nan
            return one.total

    @directory.kept()
    def replayed(
        self, seed: int, actions: Sequence[Any], *, pictures: bool = True
    ) -> tuple[list[environment.Shown], float]:
        """Play the actions of an episode again; return a picture of every position as it is drawn, and the return.

        The pictures of a very long episode are smaller, so that all of them fit into 750 MB before they are compressed.
        ConfigurationError where it cannot draw.
        """
        from evo.games.pictures import Picture, reduced, side_of

        if not pictures or not self.visible:
            return [], math.nan
        shown: list[environment.Shown] = []
        make = partial(self._raw, render_mode=DRAWN)
        with ALONE, closing(Instance(make, self.shape, self.actions, self.continuous)) as one:
            one.reset(seed >> 64 - self.seed_bits)
            first = one.drawn()
            side = side_of(first, 1 + len(actions))
            shown.append(Picture(reduced(first, side), "step 0"))
            for action in actions:
                one.step(np.asarray(action, np.float32) if self.continuous else action)
                shown.append(Picture(reduced(one.drawn(), side), f"step {one.steps}  return {one.total:g}"))
            return shown, one.total


_known: dict[Options, tuple[Any, Spaces]] = {}  # with what was registered then
_normalisations: dict[Options, tuple[Any, environment.Normalisation]] = {}  # also


@directory.kept()
def _normalisation_of(options: Options) -> environment.Normalisation:
    try:
        return normalisation_of(GymnasiumEnvironment(options)._raw, options.normalise)
    except ConfigurationError as error:
        raise ConfigurationError(f"environment.normalise: random play: {error}") from error


def normalised(env: gymnasium.Env[Any, Any], by: environment.Normalisation) -> gymnasium.Env[Any, Any]:
    """Return an environment that shows normalised observations, as float32."""
    space = gymnasium.spaces.Box(-by.limit, by.limit, by.mean.shape, np.float32)
    return wrappers.TransformObservation(env, by.of, space)


def make(options: Options) -> GymnasiumEnvironment:
    """Return the environment of these options."""
    return GymnasiumEnvironment(options)
