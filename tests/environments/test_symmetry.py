"""A board in another form is what one would see if the whole game were turned or mirrored, and so are its actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evo.games.catalogue import snake
from evo.games.symmetry import Symmetry
from snake.rules import Game
from tests.snake.boards import load

VIEWS = [
    ("ego", "relative", 2),
    ("window", "relative", 2),
    ("local", "relative", 2),
    ("planes", "absolute", 8),
    ("frame", "absolute", 8),
    ("planes", "relative", 8),
]
CASES = [(observation, actions, form) for observation, actions, forms in VIEWS for form in range(forms)]


def cell(where: tuple[int, int], form: int, size: int) -> tuple[int, int]:
    row, column = where
    if form % 2:
        column = size - 1 - column
    for _ in range(form // 2):
        row, column = column, size - 1 - row
    return row, column


def turned(state: dict[str, Any], form: int) -> Game:
    """Return the game of `state` as it is after its board was mirrored and turned."""
    size = state["size"]
    heading = ((-state["heading"] if form % 2 else state["heading"]) + form // 2) % 4
    return Game(
        **{
            **state,
            "body": [cell(where, form, size) for where in state["body"]],
            "fruit": cell(state["fruit"], form, size),
            "fruits": [cell(where, form, size) for where in state["fruits"]],
            "heading": heading,
        }
    )


def seen(environment: Any, game: Game) -> np.ndarray:
    boards = environment.game.make_state(1)
    load(environment.game, boards, 0, {**game.state(), "fruits": []})
    return environment.game.observe(environment.game.snapshots(boards))


@pytest.mark.parametrize(("observation", "actions", "form"), CASES)
def test_a_form_equals_the_game_that_is_truly_turned_step_by_step(observation: str, actions: str, form: int) -> None:
    environment = snake.make(snake.Options(size=6, observation=observation, actions=actions, starvation=40))
    symmetry = Symmetry(environment.symmetry, environment.actions)
    assert symmetry.forms == {"ego": 2, "window": 2, "local": 2}.get(observation, 8)
    rng = np.random.default_rng(form)
    body = [(3, 3), (3, 2), (4, 2), (4, 3), (4, 4)]
    fruits = [(0, 1), (5, 5), (2, 0)]
    game = Game(6, body, (2, 3), fruits, 5, starvation=40, actions=actions, heading=1)
    other = turned(game.state(), form)
    forms = np.array([form])
    played = 0
    while played < 12:
        np.testing.assert_array_equal(symmetry.planes(seen(environment, game), forms), seen(environment, other))
        action = int(rng.integers(environment.actions)) if played else 0  # up, where the fruit is
        if Game(**game.state()).step(action)[1]:  # fatal
            played += 1
            continue
        moved = int(symmetry.actions(np.array([action], np.int8), forms)[0])
        assert other.step(moved) == game.step(action)
        assert other.body == [cell(where, form, 6) for where in game.body]
        played += 1
    assert game.score > 0


def test_masks_move_with_their_actions() -> None:
    symmetry = Symmetry("dihedral", 4)
    allowed = np.array([[1, 1, 0, 0]], np.int8).repeat(8, axis=0)  # up and right
    forms = np.arange(8)
    out = symmetry.allowed(allowed, forms)
    for form in range(8):
        for action in range(4):
            moved = symmetry.actions(np.array([action], np.int8), forms[form : form + 1])[0]
            assert out[form, moved] == allowed[form, action]
    assert len({tuple(row) for row in out.tolist()}) == 4


def test_forms_are_drawn_by_name_and_all_of_them() -> None:
    symmetry = Symmetry("dihedral", 4)
    forms = symmetry.draw(3, 800)
    assert np.bincount(forms, minlength=8).min() > 60
    assert forms.tolist() == symmetry.draw(3, 800).tolist()
    assert forms.tolist() != symmetry.draw(4, 800).tolist()
    assert set(Symmetry("mirror", 3).draw(3, 50).tolist()) == {0, 1}
