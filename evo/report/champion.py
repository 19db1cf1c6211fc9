"""The page of a champion: one that plays the game in a browser, where the game has scripts, or recorded episodes.

The former has the game and the network as JSON values, and test episodes that its play is compared with. The scripts
are those of Snake, and, beside the file of a game of several players, one of the same name: duel.js beside duel.py.
"""

from __future__ import annotations

import base64
import html
import math
import string
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.environment import Environment
from evo.errors import ConfigurationError, DataError, counted
from evo.games.catalogue import snake
from evo.games.catalogue.snake import Options as Snake
from evo.games.catalogue.snake.observations import LOCAL_AGE
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.numbers import interval, number, percentage
from evo.options import EnvironmentOptions
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import GOES_ON, Evaluator, WeightSource
from evo.report.html import (
    REPLAYS,
    WATCH,
    WHOLE,
    damaged,
    digests,
    element,
    header,
    inert,
    joined,
    section,
    table,
    whole_page,
)
from evo.report.replays import Episode, results_of, shown_episode
from evo.store.champion import BLOCK
from evo.store.run import Run
from evo.training.testing import median_episode, played, playing, score_of
from evo.version import __version__

ALGORITHMS = {
    "ga": "a genetic algorithm", "ppo": "PPO", "a2c": "A2C", "reinforce": "REINFORCE", "dqn": "DQN", "pqn": "PQN",
    "sac": "SAC", "td3": "TD3", "erl": "evolutionary reinforcement learning",
}  # fmt: skip
BROWSER, SNAKE = Path(__file__).parent / "browser", Path(str(snake.__file__)).parent / "page"
CANVAS = BROWSER.parent / "assets" / "canvas.js"
STYLE, TEMPLATE = "page.css", "page.html"
EPISODES = 200  # that a page can verify, unless asked for another number
RECORDED = 32  # of which the worst, the median and the best are shown
LARGEST = 40_000  # bytes of a recorded episode
EPISODES_PER_TASK = 16  # all outputs of a task's episodes are in memory at once
MASK32 = 0xFFFFFFFF
START, PRIME, SHIFT = 2166136261, 16777619, 15
SIDES = {
    "height": "height", "width": "width", "channels": "channels", "filters": "filters", "kernel": "kernel",
    "stride": "stride", "pad": "pad", "pad_left": "padLeft", "out_height": "outHeight", "out_width": "outWidth",
    "norm": "norm", "kind": "kind", "gates": "gates", "activation": "activation",
}  # fmt: skip


class Scripts(NamedTuple):
    """What a page consists of."""

    main: str
    core: tuple[Path, ...]  # what plays; also runs in a worker and in Node
    interface: tuple[Path, ...]


def scripts_of(environment: Environment) -> Scripts | None:
    """Return what a page of this environment consists of; None where it cannot play the game."""
    game: Any = environment
    if environment.players > 1:
        rules = Path(str(sys.modules[game.definition.module].__file__)).with_suffix(".js")
        return _scripts(BROWSER, rules, BROWSER / "match.js") if rules.exists() else None
    if isinstance(getattr(environment, "options", None), Snake):
        return _scripts(SNAKE, SNAKE / "snake.js", SNAKE / "episode.js", SNAKE / "drawing.js")
    return None


def _scripts(folder: Path, rules: Path, episode: Path, *drawing: Path) -> Scripts:
    core = (BROWSER / "philox.js", rules, BROWSER / "network.js", BROWSER / "player.js", episode)
    shared, last = (BROWSER / "controls.js", CANVAS), BROWSER / "verification.js"
    return Scripts(text(folder / "main.html"), core, (*shared, *drawing, folder / "interface.js", last))


def champion_page(run: Run, title: str, command: str, episodes: int = EPISODES) -> str:
    """Return the page of a champion that plays the first `episodes` of its test block.

    ConfigurationError: a page cannot play this champion. DataError: its outputs are not finite.
    """
    experiment, champion = run.config, run.champion
    network, environment = experiment.network(), run.environment
    data, scripts = playable(environment, network, champion.weights), scripts_of(environment)
    assert scripts is not None  # or it would not be playable
    block = experiment.test.block if run.test is None else run.test.block
    seeds = seeds_of_test_episodes(episodes, block * BLOCK)
    with playing(experiment) as (evaluator, published):
        weights = published.publish(champion.weights[None])
        recorded = record(weights, evaluator, environment, seeds)
        if environment.players > 1:
            results = played(weights, evaluator, seeds, EPISODES_PER_TASK, record_actions=True)
            data["moves"] = [actions.tolist() for result in results for actions in result.actions or ()]
    data |= {"block": block, "first": block * BLOCK, "recorded": recorded}
    return page(title, summary(run), facts(run, command), data, scripts)


