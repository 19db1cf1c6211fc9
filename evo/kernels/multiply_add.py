"""Multiply-accumulate in LLVM: add a product of float32, or of bfloat16 pairs, to a vector of float32 sums.

A bfloat16 pair is a 32-bit word; its first number is in the low half, its second in the high half. The product of two
bfloat16 numbers is exact in float32 unless it leaves the range. The product of the high halves is added first, then
that of the low halves, each with rounding to nearest.

Processors with AVX512-BF16 do both in one instruction. On others, shifts convert the halves to float32. Both give the
same bits, except where a product overflows or underflows, or an operand is subnormal: the instruction flushes
subnormals to zero.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from evo.compiled import cache as kernel_cache

NATIVE = {"+avx512bf16", "+avx512vl"} <= set(kernel_cache.features().split(","))
WORD = ir.IntType(32)


def fingerprint() -> str:
    """Return how this processor multiplies bfloat16 pairs; the two ways differ on subnormal or huge numbers."""
    return f"lanes with bfloat16 pairs, {'avx512bf16' if NATIVE else 'float32'}"


class BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat type, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


def multiply_add(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Return total + left * right for vectors; `left` and `right` hold float32 or bfloat16 pairs.

    Pass a broadcast vector as `right`, so that it becomes a broadcast memory operand.
    """
    if left.type.element != WORD:
        return builder.fadd(total, builder.fmul(left, right))
    lanes = total.type.count
    if NATIVE and lanes in (4, 8, 16):
        pairs = ir.VectorType(BFloat(), 2 * lanes)
        kind = ir.FunctionType(total.type, (total.type, pairs, pairs))
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        step = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(step, (total, builder.bitcast(left, pairs), builder.bitcast(right, pairs)))
    for half in (_high_half, _low_half):
        product = builder.fmul(half(builder, left, total.type), half(builder, right, total.type))
        total = builder.fadd(total, product)
    return total


def pack_pairs(builder: Any, low: Any, high: Any) -> Any:
    """Return bfloat16 pairs of two float32 vectors, rounded to nearest, ties to even; a NaN stays a NaN."""
    words = ir.VectorType(WORD, low.type.count)

    def constant(value: int) -> Any:
        return ir.Constant(words, [value] * words.count)

    def rounded(value: Any) -> Any:
        bits = builder.bitcast(value, words)
        odd = builder.and_(builder.lshr(bits, constant(16)), constant(1))
        near = builder.add(bits, builder.add(odd, constant(0x7FFF)))
        quiet = builder.or_(bits, constant(0x400000))
        return builder.select(builder.fcmp_unordered("uno", value, value), quiet, near)

    return builder.or_(builder.and_(rounded(high), constant(0xFFFF0000)), builder.lshr(rounded(low), constant(16)))


def _high_half(builder: Any, words: Any, floats: Any) -> Any:
    mask = ir.Constant(words.type, [0xFFFF0000] * words.type.count)
    return builder.bitcast(builder.and_(words, mask), floats)


def _low_half(builder: Any, words: Any, floats: Any) -> Any:
    return builder.bitcast(builder.shl(words, ir.Constant(words.type, [16] * words.type.count)), floats)
