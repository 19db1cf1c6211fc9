"""A deadline follows the machine: what is slow everywhere is not taken for hung, and nothing waits for long."""

import pytest

from evo.workers.round import MEAN, RECENT, SLOWEST, Deadlines


def measured(*tasks: tuple[float, int]) -> Deadlines:
    deadlines = Deadlines(shortest=30.0, first=120.0)
    for seconds, size in tasks:
        deadlines.note(seconds, size)
    return deadlines


def test_nothing_is_known_before_a_task_has_been_played() -> None:
    assert measured().of(1) == measured().of(100_000) == 120.0


def test_quick_tasks_leave_the_shortest_deadline() -> None:
    assert measured(*[(0.01, 64)] * 50).of(64) == 30.0


@pytest.mark.parametrize("slowness", [10, 1000, 100_000])
def test_a_slower_machine_has_proportionally_longer_deadlines(slowness: int) -> None:
    assert measured(*[(1.0 * slowness, 8)] * 3).of(8) == pytest.approx(max(30.0, MEAN * slowness))


def test_a_larger_task_has_more_time_than_any_that_was_played() -> None:
    deadlines = measured(*[(2.0, 16)] * 20)
    assert deadlines.of(16) == pytest.approx(MEAN * 2)
    assert deadlines.of(160) == pytest.approx(MEAN * 20)


def test_one_slow_task_counts_until_it_is_forgotten() -> None:
    deadlines = measured((100.0, 1), *[(0.1, 1)] * (RECENT - 1))
    assert deadlines.of(1) == SLOWEST * 100
    deadlines.note(0.1, 1)
    assert deadlines.of(1) == 30.0
