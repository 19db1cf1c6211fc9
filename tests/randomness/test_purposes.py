"""Every episode that a run plays is recorded: those to learn from, to choose the champion and to test it never meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.randomness.streams import Purpose, episode_keys, episode_seed, seeds_of_test_episodes
from evo.records import Episodes, Evaluator, Generation, Played, Result, Task
from evo.run import generations
from evo.training.beginning import open_or_begin
from evo.training.session import Session
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.run.test_resume import TINY, written

SEED = 5


class Recorder:
    """An evaluator that notes which episodes each purpose plays."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator, self.purpose = evaluator, "validation"
        self.seeds: dict[str, set[int]] = {"training": set(), "validation": set(), "test": set()}

    def map(self, tasks: Sequence[Task]) -> Played:
        played = self._evaluator.map(tasks)
        for task, result in zip(tasks, played.results, strict=True):
            self.seeds[self.purpose].update(seeds_of(task, result))
        return played

    def close(self) -> None:
        self._evaluator.close()


def seeds_of(task: Task, result: Result) -> list[int]:
    """Return the seeds of all episodes that a task played, also of those that it only began."""
    if isinstance(task.play, Episodes):
        return task.play.seeds.tolist()
    before, after = task.play.envs, result.envs
    assert after is not None
    names = zip(before.first.tolist(), before.episode.tolist(), after.episode.tolist(), strict=True)
    return [episode_seed(first, number) for first, begin, end in names for number in range(begin, end + 1)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("ga", "ppo") else [pytest.mark.long]) for name in sorted(TINY)]
)
def test_no_episode_serves_two_purposes(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    changes = [f"run.seed={SEED}", "validation.every=2", "validation.episodes=7"]
    changes += [] if name in ("sac", "td3") else ["environment.mask=reverse"]  # as others are compiled
    experiment = Experiment.load(Path(written(tmp_path, name)), *changes)
    with open_or_begin(experiment, tmp_path / "run") as store, Session(experiment, store) as session:
        recorder = Recorder(session.evaluator)
        session.evaluator = recorder
        update_champion = session.update_champion

        def tested(*, test: bool) -> None:
            before, recorder.purpose = recorder.purpose, "test"
            update_champion(test=test)
            recorder.purpose = before

        monkeypatch.setattr(session, "update_champion", tested)
        learns = session.algorithm.algorithm.generation

        def marked(number: int) -> Generation:
            recorder.purpose = "training"
            metrics = yield from learns(number)
            recorder.purpose = "validation"
            return metrics

        monkeypatch.setattr(session.algorithm.algorithm, "generation", marked)
        assert len(list(generations(session))) == experiment.generations
    training, validation, test = recorder.seeds["training"], recorder.seeds["validation"], recorder.seeds["test"]
    assert len(training) >= 12
    assert validation == set(episode_keys(SEED, Purpose.VALIDATION, 0, 7).tolist())
    assert test == set(seeds_of_test_episodes(8).tolist())
    assert not training & validation
    assert not training & test
    assert not validation & test
    # Nor do episodes to learn from come from the streams of the others, however many of those there are.
    others = [episode_keys(SEED, Purpose.VALIDATION, 0, 10_000), seeds_of_test_episodes(10_000)]
    assert not training & set(np.concatenate(others).tolist())
