"""How many steps of Snake one core plays without any network, the observation of every board written at every step.

    python -m benchmarks --only game

Two players that cost nothing: random actions, whose snakes stay short, and a walk along a closed path through every
cell, whose snakes grow up to the full board. The other way is the same rules in plain Python, with lists, as tests have
them: the rules that are compiled are ten times as slow without a compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Peer, interpreter, missing
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.compiled import cache as kernel_cache
from evo.games import contract
from evo.games.catalogue import snake
from tests.snake.reference import Reference

kernel_cache.use(__name__)

Clock = Callable[[], float]
BOARDS, SIZE = 1024, 10
TARGET = 15e6  # steps a second and core, planes written
JUMANJI = 20.0  # times
ROUNDS = 9
PEERS_ROUNDS = 5
PEERS_SIZE = 12  # EnvPool's board; Jumanji's own default
PEERS_LIMIT = 1_000_000  # steps of an episode: all end by themselves
PATH_STEPS = 2000  # on the closed path, after which snakes are long


@kernel_cache.with_game
def play(boards, rules, table, steps, seed, out):  # type: ignore[no-untyped-def]
    """Play `steps` steps on every board by table[cell of the head, step % columns]; return the sum of all lengths.

    A board that is over begins the next episode. `out` [B, H, W, C] takes the observation after every step.
    """
    lengths = np.int64(0)
    columns = table.shape[1]
    state = boards.state
    for step in range(steps):
        for b in range(out.shape[0]):
            if state.over[b] != 0 or state.length[b] == 0:
                contract.begin(boards, rules, b, seed)
                seed += np.uint64(1)
            cell = state.body[b, np.int64(state.head[b])]
            contract.step(boards, rules, b, np.int64(table[cell, (step + b) % columns]))
            lengths += np.int64(state.length[b])
            contract.observe(boards, rules, b, out[b])
    return lengths


def random_table(size: int) -> NDArray[np.int8]:
    """Return actions drawn beforehand.  # [cells, 1009]"""
    return np.random.default_rng(0).integers(0, 4, (size * size, 1009)).astype(np.int8)


def closed_path(size: int) -> NDArray[np.int8]:
    """Return the action that goes on along a closed path through every cell of an even board.  # [cells, 1]

    Up the first column, and back to its foot through the others row by row.
    """
    table = np.empty((size, size), np.int8)
    for row in range(size):
        rightwards = row % 2 == 0
        table[row, 1:] = 1 if rightwards else 3
        table[row, size - 1 if rightwards else 1] = 2
    table[1:, 0] = 0
    table[0, 0] = 1
    table[size - 1, 1] = 3
    return table.reshape(-1, 1)


def compiled(
    size: int,
    starvation: int,
    observation: str,
    table: NDArray[np.int8],
    steps: int,
    clock: Clock = time.perf_counter,
) -> tuple[float, float]:
    """Return steps a second on `BOARDS` boards, and the mean length of the snakes."""
    options = {"size": size, "starvation": starvation, "observation": observation, "actions": "absolute"}
    game = snake.make(snake.Options.model_validate(options)).game
    boards, out, seed = game.make_state(BOARDS), np.empty((BOARDS, *game.shape), np.float32), np.uint64(1)
    play(boards, game.rules, table, 1, seed, out)  # compiles
    lengths: list[int] = []
    took = seconds(lambda: lengths.append(play(boards, game.rules, table, steps, seed, out)), clock)
    return BOARDS * steps / took, lengths[0] / (BOARDS * steps)


def plain(table: NDArray[np.int8], steps: int, clock: Clock = time.perf_counter) -> float:
    """Return steps a second of the readable rules, without any observation."""

    def work() -> None:
        game, seed = Reference(size=SIZE, starvation=1000), 0
        for step in range(steps):
            row, column = game.body[0]
            _, terminated, truncated = game.step(int(table[row * SIZE + column, step % table.shape[1]]))
            if terminated or truncated:
                seed += 1
                game = Reference(size=SIZE, starvation=1000, seed=seed)

    return steps / seconds(work, clock)


