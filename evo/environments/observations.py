"""What environments of Gymnasium show, as arrays of their spaces."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.environment import real_array
from evo.lazy import spaces


class WrongObservation(Exception):
    """What an environment showed that is not of its space: what that is, and what it must be."""


def is_pixels(space: Any) -> bool:
    """Return whether a Box has whole numbers from 0 to 255."""
    return bool(np.issubdtype(space.dtype, np.integer) and (space.low == 0).all() and (space.high == 255).all())


def shown(value: Any) -> str:
    """Return the beginning of what stands for a value in Python, on one line."""
    return f"{' '.join(repr(value).split()):.60}"


def fits(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether an array is one of a shape: as long, and flat or with the same sides where they are not 1."""
    if found == shape:  # nearly always
        return True
    alike = len(found) < 2 or [side for side in found if side != 1] == [side for side in shape if side != 1]
    return alike and math.prod(found) == math.prod(shape)


def checked(space: Any, scaled: bool, place: str = "") -> Callable[[Any], NDArray[Any]]:
    """Return a function that gives an observation as an array of its space's shape, or raises WrongObservation.

    Choices, and pixels that are `scaled`, must be whole numbers of the space too.
    """
    pixels = isinstance(space, spaces.Box) and is_pixels(space)
    whole, shape = scaled if pixels else not isinstance(space, spaces.Box), space.shape or ()
    least: Any = getattr(space, "start", 0)
    count: Any = space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", 2)
    most: Any = least + (256 if isinstance(space, spaces.Box) else count) - 1

    def check(seen: Any) -> NDArray[Any]:
        if isinstance(seen, int | np.integer) and not shape and whole and least <= seen <= most:  # the usual choice
            return np.asarray(seen, space.dtype)
        if type(seen) is np.ndarray and seen.shape == shape and seen.dtype == np.uint8 and pixels:  # the usual picture
            return seen.copy()
        try:
            found = np.array(real_array(() if seen is None else seen))  # they may change theirs
            found = found.astype(np.float64) if found.dtype.kind == "O" else found
        except (TypeError, ValueError, OverflowError):
            must = f"it must be numbers of shape {shape}"
            raise WrongObservation(f"the observation{place} {shown(seen)}", must) from None
        if not fits(found.shape, shape):
            must = f"its shape must be {shape}, as observation_space says"
            raise WrongObservation(f"an observation{place} of shape {found.shape}", must)
        found = found.reshape(shape)
        if whole and not (pixels and found.dtype == np.uint8):
            if not ((found >= least) & (found <= most) & (found == np.rint(found))).all():
                raise WrongObservation(f"the observation{place} {shown(seen)}", f"it must be of {shown(space)}")
            found = found.astype(space.dtype)
        return found

    return check
