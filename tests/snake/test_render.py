"""Pictures of a board: text, frames and films."""

from __future__ import annotations

import re
import subprocess
import weakref
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from evo.errors import ConfigurationError
from evo.games.catalogue.snake.pictures import BORDER, FRUIT, HEAD, Board, board
from evo.games.catalogue.snake.players import greedy_player
from evo.games.pictures import enlarged, save_film
from snake.rules import Game

SHOWN = Board(5, [(1, 1), (1, 2), (2, 2), (2, 3)], (4, 4), heading=3, score=3)


def test_plain_text_shows_head_body_tail_and_fruit() -> None:
    assert SHOWN.text(colour=False).splitlines() == [
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
    plain, coloured = SHOWN.text(colour=False), SHOWN.text()
    assert "\x1b" not in plain
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [len(line) for line in bare.splitlines()] == [len(line) for line in plain.splitlines()]
    assert all(line.count("\x1b[0m") == 1 for line in coloured.splitlines()[1:-2])  # no colour leaks out
    assert "●" in bare


def test_the_head_of_a_snake_of_one_cell_shows_where_it_looks() -> None:
    for heading, sign in enumerate("^>v<"):
        assert sign in Board(4, [(2, 2)], (0, 0), heading, 0).text(colour=False)


def test_a_finished_game_says_so_and_a_full_board_has_no_fruit() -> None:
    game = Game(size=4, body=[(0, 0)], fruit=(3, 3))
    game.step(0)
    assert board(game).text(colour=False).endswith("over")
    way = [(row, column if row % 2 == 0 else 3 - column) for row in range(4) for column in range(4)]
    full = board(Game(size=4, body=way))
    assert "*" not in full.text(colour=False)
    assert full.rgb(24).shape == (120, 120, 3)


@pytest.mark.parametrize("cell", [4, 16, 40])
def test_a_frame_has_its_colours_where_they_belong(cell: int) -> None:
    frame = SHOWN.rgb(cell)
    side = 5 * cell + 2 * (cell // 2)
    assert (frame.shape, frame.dtype) == ((side, side, 3), np.uint8)
    assert tuple(frame[0, 0]) == BORDER

    def middle(row: int, column: int) -> NDArray[np.int64]:
        return frame[cell // 2 + row * cell + cell // 2, cell // 2 + column * cell + cell // 2].astype(np.int64)

    assert abs(middle(1, 1) - HEAD).max() < 40
    assert abs(middle(4, 4) - FRUIT).max() < 40
    assert middle(1, 2)[1] > middle(2, 3)[1] > 60 > middle(0, 0)[1]  # the body darkens to the tail


@pytest.mark.parametrize("size", [2, 5, 10, 13])
def test_a_picture_is_drawn_for_a_film_not_enlarged(size: int) -> None:
    frame = Board(size, [(0, 0)], (1, 1), 0, 0).rgb()
    assert 480 <= len(frame) < 520
    assert enlarged(frame).shape == frame.shape


def test_a_frame_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 4"):
        SHOWN.rgb(3)


def test_a_film_shows_the_frames_it_was_made_of(tmp_path: Path) -> None:
    game = Game(size=5, seed=3, starvation=50)
    shown = [board(game)]
    while not game.over and len(shown) < 12:
        game.step(greedy_player(game))
        shown.append(board(game))
    save_film(tmp_path / "film.gif", [one.rgb(8) for one in shown])
    with Image.open(tmp_path / "film.gif") as film:
        frames = [(np.array(frame.convert("RGB")), frame.info["duration"]) for frame in ImageSequence.Iterator(film)]
        assert film.info["loop"] == 0
    assert [milliseconds for _, milliseconds in frames] == [80] * (len(shown) - 1) + [1080]
    for (frame, _), one in zip(frames, shown, strict=True):
        assert abs(frame.astype(int) - one.rgb(8)).max() <= 16  # the palette holds the colours that matter


@pytest.mark.parametrize("kind", ["gif", "mp4"])
def test_the_frames_of_a_film_are_drawn_one_after_the_other(tmp_path: Path, kind: str) -> None:
    if kind == "mp4" and which("ffmpeg") is None and find_spec("imageio_ffmpeg") is None:
        pytest.skip("the extra video is not installed")
    alive, most = weakref.WeakValueDictionary[int, np.ndarray](), list[int]()

    def draw(number: int) -> np.ndarray:
        frame = np.full((16, 16, 3), number, np.uint8)
        alive[len(most)] = frame
        most.append(len(alive))
        return frame

    save_film(tmp_path / f"film.{kind}", range(200), draw=draw)
    assert len(most) >= 200
    assert max(most) <= 20  # those of which the palette is made are together


def test_webp_keeps_every_colour(tmp_path: Path) -> None:
    shown = [board(Game(size=5, seed=seed, starvation=50)).rgb(8) for seed in range(4)]
    save_film(tmp_path / "film.webp", shown, 20)
    with Image.open(tmp_path / "film.webp") as film:
        assert film.info["loop"] == 0
        for number, frame in enumerate(shown):
            film.seek(number)
            film.load()
            assert (np.array(film.convert("RGB")) == frame).all()
            assert film.info["duration"] == (50 if number < 3 else 1050)


def test_mp4_shows_its_frames_or_says_what_to_install(tmp_path: Path) -> None:
    shown = [board(Game(size=5, seed=seed, starvation=50)).rgb(9) for seed in range(24)]  # of odd sides
    program = which("ffmpeg")
    if program is None and find_spec("imageio_ffmpeg") is None:
        with pytest.raises(ConfigurationError, match="pip install imageio-ffmpeg"):
            save_film(tmp_path / "film.mp4", shown)
        return
    save_film(tmp_path / "film.mp4", shown, 12)
    program = program or import_module("imageio_ffmpeg").get_ffmpeg_exe()
    line = [program, "-loglevel", "error", "-i", str(tmp_path / "film.mp4"), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    height, width = (side + side % 2 for side in shown[0].shape[:2])
    frames = np.frombuffer(subprocess.run(line, capture_output=True, check=True).stdout, np.uint8)
    frames = frames.reshape(-1, height, width, 3)[:, : shown[0].shape[0], : shown[0].shape[1]]
    assert len(frames) == 24 + 12
    assert abs(frames[0].astype(int) - shown[0]).mean() < 8
    assert (frames[24:] == frames[24]).mean() > 0.9
    with pytest.raises(OSError, match="ffmpeg"):
        save_film("/proc/film.mp4", shown)


def test_a_film_of_nothing_or_of_no_speed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one position"):
        save_film(tmp_path / "film.gif", [])
    with pytest.raises(ValueError, match="between 1 and 50"):
        save_film(tmp_path / "film.gif", [SHOWN.rgb()], 0)
    assert not (tmp_path / "film.gif").exists()
