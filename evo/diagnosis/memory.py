"""What a network with memory makes of it: its champion plays test episodes, and again with its state always zero.

Looked at are also numbers of the state that never change, and, where a network learns by gradients through time, how
much of a small change of the state is left after as many steps (Bengio, Simard and Frasconi, 1994).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.diagnosis.signs import Check, Signs, checked
from evo.errors import EvoError, counted
from evo.learning.hyperparameters import pieces_of
from evo.networks.network import Network
from evo.numbers import figure, percent
from evo.plugins import directory
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import Episodes, Task, WeightSource, empty_result
from evo.rollouts.rollout import LanesKernel
from evo.store.champion import BLOCK

EPISODES, LOOKED_AT = 32, 16  # that are played; the first ones, whose states are looked at
MOST_STEPS = 100_000  # of all episodes together; where they have more, they are not played to the end
CERTAIN = 2.0  # standard errors by which memory must help
LIMIT, ALWAYS = 0.99, 0.8  # of the outputs of a layer, which lie between -1 and 1; share of the steps
MOST_SATURATED = 0.5  # share of a state's numbers
CHANGE, VANISHED = np.float32(0.01), 0.001  # of every number of a state; share of it that is left

Floats = NDArray[np.float32]
Steps = list[tuple[Floats, Floats]]  # of an episode: what was observed, and the state before


class Ablation(NamedTuple):
    """Test episodes of a champion with memory, and without."""

    returns: NDArray[np.float64]  # [E]
    zeroed: NDArray[np.float64]  # [E] with the state zero before every step
    saturated: float  # share of the state's numbers that stay at a limit
    steps: int  # through which a change of the state was followed; 0: through none
    left: float  # share of that change


def memory(signs: Signs) -> list[Check]:
    """Return the checks of a network with memory; none where its champion cannot play, or plays with others."""
    network = signs.run.config.network()
    if not network.memory or signs.run.champion_file is None or signs.run.environment.players > 1:
        return []
    try:
        played = _played(signs, network)
    except (EvoError, TimeoutError):
        return []
    return [] if played is None else _checks(signs, played)


def _checks(signs: Signs, played: Ablation) -> list[Check]:
    helps, steps = played.returns - played.zeroed, played.steps
    unused = bool(helps.mean() <= CERTAIN * helps.std(ddof=1) / np.sqrt(len(helps)))
    saturated = unused and played.saturated > MOST_SATURATED
    vanished = unused and not saturated and bool(steps) and played.left < VANISHED
    usual, zeroed = figure(float(played.returns.mean())), figure(float(played.zeroed.mean()))
    as_well = (
        f"The champion returns {usual} in {len(helps)} test episodes, and {zeroed} with its state zeroed at every step."
    )
    longer = f"--set run.generations={4 * len(signs.run.metrics)}"
    size = "learning_rate" if signs.options.learns else "sigma"
    smaller = signs.set(size, figure(0.3 * float(signs.option(size) or 1.0)))
    further = longer if signs.option("bptt") is None else f"{signs.set('bptt', 128)} {longer}"
    return [
        checked(
            f"state at its limits {percent(played.saturated)}",
            "saturated_memory",
            "The state of the network is saturated: most of it never changes.",
            f"{percent(played.saturated)} of its numbers are within {percent(1 - LIMIT)} of the same limit in more "
            f"than {percent(ALWAYS)} of the steps. {as_well}",
            f"Take smaller steps: {smaller}.",
            saturated,
        ),
        *([] if not steps else [checked(
            f"change of the state after {counted(steps, 'step')} {figure(played.left)}",
            "vanishing_gradient",
            "Gradients through time vanish, so nothing is learned from many steps back.",
            f"After {counted(steps, 'step')}, {figure(played.left)} of a change of the state is left. {as_well}",
            f"Begin with shorter delays (environment.training), or train longer: {longer}.",
            vanished,
        )]),
        checked(
            f"return {usual}, with the state zeroed {zeroed}",
            "unused_memory",
            "The network does as well without its memory.",
            as_well,
            f"Leave it out (policy.memory) if observations say everything; else train longer: {further}.",
            unused and not vanished and not saturated,
        ),
    ]  # fmt: skip


def _played(signs: Signs, network: Network) -> Ablation | None:
    """Return what is seen of the champion; None where its outputs are not finite, TimeoutError: episodes are long."""
    from evo.environments.instances import OPEN
    from evo.games.step import Ended
    from evo.rollouts.gymnasium_episodes import play_gymnasium, seed_check, shares_state

    environment, tested = signs.run.environment, signs.run.score
    seeds = seeds_of_test_episodes(EPISODES, BLOCK * (tested.block if tested else 0))
    with directory.kept():
        renewed = environment.game is None and seed_check(environment) == "renewed"
        alone = environment.game is None and shares_state(environment)
    kernel = LanesKernel(network, None)
    kernel.take(signs.run.champion.weights)

    @directory.kept()
    def play(zeroed: bool) -> tuple[NDArray[np.float64], list[Steps]]:
        steps, episodes = 0, list[Steps]()

        def outputs(observations: Floats, numbered: Floats | None = None) -> Floats:
            """Return scores; a number for the episode stands behind its state, which is zero when it begins."""
            nonlocal steps
            steps += len(observations)
            if steps > MOST_STEPS:
                raise TimeoutError
            assert numbered is not None
            states = numbered[:, :-1] * np.float32(not zeroed)
            for row in np.flatnonzero(numbered[:, -1] == 0):
                episodes.append([])
                numbered[row, -1] = len(episodes)
            for one, seen, state in zip(numbered[:, -1].astype(np.int64) - 1, observations, states, strict=True):
                if one < LOOKED_AT:
                    episodes[one].append((seen, state.copy()))
            scores = kernel.score(observations, states)
            numbered[:, :-1] = states
            return scores

        arrays = empty_result(1, EPISODES, len(environment.episode_metrics), np.float64)
        ended = Ended(*(arrays[name][0] for name in Ended._fields))
        task = Task(WeightSource.of_row(), Episodes(seeds))
        with OPEN.here.used(alone):
            played = play_gymnasium(outputs, environment, task, ended, renewed, network.memory + 1)
        return ended.returns if played.finite else np.full(EPISODES, np.nan), episodes[:LOOKED_AT]

    try:
        returns, episodes = play(False)
        zeroed, _ = play(True)
    finally:
        OPEN.here.close()
    if not np.isfinite([returns, zeroed]).all():
        return None
    pieces = None if signs.option("bptt") is None else pieces_of(signs.options, network)
    return Ablation(
        returns, zeroed, _saturated(network, episodes), *_left(kernel, episodes, pieces.steps if pieces else 0)
    )


def _saturated(network: Network, episodes: list[Steps]) -> float:
    """Return the share of a state's numbers that stay at a limit; of an LSTM, of its cells."""
    later = [state for steps in episodes for _, state in steps[1:]]
    states, at, stay = np.array(later, np.float32), 0, []
    for layer in network.layers if later else ():
        values = states[:, at : (at := at + layer.memory)]
        if layer.memory:
            values = values if layer.kind == "gru" else np.tanh(values[:, layer.filters :])
            stay.append(np.maximum((values > LIMIT).mean(0), (values < -LIMIT).mean(0)) > ALWAYS)
    return float(np.concatenate(stay).mean()) if stay else 0.0


def _left(kernel: LanesKernel, episodes: list[Steps], most: int) -> tuple[int, float]:
    """Return through how many steps, `most` or half of an episode's, a change was followed, and the share left."""
    steps = min(most, int(np.median([len(one) for one in episodes])) - 1)
    long = [one for one in episodes if len(one) > steps]
    if steps < 1:
        return 0, 0.0
    states = np.array([one[1][1] for one in long])  # a cue may be seen in the first step
    changed = states + CHANGE * np.random.default_rng(0).choice(np.array([-1, 1], np.float32), states.shape)
    for step in range(1, steps + 1):
        seen = np.array([one[step][0] for one in long])
        for state in (states, changed):
            kernel.score(seen, state)
    return steps, float(np.sqrt(np.mean((changed - states) ** 2)) / CHANGE)
