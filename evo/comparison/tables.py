"""The report of a comparison: a table for every league of every environment, with what a reader must know below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from evo.comparison.methods import Method, Pair, judged, method_of, pair_of, possible
from evo.comparison.outcomes import Outcome
from evo.comparison.reaching import Reaching, reaching, score_between
from evo.config.experiment import Experiment, environment_of
from evo.config.sections import plural
from evo.config.toml_text import value_text
from evo.environment import RANDOM
from evo.errors import counted
from evo.training.testing import baselines

APART = 1.1  # frames of which the larger number is more than so many times the smaller are unequal budgets
BASELINE_EPISODES = 100
BASELINE_SECONDS = 1.0  # of processor time for a player


@dataclass(frozen=True)
class Place:
    """Where methods can be compared: one game, and one league."""

    game: str
    league: str

    @property
    def key(self) -> str:
        """Return what differs between places."""
        return f"{self.game}\n{self.league}"


@dataclass(frozen=True)
class Table:
    """The methods of one place."""

    environment: str
    league: str
    methods: tuple[Method, ...]  # by their means, highest first
    pairs: tuple[Pair, ...]
    baselines: dict[str, Any]  # a player's name, and its `evo.training.testing.Baseline`
    reaching: Reaching | None  # what methods spent until they reached a score
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """A whole comparison."""

    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def place_of(experiment: Experiment) -> Place:
    """Return where an experiment's score can be compared."""
    options = experiment.environment
    game = {key: value for key, value in options.scored.items() if key != "id"}
    if sources := environment_of(options).sources:
        game["sources"] = sources[:12]
    return Place(f"{options.id}{_listed(game, ' (', ')')}", _listed(options.league))


def report_of(outcomes: Sequence[Outcome], seconds: float = BASELINE_SECONDS, reach: float | None = None) -> Report:
    """Return the tables, the verdicts and the notes of all runs of a comparison.

    Players that need no learning play for so many seconds of processor time each, and at least two episodes. `reach` is
    the score whose time is shown; None: one between the weakest player and the best method.
    """
    places: dict[Place, dict[str, list[Outcome]]] = {}
    for outcome in outcomes:
        places.setdefault(place_of(outcome.experiment), {}).setdefault(outcome.method, []).append(outcome)
    rows = {place: _sorted(methods) for place, methods in places.items()}
    pairs = [pair_of(*two) for methods in rows.values() for two in combinations(methods, 2)]
    every = [method for methods in rows.values() for method in methods]
    decided = judged(pairs, every)
    tables = []
    for place, methods in rows.items():
        names = {method.name for method in methods}
        found = [outcome for outcomes_of in places[place].values() for outcome in outcomes_of]
        players = _baselines(found, seconds)
        means_of = {name: player.mean for name, player in players.items()}
        score = score_between(methods, means_of) if reach is None else reach
        tables.append(
            Table(
                environment=place.game,
                league=place.league,
                methods=tuple(methods),
                pairs=tuple(pair for pair in decided if pair.first in names),
                baselines=players,
                reaching=None if score is None else reaching(methods, score),
                notes=(*_notes(methods, found), *no_better_than_random(methods, means_of)),
            )
        )
    notes = [sentence] if (sentence := possible(pairs, every)) else []
    if len(tables) > 1:
        notes.append("methods of different tables see or play something else, so they are not compared with each other")
    return Report(tuple(tables), tuple(notes))


def _sorted(methods: dict[str, list[Outcome]]) -> list[Method]:
    rows = [method_of(name, outcomes) for name, outcomes in methods.items()]
    return sorted(rows, key=lambda row: (row.mean is None, -(row.mean or 0.0), row.name))


def _baselines(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """Return the scores of players that need no learning, on the first test episodes that most runs were tested on."""
    blocks = [outcome.score.block for outcome in outcomes if outcome.score] or [outcomes[0].experiment.test.block]
    block = max(sorted(set(blocks)), key=blocks.count)
    environment = environment_of(outcomes[0].experiment.environment)
    return dict(baselines(environment, BASELINE_EPISODES, block, seconds))


def _notes(methods: Sequence[Method], outcomes: Sequence[Outcome]) -> list[str]:
    """Return what a reader must know before comparing these methods."""
    notes, counted_in = [], _counted_in(outcomes)
    for outcome in outcomes:
        name = f"{outcome.method} seed {outcome.seed}"
        if outcome.score is None:
            notes.append(f"{name} is missing, and in no mean: {outcome.failure}")
        elif outcome.remark:
            notes.append(f"{name} had not ended: {outcome.remark}")
    for method in methods:
        if len(method.scores) == 1:
            notes.append(f"{method.name}: one seed: no interval, proves little")
        amounts = [vars(run)[counted_in] for run in method.runs if run.score is not None]
        if amounts and None not in amounts and max(amounts) > APART * min(amounts):
            difference = f"unequal numbers of {plural(counted_in)}, {min(amounts):,.0f} to {max(amounts):,.0f}"
            notes.append(f"{method.name}: its runs have {difference}")
    budgets = {method.name: vars(method)[counted_in] for method in methods if vars(method)[counted_in] is not None}
    if budgets and max(budgets.values()) > APART * min(budgets.values()):
        spent = ", ".join(f"{name} {amount:,.0f}" for name, amount in budgets.items())
        notes.append(f"unequal budgets: more than 10 % apart in {plural(counted_in)} of a run: {spent}")
    tests = {(outcome.score.episodes, outcome.score.block) for outcome in outcomes if outcome.score}
    if len(tests) > 1:
        sets = ", ".join(f"{counted(episodes, 'episode')} of block {block}" for episodes, block in sorted(tests))
        notes.append(f"not all champions are tested on the same episodes: {sets}")
    return notes


def no_better_than_random(methods: Sequence[Method], players: Mapping[str, float]) -> list[str]:
    """Return a sentence that names the methods whose mean is not above the random player's; `players` are means."""
    chance = players.get(RANDOM)
    if chance is None:
        return []
    names = [method.name for method in methods if method.mean is not None and method.mean <= chance]
    if not names:
        return []
    *others, last = names
    who = f"{', '.join(others)} and {last}" if others else last
    verb, which = ("do", "they have") if others else ("does", "it has")
    above = f"{who} {verb} not score above the random player ({chance:z.2f})"
    return [f"{above}: nothing shows that {which} learned the game"]


def _counted_in(outcomes: Sequence[Outcome]) -> str:
    """Return which amount is to be equal: that of the runs' budget if it is one, else frames."""
    limits = {name for outcome in outcomes for name in outcome.experiment.run.budget.limits()}
    return limits.pop() if len(limits) == 1 else "frames"


def _listed(options: dict[str, Any], before: str = "", after: str = "") -> str:
    listed = ", ".join(
        f"{key} {value if isinstance(value, str) else value_text(value)}" for key, value in options.items()
    )
    return f"{before}{listed}{after}" if listed else ""
