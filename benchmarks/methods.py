"""Seven methods on five games: `python -m benchmarks.methods` trains what is missing, and writes docs/results.

They are compared with equal processor time, and again with equal frames. Each game is a comparison of its own. The
command may be interrupted, and goes on where it was; a larger budget in a comparison's file goes on with the same runs.
Every comparison has a page of tables, and docs/results/README.md one table of all for each budget.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "results"
BEGIN, END = "<!-- {}, written by `python -m benchmarks.methods` -->\n", "<!-- end -->"
BUDGETS = {"methods": "equal time", "frames": "equal frames"}  # by what their files' names begin with
GAMES = {
    "snake_6x6": "Snake, 6 x 6",
    "snake": "Snake, 10 x 10",
    "breakout": "Breakout",
    "asterix": "Asterix",
    "acrobot": "Acrobot",
}
METHODS = {
    "sep_cma_es": "separable CMA-ES",
    "ga": "genetic algorithm",
    "cma_es": "CMA-ES",
    "ppo": "PPO",
    "a2c": "A2C",
    "dqn": "DQN",
    "pqn": "PQN",
}


def compared(budget: str, game: str) -> dict[str, Any]:
    """Train what is missing of a game's comparison, write its page, and return its table."""
    words = (f"experiments/comparisons/{budget}_{game}.toml", "--workers", "1")
    page = PAGES / f"{game}{'' if budget == 'methods' else f'_{budget}'}.md"
    command = [sys.executable, "-m", "evo", "compare", *words, "--output", str(page), "--json"]
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    heading = f"# {GAMES[game]}, {BUDGETS[budget]}\n\n"
    about = f"`python -m evo compare {words[0]} --workers 1` ([about](README.md))\n\n"
    page.write_text(heading + about + page.read_text().replace("### ", "## ", 1))
    (table,) = json.loads(process.stdout.splitlines()[-1])["tables"]
    found: dict[str, Any] = table
    return found


def summary(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of all methods on all games, and one of who wins how often."""
    rows = {game: {method["algorithm"]: method for method in table["methods"]} for game, table in tables.items()}
    lines = _grid(["method", *(GAMES[game] for game in tables)])
    for algorithm, name in METHODS.items():
        cells = [_cell(rows[game][algorithm], rows[game].values()) for game in tables]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", *_grid(["pairs that a method wins; loses", *(GAMES[game] for game in tables), "all"])]
    for algorithm, name in METHODS.items():
        counts = [_wins(table, rows[game][algorithm]["name"]) for game, table in tables.items()]
        total = tuple(map(sum, zip(*counts, strict=True)))
        lines.append(f"| {name} | {' | '.join(f'{won}; {lost}' for won, lost in (*counts, total))} |")
    return "\n".join(lines) + "\n"


def _grid(titles: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(titles)} |", f"|---|{'--:|' * (len(titles) - 1)}"]


def _cell(method: Mapping[str, Any], others: Any) -> str:
    low, high = method["ci95"]
    text = f"{method['mean']:z.2f} ({low:z.2f} to {high:z.2f})"
    return f"**{text}**" if method["mean"] == max(other["mean"] for other in others) else text


def _wins(table: Mapping[str, Any], name: str) -> tuple[int, int]:
    pairs = [pair for pair in table["pairs"] if name in (pair["first"], pair["second"]) and pair["winner"]]
    won = sum(pair["winner"] == name for pair in pairs)
    return won, len(pairs) - won


def main() -> None:
    """Train, and write the pages."""
    page = PAGES / "README.md"
    for budget, name in BUDGETS.items():
        tables = {game: compared(budget, game) for game in GAMES}
        begin = BEGIN.format(name)
        before, _, rest = page.read_text().partition(begin)
        page.write_text(before + begin + "\n" + summary(tables) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
