"""A replay buffer, sampled uniformly or by priority (Schaul et al., 2016), compiled; and methods that learn from one.

Observations are kept as the environment's snapshots (122 bytes of a 10 x 10 board, so a quarter of a gigabyte a million
transitions); the network's inputs are computed for samples alone. Priorities are integers, so sums are exact, and the
same buffer gives the same sample whatever its history. A resumed run plays recorded actions again to fill the buffer,
so a record holds the "actions" [L, T] of a generation, and the environments' states where the buffer begins; of whole
episodes it holds their actions, seeds and lengths. Where others move too, and without a compiled game, it holds the
transitions themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.functions import powers
from evo.errors import DataError
from evo.learning.collecting import from_arrays, to_arrays
from evo.learning.gradient_algorithm import GradientMethod, ShouldStop
from evo.learning.hyperparameters import scheduled
from evo.learning.returns import n_step, rows_after
from evo.randomness.philox_compiled import philox
from evo.records import GOES_ON, Arrays, EnvStates, Transitions
from evo.rollouts.segments import replay_episodes, replay_segment
from evo.setup import Setup

kernel_cache.use(__name__)

UNIT = 65536.0  # the integer priority of priority 1
LARGEST = (1 << 32) - 1
OFFSET = 1e-3  # added to every TD error, so that every transition can be drawn again
ONE = np.uint64(1)
MASKS = "next_action_masks"
GAMMA = "gamma"  # the discount of what a record has, where it changes
BEGIN = "begin_"  # prefix of the environments' states where the buffer begins
EPISODE_SEEDS, EPISODE_LENGTHS = "episode_seeds", "episode_lengths"  # in the record of whole episodes
NONE = np.empty((0, 0), np.float32)
RECORDED = ("observations", "action_masks", "actions", "rewards", "ends", "next_observations", MASKS)


class Sample(NamedTuple):
    """B transitions of the buffer."""

    slots: NDArray[np.int64]  # [B]
    probabilities: NDArray[np.float64]  # [B] of being drawn
    observations: NDArray[np.generic]  # [B, ...]
    actions: NDArray[np.generic]  # [B] int8, or [B, D] float32
    n_step_rewards: NDArray[np.float32]  # [B] discounted sums
    discounts: NDArray[np.float32]  # [B] of the value n steps later; 0 where the episode terminated
    next_observations: NDArray[np.generic]  # [B, ...] n steps later
    next_action_masks: NDArray[np.int8] | None = None  # [B, A] n steps later; None: all are allowed


@njit(cache=True, error_model="numpy")
def below(key, index, limit):  # type: ignore[no-untyped-def]
    """Return draw `index` of the stream `key`, an int64 in [0, limit) for any limit below 2^63, by rejection."""
    n = np.uint64(limit)
    rest = (np.uint64(0) - n) % n  # 2^64 mod n
    attempt = np.uint64(0)
    while True:
        w0, w1, w2, w3 = philox(np.uint64(key), attempt, np.uint64(index), np.uint64(0), np.uint64(0))
        one = w0 | w1 << np.uint64(32)
        if one >= rest:
            return np.int64(one % n)
        two = w2 | w3 << np.uint64(32)
        if two >= rest:
            return np.int64(two % n)
        attempt += ONE


@njit(cache=True, error_model="numpy")
def set_priorities(tree, slots, values):  # type: ignore[no-untyped-def]
    """Set the priorities of slots, in order, and update every sum above them.

    `tree` int64 [2 K]: the sum of all at 1, of the two halves at 2 and 3, ..., the slots from K on.
    """
    leaves = tree.shape[0] >> 1
    for k in range(slots.shape[0]):
        node = leaves + slots[k]
        change = np.int64(values[k]) - tree[node]
        while node >= 1:
            tree[node] += change
            node >>= 1


@njit(cache=True, error_model="numpy")
def draw_slots(tree, key, slots):  # type: ignore[no-untyped-def]
    """Draw a slot from each of B equal parts of the sum of priorities, in proportion to priority.

    slots int64 [B] is written.
    """
    leaves, total, count = tree.shape[0] >> 1, tree[1], slots.shape[0]
    share, rest = total // count, total % count
    for k in range(count):
        first = k * share + k * rest // count
        last = (k + 1) * share + (k + 1) * rest // count
        left = first + below(key, k, max(last - first, 1))
        node = 1
        while node < leaves:
            node *= 2
            if left >= tree[node]:
                left -= tree[node]
                node += 1
        slots[k] = node - leaves


@njit(cache=True, error_model="numpy")
def draw_uniformly(filled, key, slots):  # type: ignore[no-untyped-def]
    """Draw B slots of the first `filled`, each with the same probability.  # slots int64 [B] is written"""
    for k in range(slots.shape[0]):
        slots[k] = below(key, k, filled)


