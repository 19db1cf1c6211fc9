"""Show an episode of the champion or of any candidate, or film it."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evo.cli.arguments import add, whole
from evo.errors import ConfigurationError, PoisonError, ResourceError, counted, printable
from evo.files.durable import destination

if TYPE_CHECKING:
    from evo.environment import Environment
    from evo.store.policy import Policy
    from evo.training.testing import Recording

MOST_GENERATIONS = 10_000_000
FILMS = (".gif", ".webp", ".mp4")
MOST_SIDE = 4096  # pixels of the longer side of a film
MOST = 1_000_000  # candidates, requests of a generation, and steps


class Replay(NamedTuple):
    """An episode that was played again, and who played it."""

    title: str
    episode: int
    environment: Environment
    policy: Policy
    recording: Recording
    choice: str = ""  # why it is this episode, where none was asked for


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir")
    parser.add_argument(
        "--episode", metavar="I",
        help="which test episode, from 0 (default: the one of median score among the first 32); with --candidate, "
        "which of its episodes (default: 0)",
    )  # fmt: skip
    parser.add_argument("--speed", metavar="X", default="12", help="steps per second, 1 to 1000 (default: 12)")
    films = parser.add_mutually_exclusive_group()
    films.add_argument("--gif", metavar="FILE", help="save the episode as a GIF instead of showing it")
    films.add_argument("--film", metavar="FILE", help="the same, to FILE.gif, FILE.webp or FILE.mp4")
    parser.add_argument("--size", metavar="N", help="pixels of the longer side of a film, at least (default: 480)")
    films.add_argument(
        "--step", metavar="T", nargs="?", const="0",
        help="step through the episode, from step T on, with the network's outputs and what they depend on",
    )  # fmt: skip
    of_generation = "instead replay one candidate of this generation (from 0), alone in a new process"
    parser.add_argument("--generation", metavar="G", help=of_generation)
    parser.add_argument("--candidate", metavar="N", help="its number, from 0; reports whether it crashes its worker")
    parser.add_argument("--round", metavar="R", help="which request of that generation, from 0 (default: 0)")
    add(parser, "--plugin")
    parser.add_argument(
        "--json", action="store_true",
        help="end with one line of JSON: seed, actions (those of all players), score, and, in a game of one player, a "
        "hash of all outputs",
    )  # fmt: skip


def main(arguments: Namespace) -> int | tuple[int, object]:
    """Play the episode, check that the readable rules score the same, and show it."""
    speed = whole("--speed", arguments.speed, 1, 1000) or 1
    step = whole("--step", arguments.step, 0, MOST)
    film = None if arguments.film is None else destination("--film", arguments.film, FILMS)
    if arguments.gif is not None:
        film = destination("--gif", arguments.gif, FILMS[:1])
    of_candidate = (arguments.generation, arguments.candidate, arguments.round) != (None, None, None)
    replay = _candidate(arguments) if of_candidate else _champion(arguments)
    if replay is None:
        return 0
    side = whole("--size", arguments.size, 1, MOST_SIDE)
    _show(replay, speed, step, film, side, is_drawn=_is_drawn(arguments))
    return 0, {"episode": replay.episode, **replay.recording.facts(replay.environment)}


def _champion(arguments: Namespace) -> Replay:
    from evo.store.champion import BLOCK
    from evo.store.policy import Policy
    from evo.store.run import Run
    from evo.training.testing import TYPICAL_OF, median_episode, playing, record, scores_of_test

    episode, choice = whole("--episode", arguments.episode, 0, BLOCK - 1), ""
    run = Run(arguments.run_dir, flags={"backend": "serial"})
    environment = run.environment
    _check_visible(environment, run.config.environment.id, arguments)
    steps = arguments.step is not None or (arguments.json and environment.players == 1)
    with playing(run.config) as (evaluator, published):
        weights, metrics = published.publish(run.champion.weights[None]), environment.episode_metrics
        if episode is None:
            scores = scores_of_test(weights, evaluator, min(TYPICAL_OF, run.config.test.episodes), metrics)
            episode = median_episode(scores)
            choice = _ranked(scores.tolist(), episode)
        recording = record(weights, evaluator, episode, metrics, steps=steps)
    policy = Policy(run.config.network(), run.champion.weights, run.config)
    return Replay(f"test episode {episode}", episode, environment, policy, recording, choice)


def _ranked(scores: list[float], episode: int) -> str:
    """Say how the episode ranks, which ones are the lowest and the highest, and how to choose another, in two lines."""
    count, low, high = len(scores), min(scores), max(scores)
    if count == 1:
        ranked = f"the experiment tests one episode, number {episode}"
    elif low == high:
        ranked = f"each of the first {count} test episodes scores {low:g}; this is number {episode}"
    else:
        ends = f"{low:g} (episode {scores.index(low)}) to {high:g} (episode {scores.index(high)})"
        ranked = f"the first {count} test episodes score {ends}; episode {episode} is their median"
    return f"{ranked}\nto see another one: --episode I"


def _candidate(arguments: Namespace) -> Replay | None:
    generation = whole("--generation", arguments.generation, 0, MOST_GENERATIONS)
    candidate = whole("--candidate", arguments.candidate, 0, MOST)
    number = whole("--round", arguments.round, 0, MOST) or 0
    episode = whole("--episode", arguments.episode, 0, MOST)
    if generation is None or candidate is None:
        missing = "--generation G" if generation is None else "--candidate N"
        raise ConfigurationError(f"--generation, --candidate and --round belong together: {missing} is missing")
    from evo.store.policy import Policy
    from evo.verify.candidate import replay_candidate

    wanted = (arguments.gif, arguments.film, arguments.step, arguments.episode) != (None,) * 4 or arguments.json
    who = f"candidate {candidate} of generation {generation}"

    def say(remark: str) -> None:
        print(f"playing {who}{remark and f' ({remark})'}, alone in a new process ...", flush=True)

    shown = (episode or 0) if wanted else None
    try:
        found = replay_candidate(arguments.run_dir, generation, number, candidate, shown, say)
    except PoisonError as poison:
        raise ResourceError(f"{who} ended its worker, which {poison.why}") from poison
    print(f"{who}: {found.outcome}")
    if found.recording is None:
        return None
    environment = found.environment
    _check_visible(environment, found.experiment.environment.id, arguments)
    policy = Policy(found.experiment.network(), found.weights, found.experiment)
    return Replay(f"{who}, episode {episode or 0}", episode or 0, environment, policy, found.recording)


def _show(replay: Replay, speed: int, step: int | None, film: Path | None, side: int | None, is_drawn: bool) -> None:
    from evo.cli.terminal import playback
    from evo.cli.terminal.display import in_foreground

    title, environment, recording = replay.title, replay.environment, replay.recording
    shown, filmed = recording.positions(environment, pictures=is_drawn), ""
    if film is not None:
        from evo.files.durable import write_whole
        from evo.games.pictures import FASTEST, SIDE, enlarged, save_film

        speed = min(speed, FASTEST)
        write_whole(film, lambda place: save_film(place, shown, speed, lambda one: enlarged(one.rgb(), side or SIDE)))
        filmed = f", saved to {printable(str(film))}"
    elif step is not None:
        moves = sys.stdin.isatty() and sys.stdout.isatty() and in_foreground(sys.stdin)
        size = shutil.get_terminal_size() if moves else os.terminal_size((400, 400))
        steps = playback.EpisodeView(recording, shown, environment, replay.policy, playback.coloured(), size)
        if step > len(steps):
            raise ConfigurationError(f"--step: must be 0 to {len(steps)}, the steps of {title}")
        if moves:
            playback.walk(steps.lines, len(steps), step, speed, title)
        else:
            print("\n".join(steps.lines(step)))
    elif shown and sys.stdout.isatty() and in_foreground(sys.stdout):
        playback.watch(shown, speed, f"{title} (any key skips)")
    elif shown:
        print("the last position (a terminal shows the whole game, and --film FILE saves it):")
        print(shown[-1].text(colour=False))
    if replay.choice:
        print(replay.choice)
    length = "" if environment.problem is not None else f" after {counted(len(recording.actions), 'step')}"
    print(f"{title}: score {recording.score:g}{length}{filmed}")


def _is_drawn(arguments: Namespace) -> bool:
    return (arguments.gif, arguments.film, arguments.step) != (None,) * 3 or not arguments.json


def _check_visible(environment: Environment, name: str, arguments: Namespace) -> None:
    if _is_drawn(arguments) and not environment.visible:
        why = f"{name} draws no pictures"
        why = why if environment.problem is None else "a fitness function has no episodes"
        raise ConfigurationError(f"{why}, so there is nothing to show; --json gives facts")