def summary(run: Run) -> str:
    """Return what plays here and how well, in a sentence."""
    network, algorithm, options = run.config.network(), run.config.algorithm, run.config.environment
    kind = "neural network" if network.differentiable else network.short_name
    how_well = "" if run.test is None else f": {number(run.test.mean)}{_score_limit_text(options)} on average"
    who = f"A {kind} of {network.size:,} weights, trained by {ALGORITHMS.get(algorithm, algorithm)}"
    return f"{who}, plays {'Snake' if isinstance(options, Snake) else options.id}{how_well}."


def facts(run: Run, command: str) -> Iterator[tuple[str, str]]:
    """Yield names and values, as the champion's file has them."""
    about, score, network, options = run.champion.about, run.test, run.config.network(), run.config.environment
    if score is None:
        yield "Score", "not tested yet"
    else:
        played = f"{counted(score.episodes, 'test episode')} of block {score.block}"
        mean = f"{number(score.mean)}{_score_limit_text(options)}"
        yield "Score", f"{mean} (95 % interval {interval(score.ci95)}) on {played}"
        if score.win_rate is not None:
            wins = (score.win_rate, *(score.win_ci95 or (0.0, 1.0)))
            rate, least, most = (percentage(share, ".1f") for share in wins)
            won = "Boards filled" if isinstance(options, Snake) else "Episodes won"
            yield won, f"{rate} % (95 % interval {least} to {most} %)"
    found = f"found in generation {about.get('generation')} of {about.get('generations')}"
    yield "Algorithm", f"{about.get('algorithm')}, seed {about.get('seed')}, {found}"
    if isinstance(options, Snake):
        mask = "no mask" if options.mask == "none" else f'mask "{options.mask}"'
        yield "Game", f"{options.title()}, {options.actions} actions, {mask}"
    yield "Network", f"{_layers(network)}; {network.size:,} weights"
    yield "State hash", str(about.get("state_hash", "unknown"))
    yield "Written by", f"snake-evo {__version__}"
    yield "Command", command


def _score_limit_text(options: EnvironmentOptions) -> str:
    return f" of {options.size**2 - options.start_length} fruits" if isinstance(options, Snake) else ""


def _layers(network: Network) -> str:
    texts = []
    for layer in network.layers[:-1]:
        sides = f" {layer.kernel}x{layer.kernel}/{layer.stride}" if layer.kind == "conv" else ""
        texts.append(f"{layer.kind} {layer.filters}{sides}")
    norm = " with layer normalisation" if any(layer.norm for layer in network.layers) else ""
    return f"{', '.join([*texts, counted(network.outputs, 'output')])}{norm}"


def page(title: str, summary: str, facts: Iterable[tuple[str, str]], data: Mapping[str, Any], scripts: Scripts) -> str:
    """Return the page, in which nothing of the arguments is read as HTML or script; scripts read `data` as JSON."""
    core, interface, style = script(scripts.core), f"{script(scripts.interface)}\n{WHOLE}", text(BROWSER / STYLE)
    return string.Template(text(BROWSER / TEMPLATE)).substitute(
        title=html.escape(title),
        summary=html.escape(summary),
        facts="\n".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts),
        scripts=digests(WATCH, core, interface),
        styles=digests(style),
        style=style,
        damaged=damaged(),
        main=scripts.main,
        data=inert(data),
        core=core,
        interface=interface,
    )


def text(file: Path) -> str:
    """Return the text of a file."""
    return file.read_text("utf-8")


def script(files: Iterable[Path]) -> str:
    """Return scripts as one, in strict mode."""
    return '"use strict";\n' + "\n".join(map(text, files))


