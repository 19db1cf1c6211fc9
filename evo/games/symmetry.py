"""Symmetries of a board: how observations, actions and masks change when it is mirrored or rotated.

A form is a number below eight: mirrored (columns, first) if it is odd, then form // 2 quarter turns clockwise.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.randomness.philox_compiled import draw

kernel_cache.use(__name__)

FORMS = {"mirror": 2, "dihedral": 8}  # how many forms a board has


class Symmetry:
    """Draws forms at random, and transforms observations, actions and masks."""

    def __init__(self, kind: Literal["mirror", "dihedral"], actions: int) -> None:
        """Of "mirror", observations already look up; four actions are compass points, three are turns."""
        self.forms = FORMS[kind]
        self.moves = np.array([_moves(form, actions) for form in range(self.forms)], np.int8)  # [F, A] old to new

    def draw(self, key: int, count: int) -> NDArray[np.int64]:
        """Draw a form for each of `count` examples from the stream `key`."""
        forms = np.empty(count, np.int64)
        _draw(np.uint64(key), self.forms, forms)
        return forms

    def planes(self, planes: NDArray[np.float32], forms: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return observations of the same boards in these forms.  # [B, H, H, C], [B] -> [B, H, H, C]"""
        out = np.empty_like(planes)
        _turn(planes, forms, out)
        return out

    def actions(self, actions: NDArray[np.int8], forms: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return the same actions on boards in these forms.  # [B], [B] -> [B]"""
        moved: NDArray[np.int8] = self.moves[forms, actions]
        return moved

    def allowed(self, allowed: NDArray[np.int8], forms: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return action masks on boards in these forms.  # [B, A], [B] -> [B, A]"""
        out = np.empty_like(allowed)
        np.put_along_axis(out, self.moves[forms].astype(np.int64), allowed, axis=1)
        return out


def _moves(form: int, actions: int) -> list[int]:
    mirrored, turns = form % 2, form // 2
    if actions == 3:  # left, straight, right: a rotation of the board changes none of them
        return [2 - action if mirrored else action for action in range(3)]
    return [((-action if mirrored else action) + turns) % 4 for action in range(4)]


@njit(cache=True, error_model="numpy")
def _draw(key, below, forms):  # type: ignore[no-untyped-def]
    for k in range(forms.shape[0]):
        forms[k] = draw(key, k, below, 0)


@njit(cache=True, error_model="numpy")
def _turn(planes, forms, out):  # type: ignore[no-untyped-def]
    last = planes.shape[1] - 1
    for k in range(planes.shape[0]):
        turns = forms[k] // 2
        for row in range(last + 1):
            for column in range(last + 1):
                i, j = row, last - column if forms[k] % 2 else column
                if turns == 1:
                    i, j = j, last - i
                elif turns == 2:
                    i, j = last - i, last - j
                elif turns == 3:
                    i, j = last - j, i
                for channel in range(planes.shape[3]):
                    out[k, i, j, channel] = planes[k, row, column, channel]
