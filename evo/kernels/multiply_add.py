"""One step of a sum in LLVM: a product of floats, or of pairs of bfloat16, is added to a vector of sums.

A pair is a word of 32 bits: the first number below, the second above. A product of two bfloat16 that is in float32's
range is exact; it is added as it is, the second one first, rounded to the nearest each time. Processors with
AVX512-BF16 do both in one instruction; on others, shifts make floats of the halves, and the sums have the same bits but
where a product leaves the range, or a number is subnormal, which the instruction takes for zero.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from evo.compiled import cache as kernel_cache

NATIVE = {"+avx512bf16", "+avx512vl"} <= set(kernel_cache.features().split(","))
WORD = ir.IntType(32)


def fingerprint() -> str:
    """Return how this processor multiplies pairs; sums that meet subnormal or huge numbers differ."""
    return f"lanes in pairs of bfloat16, {'avx512bf16' if NATIVE else 'float32'}"


class BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


def add_product(builder: Any, total: Any, one: Any, other: Any) -> Any:
    """Return total + one * other, all vectors: of floats, or the last two of words that are pairs of bfloat16.

    A number that is spread over a vector had better be `other`, which the processor spreads itself.
    """
    if one.type.element != WORD:
        return builder.fadd(total, builder.fmul(one, other))
    lanes = total.type.count
    if NATIVE and lanes in (4, 8, 16):
        pairs = ir.VectorType(BFloat(), 2 * lanes)
        kind = ir.FunctionType(total.type, (total.type, pairs, pairs))
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        step = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(step, (total, builder.bitcast(one, pairs), builder.bitcast(other, pairs)))
    for half in (_above, _below):
        product = builder.fmul(half(builder, one, total.type), half(builder, other, total.type))
        total = builder.fadd(total, product)
    return total


def join(builder: Any, below: Any, above: Any) -> Any:
    """Return two vectors of floats as words, each number rounded to the nearest bfloat16; a NaN stays one."""
    words = ir.VectorType(WORD, below.type.count)

    def every(value: int) -> Any:
        return ir.Constant(words, [value] * words.count)

    def rounded(value: Any) -> Any:
        bits = builder.bitcast(value, words)
        odd = builder.and_(builder.lshr(bits, every(16)), every(1))
        near = builder.add(bits, builder.add(odd, every(0x7FFF)))
        quiet = builder.or_(bits, every(0x400000))
        return builder.select(builder.fcmp_unordered("uno", value, value), quiet, near)

    return builder.or_(builder.and_(rounded(above), every(0xFFFF0000)), builder.lshr(rounded(below), every(16)))


def _above(builder: Any, words: Any, floats: Any) -> Any:
    mask = ir.Constant(words.type, [0xFFFF0000] * words.type.count)
    return builder.bitcast(builder.and_(words, mask), floats)


def _below(builder: Any, words: Any, floats: Any) -> Any:
    return builder.bitcast(builder.shl(words, ir.Constant(words.type, [16] * words.type.count)), floats)
