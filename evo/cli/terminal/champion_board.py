"""The champion of a run that goes on, at play: one episode after the other, in a thread of its own."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from evo.config.experiment import Experiment
from evo.environment import Environment, Shown
from evo.errors import first_line
from evo.records import Episodes, Task, WeightSource
from evo.rollouts.rollout import Rollout

STEPS_PER_SECOND = 10.0
LONGEST = 20.0  # seconds that an episode is shown for; steps of a longer one are left out
LEAST = 3.0  # seconds that an episode is shown for before a newer champion takes its place
PAUSE = 1.0  # seconds that the last position stands
END = 0.5  # seconds that the end of the thread is waited for
FOREVER = 1e6  # seconds, until there is a newer champion
MOST_STEPS = 20_000  # of an episode that is shown, as each of its positions is kept


class ChampionBoard:
    """Shows the newest champion that `take` got; nothing of games that draw no pictures.

    Its episodes have seeds that no training, validation or test uses. It plays as workers on a CPU do, and shows
    nothing where TensorFlow plays, which the master does not load.
    """

    def __init__(self, colour: bool = True) -> None:
        self._colour = colour
        self._changed = threading.Condition()
        self._newest: tuple[Experiment, NDArray[Any], int] | None = None
        self._closed = False
        self._film: tuple[list[Shown], float, str] | None = None  # positions, when the first was shown, caption
        self._trouble = ""
        self._thread: threading.Thread | None = None

    def take(self, experiment: Experiment, weights: NDArray[Any], generation: int) -> None:
        """Show this champion [P] from its next episode on."""
        environment = experiment.make_environment()
        if experiment.policy.player != "lanes" or environment.game is None or not environment.visible:
            return
        with self._changed:
            self._newest = (experiment, np.array(weights, np.float32), generation)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._play, name="champion board", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread, at the latest when its episode is played; it is not waited for longer than a moment."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout=END)

    def lines(self) -> list[Text]:
        """Return the position that is shown now, with a caption; nothing before the first episode is played."""
        film = self._film
        if film is None:
            return [Text(self._trouble, style="dim")] if self._trouble else []
        positions, began, caption = film
        steps = (time.monotonic() - began) * _steps_per_second(len(positions))
        text = positions[min(int(steps), len(positions) - 1)].text(self._colour)
        return [*map(Text.from_ansi, text.split("\n")), Text(caption, style="dim")]

    def _play(self) -> None:
        rollout, played = None, None
        for seed in count(1):
            with self._changed:
                newest = self._newest
                if self._closed or newest is None:
                    return
            experiment, weights, generation = newest
            positions: list[Shown] = []
            try:
                if rollout is None or played is not experiment:
                    rollout = Rollout(experiment.network(), experiment.make_environment())
                    played = experiment
                positions = _episode(rollout, weights, seed)
            except Exception as error:  # a game that cannot be shown is no reason to disturb the training
                self._trouble = f" the champion cannot be shown: {first_line(error)}"
            if positions:
                self._film = (positions, time.monotonic(), f" champion of generation {generation + 1}")
            with self._changed:
                whole = len(positions) / _steps_per_second(len(positions)) + PAUSE if positions else FOREVER
                self._changed.wait_for(lambda: self._closed, min(LEAST, whole) if positions else 0.0)
                over = lambda shown=newest: self._closed or self._newest is not shown  # noqa: E731
                self._changed.wait_for(over, max(0.0, whole - LEAST))


def _steps_per_second(positions: int) -> float:
    return max(STEPS_PER_SECOND, positions / LONGEST)


def _episode(rollout: Rollout, weights: NDArray[Any], seed: int) -> list[Shown]:
    """Return the positions of an episode; none where it is very long, or the network's outputs are not finite."""
    environment: Environment = rollout.environment
    task = Task(WeightSource.of_row(), Episodes(np.array([seed], np.uint64)), record_actions=True, evaluation=True)
    result = rollout.play(task, weights[np.newaxis])
    if not result.finite[0] or result.actions is None or len(result.actions[0]) > MOST_STEPS:
        return []
    return environment.replayed(seed, result.actions[0].tolist())[0]