class ReplayBuffer:
    """The last `capacity` transitions, each with its n-step return."""

    def __init__(self, capacity: int, n: int, gamma: float, priority_exponent: float) -> None:
        """Prepare an empty buffer; with `priority_exponent` 0 it is sampled uniformly."""
        self.capacity, self.n, self.gamma, self.priority_exponent = capacity, n, gamma, priority_exponent
        self.written = 0  # transitions in all, with those that were overwritten
        self._highest = int(UNIT)  # the priority of a new transition
        self._rows: dict[str, NDArray[Any]] = {}
        leaves = 1 << max(capacity - 1, 1).bit_length()
        self._tree = np.zeros(2 * leaves if priority_exponent else 2, np.int64)

    def __len__(self) -> int:
        return min(self.written, self.capacity)

    @property
    def unfilled(self) -> int:
        """Return the bytes of memory that are not written yet, and so not used yet; 0 before the first transition."""
        return sum(rows.nbytes for rows in self._rows.values()) * (self.capacity - len(self)) // self.capacity

    def add(
        self, transitions: Transitions, before: EnvStates | None = None, seeds: NDArray[np.uint64] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Add transitions in order, at the highest priority so far; they overwrite the oldest. Return their record.

        `before` are the environments' states where segments began, `seeds` those of a compiled game's whole episodes;
        with neither, the record has the transitions themselves.
        """
        record = {} if before is None or self.written else to_arrays(before, BEGIN)
        self._write(transitions)
        if self.priority_exponent:
            slots = np.arange(max(self.written - len(transitions), self.written - self.capacity), self.written)
            set_priorities(self._tree, slots % self.capacity, np.full(len(slots), self._highest, np.int64))
        if before is not None:
            actions = transitions.actions
            return {**record, "actions": actions.reshape(len(before), -1, *actions.shape[1:])}
        if seeds is not None:
            last = np.flatnonzero(transitions.ends != GOES_ON)
            lengths = np.diff(last, prepend=-1).astype(np.int32)
            return {"actions": transitions.actions, EPISODE_SEEDS: seeds, EPISODE_LENGTHS: lengths}
        return {name: array for name in RECORDED if (array := vars(transitions)[name]) is not None}

    def _write(self, transitions: Transitions) -> None:
        """Write transitions without their priorities."""
        targets = n_step(transitions.rewards, transitions.ends, self.n, self.gamma)
        next_observations, next_masks = rows_after(transitions, targets.next_rows)
        if next_masks is None and MASKS in self._rows:
            next_masks = np.ones((len(transitions), self._rows[MASKS].shape[1]), np.int8)
        new = {
            "observations": transitions.observations,
            "actions": transitions.actions,
            "n_step_rewards": targets.rewards,
            "discounts": targets.discounts,
            "next_observations": next_observations,
            **({} if next_masks is None else {MASKS: next_masks}),
        }
        for name in new.keys() - self._rows.keys():
            self._rows[name] = np.zeros((self.capacity, *new[name].shape[1:]), new[name].dtype)
            if name == MASKS:  # they may come later than the rest: until then all was allowed
                self._rows[name][: len(self)] = 1
        skipped = max(len(transitions) - self.capacity, 0)
        slots = (self.written + np.arange(skipped, len(transitions))) % self.capacity
        for name, rows in new.items():
            self._rows[name][slots] = rows[skipped:]
        self.written += len(transitions)

    def sample(self, key: int, batch_size: int) -> Sample:
        """Sample transitions by the stream `key`."""
        slots = np.empty(batch_size, np.int64)
        if self.priority_exponent:
            draw_slots(self._tree, np.uint64(key), slots)
            probabilities = self._tree[len(self._tree) // 2 + slots] / np.float64(self._tree[1])
        else:
            draw_uniformly(len(self), np.uint64(key), slots)
            probabilities = np.full(batch_size, 1.0 / len(self))
        rows: dict[str, Any] = {name: values.take(slots, 0) for name, values in self._rows.items()}
        return Sample(slots=slots, probabilities=probabilities, **rows)

    def importance_weights(self, probabilities: NDArray[np.float64], exponent: float) -> NDArray[np.float32]:
        """Return importance-sampling weights (N P)^-exponent over the largest of them.  # [B]"""
        weights = powers(len(self) * probabilities, -exponent)
        return np.asarray(weights / weights.max(), np.float32)

    def update_priorities(self, slots: NDArray[np.int64], td_errors: NDArray[np.float32]) -> None:
        """Set priorities to |TD error|^exponent; of a slot drawn twice the last error counts.  # both [B]"""
        if not self.priority_exponent:
            return
        priorities = np.rint(powers(np.abs(td_errors.astype(np.float64)) + OFFSET, self.priority_exponent) * UNIT)
        values = np.clip(priorities, 1, LARGEST).astype(np.int64)
        set_priorities(self._tree, slots, values)
        self._highest = max(self._highest, int(values.max()))

    def clear(self) -> None:
        """Empty the buffer."""
        self.written, self._highest = 0, int(UNIT)
        self._tree[:] = 0

    def state(self) -> Arrays:
        """Return what recorded actions do not give: how many transitions were written, and priorities."""
        leaves = len(self._tree) // 2
        priorities = self._tree[leaves : leaves + len(self)] if self.priority_exponent else self._tree[:0]
        return {
            "written": np.array([self.written, self._highest], np.int64),
            "priorities": priorities.astype(np.uint32),
        }

    def restore(self, state: Arrays, environment_in: Callable[[int], Any], records: Sequence[Arrays]) -> None:
        """Restore what `state` returned, and fill the buffer from the records of all generations, oldest first.

        `environment_in` gives the environment in which a generation was played.

        Raises DataError where records and state do not match.
        """
        written, self._highest = (int(number) for number in state["written"])
        self._tree[:] = 0
        priorities = state["priorities"].astype(np.int64)
        if self.priority_exponent and len(priorities) == min(written, self.capacity):
            set_priorities(self._tree, np.arange(len(priorities)), priorities)
        self.written = 0
        envs: EnvStates | None = None
        for number, record in enumerate(records):
            if "actions" not in record:  # of the generation that a fork began with
                continue
            continuous = record["actions"].dtype.kind == "f"
            played = np.asarray(record["actions"], np.float32 if continuous else np.int8)
            count = played.size // (played.shape[-1] if continuous else 1)
            self.gamma = float(record[GAMMA][0]) if GAMMA in record else self.gamma
            overwritten = self.written + count <= written - self.capacity
            if "observations" not in record and environment_in(number).game.players > 1:
                raise DataError(
                    f"generation {number}: its record has no moves of other players, so the replay buffer cannot be "
                    "filled again; begin the run anew"
                )
            if BEGIN + "first" in record:
                envs = from_arrays(EnvStates, record, BEGIN)
            if EPISODE_SEEDS in record and overwritten:
                self.written += count
                continue
            if EPISODE_SEEDS in record:
                seeds, last = np.asarray(record[EPISODE_SEEDS], np.uint64), np.cumsum(record[EPISODE_LENGTHS])
                transitions = replay_episodes(environment_in(number).game, seeds, np.split(played, last[:-1]))
            elif envs is not None:  # played even where it is overwritten, for the states in which the next begins
                transitions, envs = replay_segment(environment_in(number).game, envs, played)
            else:
                transitions = from_arrays(Transitions, {**record, "outputs": NONE, "next_outputs": NONE}, "")
            if overwritten:
                self.written += count
            else:
                self._write(transitions)
        if self.written != written:
            raise DataError(f"records of {self.written} transitions, where the state has {written}")


class OffPolicyMethod(GradientMethod):
    """A method whose updates are of samples of a replay buffer: `learn` is given no transitions."""

    def __init__(self, options: Any, setup: Setup, priority_exponent: float = 0.0) -> None:
        """Begin with an empty replay buffer, which with `priority_exponent` 0 is sampled uniformly."""
        super().__init__(options, setup)
        self.buffer = ReplayBuffer(options.replay_size, options.n_step, options.gamma, priority_exponent)
        self._owed = 0  # frames played that no update was made for yet

    @property
    def begun(self) -> bool:
        """Whether the buffer has enough transitions to learn from."""
        return len(self.buffer) >= int(self.options.learning_starts)

    def updates_due(self, should_stop: ShouldStop) -> Iterator[int]:
        """Yield the numbers of the updates due for the frames played, until the run ends."""
        updates, self._owed = divmod(self._owed, self.options.frames_per_update)
        for update in range(updates):
            if should_stop():
                return
            yield update

    def receive(
        self, transitions: Transitions, before: EnvStates | None, frames: int, seeds: NDArray[np.uint64] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Add what was played, the last of `frames`, to the replay buffer; return the record to fill it from again.

        `before` are the environments' states where segments began; `seeds` [E] those of whole episodes, if known.
        """
        self.buffer.gamma = scheduled(self.options, "gamma", frames)
        game = self.setup.environment.game
        if game is None or game.players > 1:  # it needs its environments, or the moves of others, to be played again
            before = seeds = None
        record = self.buffer.add(transitions, before, seeds)
        if self.begun:
            self._owed += len(transitions)
        return {**record, GAMMA: np.array([self.buffer.gamma])} if self.options.gamma_points else record

    def growth(self) -> int:
        """Return the bytes of the replay buffer that are not filled yet."""
        return self.buffer.unfilled

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learner's state, frames without an update, and what replaying the records cannot rebuild."""
        return {**super().state(), "owed": np.array([self._owed], np.int64), **self.buffer.state()}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Restore the learner, and the replay buffer by playing recorded actions again; a fork begins with none."""
        super().restore(state, records)
        if records:
            self._owed = int(np.asarray(state["owed"])[0])
            self.buffer.restore(state, self.setup.environment_in, records)
        else:
            self._owed = 0
            self.buffer.clear()
