"""A board that is turned or mirrored is as good a board: what is learnt from it is learnt for all of its forms at once.

A form is a number below eight: a mirroring (of columns, first) if it is odd, then form // 2 quarter turns to the right.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.randomness.philox_compiled import draw

kernel_cache.use(__name__)

LEFT_RIGHT, ALL = 2, 8  # how many forms there are
FORMS = {"mirror": LEFT_RIGHT, "dihedral": ALL}


class Symmetry:
    """Draws forms, and gives them to what was seen, done and allowed."""

    def __init__(self, forms: Literal["mirror", "dihedral"], actions: int) -> None:
        """Under "mirror" what is seen looks up already; four actions are compass points, three are turns."""
        self.forms = FORMS[forms]
        self.moves = np.array([_moves(form, actions) for form in range(self.forms)], np.int8)  # [F, A] old to new

    def draw(self, key: int, count: int) -> NDArray[np.int64]:
        """Return a form each of `count` examples, by the stream `key`."""
        forms = np.empty(count, np.int64)
        _draw(np.uint64(key), self.forms, forms)
        return forms

    def planes(self, planes: NDArray[np.float32], forms: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what is seen of the same boards in these forms.  # [B, H, H, C], [B] -> [B, H, H, C]"""
        out = np.empty_like(planes)
        _turn(planes, forms, out)
        return out

    def actions(self, actions: NDArray[np.int8], forms: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return the same actions on boards in these forms.  # [B], [B] -> [B]"""
        moved: NDArray[np.int8] = self.moves[forms, actions]
        return moved

    def allowed(self, allowed: NDArray[np.int8], forms: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return a mask of actions on boards in these forms.  # [B, A], [B] -> [B, A]"""
        out = np.empty_like(allowed)
        np.put_along_axis(out, self.moves[forms].astype(np.int64), allowed, axis=1)
        return out


def symmetry_of(environment: Any) -> Symmetry | None:
    """Return the symmetry of an environment that says which it has; None where it says nothing."""
    forms = getattr(environment, "symmetry", None)
    return Symmetry(forms, environment.actions) if forms in FORMS else None


def _moves(form: int, actions: int) -> list[int]:
    """Return what each action becomes."""
    mirrored, turns = form % 2, form // 2
    if actions == 3:  # left, straight, right: a turn of the board changes none of them
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
