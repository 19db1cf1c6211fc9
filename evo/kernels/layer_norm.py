"""Layer normalisation over the channels of each pixel (Ba et al., 2016), and ReLU; the lane count changes no bit.

y = (x - mean) / sqrt(variance + EPSILON) * gamma + beta. A sum over filters is kept as eight partial sums, of every
eighth filter in order. They are then reduced as a tree: (k, k + 4), (k, k + 2), (k, k + 1). Eight filters of all lanes
advance as one vector, whatever the number of lanes. IEEE 754 rounds division and square root correctly.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils

from evo.compiled import cache as kernel_cache
from evo.kernels import vectors
from evo.kernels.layout import rectifies
from evo.networks.network import EPSILON

kernel_cache.use(__name__)

PARTS = 8
VARIANCE_EPSILON = np.float32(EPSILON)


@vectors.emitted()
def _pixel(builder, lanes, x, start, filters, weights, gamma, relu):  # type: ignore[no-untyped-def]
    """Normalise x[start + f * lanes + lane] over f, and rectify it if `relu`; weights[gamma:] is gamma, then beta."""
    emit = partial(_emit, builder, x, start, filters, weights, gamma, relu)
    vectors.each_case(builder, lanes, vectors.WIDTHS, emit)


def _emit(builder: Any, x: Any, start: Any, filters: Any, weights: Any, gamma: Any, relu: Any, width: int) -> None:
    """Emit the code for a number of lanes."""
    kinds = single, narrow, wide = [ir.VectorType(ir.FloatType(), size) for size in (PARTS, width, PARTS * width)]
    load, store, shuffle = (partial(getattr(vectors, name), builder) for name in ("load", "store", "shuffle"))
    rest_first = builder.and_(filters, start.type(-PARTS))
    sums = cgutils.alloca_once(builder, wide)
    parts = builder.bitcast(sums, ir.FloatType().as_pointer())

    def constant(vector: Any, value: float) -> Any:
        return ir.Constant(vector, [value] * vector.count)

    def spread(value: Any, mask: list[int]) -> Any:
        return shuffle(value, ir.Constant(value.type, ir.Undefined), mask)

    def both(value: Any) -> tuple[Any, Any]:
        """Return a value of each lane, and the same for PARTS filters."""
        return value, spread(value, [i % width for i in range(PARTS * width)])

    def each(body: Any) -> None:
        """Emit body(first filter, offset of its values, is_wide) for PARTS filters at a time, and for those left."""
        with cgutils.for_range(builder, builder.udiv(filters, filters.type(PARTS))) as chunk:
            visit(body, builder.mul(chunk.index, filters.type(PARTS)), True)
        with cgutils.for_range(builder, builder.urem(filters, filters.type(PARTS))) as left:
            visit(body, builder.add(rest_first, left.index), False)

    def visit(body: Any, number: Any, is_wide: bool) -> None:
        body(number, builder.add(start, builder.mul(number, number.type(width))), is_wide)

    def mean_of(value: Any) -> Any:
        """Return the mean over filters of value(x, is_wide), in each lane."""
        builder.store(constant(wide, 0.0), sums)

        def add(number: Any, at: Any, is_wide: bool) -> None:
            part = builder.mul(builder.urem(number, number.type(PARTS)), number.type(width))
            vector = kinds[1 + is_wide]
            store(builder.fadd(load(parts, part, vector), value(load(x, at, vector), is_wide)), parts, part)

        each(add)
        totals = [load(parts, start.type(k * width), narrow) for k in range(PARTS)]
        while len(totals) > 1:
            half = len(totals) // 2
            totals = [builder.fadd(totals[k], totals[k + half]) for k in range(half)]
        count = builder.sitofp(filters, ir.FloatType())
        return builder.fdiv(totals[0], vectors.repeated(builder, count, width))

    mean = both(mean_of(lambda value, _: value))

    def squared(value: Any, is_wide: bool) -> Any:
        distance = builder.fsub(value, mean[is_wide])
        return builder.fmul(distance, distance)

    variance = builder.fadd(mean_of(squared), constant(narrow, float(VARIANCE_EPSILON)))
    root = cgutils.get_or_insert_function(builder.module, ir.FunctionType(narrow, [narrow]), f"llvm.sqrt.v{width}f32")
    inverse = both(builder.fdiv(constant(narrow, 1.0), builder.call(root, [variance])))

    def finish(number: Any, at: Any, is_wide: bool) -> None:
        places = (builder.add(base, number) for base in (gamma, builder.add(gamma, filters)))
        if is_wide:
            part_of = [i // width for i in range(PARTS * width)]
            scale, shift = (spread(load(weights, place, single), part_of) for place in places)
        else:
            scale, shift = (vectors.broadcast(builder, weights, place, width) for place in places)
        distance = builder.fsub(load(x, at, kinds[1 + is_wide]), mean[is_wide])
        value = builder.fadd(builder.fmul(builder.fmul(distance, inverse[is_wide]), scale), shift)
        store(vectors.rectify(builder, value, relu), x, at)

    each(finish)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def normalise(layer, packed, out, lanes):  # type: ignore[no-untyped-def]
    """Normalise the output of a layer [pixels, filters, lanes] in place, and rectify it; `lanes` is 16, 8, 4 or 2."""
    filters, relu = layer.filters, rectifies(layer)
    for pixel in range(layer.out_height * layer.out_width):
        _pixel(lanes, out, pixel * filters * lanes, filters, packed, layer.norm, relu)
