"""The web page of a champion: one HTML file that plays it in a browser, with its facts and a check of its play."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import string
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from evo.config.environments import environment_of
from evo.errors import counted
from evo.games.catalogue import snake
from evo.games.catalogue.snake import Options as Snake
from evo.networks.network import Network
from evo.numbers import interval, number, percentage
from evo.pages.playable import playable, record
from evo.store.champion import score_in
from evo.store.run import Run
from evo.training.testing import BLOCK, playing
from evo.version import __version__

ALGORITHMS = {
    "ga": "a genetic algorithm", "ppo": "PPO", "a2c": "A2C", "reinforce": "REINFORCE", "dqn": "DQN", "pqn": "PQN",
    "erl": "evolutionary reinforcement learning",
}  # fmt: skip
BROWSER, GAME = Path(__file__).parent / "browser", Path(str(snake.__file__)).parent / "page"
CORE = ("philox.js", "snake.js", "network.js", "episode.js")  # what plays; also runs in a worker and in Node
INTERFACE = ("drawing.js", "interface.js", "verification.js")
STYLE, TEMPLATE = "page.css", "page.html"
EPISODES = 200  # that a page can verify, unless asked for another number


def champion_page(run: Run, title: str, command: str, episodes: int = EPISODES) -> str:
    """Return the page of a run's champion, the same for equal arguments.

    For it, the champion plays the first `episodes` test episodes of the block on which it was tested.
    ConfigurationError: a page cannot play this champion. DataError: its outputs are not finite.
    """
    experiment, champion = run.config, run.champion
    network, options = experiment.network(), experiment.environment
    data = playable(options, network, champion.weights)
    assert isinstance(options, Snake)  # or it would not be playable
    score = score_in(champion.about)
    block = experiment.test.block if score is None else score.block
    score_metric = environment_of(options).episode_metrics.index("score")
    with playing(experiment) as (evaluator, published):
        weights = published.publish(champion.weights[None])
        recorded = record(weights, evaluator, score_metric, block * BLOCK, episodes)
    data |= {"block": block, "first": block * BLOCK, "recorded": recorded._asdict()}
    subtitle = summary(champion.about, options, network, experiment.algorithm)
    return page(title, subtitle, facts(champion.about, options, network, command), data)


def summary(about: Mapping[str, Any], options: Snake, network: Network, algorithm: str) -> str:
    """Return what plays here and how well, in a sentence."""
    score = score_in(about)
    how_well = "" if score is None else f": {number(score.mean)} of {_most(options)} fruits on average"
    who = f"A neural network of {network.size:,} weights, trained by {ALGORITHMS.get(algorithm, algorithm)}"
    return f"{who}, plays Snake{how_well}."


def facts(about: Mapping[str, Any], options: Snake, network: Network, command: str) -> Iterator[tuple[str, str]]:
    """Yield names and values; `about` are the facts of the champion's file."""
    score = score_in(about)
    if score is None:
        yield "Score", "not tested yet"
    else:
        played = f"{counted(score.episodes, 'test episode')} of block {score.block}"
        scored = f"{number(score.mean)} of {_most(options)} fruits"
        yield "Score", f"{scored} (95 % interval {interval(score.ci95)}) on {played}"
        if score.win_rate is not None:
            wins = (score.win_rate, *(score.win_ci95 or (0.0, 1.0)))
            rate, least, most = (percentage(share, ".1f") for share in wins)
            yield "Boards filled", f"{rate} % (95 % interval {least} to {most} %)"
    found = f"found in generation {about.get('generation')} of {about.get('generations')}"
    yield "Algorithm", f"{about.get('algorithm')}, seed {about.get('seed')}, {found}"
    mask = "no mask" if options.mask == "none" else f'mask "{options.mask}"'
    yield "Game", f"{options.title()}, {options.actions} actions, {mask}"
    yield "Network", f"{_layers(network)}; {network.size:,} weights"
    yield "State hash", str(about.get("state_hash", "unknown"))
    yield "Written by", f"snake-evo {__version__}"
    yield "Command", command


def _most(options: Snake) -> int:
    """Return the number of fruits that fill the board."""
    return options.size**2 - options.start_length


def _layers(network: Network) -> str:
    """Return the layers in a line, as in "conv 16 3x3/2, dense 256, 3 outputs"."""
    texts = []
    for layer in network.layers[:-1]:
        sides = f" {layer.kernel}x{layer.kernel}/{layer.stride}" if layer.kind == "conv" else ""
        texts.append(f"{layer.kind} {layer.filters}{sides}")
    norm = " with layer normalisation" if any(layer.norm for layer in network.layers) else ""
    return f"{', '.join([*texts, counted(network.outputs, 'output')])}{norm}"


def page(title: str, summary: str, facts: Iterable[tuple[str, str]], data: Mapping[str, Any]) -> str:
    """Return the page; equal arguments give an equal page. Nothing of the arguments is read as HTML or as a script.

    `facts` are names and values, `data` is JSON that the scripts read.
    """
    core, interface, style = script(CORE), script(INTERFACE), text(STYLE)
    return string.Template(text(TEMPLATE)).substitute(
        title=html.escape(title),
        summary=html.escape(summary),
        facts="\n".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts),
        scripts=" ".join(f"'{digest(part)}'" for part in (core, interface)),
        styles=f"'{digest(style)}'",
        style=style,
        data=inert(data),
        core=core,
        interface=interface,
    )


def text(name: str) -> str:
    """Return the text of a file of the folder `browser`, or of the game's own folder."""
    return ((GAME if (GAME / name).exists() else BROWSER) / name).read_text("utf-8")


def script(names: Iterable[str]) -> str:
    """Return scripts as one, in strict mode."""
    return '"use strict";\n' + "\n".join(map(text, names))


def inert(data: Mapping[str, Any]) -> str:
    """Return JSON that cannot end its element, nor begin a comment or another one."""
    plain = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def digest(part: str) -> str:
    """Return the source expression by which the page's security policy lets this script or style run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode('ascii')}"
