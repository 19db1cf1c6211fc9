"""Rate champions and baselines of a game of several players."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.cli.arguments import add, refuse_others, whole
from evo.errors import counted, notice, printable_lines

if TYPE_CHECKING:
    from evo.comparison.league import League


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "what", nargs="+", metavar="RUN_DIR | CHAMPION.h5 | GAME:BASELINE",
        help="a run (its champion plays), a champion's file, or a baseline of a game, as in connect_four:minimax_4",
    )  # fmt: skip
    episodes = "test episodes that each pair plays from every seat (default: 200)"
    parser.add_argument("--episodes", metavar="N", help=episodes)
    parser.add_argument("--block", metavar="N", help="which block of a million test episodes (default: 0)")
    opening = "random moves at the start of an episode, the same from every seat (default: 0)"
    parser.add_argument("--opening", metavar="N", help=opening)
    add(parser, "--mode")
    add(parser, "--set", metavar="environment.KEY=VALUE", help="change an option of the game; may be repeated")
    parser.add_argument("--page", metavar="FILE.html", help="write a page with the ratings and some games")
    add(parser, "--plugin", "--json")


def main(arguments: Namespace) -> tuple[int, object]:
    """Play all pairs, and print the ratings."""
    from dataclasses import asdict

    from evo.cli.terminal.display import show_in_place
    from evo.comparison.league import EPISODES, MOST_OPENING, league, round_robin_of
    from evo.files.durable import destination
    from evo.report.comparison import league_page
    from evo.report.html import write_page
    from evo.store.champion import BLOCK, LAST_BLOCK

    page = None if arguments.page is None else destination("--page", arguments.page, (".html", ".htm"))
    refuse_others(map(Path, arguments.what))
    games = round_robin_of(arguments.what, arguments.set)
    found = league(
        games,
        episodes=whole("--episodes", arguments.episodes, 2, BLOCK) or EPISODES,
        block=whole("--block", arguments.block, 0, LAST_BLOCK) or 0,
        opening=whole("--opening", arguments.opening, 0, MOST_OPENING) or 0,
        mode=arguments.mode,
        progress=show_in_place(),
    )
    print(printable_lines(text(found)))
    if page is not None:
        notice(f"page: {write_page(league_page(games, found), page)}")
    return 0, asdict(found)


def text(found: League) -> str:
    """Return ratings, payoffs, pairs and cycles as lines."""
    from evo.comparison.formats import sentence
    from evo.report.comparison import cycle_lines

    names = [f"{number} {one.name}" for number, one in enumerate(found.players, 1)]
    heads = ["points in %", *(str(number) for number in range(1, len(names) + 1))]
    payoffs = [heads, *([name, *row] for name, row in zip(names, found.payoffs(), strict=True))]
    ratings, pairs = ([grid.titles, *grid.cells] for grid in found.grids())
    head = f"{found.game}: {counted(found.episodes, 'test episode')} of block {found.block} from each seat\n"
    tables = [_aligned(ratings, 1), _aligned(payoffs, 1), _aligned(pairs, 2)]
    return "\n".join([head, *tables, *cycle_lines(found), *map(sentence, found.notes)])


def _aligned(rows: list[list[str]], words: int) -> str:
    """Return rows as lines with an empty one below; the first `words` columns are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = "<" * words + ">" * (len(widths) - words)
    lines = ("  ".join(map("{:{}{}}".format, row, sides, widths)).rstrip() for row in rows)
    return "\n".join([*lines, ""])
