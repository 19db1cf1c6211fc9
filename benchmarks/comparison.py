"""The table of docs/comparison.md that compares us with others, every cell of it from benchmarks/RESULTS.md.

    python -m benchmarks --comparison

ROWS says which cell comes from where. A row whose peer was not measured is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BEGIN, END = "<!-- comparison: written by `python -m benchmarks` -->", "<!-- end of comparison -->"
COLUMNS = "| task | snake-evo | other | its figure | ratio |\n|---|--:|---|--:|--:|"


@dataclass(frozen=True)
class Row:
    """A comparison: a section of the results, the beginnings of two rows in its first table, and three columns.

    Of several rows of theirs it is the one with the smallest ratio. Those of a task follow one another.
    """

    task: str
    section: str
    ours: str
    theirs: str
    library: str
    columns: tuple[str, str, str]  # of our figure, of theirs, and of the ratio
    note: str = ""  # after the library
    unit: str = ""
    ratio_in_ours: bool = False  # the ratio stands in our row instead of theirs


POPULATION = "Playing a population, compared with other libraries, one core"
USEFUL = ("useful frames/s", "useful frames/s", "ratio")
COMPUTED = ("useful frames/s", "computed/s", "of computed")
DEAP, PPO, GAME = "A generation, compared with DEAP", "Learning with PPO", "The game alone, one core"
DEAP_COLUMNS, PPO_COLUMNS = ("ours, s", "DEAP, s", "ratio"), ("frames/s", "frames/s", "ratio")
RACE, RACE_COLUMNS = "PPO to a mean return of 40", ("seconds", "seconds", "speed-up")
GAME_COLUMNS = ("steps/s", "reference", "ratio")
NETWORKS = {
    "tiny": "27,460 weights, fresh", "tiny, mutated": "27,460 weights, mutated",
    "seed": "1.18 million weights, fresh", "seed, mutated": "1.18 million weights, mutated",
}  # fmt: skip


def _population(network: str, library: str, columns: tuple[str, str, str] = USEFUL, note: str = "") -> Row:
    task = f"playing a population, {NETWORKS[network]}, one core, useful frames/s"
    return Row(task, POPULATION, f"{network}, ours ", f"{network}, {library}", library, columns, note)


def _deap(noise: str, note: str) -> Row:
    row, task = f"tiny, 128, {noise}", "one generation of a genetic algorithm, 128 candidates, two workers"
    return Row(task, DEAP, row, row, "DEAP", DEAP_COLUMNS, note, " s")


def _game(player: str, task: str, library: str, note: str = "") -> Row:
    row = f"{player}, planes, 12 x 12, against {library}{note} "
    return Row(
        f"Snake alone, observation planes, 12 x 12, steps/s, {task}", GAME, row, row, library, GAME_COLUMNS, note
    )


LONG = "long snakes (a closed path)"
ROWS = (
    *(_population(network, library) for network in NETWORKS for library in ("EvoTorch", "evosax", "EvoJAX")),
    *(_population(network, "EvoTorch", COMPUTED, ", with frames after the end") for network in NETWORKS),
    _deap("mutGaussian", ", `mutGaussian`"),
    _deap("NumPy noise", ", NumPy noise"),
    Row(
        "PPO, `ppo_snake.toml`, frames/s including learning, both float32", PPO, "as published, ours, float32",
        "as published, Stable-Baselines3", "Stable-Baselines3", PPO_COLUMNS, ratio_in_ours=True,
    ),
    Row(
        "PPO to a mean return of 40, median of five seeds, both float32", RACE, "ours, float32 ", "Stable-Baselines3 ",
        "Stable-Baselines3", RACE_COLUMNS, unit=" s", ratio_in_ours=True,
    ),
    _game("random", "random player", "Jumanji"),
    _game("random", "random player", "Jumanji", ", pooled resets"),
    _game("random", "random player", "EnvPool"),
    _game("closed path", LONG, "Jumanji"),
    _game("closed path", LONG, "Jumanji", ", pooled resets"),
)  # fmt: skip


def comparison(results: str) -> str:
    """Return the table as Markdown, from the text of RESULTS.md."""
    lines: dict[str, list[list[str]]] = {}
    for row in ROWS:
        table = first_table(results, row.section)
        ours = [cells for name, cells in table.items() if f"{name} ".startswith(row.ours)]
        theirs = [cells for name, cells in table.items() if f"{name} ".startswith(row.theirs)]
        if not ours or not theirs:
            continue
        measured, reference, ratio = row.columns
        if row.ratio_in_ours:
            best, times = theirs[0], ours[0][ratio]
        else:
            best = min(theirs, key=lambda cells: float(cells[ratio].replace(",", "")))
            times = best[ratio]
        other = f"{row.library} {version(results, row.library)}{row.note}"
        cells = [f"{ours[0][measured]}{row.unit}", other, f"{best[reference]}{row.unit}", times]
        lines.setdefault(row.task, []).append(cells)
    written = []
    for task, (first, *others) in lines.items():
        written.append(f"| {' | '.join([task, *first])} |")
        written += [f"| {' | '.join(['', '', *cells[1:]])} |" for cells in others]
    return "\n".join([COLUMNS, *written])


def first_table(results: str, title: str) -> dict[str, dict[str, str]]:
    """Return the first table below a heading: the cells of each row by column, by the row's first cell."""
    _, found, text = results.partition(f"\n## {title}\n")
    rows = re.search(r"(?:^\|.*\|\n)+", text.partition("\n## ")[0], re.MULTILINE) if found else None
    if rows is None:
        return {}
    columns, _, *cells = [[c.strip() for c in line.strip("|").split("|")] for line in rows[0].splitlines()]
    return {row[0]: dict(zip(columns, row, strict=True)) for row in cells}


def version(results: str, library: str) -> str:
    """Return the version of a library in the head of the results, or "?"."""
    found = re.search(rf"\b{library.lower()} (\d[\d.]*\d)", results)
    return found[1] if found else "?"


def replaced(page: str, results: str) -> str:
    """Return the text of docs/comparison.md with its table made anew; ValueError where its marks are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f'docs/comparison.md: needs the lines "{BEGIN}" and "{END}" around its comparison')
    return f"{before}{BEGIN}\n\n{comparison(results)}\n\n{END}{after}"


def write(page: Path, results: Path) -> None:
    """Write the table into docs/comparison.md."""
    text = replaced(page.read_text(encoding="utf-8"), results.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
