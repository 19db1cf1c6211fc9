"""Examine a run: what keeps it from learning, what its champion's scores show, and what wastes its time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evo.diagnosis.learning import evolution, gradients
from evo.diagnosis.memory import memory
from evo.diagnosis.signs import LEAST_GENERATIONS, Check, Finding, Signs, checked, found
from evo.environment import RANDOM
from evo.environments.instances import close
from evo.errors import EvoError, counted
from evo.files.layout import CHAMPION
from evo.numbers import figure, percent
from evo.plugins import directory
from evo.plugins.registry import command
from evo.store.run import Run
from evo.training.testing import BASELINE_SECONDS, Baseline, baseline

LEAST_LANES = 0.65  # share of the lane slots that play a frame; healthy: 0.85 and more
LANES = 16
MOST_IDLE, MOST_MASTER = 0.4, 0.5  # shares of the time of all generations but the first
LEAST_SECONDS = 0.02  # of a generation; a shorter one is mostly overhead, and takes no time worth saving
MOST_OPTIMISM = 0.3  # of the validation return
CERTAIN = 3.0  # standard errors by which the last quarter exceeds the one before
LEAST = 3  # generations of a quarter
FAR = 20.0  # from 0 to an end of the range of actions; outputs begin near 0, with a standard deviation of about 1
NUMBER = re.compile(r"--set ([\w.]+)=(\d+)(?!\w|\.\d)")


@dataclass(frozen=True)
class Diagnosis:
    """What was found in a run, the most important first, and what was looked at."""

    generations: int
    findings: list[Finding]
    looked_at: list[str]  # with values
    notes: list[str]  # why something could not be looked at

    @property
    def conclusion(self) -> str:
        """The number of findings, and what was looked at."""
        number = counted(len(self.findings), "finding") if self.findings else "no problem found"
        seen = f"looked at {', '.join(self.looked_at)}" if self.looked_at else "nothing could be looked at"
        return f"{number} in {counted(self.generations, 'generation')}; {seen}"

    def lines(self) -> list[str]:
        """Return it in words; a single line where no problem was found."""
        named = [(f"{place}. {one.wrong}", one.evidence, one.change) for place, one in enumerate(self.findings, 1)]
        return [*("\n   ".join(words) for words in named), self.conclusion, *self.notes]

    def facts(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"healthy": not self.findings, **asdict(self)}


def examine(directory: Path) -> Diagnosis:
    """Read a run and examine it; DataError where it is no run, or is damaged."""
    return diagnosis(Run(directory))


def diagnosis(run: Run, players: Mapping[str, Baseline] | None = None) -> Diagnosis:
    """Examine a run that was read; `players` are those that need no learning, where they have played already."""
    signs, notes = Signs(run), [note for note in run.notes if note not in run.mistakes]
    done = run.store.next_generation
    checks: list[Check | None] = []
    if done < LEAST_GENERATIONS:
        notes.append(f"only {counted(done, 'generation')}: learning is examined from {LEAST_GENERATIONS} on")
    elif signs.solved:
        notes.append("the champion scores nearly the maximum, so only the run's time was looked at")
    else:
        flat, far = equal_returns(signs), far_actions(signs)
        learning = [] if found([flat]) else [*evolution(signs), *gradients(signs)]
        if found([far]):
            learning = [one for one in learning if not one.finding or one.finding.name != "value_error"]
        remembering = [] if found([flat]) else memory(signs)
        checks = [not_finite(signs), flat, far, *learning, *remembering, chance(signs, players), optimism(signs)]
        notes += [note for note in [still_rising(signs)] if note]
    if done > 1:
        checks.append(lanes(signs))
        seconds, count = signs.total("seconds"), len(run.metrics) - 1
        if seconds >= LEAST_SECONDS * count:
            checks += [idle(signs, seconds), master(signs, seconds)]
    findings = [*found(files(run)), *agreeing(found(checks))]
    return Diagnosis(done, findings, [check.label for check in checks if check], notes)


def agreeing(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings that set an option to one number, the largest that any of them wants."""
    wanted: dict[str, float] = {}
    for name, value in (pair for finding in findings for pair in NUMBER.findall(finding.change)):
        if ".episodes" in name:
            wanted[name] = max(wanted.get(name, 0.0), float(value))

    def largest(match: re.Match[str]) -> str:
        return f"--set {match[1]}={wanted[match[1]]:g}" if match[1] in wanted else match[0]

    return [replace(finding, change=NUMBER.sub(largest, finding.change)) for finding in findings]


