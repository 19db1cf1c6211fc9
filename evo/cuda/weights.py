"""Device code of a candidate's weights: rebuilt from parent, mate and noise, as `evo.networks.candidates`.

The flat vector of a candidate has, for each input of a layer, the weights of all filters. Padded weights have those of
eight filters together, of which a thread loads four or eight at once, the same for all lanes of a warp.
"""

from __future__ import annotations

import numpy as np

from evo.cuda.layers import F0, F1
from evo.cuda.plain import divided, is_finite, store1
from evo.cuda.table import BIASES, COLUMNS, END, GAMMA, GROUP, INPUTS, NODES, OF_LAYER, PLACE, ROWS, START, WHAT
from evo.kernels.layout import input_of
from evo.networks.candidates import CROSSOVER, NOISE, _normal
from evo.randomness.philox_compiled import philox

NO_CROSSOVER, UNIFORM, BY_LAYERS = range(3)
ZERO, ONE = np.uint64(0), np.uint64(1)
OF_NOISE, OF_CROSSOVER = np.uint64(NOISE), np.uint64(CROSSOVER)


def from_mate(i, layer, key, crossover):
    """Return whether weight i comes from the mate, 1 or 0."""
    if crossover == BY_LAYERS:
        w0, w1, w2, w3 = philox(key, np.uint64(layer), ZERO, OF_CROSSOVER, ZERO)
        return w0 & ONE
    w0, w1, w2, w3 = philox(key, np.uint64(i // 128), ZERO, OF_CROSSOVER, ZERO)
    word = i % 128 // 32
    bits = w0 if word == 0 else (w1 if word == 1 else (w2 if word == 2 else w3))
    return (bits >> np.uint64(i % 32)) & ONE


def child(i, z, row, mate, key, sigma, scale_row, crossover, parents, layer):
    """Return weight i of a candidate with a parent, by noise recipe 1 or 2, where its noise is z."""
    parent = parents[row, i]
    if mate >= 0 and crossover != NO_CROSSOVER and from_mate(i, layer, key, crossover) != ZERO:
        parent = parents[mate, i]
    if sigma == F0:
        return parent
    if scale_row >= 0:
        return parent + sigma * (parents[scale_row, i] * z)
    return parent + sigma * z


def rebuild(parts, scale, parents, row, mate, key, sigma, scale_row, crossover, weights, t, threads):
    """Write the padded weights of a candidate; return whether those of this thread are finite.

    `scale` [P] multiplies noise in fresh weights, `weights` are flat; the rest is as in a `WeightSource`.
    """
    size, finite = parents.shape[1], True
    block = t
    while 4 * block < size:
        z0, z1, z2, z3 = philox(key, np.uint64(block), ZERO, OF_NOISE, ZERO)
        p = 0
        for k in range(4):
            i = 4 * block + k
            if i >= size:
                break
            z = _normal(z0 if k == 0 else (z1 if k == 1 else (z2 if k == 2 else z3)))
            while i >= parts[p, END]:
                p += 1
            part = parts[p]
            if row >= 0:
                w = child(i, z, row, mate, key, sigma, scale_row, crossover, parents, part[OF_LAYER])
            else:
                w = F1 if part[WHAT] == GAMMA else z * scale[i]
            finite = finite and is_finite(w)
            if part[WHAT] == NODES:
                w = np.float32(input_of(w, part[INPUTS]))
            elif part[WHAT] == BIASES:
                w = w + F0  # -0 becomes 0, as on CPUs
            n, f = divided(i - part[START], part[COLUMNS])
            store1(weights, part[PLACE] + (f - f % GROUP) * part[ROWS] + n * GROUP + f % GROUP, w)
        block += threads
    return finite
