"""The rules of `snake.rules` for many boards at once, compiled: a board is a row of every array of the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.arguments import whole
from evo.compiled.bits import popcount
from evo.games.contract import GOES_ON, TERMINATED, TRUNCATED
from evo.randomness.philox_compiled import draw
from snake.rules import LARGEST, SMALLEST, Game

kernel_cache.use(__name__)

# Counting references to the arrays of a board at every call would cost more than a step does, and these functions own
# no memory: they run without reference counts, and the ones of every step are inlined. Those that other files call are
# inlined by LLVM, not by Numba, as callers that count references would do so in them too.
LEAN: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}

FRUITS = np.int64(0)  # the purpose of a game's draws; typed, since a literal would have kernels compiled once more

ONE = np.uint64(1)


class Rules(NamedTuple):
    """The options of `snake.rules.Game` as integers; rewards in thousandths, 0 steps mean never."""

    size: int
    tail_fatal: int
    starvation: int
    max_steps: int
    start_length: int
    relative: int
    reward_fruit: int
    reward_death: int
    reward_win: int
    reward_starved: int
    reward_step: int


STATE = np.dtype(
    [
        ("seed", np.uint64),  # key of the episode's stream
        ("hunger", np.int32),  # steps since the last fruit
        ("steps", np.int32),
        ("head", np.uint16),  # where the head is in the ring
        ("length", np.uint16),
        ("fruit", np.int16),  # cell, or -1 on a full board
        ("heading", np.uint8),  # 0 up, 1 right, 2 down, 3 left
        ("over", np.uint8),  # GOES_ON, TERMINATED or TRUNCATED
    ]
)


class Boards(NamedTuple):
    """The state of B boards of N x N cells, one row a board; a cell is the number row * N + column."""

    body: NDArray[Any]  # [B, N*N] ring of cells, from `head` on to the tail; uint8 up to 16 x 16, else uint16
    occupied: NDArray[np.uint64]  # [B, ceil(N*N / 64)] one bit a cell of the body; bits beyond the board are set
    forced: NDArray[np.int16]  # [B, F] forced fruits to come, then -1
    state: NDArray[np.void]  # [B] STATE


def make_rules(size: int = 10, **options: Any) -> Rules:
    """Return the rules with the options and defaults of `snake.rules.Game`; ValueError as there."""
    return _rules_of(Game(size, **options))


def make_boards(count: int, size: int, forced: int = 0) -> Boards:
    """Return `count` boards, all over and waiting for `reset_board`, with at most `forced` forced fruits each."""
    cells = whole("size", size, SMALLEST, LARGEST) ** 2
    boards = Boards(
        body=np.zeros((count, cells), np.uint8 if cells <= 256 else np.uint16),
        occupied=np.zeros((count, (cells + 63) // 64), np.uint64),
        forced=np.full((count, forced), -1, np.int16),
        state=np.zeros(count, STATE),
    )
    boards.state["length"], boards.state["fruit"], boards.state["over"] = 1, -1, TERMINATED
    return boards


@njit(inline="always", **LEAN)
def free_cell(occupied, b, rank):  # type: ignore[no-untyped-def]
    """Return free cell number `rank` of board b, counted row by row."""
    word_number = 0
    free = ~occupied[b, 0]
    count = popcount(free)
    while rank >= count:
        rank -= count
        word_number += 1
        free = ~occupied[b, word_number]
        count = popcount(free)
    position = 0
    width = 32
    while width > 0:
        below = popcount((free >> np.uint64(position)) & ((ONE << np.uint64(width)) - ONE))
        if rank >= below:
            rank -= below
            position += width
        width >>= 1
    return word_number * 64 + position


@njit(**LEAN)
def place_fruit(boards, rules, b):  # type: ignore[no-untyped-def]
    """Place the next fruit: a forced one, else draw number `length` of the episode's stream; -1 on a full board."""
    state = boards.state[b]
    length = np.int64(state.length)
    cells = rules.size * rules.size
    if length == cells:
        state.fruit = -1
        return
    waiting = boards.forced.shape[1]
    if waiting > 0 and boards.forced[b, 0] >= 0:
        fruit = np.int64(boards.forced[b, 0])
        state.fruit = fruit
        for k in range(1, waiting):
            boards.forced[b, k - 1] = boards.forced[b, k]
        boards.forced[b, waiting - 1] = -1
        if is_occupied(boards.occupied, b, fruit):
            raise ValueError("a forced fruit is on the body")
        return
    state.fruit = free_cell(boards.occupied, b, draw(state.seed, length, cells - length, FRUITS))


