"""LLVM code for compiled functions: vectors (load, store, shuffle, broadcast, interleave, rectify), bits, and cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTHS = (16, 8, 4, 2)  # lanes that are computed together


def emitted(result: Any = types.none) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function of compiled code, which returns a `result`, of one that emits its code.

    The latter is given the builder and all arguments: of arrays a pointer to the first element, of tuples a list.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def compiled(typing: Any, *kinds: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                values = map(partial(_value_of, context, builder), signature.args, arguments)
                found = emit(builder, *values)
                return context.get_dummy_value() if found is None else found

            # Named one by one: of a signature with *kinds, Numba would make one tuple of them.
            named = [Parameter(f"_{k}", Parameter.POSITIONAL_ONLY) for k in range(1 + len(kinds))]
            compiled.__signature__ = Signature(named)  # type: ignore[attr-defined]
            return result(*map(_passed_as, kinds)), generate

        compiled.__name__ = emit.__name__
        return intrinsic(compiled)

    return decorate


def _passed_as(kind: Any) -> Any:
    """Return the type as which an argument is passed: whole numbers as 64 bits, others as float32."""
    numbers = {types.Boolean: types.boolean, types.Integer: types.intp, types.Float: types.float32}
    return next((passed for number, passed in numbers.items() if isinstance(kind, number)), kind)


def _value_of(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        return context.make_array(kind)(context, builder, value).data
    if isinstance(kind, types.BaseTuple):
        return list(map(partial(_value_of, context, builder), kind, cgutils.unpack_tuple(builder, value)))
    return None if isinstance(kind, types.NoneType) else value


def each_case(builder: Any, value: Any, cases: Iterable[int], body: Callable[[int], None]) -> None:
    """Emit code for every case of a whole number, which is one of them."""
    done = builder.append_basic_block("done")
    switch = builder.switch(value, done)
    for case in cases:
        block = builder.append_basic_block("case")
        switch.add_case(value.type(case), block)
        builder.position_at_end(block)
        body(case)
        builder.branch(done)
    builder.position_at_end(done)


def load(builder: Any, pointer: Any, at: Any, vector: Any) -> Any:
    """Return a vector of type `vector` loaded from pointer[at:]; only 4-byte alignment is assumed."""
    value = builder.load(builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer()))
    value.align = 4
    return value


def store(builder: Any, value: Any, pointer: Any, at: Any) -> None:
    """Store a vector to pointer[at:]; only 4-byte alignment is assumed."""
    builder.store(value, builder.bitcast(builder.gep(pointer, [at]), value.type.as_pointer())).align = 4


def shuffle(builder: Any, one: Any, other: Any, mask: list[int]) -> Any:
    """Return the elements that `mask` selects from the concatenation of two vectors."""
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(mask)), mask))


def broadcast(builder: Any, pointer: Any, at: Any, width: int) -> Any:
    """Return a vector whose elements all equal pointer[at].

    LLVM folds the load into the multiplication, as a broadcast memory operand.
    """
    value = load(builder, pointer, at, ir.VectorType(ir.FloatType(), 1))
    return shuffle(builder, value, ir.Constant(value.type, ir.Undefined), [0] * width)


def repeated(builder: Any, value: Any, width: int) -> Any:
    """Return a vector whose elements all equal a number."""
    i32 = ir.IntType(32)
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, width), ir.Undefined), value, i32(0))
    return shuffle(builder, one, one, [0] * width)


def interleave(builder: Any, vectors: list[Any]) -> list[Any]:
    """Return the transpose of N vectors, N a power of two: the first element of each, then the second, and so on."""
    if len(vectors) == 1:
        return vectors
    width = vectors[0].type.count
    masks = [[k // 2 + k % 2 * width + first for k in range(width)] for first in (0, width // 2)]
    pairs = zip(interleave(builder, vectors[::2]), interleave(builder, vectors[1::2]), strict=True)
    return [shuffle(builder, *pair, mask) for pair in pairs for mask in masks]


def deinterleave(builder: Any, vectors: list[Any]) -> list[Any]:
    """Invert `interleave`."""
    if len(vectors) == 1:
        return vectors
    masks = [list(range(first, 2 * vectors[0].type.count, 2)) for first in (0, 1)]
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    even, odd = (deinterleave(builder, [shuffle(builder, *pair, mask) for pair in pairs]) for mask in masks)
    return [vector for pair in zip(even, odd, strict=True) for vector in pair]


def rectify(builder: Any, vector: Any, condition: Any = None) -> Any:
    """Return the ReLU of a vector where `condition` is true or None; a NaN stays a NaN."""
    zero = ir.Constant(vector.type, [0.0] * vector.type.count)
    rectified = builder.select(builder.fcmp_ordered("<", vector, zero), zero, vector)
    return rectified if condition is None else builder.select(condition, rectified, vector)


def bits_from(builder: Any, words: Any, at: Any, count: Any) -> Any:
    """Return bits at : at + count of an array of 64-bit words, 1 <= count <= 64; the next word is read as well."""
    i64 = at.type
    pointer = builder.gep(words, [builder.lshr(at, i64(6))])
    low, high = builder.load(pointer), builder.load(builder.gep(pointer, [i64(1)]))
    kind = ir.FunctionType(i64, (i64, i64, i64))
    funnel = cgutils.get_or_insert_function(builder.module, kind, "llvm.fshr.i64")
    mask = builder.lshr(i64(-1), builder.sub(i64(64), count))
    return builder.and_(builder.call(funnel, (high, low, builder.and_(at, i64(63)))), mask)


def each_bit(builder: Any, bits: Any, body: Callable[[Any], None]) -> None:
    """Emit a loop that runs `body(k)` for every set bit k, lowest first."""
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
