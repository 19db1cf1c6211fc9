"""The page of a champion, with what the trainer's player makes of test episodes for it to be checked with."""

from __future__ import annotations

from evo.config.environments import environment_of
from evo.games.catalogue.snake import Options as Snake
from evo.pages.facts import facts, summary
from evo.pages.page import page
from evo.pages.playable import playable
from evo.pages.recorded import record
from evo.store.champion import score_in
from evo.store.run import Run
from evo.training.testing import BLOCK, playing

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
