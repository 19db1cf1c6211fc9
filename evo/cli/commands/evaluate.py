"""Test a run's champion on any number of episodes."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Literal

from evo.cli.arguments import add, flags, whole
from evo.errors import ConfigurationError, counted, printable_lines

if TYPE_CHECKING:
    from evo.config.experiment import Experiment


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir")
    parser.add_argument("--episodes", metavar="N", help="number of test episodes (default: test.episodes of the run)")
    block = "which block of a million test episodes (default: 0, which every run uses)"
    parser.add_argument("--block", metavar="N", help=block)
    add(parser, "--mode")
    other = "change an option of the environment, as for a larger board; may be repeated"
    add(parser, "--set", metavar="environment.KEY=VALUE", help=other)
    add(parser, "--workers", "--backend", "--plugin", "--json")


def main(arguments: Namespace) -> tuple[int, object]:
    """Print the test score."""
    from dataclasses import asdict

    from evo.cli.terminal.display import baselines_text, score_text
    from evo.store.champion import BLOCK, LAST_BLOCK
    from evo.store.metrics import looked_at
    from evo.store.run import Run
    from evo.training import testing
    from evo.training.testing import playing

    episodes = whole("--episodes", arguments.episodes, 1, BLOCK)
    block = whole("--block", arguments.block, 0, LAST_BLOCK)
    run = Run(arguments.run_dir, flags=flags(arguments))
    ours = not arguments.set and arguments.run_dir.is_dir()  # a look at the run's own test episodes
    episodes = episodes or run.config.test.episodes
    block = run.config.test.block if block is None else block
    experiment = run.with_environment(arguments.set) if arguments.set else run.config
    weights = run.champion.weights
    environment, network = experiment.make_environment(), experiment.network()
    rule = sampled(environment, network) if arguments.mode == "sample" else "greedy"
    with playing(experiment) as (evaluator, published):
        score, _ = testing.measure(weights, published.publish, evaluator, environment, episodes, rule, block)
    looked = looked_at(arguments.run_dir, block, episodes) if block and ours else 0
    if not arguments.json:
        if arguments.set:
            print(experiment.environment.title())
            print(printable_lines("\n".join(_changed(run.config, experiment))))
        print(score_text(score, environment.is_exact))
        baselines = testing.baselines(environment, score.episodes, score.block, testing.BASELINE_SECONDS)
        if others := baselines_text(baselines, score):
            print(f"baselines on the same episodes, or the first of them:\n{others}")
        if looked:
            print(f"evaluated on block {block} {counted(looked, 'time')} before: choose nothing by this score")
    return 0, {**asdict(score), "mode": arguments.mode, **({"changed": arguments.set} if arguments.set else {})}


def _changed(ours: Experiment, other: Experiment) -> list[str]:
    """Return a line for every option of the environment that another experiment has otherwise than the run."""
    from evo.config.identity import difference

    one, another = ({"environment": each.environment.model_dump()} for each in (ours, other))
    return difference(one, another) or ["no option differs from those of the run"]


def sampled(environment: Any, network: Any) -> Literal["softmax", "gaussian", "squashed"]:
    """Return how actions are drawn; ConfigurationError where the network says nothing about their spread."""
    if not environment.continuous:
        return "softmax"
    if network.outputs < 2 * environment.actions:
        raise ConfigurationError('--mode: the champion gives numbers without a spread to draw from; use "greedy"')
    return "squashed" if network.options.output == "tanh" else "gaussian"
