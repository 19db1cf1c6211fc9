"""How many steps of Snake one core plays without any network, the observation of every board written at every step.

    python -m benchmarks --only game

Two players that cost nothing: random actions, whose snakes stay short, and a walk along a closed path through every
cell, whose snakes grow up to the full board. The other way is the same rules in plain Python (`snake.rules.Game`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.peers import Peer, interpreter, missing
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.compiled import cache as kernel_cache
from snake.batch import Boards, Rules, make_boards, make_rules, reset_board, step_board
from snake.observe import observe_board
from snake.rules import OBSERVATIONS, Game, shape

kernel_cache.use(__name__)

Clock = Callable[[], float]
BOARDS, SIZE = 1024, 10
TARGET = 15e6  # steps a second and core, planes written
JUMANJI = 20.0  # times
ROUNDS = 15
PEERS_ROUNDS = 5
PEERS_SIZE = 12  # EnvPool's board; Jumanji's own default


@njit(cache=True, error_model="numpy")
def play(boards, rules, code, table, steps, seed, out):  # type: ignore[no-untyped-def]
    """Play `steps` steps on every board by table[cell of the head, step % columns]; return the sum of all lengths.

    A board that is over begins the next episode. `out` [B, H, W, C] takes the observation after every step.
    """
    lengths = np.int64(0)
    columns = table.shape[1]
    for step in range(steps):
        for b in range(out.shape[0]):
            if boards.state[b].over != 0:
                reset_board(boards, rules, b, seed)
                seed += np.uint64(1)
            cell = boards.body[b, np.int64(boards.state[b].head)]
            step_board(boards, rules, b, np.int64(table[cell, (step + b) % columns]))
            lengths += np.int64(boards.state[b].length)
            observe_board(boards, rules, code, b, out[b])
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
    rules: Rules, observation: str, table: NDArray[np.int8], steps: int, clock: Clock = time.perf_counter
) -> tuple[float, float]:
    """Return steps a second on `BOARDS` boards, and the mean length of the snakes."""
    boards: Boards = make_boards(BOARDS, rules.size)
    out = np.empty((BOARDS, *shape(observation, rules.size)), np.float32)
    code, seed = OBSERVATIONS.index(observation), np.uint64(1)
    play(boards, rules, code, table, 1, seed, out)  # compiles
    lengths: list[int] = []
    took = seconds(lambda: lengths.append(play(boards, rules, code, table, steps, seed, out)), clock)
    return BOARDS * steps / took, lengths[0] / (BOARDS * steps)


def plain(table: NDArray[np.int8], steps: int, clock: Clock = time.perf_counter) -> float:
    """Return steps a second of the readable rules, without any observation."""

    def work() -> None:
        game, seed = Game(size=SIZE, starvation=1000, seed=0), 0
        for step in range(steps):
            row, column = game.body[0]
            _, terminated, truncated = game.step(int(table[row * SIZE + column, step % table.shape[1]]))
            if terminated or truncated:
                seed += 1
                game = Game(size=SIZE, starvation=1000, seed=seed)

    return steps / seconds(work, clock)


def add_peers(form: Form, table: Table) -> None:
    """Add the speed of other Snake implementations and of ours, with random actions on 12 x 12 boards."""
    rules, player = make_rules(size=PEERS_SIZE, starvation=1000), random_table(PEERS_SIZE)
    peers: dict[str, tuple[Peer, Callable[[], dict[str, object]]]] = {}
    for name, environment, what in (
        ("Jumanji", "jax", {"boards": BOARDS, "size": PEERS_SIZE, "steps": 200, "limit": 1000}),
        ("EnvPool", "envpool", {"boards": BOARDS, "size": PEERS_SIZE, "steps": 30}),
    ):
        if python := form.peers and interpreter(form.peers, environment):
            peer = Peer(python, f"{name.lower()}_game")
            peers[name] = peer, partial(peer.ask, **what)
            peer.ask(**what)  # compiles
        else:
            table.without(missing(environment, f"{name}'s Snake"))
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    try:
        for _ in range(PEERS_ROUNDS if peers else 0):
            speed, length = compiled(rules, "planes", player, 2000)
            ours.append(speed)
            for name, (_, ask) in peers.items():
                told = ask()
                if not told["ends"] or not told["fruits"] or told["planes"] != [BOARDS, PEERS_SIZE, PEERS_SIZE, 5]:
                    raise RuntimeError(f"{name} has not played: {told}")
                theirs[name].append(told["steps"] / told["seconds"])  # type: ignore[operator]
    finally:
        for peer, _ in peers.values():
            peer.close()
    for name, speeds in theirs.items():
        ratio = median(a / b for a, b in zip(ours, speeds, strict=True))
        row = [f"random, planes, 12 x 12, against {name}", number(median(ours)), f"{length:.1f}"]
        table.rows.append([*row, number(median(speeds)), number(ratio)])
        if name == "Jumanji":
            table.limits.append(Limit("times Jumanji's Snake", ratio, JUMANJI, ratio=True))


def run(form: Form) -> Table:
    """Return the table of both players and three observations, and of the peers' games."""
    table = Table(
        "The game alone, one core",
        f"Steps per second on {BOARDS:,} boards of {SIZE} x {SIZE}, with the observation of every board at every step; "
        "medians over rounds. *Length* is the mean length of the snakes. The reference is one game in plain Python "
        "without observations, or the named library: Jumanji's Snake compiled by XLA, EnvPool's in C++, both with "
        "their own planes.",
        ("player, observation", "steps/s", "length", "reference", "ratio"),
    )
    rules = make_rules(size=SIZE, starvation=1000)
    players = {"random": random_table(SIZE), "closed path": closed_path(SIZE)}
    for player, actions in players.items():
        for observation in ("planes",) if form.smoke else ("planes", "frame", "window"):
            speeds, ratios, lengths = [], [], []
            for _ in range(3 if form.smoke else ROUNDS):
                speed, length = compiled(rules, observation, actions, 500 if form.smoke else 2500, form.clock)
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
