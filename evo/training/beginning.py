"""Builds the algorithm of an experiment, and begins its run, resumes one that stopped, or forks one from a state."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.config.environments import curriculum_of, environment_of
from evo.config.experiment import Experiment, difference
from evo.errors import ConfigurationError, notice
from evo.files.durable import replace_file, resources
from evo.files.layout import CONFIG
from evo.plugins.registry import find, loaded
from evo.setup import Setup
from evo.store.champion import network_layers
from evo.store.provenance import provenance
from evo.store.run_directory import in_free_directory, refuse_existing
from evo.store.store import Store
from evo.training.init_from import keep, start_of
from evo.training.validation import Validated
from evo.workers import devices
from evo.workers.hardware import cores

if TYPE_CHECKING:
    from evo.environment import Environment

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def make_algorithm(experiment: Experiment, environment: Environment | None = None) -> Validated:
    """Return the algorithm that [run] names, with what validates it.

    ConfigurationError, DataError: as `start_of`.
    """
    environment, start = environment or environment_of(experiment.environment), start_of(experiment)
    curriculum = curriculum_of(experiment.environment, environment)
    environment = curriculum.environment(0)
    setup = Setup(
        seed=experiment.run.seed,
        network=experiment.network(),
        environment=environment,
        candidates_per_task=experiment.workers.candidates_per_task
        or experiment.options.candidates_per_task(experiment.network().flops),
        learner=experiment.learner.with_default_threads(min(cores(), experiment.workers.processes))
        if experiment.learns
        else None,
        start=None if start is None else start.weights,
        curriculum=curriculum if curriculum.training else None,
    )
    module = find("algorithms", experiment.algorithm)
    return Validated(
        module.make(experiment.options, setup),
        experiment.validation,
        experiment.run.seed,
        setup.start,
        setup.curriculum,
        plugin=module.__name__ if module.__name__ in loaded() else "",
    )


def begin(experiment: Experiment, directory: Path | None) -> Store:
    """Return the store of a new run; None: in the next free directory of runs/.

    ConfigurationError: something is there already, the champion that it starts from does not fit, or TensorFlow is
    missing.
    """
    if experiment.learns_in_tensorflow:
        devices.require_tensorflow(devices.LEARNING)
        place = experiment.learner_devices
        if place is not None and not place.processes:  # this process learns; what is installed may be broken
            devices.import_tensorflow(on_gpu=False, wanted=devices.LEARNING)
    elif experiment.policy.player == "tensorflow":
        devices.require_tensorflow()

    def make(place: Path) -> Store:
        identity = experiment.identity()
        start_of(experiment)  # before anything is written, for it may not fit
        store = Store.create(place, experiment.to_toml(provenance()), identity)
        try:
            keep(experiment, store)
        except BaseException as error:
            store.close_after(error)
            raise
        return store

    if directory is not None:
        return make(directory)
    return in_free_directory(experiment.path, experiment.algorithm, experiment.run.seed, make)


def open_or_begin(experiment: Experiment, directory: str | Path | None) -> Store:
    """Return the store of the run in a directory, or of a new run where there is none."""
    place = None if directory is None else Path(directory)
    if place is not None and (place / CONFIG).exists():
        return take_up(experiment, place)
    return begin(experiment, place)


def take_up(experiment: Experiment, directory: Path) -> Store:
    """Return the store of a run that stopped; options that change no result may differ, and are kept from now on.

    Where fewer generations are asked for than are done, that number is not kept, as there is nothing left to train.
    ConfigurationError: the run was begun with other keys that change results.
    """
    store = Store.open(directory)
    try:
        changed = difference(store.identity, experiment.identity())
        if changed:
            raise ConfigurationError("\n".join([f"{directory} was begun with other options:", *changed]))
        file = directory / CONFIG
        before = Experiment.load(file, resolved=True)
        kept = (
            _with_generations_of(before, experiment) if experiment.generations < store.next_generation else experiment
        )
        if before.to_toml() != kept.to_toml():
            with resources("write", file):
                replace_file(file, kept.to_toml(provenance()).encode())
        keep(experiment, store)
        return store
    except BaseException:
        store.close()
        raise


def _with_generations_of(before: Experiment, experiment: Experiment) -> Experiment:
    """Return an experiment with the total of another one of the same algorithm."""
    options = experiment.options.model_copy(update={"generations": before.options.generations})
    run = experiment.run.model_copy(update={"generations": before.run.generations})
    return replace(experiment, run=run, sections={**experiment.sections, experiment.algorithm: options})


def fork(experiment: Experiment, directory: Path, name: str) -> tuple[Store, Validated]:
    """Return the store of a new run in runs/NAME whose generation 0 is the state of another run, and its algorithm.

    ConfigurationError: the name is no plain name, is taken, or the algorithm cannot continue from that state.
    """
    if not PLAIN.fullmatch(name):
        raise ConfigurationError(
            f"--fork: {name!r} is not a plain name for a directory in runs/: letters, digits, '.', '_', '-', at most 64"
        )
    place = Path("runs") / name
    refuse_existing(place, "--fork")
    source = Store.read(directory)
    if experiment.policy.model_dump() != source.identity.get("policy"):
        raise ConfigurationError("--fork: another [policy] has other weights than those of the run")
    before = Experiment.load(directory / CONFIG, resolved=True)
    if network_layers(before.network()) != network_layers(experiment.network()):
        raise ConfigurationError("--fork: another [environment] or algorithm needs another network than the run's")
    if before.environment.league != experiment.environment.league:
        notice("--fork: the network sees other observations than before, or may do other things")
    state, algorithm = source.load(), make_algorithm(experiment, environment_of(experiment.environment))
    try:
        if state:
            algorithm.fork(state)
        store = Store.create(place, experiment.to_toml(provenance()), experiment.identity())
    except BaseException:
        algorithm.close()
        raise
    try:
        keep(experiment, store)
        if state:
            store.commit(0, algorithm.state(), {}, {})
            store.flush()
        return store, algorithm
    except BaseException:
        algorithm.close()
        store.close()
        raise