def files(run: Run) -> list[Check]:
    """Look for files that are missing, damaged or not of this run, of which nothing can be said."""
    verify, resume = (command("evo", name, str(run.directory)) for name in ("verify", "resume"))
    champion = [one for one in run.mistakes if one.startswith(CHAMPION)]
    others = [one for one in run.mistakes if one not in champion]
    foreign = checked(
        "champion's file",
        "foreign_champion",
        "The champion's file is damaged or not of this run, so the champion was not examined.",
        f"{'; '.join(champion)}.",
        f"Let the run write its champion again: `{resume}`.",
        bool(champion),
    )
    damaged = checked(
        "other files",
        "damaged_files",
        "Files of the run are missing, damaged or not of this run, so this diagnosis may be wrong.",
        f"{'; '.join(others)}.",
        f"Restore them from a copy of the run; `{verify}` names all that differ.",
        bool(others),
    )
    return [foreign, damaged]


def equal_returns(signs: Signs) -> Check | None:
    """Look for a run in which all episodes return the same, so that nothing tells networks apart."""
    best, mean = signs.column("best"), signs.column("mean")
    if signs.run.config.run.init_from or not (best == best[0]).all() or not (mean == best[0]).all():
        return None
    return checked(
        f"returns all {figure(float(best[0]))}",
        "equal_returns",
        "All returns are equal, so nothing can be learned from them.",
        f"Best and mean of the training episodes were {figure(float(best[0]))} in every generation.",
        "Check the rewards of the environment, and whether a step limit ends episodes before the first reward; "
        "reward progress, or begin with an easier task (environment.training).",
    )


def not_finite(signs: Signs) -> Check | None:
    """Look for candidates whose scores are not finite, which rank worst."""
    count = signs.late("nonfinite")
    if not count > 0:
        return None
    return checked(
        f"not finite {figure(count)}",
        "not_finite",
        "Some candidates have scores that are not finite, so they rank worst whatever they do.",
        f"In the last half of the run, {figure(count)} candidates per generation had such a score.",
        "Keep rewards and observations finite (notes of the run name those that are not); if outputs of networks are "
        "not, mutate less (sigma).",
    )


def far_actions(signs: Signs) -> Check | None:
    """Look for continuous actions whose range is far from the outputs of a network."""
    environment = signs.run.environment
    if not environment.continuous:
        return None
    try:
        with directory.kept():
            env = environment.env()
    except EvoError:
        return None
    space: Any = env.action_space
    close(env)
    low, high = float(np.min(space.low)), float(np.max(space.high))
    if not math.isfinite(high - low):
        return None
    return checked(
        f"actions from {low:g} to {high:g}",
        "far_actions",
        "The range of actions is far from the network's outputs, so most of it is never tried.",
        f"Actions go from {low:g} to {high:g}; outputs begin near 0, with a standard deviation of about 1.",
        "Scale them: --set environment.rescale_actions=true, or, in a game of your own, in its `step`.",
        max(-low, high) > FAR,
    )


def chance(signs: Signs, players: Mapping[str, Baseline] | None) -> Check | None:
    """Look for a champion whose interval lies below that of the random player, which plays where it did not before."""
    score, random = signs.run.score, _random(signs) if players is None else players.get(RANDOM)
    if score is None or random is None:
        return None
    label = f"champion's score {figure(score.mean)}, random player {figure(random.mean)}"
    greedy = command("evo", "evaluate", str(signs.run.directory), "--mode", "sample")
    greedy = f" It always takes its highest output, so it may repeat itself: `{greedy}` draws its actions instead."
    return checked(
        label,
        "worse_than_random",
        "The champion is worse than the random player.",
        f"The champion scores {figure(score.mean)}, a random player {figure(random.mean)}."
        f"{'' if signs.run.environment.continuous else greedy}",
        f"Try {'' if signs.section == 'ppo' else '--algorithm ppo, or '}more generations: "
        f"--set run.generations={4 * len(signs.run.metrics)}.",
        min(score.episodes, random.episodes) > 1 and score.ci95[1] < random.ci95[0],
    )


def _random(signs: Signs) -> Baseline | None:
    """Return the random player's score on the champion's test episodes; None where it cannot play."""
    score = signs.run.score
    try:
        if score is None or RANDOM not in signs.run.environment.baselines:
            return None
        return baseline(signs.run.environment, RANDOM, score.episodes, score.block, BASELINE_SECONDS)
    except EvoError:
        return None


