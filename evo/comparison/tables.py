"""A comparison: a table for every track of every environment, with what a reader must know below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from evo.comparison.methods import Method, Pair, Reaching, judged, method_of, pair_of, reaching, score_between
from evo.comparison.runs import ComparedRun, Place, place_of
from evo.config.sections import plural
from evo.environment import RANDOM
from evo.errors import counted
from evo.training.testing import Baseline, baselines

APART = 1.1  # budgets are unequal where the larger one is more than this times the smaller
BASELINE_EPISODES = 100
BASELINE_SECONDS = 1.0  # of processor time for a player


@dataclass(frozen=True)
class Table:
    """The methods of one game and one track, which can be compared with each other."""

    environment: str  # the game, with the options that are scored
    track: str  # what a network observes
    methods: tuple[Method, ...]  # by their means, highest first
    pairs: tuple[Pair, ...]  # all pairs of methods
    baselines: dict[str, Baseline]  # by the names of players that need no learning
    reaching: Reaching | None  # what methods spent until they reached a score
    notes: tuple[str, ...]  # what a reader must know, a line each

    @property
    def title(self) -> str:
        """The game and its track."""
        return f"{self.environment}; {self.track}" if self.track else self.environment


@dataclass(frozen=True)
class Comparison:
    """The results of `compare`."""

    tables: tuple[Table, ...]  # one of each game and track
    notes: tuple[str, ...]  # of all tables

    @property
    def scored(self) -> bool:
        """Whether any run has a score."""
        return any(method.scores for table in self.tables for method in table.methods)


def comparison_of(
    runs: Sequence[ComparedRun], reach: float | None = None, seconds: float = BASELINE_SECONDS
) -> Comparison:
    """Return tables, verdicts and notes of runs; `reach` as in the file; other players play for `seconds` each."""
    places: dict[Place, dict[str, list[ComparedRun]]] = {}
    for run in runs:
        places.setdefault(place_of(run.experiment, run.game_code), {}).setdefault(run.method, []).append(run)
    rows = {
        place: sorted(
            (method_of(name, runs) for name, runs in methods.items()),
            key=lambda row: (row.mean is None, -(row.mean or 0.0), row.name),
        )
        for place, methods in places.items()
    }
    every = [method for methods in rows.values() for method in methods]
    pairs, impossible = judged([pair_of(*two) for methods in rows.values() for two in combinations(methods, 2)], every)
    tables = []
    for place, methods in rows.items():
        names = {method.name for method in methods}
        own = [run for runs_of in places[place].values() for run in runs_of]
        blocks = [run.score.block for run in own if run.score] or [own[0].experiment.test.block]
        block = max(sorted(set(blocks)), key=blocks.count)  # that most runs were tested on
        players = baselines(own[0].experiment.make_environment(), BASELINE_EPISODES, block, seconds)
        means = {name: player.mean for name, player in players.items()}
        score = score_between(methods, means) if reach is None else reach
        tables.append(
            Table(
                environment=place.game,
                track=place.track,
                methods=tuple(methods),
                pairs=tuple(pair for pair in pairs if pair.first in names),
                baselines=dict(players),
                reaching=None if score is None else reaching(methods, score),
                notes=(*_notes(methods, own), *no_better_than_random(methods, means)),
            )
        )
    notes = [impossible] if impossible else []
    if len(tables) > 1:
        notes.append("methods of different tables see or play something else, so they are not compared with each other")
    return Comparison(tuple(tables), tuple(notes))


def _notes(methods: Sequence[Method], runs: Sequence[ComparedRun]) -> list[str]:
    limits = {name for run in runs for name in run.experiment.run.budget.limits()}
    amount = limits.pop() if len(limits) == 1 else "frames"  # which is to be equal
    notes = []
    for run in runs:
        name = f"{run.method} seed {run.seed}"
        if run.score is None:
            notes.append(f"{name} is missing, and in no mean: {run.failure}")
        elif run.remark:
            notes.append(f"{name}: {run.remark}")
    for method in methods:
        if len(method.scores) == 1:
            notes.append(f"{method.name}: one seed: no interval, proves little")
        amounts = [vars(run)[amount] for run in method.runs if run.score is not None]
        if amounts and max(amounts) > APART * min(amounts):
            difference = f"unequal numbers of {plural(amount)}, {min(amounts):,.0f} to {max(amounts):,.0f}"
            notes.append(f"{method.name}: its runs have {difference}")
    budgets = {method.name: vars(method)[amount] for method in methods if vars(method)[amount] is not None}
    if budgets and max(budgets.values()) > APART * min(budgets.values()):
        spent = ", ".join(f"{name} {value:,.0f}" for name, value in budgets.items())
        notes.append(f"unequal budgets: more than 10 % apart in {plural(amount)} of a run: {spent}")
    tests = {(run.score.episodes, run.score.block) for run in runs if run.score}
    if len(tests) > 1:
        sets = ", ".join(f"{counted(episodes, 'episode')} of block {block}" for episodes, block in sorted(tests))
        notes.append(f"not all champions are tested on the same episodes: {sets}")
    return notes


def no_better_than_random(methods: Sequence[Method], players: Mapping[str, float]) -> list[str]:
    """Return a sentence that names the methods whose mean is not above the random player's; `players` are means."""
    chance = players.get(RANDOM)
    names = [] if chance is None else [one.name for one in methods if one.mean is not None and one.mean <= chance]
    if not names:
        return []
    *others, last = names
    who = f"{', '.join(others)} and {last}" if others else last
    verb, which = ("do", "they have") if others else ("does", "it has")
    above = f"{who} {verb} not score above the random player ({chance:z.2f})"
    return [f"{above}: nothing shows that {which} learned the game"]
