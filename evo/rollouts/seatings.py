"""Episodes of a game whose seats are taken by any players: networks of their own layers, baselines, random moves.

Episodes are played side by side, a move in each at a time. Who does not learn may so differ in its network, which in
matches (`evo.rollouts.matches`) is that of the candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.errors import DataError
from evo.games import contract
from evo.games.contract import LOST, CompiledGame
from evo.games.hidden_states import hidden_states
from evo.games.primitives import clock_of
from evo.games.seats import NOBODY
from evo.networks.network import Network
from evo.records import GOES_ON
from evo.rollouts.action_rules import baseline_action, choose
from evo.rollouts.rollout import LanesKernel

kernel_cache.use(__name__)

RANDOM_MOVES = -1  # the number of the baseline that moves at random; -2 - n is baseline n of the game


@kernel_cache.with_game
def _observe(state, rules, index, out):  # type: ignore[no-untyped-def]
    for k in range(index.shape[0]):
        contract.observe(state, rules, index[k], out[k])


@kernel_cache.with_game
def _move(state, rules, masked, index, scores, number, rule, seeds, allowed, luck, actions, status):  # type: ignore[no-untyped-def]
    """Play a move in environments `index` [L]; return the number of them, or of those before the first that fails.

    Where that is for its reward, this is its status.
    Moves follow from `scores`, flat [A or more, L], or where `number` is below 0 they are those of a baseline.
    """
    for k in range(index.shape[0]):
        b = index[k]
        if number < 0:
            action = baseline_action(state, rules, masked, b, number, seeds[b], allowed, luck)
        else:
            action, _ = choose(state, rules, masked, b, seeds[b], scores, index.shape[0], k, rule, 0.0, allowed, None)
        if action < 0:
            return k
        actions[b] = action
        reward, status[b] = contract.step(state, rules, b, action)
        if reward <= LOST:
            status[b] = reward
            return k
    return index.shape[0]


class SeatPlayer:
    """A player of a game of several players: a network, or the baseline of a number."""

    def __init__(self, name: str, number: int = 0, network: Network | None = None, weights: Any = None) -> None:
        """`number` is below 0 of a baseline; of a network, `weights` are [P]."""
        self.name, self.number, self.network, self.weights = name, number, network, weights
        self.memory = 0 if network is None else network.memory
        self._kernel: LanesKernel | None = None

    def scores(self, observations: NDArray[np.float32], memory: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Return the network's outputs, and overwrite its hidden states.  # [L, *shape], [L, S] -> [L, O]"""
        if self._kernel is None:
            assert self.network is not None
            self._kernel = LanesKernel(self.network, None)
            self._kernel.take(self.weights)
        return self._kernel.score(observations, memory)


@dataclass(frozen=True)
class Seated:
    """What became of B episodes."""

    returns: NDArray[np.float64]  # [B, players]
    lengths: NDArray[np.int64]  # [B] moves of all players
    actions: NDArray[np.int8]  # [T, B] moves in the order of time, -1 after the end

    def moves(self, b: int) -> NDArray[np.int8]:
        """Return the moves of an episode."""
        return self.actions[: self.lengths[b], b]


def play_seats(
    game: CompiledGame,
    players: Sequence[SeatPlayer],
    seating: NDArray[np.int64],
    seeds: NDArray[np.uint64],
    opening: int = 0,
    rule: int | None = None,
    see: Callable[[Any], object] | None = None,
) -> Seated:
    """Play the episodes of seeds [B], where player seating[b, s] has seat s, after `opening` moves at random.

    `rule`, one of `RULES`, says how networks choose. `see` gets the state before every move, and at the end.
    DataError: the outputs of a network, or rewards, are not finite. ConfigurationError: the game, or a baseline of its
    own, does what none may.
    """
    count, state, luck = len(seeds), game.restored(game.begin(seeds).snapshots), clock_of(len(seeds))
    status, chosen = np.zeros(count, np.int64), np.full(count, -1, np.int8)
    allowed, live = np.ones(game.actions, np.int8), np.arange(count)
    memories = [hidden_states(count * game.players, one.memory) for one in players]
    actions: list[NDArray[np.int8]] = []
    masked, nothing = game.masked or None, np.empty(0, np.float32)
    while len(live):
        if see is not None:
            see(state)
        chosen[:] = -1
        turns = state.state.seats_turn[live].astype(np.int64)
        if len(lost := live[turns == NOBODY]):
            raise game.broken_match(state, int(lost[0]), None)
        movers = seating[live, turns]
        for place in np.unique(movers).tolist():
            who = movers == place
            index, player, scores = live[who], players[place], nothing
            number = RANDOM_MOVES if len(actions) < opening else player.number
            if number >= 0:
                out, memory = np.zeros((len(index), *game.shape), np.float32), memories[place]
                _observe(state, game.rules, index, out)
                rows = index * game.players + turns[who]
                kept = None if memory is None else memory[rows]
                scores = player.scores(out, kept).T.ravel()
                if memory is not None:
                    memory[rows] = kept
            moved = _move(state, game.rules, masked, index, scores, number, rule, seeds, allowed, luck, chosen, status)
            if moved < len(index):
                b = int(index[moved])
                game.check_allowed(state, allowed, b)
                game.check_returns(seeds[b : b + 1], status[b : b + 1], state.clock.steps[b : b + 1])
                if number < 0 and status[b] == GOES_ON:
                    raise game.broken_match(state, b, -1 - number)
                raise DataError(f"{player.name} cannot be played: its outputs or rewards are not finite")
        actions.append(chosen.copy())
        live = live[status[live] == GOES_ON]
    if see is not None:
        see(state)
    lengths = np.asarray(state.clock.steps, np.int64)
    return Seated(np.array(state.state.seats_returns), lengths, np.array(actions, np.int8).reshape(-1, count))
