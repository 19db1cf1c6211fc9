"""Which kernels this installation has compiled on this machine: an empty file beside them for each kind of play."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from pathlib import Path

import evo
import snake
from evo.compiled import cache as kernel_cache
from evo.kernels.lanes import arithmetic
from evo.kernels.layout import GROUP, WIDE, table
from evo.networks.network import Network

EPISODES, RECORDED, SEGMENTS, SCORES = "episodes", "recorded", "segments", "scores"  # what is played, or only scored


def marker(network: Network, masked: bool, what: str) -> Path:
    """Return the file that is there once `what` has been played by such a network, with or without a mask.

    Numba keeps machine code by the place of its sources too, so another checkout of the same ones has files of its own.
    """
    folders = [Path(package.__path__[0]) for package in (evo, snake)]
    place = hashlib.sha1(str(folders[0]).encode(), usedforsecurity=False).hexdigest()
    normed = any(layer.norm for layer in network.layers)
    large = bool((table(network)[:, GROUP] == WIDE).any())
    kind = [arithmetic(network.options), *["normed"] * normed, *["large"] * large, *["masked"] * masked, what]
    return kernel_cache.root() / _directory_name(*folders) / f"{'-'.join(kind)}_{place}.compiled"


@cache
def _directory_name(*folders: Path) -> str:
    """Read the sources once a process: a worker inherits the answer, and does not take longer to be replaced."""
    return kernel_cache.directory_name(list(folders))


def mark(network: Network, masked: bool, what: str) -> None:
    """Note that it has been played; where that cannot be kept, machine code is not kept either."""
    with suppress(OSError):
        marker(network, masked, what).touch()
