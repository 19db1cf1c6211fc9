"""The first sentences of a report: what was trained, its score and that of baselines, and how far to trust it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

from evo.comparison.runs import NO_CHAMPION, ended_without_champion, options_of, place_of
from evo.diagnosis.examination import still_rising
from evo.diagnosis.signs import Signs
from evo.errors import counted
from evo.files.arrays import first_run
from evo.numbers import duration, number, percentage
from evo.plugins import code, registry
from evo.report.charts import rising, step_named
from evo.store.run import Run
from evo.training.testing import Baseline

LONGEST = 40  # characters of a method's name; a longer one is a sentence
NETWORKS = {
    "cnn": "a convolutional network",
    "mlp": "a multilayer perceptron",
    "linear": "a linear network",
}  # others by their names
FORKED = "began with the state of another run, and what that had spent is not counted."
UNITS = {"snake": "fruits"}  # of a score
PLAYERS = {"shortest": "one that follows shortest paths", "hamiltonian": "one that follows a Hamiltonian cycle"}


def verdict(run: Run, baselines: Mapping[str, Baseline]) -> list[str]:
    """Return paragraphs about one run, the most important first."""
    doubt = "One seed proves little: train others before you compare."
    origin = f"It is a fork: it {FORKED}" if run.is_fork else ""
    first = " ".join(filter(None, (trained(run), origin, scored(run))))
    return [first, " ".join(filter(None, (of_baselines(run, baselines), trend(run), doubt)))]


def verdict_of_several(runs: Sequence[Run]) -> list[str]:
    """Return the sentences about several runs."""
    tested = [(run.name, run.score) for run in runs if run.score is not None]
    have = "has" if len(tested) == 1 else "have"
    sentences = [f"{counted(len(runs), 'run')}, of which {len(tested)} {have} a test score."]
    if forks := [run.name for run in runs if run.is_fork]:
        sentences.append(f"As a fork, {' and '.join(forks)} {FORKED}")
    if len({place_of(run.config, code.game_of(run.store.identity)) for run in runs if run.score is not None}) > 1:
        sentences.append("They see or play different things, so their scores are not compared.")
    elif tested:
        order = sorted(tested, key=lambda one: (-one[1].mean, one[0]))
        scores = [score.mean for _, score in order]
        (best, high), (worst, low) = ((name, number(score.mean)) for name, score in (order[0], order[-1]))
        alike = f"{best} scores {high}." if len(order) == 1 else f"They all score {high}."
        ranked = f"{best} scores highest, {high}, and {worst} lowest, {low}."
        sentences.append(alike if scores[0] == scores[-1] else ranked)
        methods, seeds = {options_of(run) for run in runs}, {run.config.run.seed for run in runs}
        independent = len({first_run(run.store.identity) for run in runs}) == len(runs)
        if not independent:
            sentences.append("Some have the same first generations, so they are not independent seeds.")
        elif len(scores) > 1 and len(seeds) == len(runs) and len(methods) == 1 and all(run.ended for run in runs):
            spread = statistics.stdev(scores)
            sentences.append(
                f"They differ in their seed alone: the mean of their scores is {number(statistics.fmean(scores))}, "
                f"with a standard deviation of {number(spread)} between seeds."
            )
        blocks = {(score.block, score.episodes) for _, score in tested}
        if len(blocks) > 1:
            sentences.append("They were not tested on the same episodes.")
    return sentences


def trained(run: Run) -> str:
    """Say what was trained, and for how long."""
    experiment, done = run.config, run.store.next_generation
    method = method_named(experiment.algorithm)
    network = experiment.network()
    called = NETWORKS.get(network.short_name, f"a {network.short_name}") + (" with memory" if network.memory else "")
    size = f"{called} of {network.size:,} weights"
    what = f"{method} trained {size} on {experiment.environment.title()}"
    if not done:
        return f"{what}; no generation is committed yet."
    spent = run.store.spent
    validating = f" and {spent.frames_validating:,} of validation" if spent.frames_validating else ""
    played = f"{spent.frames:,} {step_named(run)}{validating}"
    length = f"{counted(done, 'generation')}, {played}, {duration(spent.seconds)}"
    asked, stopped, end = experiment.generations, run.fact("stopped", str), ""
    if stopped and run.fact("generations") == done:
        end = f"; it ended early, for {stopped}"
    elif done < asked:
        end = f"; {asked:,} generations were asked for, so it was stopped or still goes on"
    return f"{what} ({length}, seed {experiment.run.seed}){end}."


def method_named(algorithm: str) -> str:
    """Return the name of an algorithm in a sentence: what its module's description begins with, or its id."""
    known = algorithm in registry.names("algorithms")
    return (known and short_name(registry.summary("algorithms", algorithm))) or algorithm


def short_name(description: str) -> str:
    """Return the name before the first punctuation of a description; empty where no short one stands there."""
    name = re.split(r"[:;,.](?: |$)| \(", description)[0]
    return name if len(name) <= LONGEST else ""


def scored(run: Run) -> str:
    """Say what the champion scores on test episodes."""
    score = run.score
    if run.champion_file is None:
        none = "It has no champion yet, so there is nothing to test."
        return f"{NO_CHAMPION.capitalize()}." if ended_without_champion(run) else none
    if score is None:
        return "Its champion is not tested yet."
    amount = f"{number(score.mean)} {UNITS.get(run.config.environment.id, '')}".rstrip()
    if run.environment.is_exact:
        return f"Its champion scores {amount}, exactly: the function takes no seed, and was called once."
    text = f"Its champion scores {amount} on {counted(score.episodes, 'test episode')}"
    text += f" (95 % interval {number(score.ci95[0])} to {number(score.ci95[1])})" if score.episodes > 1 else ""
    return text + (f" and wins {percentage(score.win_rate)} % of them." if score.win_rate else ".")


def of_baselines(run: Run, baselines: Mapping[str, Baseline]) -> str:
    """Return the scores of players that need no learning, in words, if there are any."""
    if run.score is None or not baselines:
        return ""
    others = [f"{PLAYERS.get(name, f'a {name} player')} {number(other.mean)}" for name, other in baselines.items()]
    listed = others[0] if len(others) == 1 else f"{', '.join(others[:-1])} and {others[-1]}"
    fewest = min(other.episodes for other in baselines.values())
    fewer = f" (the first {fewest} of them, or more)" if fewest < run.score.episodes else ""
    return f"Scores of simple players on the same episodes{fewer}: {listed}."


def trend(run: Run) -> str:
    """Say whether a longer run may bring more."""
    state = rising(run)
    if state is None:
        return "There are too few validations to say whether it was still improving."
    if state:
        return "Its validation return was still rising at the end, so a longer run may score higher."
    if still_rising(Signs(run)):
        return "Its validation return had levelled off at the end, while returns in training were still rising."
    return "Its validation return had levelled off at the end."