def playable(environment: Environment, network: Network, weights: NDArray[np.float32]) -> dict[str, Any]:
    """Return game and network as the scripts of a page read them; ConfigurationError: a browser cannot repeat them."""
    options: Any = getattr(environment, "options", None)
    if scripts_of(environment) is None:
        raise ConfigurationError(f"--to html: a page cannot play {options.id}, only show it")
    if isinstance(options, Snake) and options.observation == "features":
        raise ConfigurationError('--to html: a page draws the board, but the champion sees "features" alone')
    refuse_inference(network.options)
    if unknown := [layer.kind for layer in network.layers if not layer.weighted and not layer.gates]:
        raise ConfigurationError(
            f"--to html: the network has {unknown[0]}; only convolutions, dense and recurrent layers have a page"
        )
    if not np.isfinite(weights).all():
        raise ConfigurationError("--to html: some weights of the champion are not finite, so it cannot play")
    return {
        **(_snake(options) if isinstance(options, Snake) else _match(environment)),
        "actions": network.actions,
        "layers": [{name: getattr(layer, own) for own, name in SIDES.items()} for layer in network.layers],
        "weights": base64.b64encode(np.ascontiguousarray(weights, "<f4").tobytes()).decode("ascii"),
    }


def _snake(options: Snake) -> dict[str, Any]:
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
    }


def _match(environment: Any) -> dict[str, Any]:
    options, names = environment.options, ["random", *environment.definition.baselines_of(environment.options)]
    return {
        "options": options.numbers,
        "inputs": math.prod(environment.shape),
        "names": [str(name) for name in environment.action_names],
        "opponents": [names[-1 - drawn] for drawn in environment.definition.opponents_of(options)],
    }


def refuse_inference(policy: Policy) -> None:
    """Raise a ConfigurationError where the network is not played by the exact kernel in float32."""
    if policy.inference != "lanes":
        raise ConfigurationError(
            f'--to html: policy.inference is "{policy.inference}", whose bits depend on the machine; '
            'only "lanes" has a page'
        )


def record(
    published: str, evaluator: Evaluator, environment: Environment, seeds: NDArray[np.uint64]
) -> dict[str, list[int]]:
    """Return what became of the episodes of these seeds, played greedily; DataError: outputs that are not finite.

    Checksums are of every output of the network at every step. The score of an episode of several players is 1 where
    the champion wins, -1 where it loses, and otherwise 0.
    """
    recorded: dict[str, list[int]] = {"scores": [], "steps": [], "checksums": []}
    names = environment.episode_metrics
    for result in played(published, evaluator, seeds, EPISODES_PER_TASK, record_transitions=True):
        assert result.transitions is not None
        metrics, ends = result.episode_metrics[0], np.flatnonzero(result.transitions.ends != GOES_ON)
        outputs = np.split(result.transitions.outputs, ends[:-1] + 1)
        if environment.players == 1:
            scores = metrics[:, names.index("score")]
        else:
            scores = metrics[:, names.index("won")] - metrics[:, names.index("lost")]
        recorded["scores"].extend(int(score) for score in scores)
        recorded["steps"].extend(int(length) for length in result.lengths[0])
        recorded["checksums"].extend(map(checksum, outputs))
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


def recorded_page(run: Run, title: str, command: str, episodes: int = RECORDED) -> bytes:
    """Return the page of the worst, median and best of the first test episodes; an EvoError: they cannot be shown."""
    environment, champion = run.environment, run.champion
    if not environment.visible:
        raise ConfigurationError(f"--to html: {run.config.environment.id} draws no pictures")
    block = (run.test.block if run.test else run.config.test.block) * BLOCK
    seeds = seeds_of_test_episodes(episodes, block)
    with playing(run.config) as (evaluator, published):
        source = WeightSource.of_row(published=published.publish(champion.weights[None]))
        (result,) = results_of(evaluator, [source], seeds)
        scores = score_of(result, environment.episode_metrics)
        order = scores.argsort(kind="stable")
        named = {"Worst": int(order[0]), "Median": median_episode(scores), "Best": int(order[-1])}
        shown = list[Episode]()
        for label, episode in named.items():
            seed = seeds[episode : episode + 1]
            (played,) = results_of(evaluator, [source], seed, record=True)
            one = shown_episode(run, f"{label} of {episodes}", played, int(seed[0]), LARGEST)
            if one is not None:
                shown.append(one)
    if not shown:
        raise DataError(f"--to html: the episodes of {run.name} are too long to be shown")
    listed = [*facts(run, command), ("Mean of those shown from", number(float(np.mean(scores))))]
    body = joined([
        header(title, summary(run)),
        section("Episodes", element("div", id="replays"), element("noscript", "Episodes need JavaScript.")),
        section("Facts", table(["fact", "value"], listed, class_="facts")),
    ])  # fmt: skip
    return whole_page(title, body, {"replays": shown}, REPLAYS)
