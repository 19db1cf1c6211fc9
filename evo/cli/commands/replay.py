"""Show a run's champion play, write a GIF, or replay a candidate."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from evo.cli.arguments import add, whole
from evo.errors import ConfigurationError, PoisonError, ResourceError, counted
from evo.plugins import registry

MOST_GENERATIONS = 10_000_000
MOST = 1_000_000  # candidates, and requests of a generation


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir")
    parser.add_argument("--episode", metavar="I", default="0", help="which test episode, from 0 (default: 0)")
    parser.add_argument("--speed", metavar="X", default="12", help="steps per second, 1 to 1000 (default: 12)")
    parser.add_argument("--gif", metavar="FILE", help="save the episode as a GIF instead of showing it")
    parser.add_argument(
        "--generation", metavar="G", help="replay one candidate of this generation instead, alone in a new process"
    )
    parser.add_argument("--candidate", metavar="N", help="its number, from 0; reports whether it crashes its worker")
    parser.add_argument("--round", metavar="R", help="which request of that generation, from 0 (default: 0)")
    add(parser, "--plugin")
    parser.add_argument(
        "--json", action="store_true", help="end with one line of JSON: seed, actions, score, and a hash of all outputs"
    )


def main(arguments: Namespace) -> int:
    """Play the episode, check that the readable rules score the same, and show it."""
    from evo.training.testing import BLOCK

    episode = whole("--episode", arguments.episode, 0, BLOCK - 1) or 0
    speed = whole("--speed", arguments.speed, 1, 1000) or 1
    if (arguments.generation, arguments.candidate, arguments.round) != (None, None, None):
        return _play_candidate(arguments)
    from evo.cli.terminal import game_show
    from evo.config.experiment import environment_of
    from evo.environments.pictures import save_gif
    from evo.files.durable import resources
    from evo.training.finished import look_at, playing
    from evo.training.summary import one_line
    from evo.verify.recording import record

    if arguments.gif:
        film = Path(arguments.gif)
        if not film.parent.is_dir() or (film.exists() and not film.is_file()):  # a pipe would wait for a reader
            raise ConfigurationError(f"--gif {film}: no file can be written there")
        if film.suffix.lower() != ".gif":
            raise ConfigurationError(f"--gif {film}: the file name must end with .gif")
    registry.load(arguments.plugin)
    run = look_at(Path(arguments.run_dir), {"backend": "serial"})
    environment = environment_of(run.experiment.environment)
    visible = environment.visible
    if not visible and (arguments.gif or not arguments.json):
        raise ConfigurationError(
            f"{run.experiment.environment.id} draws no pictures, so there is nothing to show; --json gives facts"
        )
    with playing(run.experiment) as (evaluator, published):
        weights = published.publish(run.champion.weights[None])
        game = record(weights, evaluator, episode, environment.episode_metrics, outputs=arguments.json)
    shown = game.positions(environment) if visible else []
    filmed = ""
    if arguments.gif:
        with resources("write", film):
            save_gif(film, [one.rgb() for one in shown], min(speed, 50))
        filmed = f", saved to {film}"
    elif sys.stdout.isatty():
        game_show.watch(shown, speed, f"test episode {episode} (any key skips)")
    elif visible:
        print("the last position (a terminal shows the whole game, and --gif FILE saves it):")
        print(shown[-1].text(colour=False))
    print(f"test episode {episode}: score {game.score:g} after {counted(len(game.actions), 'step')}{filmed}")
    if arguments.json:
        print(one_line({"episode": episode, **game.facts()}))
    return 0


def _play_candidate(arguments: Namespace) -> int:
    """Play one candidate again; ResourceError says how its worker ended, if it did."""
    generation = whole("--generation", arguments.generation, 0, MOST_GENERATIONS)
    candidate = whole("--candidate", arguments.candidate, 0, MOST)
    number = whole("--round", arguments.round, 0, MOST) or 0
    if generation is None or candidate is None:
        raise ConfigurationError("--generation and --candidate go together, and --round with them")
    from evo.verify.candidate import replay_candidate

    registry.load(arguments.plugin)
    who = f"candidate {candidate} of generation {generation}"
    print(f"playing {who}, alone in a new process ...", flush=True)
    try:
        told = replay_candidate(Path(arguments.run_dir), generation, number, candidate)
    except PoisonError as poison:
        raise ResourceError(f"{who} ended its worker, which {poison.why}") from poison
    print(f"{who}: {told}")
    return 0
