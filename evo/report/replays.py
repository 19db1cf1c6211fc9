"""Episodes to look at: the champion, the first champion, and a parent play the same test episode."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.environment import Shown
from evo.errors import DataError, PoisonError
from evo.games.catalogue.snake.pictures import Board
from evo.games.pictures import Picture, reduced
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import Episodes, Evaluator, Result, Task, WeightSource, unit_of
from evo.statistics import mean_interval
from evo.store.champion import BLOCK
from evo.store.run import Run
from evo.training.testing import TYPICAL_OF, median_episode, playing, recording_of, score_of
from evo.training.validation import WEIGHTS

MOST_PIXELS = 10_000_000  # of all frames of an episode; of more, every second frame is shown, or every third, ...
MOST_COLOURS = 256
LARGEST = 250_000  # bytes of one episode on a page
MOST_STEPS = 20_000  # of an episode that is shown
Episode = dict[str, Any]  # label, score, steps and what `packed` returns, as `assets/replays.js` plays it


@dataclass(frozen=True)
class Replays:
    """What the networks of a run did in one test episode."""

    episode: int = 0  # number of the test episode
    episodes: int = 0  # test episodes of which it has the champion's median score
    shown: tuple[Episode, ...] = ()
    mean_return: float | None = None  # of the champion on these test episodes
    ci95: tuple[float, float] | None = None
    note: str = ""  # why there is nothing to see


def replays_of(run: Run, *, alone: bool) -> Replays:
    """Play in this process, the champion only if not `alone`; nothing where that would take more than a moment."""
    if run.config.policy.player == "tensorflow":
        return Replays(note="TensorFlow plays this run, so its report shows an episode only where the run has made it.")
    with playing(Run(run.directory, flags={"backend": "serial"}).config) as (evaluator, published):
        return play(run, evaluator, published.publish, alone=alone)


def play(
    run: Run, evaluator: Evaluator, publish: Callable[[NDArray[np.float32]], str], *, alone: bool = True
) -> Replays:
    """Play the first test episodes, and return the one of the champion's median score with all networks in it."""
    if run.champion_file is None or not run.environment.visible:
        none = run.champion_file is None
        return Replays(note="There is no champion." if none else "This environment draws no pictures.")
    networks = [("Champion", run.champion_file.weights), *(_other_networks(run) if alone else ())]
    published = publish(np.stack([weights for _, weights in networks]))
    block = (run.score.block if run.score else run.config.test.block) * BLOCK
    episodes = min(TYPICAL_OF, run.config.test.episodes)
    seeds = seeds_of_test_episodes(episodes, block)
    champion, *_ = results_of(evaluator, [WeightSource.of_row(published=published)], seeds)
    scores = score_of(champion, run.environment.episode_metrics)
    episode = median_episode(scores)
    sources = [WeightSource.of_row(row, published) for row in range(len(networks))]
    results = results_of(evaluator, sources, seeds[episode : episode + 1], record=True)
    shown = (
        shown_episode(run, label, result, int(seeds[episode]))
        for (label, _), result in zip(networks, results, strict=True)
    )
    mean, interval = mean_interval((champion.returns[0] / unit_of(champion.returns)).tolist())
    whole = tuple({**one, "episode": episode} for one in shown if one)
    return Replays(episode, episodes, whole, mean, interval if episodes > 1 else None)


def results_of(
    evaluator: Evaluator, sources: list[WeightSource], seeds: NDArray[np.uint64], *, record: bool = False
) -> list[Result]:
    """Return a result for each network. DataError: the champion, which is the first, cannot be played."""
    try:
        played = evaluator.map(
            [Task(source, Episodes(seeds), record_actions=record, evaluation=True) for source in sources]
        )
    except PoisonError as poison:
        raise DataError(f"a network ends its worker, which {poison.why}") from poison
    if played.poisoned or not played.results[0].finite[0]:
        raise DataError("the champion cannot be played again")
    return list(played.results)


