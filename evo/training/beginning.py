"""Builds the algorithm of an experiment, and begins its run, resumes one that stopped, or forks one from a state.

A run that starts from a champion (`run.init_from`) keeps a copy of its file, in case the source moves or goes on.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.config.experiment import Experiment
from evo.config.identity import CONTENT, by_copies, copies_in, opponents_named
from evo.environment import Environment, per_task
from evo.errors import ConfigurationError, DataError, counted, notice, path_of
from evo.files.arrays import first_run
from evo.files.durable import read_file, replace_file, resources, sync_directory
from evo.files.layout import CHAMPION, CONFIG, FORKED_FROM, LARGEST_CHAMPION, START, near
from evo.networks.likeness import refuse_unlike
from evo.networks.model_files import arrays_of
from evo.networks.network import Network
from evo.plugins import registry
from evo.plugins.mistakes import mistake
from evo.records import Arrays
from evo.rollouts.action_rules import RULES, fits
from evo.store.champion import Champion, Layers, network_layers, split_layers
from evo.store.policy import algorithm_of, setup_of
from evo.store.run_directory import in_free_directory, provenance, refuse_existing
from evo.store.sandbox import read_champion
from evo.store.store import Store
from evo.training.refusals import refuse_another, refuse_another_view
from evo.training.validation import EPISODES_PER_TASK, Validated
from evo.workers import devices

SHOWN = 4  # differing arrays that a message names, at most
SIGMAS = {"sigma", "sigmas", "log_sigma", "log_sigmas"}  # arrays of a state, which a run goes on with
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def make_algorithm(experiment: Experiment, environment: Environment | None = None) -> Validated:
    """Return the algorithm that `run.algorithm` names, with what validates its finalists, for `AskTell`.

    `environment` stands for the experiment's own. ConfigurationError: the champion that `run.init_from` names does not
    fit, or a plug-in makes no algorithm. DataError: that champion is damaged.
    """
    require_experiment(experiment)
    begun = experiment.path.name == CONFIG
    start = start_of(experiment, begun=begun)
    setup = setup_of(experiment, environment, None if start is None else start.weights)
    module = registry.find("algorithms", experiment.algorithm)
    plugin = module.__name__ if module.__name__ in registry.loaded() else ""
    algorithm = algorithm_of(experiment, setup)
    if plugin and not (
        isinstance(algorithm.notices, list | tuple) and all(isinstance(one, str) for one in algorithm.notices)
    ):
        wrong = f"is {algorithm.notices!r:.60}; it must be a tuple of lines"
        raise mistake(plugin, f"{type(algorithm).__name__}.notices", wrong)
    return Validated(
        algorithm,
        experiment.validation,
        experiment.run.seed,
        None if start is None else start.weights,
        setup.curriculum,
        plugin=plugin,
        size=setup.network.size,
        rules=[kind for kind in RULES if fits(kind, setup.environment, setup.network)],
        per_task=per_task(setup.environment, experiment.validation.episodes, EPISODES_PER_TASK),
        of_files=partial(opponents_in_files, experiment, begun=begun),
        calls=setup.environment.problem is not None,
    )


def require_experiment(value: object) -> None:
    """Raise ConfigurationError unless an argument is an experiment."""
    if not isinstance(value, Experiment):
        raise ConfigurationError("experiment: must be what Experiment.load(FILE) or Experiment.build(...) returns")


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
    elif experiment.inference == "tensorflow":
        devices.require_tensorflow()

    def make(place: Path) -> Store:
        identity = experiment.identity()
        start_of(experiment)  # before anything is written, for it may not fit
        opponents_in_files(experiment)
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
    place = None if directory is None else path_of("run_dir", directory)
    if place is not None:
        with resources("read", place):
            there = (place / CONFIG).exists()
        if there:
            return take_up(experiment, place)
    return begin(experiment, place)


def take_up(experiment: Experiment, directory: Path) -> Store:
    """Return the store of a run that stopped; options that change no result may differ, and are kept from now on.

    Where fewer generations are asked for than are done, that number is not kept, as there is nothing left to train.
    ConfigurationError: the run was begun with other keys that change results.
    """
    store = Store.open(directory)
    try:
        refuse_another(experiment, store)
        file = directory / CONFIG
        before = Experiment.load(file, resolved=True, hosts="kept")
        kept = experiment
        if experiment.generations < store.next_generation:
            options = experiment.options.model_copy(update={"generations": before.options.generations})
            run = experiment.run.model_copy(update={"generations": before.run.generations})
            kept = replace(experiment, run=run, sections={**experiment.sections, experiment.algorithm: options})
        if before.to_toml() != kept.to_toml():
            with resources("write", file):
                replace_file(file, kept.to_toml(provenance()).encode())
        keep(experiment, store)
        return store
    except BaseException:
        store.close()
        raise


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
    before = Experiment.load(directory / CONFIG, resolved=True, hosts="kept")
    if network_layers(before.network()) != network_layers(experiment.network()):
        raise ConfigurationError("--fork: another [environment] or algorithm needs another network than the run's")
    if before.environment.track != experiment.environment.track:
        notice("--fork: the network's observations or actions differ from those before")
    if (state := source.load()) and experiment.run.starts > 1 and not experiment.learns:
        raise ConfigurationError("--fork: a fork is one search: add --set run.starts=1 --set run.start_generations=0")
    algorithm = make_algorithm(experiment, experiment.make_environment())
    if unused := _initial_options(before, experiment, state):
        notice(f"--fork: {', '.join(unused)}: no effect, as the run goes on with the values in its state")
    with ExitStack() as undo:
        undo.callback(algorithm.close)
        if state:
            algorithm.fork(state)
        origin = {FORKED_FROM: {"run": first_run(source.identity), "state": source.state_hash}} if state else {}
        store = Store.create(place, experiment.to_toml(provenance()), {**experiment.identity(), **origin})
        undo.callback(store.close)
        keep(experiment, store)
        if state:
            store.commit(0, algorithm.state(), {}, {})
            store.flush()
        undo.pop_all()
    return store, algorithm


def _initial_options(before: Experiment, now: Experiment, state: Arrays) -> list[str]:
    """Return the changed options that a fork does not look at: how networks, and the sizes of noise, begin."""
    known = SIGMAS & state.keys() and not getattr(now.options, "restart_after", 0)
    sigmas = [getattr(one.options, "sigma", None) for one in (before, now)]
    changed = known and before.algorithm == now.algorithm and sigmas[0] != sigmas[1]
    started = ["run.init_from"] if now.run.init_from not in ("", before.run.init_from) else []
    return [f"{now.algorithm}.sigma"] * bool(changed) + started


@dataclass(frozen=True)
class Start:
    """A champion that becomes the first network of a run."""

    weights: NDArray[np.float32]  # [P] of this run's network
    fitness: float | None  # what its own run says that it was
    dropped: int  # of the outputs of another program's model


def start_of(experiment: Experiment, *, begun: bool = False) -> Start | None:
    """Return the champion that a run starts from, or None.

    ConfigurationError: the champion is of another network, chooses among other actions, or sees the environment in
    another way. DataError: it is none. A run that has `begun` goes on, whatever the network computes.
    """
    source = experiment.run.init_from
    if not source:
        return None
    champion = _read(experiment, "run.init_from", Path(source), models=True)
    network, of_keras = experiment.network(), "environment" not in champion.about
    names, described = [part.name for part in network.parts], not champion.layers[0][0].startswith("layers/")
    if of_keras and described and names != sorted(names):  # as a .keras file joins them
        raise ConfigurationError(
            f"run.init_from: {source}: the entries of the environment are {', '.join(names)}; they must be in "
            "alphabetical order"
        )
    try:
        if not described:  # a .weights.h5 file
            arrays = arrays_of(network, split_layers(champion.weights, champion.layers))
            layers = tuple((name, array.shape) for name, array in arrays.items())
            champion = Champion(np.concatenate([array.ravel() for array in arrays.values()]), layers, {})
        weights = _fitted(experiment, network, champion, begun)
    except ConfigurationError as error:
        raise ConfigurationError(f"run.init_from: {source}: {error}") from error
    if not np.isfinite(weights).all():
        raise ConfigurationError(f"run.init_from: {source}: its weights are not finite")
    outputs = champion.layers[-1][1][-1]
    if of_keras and outputs < network.actions:  # the scores of the other actions would be 0
        raise ConfigurationError(
            f"run.init_from: {source}: it has {outputs} outputs, and there are {network.actions} actions"
        )
    fitness = champion.about.get("fitness")
    return Start(
        weights,
        float(fitness) if isinstance(fitness, int | float) else None,
        max(0, outputs - network.outputs) if of_keras else 0,
    )


def opponents_in_files(experiment: Experiment, *, begun: bool = False) -> NDArray[np.float32]:
    """Return the networks of `opponents.files`, from the copies where the experiment is a run's.  # [F, P]

    ConfigurationError: one is missing, or of another network, as in `start_of`. DataError: one is none.
    """
    network, found = experiment.network(), list[NDArray[np.float32]]()
    for name, option in opponents_named(experiment.environment).items():
        champion = _read(experiment, option, experiment.copies.get(name, Path(name)))
        try:
            found.append(_fitted(experiment, network, champion, begun))
        except ConfigurationError as error:
            raise ConfigurationError(f"{option}: {name}: {error}") from error
    return np.array(found, np.float32).reshape(-1, network.size)


def _fitted(experiment: Experiment, network: Network, champion: Champion, begun: bool) -> NDArray[np.float32]:
    """Return a champion's weights as `fit`; ConfigurationError also where its file says that it computes otherwise.

    Or that it sees or does something else.
    """
    if not begun:
        refuse_another_view(champion.about.get("environment"), experiment.environment)
    weights, policy = fit(champion.weights, champion.layers, network), champion.about.get("policy")
    if policy is not None and not begun:
        learning, model = experiment.algorithm if experiment.learns else "", "environment" not in champion.about
        refuse_unlike(policy, network, learning, any_output=model)
    return weights


def _read(experiment: Experiment, option: str, file: Path, *, models: bool = False) -> Champion:
    """Return the champion of a file that an option names, as its errors do; a run has copies, which must be there."""
    if experiment.path.name != CONFIG and not file.exists():
        raise ConfigurationError(f"{option}: {file}: no such file or directory{near(file)}")
    try:
        return read_champion(file, models=models)
    except DataError as error:
        raise DataError(f"{option}: {error}") from error


def keep(experiment: Experiment, store: Store) -> None:
    """Copy champions' files into the run directory, once; ConfigurationError where what it starts from has changed."""
    identity = by_copies(store.identity)
    sources = {
        copy: (experiment.copies.get(name, Path(name)), identity.get(CONTENT + copy.name))
        for name, copy in copies_in(store.directory, opponents_named(experiment.environment)).items()
    }
    if experiment.run.init_from:
        sources[store.directory / START] = Path(experiment.run.init_from), store.identity["init_from"]
    for kept, (source, known) in sources.items():
        if kept.exists():
            continue
        data = read_file(source / CHAMPION if source.is_dir() else source, most=LARGEST_CHAMPION)
        if known is not None and hashlib.sha256(data).hexdigest() != known:
            raise ConfigurationError(f"{source} has changed while it was read; start the run again")
        with resources("write", kept):
            replace_file(kept, data)
            sync_directory(store.directory)


