"""The environments of an experiment, and the plug-ins that a stored file needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evo.environment import Curriculum, Environment
from evo.errors import ConfigurationError, DataError, MissingPluginError, plug_in_advice
from evo.options import EnvironmentOptions
from evo.plugins import directory, registry
from evo.plugins.mistakes import check_environment

PROBLEM = re.compile(r"problem:\w{1,100}(:\w{1,100})?", re.ASCII)
PLUGIN = re.compile(r"\w{1,100}", re.ASCII)  # the last name of a module


@directory.kept()
def environment_of(options: EnvironmentOptions) -> Environment:
    """Return the environment of these options; ConfigurationError where a plug-in's breaks the protocol."""
    environment = registry.environment_of(options)
    name = registry.find("environments", registry.module_of(options.id)).__name__
    if name in registry.loaded():
        check_environment(environment, name)
    return environment


def curriculum_of(options: EnvironmentOptions, environment: Environment) -> Curriculum:
    """Return where training takes place, and validation in `environment`; ConfigurationError: networks do not fit."""
    if environment.opponents is not None:
        if "population" in environment.opponents.networks:
            wrong = "the population plays in training alone, as in [environment.training.opponents]"
            raise ConfigurationError(f"environment.opponents.players: {wrong}")
        if not environment.opponents.baselines:
            wrong = "the hall of fame plays in validation alone; name baselines too, which play in validation and test"
            raise ConfigurationError(f"environment.opponents.players: {wrong}")
    training = tuple(environment_of(one) for one in options.in_training())
    for one in training:
        if one.opponents is not None and one.opponents.draw == "prioritised" and environment.opponents is None:
            wrong = "prioritised needs hall among the players of [environment.opponents], by whose results it draws"
            raise ConfigurationError(f"environment.training.opponents.draw: {wrong}")
        for name in ("shape", "actions", "continuous", "episode_metrics"):
            if getattr(one, name) != getattr(environment, name):
                what = f"{getattr(one, name)} in training, {getattr(environment, name)} in validation and test"
                advice = f"; {options.fixed_shape_hint}" if name == "shape" and options.fixed_shape_hint else ""
                raise ConfigurationError(f"environment.training: the environment's {name} would be {what}{advice}")
    return Curriculum(environment, training, options.training_generations)


@contextmanager
def stored() -> Iterator[None]:
    """Report mistakes in a file of a run as DataError, but a missing plug-in as one of the command line."""
    try:
        yield
    except MissingPluginError:
        raise
    except ConfigurationError as error:
        raise DataError(*error.args) from error


def require_plug_ins(who: str, algorithm: object, identifier: object) -> None:
    """Raise MissingPluginError where `who` needs an algorithm or an environment that no loaded plug-in has."""
    from evo.environments.gymnasium import PREFIX, is_registered

    for folder, name in (("algorithms", algorithm), ("environments", identifier)):
        if not isinstance(name, str):
            continue
        if folder == "environments" and PROBLEM.fullmatch(name):
            registry.problems_in(name.split(":")[1])
        registered = name.startswith(PREFIX) and ":" not in name.removeprefix(PREFIX)
        if not registered and not PLUGIN.fullmatch(name):
            continue  # no plug-in can have such a name
        known = registry.module_of(name) in registry.names(folder)
        if not known or (registered and not is_registered(name)):
            how = "--plugin MODULE" if registered else f"--plugin {name}, or package.{name}"
            which = file_here(name) or f"add the plug-in that has it: {how}"
            raise MissingPluginError(f"{who} needs {name}, which is not one of the {folder} here; {which}")


def file_here(name: str) -> str:
    """Return how to load the plug-in of this name, if it is in the current directory; else nothing."""
    there = name.isidentifier() and f"{name}.py" in map(str, Path().glob("*.py"))
    return f"{name}.py is here: {plug_in_advice(name)}" if there else ""
