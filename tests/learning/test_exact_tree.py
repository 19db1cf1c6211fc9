"""The order in which sums of blocks are added follows from their number, not from who adds them when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.learning.exact.tree import Tree


def joined(earlier: str, later: str) -> str:
    """Return how two sums were added."""
    return f"({earlier}+{later})"


@pytest.mark.parametrize(
    ("blocks", "sums"),
    [(1, "0"), (2, "(0+1)"), (3, "((0+1)+2)"), (5, "(((0+1)+(2+3))+4)"), (7, "(((0+1)+(2+3))+((4+5)+6))")],
)
def test_blocks_are_added_in_pairs(blocks: int, sums: str) -> None:
    tree = Tree(blocks, joined)
    for block in range(blocks):
        tree.add(block, str(block))
    assert tree.total() == sums


@given(st.permutations(range(11)))
def test_the_order_in_which_blocks_are_ready_changes_nothing(order: list[int]) -> None:
    usual, other = Tree(11, joined), Tree(11, joined)
    for block in range(11):
        usual.add(block, str(block))
    for block in order:
        other.add(block, str(block))
    assert usual.total() == other.total()


def test_threads_add_blocks_at_the_same_time() -> None:
    for _ in range(20):
        tree = Tree(64, lambda earlier, later: earlier + later)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda block: tree.add(block, [block]), range(64)))  # noqa: B023
        assert tree.total() == list(range(64))
