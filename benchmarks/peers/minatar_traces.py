"""Plays MinAtar's games, and writes what happened to tests/games/minatar_traces.json.gz, to compare ours with.

To be run by hand, in an environment of its own, from the root of the repository:

    python -m venv .peers/minatar
    .peers/minatar/bin/pip install --requirement benchmarks/peers/minatar.txt
    .peers/minatar/bin/python -m benchmarks.peers.minatar_traces

The file has "palettes", the colours of so many channels, and "games": for each of them cases with the options of our
game and episodes. An episode has the random numbers drawn before its first step ("begin"), its actions (a digit each,
as places in the action set of the options), the random numbers of every step in the order in which MinAtar draws them,
rewards (a digit each), a digest of every observation (two hexadecimal digits, with that of the first one), and whether
the last step ended it. A number k below 100 stands for MinAtar's draw (k + 0.5) / 100 from 0 to 1, and a whole number
is counted from the least one. MinAtar draws for sticky actions also where there are none; those draws are left out. It
lets the last action of an episode stick to the next one, which our games do not; so it is set to "none" between them.
"""

from __future__ import annotations

import copy
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import seaborn
from minatar.environment import Environment

TRACES = Path(__file__).parent.parent.parent / "tests" / "games" / "minatar_traces.json.gz"
STEPS, LONG = 1500, 2600  # of a case; Freeway, whose episodes have 2501
LOOKAHEAD, ATTEMPTS = 12, 4
RAMPING = ("asterix", "space_invaders")  # which games get harder


class Recorder:
    """Stands in for NumPy's RandomState, and notes what is drawn."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.RandomState(seed)
        self.drawn: list[int] = []

    def rand(self, *shape: int) -> Any:
        """Return random numbers from 0 to 1."""
        return (self.randint(0, 100, shape or None) + 0.5) / 100

    def randint(self, low: int, high: int | None = None, size: Any = None) -> Any:
        """Return random whole numbers from low to high - 1, or from 0 to low - 1."""
        least, end = (0, low) if high is None else (low, high)
        found = self._random.randint(least, end, size)
        self.drawn += (np.atleast_1d(found) - least).tolist()
        return found

    def taken(self) -> list[int]:
        """Return what was drawn since it was asked last."""
        drawn, self.drawn = self.drawn, []
        return drawn


def choose(game: Any, actions: list[int], random: np.random.RandomState, careful: bool) -> int:
    """Return the place of a random action; a careful player seeks one that is promising, or survived."""
    places = random.permutation(len(actions)).tolist()
    if not careful:
        return int(places[0])
    if (likely := promising(game)) is not None and random.rand() < 0.9:
        places.insert(0, actions.index(likely))
    for place in places if game.env_name in RAMPING else ():
        for _ in range(ATTEMPTS):
            future = copy.deepcopy(game.env)
            future.random = np.random.RandomState(random.randint(1 << 31))
            ahead = [actions[place], *random.choice(actions, LOOKAHEAD)]
            if not any(future.act(action)[1] for action in ahead):
                return int(place)
    return int(places[0])


def promising(game: Any) -> int | None:
    """Return an action that may be good: up in Freeway, to where the ball lands in Breakout, fire in Space Invaders."""
    if game.env_name != "breakout":
        return {"freeway": 2, "space_invaders": 5}.get(game.env_name)
    future = copy.deepcopy(game.env)
    future.pos = -9  # never hit
    while not future.act(0)[1]:
        pass
    way = (future.last_x if len(game.env.brick_map.nonzero()[0]) % 2 else future.ball_x) - game.env.pos
    return 1 if way < 0 else (3 if way > 0 else 0)


def case(name: str, seed: int, sticky: float, ramping: bool, careful: bool) -> dict[str, Any]:
    """Return the options of our game, and episodes of it; the last one is left where the steps are played."""
    full = careful != ramping
    game = Environment(name, sticky_action_prob=sticky, difficulty_ramping=ramping)
    game.random = game.env.random = recorder = Recorder(seed)
    actions = list(range(6)) if full else game.minimal_action_set()
    random, episodes, left = np.random.RandomState(seed + 1), [], LONG if name == "freeway" else STEPS
    while left > 0:
        game.reset()
        game.last_action = 0
        begin, digest = recorder.taken(), zlib.crc32(np.packbits(game.state()).tobytes())
        played, draws, rewards, digests, ended = "", [], "", f"{digest % 256:02x}", False
        while left > 0 and not ended:
            place = choose(game, actions, random, careful)
            reward, ended = game.act(actions[place])
            digest = zlib.crc32(np.packbits(game.state()).tobytes(), digest)
            played, rewards, digests = played + str(place), rewards + str(int(reward)), digests + f"{digest % 256:02x}"
            draws.append(recorder.taken()[0 if sticky else 1 :])
            left -= 1
        episodes.append(
            {"begin": begin, "actions": played, "draws": draws, "rewards": rewards, "digests": digests, "ended": ended}
        )
    options: dict[str, Any] = {"actions": "full" if full else "minimal", "sticky": sticky}
    if name in RAMPING:
        options["ramping"] = ramping
    return {"options": options, "episodes": episodes}


def main() -> None:
    """Write the file, and tell what is in it."""
    games = {}
    for name in ("breakout", "freeway", "asterix", "space_invaders"):
        kinds = [(s, r, c) for s in (0.1, 0.0) for r in (True, False) for c in (False, True) if r or name in RAMPING]
        games[name] = [case(name, 10 * seed, *kind) for seed, kind in enumerate(kinds)]
        episodes = [episode for one in games[name] for episode in one["episodes"]]
        steps, rewards = (sum(f(episode) for episode in episodes) for f in (length, reward_of))
        longest, best = (max(f(episode) for episode in episodes) for f in (length, reward_of))
        print(f"{name}: {len(episodes)} episodes, {steps} steps, reward {rewards}; at most {longest} and {best} in one")
    palettes = {n: [[0, 0, 0], *(np.array(seaborn.color_palette("cubehelix", n)) * 255).tolist()] for n in (4, 6, 7)}
    text = json.dumps({"palettes": palettes, "games": games}, separators=(",", ":"))
    TRACES.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{TRACES.stat().st_size} bytes in {TRACES}")


def length(episode: dict[str, Any]) -> int:
    """Return how many steps an episode has."""
    return len(episode["actions"])


def reward_of(episode: dict[str, Any]) -> int:
    """Return the sum of the rewards of an episode."""
    return sum(map(int, episode["rewards"]))


if __name__ == "__main__":
    main()
