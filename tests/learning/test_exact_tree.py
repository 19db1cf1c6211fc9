"""The order in which sums of blocks are added follows from their number, not from who adds them when."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.learning.exact.threads import BlockSums, blocks_together


def joined(earlier: str, later: str) -> str:
    """Return how two sums were added."""
    return f"({earlier}+{later})"


@pytest.mark.parametrize(
    ("blocks", "sums"),
    [(1, "0"), (2, "(0+1)"), (3, "((0+1)+2)"), (5, "(((0+1)+(2+3))+4)"), (7, "(((0+1)+(2+3))+((4+5)+6))")],
)
def test_blocks_are_added_in_pairs(blocks: int, sums: str) -> None:
    tree = BlockSums(blocks, joined)
    for block in range(blocks):
        tree.add(block, str(block))
    assert tree.total() == sums


@given(st.permutations(range(11)))
def test_the_order_in_which_blocks_are_ready_changes_nothing(order: list[int]) -> None:
    usual, other = BlockSums(11, joined), BlockSums(11, joined)
    for block in range(11):
        usual.add(block, str(block))
    for block in order:
        other.add(block, str(block))
    assert usual.total() == other.total()


@pytest.mark.parametrize(
    ("blocks", "threads", "least", "together"),
    [
        (8, 1, 1, 8), (8, 2, 1, 4), (64, 2, 1, 8), (6, 2, 1, 1), (9, 4, 1, 1), (7, 1, 1, 8), (1, 2, 1, 8),
        (8, 2, 0.01, 4), (8, 2, 5.5, 8), (64, 2, 26.2, 32), (64, 2, 1000, 64), (5, 2, 1000, 8),
    ],
)  # fmt: skip
def test_no_thread_has_more_blocks_than_one_by_one_unless_they_are_small(
    blocks: int, threads: int, least: float, together: int
) -> None:
    assert blocks_together(blocks, threads, least) == together


class Slow(dict[tuple[int, int], str]):
    """A dictionary in which two threads that look for each other's sums at the same time both find nothing."""

    def pop(self, key: tuple[int, int], default: str | None = None) -> str | None:  # type: ignore[override]
        found = super().pop(key, default)
        if found is None:
            time.sleep(0.02)
        return found


def test_of_two_threads_that_are_ready_together_one_joins() -> None:
    tree = BlockSums(2, joined)
    tree._waiting = Slow()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda block: tree.add(block, str(block)), range(2)))
    assert tree.total() == "(0+1)"
