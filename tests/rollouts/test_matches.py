"""Matches as the kernel plays them, held to a driver in plain Python that plays one move after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evo.games.catalogue import connect_four, duel, tictactoe
from evo.games.primitives import EpisodeClock, Random
from evo.games.seats import ITSELF
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.randomness.philox_compiled import episode_seed
from evo.randomness.streams import Purpose, draw
from evo.records import GOES_ON, SEGMENT_END, TRUNCATED, ActionRule, Episodes, Segment, Task, WeightSource
from evo.rollouts.rollout import LanesKernel, Rollout

LUCK = 0x9E3779B97F4A7C15
SEEDS = np.arange(72, dtype=np.uint64) * np.uint64(7919)  # more than are played side by side
IN_SEGMENTS = SEEDS[:40]


def environment_of(module: Any, **options: Any) -> Any:
    name = module.__name__.rpartition(".")[2]
    return module.make(module.Options(id=name, **options))


def fresh(count: int) -> WeightSource:
    """Return networks without parents."""
    none = np.full(count, -1, np.int32)
    return WeightSource(none, none, np.arange(5, 5 + count, dtype=np.uint64), np.zeros(count, np.float32))


class Reference:
    """Plays whole matches by the readable rules, one network call for each move."""

    def __init__(self, environment: Any, network: Network, weights: list[np.ndarray]) -> None:
        self.environment, self.networks, self.lineup = environment, [], [*range(1, len(weights))]
        for one in weights:
            kernel = LanesKernel(network, None)
            kernel.take(one)
            self.networks.append(kernel)
        self.memory, self.count = network.memory, network.outputs

    def play(self, seed: int, number: int | None, opponent: int | None = None) -> dict[str, Any]:
        game = self.environment.plain()
        players, state = self.environment.definition.players, game.state
        game.begin(0, seed)
        opponents = self.environment.game.opponents
        if number is not None:
            opponent = self.lineup[number % len(self.lineup)]
            state.seats_mine[0] = number // len(self.lineup) % players
        elif opponent is None:
            opponent = opponents[draw(seed, 0, len(opponents), int(Purpose.OPPONENT))]
        baselines = [*self.environment.definition.baselines_of(self.environment.options).values()]
        memories = np.zeros((players, 1, self.memory), np.float32) if self.memory else [None] * players
        actions, rows, last, status, total, asked = [], [], {}, GOES_ON, 0, 0
        while status == GOES_ON:
            turn, mine = int(state.seats_turn[0]), int(state.seats_mine[0])
            step, allowed = int(game.clock.steps[0]), np.flatnonzero(game.mask(0))
            if turn == mine or opponent >= 0:
                seen, before = game.observe(0), None if memories[turn] is None else memories[turn][0].copy()
                scores = self.networks[0 if turn == mine else opponent].score(seen[None], memories[turn])[0]
                asked += 1
                scores = scores[: game.actions]
                action = int(allowed[scores[allowed].argmax()])
            elif opponent == -1:
                action = int(allowed[draw(seed, step, len(allowed), int(Purpose.ACTION))])
            else:
                luck = EpisodeClock(np.array([seed ^ LUCK], np.uint64), np.array([step << 16]), np.array([0]))
                action = int(baselines[-2 - opponent](state, game.rules, 0, turn, Random(luck, 0)))
            if turn == mine or opponent == 0:
                last[turn] = [seen, action, 0, GOES_ON, turn, before]
                rows.append(last[turn])
            so_far = state.seats_returns[0].copy()
            reward, status = game.step(0, action)
            total += round(1000 * reward)
            for seat, row in last.items():
                row[2] += state.seats_returns[0][seat] - so_far[seat]
                row[3] = status
            actions.append(action)
        metrics = game.metrics(0).tolist()
        return {"return": total, "actions": actions, "metrics": metrics, "rows": rows, "asked": asked}


CASES = [
    pytest.param(tictactoe, {"dense": [8]}, 0, id="tictactoe-baselines"),
    pytest.param(tictactoe, {"dense": [8]}, 3, id="tictactoe-networks"),
    pytest.param(tictactoe, {"dense": [8], "memory": "gru:4"}, 3, id="tictactoe-memory", marks=pytest.mark.long),
    pytest.param(
        tictactoe, {"dense": [8], "memory": "gru:4"}, 0, id="tictactoe-memory-baselines", marks=pytest.mark.long
    ),
    pytest.param(duel, {"dense": [8]}, 0, id="duel-baselines", marks=pytest.mark.long),
    pytest.param(duel, {"dense": [8]}, 2, id="duel-networks", marks=pytest.mark.long),
    pytest.param(connect_four, {"dense": [8]}, 0, id="connect_four-baselines", marks=pytest.mark.long),
]


def made(module: Any, policy: dict[str, Any], others: int) -> tuple[Any, Rollout, Reference, WeightSource | None]:
    environment = environment_of(module)
    network = Network.build(Policy(kind="mlp", **policy), environment.shape, environment.actions)
    sources = [fresh(others + 1).some([k]) for k in range(others + 1)]
    weights = [np.empty(network.size, np.float32) for _ in sources]
    for source, one in zip(sources, weights, strict=True):
        Rebuilder(network).rebuild(np.empty((0, network.size), np.float32), source, 0, one)
    against = fresh(others + 1).some(slice(1, None)) if others else None
    return environment, Rollout(network, environment), Reference(environment, network, weights), against


@pytest.mark.parametrize(("module", "policy", "others"), CASES)
def test_matches_are_those_of_a_plain_driver(module: Any, policy: dict[str, Any], others: int) -> None:
    _, rollout, reference, against = made(module, policy, others)
    task = Task(fresh(1), Episodes(SEEDS), record_actions=True, opponents=against)
    result = rollout.play(task, np.empty((0, rollout.size), np.float32))
    assert result.actions is not None
    seats, asked = set(), 0
    for e, seed in enumerate(SEEDS.tolist()):
        expected = reference.play(seed, e if others else None)
        asked += expected["asked"]
        assert result.actions[e].tolist() == expected["actions"]
        assert result.returns[0, e] == expected["return"]
        assert result.lengths[0, e] == len(expected["actions"])
        assert result.episode_metrics[0, e].tolist() == expected["metrics"]
        seats.add(expected["metrics"][2])
    assert seats == {0, 1}
    assert result.frames == result.lengths.sum()
    assert result.forward_passes == asked <= result.lane_slots
    alone = rollout.play(
        Task(fresh(1), Episodes(SEEDS[:1]), opponents=against), np.empty((0, rollout.size), np.float32)
    )
    assert alone.returns[0, 0] == result.returns[0, 0]


@pytest.mark.long
@pytest.mark.parametrize(("module", "policy", "others"), CASES)
def test_segments_have_the_steps_of_the_candidate(module: Any, policy: dict[str, Any], others: int) -> None:
    """Two segments go on from each other, and hold the candidate's moves of the episodes that a plain driver plays."""
    environment, rollout, reference, against = made(module, policy, others)
    if others:
        pytest.skip("opponents go by the number of the environment")
    game, horizon, parents = environment.game, 6, np.empty((0, rollout.size), np.float32)
    envs = game.begin(IN_SEGMENTS)
    parts, frames = [], 0
    for _ in range(2):
        result = rollout.play(Task(fresh(1), Segment(envs, horizon), ActionRule(), opponents=against), parents)
        assert result.envs is not None
        assert result.transitions is not None
        envs = result.envs
        parts.append(result.transitions)
        frames += result.frames
    longer = rollout.play(Task(fresh(1), Segment(game.begin(IN_SEGMENTS), 2 * horizon), ActionRule()), parents)
    whole = longer.transitions
    assert longer.frames == frames > len(IN_SEGMENTS) * 2 * horizon  # the moves of all players
    assert whole is not None
    assert longer.forward_passes == len(IN_SEGMENTS) * 2 * horizon + len(whole.next_outputs)  # those of the candidate
    for name in ("actions", "rewards", "outputs"):
        halves = [getattr(part, name).reshape(len(IN_SEGMENTS), horizon, -1) for part in parts]
        np.testing.assert_array_equal(
            np.concatenate(halves, axis=1), getattr(whole, name).reshape(len(IN_SEGMENTS), 2 * horizon, -1)
        )
    seen = game.observe(whole.observations).reshape(len(IN_SEGMENTS), 2 * horizon, *game.shape)
    following = list(game.observe(whole.next_observations))
    for e, seed in enumerate(IN_SEGMENTS.tolist()):
        rows = reference.play(seed, None)["rows"][: 2 * horizon]
        at = slice(e * 2 * horizon, e * 2 * horizon + len(rows))
        np.testing.assert_array_equal(seen[e, : len(rows)], [row[0] for row in rows])
        assert whole.actions[at].tolist() == [row[1] for row in rows]
        np.testing.assert_array_equal(whole.rewards[at], np.float32([row[2] for row in rows]))
        ends = [row[3] for row in rows]
        assert [end % SEGMENT_END for end in whole.ends[at].tolist()] == ends
    assert len(following) == (whole.ends >= TRUNCATED).sum()


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "policy"),
    [
        pytest.param(tictactoe, {"dense": [8]}, id="tictactoe"),
        pytest.param(tictactoe, {"dense": [8], "memory": "gru:4"}, id="tictactoe-memory", marks=pytest.mark.long),
        pytest.param(duel, {"dense": [8]}, id="duel", marks=pytest.mark.long),
    ],
)
def test_segments_have_the_steps_of_every_seat_where_the_candidate_meets_itself(
    module: Any, policy: dict[str, Any]
) -> None:
    """In an environment, those of seat 0 come first, in the order of time, and only moves after the last are lost."""
    environment, rollout, reference, _ = made(module, policy, 0)
    game, horizon = environment.game, 21
    task = Task(fresh(1), Segment(game.begin(IN_SEGMENTS), horizon), opponents=WeightSource.of_row(ITSELF))
    result = rollout.play(task, np.empty((0, rollout.size), np.float32))
    found = result.transitions
    assert found is not None
    assert len(IN_SEGMENTS) * horizon <= result.frames < len(IN_SEGMENTS) * (horizon + 4)
    for e, first in enumerate(IN_SEGMENTS):
        rows, episode = [], 0
        while len(rows) < horizon:
            rows += reference.play(int(episode_seed(first, episode)), None, 0)["rows"]
            episode += 1
        rows = sorted(rows[:horizon], key=lambda row: row[4])
        at = slice(e * horizon, (e + 1) * horizon)
        np.testing.assert_array_equal(game.observe(found.observations[at]), [row[0] for row in rows])
        assert found.actions[at].tolist() == [row[1] for row in rows]
        np.testing.assert_array_equal(found.rewards[at], np.float32([row[2] for row in rows]))
        ends = [row[3] for row in rows]
        for seat in range(2):
            *_, final = (k for k, row in enumerate(rows) if row[4] == seat)
            ends[final] = ends[final] or SEGMENT_END
        assert found.ends[at].tolist() == ends
        if found.memories is not None:
            np.testing.assert_array_equal(found.memories[at], [row[5] for row in rows])
    assert len(found.next_observations) == (found.ends >= TRUNCATED).sum()