def handover_text(experiment: Experiment, fitness: float) -> str:
    """Return in one line what the champion's fitness was in its own run, and what it is in this one."""
    start = start_of(experiment, begun=True)
    if start is None or start.fitness is None:
        dropped = 0 if start is None else start.dropped
        cut = f" without its last {counted(dropped, 'output') if dropped > 1 else 'output'}" if dropped else ""
        return f"starts from {Path(experiment.run.init_from).name}{cut}, of fitness {fitness:z.3f} here"
    return f"starts from a champion of fitness {start.fitness:z.3f} in its own run, {fitness:z.3f} here"


def fit(weights: NDArray[np.float32], source_layers: Layers, network: Network) -> NDArray[np.float32]:
    """Return weights [P] for `network`, taken from another network's flat vector and layers.

    Outputs that both have are kept, outputs of the source alone are dropped, and outputs of `network` alone are zero
    for every observation. Raises ConfigurationError, naming the arrays, where any other layer differs.
    """
    fitted = np.zeros(network.size, np.float32)
    target = dict(zip(network.names(), network.split(fitted), strict=True))  # views
    source = split_layers(weights, source_layers)
    output, differing = list(target)[-2:], []
    for name in dict.fromkeys([*target, *source]):
        theirs, ours = (arrays[name].shape if name in arrays else () for arrays in (source, target))
        inputs = -1 if name in output else None  # all dimensions must agree, except the number of outputs
        if not (theirs and ours) or theirs[:inputs] != ours[:inputs]:
            there, here = ("x".join(map(str, shape)) or "absent" for shape in (theirs, ours))
            differing.append(f"{name} is {there}, here {here}")
    if differing:
        more = f"; and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        raise ConfigurationError(f"its layers are not those of this network: {'; '.join(differing[:SHOWN])}{more}")
    for name, array in target.items():
        kept = min(array.shape[-1], source[name].shape[-1])
        array[..., :kept] = source[name][..., :kept]
    return fitted
