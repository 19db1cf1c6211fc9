"""The rules of Snake written a second time, with lists, to be read: what the compiled and the plain game must equal."""

from __future__ import annotations

from typing import Any

from evo.randomness.streams import draw
from snake.rules import ACTIONS, DEFAULT_REWARDS, MOVES, Cell


class Reference:
    """One episode; the arguments are those of `snake.rules.Game`, which checks them."""

    def __init__(
        self, *, size: int = 10, body: Any = None, fruit: Cell | None = None, fruits: Any = (), seed: int = 0,
        tail: str = "legal", starvation: int = 0, max_steps: int = 0, start_length: int = 1, rewards: Any = None,
        actions: str = "absolute", heading: int = 0, hunger: int = 0, steps: int = 0,
    ) -> None:  # fmt: skip
        self.size, self.seed, self.tail, self.starvation, self.max_steps = size, seed, tail, starvation, max_steps
        self.start_length, self.actions, self.hunger, self.steps = start_length, actions, hunger, steps
        self.rewards, self.heading, self.forced = {**DEFAULT_REWARDS, **(rewards or {})}, heading, list[Cell](fruits)
        self.body: list[Cell] = self._start() if body is None else list(body)
        self.terminated, self.truncated = self.won, False
        self.fruit = self._next_fruit() if fruit is None else fruit

    @property
    def score(self) -> int:
        return len(self.body) - self.start_length

    @property
    def won(self) -> bool:
        return len(self.body) == self.size * self.size

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    def step(self, action: int) -> tuple[float, bool, bool]:
        direction = self.direction(action)
        self.steps += 1
        self.hunger += 1
        if self.fatal(direction):
            self.terminated = True
            return self.rewards["death"], True, False
        target = self._ahead(direction)
        self.heading = direction
        self.body.insert(0, target)
        if target == self.fruit:
            self.hunger = 0
            self.terminated = self.won
            reward = self.rewards["fruit"] + (self.rewards["win"] if self.won else 0)
            self.fruit = self._next_fruit()
        else:
            self.body.pop()
            reward = self.rewards["step"]
        starved = 0 < self.starvation <= self.hunger
        out_of_time = 0 < self.max_steps <= self.steps
        self.truncated = (starved or out_of_time) and not self.terminated
        if starved:
            reward += self.rewards["starved"]
        return round(1000 * reward) / 1000, self.terminated, self.truncated

    def direction(self, action: int) -> int:
        return (self.heading + action - 1) % 4 if self.actions == "relative" else action

    def fatal(self, direction: int) -> bool:
        row, column = target = self._ahead(direction)
        if not (0 <= row < self.size and 0 <= column < self.size):
            return True
        tail_leaves = self.tail == "legal" and target == self.body[-1] and len(self.body) > 1
        return target in self.body and not tail_leaves

    def mask(self, kind: str) -> list[int]:
        directions = [self.direction(action) for action in range(ACTIONS[self.actions])]
        if kind == "none":
            return [1] * len(directions)
        if kind == "reverse":
            return [int(len(self.body) == 1 or direction != (self.heading + 2) % 4) for direction in directions]
        allowed = [int(not self.fatal(direction)) for direction in directions]
        return allowed if any(allowed) else [1] * len(directions)

    def state(self) -> dict[str, Any]:
        return {
            "size": self.size, "body": list(self.body), "fruit": self.fruit, "fruits": list(self.forced),
            "seed": self.seed, "tail": self.tail, "starvation": self.starvation, "max_steps": self.max_steps,
            "start_length": self.start_length, "rewards": self.rewards, "actions": self.actions,
            "heading": self.heading, "hunger": self.hunger, "steps": self.steps,
        }  # fmt: skip

    def _start(self) -> list[Cell]:
        row, column = divmod(draw(self.seed, 0, (self.size - self.start_length + 1) * self.size), self.size)
        return [(row + below, column) for below in range(self.start_length)]

    def _next_fruit(self) -> Cell | None:
        if self.won:
            return None
        if self.forced:
            return self.forced.pop(0)
        occupied = set(self.body)
        cells = ((row, column) for row in range(self.size) for column in range(self.size))
        free = [cell for cell in cells if cell not in occupied]
        return free[draw(self.seed, len(self.body), len(free))]

    def _ahead(self, direction: int) -> Cell:
        (row, column), (down, right) = self.body[0], MOVES[direction]
        return row + down, column + right