def test_baselines_and_networks_of_a_lineup_take_turns() -> None:
    _, rollout, reference, against = made(tictactoe, {"dense": [8]}, 2)
    reference.lineup = [1, -2, -1, 2]
    assert against is not None
    lineup = WeightSource(*(np.insert(one, 1, [one[0]] * 2) for one in list(vars(against).values())[:4]))
    lineup.rows[1:3] = ITSELF - 2, ITSELF - 1
    task = Task(fresh(1), Episodes(SEEDS), record_actions=True, opponents=lineup)
    result = rollout.play(task, np.empty((0, rollout.size), np.float32))
    assert result.actions is not None
    for e, seed in enumerate(SEEDS.tolist()):
        assert result.actions[e].tolist() == reference.play(seed, e)["actions"]


def test_a_candidate_that_plays_alone_meets_itself_whoever_played_before() -> None:
    environment = environment_of(tictactoe, opponents={"players": ["population"]})
    network = Network.build(Policy(kind="mlp", dense=[8]), environment.shape, environment.actions)
    none, play = np.empty((0, network.size), np.float32), Episodes(SEEDS)
    together = Rollout(network, environment).play(Task(fresh(2), play), none)
    second = Rollout(network, environment).play(Task(fresh(2).some([1]), play), none)
    np.testing.assert_array_equal(together.returns[1], second.returns[0])
    np.testing.assert_array_equal(together.lengths[1], second.lengths[0])


@pytest.mark.parametrize("memory", ["", pytest.param("gru:4", marks=pytest.mark.long)])
def test_no_episodes_are_played_either(memory: str) -> None:
    """As workers do before their first task."""
    _, rollout, _, against = made(tictactoe, {"dense": [8], "memory": memory}, 3)
    result = rollout.play(
        Task(fresh(1), Episodes(SEEDS[:0]), opponents=against), np.empty((0, rollout.size), np.float32)
    )
    assert result.returns.shape == (1, 0)