def shown_episode(run: Run, label: str, result: Result, seed: int, largest: int = LARGEST) -> Episode | None:
    """Return the only episode of a result; None where it cannot be shown."""
    if result.actions is None or not result.finite[0] or len(result.actions[0]) > MOST_STEPS:
        return None
    score = float(score_of(result, run.environment.episode_metrics)[0])
    positions = recording_of(seed, result, run.environment.episode_metrics).positions(run.environment)
    return {"label": label, "score": score, "steps": len(result.actions[0]), **packed(positions, largest)}


def _other_networks(run: Run) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the best network of the first generation, and a parent of the newest, where they are kept.

    A parent is the middle one of what the next candidates are made from, which may be a mean of chosen networks.
    """
    size, newest = run.config.network().size, run.store.next_generation - 1
    parents = newest >= 0 and "record/survivors" in run.store.lines[newest].arrays
    for label, generation, name, wanted in (
        ("Best of the first generation", 0, WEIGHTS, newest > 0 and run.origin != 0),
        ("A parent of the last generation", newest, "weights", parents),
    ):
        try:
            rows = np.asarray(run.store.read_state(generation)[name] if wanted else (), np.float32)
        except (DataError, KeyError, TypeError, ValueError):  # not kept, or not as ours are
            continue
        if rows.ndim == 2 and len(rows) and rows.shape[1] == size:
            weights = np.array(rows[0 if name == WEIGHTS else len(rows) // 2])
            if np.isfinite(weights).all():
                yield label, weights


def packed(shown: Sequence[Shown], largest: int = LARGEST) -> dict[str, Any]:
    """Return the frames of an episode as JSON values of `largest` bytes; the last frame is always among them."""
    boards = [one for one in shown if isinstance(one, Board)]
    if len(boards) == len(shown):
        return _boards(boards)
    pictures = [reduced(one.pixels) if isinstance(one, Picture) else one.rgb() for one in shown]
    captions = [one.caption if isinstance(one, Picture) else "" for one in shown]
    every = max(1, -(-sum(picture.size // 3 for picture in pictures) // MOST_PIXELS))
    while True:
        chosen = list(range(len(pictures) - 1, -1, -every))[::-1]
        found = _pictures([pictures[i] for i in chosen], [captions[i] for i in chosen])
        if len(found["data"]) <= largest or len(chosen) == 1:
            return {**found, "every": every}
        every *= 2


def _boards(boards: Sequence[Board]) -> dict[str, Any]:
    """Return the first body, its tail first, and head, fruit, length and heading of each step.  # int16 [T, 4]"""
    size = boards[0].size

    def place(cell: tuple[int, int] | None) -> int:
        return -1 if cell is None else cell[0] * size + cell[1]

    start = [place(cell) for cell in reversed(boards[0].body)]
    steps = [(place(one.body[0]), place(one.fruit), len(one.body), one.heading) for one in boards]
    return {
        "kind": "board",
        "size": size,
        "frames": len(steps),
        "start": start,
        "data": _text(np.array(steps, "<i2").tobytes()),
        "captions": _text("\n".join(f"score {one.score}{'  over' if one.over else ''}" for one in boards).encode()),
        "every": 1,
    }


def _pictures(pictures: Sequence[NDArray[np.uint8]], captions: Sequence[str]) -> dict[str, Any]:
    """Return a palette and the colour of every pixel, each frame as what differs (xor) from the one before."""
    height, width = pictures[0].shape[:2]
    colours = np.stack(pictures) @ np.array([1 << 16, 1 << 8, 1], np.uint32)  # [T, H, W]
    bits = 0
    while len(palette := np.unique(colours)) > MOST_COLOURS:
        bits += 1
        colours &= 0x010101 * (0xFF << bits & 0xFF)
    indices = np.searchsorted(palette, colours).astype(np.uint8)
    indices[1:] ^= indices[:-1].copy()
    return {
        "kind": "picture",
        "width": width,
        "height": height,
        "frames": len(pictures),
        "palette": [f"{colour:06x}" for colour in palette.tolist()],
        "data": _text(indices.tobytes()),
        "captions": _text("\n".join(captions).encode()),
    }


def _text(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()
