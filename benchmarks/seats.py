"""Games of several players: random moves, compared with PettingZoo and pgx, and matches of networks.

    python -m benchmarks --only seats [--peers DIR]

Actions are drawn beforehand; in all libraries, a move that is not allowed loses. Each side writes the observation of
every step, and begins a new game where one ends. Ours are stepped from Python in a VectorEnv, whose steps that only
begin an episode do not count; XLA compiles all steps of pgx to one call; PettingZoo steps one game. Ours and pgx play
the number of games that is fastest for each. Times are processor times on one core, without compiling. Without the
peers' environment nothing is compared.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.games import EMPTY, made
from benchmarks.peers import Peer, interpreter, missing
from benchmarks.rollout import fresh
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.games.game import GameEnvironment
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Task
from evo.rollouts.rollout import Rollout

GAMES = {  # ours, and those of PettingZoo and pgx
    "tictactoe": ("tictactoe", "tic_tac_toe"),
    "connect_four": ("connect_four", "connect_four"),
    "duel": ("", ""),
}
OVER_PETTINGZOO, OVER_PGX, NETWORKS = 10.0, 3.0, 0.7  # targets
SMALL = ("tictactoe",)  # a game of so few operations has no target next to pgx
SIZES, FRAMES, THEIRS = (256, 1024, 4096), 1 << 20, 20_000  # games side by side; moves of a round, of PettingZoo's
ACTIONS, ROUNDS, LENGTHS = 64, 5, 0.1  # steps after which actions repeat; share by which games' lengths may differ
POLICY = Policy(kind="mlp", dense=[256, 144])  # 60,000 weights in Connect Four
CANDIDATES, EPISODES, OPPONENTS = 8, 64, 4


def random_moves(environment: GameEnvironment, size: int) -> tuple[float, float]:
    """Return the moves a second of ours in `size` games side by side, and the mean number of moves of a game."""
    envs = environment.vector_env(size, copy=False)
    actions = np.random.default_rng(0).integers(environment.actions, size=(ACTIONS, size))
    envs.reset(seed=0)
    envs.step(actions[0])  # compiles
    ends, steps = 0, FRAMES // size

    def work() -> None:
        nonlocal ends
        for step in range(steps):
            _, _, terminated, truncated, _ = envs.step(actions[step % ACTIONS])
            ends += int(np.count_nonzero(terminated | truncated))

    took = seconds(work, time.process_time)
    played = steps * size - ends
    return played / took, played / ends


def of_peer(peer: Peer, library: str, game: str, size: int, steps: int, length: float) -> float:
    """Return the moves a second of a peer; RuntimeError where its games are not as long as ours."""
    told = peer.ask(library=library, game=game, size=size, steps=steps)
    if abs(told["moves"] / told["ends"] / length - 1) > LENGTHS:
        raise RuntimeError(f"{library}: {game}: {told}, where our games have {length:.1f} moves")
    return float(told["moves"] / told["seconds"])


def alone(form: Form) -> Table:
    """Return the table of random moves, ours and theirs in turns."""
    table = Table(
        "Games of several players, random moves, one core",
        "Moves per second of processor time with observations; medians over rounds that alternate all sides. *Games* "
        "is the number of games side by side that was the fastest for each.",
        ("game", "ours", "games", "PettingZoo", "ratio", "pgx", "games of pgx", "ratio to pgx"),
    )
    python = form.peers and interpreter(form.peers, "pettingzoo")
    if not python:
        table.without(missing("pettingzoo", "PettingZoo and pgx"))
    for name, (zoo, pgx) in GAMES.items():
        environment = made(name)
        found = {size: random_moves(environment, size) for size in SIZES}
        mine = max(found, key=lambda size: found[size][0])
        length = found[mine][1]
        if not python or not zoo:
            speeds = [random_moves(environment, mine)[0] for _ in range(1 if form.smoke else ROUNDS)]
            table.rows.append([name, number(median(speeds)), f"{mine:,}", *["-"] * 5])
            continue
        with Peer(python, "seats_games") as peer:
            sizes = {size: of_peer(peer, "pgx", pgx, size, FRAMES // size, length) for size in SIZES}
            theirs = max(sizes, key=lambda size: sizes[size])
            rounds = [
                (
                    random_moves(environment, mine)[0],
                    of_peer(peer, "pettingzoo", zoo, 1, THEIRS, length),
                    of_peer(peer, "pgx", pgx, theirs, FRAMES // theirs, length),
                )
                for _ in range(1 if form.smoke else ROUNDS)
            ]
        ours, one, many = (number(median(side)) for side in zip(*rounds, strict=True))
        ratios = [median(a / b for a, b, _ in rounds), median(a / c for a, _, c in rounds)]
        cells = [name, ours, f"{mine:,}", one, number(ratios[0]), many, f"{theirs:,}", number(ratios[1])]
        table.rows.append(cells)
        table.limits += [
            Limit(f"{name}: times PettingZoo", ratios[0], OVER_PETTINGZOO, ratio=True),
            *([] if name in SMALL else [Limit(f"{name}: times pgx", ratios[1], OVER_PGX, ratio=True)]),
        ]
    return table


def matches(form: Form) -> Table:
    """Return the table of moves of networks in matches, and of one network that moves for both players."""
    table = Table(
        "Matches of networks, one core",
        f"Moves per second of processor time in Connect Four, each by a network of 60,000 weights (dense [256, 144]): "
        f"whole episodes as evolution plays them, {EPISODES} of a candidate. *One*: a network moves for both players, "
        "as in a game of one player. Otherwise candidates play against others. Medians over rounds.",
        ("opponents", "moves/s", "ratio to one"),
    )
    solo, both = made("connect_four"), made("connect_four")
    object.__setattr__(solo, "game", replace(both.game, players=1))
    network = Network.build(POLICY, both.shape, both.actions)
    seeds, candidates = episode_keys(0, Purpose.TRAINING, 0, EPISODES), 2 if form.smoke else CANDIDATES
    players = {0: Rollout(network, solo), 1: Rollout(network, both), OPPONENTS: Rollout(network, both)}
    speeds: dict[int, list[float]] = {count: [] for count in players}
    for number_of_round in range(1 + (3 if form.smoke else ROUNDS)):  # the first one compiles
        first = number_of_round * candidates
        for count, rollout in players.items():
            opponents = fresh(count, 1 << 20) if count else None
            task = Task(fresh(candidates, first), Episodes(seeds), opponents=opponents)
            began = time.process_time()
            frames = rollout.play(task, EMPTY).frames
            speeds[count].append(frames / (time.process_time() - began))
    for count, found in speeds.items():
        ratio = median(a / b for a, b in zip(found[1:], speeds[0][1:], strict=True))
        table.rows.append([f"{count}" if count else "one", number(median(found[1:])), f"{ratio:.2f}"])
        if count:
            what = f"matches against {count}: share of the moves of one network"
            table.limits.append(Limit(what, ratio, NETWORKS, ratio=True))
    return table


def run(form: Form) -> list[Table]:
    """Return the tables of random moves and of matches."""
    return [alone(form), matches(form)]
