"""What training refuses: runs of other options or other code, and champions of another view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evo.config.experiment import Experiment
from evo.config.identity import difference
from evo.environment import Environment
from evo.errors import ConfigurationError, DataError, counted
from evo.files.layout import START
from evo.options import EnvironmentOptions
from evo.plugins import code, registry
from evo.store.sandbox import read_champion
from evo.store.store import Store
from evo.toml import value_text

MEANING = {"actions": "its actions are", "observation": "it sees the observation"}  # of a network's outputs and inputs


def refuse_another(experiment: Experiment, store: Store) -> None:
    """Raise ConfigurationError where a run was begun with other keys that change results than an experiment has."""
    now, start = experiment.identity(), list[str]()
    problem = experiment.make_environment().problem if code.GAME in now else None
    if problem is not None and now["init_from"] != store.identity.get("init_from"):
        file = store.directory / START
        first = read_champion(file).weights if file.exists() else np.zeros_like(problem.first)
        if store.identity.get(code.GAME) == {"sources": problem.digest(first)}:  # with that start all is the same
            now |= {key: store.identity[key] for key in (code.GAME, "init_from")}
            start = ["start: its numbers differ from those that the run began with"]
    changed = start + difference(store.identity, now, experiment.environment)
    if changed:
        other = code.changes(store.identity, now)
        elsewhere = "resume it with --fork NAME"
        of_script = any(code.OF_SCRIPT in line for line in other)
        if of_script or registry.HERE in str(experiment.environment.id).split(":"):  # none that a command has
            elsewhere = "choose another run_dir"
        restored = "restore that code" if other else "start from those" if start else ""
        advice = [f"{restored}, or go on in another run: {elsewhere}"] if restored else []
        what = "code" if other == changed else "options"
        raise ConfigurationError(f"{store.directory} was begun with other {what}:", *changed, *advice)


def refuse_another_view(environment: object, ours: EnvironmentOptions) -> None:
    """Raise ConfigurationError where a champion of this [environment] saw or did something else; it names the options.

    Where that environment cannot be made here, only its options count.
    """
    if not isinstance(environment, Mapping):
        return
    here = ours.model_dump()
    for name, what in MEANING.items():
        theirs, own = environment.get(name), here.get(name)
        if isinstance(theirs, str) and isinstance(own, str) and theirs != own:
            raise ConfigurationError(f"{what} {theirs[:20]!r}, and here {own!r}")
    options = _options_of(environment)
    if options is None:
        return
    if type(options) is type(ours):
        _refuse_other_options(options.meaning, ours.meaning)
    there, now = (_actions_of(one) for one in (options, ours))
    if there and now and there != now:
        raise ConfigurationError(f"its actions are {there}, and here {now}; they must be the same")


def _options_of(environment: Mapping[str, Any]) -> EnvironmentOptions | None:
    """Return the options of a champion's description, less those of training; None: they are not known here."""
    known, name = registry.names("environments"), registry.module_of(str(environment.get("id")))
    if name not in known:
        return None
    model: type[EnvironmentOptions] = registry.find("environments", name).Options
    values = {key: value for key, value in environment.items() if value is not None and not key.startswith("training")}
    try:
        return model.model_validate(values)
    except ValueError:  # of another version
        return None


def _refuse_other_options(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    differing = [name for name in ours if theirs[name] != ours[name]]
    if not differing:
        return
    had = " and ".join(f"environment.{name} = {value_text(theirs[name])}" for name in differing)
    here = " and ".join(value_text(ours[name]) for name in differing)
    are, those = ("they are", "those") if differing[1:] else ("it is", "that")
    raise ConfigurationError(f"it was trained with {had}, and here {are} {here}; set {those}")


def _actions_of(options: EnvironmentOptions) -> str:
    """Return how many actions there are, of which kind; empty: there are none, or the environment cannot be made."""
    try:
        environment: Environment = registry.environment_of(options)
        if environment.problem is not None:
            return ""
        return counted(environment.actions, "number" if environment.continuous else "choice")
    except (ConfigurationError, DataError):
        return ""