def optimism(signs: Signs) -> Check | None:
    """Look for finalists whose training returns were luck, and for a champion whose validation return was."""
    if signs.run.config.environment.training:
        return None  # training episodes are others, and their returns too
    training, validation = signs.late("optimism"), signs.last("validation")
    test = validation - signs.last("test_return")
    size = max(abs(validation), abs(signs.last("best") - signs.last("mean")))
    more = f"--set validation.episodes={4 * signs.run.config.validation.episodes}"
    gaps = [
        ("training", training, "Finalists return {} less in validation than in training",
         signs.set("episodes", 2 * signs.episodes)),
        ("validation", test, "The champion returns {} less on test episodes", more),
    ]  # fmt: skip
    gaps = [gap for gap in gaps if math.isfinite(gap[1])]
    if not gaps or not size > 0:
        return None
    label = ", ".join(f"{name} gap {figure(value)}" for name, value, *_ in gaps)
    large = [gap for gap in gaps if gap[1] > MOST_OPTIMISM * size]
    evidence = "; ".join(text.format(figure(value)) for _, value, text, _ in large)
    return checked(
        label,
        "optimism_gap",
        "Scores are optimistic: selection favoured luck.",
        f"{evidence}; the validation return is {figure(validation)}.",
        f"Choose on more episodes: {' '.join(change for *_, change in large)}.",
        bool(large),
    )


def still_rising(signs: Signs) -> str:
    """Return a note where the mean return of the last quarter of a run is above that of the third; else nothing."""
    returns = signs.column("mean")
    quarter = len(returns) // 4
    third, last = returns[-2 * quarter : -quarter], returns[-quarter:]
    if quarter < LEAST or not np.isfinite([*third, *last]).all():
        return ""
    error = math.sqrt((third.var(ddof=1) + last.var(ddof=1)) / quarter)
    if last.mean() - third.mean() <= CERTAIN * error:
        return ""
    run, words = signs.run, list[str]()
    if run.ended:  # one that was stopped goes on without more words
        budget = len(returns) < run.config.generations
        words = ["--set", "run.budget={}"] if budget else ["--generations", str(2 * len(returns))]
    more = command("evo", "resume", str(run.directory), *words)
    before, now = figure(float(third.mean())), figure(float(last.mean()))
    return (
        f"returns were still rising ({before} in the third quarter, {now} in the last): train longer before you change "
        f"options: {more}"
    )


def lanes(signs: Signs) -> Check | None:
    """Look for lanes of the kernel that play nothing."""
    used, envs = signs.late("lane_utilisation"), signs.option("envs")
    if math.isnan(used):
        return None
    label, change = f"lanes used {percent(used)}", signs.set("episodes", max(LANES, 2 * signs.episodes))
    if envs is not None:
        per_task = int(signs.option("envs_per_task") or LANES)
        change = signs.set("envs_per_task", LANES * max(1, -(-per_task // LANES)))
        change = f"{signs.set('envs', LANES)} {change}" if envs < LANES else change
    return checked(
        label,
        "idle_lanes",
        "Lanes are idle: the kernel can play 16 episodes of a network at once, but gets fewer.",
        f"{percent(used)} of the lane slots played a frame (healthy runs: 85 % and more).",
        f"Give it multiples of {LANES}: {change}.",
        used < LEAST_LANES,
    )


def idle(signs: Signs, seconds: float) -> Check | None:
    """Look for workers that wait for a task while the master waits for results."""
    workers = signs.late("workers")
    if not workers >= 2:
        return None
    share, straggling = signs.total("seconds_idle") / seconds, signs.total("seconds_straggling") / seconds
    label, evolves = f"workers idle {percent(share)}", signs.options.candidates() > 1
    change = "--set workers.candidates_per_task=1" if evolves else signs.set("envs_per_task", LANES)
    return checked(
        label,
        "idle_workers",
        "Workers are idle: tasks are too few, or too short.",
        f"{workers:.0f} workers had no task in {percent(share)} of the time while others played; in "
        f"{percent(straggling)} of the time they waited for the last task of a round.",
        f"Cut the work into more tasks, or use fewer workers: {change} or --workers {max(1, int(workers) // 2)}.",
        share > MOST_IDLE,
    )


def master(signs: Signs, seconds: float) -> Check:
    """Look for a run that waits for its master, which ranks, rebuilds and commits while workers are idle."""
    own, commits = signs.total("seconds_master"), signs.total("seconds_committing")
    share, horizon = (own + commits) / (seconds + commits), signs.option("horizon")
    label, change = f"master's share of the time {percent(share)}", signs.set("episodes", 2 * signs.episodes)
    if horizon is not None and signs.option("population") is None:
        change = signs.set("horizon", 2 * int(horizon))
    return checked(
        label,
        "master_bound",
        "The run waits for its master: more workers cannot make it faster.",
        f"The master's own work took {percent(own / (seconds + commits))} of the time and commits "
        f"{percent(commits / (seconds + commits))}, while workers were idle.",
        f"Let a generation play more: {change}.",
        share > MOST_MASTER,
    )
