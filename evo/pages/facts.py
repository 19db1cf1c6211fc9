"""The facts that a page states about its champion, all from the champion's own file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from evo.errors import counted
from evo.games.catalogue.snake import Options as Snake
from evo.networks.network import Network
from evo.statistics import percentage
from evo.store.champion import Score, score_in

ALGORITHMS = {
    "ga": "a genetic algorithm", "ppo": "PPO", "a2c": "A2C", "reinforce": "REINFORCE", "dqn": "DQN", "pqn": "PQN",
    "erl": "evolutionary reinforcement learning",
}  # fmt: skip


def summary(about: Mapping[str, Any], options: Snake, network: Network, algorithm: str) -> str:
    """Return what plays here and how well, in a sentence."""
    score = score_in(about)
    how_well = "" if score is None else f": {score.mean:.1f} of {_most(options)} fruits on average"
    who = f"A neural network of {network.size:,} weights, trained by {ALGORITHMS.get(algorithm, algorithm)}"
    return f"{who}, plays Snake{how_well}."


def facts(about: Mapping[str, Any], options: Snake, network: Network, command: str) -> Iterator[tuple[str, str]]:
    """Yield names and values; `about` are the facts of the champion's file."""
    score = score_in(about)
    yield "Score", "not tested yet" if score is None else _score(score, options)
    if score is not None and score.win_rate is not None:
        yield "Boards filled", _wins(score)
    yield "Algorithm", f"{about.get('algorithm')}, seed {about.get('seed')}, {_generation(about)}"
    yield "Game", f"{options.title()}, {options.actions} actions, {_mask(options)}"
    yield "Network", f"{_layers(network)}; {network.size:,} weights"
    yield "State hash", str(about.get("state_hash", "unknown"))
    yield "Written by", f"snake-evo {_version()}"
    yield "Command", command


def _score(score: Score, options: Snake) -> str:
    low, high = score.ci95
    played = f"{counted(score.episodes, 'test episode')} of block {score.block}"
    return f"{score.mean:.2f} of {_most(options)} fruits (95 % interval {low:.2f} to {high:.2f}) on {played}"


def _most(options: Snake) -> int:
    """Return the number of fruits that fill the board."""
    return options.size**2 - options.start_length


def _wins(score: Score) -> str:
    low, high = score.win_ci95 or (0.0, 1.0)
    rate, least, most = (percentage(share, ".1f") for share in (score.win_rate or 0, low, high))
    return f"{rate} % (95 % interval {least} to {most} %)"


def _generation(about: Mapping[str, Any]) -> str:
    return f"found in generation {about.get('generation')} of {about.get('generations')}"


def _mask(options: Snake) -> str:
    return "no mask" if options.mask == "none" else f'mask "{options.mask}"'


def _layers(network: Network) -> str:
    """Return the layers in a line, as in "conv 16 3x3/2, dense 256, 3 outputs"."""
    texts = []
    for layer in network.layers[:-1]:
        sides = f" {layer.kernel}x{layer.kernel}/{layer.stride}" if layer.kind == "conv" else ""
        texts.append(f"{layer.kind} {layer.filters}{sides}")
    norm = " with layer normalisation" if any(layer.norm for layer in network.layers) else ""
    return f"{', '.join([*texts, counted(network.outputs, 'output')])}{norm}"


def _version() -> str:
    try:
        return version("snake-evo")
    except PackageNotFoundError:
        return "of unknown version"
