"""The live screen fits every terminal, shows curves and the champion at play, and says who plays and for how long."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from evo.cli.terminal import champion_board
from evo.cli.terminal.champion_board import ChampionBoard
from evo.cli.terminal.display import finite
from evo.cli.terminal.screen import Screen, bars, spread
from evo.config.experiment import Experiment
from evo.networks.network import Network
from evo.run import Row

TIMEOUT = 120.0  # seconds for a first compilation


def small() -> Experiment:
    environment = {"id": "snake", "size": 5, "window": 5, "starvation": 30}
    return Experiment.build(environment=environment, policy={"kind": "mlp", "dense": [4]})


def weights_of(network: Network) -> np.ndarray:
    return np.random.default_rng(1).normal(size=network.size).astype(np.float32)


def filled(screen: Screen, generations: int = 300, of: int = 400) -> None:
    for g in range(generations):
        metrics = {"best": g / 7, "mean": g / 20, "validation": 5.0 * (g // 50), "frames": 6e5, "seconds": 2.0}
        metrics |= {"test": g / 9} if g % 50 == 49 else {}
        screen.generation(
            Row(g, metrics | {"workers": 2, "workers_replaced": int(g == 7)}, None, g % 50 == 0, Path()), of
        )


def shown_on(screen: Screen, width: int, height: int) -> list[str]:
    screen._console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with screen._console.capture() as captured:
        screen._console.print(screen.drawn())
    return captured.get().rstrip("\n").split("\n")


def wait_for_board(screen: Screen) -> None:
    began = time.monotonic()
    while not screen._board.lines():
        assert time.monotonic() - began < TIMEOUT
        time.sleep(0.05)


@pytest.mark.parametrize(("width", "height"), [(44, 14), (80, 24), (100, 40), (200, 50)])
def test_the_screen_fits_and_leaves_out_what_has_no_room(width: int, height: int) -> None:
    experiment = small()
    with Screen() as screen:
        filled(screen)
        screen.champion(experiment, weights_of(experiment.network()), 250)
        wait_for_board(screen)
        lines = shown_on(screen, width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "2 workers (1 replaced)" in text
    assert "time left 3:" in text
    assert "300/400" in text
    assert ("champion of generation 251" in text) == ("╭──────────╮" in text) == (width >= 80)
    assert "lane utilisation" not in text
    assert sum(" " * 9 in line for line in lines) or width < 80  # curves of several lines beside a board


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("generations", [1, 2])
def test_the_whole_board_is_shown_from_the_first_generation_on(
    width: int, generations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = small()
    with Screen() as screen:
        filled(screen, generations)
        screen.champion(experiment, weights_of(experiment.network()), 0)
        wait_for_board(screen)
        board = screen._board.lines()
        monkeypatch.setattr(screen._board, "lines", lambda: board)  # it moves
        lines = shown_on(screen, width, 40)
    text = "\n".join(lines)
    assert text.count("champion of generation 1") == 1
    assert "…" not in text
    first = next(number for number, line in enumerate(lines) if "╭" in line)
    across = lines[first].index("╭")
    assert [line[across:].rstrip() for line in lines[first:][: len(board)]] == [line.plain.rstrip() for line in board]


def test_accounting_is_shown_where_it_is_asked_for() -> None:
    with Screen(verbose=True) as screen:
        filled(screen, 3)
        text = "\n".join(shown_on(screen, 100, 40))
    assert "lane utilisation" in text
    assert "acting" in text
    assert "bytes" in text


def test_a_curve_spans_all_generations_and_holds_on_where_nothing_new_is_known() -> None:
    assert spread([(0, 1.0), (1, 2.0)], 2, 4) == [1.0, 1.0, 2.0, 2.0]
    assert spread([(g, float(g)) for g in range(100)], 100, 4) == [24.0, 49.0, 74.0, 99.0]
    late = spread([(9, 5.0)], 10, 10)
    assert all(math.isnan(value) for value in late[:9])
    assert late[9] == 5.0
    assert bars([0, 1, 2, 3, 4, 5, 6, 7]) == ["▁▂▃▄▅▆▇█"]
    assert bars([0, 1, 2, 3], 2) == ["  ▃█", "▁▆██"]
    assert bars([math.nan, 1.0, 1.0]) == [" ▁▁"]


def test_what_was_trained_before_a_resume_is_in_the_curves_and_none_is_no_number() -> None:
    with Screen() as screen:
        screen.past(0, {"best": 3.0, "mean": None, "workers_replaced": None})  # type: ignore[dict-item]
        screen.generation(Row(1, {"best": 4.0, "mean": math.nan, "seconds": 1.0}, None, False, Path()), 9)
        text = "\n".join(shown_on(screen, 80, 24))
    assert "best        ▁" in text
    assert "mean        " not in text


def test_the_board_goes_on_to_the_newest_champion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(champion_board, "LEAST", 0.1)
    monkeypatch.setattr(champion_board, "LONGEST", 0.2)
    monkeypatch.setattr(champion_board, "PAUSE", 0.1)
    experiment, board = small(), ChampionBoard(colour=False)
    weights, began = weights_of(experiment.network()), time.monotonic()
    for generation in (4, 9):
        board.take(experiment, weights, generation)
        weights = -weights
        while not (lines := board.lines()) or f"generation {generation + 1}" not in lines[-1].plain:
            assert time.monotonic() - began < TIMEOUT
            time.sleep(0.05)
    assert lines[0].plain == "╭──────────╮"
    board.close()
    assert not board._thread.is_alive()


def test_no_board_is_shown_of_what_draws_no_pictures_or_has_no_finite_outputs() -> None:
    cart = Experiment.build(environment={"id": "gymnasium:CartPole-v1"}, policy={"kind": "mlp"})
    board = ChampionBoard()
    board.take(cart, weights_of(cart.network()), 0)
    assert board._thread is None
    experiment = small()
    board.take(experiment, np.full(experiment.network().size, np.nan, np.float32), 0)
    board._thread.join(1.0)
    assert board._thread.is_alive()  # it waits for a better one
    assert board.lines() == []
    board.close()
    board._thread.join(TIMEOUT)
    assert not board._thread.is_alive()


def test_numbers_that_nobody_would_write_are_shown_or_left_out() -> None:
    odd = [10**400, math.inf, math.nan, "text", None, True, [1]]
    assert [finite(value) for value in odd] == [None, None, None, None, None, 1.0, None]
    assert bars([1e308, -1e308]) == bars([0.0, 1e-310]) == bars([2.0, 2.0]) == ["▁▁"]
    with Screen() as screen:
        for generation, value in enumerate([*odd, 1e308, -1e308, 1e-310]):
            screen.past(generation, {"best": value, "workers_replaced": value})  # type: ignore[dict-item]
        screen.generation(Row(12, {"best": 1e308, "workers": math.nan, "seconds": 1.0}, None, False, Path()), 3)
        for width, height in ((1, 1), (20, 8), (200, 60)):
            shown_on(screen, width, height)


def test_a_curve_of_very_many_generations_is_thinned_and_keeps_its_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.cli.terminal.screen.MOST_POINTS", 100)
    with Screen() as screen:
        for generation in range(5000):
            value = 9.0 if generation == 1234 else generation / 5000
            screen.past(generation, {"best": value})
            assert screen._curves["best"][-1] == (generation, value)
        kept = screen._curves["best"]
    assert len(kept) <= 101
    assert max(value for _, value in kept) == 9.0
    assert kept[-1] == (4999, 4999 / 5000)


def test_a_game_that_cannot_be_drawn_is_told_in_a_line_and_the_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("no picture")

    monkeypatch.setattr(champion_board, "_episode", fails)
    experiment, board, began = small(), ChampionBoard(), time.monotonic()
    board.take(experiment, weights_of(experiment.network()), 0)
    while not board.lines():
        assert time.monotonic() - began < TIMEOUT
        time.sleep(0.05)
    assert [line.plain for line in board.lines()] == [" the champion cannot be shown: no picture"]
    board.close()
    assert not board._thread.is_alive()