@njit(forceinline=True, **LEAN)
def is_occupied(occupied, b, cell):  # type: ignore[no-untyped-def]
    """Return whether the body of board b covers a cell."""
    return (occupied[b, cell >> 6] >> np.uint64(cell & 63)) & ONE != np.uint64(0)


@njit(forceinline=True, **LEAN)
def reset_board(boards, rules, b, seed):  # type: ignore[no-untyped-def]
    """Begin the episode of `seed` (64 bits) on board b, without the forced fruits of an earlier one."""
    size = rules.size
    cells = size * size
    words = boards.occupied.shape[1]
    for word in range(words):
        boards.occupied[b, word] = np.uint64(0)
    if cells & 63:
        boards.occupied[b, words - 1] = ~((ONE << np.uint64(cells & 63)) - ONE)
    for k in range(boards.forced.shape[1]):
        boards.forced[b, k] = -1
    length = rules.start_length
    cell = draw(np.uint64(seed), np.int64(0), (size - length + 1) * size, FRUITS)
    for k in range(length):
        boards.body[b, k] = cell
        boards.occupied[b, cell >> 6] |= ONE << np.uint64(cell & 63)
        cell += size
    state = boards.state[b]
    state.seed = np.uint64(seed)
    state.head = 0
    state.length = length
    state.heading = 0
    state.over = GOES_ON
    state.hunger = 0
    state.steps = 0
    place_fruit(boards, rules, b)


