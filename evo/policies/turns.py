"""Vectors in LLVM: loaded and stored where they lie, spread, and turned from one axis to the other."""

from __future__ import annotations

from typing import Any

from llvmlite import ir


def load(builder: Any, pointer: Any, at: Any, vector: Any) -> Any:
    """Return the numbers from pointer[at] on as such a vector; numbers of four bytes may begin anywhere."""
    value = builder.load(builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer()))
    value.align = 4
    return value


def store(builder: Any, value: Any, pointer: Any, at: Any) -> None:
    """Write a vector from pointer[at] on."""
    builder.store(value, builder.bitcast(builder.gep(pointer, [at]), value.type.as_pointer())).align = 4


def shuffle(builder: Any, one: Any, other: Any, mask: list[int]) -> Any:
    """Return the numbers that `mask` tells of two vectors, those of the second counted on."""
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(mask)), mask))


def spread(builder: Any, pointer: Any, at: Any, number: Any, width: int) -> Any:
    """Return pointer[at] in every place of a vector: multiplications read such a number from memory themselves."""
    value = load(builder, pointer, at, ir.VectorType(number, 1))
    return shuffle(builder, value, ir.Constant(value.type, ir.Undefined), [0] * width)


def in_turns(builder: Any, vectors: list[Any]) -> list[Any]:
    """Return the first number of each vector, then the second of each, and so on, as vectors.

    There are a power of two of them, and no more than each is wide.
    """
    if len(vectors) == 1:
        return vectors
    width = vectors[0].type.count
    masks = [[k // 2 + k % 2 * width + first for k in range(width)] for first in (0, width // 2)]
    pairs = zip(in_turns(builder, vectors[::2]), in_turns(builder, vectors[1::2]), strict=True)
    return [shuffle(builder, *pair, mask) for pair in pairs for mask in masks]


def apart(builder: Any, vectors: list[Any]) -> list[Any]:
    """Return what `in_turns` makes these vectors of."""
    if len(vectors) == 1:
        return vectors
    masks = [list(range(first, 2 * vectors[0].type.count, 2)) for first in (0, 1)]
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    even, odd = (apart(builder, [shuffle(builder, *pair, mask) for pair in pairs]) for mask in masks)
    return [vector for pair in zip(even, odd, strict=True) for vector in pair]


def clip(builder: Any, vector: Any, clipped: Any = None) -> Any:
    """Return zero for what is below it, if `clipped` is true; a NaN is kept, which the maximum with zero would hide."""
    zero = ir.Constant(vector.type, [0.0] * vector.type.count)
    above = builder.select(builder.fcmp_ordered("<", vector, zero), zero, vector)
    return above if clipped is None else builder.select(clipped, above, vector)
