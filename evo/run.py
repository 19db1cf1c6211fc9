"""Train: build the objects that an experiment names, and let them meet in one loop."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evo.errors import counted
from evo.training.generation import make_algorithm, play_out

if TYPE_CHECKING:
    from evo.cli.terminal.display import Display
    from evo.cli.terminal.summary import Summary
    from evo.config.experiment import Experiment
    from evo.config.sections import Budget
    from evo.records import Evaluator
    from evo.store.store import Store
    from evo.training.champion import Crown
    from evo.training.quarantine import Quarantine
    from evo.training.validation import Validated


def train(
    experiment: Experiment,
    algorithm: Validated,
    evaluator: Quarantine,
    store: Store,
    crown: Crown,
    display: Display,
    summary: Summary,
    allow_drift: bool = False,
) -> None:
    """Play, commit and show one generation after the other, until there are enough of them or a budget is spent."""
    from evo.cli.terminal.display import Row
    from evo.store.fingerprint import LEARNING, hold_to
    from evo.training.init_from import handed_over

    for generation in range(store.next_generation, experiment.generations):
        if stopped := spent(experiment.run.budget, algorithm, store):
            crown.stopped = stopped
            display.say(f"stopped after {generation} generations: {stopped}")
            break
        metrics = play_out(algorithm.generation(generation), evaluator, store)
        hold_to(store.directory, evaluator.fingerprint, allow_drift)
        hold_to(store.directory, algorithm.fingerprint(), allow_drift, LEARNING)
        best = crown.crowned()
        metrics["seconds_committing"] += store.committing.take()
        metrics["seconds_settling"] = store.settling.take()
        record = {**algorithm.record(), **evaluator.record()}
        store.commit(generation, algorithm.state(), record, metrics, best=best)
        due = (generation + 1) % experiment.test.every == 0
        if due:
            crown.measure()
        if best or due:
            crown.write()
        fill(summary, store, crown)
        if "start_validation" in metrics:
            display.say(handed_over(experiment, metrics["start_validation"]))
        display.generation(Row.of(generation, metrics, crown.last_mean, best), experiment.generations)


def spent(budget: Budget, algorithm: Validated, store: Store) -> str:
    """Return which budget is used up, or nothing."""
    if budget.frames and store.frames >= budget.frames:
        return f"the budget of {budget.frames} frames is spent"
    if budget.seconds and store.seconds >= budget.seconds:
        return f"the budget of {budget.seconds:g} seconds is spent"
    if budget.validation is not None and algorithm.best is not None and algorithm.fitness >= budget.validation:
        return f"champion reached {algorithm.fitness:.3f} of {budget.validation:g} on validation episodes"
    return ""


def run(
    experiment: Experiment, directory: Path | None, *, plugins: Sequence[str], quiet: bool, summary: Summary
) -> int:
    """Start a run in a new directory; ConfigurationError where something is there already."""
    from evo.cli.terminal.display import display_for

    display = display_for(quiet)
    display.say(headline(experiment))
    from evo.store.provenance import provenance
    from evo.store.run_directory import in_free_directory
    from evo.store.store import Store
    from evo.training import init_from

    def make(place: Path) -> Store:
        identity = experiment.identity()
        init_from.start_of(experiment)  # before anything is made, for it may not fit
        return Store.create(place, experiment.to_toml(provenance()), identity)

    if directory is None:
        store = in_free_directory(experiment.path, experiment.algorithm, experiment.run.seed, make)
    else:
        store = make(directory)
    return go_on(experiment, store, display, plugins, summary)


def resume(
    experiment: Experiment,
    directory: Path,
    *,
    plugins: Sequence[str],
    fork: str | None,
    allow_drift: bool,
    quiet: bool,
    summary: Summary,
) -> int:
    """Go on with a run where it stopped, or (`fork`) start another in runs/FORK from its state.

    ConfigurationError: the experiment would change the run's results. DataError, LockedError: as `Store.open`.
    """
    from evo.cli.terminal.display import display_for

    display = display_for(quiet)
    display.say(headline(experiment))
    from evo.training import resuming

    if fork is None:
        return go_on(experiment, resuming.take_up(experiment, directory), display, plugins, summary, allow_drift)
    store, algorithm = resuming.fork(experiment, directory, fork)
    return go_on(experiment, store, display, plugins, summary, allow_drift, algorithm)


def go_on(
    experiment: Experiment,
    store: Store,
    display: Display,
    plugins: Sequence[str],
    summary: Summary,
    allow_drift: bool = False,
    algorithm: Validated | None = None,
) -> int:
    """Train what is left to train, measure the champion, close everything in order, and show how it ended."""
    from evo.cli.terminal import show
    from evo.config.experiment import environment_of, evaluator_of
    from evo.errors import PoisonError, notice
    from evo.records import Elsewhere
    from evo.training import init_from
    from evo.training.champion import Crown, known_champion
    from evo.training.quarantine import Quarantine, champion_stopped
    from evo.workers.signals import deaf

    evaluator: Evaluator | None = None
    game = None
    try:
        tell_notices(experiment, store, summary)
        init_from.keep(experiment, store)
        reached = store.next_generation >= experiment.generations
        if reached:
            there, asked = counted(store.next_generation, "generation"), experiment.generations
            display.say(f"nothing to do: {there} done, {asked} asked for")
            summary.champion = known_champion(store, experiment)
        if not reached or summary.champion is None:
            evaluator = evaluator_of(experiment, store.directory, plugins)
            environment = environment_of(experiment.environment)
            forked = algorithm is not None
            algorithm = algorithm or make_algorithm(experiment, environment)
            for text in algorithm.notices:
                notice(text)
            if store.next_generation and not forked:
                algorithm.restore(store.load(), store.records())
            if isinstance(evaluator, Elsewhere):  # a commit is written and synced while its successor is played
                evaluator.meanwhile, store.patient = store.settle, True
            crown = Crown(experiment, environment.episode_metrics, algorithm, evaluator, store)
            if show.kernels_are_missing(experiment):
                display.say("compiling the kernels for this machine, once (about 10 s) ...")
            with display:
                quarantine = Quarantine(evaluator, store, plugins)
                train(experiment, algorithm, quarantine, store, crown, display, summary, allow_drift)
            crown.measure()
            crown.write()
            store.flush()
            fill(summary, store, crown)
            game = show.record_game(experiment, algorithm, crown, evaluator, store) if show.watched(display) else None
    except PoisonError as poison:  # only where a champion is measured: what generations play is in quarantine
        crown.write()
        raise champion_stopped(poison, store.directory, plugins) from poison
    finally:
        with deaf():
            if evaluator is not None:
                evaluator.close()
            if algorithm is not None:  # its learner may have processes of its own
                algorithm.close()
            try:
                store.close()
            finally:
                fill(summary, store)  # by now it is settled how much of it is committed
    summary.status = "done"
    show.ending(experiment, summary, display, game)
    return 0


def headline(experiment: Experiment) -> str:
    """Return what will be done, in two lines that fit into 80 columns."""
    shape = "x".join(map(str, experiment.environment.shape)) if hasattr(experiment.environment, "shape") else ""
    size = getattr(experiment.environment, "size", 0)
    board = f" {size}x{size}, seen as {experiment.environment.observation} {shape}" if size else ""
    return (
        f"{experiment.algorithm} on {experiment.environment.id}{board}\n"
        f"{experiment.policy.kind} of {experiment.network().size:,} weights; seed {experiment.run.seed}; "
        f"{counted(experiment.generations, 'generation')}"
    )


def tell_notices(experiment: Experiment, store: Store, summary: Summary) -> None:
    """Note in the summary which run this is, and tell the user what may not be expected."""
    from evo.errors import notice
    from evo.workers import devices

    summary.run_dir = str(store.directory)
    fill(summary, store)
    for text in store.notices:
        notice(text)
    if not experiment.learns and (ignored := experiment.learner.ignored_by(experiment.algorithm)):
        notice(ignored)
    workers = experiment.workers
    if workers.backend == "serial":
        if workers.count != "auto":
            notice(f"workers.count = {workers.count} is ignored: the serial backend plays in the master")
    elif workers.count != "auto" and workers.count > devices.cores():
        notice(f"{workers.count} workers share {devices.cores()} cores; more than cores are no faster")


def fill(summary: Summary, store: Store, crown: Crown | None = None) -> None:
    """Write down how far the run has come."""
    summary.generations, summary.state_hash = store.next_generation, store.state_hash
    summary.frames, summary.seconds = store.frames, store.seconds
    if crown is not None:
        summary.champion = crown.champion


if __name__ == "__main__":
    from evo.cli.main import main_run

    sys.exit(main_run())
