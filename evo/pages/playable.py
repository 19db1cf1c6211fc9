"""What a page needs to play a champion: the rules, what is seen, the layers and the weights, as JSON values."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.games.catalogue.snake import Options as Snake
from evo.games.catalogue.snake.observations import LOCAL_AGE
from evo.networks.network import Network, Options
from evo.options import EnvironmentOptions

SIDES = {
    "height": "height", "width": "width", "channels": "channels", "filters": "filters", "kernel": "kernel",
    "stride": "stride", "pad": "pad", "pad_left": "padLeft", "out_height": "outHeight", "out_width": "outWidth",
    "norm": "norm",
}  # fmt: skip


def playable(options: EnvironmentOptions, network: Network, weights: NDArray[np.float32]) -> dict[str, Any]:
    """Return the game and the network as the scripts of a page read them.

    ConfigurationError: another game than Snake, an inference that a browser cannot repeat, weights that are not finite.
    """
    if not isinstance(options, Snake):
        raise ConfigurationError(f"--to html: {options.id} has no page yet, only Snake has one")
    if options.observation == "features":
        raise ConfigurationError('--to html: a page draws the board, but the champion sees "features" alone')
    refuse_inference(network.options)
    refuse_layers(network)
    if not np.isfinite(weights).all():
        raise ConfigurationError("--to html: some weights of the champion are not finite, so it cannot play")
    side, _, planes = options.shape
    oldest = LOCAL_AGE if options.observation == "local" else options.size**2
    return {
        "rules": {
            "size": options.size,
            "startLength": options.start_length,
            "starvation": options.starvation,
            "maxSteps": options.max_steps,
            "tailFatal": options.tail == "fatal",
            "relative": options.actions == "relative",
        },
        "seen": {"kind": options.observation, "side": side, "planes": planes, "oldest": oldest},
        "mask": options.mask,
        "actions": network.actions,
        "layers": [
            {name: getattr(layer, own) for own, name in SIDES.items()} | {"relu": layer.activation == "relu"}
            for layer in network.layers
        ],
        "weights": base64.b64encode(np.ascontiguousarray(weights, "<f4").tobytes()).decode("ascii"),
    }


def refuse_layers(network: Network) -> None:
    """Raise a ConfigurationError where a layer is none of those that the scripts compute."""
    for layer in network.layers:
        what: str = layer.kind if not layer.weighted else layer.activation if layer.activation == "tanh" else ""
        if layer.norm and layer.activation != "relu":
            what = what or "normalisation without relu"
        if what:
            raise ConfigurationError(
                f"--to html: the network has {what}; only convolutions and dense layers with relu have a page yet"
            )


def refuse_inference(policy: Options) -> None:
    """Raise a ConfigurationError where the network is not played by the exact kernel in float32."""
    if policy.inference != "lanes":
        raise ConfigurationError(
            f'--to html: policy.inference is "{policy.inference}", whose bits depend on the machine; '
            'only "lanes" has a page'
        )
