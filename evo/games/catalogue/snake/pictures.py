"""Pictures of a board: coloured text for terminals, and RGB frames."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.environment import Frame
from evo.games.catalogue.snake.position import MOVES, Cell, Game, cells_of_body
from evo.games.pictures import SIDE

Colour = tuple[int, int, int]

FIELD: tuple[Colour, Colour] = ((24, 28, 38), (29, 34, 46))  # chequered
BORDER: Colour = (58, 66, 86)
HEAD: Colour = (126, 231, 135)
TAIL: Colour = (26, 96, 74)
FRUIT: Colour = (248, 81, 73)
LEAF: Colour = (86, 211, 100)
SHINE: Colour = (255, 214, 210)
EYE: Colour = (255, 255, 255)
PUPIL: Colour = (13, 17, 23)

FACES = ("''", " :", "..", ": ")  # two eyes, looking up, right, down, left
PLAIN_HEADS = "^>v<"


class Board(NamedTuple):
    """A board that can be shown; also after the end of an episode."""

    size: int
    body: list[Cell]  # head first
    fruit: Cell | None
    heading: int
    score: int
    over: bool = False

    def text(self, colour: bool = True) -> str:
        """Return lines of text, two characters a cell, with a frame around the board and the score below.

        Without `colour` there are no escape sequences: the head is one of ^>v<, the body o, the tail ., the fruit *.
        """
        rows = _coloured_rows(self) if colour else _plain_rows(self)
        line = "─" * (2 * self.size)
        frame = [f"╭{line}╮", *(f"│{row}│" for row in rows), f"╰{line}╯"]
        return "\n".join([*frame, f" score {self.score}{'  over' if self.over else ''}"])

    def rgb(self, cell: int = 0) -> Frame:
        """Return a picture, `cell` pixels a cell and a border of half a cell.  # uint8 [H, W, 3]

        0: as many pixels as make a picture of at least SIDE.
        """
        cell = cell or max(4, 2 * -(-SIDE // (2 * (self.size + 1))))
        if cell < 4:
            raise ValueError(f"cell is {cell} pixels, fewer than 4")
        picture = _field(self.size, cell).copy()
        canvas = _Canvas(picture, cell, cell // 2)
        if self.fruit is not None:
            _draw_fruit(canvas, self.fruit)
        _draw_body(canvas, self.body)
        _draw_eyes(canvas, self)
        return np.rint(picture).astype(np.uint8)


def board(game: Game) -> Board:
    """Return what is shown of a game now."""
    return Board(game.size, list(game.body), game.fruit, game.heading, game.score, game.over)


def shown(state: Any, options: Any, b: int) -> Board:
    """Return board b as it is shown."""
    body, fruit = cells_of_body(state, options.size, b), int(state.fruit[b])
    place = None if fruit < 0 else divmod(fruit, options.size)
    score = len(body) - options.start_length
    return Board(options.size, body, place, int(state.heading[b]), score, bool(state.over[b]))


def render(state: Any, options: Any, b: int) -> Frame:
    """Return a picture of board b, 24 pixels a cell."""
    return shown(state, options, b).rgb(24)


@lru_cache(maxsize=4)
def _field(size: int, cell: int) -> NDArray[np.float32]:
    """Return an empty board with its border.  # [H, W, 3]"""
    inner, margin = np.arange(size).repeat(cell), cell // 2
    chequered = np.array(FIELD, np.float32)[(inner[:, None] + inner) % 2]
    picture = np.full((*(len(inner) + 2 * margin,) * 2, 3), BORDER, np.float32)
    picture[margin : margin + len(inner), margin : margin + len(inner)] = chequered
    return picture


