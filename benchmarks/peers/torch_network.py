"""Our network as PyTorch layers, padded as TensorFlow pads, and our flat vectors in the order of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def trunk(shape: Sequence[int], conv: Sequence[Sequence[int]], dense: Sequence[int], padding: str) -> list[Any]:
    """Return the hidden layers of a network that sees `shape` = [rows, columns, planes]; it is fed planes first."""
    side, _, planes = shape
    layers: list[Any] = []
    for filters, kernel, stride in conv:
        if padding == "same":
            out = -(-side // stride)
            pad = max((out - 1) * stride + kernel - side, 0)
            if pad % 2:
                layers.append(torch.nn.ZeroPad2d((pad // 2, pad - pad // 2, pad // 2, pad - pad // 2)))
                pad = 0
        else:
            out, pad = (side - kernel) // stride + 1, 0
        layers += [torch.nn.Conv2d(planes, filters, kernel, stride, pad // 2), torch.nn.ReLU()]
        planes, side = filters, out
    layers.append(torch.nn.Flatten())
    inputs = planes * side * side
    for units in dense:
        layers += [torch.nn.Linear(inputs, units), torch.nn.ReLU()]
        inputs = units
    return layers


def network(policy: dict[str, Any]) -> Any:
    """Return the network that `policy` describes: shape, conv, dense, padding and outputs."""
    layers = trunk(policy["shape"], policy["conv"], policy["dense"], policy["padding"])
    inputs = policy["dense"][-1]
    return torch.nn.Sequential(*layers, torch.nn.Linear(inputs, policy["outputs"]))


def translated(weights: NDArray[np.float32], net: Any) -> NDArray[np.float32]:
    """Return flat vectors [K, P] in Keras's order in that of `net.parameters()`.  # [K, P]"""
    parts, start, maps = [], 0, 0
    for layer in net:
        if isinstance(layer, torch.nn.Conv2d):
            kernel, channels, maps = layer.kernel_size[0], layer.in_channels, layer.out_channels
            shape, order = (kernel, kernel, channels, maps), (0, 4, 3, 1, 2)
        elif isinstance(layer, torch.nn.Linear):
            side = round((layer.in_features / maps) ** 0.5) if maps else 1
            channels = maps or layer.in_features
            shape, order = (side, side, channels, layer.out_features), (0, 4, 3, 1, 2)  # flattened planes first
            maps = 0
        else:
            continue
        size = int(np.prod(shape))
        parts.append(weights[:, start : start + size].reshape(-1, *shape).transpose(order).reshape(len(weights), size))
        parts.append(weights[:, start + size : start + size + shape[-1]])
        start += size + shape[-1]
    if start != weights.shape[1]:
        raise ValueError(f"{weights.shape[1]} weights where the network has {start}")
    return np.concatenate(parts, axis=1)
