"""A league rates planted strengths with intervals that hold, plays as matches do, and gives the same bytes twice."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import evo
from evo.comparison.league import round_robin_of
from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.records import Episodes, Task, WeightSource
from evo.rollouts.rollout import Rollout
from evo.rollouts.seatings import RANDOM_MOVES, SeatPlayer, play_seats
from evo.statistics import cycles, ratings
from tests.helpers.calling import called, small_with, summary_of
from tests.helpers.sampling import sampled


def planted(
    strengths: NDArray[np.float64], games: int, draws: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """Return shares [M, M, E] of two games each, of which a part is drawn, more where players are alike."""
    count = len(strengths)
    shares = np.full((count, count, games), 0.5)
    for i in range(count):
        for j in range(i):
            expected = 1 / (1 + 10 ** ((strengths[j] - strengths[i]) / 400))
            drawn = 4 * draws * expected * (1 - expected)
            luck = random.random((2, games))
            points = np.where(luck < expected - drawn / 2, 1.0, np.where(luck < expected + drawn / 2, 0.5, 0.0))
            shares[i, j] = points.mean(axis=0)
            shares[j, i] = 1 - shares[i, j]
    return shares


@pytest.mark.parametrize(
    ("strengths", "games", "draws"),
    sampled(
        [
            ((-188, -88, 62, 214), 100, 0.0),
            ((-188, -88, 62, 214), 100, 0.4),
            ((-25, 25), 50, 0.0),
            ((-300, 0, 300), 100, 0.0),
        ],
        1,
    ),
)
def test_intervals_of_ratings_hold_the_true_ones_in_95_of_100_leagues(
    strengths: tuple[float, ...], games: int, draws: float
) -> None:
    true, random = np.array(strengths, np.float64), np.random.default_rng(3)
    assert true.sum() == 0
    found = [ratings(planted(true, games, draws, random)) for _ in range(800)]
    inside = np.array(
        [[low <= one <= high for one, (_, (low, high)) in zip(true, all_of, strict=True)] for all_of in found]
    )
    assert 0.93 <= inside.mean() <= 0.97
    assert (inside.mean(axis=0) > 0.92).all()
    means = np.mean([[rating for rating, _ in all_of] for all_of in found], axis=0)
    np.testing.assert_allclose(means, true, atol=8)


def test_a_rating_of_400_more_is_odds_of_ten_to_one_and_who_wins_all_has_a_finite_one() -> None:
    shares = np.full((2, 2, 11_000), 0.5)
    shares[0, 1] = np.arange(11_000) % 11 > 0
    shares[1, 0] = 1 - shares[0, 1]
    (first, _), (second, _) = ratings(shares)
    assert first - second == pytest.approx(400, abs=0.1)
    shares[0, 1], shares[1, 0] = 1.0, 0.0
    (first, (low, high)), _ = ratings(shares)
    assert 400 < low < first < high < 5000


def test_cycles_are_named_once_each() -> None:
    beats = np.zeros((4, 4), np.bool_)
    for winner, loser in ((0, 2), (2, 1), (1, 0), (3, 0), (3, 1), (3, 2)):
        beats[winner, loser] = True
    assert cycles(beats) == [(0, 2, 1)]
    beats[1, 0] = False
    assert cycles(beats) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("game", "opponent", "memory"),
    [("tictactoe", "perfect", False), ("duel", "greedy", True)],
)
def test_episodes_are_those_of_matches(game: str, opponent: str, memory: bool) -> None:
    policy = {"kind": "mlp", "dense": [8], **({"memory": "gru:4"} if memory else {})}
    experiment = Experiment.build(
        environment={"id": game, "opponents": {"players": [opponent]}}, policy=policy, run={"algorithm": "ga"}
    )
    environment, network = environment_of(experiment.environment), experiment.network()
    weights = np.random.default_rng(2).normal(size=network.size).astype(np.float32)
    seeds = np.arange(40, dtype=np.uint64)
    task = Task(WeightSource.of_row(), Episodes(seeds), record_actions=True)
    result = Rollout(network, environment).play(task, weights[np.newaxis])
    seats = result.episode_metrics[0, :, environment.episode_metrics.index("seat")]
    number = RANDOM_MOVES - 1 - list(environment.definition.baselines_of(experiment.environment)).index(opponent)
    players = [SeatPlayer("network", 0, network, weights), SeatPlayer(opponent, number)]
    seating = np.array([[0, 1] if seat == 0 else [1, 0] for seat in seats])
    seated = play_seats(environment.game, players, seating, seeds)
    assert {*seats.tolist()} == {0, 1}
    assert result.actions is not None
    for b, actions in enumerate(result.actions):
        np.testing.assert_array_equal(seated.moves(b), actions)
        assert seated.returns[b, seats[b]] * 1000 == result.returns[0, b]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two runs whose networks have other layers."""
    place = tmp_path_factory.mktemp("league")
    for name, width in (("narrow", 4), ("wide", 16)):
        experiment = small_with(
            run="generations = 2", environment='id = "tictactoe"', policy=f'kind = "mlp"\ndense = [{width}]',
            validation="every = 1\nepisodes = 32", test="episodes = 50", ga="population = 64\nepisodes = 8",
        )  # fmt: skip
        (place / f"{name}.toml").write_text(experiment)
        summary_of(place, f"{name}.toml", "--run-dir", name, "--no-report")
    return place


