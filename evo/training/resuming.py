"""Taking up a run that stopped, or beginning another one from its state."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from evo.config import loading
from evo.config.experiment import Experiment, difference
from evo.errors import ConfigurationError
from evo.files.durable import replace_file, resources
from evo.store.provenance import provenance
from evo.store.run_directory import CONFIG
from evo.store.store import Store

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def take_up(experiment: Experiment, directory: Path) -> Store:
    """Return the store of a run; what was asked beside, and changes no result, is kept in its configuration.

    ConfigurationError: the run was begun with other keys that change results.
    """
    store = Store.open(directory)
    try:
        changed = difference(store.identity, experiment.identity())
        if changed:
            raise ConfigurationError("\n".join([f"{directory} was begun with other options:", *changed]))
        file = directory / CONFIG
        if loading.load(file, resolved=True).to_toml() != experiment.to_toml():
            with resources("write", file):
                replace_file(file, experiment.to_toml(provenance()).encode())
        return store
    except BaseException:
        store.close()
        raise


def fork(experiment: Experiment, directory: Path, name: str) -> Store:
    """Return the store of a new run in runs/NAME whose generation 0 is the state that another run has now.

    ConfigurationError: the name is no plain name, is taken, or the experiment cannot take up that state.
    """
    if not PLAIN.fullmatch(name):
        raise ConfigurationError(
            f"--fork: {name!r} is not a plain name for a directory in runs/: letters, digits, '.', '_', '-', at most 64"
        )
    source = Store.read(directory)
    if experiment.algorithm != source.identity.get("algorithm"):
        theirs = source.identity.get("algorithm")
        raise ConfigurationError(f"--fork: the run is of {theirs}, whose state {experiment.algorithm} cannot take up")
    if experiment.policy.model_dump() != source.identity.get("policy"):
        raise ConfigurationError("--fork: another [policy] has other weights than those of the run")
    state = source.load()
    if state and state["weights"].shape[1:] not in ((), (experiment.network().size,)):
        raise ConfigurationError("--fork: another [environment] needs another network than the run's")
    store = Store.create(Path("runs") / name, experiment.to_toml(provenance()), experiment.identity())
    try:
        if state:
            # A champion was crowned on episodes that the new options may have changed: it has to win its crown again.
            forgotten = {"champion": state["champion"][:0], "crowned": np.zeros_like(state["crowned"])}
            # So were steps played that are not yet learnt from: on other boards, perhaps, or by other masks.
            kept = {name: array for name, array in state.items() if not name.startswith("pending_")}
            store.commit(0, {**kept, **forgotten}, {}, {})
            store.flush()
        return store
    except BaseException:
        store.close()
        raise