class _Canvas:
    """A picture that is drawn on in units of cells: (0.5, 0.5) is the middle of the top left cell."""

    def __init__(self, picture: NDArray[np.float32], cell: int, margin: int) -> None:
        self.picture, self.cell, self.margin = picture, cell, margin

    def stroke(self, one: tuple[float, float], other: tuple[float, float], radius: float, colour: Colour) -> None:
        """Draw a line with round ends and a smooth edge; a disc where both ends are the same."""
        ends = np.array([one, other], np.float32) * self.cell + self.margin
        reach = radius * self.cell + 1
        top, left = np.maximum(np.floor(ends.min(0) - reach).astype(int), 0)
        bottom, right = np.ceil(ends.max(0) + reach).astype(int) + 1
        part = self.picture[top:bottom, left:right]
        rows = np.arange(top, top + part.shape[0], dtype=np.float32)[:, None] + 0.5 - ends[0, 0]
        columns = np.arange(left, left + part.shape[1], dtype=np.float32)[None, :] + 0.5 - ends[0, 1]
        down, across = ends[1] - ends[0]
        length = max(float(down * down + across * across), 1e-9)
        along = np.clip((rows * down + columns * across) / length, 0, 1)
        distance = np.hypot(rows - along * down, columns - along * across)
        cover = np.clip(radius * self.cell - distance + 0.5, 0, 1)[..., None]
        part += cover * (np.array(colour, np.float32) - part)


def _middle(cell: Cell) -> tuple[float, float]:
    return cell[0] + 0.5, cell[1] + 0.5


def _shade(place: int, length: int) -> Colour:
    """The colour of body cell number `place`, from the head to the tail."""
    share = place / max(length - 1, 1)
    red, green, blue = (round(head + share * (tail - head)) for head, tail in zip(HEAD, TAIL, strict=True))
    return red, green, blue


def _draw_fruit(canvas: _Canvas, fruit: Cell) -> None:
    row, column = _middle(fruit)
    canvas.stroke((row + 0.04, column), (row + 0.04, column), 0.33, FRUIT)
    canvas.stroke((row - 0.28, column + 0.02), (row - 0.38, column + 0.14), 0.07, LEAF)
    canvas.stroke((row - 0.06, column - 0.12), (row - 0.06, column - 0.12), 0.07, SHINE)


def _draw_body(canvas: _Canvas, body: list[Cell]) -> None:
    for place in range(len(body) - 1, -1, -1):
        behind = body[min(place + 1, len(body) - 1)]
        radius = 0.42 - 0.16 * place / max(len(body) - 1, 1)
        canvas.stroke(_middle(body[place]), _middle(behind), radius, _shade(place, len(body)))


def _draw_eyes(canvas: _Canvas, shown: Board) -> None:
    (row, column), (down, right) = _middle(shown.body[0]), MOVES[shown.heading]
    for side in (-1, 1):
        eye = (row + 0.12 * down + 0.19 * side * right, column + 0.12 * right + 0.19 * side * down)
        canvas.stroke(eye, eye, 0.13, EYE)
        pupil = (eye[0] + 0.05 * down, eye[1] + 0.05 * right)
        canvas.stroke(pupil, pupil, 0.07, FRUIT if shown.over and shown.fruit else PUPIL)


def _plain_rows(shown: Board) -> list[str]:
    rows = [["  "] * shown.size for _ in range(shown.size)]
    for place, (row, column) in reversed(list(enumerate(shown.body))):
        tail = place == len(shown.body) - 1
        rows[row][column] = f"{PLAIN_HEADS[shown.heading] if place == 0 else '.' if tail else 'o'} "
    if shown.fruit is not None:
        rows[shown.fruit[0]][shown.fruit[1]] = "* "
    return ["".join(row) for row in rows]


def _coloured_rows(shown: Board) -> list[str]:
    places = {cell: place for place, cell in enumerate(shown.body)}
    rows = []
    for row in range(shown.size):
        line = ""
        for column in range(shown.size):
            place = places.get((row, column))
            ground = FIELD[(row + column) % 2] if place is None else _shade(place, len(shown.body))
            line += "\x1b[48;2;{};{};{}m".format(*ground)
            if place == 0:
                line += "\x1b[1;38;2;{};{};{}m{}\x1b[22m".format(*PUPIL, FACES[shown.heading])
            elif (row, column) == shown.fruit:
                line += "\x1b[38;2;{};{};{}m● ".format(*FRUIT)
            else:
                line += "  "
        rows.append(f"{line}\x1b[0m")
    return rows
