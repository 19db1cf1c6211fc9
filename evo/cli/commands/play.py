"""Play in the terminal: Snake, or a seat among several players."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from evo.cli.arguments import add, whole
from evo.errors import ConfigurationError

if TYPE_CHECKING:
    from evo.cli.terminal.person import Opponent
    from evo.games.catalogue.snake import Options as Snake
    from evo.store.run import Run


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    text = "a run's directory or a champion.h5, whose champion plays too; in a game of several players, "
    text += "GAME:BASELINE as well"
    add(parser, "run_dir", nargs="?", help=text)
    parser.add_argument("--seat", metavar="N", help="your seat in a game of several players, from 0 (default: 0)")
    parser.add_argument("--episode", metavar="I", default="0", help="which test episode, from 0 (default: 0)")
    parser.add_argument("--speed", metavar="X", default="6", help="steps per second, 1 to 100 (default: 6)")
    add(parser, "--plugin")


def main(arguments: Namespace) -> int:
    """Let a person play, until they leave."""
    from evo.cli.terminal.display import in_foreground
    from evo.store.champion import BLOCK

    episode = whole("--episode", arguments.episode, 0, BLOCK - 1) or 0
    speed = whole("--speed", arguments.speed, 1, 100) or 1
    if not (sys.stdin.isatty() and sys.stdout.isatty() and in_foreground(sys.stdin)):
        raise ConfigurationError("evo play needs a terminal, in the foreground, to read keys and to show the board")
    from evo.games.catalogue.snake import Options as Snake

    if arguments.run_dir is None:
        _play(Snake(), None, episode, speed)
        return 0
    from evo.comparison.league import is_baseline, round_robin_of
    from evo.store.run import Run

    word = str(arguments.run_dir)
    run = None if is_baseline(word) else Run(word, flags={"backend": "serial"})
    if run is None or run.environment.players > 1:
        from evo.cli.terminal.person import play_seat

        games = round_robin_of([word if run is None else run])
        players, visible = games.environment.players, games.environment.visible
        mine = whole("--seat", arguments.seat, 0, players - 1) or 0
        if not visible:
            raise ConfigurationError(f"evo play: {games.experiment.environment.id} draws no pictures")
        play_seat(games.environment, games.players[0], mine, episode, speed)
        return 0
    options = run.config.environment
    if not isinstance(options, Snake):
        raise ConfigurationError(
            f"evo play: {options.id} cannot be played in a terminal, only Snake and games of several players can"
        )
    if arguments.seat is not None:
        raise ConfigurationError("--seat: Snake is a game of one player")
    _play(options, run, episode, speed)
    return 0


def _play(options: Snake, run: Run | None, episode: int, speed: int) -> None:
    from evo.cli.terminal.person import Match, play_episodes, play_snake, require_room, sides
    from evo.games.catalogue.snake.position import Game
    from evo.randomness.streams import seeds_of_test_episodes

    require_room(*sides(options.size, 1 + (run is not None)))
    rules = {**options.of_rules, "actions": "absolute"}  # arrows are directions
    with ExitStack() as stack:
        opponent = None if run is None else _champion(run, stack)

        def play(number: int, read: Any) -> str:
            (seed,) = seeds_of_test_episodes(1, number).tolist()
            return play_snake(Match(Game(seed=seed, **rules), opponent and opponent(number)), number, speed, read)

        play_episodes(play, episode)


def _champion(run: Run, stack: ExitStack) -> Callable[[int], Opponent]:
    from evo.cli.terminal.person import Opponent
    from evo.training.testing import playing, record

    evaluator, published = stack.enter_context(playing(run.config))
    weights = published.publish(run.champion.weights[None])

    def plays(number: int) -> Opponent:
        recording = record(weights, evaluator, number, run.environment.episode_metrics)
        return Opponent(recording.positions(run.environment), int(recording.score))

    return plays
