"""A league: players of one game meet in all pairs and from all seats, and are rated by the points that they win."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.comparison.formats import Column, Grid
from evo.config.experiment import Experiment
from evo.environment import RANDOM
from evo.errors import (
    ConfigurationError,
    DataError,
    counted,
    did_you_mean,
    require_assignments,
    require_callable,
    require_integer,
)
from evo.files.layout import distinguished
from evo.numbers import UNKNOWN, number, percentage
from evo.plugins import registry
from evo.randomness.streams import seeds_of_test_episodes
from evo.rollouts.action_rules import RULES
from evo.rollouts.seatings import RANDOM_MOVES, Seated, SeatPlayer, play_seats
from evo.statistics import Interval, cycles, mean_interval, ratings
from evo.store.champion import BLOCK, LAST_BLOCK
from evo.store.run import Run
from evo.store.sandbox import reading_several

EPISODES = 200  # of a pair, from each seat, unless asked for another number
MOST_OPENING = 1000  # moves
FEW = 10  # games of a pair that differ, up to which a reader should know it
MODES = {"greedy": "greedy", "sample": "softmax"}  # rules of action
Player = str | Path | Run


@dataclass(frozen=True)
class Rated:
    """A player and its rating on the scale of Elo; the mean of a league is 0."""

    name: str
    rating: float
    ci95: Interval  # 95 % interval of the rating
    points: float  # share of all that it could win, 0 to 1; a draw is half a point


@dataclass(frozen=True)
class Meeting:
    """What two players did against each other; all is said of the first."""

    first: str
    second: str
    games: int  # that they played
    wins: int
    draws: int
    losses: int
    mean: float  # return of an episode
    points: float  # share of the points, 0 to 1; a draw is half a point
    ci95: Interval  # 95 % interval of that share
    different: int  # games that are left where those with the same moves count once


@dataclass(frozen=True)
class League:
    """The result of `league`: ratings, the best player first, and all pairs."""

    game: str
    episodes: int  # of a pair, from each seat
    block: int  # which million of test episodes, from 0
    opening: int  # moves at random
    mode: str  # "greedy" or "sample"
    players: tuple[Rated, ...]  # the best first
    meetings: tuple[Meeting, ...]  # of all pairs
    cycles: tuple[tuple[str, str, str], ...]  # each beats the next one, and the last one the first
    notes: tuple[str, ...]  # what a reader must know, a line each

    def payoffs(self) -> Iterator[list[str]]:
        """Yield a row of the payoff matrix for each player, as text: its points in % against every player, in order."""
        points = {(one.first, one.second): one.points for one in self.meetings}
        points |= {(second, first): 1 - share for (first, second), share in points.items()}
        for one in self.players:
            shares = (points.get((one.name, other.name)) for other in self.players)
            yield [UNKNOWN if share is None else percentage(share) for share in shares]

    def grids(self) -> list[Grid]:
        """Return the ratings and the pairs as tables."""
        return [Grid(RATINGS, self.players), Grid(MEETINGS, self.meetings, "Pairs")]


@dataclass(frozen=True)
class RoundRobin:
    """The players of a league, and the game that they play."""

    experiment: Experiment
    players: Sequence[SeatPlayer]

    @property
    def names(self) -> list[str]:
        """Return the names of the players."""
        return [one.name for one in self.players]

    @cached_property
    def environment(self) -> Any:
        """Return the game."""
        return self.experiment.make_environment()

    def seatings(self, first: int, second: int) -> NDArray[np.int64]:
        """Return who has which seat: one player has one seat, and the other one all others.  # [S, players]"""
        seats = self.environment.players
        alone = [[one if seat == mine else other for seat in range(seats)]
                 for one, other in ((first, second), (second, first)) for mine in range(seats)]  # fmt: skip
        return np.array(alone[:2] if seats == 2 else alone, np.int64)

    def play(
        self, first: int, second: int, seeds: NDArray[np.uint64], opening: int = 0, mode: str = "greedy"
    ) -> tuple[NDArray[np.int64], Seated]:
        """Play seeds [E] in all seatings, seed by seed; return who sat where, and the results.  # [E S, players]"""
        seating = np.tile(self.seatings(first, second), (len(seeds), 1))
        each = np.repeat(seeds, len(seating) // len(seeds))
        rule = RULES[MODES[mode]]
        return seating, play_seats(self.environment.game, self.players, seating, each, opening, rule)


@reading_several()
def round_robin_of(players: Sequence[Player], sets: Sequence[str] = ()) -> RoundRobin:
    """Return the round robin of run directories, champions' files, `Run`s, and GAME:BASELINE; `sets` as --set.

    ConfigurationError: a baseline is unknown, players are of different games, one is named twice, or the game has one
    player. DataError: a run or a champion is missing or damaged.
    """
    require_assignments(sets)
    runs = {place: _run(one) for place, one in enumerate(players) if not is_baseline(one)}
    named = dict(zip(runs, distinguished([run.directory for run in runs.values()]), strict=True))
    names = [named.get(place, str(one)) for place, one in enumerate(players)]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigurationError(f"{name}: is named twice; leave one out")
        game, known = name.partition(":")[0], registry.names("environments")
        if place not in runs and game not in known:
            meant = did_you_mean(game, known)
            raise ConfigurationError(f"{name}: there is no file of this name, and no game {game}{meant}")
    experiments = {place: run.with_environment(sets) if sets else run.config for place, run in runs.items()}
    first = min(runs, default=0)
    if not runs:
        only = {"id": names[0].partition(":")[0]}
        linear = {"kind": "linear"}  # takes observations of any shape
        experiments[first] = Experiment.build(environment=only, policy=linear).with_environment(sets)
    experiment = experiments[first]
    if experiment.make_environment().players == 1:
        raise ConfigurationError(
            f"{names[first]}: {experiment.environment.id} is a game of one player, and a game of several is needed; "
            "evo compare compares runs of one"
        )
    ours = _rules(experiment)
    for place, name in enumerate(names):
        theirs = _rules(experiments[place]) if place in experiments else {"id": name.partition(":")[0]}
        if differs := [
            f"{key} {value}, not {ours.get(key)}" for key, value in theirs.items() if value != ours.get(key)
        ]:
            raise ConfigurationError(f"{name}: plays another game than {names[first]}: {'; '.join(differs)}")
    return RoundRobin(
        experiment,
        [_network_player(name, runs[place]) if place in runs else baseline_of(experiment, name)
         for place, name in enumerate(names)],
    )  # fmt: skip


def baseline_of(experiment: Experiment, name: str) -> SeatPlayer:
    """Return a baseline of the game, named as GAME:BASELINE; ConfigurationError where there is none of this name."""
    environment: Any = experiment.make_environment()
    known = [RANDOM, *environment.definition.baselines_of(experiment.environment)]
    wanted = name.rpartition(":")[2]
    if wanted not in known:
        meant = did_you_mean(wanted, known) or f" (there are {', '.join(known)})"
        raise ConfigurationError(f"{name}: {experiment.environment.id} has no baseline {wanted}{meant}")
    return SeatPlayer(name, RANDOM_MOVES - known.index(wanted))


RATINGS = (
    Column("player", lambda one: one.name),
    Column("rating", lambda one: f"{one.rating:+.0f}", "on the scale of Elo; the mean of all players is 0"),
    Column("95 %", lambda one: f"{one.ci95[0]:+.0f} to {one.ci95[1]:+.0f}", "interval of the rating"),
    Column("points", lambda one: f"{percentage(one.points)} %", "share of all points, with a draw as half"),
)
MEETINGS = (
    Column("first", lambda one: one.first),
    Column("second", lambda one: one.second),
    Column("won", lambda one: f"{one.wins:,}", "games that the first wins"),
    Column("drawn", lambda one: f"{one.draws:,}"),
    Column("lost", lambda one: f"{one.losses:,}"),
    Column("mean", lambda one: number(one.mean), "mean return of the first"),
    Column("points", lambda one: f"{percentage(one.points)} %", "share of the points of the first"),
    Column("95 %", lambda one: " to ".join(map(percentage, one.ci95)) + " %", "interval of the points"),
)


def league(
    players: Sequence[Player] | RoundRobin,
    *,
    episodes: int = EPISODES,
    block: int = 0,
    opening: int = 0,
    mode: str = "greedy",
    sets: Sequence[str] = (),
    progress: Callable[[str], object] | None = None,
) -> League:
    """Have all pairs of players play test episodes of a block from every seat, and rate the players on Elo's scale.

    `players` are run directories, files of champions, `Run`s, or baselines as GAME:BASELINE. The first `opening` moves
    of an episode are drawn at random. `mode` says how networks choose: "greedy", or "sample" as in training. `progress`
    gets a line before each pair. ConfigurationError: an argument is wrong, or players are of different games or of a
    game of one. DataError: a run or a champion is missing or damaged.
    """
    require_callable(progress)
    require_integer("episodes", episodes, 2, BLOCK)
    require_integer("block", block, 0, LAST_BLOCK)
    require_integer("opening", opening, 0, MOST_OPENING)
    if mode not in MODES:
        raise ConfigurationError(f"mode: must be {' or '.join(MODES)}, not {mode!r:.40}")
    named = players.players if isinstance(players, RoundRobin) else players
    if not isinstance(named, list | tuple) or len(named) < 2:
        raise ConfigurationError("a league needs two players or more: runs, champion files, or GAME:BASELINE")
    games = players if isinstance(players, RoundRobin) else round_robin_of(players, sets)
    count, names = len(games.players), games.names
    seeds = seeds_of_test_episodes(episodes, block * BLOCK)
    shares, meetings = np.full((count, count, episodes), 0.5), list[Meeting]()
    beats = np.zeros((count, count), np.bool_)
    for place, (first, second) in enumerate(pairs := list(combinations(range(count), 2)), 1):
        if progress is not None:
            progress(f"pair {place} of {len(pairs)}: {names[first]} and {names[second]}")
        seating, seated = games.play(first, second, seeds, opening, mode)
        points, mean = _points(seating, seated, first)
        shares[first, second] = points.reshape(episodes, -1).mean(axis=1)
        shares[second, first] = 1 - shares[first, second]
        share, (low, high) = mean_interval(shares[first, second].tolist(), (0.0, 1.0))
        beats[first, second], beats[second, first] = low > 0.5, high < 0.5
        wins, losses = int((points == 1).sum()), int((points == 0).sum())
        meetings.append(
            Meeting(
                names[first], names[second], len(points), wins, len(points) - wins - losses, losses, mean, share,
                (low, high), len(np.unique(np.concatenate([seating.T.astype(np.int8), seated.actions]), axis=1).T),
            )
        )  # fmt: skip
    order = sorted(
        (Rated(name, rating, interval, float(points)) for name, (rating, interval), points in zip(
            names, ratings(shares), (shares.mean(axis=2).sum(axis=1) - 0.5) / (count - 1), strict=True)),
        key=lambda one: -one.rating,
    )  # fmt: skip
    around = tuple((names[a], names[b], names[c]) for a, b, c in cycles(beats))
    title = games.experiment.environment.title()
    notes = tuple(_notes(meetings, opening))
    return League(title, episodes, block, opening, mode, tuple(order), tuple(meetings), around, notes)


def _points(seating: NDArray[np.int64], seated: Seated, first: int) -> tuple[NDArray[np.float64], float]:
    """Return the points of player `first` in every episode, 1, 0.5 or 0, and its mean return."""
    mine = seating == first  # [B, players]
    ours = np.where(mine, seated.returns, -np.inf).max(axis=1)
    theirs = np.where(mine, -np.inf, seated.returns).max(axis=1)
    mean = float((seated.returns * mine).sum() / mine.sum())
    return (np.sign(ours - theirs) + 1) / 2, mean


def _notes(meetings: Sequence[Meeting], opening: int) -> list[str]:
    advice = "" if opening else "; more do with --opening N, which draws the first N moves at random"
    return [
        f"only {counted(one.different, 'game')} of {one.games} between {one.first} and {one.second} differ{advice}"
        for one in meetings
        if one.different <= FEW and 2 * one.different < one.games
    ]


def is_baseline(player: Player) -> bool:
    """Return whether a player is GAME:BASELINE."""
    return isinstance(player, str) and ":" in player and not Path(player).exists()


def _run(player: Player) -> Run:
    return player if isinstance(player, Run) else Run(player, flags={"backend": "serial"})


def _rules(experiment: Experiment) -> dict[str, Any]:
    """Return the options of a game, without those of training and of opponents."""
    return {name: value for name, value in experiment.environment.scored.items() if name != "opponents"}


def _network_player(name: str, run: Run) -> SeatPlayer:
    weights = run.champion.weights
    if not np.isfinite(weights).all():
        raise DataError(f"{name}: some weights of the champion are not finite, so it cannot play")
    return SeatPlayer(name, 0, run.config.network(), weights)