@dataclass
class Versus:
    """Another implementation of the game and what it plays; rounds of both sides, in turns."""

    name: str
    player: str
    ask: Callable[[], dict[str, Any]]
    steps: int  # of ours on every board, in a round
    rounds: list[tuple[float, float]] = field(default_factory=list)  # steps/s of ours and theirs
    length: float = 0.0

    def take_turn(self, table: NDArray[np.int8]) -> None:
        """Play a round, ours and theirs; RuntimeError where theirs is not the same game."""
        speed, self.length = compiled(PEERS_SIZE, PEERS_LIMIT, "planes", table, self.steps)
        told = self.ask()
        if not told["fruits"] or told["planes"] != [BOARDS, PEERS_SIZE, PEERS_SIZE, 5]:
            raise RuntimeError(f"{self.name} has not played: {told}")
        if abs(told.get("length", self.length) / self.length - 1) > 0.25:
            raise RuntimeError(f"{self.name}'s snakes are {told['length']:.1f} long where ours are {self.length:.1f}")
        self.rounds.append((speed, told["steps"] / told["seconds"]))


def add_peers(form: Form, table: Table) -> None:
    """Add the speed of other Snake implementations, with the same players on boards of 12 x 12."""
    players = {"random": random_table(PEERS_SIZE), "closed path": closed_path(PEERS_SIZE)}
    peers, against = [], []
    if python := form.peers and interpreter(form.peers, "jax"):
        peers.append(jumanji := Peer(python, "jumanji_game"))
        for player, steps, ours in (("random", 200, 2000), ("closed path", PATH_STEPS, PATH_STEPS)):
            for resets in ("wrapper", "pool"):
                what = {
                    "boards": BOARDS, "size": PEERS_SIZE, "steps": steps, "limit": PEERS_LIMIT, "resets": resets,
                    "table": players[player].tolist(),
                }  # fmt: skip
                name = "Jumanji" if resets == "wrapper" else "Jumanji, pooled resets"
                against.append(Versus(name, player, partial(jumanji.ask, **what), ours))
    else:
        table.without(missing("jax", "Jumanji's Snake"))
    if python := form.peers and interpreter(form.peers, "envpool"):
        peers.append(envpool := Peer(python, "envpool_game"))
        ask = partial(envpool.ask, boards=BOARDS, size=PEERS_SIZE, steps=30)
        against.append(Versus("EnvPool", "random", ask, 2000))
    else:
        table.without(missing("envpool", "EnvPool's Snake"))
    try:
        for versus in against:
            versus.ask()  # compiles
        for _ in range(PEERS_ROUNDS):
            for versus in against:
                versus.take_turn(players[versus.player])
    finally:
        for peer in peers:
            peer.close()
    for versus in against:
        ratio = median(ours / theirs for ours, theirs in versus.rounds)
        ours, theirs = (median(side) for side in zip(*versus.rounds, strict=True))
        row = [f"{versus.player}, planes, 12 x 12, against {versus.name}", number(ours), f"{versus.length:.1f}"]
        table.rows.append([*row, number(theirs), number(ratio)])
        if versus.name.startswith("Jumanji"):
            title = f"times the Snake of {versus.name}, {versus.player}"
            table.limits.append(Limit(title, ratio, JUMANJI, ratio=True))


def run(form: Form) -> Table:
    """Return the table of both players and two observations, and of the peers' games."""
    table = Table(
        "The game alone, one core",
        f"Steps per second on {BOARDS:,} boards of {SIZE} x {SIZE}, with the observation of every board at every step; "
        "medians over rounds. *Length* is the mean length of the snakes. The reference is one game in plain Python, "
        "with lists and without observations, or the named library: Jumanji's Snake compiled by XLA, EnvPool's in C++, "
        "both with their own planes. Jumanji starts new games as its wrapper does, for every board at every step, or "
        "from a pool of games made beforehand. EnvPool has no player for the closed path.",
        ("player, observation", "steps/s", "length", "reference", "ratio"),
    )
    players = {"random": random_table(SIZE), "closed path": closed_path(SIZE)}
    for player, actions in players.items():
        for observation in ("planes", "frame"):
            speeds, ratios, lengths = [], [], []
            for _ in range(3 if form.smoke else ROUNDS):
                speed, length = compiled(SIZE, 1000, observation, actions, 500 if form.smoke else 2500, form.clock)
                peer = plain(actions, 5_000 if form.smoke else 20_000, form.clock)
                speeds.append(speed)
                ratios.append(speed / peer)
                lengths.append(length)
            row = [f"{player}, {observation}", number(median(speeds)), f"{median(lengths):.1f}"]
            table.rows.append([*row, number(median(speeds) / median(ratios)), number(median(ratios))])
            if (player, observation) == ("random", "planes"):
                table.limits += [
                    Limit("steps/s with planes, random player", median(speeds), TARGET, best=max(speeds)),
                    Limit("times plain Python", median(ratios), 20.0, ratio=True),
                ]
    if not form.smoke:
        add_peers(form, table)
    return table
