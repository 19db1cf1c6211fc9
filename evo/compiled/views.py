"""The memory of arrays: buffers aligned to cache lines, and other views for compiled code that counts no references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numpy.typing import NDArray

LINE = 64  # bytes of a cache line, and of the longest vector


def aligned(size: int, dtype: type[np.generic] = np.float32) -> NDArray[Any]:
    """Return zeros that begin at a cache line, so that no vector spans two lines.  # [size]

    TensorFlow uses such a buffer without copying it.
    """
    length = size * np.dtype(dtype).itemsize
    buffer = np.zeros(length + LINE, np.uint8)
    start = -buffer.ctypes.data % LINE
    return buffer[start : start + length].view(dtype)


@intrinsic
def flat_of(typing, array):  # type: ignore[no-untyped-def]
    """Return all of an array in C order as one row of the same memory, without the call that `reshape` makes."""
    if not isinstance(array, types.Array) or array.layout != "C":
        raise TypingError("an array in C order is needed")
    row = array.copy(ndim=1)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = context.make_array(array)(context, builder, arguments[0])
        return _view(context, builder, row, whole, [whole.nitems])

    return row(array), generate


@intrinsic
def shaped(typing, row, shape):  # type: ignore[no-untyped-def]
    """Return a row of values as an array of this shape, in C order, of the same memory; sizes are not checked."""
    if not isinstance(row, types.Array) or row.ndim != 1 or row.layout != "C":
        raise TypingError("a row of values is needed")
    array = row.copy(ndim=len(shape))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = context.make_array(row)(context, builder, arguments[0])
        sides = cgutils.unpack_tuple(builder, arguments[1], len(shape))
        sides = [context.cast(builder, side, kind, types.intp) for side, kind in zip(sides, shape, strict=True)]
        return _view(context, builder, array, whole, sides)

    return array(row, shape), generate


def _view(context: Any, builder: Any, kind: Any, whole: Any, sides: list[Any]) -> Any:
    """Return an array of type `kind` with these sides that begins where `whole` does."""
    view = context.make_array(kind)(context, builder)
    strides = [whole.itemsize]
    for side in reversed(sides[1:]):
        strides.insert(0, builder.mul(strides[0], side))
    view.data, view.nitems, view.itemsize = whole.data, whole.nitems, whole.itemsize
    view.shape, view.strides = cgutils.pack_array(builder, sides), cgutils.pack_array(builder, strides)
    view.meminfo, view.parent = whole.meminfo, whole.parent  # borrowed: kernels count no references
    return view._getvalue()


def _places(arrays: Any, *path: int) -> Iterator[tuple[list[int], Any]]:
    """Yield where each array lies in a tuple of arrays and tuples, and its type."""
    for i, kind in enumerate(arrays):
        if isinstance(kind, types.BaseTuple):
            yield from _places(kind, *path, i)
        else:
            yield [*path, i], kind


def _row_bytes(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Return the bytes of a row; a constant, which LLVM makes a single move, where a row is one number."""
    if kind.ndim > 1:
        return builder.extract_value(array.strides, 0)
    return context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))


def _copies(to_row: bool) -> Any:
    @intrinsic
    def copy(typing, arrays, b, row):  # type: ignore[no-untyped-def]
        """Copy row `b` of every array, one after the other, to or from `row`, uint8."""
        places = list(_places(arrays))
        if any(array.layout != "C" for _, array in places):
            raise TypingError("the arrays of a game's state are in C order")

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number = context.cast(builder, arguments[1], b, types.intp)
            place = context.make_array(row)(context, builder, arguments[2]).data
            for path, kind in places:
                array = context.make_array(kind)(context, builder, builder.extract_value(arguments[0], path))
                size = _row_bytes(context, builder, kind, array)
                there = builder.gep(builder.bitcast(array.data, place.type), [builder.mul(number, size)])
                target, source = (place, there) if to_row else (there, place)
                cgutils.raw_memcpy(builder, target, source, size, 1)
                place = builder.gep(place, [size])
            return context.get_dummy_value()

        return types.none(arrays, b, row), generate

    return copy


@intrinsic
def clear_row(typing, arrays, b):  # type: ignore[no-untyped-def]
    """Write zeros into row `b` of every array of a tuple, also of tuples inside of it."""
    places = list(_places(arrays))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.cast(builder, arguments[1], b, types.intp)
        for path, kind in places:
            array = context.make_array(kind)(context, builder, builder.extract_value(arguments[0], path))
            size = _row_bytes(context, builder, kind, array)
            row = builder.gep(builder.bitcast(array.data, cgutils.voidptr_t), [builder.mul(number, size)])
            cgutils.memset(builder, row, size, 0)
        return context.get_dummy_value()

    return types.none(arrays, b), generate


copy_to_row, copy_from_row = _copies(True), _copies(False)
