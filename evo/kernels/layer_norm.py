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
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from evo.compiled import cache as kernel_cache
from evo.kernels import vectors
from evo.kernels.layout import rectifies
from evo.networks.network import EPSILON

kernel_cache.use(__name__)

PARTS = 8
VARIANCE_EPSILON = np.float32(EPSILON)


@intrinsic(prefer_literal=True)
def _pixel(typing, lanes, out, start, filters, packed, gamma, relu):  # type: ignore[no-untyped-def]
    """Normalise out[start + f * lanes + lane] over f, and rectify it if `relu`; packed[gamma:] is gamma, then beta."""
    if not isinstance(lanes, types.IntegerLiteral):
        return None
    width = lanes.literal_value
    signature = types.void(lanes, out, types.intp, types.intp, packed, types.intp, types.boolean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, out_, start_, filters_, packed_, gamma_, relu_ = arguments
        single, narrow, wide = (ir.VectorType(ir.FloatType(), size) for size in (PARTS, width, PARTS * width))
        i32, i64 = ir.IntType(32), start_.type

        def integer(value: int) -> Any:
            return ir.Constant(i64, value)

        def constant(vector: Any, value: float) -> Any:
            return ir.Constant(vector, [value] * vector.count)

        def data(argument: int, value: Any) -> Any:
            return context.make_array(signature.args[argument])(context, builder, value).data

        x, weights = data(1, out_), data(4, packed_)

        load, store = partial(vectors.load, builder), partial(vectors.store, builder)

        def expand(value: Any, vector: Any, mask: list[int]) -> Any:
            indices = ir.Constant(ir.VectorType(i32, vector.count), mask)
            return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), indices)

        lane_of = [i % width for i in range(PARTS * width)]
        part_of = [i // width for i in range(PARTS * width)]
        chunks, rest = builder.udiv(filters_, integer(PARTS)), builder.urem(filters_, integer(PARTS))
        rest_first = builder.mul(chunks, integer(PARTS))
        count = expand(
            builder.insert_element(
                ir.Constant(narrow, ir.Undefined), builder.sitofp(filters_, ir.FloatType()), ir.Constant(i32, 0)
            ),
            narrow,
            [0] * width,
        )
        sums = cgutils.alloca_once(builder, wide)
        parts = builder.bitcast(sums, ir.FloatType().as_pointer())

        def at(filter_: Any) -> Any:
            return builder.add(start_, builder.mul(filter_, integer(width)))

        def each_chunk() -> Any:
            return cgutils.for_range(builder, chunks)

        def mean_of(value: Any) -> Any:
            """Return the mean over filters of value(x, is_wide)."""
            builder.store(constant(wide, 0.0), sums)
            with each_chunk() as chunk:
                term = value(load(x, at(builder.mul(chunk.index, integer(PARTS))), wide), True)
                builder.store(builder.fadd(builder.load(sums), term), sums)
            with cgutils.for_range(builder, rest) as left:
                part = builder.mul(left.index, integer(width))
                term = value(load(x, at(builder.add(rest_first, left.index)), narrow), False)
                store(builder.fadd(load(parts, part, narrow), term), parts, part)
            totals = [load(parts, integer(k * width), narrow) for k in range(PARTS)]
            while len(totals) > 1:
                half = len(totals) // 2
                totals = [builder.fadd(totals[k], totals[k + half]) for k in range(half)]
            return builder.fdiv(totals[0], count)

        mean = mean_of(lambda value, _: value)
        mean_wide = expand(mean, wide, lane_of)

        def centred(value: Any, is_wide: bool) -> Any:
            return builder.fsub(value, mean_wide if is_wide else mean)

        def squared(value: Any, is_wide: bool) -> Any:
            distance = centred(value, is_wide)
            return builder.fmul(distance, distance)

        variance = builder.fadd(mean_of(squared), constant(narrow, float(VARIANCE_EPSILON)))
        root = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(narrow, [narrow]), f"llvm.sqrt.v{width}f32"
        )
        inverse = builder.fdiv(constant(narrow, 1.0), builder.call(root, [variance]))
        inverse_wide = expand(inverse, wide, lane_of)
        beta_ = builder.add(gamma_, filters_)

        def finish(value: Any, is_wide: bool, scale: Any, shift: Any) -> Any:
            distance = builder.fmul(centred(value, is_wide), inverse_wide if is_wide else inverse)
            return vectors.rectify(builder, builder.fadd(builder.fmul(distance, scale), shift), relu_)

        with each_chunk() as chunk:
            first = builder.mul(chunk.index, integer(PARTS))
            scale, shift = (
                expand(load(weights, builder.add(base, first), single), wide, part_of) for base in (gamma_, beta_)
            )
            store(finish(load(x, at(first), wide), True, scale, shift), x, at(first))
        with cgutils.for_range(builder, rest) as left:
            number = builder.add(rest_first, left.index)
            scale, shift = (
                expand(
                    builder.insert_element(
                        ir.Constant(narrow, ir.Undefined),
                        builder.load(builder.gep(weights, [builder.add(base, number)])),
                        ir.Constant(i32, 0),
                    ),
                    narrow,
                    [0] * width,
                )
                for base in (gamma_, beta_)
            )
            store(finish(load(x, at(number), narrow), False, scale, shift), x, at(number))
        return context.get_dummy_value()

    return signature, generate


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def normalise(layer, packed, out, lanes):  # type: ignore[no-untyped-def]
    """Normalise the output of a layer [pixels, filters, lanes] in place, and rectify it; `lanes` is 16, 8, 4 or 2."""
    filters, gamma, relu = layer.filters, layer.norm, rectifies(layer)  # type: ignore[no-untyped-call]
    for pixel in range(layer.out_height * layer.out_width):
        start = pixel * filters * lanes
        if lanes == 16:
            _pixel(16, out, start, filters, packed, gamma, relu)
        elif lanes == 8:
            _pixel(8, out, start, filters, packed, gamma, relu)
        elif lanes == 4:
            _pixel(4, out, start, filters, packed, gamma, relu)
        else:
            _pixel(2, out, start, filters, packed, gamma, relu)
