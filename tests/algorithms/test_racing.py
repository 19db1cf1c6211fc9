"""A race plays no more episodes than were to be played, and selects better than an equal share for everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from evo.algorithms import ga
from evo.evolution.population import FITNESS_WORST
from evo.evolution.racing import Raced, race
from evo.records import WORST, Request, Result
from evo.store.store import Store
from evo.testing import algorithm_tests
from evo.verify.candidate import replay_candidate
from tests.algorithms.test_ga import drive, make, result_of
from tests.helpers.calling import SMALL, called, summary_of

TestRacing = algorithm_tests("evo.algorithms.ga", population=12, parents=3, elites=2, episodes=8, race=3, memory=2)
Values = Callable[[NDArray[np.int64], slice], NDArray[np.int64]]  # of candidates in numbered episodes


def raced(
    values: Values, count: int, chosen: int, episodes: int, begun: int, broken: Sequence[int] = ()
) -> tuple[Raced, list[tuple[Any, slice]]]:
    """Race without any player, in which some break; return what was found, and who played on and how long."""
    turns = []

    def play(racers: NDArray[np.int64], numbers: slice) -> Iterator[Any]:
        turns.append((racers.tolist(), numbers))
        finite = ~np.isin(racers, broken)
        return np.where(finite[:, np.newaxis], values(racers, numbers), 0), finite
        yield

    contest = race(values(np.arange(count), slice(0, begun)), chosen, episodes, play)  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as over:
        next(contest)
    return over.value.value, turns


@pytest.mark.parametrize(
    ("count", "chosen", "episodes", "begun"),
    [
        (512, 64, 32, 16),
        (512, 64, 17, 16),
        (7, 3, 9, 2),
        (3, 1, 4, 3),
        (2, 1, 3, 2),
        (5, 5, 8, 2),
        (4, 5, 8, 2),
        (0, 2, 8, 2),
        (1, 1, 8, 2),
    ],
)
def test_a_race_goes_on_with_some_of_the_racers_and_never_plays_more_than_its_budget(
    count: int, chosen: int, episodes: int, begun: int
) -> None:
    generator = np.random.default_rng(1)
    table = generator.integers(0, 9000, (count, 100_000)) if count < 9 else generator.integers(0, 9, (count, 2000))
    found, turns = raced(lambda racers, numbers: table[racers, numbers], count, chosen, episodes, begun)
    assert begun * count <= found.episodes.sum() <= episodes * count
    assert len(found.means) == count
    racing, at = list(range(count)), begun
    for racers, numbers in turns:
        assert set(racers) <= set(racing)
        assert len(racers) >= 2
        assert numbers.start == at
        assert numbers.stop > at
        racing, at = racers, numbers.stop
    assert (found.episodes[racing] == at).all()
    if count == 512:
        assert [len(racers) for racers, _ in turns] == ([256, 128, 64] if episodes == 32 else [128, 64])
        assert found.episodes.sum() > 0.98 * episodes * count
    elif chosen < count:
        assert turns


def test_those_near_the_boundary_play_on() -> None:
    luck = np.random.default_rng(2).integers(-1000, 1001, (16, 1000))
    mean = np.arange(16)[:, np.newaxis] * 1000
    _, turns = raced(lambda racers, numbers: (mean + luck)[racers, numbers], 16, 4, 20, 10)
    assert turns[-1][0] == [11, 12]  # the four best are 12 to 15


def test_one_that_breaks_in_a_race_leaves_it_and_tells_nothing_of_the_others() -> None:
    table = np.random.default_rng(4).integers(-500, 500, (32, 2000))
    whole, turns = raced(lambda racers, numbers: table[racers, numbers], 32, 8, 16, 4)
    one = turns[-1][0][0]
    found, others = raced(lambda racers, numbers: table[racers, numbers], 32, 8, 16, 4, [one])
    assert found.means[one] == -np.inf
    assert sum(one in racers for racers, _ in others) == 1
    last = others[-1][0]
    at = others[-1][1].stop
    np.testing.assert_allclose(found.means[last], table[last, :at].mean(axis=1))
    assert np.isfinite(found.means).sum() == 31
    found, others = raced(lambda racers, numbers: table[racers, numbers], 32, 8, 16, 4, range(32))
    assert len(others) == 1
    assert np.isfinite(found.means).sum() == 16
    assert whole.episodes.max() > found.episodes.max()


def test_means_are_comparable_though_later_episodes_are_harder() -> None:
    mean, hard = np.arange(32)[:, np.newaxis] * 1000, np.arange(5000) * -700
    found, _ = raced(lambda racers, numbers: (mean + hard)[racers, numbers], 32, 8, 16, 4)
    assert found.episodes.min() < found.episodes.max()
    np.testing.assert_allclose(np.diff(found.means), 1000.0)


def test_a_race_selects_better_than_equal_shares_of_the_same_budget() -> None:
    generator = np.random.default_rng(3)
    gains = {luck: np.array([gain(generator, luck) for _ in range(60)]) for luck in (1500, 4000)}
    for luck, (gained, possible) in {luck: both.T for luck, both in gains.items()}.items():
        error = gained.std(ddof=1) / np.sqrt(len(gained))
        assert gained.mean() - 4 * error > 0.2 * possible.mean(), (
            luck
        )  # what is lost to luck, a fifth and more is saved


def gain(generator: np.random.Generator, luck: float) -> tuple[float, float]:
    """Return by how much the truly best 32 of 256 that a race selects are better than those of equal shares.

    And by how much they could be. Differences between candidates have the deviation 1000, episodes 2000.
    """
    true, hard = generator.normal(0, 1000, 256), generator.normal(0, 2000, 20_000)

    def values(racers: NDArray[np.int64], numbers: slice) -> NDArray[np.int64]:
        noise = generator.normal(0, luck, (len(racers), numbers.stop - numbers.start))
        return np.rint(true[racers, np.newaxis] + hard[numbers] + noise).astype(np.int64)

    found, _ = raced(values, 256, 32, 32, 16)
    assert found.episodes.sum() <= 256 * 32
    equal = values(np.arange(256), slice(0, 32)).mean(axis=1)
    best = [float(true[np.argsort(-known)[:32]].mean()) for known in (found.means, equal, true)]
    return best[0] - best[1], best[2] - best[1]


def test_a_candidate_whose_scores_stop_being_finite_is_not_selected() -> None:
    algorithm, asked = make(population=8, parents=2, elites=1, episodes=6, race=2, per_task=8), []

    def answer(request: Request) -> list[Result]:
        asked.append(request)
        (task,) = request.tasks
        values = [1000 * (int(key) % 7) for key in task.weights.keys]
        broken = len(asked) == 2  # in the first round of the race, all that play
        return [result_of([[WORST if broken else value] * len(task.play.seeds) for value in values])]

    metrics = drive(algorithm, 0, answer)
    raced_keys = set(asked[1].tasks[0].weights.keys.tolist())
    chosen = algorithm.record()["key"][algorithm.record()["survivors"]].tolist()
    assert not raced_keys & set(chosen)
    assert (algorithm.state()["means"] > FITNESS_WORST).all()
    assert metrics["nonfinite"] == len(raced_keys) == 4
    assert abs(metrics["mean_fitness"]) < 10
    assert (algorithm.record()["fitness"] == FITNESS_WORST).sum() == 4
    assert metrics["frames"] == sum(
        len(request.tasks[0].weights) * len(request.tasks[0].play.seeds) for request in asked
    )
    seen = np.concatenate([request.tasks[0].play.seeds for request in asked])
    assert len(set(seen.tolist())) == len(seen)  # fresh episodes in every round


def test_a_run_with_a_race_is_verified_resumed_and_replayed(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL.replace("episodes = 4\n", "episodes = 6\nrace = 3\n"))
    whole = summary_of(tmp_path, "small.toml", "--run-dir", "whole")
    summary_of(tmp_path, "small.toml", "--run-dir", "parts", "--generations", 2)
    assert summary_of(tmp_path, "--resume", "parts", "--generations", 4)["state_hash"] == whole["state_hash"]
    out, _ = called(tmp_path, "verify", "whole", "--all", program="evo")
    assert "agree" in out
    record = Store.read(tmp_path / "whole").read_record(2)
    assert record["episodes"].max() > record["episodes"].min() == 3
    assert record["episodes"].sum() <= 20 * 6
    told = replay_candidate(tmp_path / "whole", 2, 0, 7).outcome
    assert told.startswith(f"mean return {record['return'][7] / 3000:.3f} over 3 episodes")


def test_a_race_needs_episodes_to_give_and_one_boundary() -> None:
    for options, told in (
        ({"race": 1}, "race: 1 must be at least 2, and less than episodes, 8"),
        ({"race": 8}, "race: 8 must be at least 2, and less than episodes, 8"),
        ({"race": 4, "population": 64, "elites": 9}, "race: all 64 candidates become parents, so none is selected"),
        ({"race": 4, "selection": "tournament"}, "race: needs selection = truncation, and no islands"),
        ({"race": 4, "islands": 2, "parents": 64, "elites": 64}, "race: needs selection = truncation, and no islands"),
    ):
        with pytest.raises(ValidationError, match=told):
            ga.Options(**{"episodes": 8, **options})
    assert "race" not in ga.Options().model_dump()
    assert ga.Options(race=4).model_dump()["race"] == 4
