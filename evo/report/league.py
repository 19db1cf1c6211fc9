"""The page about a league: ratings, the payoff matrix, cycles, games; and the rating over time of a run of players."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from evo.comparison.formats import Grid, sentence
from evo.comparison.league import League, Rated, RoundRobin, baseline_of, league
from evo.errors import counted
from evo.randomness.streams import seeds_of_test_episodes
from evo.report import html
from evo.report.charts import rounded
from evo.report.html import Chart, Markup, breakable, element, quiet
from evo.report.replays import MOST_STEPS, packed
from evo.rollouts.seatings import SeatPlayer
from evo.store.run import Run
from evo.training.opponents import HALL, SINCE
from evo.training.testing import BLOCK

SHOWN = 6  # games
CHAMPIONS, EPISODES = 8, 16  # that play for a rating over time, evenly spread; episodes of a pair, from each seat
BAR, LEFT, WIDTH = 22, 220, 640  # pixels: height of a player's line, its name, all of it


def write_league_page(games: RoundRobin, league: League, path: Path) -> Path:
    """Write the page, whole or not at all; ResourceError where that fails."""
    return html.write_page(league_page(games, league), path)


def league_page(games: RoundRobin, league: League) -> bytes:
    """Return the whole file."""
    first, *_ = league.players
    how = f"{counted(league.episodes, 'test episode')} of block {league.block} from each seat"
    opening = f", the first {counted(league.opening, 'move')} at random" if league.opening else ""
    ratings, pairs = league.grids()
    replays, names = list(_games(games, league)), [breakable(one.name) for one in league.players]
    payoffs = [[name, *row] for name, row in zip(names, league.payoffs(), strict=True)]
    body = html.joined([
        element(
            "header",
            element("h1", f"League of {counted(len(league.players), 'player')}"),
            element("p", breakable(f"{first.name} has the highest rating in {league.game}, {first.rating:+.0f}."),
                    class_="verdict"),
            element("p", f"Each pair played {how}{opening}."),
            *(element("p", breakable(line)) for line in cycle_lines(league)),
            *([element("ul", *(element("li", breakable(sentence(note))) for note in league.notes), class_="notes")]
              if league.notes else []),
        ),
        html.section("Ratings", _chart(league.players), _table(ratings, 1)),
        html.section("Points in % against each player", html.table(["", *names], payoffs, range(1, 1 + len(names)),
                                                                   class_="methods")),
        html.section("Pairs", _table(pairs, 2)),
        *([html.section("Games", quiet("The first of the test episodes of some pairs."),
                        element("div", id="replays"))] if replays else []),
    ])  # fmt: skip
    data = {"runs": [], "charts": [], "replays": replays}
    return html.whole_page(f"League in {league.game}", body, data, ("replays.js",))


def cycle_lines(league: League) -> list[str]:
    """Return a sentence for every cycle, or one that there is none."""
    found = [f"A cycle: {a} beats {b}, {b} beats {c}, and {c} beats {a}." for a, b, c in league.cycles]
    return found or (["There is no cycle of three players."] if len(league.players) > 2 else [])


def _table(grid: Grid, words: int) -> Markup:
    """Return a table whose first `words` columns are not numbers, with what the others mean."""
    rows = [[breakable(cell) for cell in row] for row in grid.cells]
    means = (element("li", element("b", title), f": {meaning}") for title, meaning in grid.meanings.items())
    explained = html.details("What the columns mean", element("ul", *means))
    return html.joined([html.table(grid.titles, rows, range(words, len(grid.columns)), class_="methods"), explained])


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
    found = {
        one.name: one for one in league(RoundRobin(run.config, [*champions, *baselines]), episodes=EPISODES).players
    }
    rated = [found[one.name] for one in champions]
    series = {
        "label": "champion", "colour": 0, "dash": 0, "x": generations, "values": [rounded(one.rating) for one in rated],
        "low": [rounded(one.ci95[0]) for one in rated], "high": [rounded(one.ci95[1]) for one in rated],
    }  # fmt: skip
    levels = [{"label": one.name, "value": rounded(found[one.name].rating)} for one in baselines]
    return {"kind": "lines", "series": [series], "levels": levels, "across": "generation", "y": "rating"}
