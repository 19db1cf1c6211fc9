"""Pictures of a board: text, frames and films."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from evo.environments.pictures import save_gif
from snake.players import greedy_player
from snake.render import BORDER, FRUIT, HEAD, Position, position, rgb, text
from snake.rules import Game

SHOWN = Position(5, [(1, 1), (1, 2), (2, 2), (2, 3)], (4, 4), heading=3, score=3)


def test_plain_text_shows_head_body_tail_and_fruit() -> None:
    assert text(SHOWN, colour=False).splitlines() == [
        "╭──────────╮",
        "│          │",
        "│  < o     │",
        "│    o .   │",
        "│          │",
        "│        * │",
        "╰──────────╯",
        " score 3",
    ]


def test_plain_text_has_no_escape_and_coloured_text_the_same_width() -> None:
    plain, coloured = text(SHOWN, colour=False), text(SHOWN)
    assert "\x1b" not in plain
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [len(line) for line in bare.splitlines()] == [len(line) for line in plain.splitlines()]
    assert all(line.count("\x1b[0m") == 1 for line in coloured.splitlines()[1:-2])  # no colour leaks out
    assert "●" in bare


def test_the_head_of_a_snake_of_one_cell_shows_where_it_looks() -> None:
    for heading, sign in enumerate("^>v<"):
        assert sign in text(Position(4, [(2, 2)], (0, 0), heading, 0), colour=False)


def test_a_finished_game_says_so_and_a_full_board_has_no_fruit() -> None:
    game = Game(size=4, body=[(0, 0)], fruit=(3, 3))
    game.step(0)
    assert text(position(game), colour=False).endswith("over")
    way = [(row, column if row % 2 == 0 else 3 - column) for row in range(4) for column in range(4)]
    full = position(Game(size=4, body=way))
    assert "*" not in text(full, colour=False)
    assert rgb(full).shape == (120, 120, 3)


@pytest.mark.parametrize("cell", [4, 16, 40])
def test_a_frame_has_its_colours_where_they_belong(cell: int) -> None:
    frame = rgb(SHOWN, cell)
    side = 5 * cell + 2 * (cell // 2)
    assert (frame.shape, frame.dtype) == ((side, side, 3), np.uint8)
    assert tuple(frame[0, 0]) == BORDER

    def middle(row: int, column: int) -> NDArray[np.int64]:
        return frame[cell // 2 + row * cell + cell // 2, cell // 2 + column * cell + cell // 2].astype(np.int64)

    assert abs(middle(1, 1) - HEAD).max() < 40
    assert abs(middle(4, 4) - FRUIT).max() < 40
    assert middle(1, 2)[1] > middle(2, 3)[1] > 60 > middle(0, 0)[1]  # the body darkens to the tail


def test_a_frame_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 4"):
        rgb(SHOWN, 3)


def test_a_film_shows_the_frames_it_was_made_of(tmp_path: Path) -> None:
    game = Game(size=5, seed=3, starvation=50)
    shown = [position(game)]
    while not game.over and len(shown) < 12:
        game.step(greedy_player(game))
        shown.append(position(game))
    save_gif(tmp_path / "film.gif", [rgb(one, 8) for one in shown])
    with Image.open(tmp_path / "film.gif") as film:
        frames = [(np.array(frame.convert("RGB")), frame.info["duration"]) for frame in ImageSequence.Iterator(film)]
        assert film.info["loop"] == 0
    assert [milliseconds for _, milliseconds in frames] == [80] * (len(shown) - 1) + [1080]
    for (frame, _), one in zip(frames, shown, strict=True):
        assert abs(frame.astype(int) - rgb(one, 8)).max() <= 16  # the palette holds the colours that matter


def test_a_film_of_nothing_or_of_no_speed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one position"):
        save_gif(tmp_path / "film.gif", [])
    with pytest.raises(ValueError, match="between 1 and 50"):
        save_gif(tmp_path / "film.gif", [rgb(SHOWN)], 0)
    assert not (tmp_path / "film.gif").exists()
