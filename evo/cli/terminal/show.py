"""What a run shows before it begins and when it has ended: score, baselines, a game, and what to type next."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, TextIO

from evo.cli.terminal.display import Display, Lines, is_live
from evo.errors import ConfigurationError, counted, notice
from evo.plugins.registry import command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evo.config.experiment import Experiment
    from evo.environment import Environment
    from evo.store.champion import Score
    from evo.store.metrics import Summary
    from evo.training.session import Session
    from evo.training.testing import Baseline, Recording

SECONDS = 5.0  # of a game
FRAMES_PER_SECOND = 30.0


def display_for(quiet: bool, verbose: bool = False, output: TextIO | None = None) -> Display:
    """Return the display for an output: a screen on an interactive terminal, else lines."""
    if quiet:
        return Display()
    if not is_live(output or sys.stdout):
        return Lines(verbose)
    from evo.cli.terminal.screen import Screen

    return Screen(verbose)


def headline(experiment: Experiment) -> str:
    """Return what will be done, in two lines that fit into 80 columns."""
    return (
        f"{experiment.algorithm} on {experiment.environment.title()}\n"
        f"{experiment.policy.called} of {experiment.network().size:,} weights; seed {experiment.run.seed}; "
        f"{counted(experiment.generations, 'generation')}"
    )


def kernels_are_missing(experiment: Experiment) -> bool:
    """Return whether Numba has yet to compile, on this machine, what plays this experiment."""
    if experiment.policy.player != "lanes":
        return False
    from evo.config.environments import environment_of
    from evo.rollouts.rollout import kernels_are_kept

    environment = environment_of(experiment.environment)
    return not kernels_are_kept(experiment.network(), environment, experiment.transitions_from)


def record_game(session: Session, display: Display) -> Recording | None:
    """Return the test episode of the median score, if it can be shown, or must be checked since the game is not ours.

    None where there is no champion. ConfigurationError where the episode shows that the game breaks its contract.
    """
    weights, scores = session.algorithm.best, session.scores
    if weights is None or scores is None:
        return None
    from evo.config.environments import environment_of
    from evo.training.testing import record

    environment = environment_of(session.experiment.environment)
    if not environment.sources and not (environment.visible and display.watched):
        return None

    published, order = session.store.publish(weights[None]), scores.argsort(kind="stable")
    game = record(published, session.evaluator, int(order[len(order) // 2]), environment.episode_metrics)
    if environment.sources:
        game.check(environment)
    return game


def show_end(game: Recording, environment: Environment) -> None:
    """Show how the episode ends; a notice where a game's `render` fails, for the run is complete."""
    from evo.cli.terminal.playback import watch

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
    baselines: Mapping[str, Baseline] | None = None,
    report: str = "",
    sick: bool = False,
) -> None:
    """Show what came of a run, and commands to type next.

    `stopped` says which budget is spent, if one is; `report` is the file of the report, if one was written; `sick`: its
    diagnosis has a finding.
    """
    from evo.config.environments import environment_of
    from evo.environment import RANDOM
    from evo.environments.gymnasium import PREFIX

    champion, no_better = summary.champion, False
    if champion is None:
        display.say("no champion: nothing is validated yet, or no finalist had finite scores")
    else:
        display.say(f"champion   validation return {champion.fitness:z.2f}")
        if champion.test is not None:
            display.say("test       " + score_text(champion.test).replace("\n", "\n" + 11 * " "))
            if others := baselines_text(baselines or {}, champion.test):
                display.say("baselines  " + others.replace("\n", "\n" + 11 * " "))
            elif experiment.environment.id.startswith(PREFIX):
                display.say("baselines  none for Gymnasium environments")
            random = (baselines or {}).get(RANDOM)
            if no_better := random is not None and champion.test.ci95[0] <= random.mean:
                display.say("           these episodes do not show that it is better than the random player")
    environment = environment_of(experiment.environment)
    if game is not None and environment.visible and display.watched:
        show_end(game, environment)
    directory = str(summary.run_dir)
    display.say(f"run        {shlex.quote(directory)}")
    if report:
        display.say(f"report     {shlex.quote(report)}")
    display.say("next:")
    if no_better:
        display.say(command("evo", "doctor", directory))
    if champion is not None and environment.visible:
        display.say(command("evo", "replay", directory))
    if champion is not None:
        episodes = 1000 if champion.test is None else 5 * champion.test.episodes  # the same ones would score the same
        display.say(command("evo", "evaluate", directory, "--episodes", str(episodes)))
    total = 2 * max(experiment.generations, summary.generations or 0)
    more = ["--set", "run.budget={}"] if stopped else ["--generations", str(total)]
    display.say(command("evo", "resume", directory, *more))
    if sick and not no_better:
        display.say(command("evo", "doctor", directory))


def score_text(score: Score) -> str:
    """Return a test score in two lines, which fit into 80 columns."""
    from evo.statistics import percentage

    low, high = score.ci95
    interval = f", 95 % interval {low:z.2f} to {high:z.2f}" if score.episodes > 1 else ""
    wins = f", won {percentage(score.win_rate)} %" if score.win_rate is not None else ""
    return (
        f"{score.mean:z.2f} on {counted(score.episodes, 'test episode')}{interval}\n"
        f"median {score.median:zg}, best {score.max:zg}{wins}"
    )


def baselines_text(baselines: Mapping[str, Baseline], score: Score) -> str:
    """Return the test scores of players that need no learning, a line each, which say how many episodes they played."""
    lines = []
    for name, other in baselines.items():
        low, high = other.ci95
        interval = f" ({low:z.1f} to {high:z.1f})" if other.episodes > 1 else ""
        first = f", on the first {counted(other.episodes, 'episode')}" if other.episodes < score.episodes else ""
        lines.append(f"{name} player {other.mean:z.1f}{interval}{first}")
    return "\n".join(lines)
