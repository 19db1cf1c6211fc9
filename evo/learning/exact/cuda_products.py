"""Device code of the products of updates, in tiles, with the sums of the learner on CPUs.

Every output is one sum by one thread, in the order of its terms, with separate multiplication and addition. Products
with zeros are computed, not left out: they change no sum of finite factors that does not begin with -0.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, types

from evo.cuda.layers import F0, F1, add16, rectified
from evo.cuda.plain import barrier, divided, load1, store1
from evo.kernels.layout import RELU
from evo.learning.exact.plan import BLOCK

# Constants of a kernel: SIDE x SIDE threads compute SIDES x SIDES outputs, 4 x 4 each, and load DEPTH terms of each at
# once, 8 values each; PITCH is the distance of terms in a tile, which is odd so that neighbouring threads use several
# banks; TILE is a tile's size.
SIDE: Any = None
SIDES: Any = None
DEPTH: Any = None
PITCH: Any = None
TILE: Any = None


def constants_of(side: int) -> tuple[tuple[str, int], ...]:
    """Return the constants of kernels for squares of `side` threads, a multiple of 4."""
    pitch, depth = 4 * side + 1, 2 * side
    return (("SIDE", side), ("SIDES", 4 * side), ("DEPTH", depth), ("PITCH", pitch), ("TILE", pitch * depth))


def load(x, i, k, lines, terms, ones):
    """Return term k of line i: 0 behind the last; with `ones`, a line of ones follows the last. It never branches."""
    array, at, line, step = x
    value = load1(array, at + min(i, lines - 1) * line + min(k, terms - 1) * step)
    beyond = F1 if ones and i == lines else F0
    value = value if i < lines else beyond
    return value if k < terms else F0


def load8(x, first, lines, term, terms, ones, along, t):
    """Return what this thread loads of DEPTH terms, from `term` on, of SIDES lines, from `first` on.

    x: (array, at, distance of lines, distance of terms); `along` says that neighbouring terms lie next to each other,
    else neighbouring lines do.
    """
    if along:
        i, k, down, right = first + t // DEPTH, term + t % DEPTH, SIDE // 2, 0
    else:
        i, k, down, right = first + t % SIDES, term + t // SIDES, 0, SIDE // 4
    return (
        load(x, i, k, lines, terms, ones),
        load(x, i + down, k + right, lines, terms, ones),
        load(x, i + 2 * down, k + 2 * right, lines, terms, ones),
        load(x, i + 3 * down, k + 3 * right, lines, terms, ones),
        load(x, i + 4 * down, k + 4 * right, lines, terms, ones),
        load(x, i + 5 * down, k + 5 * right, lines, terms, ones),
        load(x, i + 6 * down, k + 6 * right, lines, terms, ones),
        load(x, i + 7 * down, k + 7 * right, lines, terms, ones),
    )


def store8(tile, values, along, t):
    """Store what `load8` returned to shared memory: tile[k * PITCH + i]."""
    place = t % DEPTH * PITCH + t // DEPTH if along else t // SIDES * PITCH + t % SIDES
    step = SIDE // 2 if along else SIDE // 4 * PITCH
    for k in range(8):
        store1(tile, place + k * step, values[k])


def beginning(start, at, j, columns):
    """Return the bias of column j, where -0 becomes 0; 0 without biases."""
    return load1(start, at + j) + F0 if at >= 0 and j < columns else F0


def put(c, at, value, relu, inside):
    """Store an output, through a ReLU if `relu`, where it is `inside`."""
    if inside:
        store1(c, at, rectified(value, relu))


def put_row(c, at, j, columns, s, relu, inside):
    """Store the four outputs of a row that a thread has summed."""
    put(c, at + j, s[0], relu, inside and j < columns)
    put(c, at + j + SIDE, s[1], relu, inside and j + SIDE < columns)
    put(c, at + j + 2 * SIDE, s[2], relu, inside and j + 2 * SIDE < columns)
    put(c, at + j + 3 * SIDE, s[3], relu, inside and j + 3 * SIDE < columns)


def four(tile, at):
    """Return the values of a thread's four rows, or columns, in a tile."""
    return load1(tile, at), load1(tile, at + SIDE), load1(tile, at + 2 * SIDE), load1(tile, at + 3 * SIDE)


