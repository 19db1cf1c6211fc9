"""Trains a champion of every game, and writes its page and the table of docs/gallery/README.md.

    .venv/bin/python docs/gallery/write.py [GAME]...

Without games all are written, in about 20 minutes of one core.
"""

import re
import sys
from pathlib import Path

import evo
from evo.cli.main import main, main_run

HERE = Path(__file__).parent
PPO = "ppo_{}.toml --generations 50"
TRAINED = {
    "snake": "ga_snake_6x6.toml",
    "catch": "games/ga_catch.toml",
    "cartpole": "games/ppo_cartpole.toml",
    "acrobot": "games/ga_acrobot.toml",
    "pendulum": "games/ga_pendulum.toml",
    "swingup": "games/ga_swingup.toml",
    "tmaze": "games/ga_tmaze.toml",
    **{name: f"games/{PPO.format(name)}" for name in ("breakout", "asterix", "freeway", "space_invaders")},
    **{name: f"games/ppo_{name}.toml" for name in ("tictactoe", "pong")},
    "game_2048": "games/ppo_2048.toml",
    "connect_four": "games/ppo_connect_four_long.toml",
    "duel": "games/ppo_duel_long.toml --seed 91",
}


def write(game: str) -> None:
    """Train a champion, and write its page in place of the one that is there."""
    run, page = Path("runs/gallery") / game, HERE / f"{game}.html"
    if not run.exists():
        words = [f"experiments/{TRAINED[game]}".split(), ["--run-dir", str(run), "--no-report"]]
        if main_run([*words[0], *words[1]]):
            sys.exit(1)
    page.unlink(missing_ok=True)
    if main(["export", str(run), "--to", "html", "--output", str(page)]):
        sys.exit(1)
    row = rf"^\| \[{game}\].*$"
    readme = HERE / "README.md"
    readme.write_text(re.sub(row, lambda _: line(game, run), readme.read_text(), flags=re.MULTILINE))


def line(game: str, directory: Path) -> str:
    """Return the row of a game."""
    run = evo.Run(directory)
    test = run.test
    assert test is not None
    low, high = test.ci95
    score = f"{test.mean:.2f} ({low:.2f} to {high:.2f})"
    size, seconds = f"{run.config.network().size:,}", sum(run.column("seconds"))
    command = f"`python -m evo.run experiments/{TRAINED[game]}`"
    return f"| [{game}]({game}.html) | {score} | {size} | {seconds:.0f} s | {command} |"


if __name__ == "__main__":
    for name in sys.argv[1:] or TRAINED:
        write(name)