def test_runs_of_other_networks_and_baselines_meet_from_all_seats(trained: Path) -> None:
    players = (trained / "narrow", trained / "wide" / "champion.h5", "tictactoe:perfect", "tictactoe:random")
    found = evo.league(players, episodes=30, block=3)
    assert {one.name for one in found.players} == {"narrow", "champion.h5", "tictactoe:perfect", "tictactoe:random"}
    assert found.players[0].name == "tictactoe:perfect"
    assert sum(one.rating for one in found.players) == pytest.approx(0, abs=1e-6)
    assert len(found.meetings) == 6
    assert all(one.wins + one.draws + one.losses == one.games == 60 for one in found.meetings)
    assert all(one.wins == 0 for one in found.meetings if one.second == "tictactoe:perfect")
    (both,) = (one for one in found.meetings if (one.first, one.second) == ("narrow", "champion.h5"))
    assert both.different == 2  # nothing is drawn at random
    assert any("only 2 games of 60 between narrow and champion.h5 differ" in note for note in found.notes)
    other = evo.league(players[:2], episodes=30, block=3, opening=2)
    assert other.meetings[0].different > 20
    drawn = evo.league(players[:2], episodes=30, block=3, mode="sample")
    assert drawn.meetings[0].different > 20


def test_the_same_command_gives_the_same_bytes(trained: Path) -> None:
    words = ("league", "narrow", "wide", "tictactoe:perfect", "--episodes", 20, "--block", 2, "--json", "--page")
    pages = [trained / f"{number}.html" for number in range(2)]
    first, second = (called(trained, *words, page, program="evo")[0] for page in pages)
    assert first == second
    assert pages[0].read_bytes() == pages[1].read_bytes()
    found = json.loads(first.splitlines()[-1])
    assert [one["name"] for one in found["players"]] == [one.name for one in evo_league(trained).players]
    assert re.search(r"^tictactoe:perfect +\+\d+ +\S+ to \+\d+ +\d+", first, re.MULTILINE)
    text = pages[0].read_text()
    assert text.count("<circle") == 3
    replays = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])["replays"]  # type: ignore[index]
    assert len(replays) == 2
    assert all(one["frames"] == one["steps"] + 1 for one in replays)


def evo_league(trained: Path) -> evo.League:
    return evo.league([trained / "narrow", trained / "wide", "tictactoe:perfect"], episodes=20, block=2)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("tictactoe:perfekt tictactoe:random", 2, "tictactoe has no baseline perfekt - did you mean `perfect`?"),
        (
            "tictacto:perfect narrow",
            2,
            "there is no file of this name, and no game tictacto - did you mean `tictactoe`?",
        ),
        ("narrow connect_four:random", 2, "connect_four:random: plays another game than narrow: id connect_four, not"),
        ("snake:random snake:random_2", 2, "snake:random: snake is a game of one player, and a game of several"),
        ("tictactoe:random", 2, "a league needs two players or more"),
        ("narrow narrow", 2, "narrow: is named twice; leave one out"),
        ("nowhere narrow", 3, "nowhere: no such file or directory"),
        ("narro wide", 3, "narro: no such file or directory - did you mean `narrow`?"),
        ("narrow.toml wide", 3, "narrow.toml"),
        ("narrow wide --episodes 1", 2, "--episodes: must be a whole number from 2"),
        ("narrow wide --set ppo.envs=3", 2, "--set ppo.envs: only options of the environment"),
    ],
)
def test_wrong_players_end_in_one_line(trained: Path, words: str, code: int, said: str) -> None:
    (line,) = called(trained, "league", *words.split(), program="evo", code=code)[1].splitlines()
    assert said in line


def test_baselines_meet_where_observations_are_no_pictures() -> None:
    games = round_robin_of(["pong:random", "pong:follow"])
    assert [player.name for player in games.players] == ["pong:random", "pong:follow"]


def test_of_more_than_two_seats_a_player_has_one_or_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    games = round_robin_of(["tictactoe:random", "tictactoe:perfect"])
    assert games.seatings(0, 1).tolist() == [[0, 1], [1, 0]]
    monkeypatch.setitem(games.environment.__dict__, "players", 3)
    assert games.seatings(0, 1).tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"episodes": 1}, "episodes: must be a whole number from 2"),
        ({"episodes": 2.5}, "episodes: must be a whole number"),
        ({"block": -1}, "block: must be a whole number from 0"),
        ({"opening": -1}, "opening: must be a whole number from 0"),
        ({"mode": "best"}, "mode: must be greedy or sample, not 'best'"),
        ({"progress": True}, "progress: True is not a function"),
        *(
            ({"sets": sets}, rf"sets: must be a list of assignments, as in .*, not {re.escape(repr(sets))}$")
            for sets in ("environment.opening=3", None, 1, b"x", [1])
        ),
    ],
)
def test_wrong_arguments_are_named_before_a_game(words: dict[str, Any], said: str) -> None:
    with pytest.raises(evo.EvoError, match=said):
        evo.league(["tictactoe:random", "tictactoe:perfect"], **words)
