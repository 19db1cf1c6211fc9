"""How a finished run is shown: its champion's score beside other players', a game of it, and what to type next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from evo.cli.terminal.display import Display, Table

if TYPE_CHECKING:
    from evo.cli.terminal.game_show import Recording
    from evo.cli.terminal.summary import Heldout, Summary
    from evo.config.experiment import Experiment
    from evo.records import Evaluator
    from evo.store.store import Store
    from evo.training.champion import Crown
    from evo.training.validation import Validated

SECONDS = 5.0  # of a game
FRAMES_PER_SECOND = 30.0
REFERENCE_EPISODES = 30


def kernels_are_missing(experiment: Experiment) -> bool:
    """Return whether Numba has to compile what plays this experiment; it has not done so on this machine yet."""
    if experiment.policy.player != "lanes":
        return False
    from evo.config.experiment import environment_of
    from evo.rollouts.rollout import kernels_are_kept

    return not kernels_are_kept(environment_of(experiment.environment), experiment.transitions_from)


def watched(display: Display) -> bool:
    """Return whether a person looks at a terminal."""
    return isinstance(display, Table)


def record_game(
    experiment: Experiment, algorithm: Validated, crown: Crown, evaluator: Evaluator, store: Store
) -> Recording | None:
    """Return the sealed episode of the median score, neither a lucky nor an unlucky one; None beside Snake."""
    weights = algorithm.best
    if weights is None or crown.scores is None or experiment.environment.id != "snake":
        return None
    from evo.cli.terminal.game_show import record

    order = crown.scores.argsort(kind="stable")
    return record(store.publish(weights[None]), evaluator, int(order[len(order) // 2]))


def ending(experiment: Experiment, summary: Summary, display: Display, game: Recording | None) -> None:
    """Show what came of a run."""
    champion = summary.champion
    if champion is None:
        display.say("no champion: none was crowned yet, or no candidate had finite scores")
    else:
        display.say(f"champion  {champion.fitness:.2f} mean return on the episodes that crowned it")
        if champion.heldout is not None:
            display.say("sealed    " + told(champion.heldout).replace("\n", "\n" + 10 * " "))
            display.say(references(experiment))
    if game is not None:
        from evo.cli.terminal.game_show import watch

        last = int(SECONDS * FRAMES_PER_SECOND)
        caption = f"the end of a middling sealed game, {game.score} fruits (any key skips)"
        watch(game.positions(experiment.environment)[-last:], FRAMES_PER_SECOND, caption)
    directory = shlex.quote(str(summary.run_dir))
    display.say(f"run       {directory}")
    display.say("watch it, measure it, go on:" if champion is not None else "go on:")
    if champion is not None:
        display.say(f"  python -m evo replay {directory}")
        display.say(f"  python -m evo evaluate {directory} --episodes 1000")
    more = 2 * (summary.generations or experiment.generations)
    display.say(f"  python -m evo resume {directory} --generations {more}")


def told(heldout: Heldout) -> str:
    """Return a sealed score in two lines, which fit into 80 columns."""
    low, high = heldout.ci95
    interval = f", 95 % interval {low:.2f} to {high:.2f}" if heldout.episodes > 1 else ""
    wins = f", won {100 * heldout.win_rate:.3g} %" if heldout.win_rate is not None else ""
    return (
        f"{heldout.mean:.2f} on {heldout.episodes} unseen episodes{interval}\n"
        f"median {heldout.median:g}, best {heldout.max:g}{wins}"
    )


def references(experiment: Experiment) -> str:
    """Return the scores of other players in one line, or nothing beside Snake."""
    from evo.training.testing import reference_scores

    scores = reference_scores(experiment.environment, REFERENCE_EPISODES)
    return f"beside    {', '.join(f'{name} {score:.1f}' for name, score in scores.items())}" if scores else ""
