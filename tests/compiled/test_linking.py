"""Large functions are optimised once, and small ones in all that call them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from evo.compiled import linking
from evo.kernels import lanes, layout, tiles
from evo.networks.network import Network, Options


def test_a_kernel_is_optimised_before_large_functions_that_it_calls_are_copied_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = list[str]()

    def optimise(library: Any) -> None:
        if library.name.endswith("play"):
            seen.extend(one.name for one in library.get_defined_functions())
        optimised(library)

    optimised = linking._optimised
    monkeypatch.setattr(linking, "_optimised", optimise)
    network = Network.build(Options(kind="cnn", conv=[[4, 3, 1]], dense=[]), (5, 5, 2), 3)
    layers, packed, _, nonzero, x, first, *_ = lanes.arguments_for(network)
    layout.pack(layers, np.ones(network.size, np.float32), packed)

    @njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def play(layers, packed, x, first, nonzero):  # type: ignore[no-untyped-def]
        tiles.compute(layers[0], packed, x, first, lanes.lanes_for(16), nonzero)

    play(layers, packed, x, first, nonzero)
    (library,) = (found.library for found in play.overloads.values())
    inside = {one.name for one in library.get_defined_functions()}
    assert any("tiles7compute" in name for name in inside)
    assert not any("tiles7compute" in name for name in seen)
    assert any("lanes_for" in name for name in seen)
    assert first.any()
