"""Trains from the command line: what is shown before, while and after a run, and the summary that it ends with."""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TextIO

import numpy as np
from gymnasium import registry as registered

from evo import clock
from evo.cli.terminal.display import Display, Lines, baselines_text, headline, in_foreground, is_live, score_text
from evo.cli.terminal.playback import watch
from evo.config.experiment import Experiment
from evo.environment import RANDOM, Environment
from evo.environments.gymnasium import PREFIX
from evo.errors import ConfigurationError, counted, notice, typed
from evo.exports.metrics import Trackers
from evo.plugins.registry import command
from evo.process import ignored
from evo.report.page import reported_at_end, write_at_end
from evo.rollouts.rollout import kernels_are_kept
from evo.run import generations
from evo.store.metrics import Summary
from evo.store.store import Store
from evo.training import testing
from evo.training.beginning import handover_text
from evo.training.session import Session, known_champion
from evo.training.testing import Baseline, Recording, record
from evo.training.validation import Validated
from evo.workers import hardware

WORTH_SAYING = 1.0  # seconds of compiling
SECONDS = 5.0  # of a game
FRAMES_PER_SECOND = 30.0
PATIENCE = 60.0  # seconds of a first generation whose episodes may be endless


def train_to_the_end(
    experiment: Experiment, opened: Callable[[], tuple[Store, Validated | None]], arguments: Namespace
) -> int:
    """Train what is left of what `opened` returns, as `fork` does, test the champion, and show how it ended."""
    summary: Summary = arguments.summary
    trackers = Trackers(arguments)  # before anything is made
    display = display_for(arguments.quiet, arguments.verbose)
    store, forked = opened()
    game, stopped, reported = None, "", None
    try:
        if store.next_generation >= experiment.generations:
            summary.champion = known_champion(store, experiment)
        if summary.champion is not None:
            _say_first(experiment, store, display)
        else:
            with Session(experiment, store, allow_drift=arguments.allow_drift, forked=forked) as session:
                with ExitStack() as stack:
                    identity = experiment.identity()
                    stack.enter_context(trackers.begin(store.directory, identity, store.next_generation))
                    _say_first(experiment, store, display)  # nothing refuses the start any more
                    if kinds := missing_kernels(experiment):
                        _say_as_compiled(kinds, display)
                    for metrics in store.metrics():
                        display.past(metrics["generation"], metrics)
                    stack.enter_context(display)
                    if session.algorithm.best is not None:
                        display.champion(experiment, session.algorithm.best, store.next_generation - 1)
                    if endless := endless_episodes(experiment):
                        stack.callback(_note_if_endless(display, store, endless).cancel)
                    for row in generations(session):
                        if "start_validation" in row.metrics:
                            display.say(handover_text(experiment, row.metrics["start_validation"]))
                        display.generation(row, experiment.generations)
                        if (compiled := row.metrics["seconds_compiling"]) >= WORTH_SAYING:
                            display.say(f"compiled kernels for {compiled:,.0f} s; that is not training time")
                        trackers.add(row.generation, row.metrics)
                        if row.new_champion and session.algorithm.best is not None:
                            display.champion(experiment, session.algorithm.best, row.generation)
                        summary.champion = session.champion
                if stopped := session.stopped:
                    display.say(f"stopped after {counted(store.next_generation, 'generation')}: {stopped}")
                summary.champion = session.champion
                game = record_game(session, display)
                if not arguments.no_report:
                    reported = reported_at_end(store.directory, session.evaluator, store.publish)
    finally:
        clock.progress.say_compiled = str
        with ignored():
            removed = False
            try:
                removed = store.close_after(sys.exception())
            finally:  # only now it is certain how much of it is committed, and where
                summary.run_dir = None if removed else str(store.directory)
                summary.generations, summary.state_hash = store.next_generation, store.state_hash
                summary.frames = store.spent.frames + store.spent.frames_validating
                summary.seconds = store.spent.seconds
    summary.status = "done"
    test = None if summary.champion is None else summary.champion.test
    baselines: Mapping[str, Baseline] = {}  # what players that need no learning score on the same test episodes
    if test is not None:
        there = experiment.make_environment()
        baselines = testing.baselines(there, test.episodes, test.block, testing.BASELINE_SECONDS)
    page, sick = write_at_end(reported, baselines)
    ending(experiment, summary, display, game, stopped, baselines, page, sick)
    return 0


def _note_if_endless(display: Display, store: Store, endless: str) -> threading.Timer:
    text = f"the first generation goes on after {PATIENCE:.0f} s; {endless}"
    first = store.next_generation
    timer = threading.Timer(PATIENCE, lambda: display.say(text) if store.next_generation == first else None)
    timer.daemon = True
    timer.start()
    return timer


def _nothing_to_do(done: int, wanted: int) -> str:
    """Return the line for a total of generations that is reached; a lower one was meant as the number to add."""
    there = counted(done, "generation")
    if wanted == done:
        return f"nothing to do: {there} done, {wanted} asked for"
    more = f"--generations is the new total; for {wanted:,} more: --generations {done + wanted}"
    return f"nothing to do: {there} {'is' if done == 1 else 'are'} done. {more}"


def _say_first(experiment: Experiment, store: Store, display: Display) -> None:
    display.say(headline(experiment))
    workers, texts = experiment.workers, list(store.notices)
    if not experiment.learns and (ignored := experiment.learner.ignored_by(experiment.algorithm)):
        texts.append(ignored)
    if experiment.learns and experiment.run.starts > 1:
        texts.append(f"run.starts is ignored: {experiment.algorithm} computes gradients, in one search")
    if workers.backend == "serial" and workers.count != "auto":
        texts.append(f"workers.count = {workers.count} is ignored: the serial backend plays in the master")
    elif workers.count != "auto" and workers.count > hardware.cores():
        cores = counted(hardware.cores(), "core")
        texts.append(f"{workers.count} workers share {cores}; more workers than cores are no faster")
    notice(*filter(None, [*texts, endless_episodes(experiment)]))
    if store.next_generation >= experiment.generations:
        display.say(_nothing_to_do(store.next_generation, experiment.generations))


