"""Refuses to go on with a run that was begun with other options or other code, and says in what they differ."""

from __future__ import annotations

import numpy as np

from evo.config.differences import difference
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError
from evo.files.layout import START
from evo.plugins import code, registry
from evo.store.sandbox import read_champion
from evo.store.store import Store


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
