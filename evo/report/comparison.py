"""The pages about a comparison: who wins, tables, scores against every budget; and of a league: ratings and games."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from evo.comparison.formats import PAIRS, REACHED, Grid, grids, sentence
from evo.comparison.league import League, Rated, RoundRobin, baseline_of, league
from evo.comparison.methods import TOO_FEW, UNDECIDED, Plot, ahead, plots
from evo.comparison.tables import Comparison, Table, no_better_than_random
from evo.errors import counted
from evo.numbers import interval, number
from evo.randomness.streams import seeds_of_test_episodes
from evo.report import html
from evo.report.charts import rounded
from evo.report.html import Chart, Drawn, Markup, breakable, element, quiet
from evo.report.replays import MOST_STEPS, packed
from evo.rollouts.seatings import SeatPlayer
from evo.store.champion import BLOCK
from evo.store.run import Run
from evo.training.opponents import HALL, SINCE

COLOURS, DASHES = 8, 3  # of lines
PLAYERS = ("player that needs no learning", "mean score", "95 %", "episodes")
SHOWN = 6  # games
CHAMPIONS, EPISODES = 8, 16  # that play for a rating over time, evenly spread; episodes of a pair, from each seat
BAR, LEFT, WIDTH = 22, 220, 640  # pixels: height of a player's line, its name, all of it


def write_comparison_page(comparison: Comparison, path: Path) -> Path:
    """Write the page, whole or not at all; ResourceError where that fails."""
    return html.write_page(comparison_page(comparison), path)


def comparison_page(comparison: Comparison) -> bytes:
    """Return the whole file."""
    names, drawn = [method.name for one in comparison.tables for method in one.methods], Drawn()
    body = html.joined([_header(comparison, len(names)), *(_section(one, drawn) for one in comparison.tables)])
    data = {"runs": [], "charts": drawn.charts, "replays": []}
    return html.whole_page(f"Comparison of {', '.join(names[:4])}", body, data, html.CHARTS)


def _header(comparison: Comparison, methods: int) -> Markup:
    alone = "There is only one method, so there is nothing to compare."
    if methods > 1:
        alone = "No two of these methods see and play the same, so they are not compared with each other."
    first, *others = [found for one in comparison.tables for found in verdicts(one)] or [alone]
    for one in comparison.tables:
        players = {name: player.mean for name, player in one.baselines.items()}
        others += map(sentence, no_better_than_random(one.methods, players))
    notes = [breakable(sentence(note)) for note in comparison.notes]
    return html.header(f"{counted(methods, 'method')} compared", breakable(first), map(breakable, others), notes)


def _section(one: Table, drawn: Drawn) -> Markup:
    parts: list[object] = []
    for grid in grids(one):
        pairs, words = grid.columns is PAIRS, 2 if grid.columns is REACHED else 1
        long = " long" if any(len(cell) > html.LONGEST for row in grid.cells for cell in row[:2]) else ""
        drawn_grid = _table(grid, len(grid.columns) if pairs else words, f"methods{' pairs' * pairs}{long}")
        parts += [element("h3", grid.heading) if grid.heading else "", drawn_grid, quiet(grid.remark)]
        if grid.rows is one.methods and one.notes:
            parts.append(element("ul", *(element("li", breakable(note), ".") for note in one.notes)))
    levels = [{"label": name, "value": rounded(player.mean)} for name, player in one.baselines.items()]
    parts.append(element("h3", "Score against what was spent"))
    for plot in plots(one.methods):
        chart = lines(one, plot) if plot.curves else None
        if chart and plot.up == "test score":
            chart["levels"] = levels
        parts.append(drawn.figure(chart, plot.title, plot.about))
    if one.baselines:
        rows = [
            (name, number(player.mean), interval(player.ci95), f"{player.episodes:,}")
            for name, player in one.baselines.items()
        ]
        parts += [element("h3", "Baselines"), html.table(PLAYERS, rows, numbers=(1, 2, 3))]
    return html.section(one.title, *parts)


def _table(grid: Grid, words: int, kind: str = "methods") -> Markup:
    """Return a table whose first `words` columns are not numbers, with what the others mean."""
    rows = [[breakable(cell) for cell in row] for row in grid.cells]
    table = html.table(grid.titles, rows, range(words, len(grid.columns)), class_=kind)
    means = [element("li", element("b", title), f": {meaning}") for title, meaning in grid.meanings.items()]
    return html.joined([table, *([html.details("What the columns mean", element("ul", *means))] if means else [])])


def verdicts(one: Table) -> Iterator[str]:
    """Yield a sentence about every method that wins over others, or one that says why none does."""
    beaten: dict[str, list[str]] = {}
    reasons: dict[str, list[str]] = {}
    for pair in one.pairs:
        reasons.setdefault(pair.verdict, []).append(f"{pair.first} and {pair.second}")
        if pair.winner is not None:
            beaten.setdefault(pair.winner, []).append(pair.second if pair.winner == pair.first else pair.first)
    if one.pairs and not beaten:
        parts = [f"{', '.join(pairs)}: {reason}" for reason, pairs in reasons.items()]
        text = "; ".join(parts) if len(parts) > 1 else next(iter(reasons))
        if UNDECIDED in reasons:
            yield f"No winner is proven on {one.environment}: {text}."
        else:
            name = ahead(one.methods)
            reason = f"{text.removeprefix(f'{TOO_FEW}: ')}{f'; {name} is ahead on every seed' if name else ''}"
            yield f"Too few seeds to name a winner on {one.environment}: {reason}."
    means = {method.name: f"{method.name} ({number(method.mean)})" for method in one.methods}
    for winner, losers in beaten.items():
        yield f"{means[winner]} wins over {', '.join(means[loser] for loser in losers)} on {one.environment}."


def lines(one: Table, plot: Plot) -> Chart:
    """Return a chart of means with their intervals, a method in the same colour in all charts."""
    series, names = [], [method.name for method in one.methods]
    for curve in plot.curves:
        place = names.index(curve.method)
        known = bool(np.isfinite(curve.low).all() and np.isfinite(curve.high).all())
        series.append({
            "label": f"{curve.method} ({counted(curve.seeds, 'seed')})",
            "colour": place, "dash": place // COLOURS % DASHES,
            "x": _listed(curve.x), "values": _listed(curve.mean),
            "low": _listed(curve.low) if known else None, "high": _listed(curve.high) if known else None,
        })  # fmt: skip
    return {"kind": "lines", "series": series, "across": plot.across, "y": plot.up}


def _listed(values: np.ndarray) -> list[float | None]:
    return [rounded(value) for value in values.tolist()]


def league_page(games: RoundRobin, league: League) -> bytes:
    """Return the whole file."""
    first, *_ = league.players
    how = f"{counted(league.episodes, 'test episode')} of block {league.block} from each seat"
    opening = f", the first {counted(league.opening, 'move')} at random" if league.opening else ""
    ratings, pairs = league.grids()
    replays, names = list(_games(games, league)), [breakable(one.name) for one in league.players]
    payoffs = [[name, *row] for name, row in zip(names, league.payoffs(), strict=True)]
    body = html.joined([
        html.header(
            f"League of {counted(len(league.players), 'player')}",
            breakable(f"{first.name} has the highest rating in {league.game}, {first.rating:+.0f}."),
            [f"Each pair played {how}{opening}.", *map(breakable, cycle_lines(league))],
            [breakable(sentence(note)) for note in league.notes],
        ),
        html.section("Ratings", _chart(league.players), _table(ratings, 1)),
        html.section("Points in % against each player", html.table(["", *names], payoffs, range(1, 1 + len(names)),
                                                                   class_="methods")),
        html.section("Pairs", _table(pairs, 2)),
        *([html.section("Games", quiet("The first of the test episodes of some pairs."),
                        element("div", id="replays"))] if replays else []),
    ])  # fmt: skip
    data = {"runs": [], "charts": [], "replays": replays}
    return html.whole_page(f"League in {league.game}", body, data, html.REPLAYS)


def cycle_lines(league: League) -> list[str]:
    """Return a sentence for every cycle, or one that there is none."""
    found = [f"A cycle: {a} beats {b}, {b} beats {c}, and {c} beats {a}." for a, b, c in league.cycles]
    return found or (["There is no cycle of three players."] if len(league.players) > 2 else [])


def _chart(players: tuple[Rated, ...]) -> Markup:
    low, high = min(one.ci95[0] for one in players), max(one.ci95[1] for one in players)

    def x(value: float) -> str:
        return f"{LEFT + 10 + (value - low) / (high - low) * (WIDTH - LEFT - 20):.1f}"

    parts = []
    for place, one in enumerate(players):
        y, line = place * BAR + BAR // 2, "stroke: var(--c0); stroke-width: 2"
        parts += [
            element("text", one.name, x=0, y=y + 4, style="fill: var(--ink); font-size: 12px"),
            element("line", x1=x(one.ci95[0]), x2=x(one.ci95[1]), y1=y, y2=y, style=line),
            element("circle", cx=x(one.rating), cy=y, r=4, style="fill: var(--c0)"),
        ]
    box = f"0 0 {WIDTH} {len(players) * BAR}"
    return element("svg", *parts, viewBox=box, role="img", aria_label="Ratings with intervals at 95 %")


def _games(games: RoundRobin, league: League) -> Iterator[dict[str, Any]]:
    """Yield games of players that follow each other in rating, for `replays.js`; none where nothing is drawn."""
    environment, names = games.environment, [one.name for one in league.players]
    seeds = seeds_of_test_episodes(1, league.block * BLOCK)
    for first, second in pairwise(names[: SHOWN + 1]):
        pair = games.names.index(first), games.names.index(second)
        seating, seated = games.play(*pair, seeds, league.opening, league.mode)
        moves = seated.moves(0)
        if environment.visible and len(moves) <= MOST_STEPS:
            shown, score = environment.replayed(int(seeds[0]), moves.tolist())
            seats = ", ".join(f"{games.names[player]} in seat {seat}" for seat, player in enumerate(seating[0]))
            returns = " to ".join(f"{value:g}" for value in seated.returns[0])
            yield {"label": f"{seats}: {returns}", "score": score, "steps": len(moves), **packed(shown)}


def rating_over_time(run: Run) -> Chart | None:
    """Return ratings of a hall's champions over generations, in a league with the baselines; None: it has no two."""
    state = run.store.load() if run.store.next_generation else {}
    hall, since, network = state.get(HALL), state.get(SINCE), run.config.network()
    if hall is None or since is None or hall.shape != (len(since), network.size):
        return None
    own = np.flatnonzero(np.asarray(since, np.int64) >= 0)  # without networks of files
    if len(own) < 2:
        return None
    last, count = len(own) - 1, min(CHAMPIONS, len(own))
    rows = [int(own[k * last // (count - 1)]) for k in range(count)]
    generations = [int(since[row]) + 1 for row in rows]
    champions = [SeatPlayer(str(g), 0, network, hall[row]) for g, row in zip(generations, rows, strict=True)]
    options: Any = run.config.environment
    baselines = [baseline_of(run.config, name) for name in options.opponents.baselines]
    games = RoundRobin(run.config, [*champions, *baselines])
    found = {one.name: one for one in league(games, episodes=EPISODES).players}
    rated = [found[one.name] for one in champions]
    series = {
        "label": "champion", "colour": 0, "dash": 0, "x": generations, "values": [rounded(one.rating) for one in rated],
        "low": [rounded(one.ci95[0]) for one in rated], "high": [rounded(one.ci95[1]) for one in rated],
    }  # fmt: skip
    levels = [{"label": one.name, "value": rounded(found[one.name].rating)} for one in baselines]
    return {"kind": "lines", "series": [series], "levels": levels, "across": "generation", "y": "rating"}
