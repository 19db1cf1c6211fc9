"""The benchmarks measure what they say, and a smoke run fails on a bad ratio and on nothing else."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks import game, rollout
from benchmarks.tables import Limit, Table, grid, number, show
from evo.records import Episodes, Task
from evo.rollouts.rollout import Rollout
from evo.streams import Purpose, episode_keys
from snake.rules import Game


def test_a_smoke_run_fails_on_a_ratio_far_from_its_target_and_never_on_an_absolute_figure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def code(*limits: Limit, smoke: bool = True) -> int:
        return show(Table("title", "note", ("a",), [["b"]], list(limits)), smoke)

    assert code(Limit("ours", 3.6, 5.0, ratio=True)) == 0
    assert code(Limit("ours", 3.4, 5.0, ratio=True)) == 1
    assert "too slow: ours is 3.4, target 5" in capsys.readouterr().err
    assert code(Limit("ours", 3.4, 5.0, ratio=True), smoke=False) == 0
    assert code(Limit("ours", 1.0, 5.0)) == 0
    assert code(Limit("memory", 0.6, 0.5, most=True, ratio=True)) == 0
    assert code(Limit("memory", 0.8, 0.5, most=True, ratio=True)) == 1


def test_tables_are_markdown_with_every_figure_in_its_column() -> None:
    assert grid(("what", "x"), [["speed", "1,000"]]).split("\n") == [
        "| what  |     x |",
        "|-------|------:|",
        "| speed | 1,000 |",
    ]
    assert [number(value) for value in (0.01234, 12.34, 1234.0, 7654321.0)] == ["0.0123", "12.3", "1,230", "7,650,000"]


def test_the_closed_path_wins_every_game() -> None:
    table = game.closed_path(6)
    for seed in range(5):
        played, over = Game(size=6, seed=seed), False
        while not over:
            row, column = played.body[0]
            _, over, _ = played.step(int(table[row * 6 + column, 0]))
        assert played.won


def test_the_two_networks_are_the_ones_that_are_spoken_of() -> None:
    sizes = {case.name: case.network.size for case in rollout.cases()}
    assert sizes == {"tiny": 27_460, "seed": 1_182_904}


def test_arithmetic_that_only_meets_padding_is_not_counted() -> None:
    tiny, seed = (case.network for case in rollout.cases())
    assert rollout.needed_flops(seed) == seed.flops  # valid convolutions have no padding
    same = 2 * 28 * 28 * 5 * 8  # a 3 x 3 convolution of a 10 x 10 board loses two taps at either border
    assert rollout.needed_flops(tiny) == tiny.flops - 2 * 30 * 30 * 5 * 8 + same - _stride_two_loss()


def _stride_two_loss() -> int:
    return 2 * (15 * 15 - 14 * 14) * 8 * 16  # a border of one row and column is beyond the end


@pytest.mark.long
def test_the_usual_way_plays_the_same_game() -> None:
    code = (
        "import numpy as np\n"
        "from benchmarks import rollout, seed_way\n"
        "from evo.streams import Purpose, episode_keys\n"
        "from evo.weights import Rebuilder\n"
        "case = rollout.cases()[0]\n"
        "peer, weights = seed_way.SeedWay(case.network, case.environment), np.empty(case.network.size, np.float32)\n"
        "parents = np.empty((0, case.network.size), np.float32)\n"
        "Rebuilder(case.network).rebuild(parents, rollout.fresh(1, 0), 0, weights)\n"
        "peer.set_weights(weights)\n"
        "print(peer.play(episode_keys(0, Purpose.TRAIN, 0, 8), 10_000_000))\n"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    case = rollout.cases()[0]
    seeds = episode_keys(0, Purpose.TRAIN, 0, 8)
    parents = np.empty((0, case.network.size), np.float32)
    result = Rollout(case.network, case.environment).play(Task(rollout.fresh(1, 0), Episodes(seeds)), parents)
    assert child.stdout.strip() == repr((result.measures[0, :, 0].tolist(), result.frames))


@pytest.mark.long
def test_the_smoke_run_ends_well() -> None:
    child = subprocess.run([sys.executable, "-m", "benchmarks", "--smoke"], capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout.count("## ") == 5
