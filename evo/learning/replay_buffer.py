"""A memory of steps to learn from again, uniformly or by how much they surprised (Schaul et al., 2016), compiled.

What was seen is kept as the environment's snapshots (122 bytes of a 10 x 10 board, so a quarter of a gigabyte a million
steps); what the network sees of it is made of the sampled ones alone. Priorities are whole numbers, so their sums are
exact, and the same memory gives the same sample whatever it went through.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.learning.value_targets import following_rows, n_step
from evo.randomness.philox_compiled import philox
from evo.records import Arrays, Transitions

kernel_cache.use(__name__)

UNIT = 65536.0  # of a priority
LARGEST = (1 << 32) - 1
SURPRISE = 1e-3  # added to every error, so that none is never seen again
ONE = np.uint64(1)


class Sample(NamedTuple):
    """B steps of the memory."""

    slots: NDArray[np.int64]  # [B]
    shares: NDArray[np.float64]  # [B] of all priorities, so the chance to be drawn
    observations: NDArray[np.generic]  # [B, ...]
    actions: NDArray[np.int8]  # [B]
    returns: NDArray[np.float32]  # [B]
    discounts: NDArray[np.float32]  # [B]
    following: NDArray[np.generic]  # [B, ...]
    action_masks: NDArray[np.int8] | None  # [B, A] in what follows


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
    """Give slots their priorities, one after the other, and mend every sum above them.

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
    """Draw a slot from each of B equal parts of the sum of priorities, with a chance in proportion to its own.

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
def draw_evenly(filled, key, slots):  # type: ignore[no-untyped-def]
    """Draw B slots of those that are filled, each with the same chance.  # slots int64 [B] is written"""
    for k in range(slots.shape[0]):
        slots[k] = below(key, k, filled)


class Replay:
    """The last `capacity` steps, each with its n-step return."""

    def __init__(self, capacity: int, n: int, gamma: float, alpha: float) -> None:
        """`alpha` is the exponent of priorities; 0: every step has the same chance."""
        self.capacity, self.n, self.gamma, self.alpha = capacity, n, gamma, alpha
        self.written = 0  # steps in all, those that others have replaced by now included
        self._highest = int(UNIT)  # the priority of a step that was never learnt from
        self._rows: dict[str, NDArray[Any]] = {}
        leaves = 1 << max(capacity - 1, 1).bit_length()
        self._tree = np.zeros(2 * leaves if alpha else 2, np.int64)

    def __len__(self) -> int:
        return min(self.written, self.capacity)

    def add(self, steps: Transitions) -> None:
        """Remember steps in their order, in place of the oldest; more of them than fit leave their last."""
        self.remake(steps)
        if self.alpha:
            slots = np.arange(max(self.written - len(steps), self.written - self.capacity), self.written)
            set_priorities(self._tree, slots % self.capacity, np.full(len(slots), self._highest, np.int64))

    def remake(self, steps: Transitions) -> None:
        """Put steps in the places that `add` gave them; their priorities are known already."""
        targets = n_step(steps.rewards, steps.ends, self.n, self.gamma)
        following, allowed = following_rows(steps, targets.following)
        new = {
            "observations": steps.observations,
            "actions": steps.actions,
            "returns": targets.returns,
            "discounts": targets.discounts,
            "following": following,
            **({} if allowed is None else {"action_masks": allowed}),
        }
        if not self._rows:
            self._rows = {name: np.zeros((self.capacity, *rows.shape[1:]), rows.dtype) for name, rows in new.items()}
        skipped = max(len(steps) - self.capacity, 0)
        slots = (self.written + np.arange(skipped, len(steps))) % self.capacity
        for name, rows in new.items():
            self._rows[name][slots] = rows[skipped:]
        self.written += len(steps)

    def skip(self, count: int) -> None:
        """Count steps that others have replaced by now, where the memory is made again."""
        self.written += count

    def sample(self, key: int, batch: int) -> Sample:
        """Return steps drawn by the stream `key`."""
        slots = np.empty(batch, np.int64)
        if self.alpha:
            draw_slots(self._tree, np.uint64(key), slots)
            shares = self._tree[len(self._tree) // 2 + slots] / np.float64(self._tree[1])
        else:
            draw_evenly(len(self), np.uint64(key), slots)
            shares = np.full(batch, 1.0 / len(self))
        rows: dict[str, Any] = {"action_masks": None, **{name: values[slots] for name, values in self._rows.items()}}
        return Sample(slots=slots, shares=shares, **rows)

    def importance(self, shares: NDArray[np.float64], beta: float) -> NDArray[np.float32]:
        """Return (N share)^-beta, over the largest of them: what makes up for the unequal chances.  # [B]"""
        weights = (len(self) * shares) ** -beta
        return np.asarray(weights / weights.max(), np.float32)

    def surprised(self, slots: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """Give steps the priority |error|^alpha; of a step that was drawn twice the last error counts.  # both [B]"""
        if not self.alpha:
            return
        wanted = np.rint((np.abs(errors.astype(np.float64)) + SURPRISE) ** self.alpha * UNIT)
        values = np.clip(wanted, 1, LARGEST).astype(np.int64)
        set_priorities(self._tree, slots, values)
        self._highest = max(self._highest, int(values.max()))

    def forget(self) -> None:
        """Begin anew, with nothing remembered."""
        self.written, self._highest = 0, int(UNIT)
        self._tree[:] = 0

    def state(self) -> Arrays:
        """Return what cannot be made again from the steps: how many there were, and their priorities."""
        leaves = len(self._tree) // 2
        priorities = self._tree[leaves : leaves + len(self)] if self.alpha else self._tree[:0]
        return {
            "written": np.array([self.written, self._highest], np.int64),
            "priorities": priorities.astype(np.uint32),
        }

    def restore(self, state: Arrays) -> None:
        """Take up what `state` returned, of a memory like this; the steps themselves come by `skip` and `remake`."""
        self.written, self._highest = (int(number) for number in state["written"])
        self._tree[:] = 0
        priorities = state["priorities"].astype(np.int64)
        if self.alpha and len(priorities) == len(self):
            set_priorities(self._tree, np.arange(len(priorities)), priorities)
