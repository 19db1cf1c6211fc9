"""Draw the pictures of the README again: `python -m benchmarks.pictures` trains a small run and shows it in every form.

It takes about two minutes on two cores, and writes into docs/images: `screen.svg`, the live screen of
`experiments/ga_snake_6x6.toml`; `report.png`, the top of that run's report; `page.png`, the champion page of
`champions/ppo_snake_full.h5`; and `champion.gif`, the end of one of its test episodes. PNGs need Chromium and the extra
`browser`.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.browser import chromium, missing, opened
from benchmarks.peers import ROOT
from evo.cli.commands.watch import Champions
from evo.cli.terminal.screen import Screen
from evo.config.experiment import Experiment
from evo.games.pictures import save_film
from evo.run import Row
from evo.store.metrics import MetricsTail
from evo.store.run import Run
from evo.training.testing import playing, record

EXPERIMENT, CHAMPION = ROOT / "experiments" / "ga_snake_6x6.toml", ROOT / "champions" / "ppo_snake_full.h5"
UNTIL = 28  # generations, when the screen is drawn
COLUMNS, LINES = 92, 26
EPISODE, STEPS, STEPS_PER_SECOND = 0, 120, 20  # of the film
SHOTS = {"report.png": (1100, 900), "page.png": (900, 760)}
SOON = 6000  # milliseconds in which a champion has taken some steps
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}</style><defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect width="{width}" height="{height}" rx="10" fill="#14161c"/><g transform="translate({terminal_x}, {terminal_y})"
clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


def draw_screen(directory: Path, file: Path) -> None:
    """Draw what a run of UNTIL generations shows."""
    experiment = Experiment.load(EXPERIMENT)
    console = Console(
        record=True, force_terminal=True, color_system="truecolor", file=io.StringIO(), width=COLUMNS, height=LINES
    )
    champion = Champions(directory, experiment.network()).newer()
    assert champion is not None
    with Screen(console=console) as screen:
        *lines, newest = MetricsTail(directory).read()
        best, chosen = float("-inf"), 0
        for line in [*lines, newest]:
            metrics = {name: value for name, value in line.items() if isinstance(value, int | float)}
            validation = metrics.get("validation", best)
            row = Row(int(line["generation"]), metrics, None, validation > best, directory)
            best, chosen = max(best, validation), row.generation if validation > best else chosen
            if line is newest:
                screen.champion(experiment, champion.weights, chosen)
                time.sleep(8)  # the first episode is some steps old by then
            screen.generation(row, experiment.generations)
        shown = screen.drawn()
    console.export_text(clear=True)
    console.print(shown)
    file.write_text(console.export_svg(code_format=SVG, unique_id="screen"), encoding="utf-8")


def film_champion(file: Path) -> None:
    """Film the end of a test episode."""
    run = Run(CHAMPION, flags={"backend": "serial"})
    environment = run.environment
    with playing(run.config) as (evaluator, published):
        game = record(published.publish(run.champion.weights[None]), evaluator, EPISODE, environment.episode_metrics)
    save_film(file, [shown.rgb() for shown in game.positions(environment)[-STEPS:]], STEPS_PER_SECOND)


def shoot(page: Path, file: Path) -> None:
    """Take a picture of the top of a page, some moments after it was opened."""
    if missing():
        print(f"{missing()}: {file.name} stays as it is")
        return
    with chromium() as browser, opened(browser, page, *SHOTS[file.name]) as (shown, _):
        shown.wait_for_timeout(SOON)
        shown.screenshot(path=file)


def main() -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the README again.")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="folder (default: docs/images)")
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place:
        run, page = Path(place) / "run", Path(place) / "champion.html"
        evo = [sys.executable, "-m", "evo"]
        words = ["run", str(EXPERIMENT), "--run-dir", str(run), "--quiet", "--no-report", "--generations", str(UNTIL)]
        subprocess.run([*evo, *words], check=True, cwd=ROOT)
        draw_screen(run, folder / "screen.svg")
        whole = str(Experiment.load(EXPERIMENT).generations)
        subprocess.run([*evo, "resume", str(run), "--generations", whole, "--quiet"], check=True, cwd=ROOT)
        subprocess.run([*evo, "export", str(CHAMPION), "--to", "html", str(page)], check=True, cwd=ROOT)
        shoot(run / "report.html", folder / "report.png")
        shoot(page, folder / "page.png")
    film_champion(folder / "champion.gif")
    print(*(f"{path.name} {path.stat().st_size // 1000} kB" for path in sorted(folder.iterdir())), sep="\n")


if __name__ == "__main__":
    main()