def product(tiles, t, block, c, a, b, start, shape, relu, ones, along_a, along_b):
    """Write a tile of C [rows, columns]: the sums of biases and of the products of A [rows, terms] and B.

    c: (array, at, distance of rows); a, b: as `load8` takes them, b by columns; start: (array, at of biases or -1);
    shape: (rows, terms, columns). `relu` is applied to outputs. All threads of a block call it together.
    """
    rows, terms, columns = shape
    left, right = tiles
    across = (columns + SIDES - 1) // SIDES
    first_row, first_column = divided(block, across)
    first_row, first_column = first_row * SIDES, first_column * SIDES
    row, column = t // SIDE, t % SIDE
    lines = rows - 1 if ones else rows
    j = first_column + column
    begin = (
        beginning(start[0], start[1], j, columns), beginning(start[0], start[1], j + SIDE, columns),
        beginning(start[0], start[1], j + 2 * SIDE, columns), beginning(start[0], start[1], j + 3 * SIDE, columns),
    )  # fmt: skip
    s = begin, begin, begin, begin
    of_a = load8(a, first_row, lines, 0, terms, ones, along_a, t)
    of_b = load8(b, first_column, columns, 0, terms, False, along_b, t)
    for term in range(DEPTH, terms + DEPTH, DEPTH):
        store8(left, of_a, along_a, t)
        store8(right, of_b, along_b, t)
        barrier()
        of_a = load8(a, first_row, lines, term, terms, ones, along_a, t)  # the next ones, while these are added
        of_b = load8(b, first_column, columns, term, terms, False, along_b, t)
        for k in range(DEPTH):
            at, to = k * PITCH + row, k * PITCH + column
            s = add16(s, four(left, at), four(right, to))
        barrier()
    i, to, step = first_row + row, c[1] + (first_row + row) * c[2], SIDE * c[2]
    put_row(c[0], to, j, columns, s[0], relu, i < rows)
    put_row(c[0], to + step, j, columns, s[1], relu, i + SIDE < rows)
    put_row(c[0], to + 2 * step, j, columns, s[2], relu, i + 2 * SIDE < rows)
    put_row(c[0], to + 3 * step, j, columns, s[3], relu, i + 3 * SIDE < rows)


def sums(layers, number, count, w, x):
    """Compute the outputs of a convolution or a dense layer: its sums begin with the biases."""
    left = cuda.shared.array(TILE, types.float32)
    right = cuda.shared.array(TILE, types.float32)
    layer = layers[number]
    filters, terms = layer.filters, layer.terms
    product(
        (left, right), cuda.threadIdx.x, cuda.blockIdx.x, (x, layer.output, filters), (x, layer.patches, terms, 1),
        (w, layer.offset, 1, filters), (w, layer.bias_offset), (count * layer.pixels, terms, filters),
        not layer.norm and layer.activation == RELU, False, True, False,
    )  # fmt: skip


def kernel_gradients(layers, number, count, size, x, gradients):
    """Compute the gradients of kernel and biases for each block of examples.  # [blocks * size]"""
    left = cuda.shared.array(TILE, types.float32)
    right = cuda.shared.array(TILE, types.float32)
    layer = layers[number]
    filters, terms, pixels = layer.filters, layer.terms, layer.pixels
    of_block = ((terms + SIDES) // SIDES) * ((filters + SIDES - 1) // SIDES)  # tiles; biases are one more line
    block, tile = divided(cuda.blockIdx.x, of_block)
    begin, rows = block * BLOCK * pixels, min(BLOCK, count - block * BLOCK) * pixels
    product(
        (left, right), cuda.threadIdx.x, tile, (gradients, block * size + layer.offset, filters),
        (x, layer.patches + begin * terms, 1, terms), (x, layer.d_output + begin * filters, 1, filters),
        (gradients, -1), (terms + 1, rows, filters), False, True, False, False,
    )  # fmt: skip


def input_gradients(layers, number, count, w, x):
    """Compute the gradients of a dense layer's inputs, or of a convolution's patches, which are overwritten."""
    left = cuda.shared.array(TILE, types.float32)
    right = cuda.shared.array(TILE, types.float32)
    layer = layers[number]
    filters, terms = layer.filters, layer.terms
    to = layer.d_input if layer.patches == layer.input else layer.patches
    product(
        (left, right), cuda.threadIdx.x, cuda.blockIdx.x, (x, to, terms), (x, layer.d_output, filters, 1),
        (w, layer.offset, filters, 1), (w, -1), (count * layer.pixels, filters, terms), False, False, True, True,
    )  # fmt: skip
