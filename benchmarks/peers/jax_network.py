"""Networks in JAX, by one flat vector of weights in the order of Keras, in several forms that give the same scores."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def convolution(x: Any, kernels: Any, stride: int, padding: str) -> Any:
    """Return XLA's convolution of [B, H, W, C] with [K, K, C, F]."""
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernels, (stride, stride), padding.upper(), dimension_numbers=layout)


def product(x: Any, kernels: Any, stride: int, padding: str) -> Any:
    """Return the same as one matrix product with the patches of `x`, which XLA computes faster on many CPUs."""
    kernel = kernels.shape[0]
    if padding == "same":
        totals = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[1:3]]
        x = jnp.pad(x, ((0, 0), *((total // 2, total - total // 2) for total in totals), (0, 0)))
    rows, columns = (stride * ((side - kernel) // stride) + 1 for side in x.shape[1:3])
    taps = itertools.product(range(kernel), repeat=2)
    patches = [x[:, i : i + rows : stride, j : j + columns : stride] for i, j in taps]
    return jnp.concatenate(patches, -1) @ kernels.reshape(-1, kernels.shape[-1])


def scores(policy: dict[str, Any], convolve: Callable[..., Any], weights: Any, x: Any) -> Any:
    """Return the scores of observations [B, H, W, C] by one flat vector, in the order of Keras.  # [B, A]"""
    start = 0

    def take(*shape: int) -> Any:
        nonlocal start
        start += int(np.prod(shape))
        return weights[start - int(np.prod(shape)) : start].reshape(shape)

    for filters, kernel, stride in policy["conv"]:
        kernels, bias = take(kernel, kernel, x.shape[-1], filters), take(filters)
        x = jax.nn.relu(convolve(x, kernels, stride, policy["padding"]) + bias)
    x = x.reshape(len(x), -1)
    for units in policy["dense"]:
        x = jax.nn.relu(x @ take(x.shape[-1], units) + take(units))
    return x @ take(x.shape[-1], policy["outputs"]) + take(policy["outputs"])


USUAL = "vmap of convolutions"
FORMS = {
    USUAL: (jax.vmap, convolution),
    "vmap of products": (jax.vmap, product),
    "map of convolutions": (None, convolution),
    "map of products": (None, product),
}


def scorer(policy: dict[str, Any], form: str) -> Any:
    """Return a function of weights [K, P] and observations [K, E, H, W, C] that returns scores [K, E, A]."""
    over, convolve = FORMS[form]
    one = partial(scores, policy, convolve)
    return over(one) if over else lambda weights, x: jax.lax.map(lambda both: one(*both), (weights, x))
