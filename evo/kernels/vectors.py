"""Vectors in LLVM: loaded and stored where they lie, spread, and turned from one axis to the other; and bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils


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
    """Return the first number of each of 1, 2, 4... vectors, then the second of each, and so on, as vectors."""
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


def bits_from(builder: Any, words: Any, at: Any, count: Any) -> Any:
    """Return `count` bits, 1 to 64, from bit `at` of an array of words of 64; one word more may be read."""
    i64 = at.type
    pointer = builder.gep(words, [builder.lshr(at, i64(6))])
    low, high = builder.load(pointer), builder.load(builder.gep(pointer, [i64(1)]))
    kind = ir.FunctionType(i64, (i64, i64, i64))
    funnel = cgutils.get_or_insert_function(builder.module, kind, "llvm.fshr.i64")
    mask = builder.lshr(i64(-1), builder.sub(i64(64), count))
    return builder.and_(builder.call(funnel, (high, low, builder.and_(at, i64(63)))), mask)


def each_bit(builder: Any, bits: Any, body: Callable[[Any], None]) -> None:
    """Build `body(k)` for every bit that is set, the lowest first."""
    left = cgutils.alloca_once(builder, bits.type)
    builder.store(bits, left)
    test, step, done = (builder.append_basic_block(name) for name in ("test", "step", "done"))
    builder.branch(test)
    builder.position_at_end(test)
    some = builder.load(left)
    builder.cbranch(builder.icmp_unsigned("!=", some, bits.type(0)), step, done)
    builder.position_at_end(step)
    builder.store(builder.and_(some, builder.sub(some, bits.type(1))), left)
    body(builder.cttz(some, ir.IntType(1)(1)))
    builder.branch(test)
    builder.position_at_end(done)
