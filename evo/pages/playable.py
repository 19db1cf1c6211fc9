"""What a page needs to play a champion, as JSON values, and test episodes that it can be compared with."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.games.catalogue.snake import Options as Snake
from evo.games.catalogue.snake.observations import LOCAL_AGE
from evo.networks.network import Network, Options
from evo.options import EnvironmentOptions
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import Evaluator
from evo.training.testing import played

EPISODES_PER_TASK = 16  # all outputs of a task's episodes are in memory at once
MASK32 = 0xFFFFFFFF
START, PRIME, SHIFT = 2166136261, 16777619, 15
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


class Recorded(NamedTuple):
    """What became of test episodes, in their order."""

    scores: list[int]
    steps: list[int]
    checksums: list[int]  # of every output of the network at every step


def record(published: str, evaluator: Evaluator, score_metric: int, first: int, episodes: int) -> Recorded:
    """Return what becomes of `episodes` test episodes from number `first` on, played greedily.

    `score_metric` is the place of the score among the metrics of an episode. DataError: outputs that are not finite.
    """
    seeds = seeds_of_test_episodes(episodes, first)
    recorded = Recorded([], [], [])
    for start in range(0, episodes, EPISODES_PER_TASK):
        part = seeds[start : start + EPISODES_PER_TASK]
        (result,) = played(published, evaluator, part, record_transitions=True)
        assert result.transitions is not None
        lengths = result.lengths[0]
        outputs = np.split(result.transitions.outputs, np.cumsum(lengths, dtype=np.int64)[:-1])
        recorded.scores.extend(int(score) for score in result.episode_metrics[0, :, score_metric])
        recorded.steps.extend(int(length) for length in lengths)
        recorded.checksums.extend(map(checksum, outputs))
    return recorded


def checksum(outputs: NDArray[np.float32]) -> int:
    """Return 32 bits that depend on every bit of the outputs of an episode.  # [T, O]

    FNV-1a over words, with a shift: without it, the highest bits of two words could cancel, so two wrong signs.
    """
    total = START
    for word in np.ascontiguousarray(outputs, "<f4").view("<u4").ravel().tolist():
        total = ((total ^ word) * PRIME) & MASK32
        total ^= total >> SHIFT
    return total