@njit(forceinline=True, **LEAN)
def cell_ahead(size, cell, direction):  # type: ignore[no-untyped-def]
    """Return the neighbour of a cell in a direction, or -1 beyond the wall."""
    row = np.int64(np.uint32(cell) // np.uint32(size))
    column = cell - row * size
    down = np.int64(direction == 2) - np.int64(direction == 0)
    right = np.int64(direction == 1) - np.int64(direction == 3)
    row += down
    column += right
    inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
    return cell + down * size + right if inside else -1


@njit(forceinline=True, **LEAN)
def tail_cell(body, state, b):  # type: ignore[no-untyped-def]
    """Return the cell of the tail of board b, whose state is `state`."""
    position = np.int64(state.head) + np.int64(state.length) - 1
    cells = body.shape[1]
    return np.int64(body[b, position - cells if position >= cells else position])


@njit(forceinline=True, **LEAN)
def blocked(boards, rules, b, cell):  # type: ignore[no-untyped-def]
    """Return whether the head of board b would die by entering a cell (-1 is the wall)."""
    if cell < 0:
        return True
    if not is_occupied(boards.occupied, b, cell):
        return False
    # The fruit never lies on the body, so whoever enters the tail's cell does not eat and the tail moves on.
    state = boards.state[b]
    return rules.tail_fatal != 0 or state.length == 1 or cell != tail_cell(boards.body, state, b)


@njit(forceinline=True, **LEAN)
def step_board(boards, rules, b, action):  # type: ignore[no-untyped-def]
    """Play one action on board b; return (reward in thousandths, GOES_ON | TERMINATED | TRUNCATED), both int64.

    A board that is over stays as it is, with reward 0. Actions are not checked: 0..2 relative, 0..3 absolute.
    """
    state = boards.state[b]
    if state.over != GOES_ON:
        return np.int64(0), np.int64(state.over)
    cells = rules.size * rules.size
    direction = (np.int64(state.heading) + action + 3) & 3 if rules.relative else np.int64(action)
    start = np.int64(state.head)
    target = cell_ahead(rules.size, np.int64(boards.body[b, start]), direction)
    hunger = np.int64(state.hunger) + 1
    steps = np.int64(state.steps) + 1
    state.steps = steps
    state.hunger = hunger
    if blocked(boards, rules, b, target):
        state.over = TERMINATED
        return np.int64(rules.reward_death), np.int64(TERMINATED)
    eats = target == state.fruit
    if not eats:
        tail = tail_cell(boards.body, state, b)
        boards.occupied[b, tail >> 6] &= ~(ONE << np.uint64(tail & 63))
    boards.occupied[b, target >> 6] |= ONE << np.uint64(target & 63)
    start = start - 1 if start > 0 else cells - 1
    boards.body[b, start] = target
    state.head = start
    state.heading = direction
    reward = np.int64(0)
    status = np.int64(GOES_ON)
    if eats:
        length = np.int64(state.length) + 1
        state.length = length
        state.hunger = 0
        hunger = np.int64(0)
        reward += rules.reward_fruit
        if length == cells:
            reward += rules.reward_win
            status = np.int64(TERMINATED)
        place_fruit(boards, rules, b)
    else:
        reward += rules.reward_step
    starved = 0 < rules.starvation <= hunger
    out_of_time = 0 < rules.max_steps <= steps
    if status == GOES_ON and (starved or out_of_time):
        status = np.int64(TRUNCATED)
    if starved:  # no fruit was eaten, so the board is not full
        reward += rules.reward_starved
    state.over = status
    return reward, status


def positions(boards: Boards, rules: Rules, b: int) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
    """Return the body of board b, head first, and its fruit, as (row, column); also after the end of an episode."""
    ring = np.roll(boards.body[b], -int(boards.state["head"][b]))[: int(boards.state["length"][b])]
    fruit = int(boards.state["fruit"][b])
    body = [divmod(int(cell), rules.size) for cell in ring]
    return body, None if fruit < 0 else divmod(fruit, rules.size)


def dump(boards: Boards, rules: Rules, b: int) -> dict[str, Any]:
    """Return what `snake.rules.Game.state` returns of the same position; RuntimeError after the end of the episode."""
    if boards.state["over"][b] != GOES_ON:
        raise RuntimeError("the episode is over: it has no state to go on from")
    body, fruit = positions(boards, rules, b)
    return {
        "size": rules.size,
        "body": body,
        "fruit": fruit,
        "fruits": [divmod(int(cell), rules.size) for cell in boards.forced[b] if cell >= 0],
        "seed": int(boards.state["seed"][b]),
        "tail": "fatal" if rules.tail_fatal else "legal",
        "starvation": rules.starvation,
        "max_steps": rules.max_steps,
        "start_length": rules.start_length,
        "rewards": {
            "fruit": rules.reward_fruit / 1000,
            "death": rules.reward_death / 1000,
            "win": rules.reward_win / 1000,
            "starved": rules.reward_starved / 1000,
            "step": rules.reward_step / 1000,
        },
        "actions": "relative" if rules.relative else "absolute",
        "heading": int(boards.state["heading"][b]),
        "hunger": int(boards.state["hunger"][b]),
        "steps": int(boards.state["steps"][b]),
    }


def load(boards: Boards, rules: Rules, b: int, state: Mapping[str, Any]) -> None:
    """Set board b to a state of `snake.rules.Game`; ValueError where it is illegal or of other rules."""
    game = Game(**state)
    if _rules_of(game) != rules:
        raise ValueError(f"the state has the rules {_rules_of(game)}, the boards {rules}")
    forced = game.state()["fruits"] if not game.over else []
    if len(forced) > boards.forced.shape[1]:
        raise ValueError(f"{len(forced)} forced fruits, but the boards were made for {boards.forced.shape[1]}")
    size = rules.size
    body = [row * size + column for row, column in game.body]
    boards.body[b, : len(body)] = body
    boards.occupied[b] = _occupied(body, size * size)
    boards.forced[b] = -1
    boards.forced[b, : len(forced)] = [row * size + column for row, column in forced]
    boards.state["head"][b] = 0
    boards.state["length"][b] = len(body)
    boards.state["fruit"][b] = -1 if game.fruit is None else game.fruit[0] * size + game.fruit[1]
    boards.state["heading"][b] = game.heading
    boards.state["over"][b] = TERMINATED if game.over else GOES_ON
    boards.state["hunger"][b] = game.hunger
    boards.state["steps"][b] = game.steps
    boards.state["seed"][b] = game.seed


def _occupied(body: list[int], cells: int) -> NDArray[np.uint64]:
    """Return the bitmap of a body.  # [ceil(cells / 64)]"""
    bits = np.zeros((cells + 63) // 64 * 64, np.bool_)
    bits[cells:] = True
    bits[body] = True
    return np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)


def _rules_of(game: Game) -> Rules:
    return Rules(
        size=game.size,
        tail_fatal=int(game.tail == "fatal"),
        starvation=game.starvation,
        max_steps=game.max_steps,
        start_length=game.start_length,
        relative=int(game.actions == "relative"),
        reward_fruit=game.thousandths["fruit"],
        reward_death=game.thousandths["death"],
        reward_win=game.thousandths["win"],
        reward_starved=game.thousandths["starved"],
        reward_step=game.thousandths["step"],
    )