def endless_episodes(experiment: Experiment) -> str:
    """Return advice about episodes that may be endless; empty where their steps are limited."""
    options = experiment.environment
    name = options.id.removeprefix(PREFIX)
    if name == options.id or options.scored["max_steps"]:
        return ""
    if name not in registered or registered[name].max_episode_steps:
        return ""
    return f"episodes of {name} may be endless; --set environment.max_steps=N ends them after N steps"


def display_for(quiet: bool, verbose: bool = False, output: TextIO | None = None) -> Display:
    """Return the display for an output: a screen on an interactive terminal, else lines."""
    if quiet:
        return Display()
    if not is_live(output or sys.stdout):
        return Lines(verbose)
    from evo.cli.terminal.screen import Screen

    return Screen(verbose)


def missing_kernels(experiment: Experiment) -> list[str]:
    """Return the kinds of kernels that Numba has yet to compile, on this machine, for this experiment."""
    if experiment.policy.player != "lanes":
        return []
    from evo.learning.gradient_algorithm import LEARNED
    from evo.player import PLAYED, RECORDED

    environment, records = experiment.make_environment(), experiment.transitions_from
    if environment.problem is not None or kernels_are_kept(experiment.network(), environment, records):
        return []
    kinds = [PLAYED, *([RECORDED] if records and environment.game is not None else [])]
    return [*kinds, *([LEARNED] if experiment.learns and experiment.learner.is_exact else [])]


def _say_as_compiled(kinds: Sequence[str], display: Display) -> None:
    left, began = list(kinds), time.monotonic()

    def say(kind: str) -> None:
        if kind in left:
            left.remove(kind)
            done = f"compiled {len(kinds) - len(left)} of {len(kinds)} ({kind})"
            display.say(f"{done} after {time.monotonic() - began:.0f} s")

    display.say(f"compiling kernels for this kind of network, once on this machine: {', '.join(kinds)} ...")
    display.awaited = "compiling kernels, then the first generation"
    clock.progress.say_compiled = say


def record_game(session: Session, display: Display) -> Recording | None:
    """Return the test episode of the median score where it can be shown, or must be checked: the game is not ours.

    None where there is no champion. ConfigurationError where the episode shows that the game breaks its contract.
    """
    weights, scores = session.algorithm.best, session.scores
    if weights is None or scores is None:
        return None
    environment = session.experiment.make_environment()
    if not environment.sources and not (environment.visible and display.watched):
        return None

    published, order = session.store.publish(weights[None]), scores.argsort(kind="stable")
    middle = int(np.isfinite(scores).sum()) // 2  # what is not finite is at the end of the order
    game = record(published, session.evaluator, int(order[middle]), environment.episode_metrics)
    if environment.sources:
        game.check(environment)
    return game


def show_end(game: Recording, environment: Environment) -> None:
    """Show how the episode ends; a notice where a game's `render` fails, for the run is complete."""
    try:
        positions = game.positions(environment)[-int(SECONDS * FRAMES_PER_SECOND) :]
    except ConfigurationError as error:
        notice(str(error))
        return
    watch(positions, FRAMES_PER_SECOND, f"the end of a test episode of median score, {game.score:g} (any key skips)")


def ending(
    experiment: Experiment,
    summary: Summary,
    display: Display,
    game: Recording | None,
    stopped: str = "",
    baselines: Mapping[str, Baseline] = {},
    report: str = "",
    sick: bool = False,
) -> None:
    """Show the result of a run, which budget `stopped` it, its `report`, and commands to type, also if it is `sick`."""
    champion, no_better, environment = summary.champion, False, experiment.make_environment()
    if champion is None:
        display.say("no champion: nothing is validated yet, or no finalist had finite scores")
    else:
        display.say(f"champion   validation return {champion.fitness:z.2f}")
        if champion.test is not None:
            display.say("test       " + score_text(champion.test, environment.is_exact).replace("\n", "\n" + 11 * " "))
            if others := baselines_text(baselines, champion.test):
                display.say("baselines  " + others.replace("\n", "\n" + 11 * " "))
            random = baselines.get(RANDOM)
            if no_better := random is not None and champion.test.ci95[0] <= random.mean:
                display.say("           these episodes do not show that it is better than the random player")
    if game is not None and environment.visible and display.watched and in_foreground(sys.stdout):
        show_end(game, environment)
    directory = str(summary.run_dir)
    display.say(f"run        {typed([directory])}")
    if report:
        display.say(f"report     {typed([report])}")
    display.say("next:")
    if no_better:
        display.say(command("evo", "doctor", directory))
    if champion is not None and environment.visible:
        display.say(command("evo", "replay", directory))
    if champion is not None and not environment.is_exact:
        episodes = 1000 if champion.test is None else 5 * champion.test.episodes  # the same ones would score the same
        display.say(command("evo", "evaluate", directory, "--episodes", str(episodes)))
    total = 2 * max(experiment.generations, summary.generations or 0)
    more = ["--set", "run.budget={}"] if stopped else ["--generations", str(total)]
    display.say(command("evo", "resume", directory, *more, *experiment.hosts))
    if sick and not no_better:
        display.say(command("evo", "doctor", directory))
