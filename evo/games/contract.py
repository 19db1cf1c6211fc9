"""What rollouts call of a compiled game, the same for every game: the author's functions, and the trainer's clock.

A game's state is a NamedTuple of arrays whose first axis is the environment; its rules are a NumPy record of numbers.
Numba chooses the author's functions by the type of the state when it compiles a rollout, as fast as direct calls. What
stands around them is inlined before anything is compiled, so that it costs no compilation of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.core.typing.templates import AbstractTemplate, infer_global
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.views import clear_row, copy_from_row, copy_to_row
from evo.errors import ConfigurationError
from evo.games.faults import broken_match, no_allowed_action, note_observation, note_return, unknown_end
from evo.games.primitives import Random, clock_of, zeros_of
from evo.records import GOES_ON, LARGEST_RETURN, LARGEST_REWARD, TERMINATED, TRUNCATED, EnvStates

kernel_cache.use(__name__)

# In place of a reward; whatever is added in an episode, the return is beyond LARGEST_RETURN, and tells them apart.
LOST, NO_END = np.int64(-(1 << 62)), np.int64(-(3 << 61))


class Playing(NamedTuple):
    """Environments of a game: the author's state, by whose type the functions are chosen, and the trainer's clock."""

    state: Any  # a NamedTuple of arrays [B, ...]
    clock: Any  # an EpisodeClock


def batch_of(state: Any, count: int) -> Playing:
    """Return the arrays of `count` environments, each with the shape and type that it has in `state` of one."""
    return Playing(type(state)(*zeros_of(state, count)), clock_of(count))


def register(state: type, modules: Iterable[str], functions: dict[str, Any], data: Sequence[str] = ()) -> None:
    """Have these compiled functions, of `modules`, which hold this `data`, played where a state is of this type."""
    kernel_cache.depend(state, modules, data)
    # Numba tells named tuples apart by their names and fields alone when it looks for machine code, so of two games
    # whose states have the same, it would play the first in place of the second.
    name = f"{state.__module__}.{state.__qualname__}"
    earlier = sum(known.__name__.partition(" ")[0] == name for known in _games)  # a module that was loaded again
    state.__name__ = f"{name} {earlier}" if earlier else name
    _games[state] = {**DERIVED, **functions}


def functions_of(playing: Playing) -> dict[str, Any]:
    """Return the compiled functions of a game by the state of its environments."""
    return _games[type(playing.state)]


class _Choice(AbstractTemplate):  # type: ignore[misc]
    """Has Numba call the function of a game where the generic one is called, as if its name stood there."""

    def generic(self, arguments: Any, keywords: Any) -> Any:
        return self._of_game(arguments[0]).get_call_type(self.context, arguments, keywords)

    def get_impl_key(self, signature: Any) -> Any:
        return self._of_game(signature.args[0]).get_impl_key(signature)

    def _of_game(self, state: Any) -> Any:
        """Return the type of the function for a state of this type of Numba's, alone or in a Playing."""
        if state.instance_class is Playing:
            state = next(iter(state))
        return types.Dispatcher(_games[state.instance_class][self.key.__name__.lstrip("_")])


def _begin(*arguments: Any) -> Any: ...
def _step(*arguments: Any) -> Any: ...
def _observe(*arguments: Any) -> Any: ...
def _observe_lanes(*arguments: Any) -> Any: ...
def _mask(*arguments: Any) -> Any: ...
def _metrics(*arguments: Any) -> Any: ...
def _baseline(*arguments: Any) -> Any: ...


def save(playing: Any, rules: Any, b: int, row: NDArray[np.uint8]) -> None:
    """Write an exact copy of environment b, its snapshot; equal positions have equal bytes.  # row [S]"""


def load(playing: Any, rules: Any, b: int, row: NDArray[np.uint8]) -> Any:
    """Set environment b to what `save` wrote; return whether it can be: a snapshot may be of a damaged file."""


for _generic in (_begin, _step, _observe, _observe_lanes, _mask, _metrics, _baseline, save, load):
    infer_global(_generic)(_Choice)


@njit(inline="always")
def begin(playing, rules, b, seed):  # type: ignore[no-untyped-def]
    """Begin the episode of `seed`, uint64, in environment b."""
    clear_row(playing, b)
    playing.clock.seed[b] = seed
    _begin(playing.state, rules, b, Random(playing.clock, b))


@njit(inline="always")
def step(playing, rules, b, action):  # type: ignore[no-untyped-def]
    """Play one action; return (reward in thousandths, GOES_ON | TERMINATED | TRUNCATED), both int64.

    An action is an int64, or float64 [A], which may be written to, where actions are continuous. A reward that is not
    finite, or beyond LARGEST_REWARD, is LOST, and that of an end that is none of these is NO_END.
    """
    clock = playing.clock
    reward, ended = _step(playing.state, rules, b, action, Random(clock, b))
    clock.steps[b] += 1
    status = np.int64(ended)
    if status == GOES_ON and 0 < rules.max_steps <= clock.steps[b]:
        status = np.int64(TRUNCATED)
    thousandths = np.rint(reward * 1000.0)
    if not GOES_ON <= status <= TRUNCATED:
        return NO_END, np.int64(TERMINATED)
    if not abs(thousandths) <= LARGEST_REWARD:  # also where it is NaN
        return LOST, np.int64(TERMINATED)
    return np.int64(thousandths), status


@njit(inline="always")
def observe(playing, rules, b, out):  # type: ignore[no-untyped-def]
    """Write every value of what environment b shows.  # out [*shape], not always in C order"""
    _observe(playing.state, rules, b, out)


@njit(inline="always")
def observe_lanes(playing, rules, index, out):  # type: ignore[no-untyped-def]
    """Write what environment index[l] shows to lane l, for every lane.  # out [*shape, L] in C order"""
    _observe_lanes(playing.state, rules, index, out)


@njit(inline="always")
def mask(playing, rules, b, out):  # type: ignore[no-untyped-def]
    """Write 1 for every action that is allowed, else 0.  # out int8 [A]"""
    _mask(playing.state, rules, b, out)


@njit(inline="always")
def metrics(playing, rules, b, out):  # type: ignore[no-untyped-def]
    """Write the metrics of the episode that has ended in environment b.  # out int64 [M]"""
    _metrics(playing.state, rules, b, out)


@njit(inline="always")
def baseline(playing, rules, b, number, luck):  # type: ignore[no-untyped-def]
    """Return the action of a baseline for the player that is on turn; it draws by the clock `luck`."""
    return _baseline(playing.state, rules, b, number, Random(luck, b))


# Inlined by LLVM, since a call copies the shapes and strides of every array of the state; never called by Python.
LEAN: Any = {
    "error_model": "numpy", "_nrt": False, "forceinline": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": True,
}  # fmt: skip


@njit(**LEAN)
def _allow_all(state, rules, b, out):  # type: ignore[no-untyped-def]
    out[:] = 1


@njit(**LEAN)
def _measure_nothing(state, rules, b, out):  # type: ignore[no-untyped-def]
    pass


@njit(**LEAN)
def _save_arrays(playing, rules, b, row):  # type: ignore[no-untyped-def]
    copy_to_row(playing, b, row)


@njit(**LEAN)
def _load_arrays(playing, rules, b, row):  # type: ignore[no-untyped-def]
    copy_from_row(playing, b, row)
    return True


DERIVED = {"mask": _allow_all, "metrics": _measure_nothing, "save": _save_arrays, "load": _load_arrays}
_games: dict[type, dict[str, Any]] = {}  # the functions of every game that is registered, by the type of its state


@kernel_cache.with_game
def _begin_many(state, rules, seeds):  # type: ignore[no-untyped-def]
    for b in range(seeds.shape[0]):
        begin(state, rules, b, seeds[b])


@kernel_cache.with_game
def _save_many(state, rules, out):  # type: ignore[no-untyped-def]
    for b in range(out.shape[0]):
        save(state, rules, b, out[b])


@kernel_cache.with_game
def _load_many(state, rules, rows):  # type: ignore[no-untyped-def]
    for b in range(rows.shape[0]):
        if not load(state, rules, b, rows[b]):
            return b
    return rows.shape[0]


@kernel_cache.with_game
def _observe_saved(state, rules, snapshots, rows, out):  # type: ignore[no-untyped-def]
    for k in range(rows.shape[0]):
        if not load(state, rules, 0, snapshots[rows[k]]):
            return rows[k]
        observe(state, rules, 0, out[k])
    return snapshots.shape[0]


@kernel_cache.with_game
def observe_many(state, rules, out):  # type: ignore[no-untyped-def]
    """Write what every environment shows.  # out float32 [B, *shape] in C order"""
    for b in range(out.shape[0]):
        observe(state, rules, b, out[b])


def arrays_of(state: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays of a state, also those of NamedTuples inside of it."""
    for part in state:
        if isinstance(part, tuple):
            yield from arrays_of(part)
        else:
            yield part


@dataclass(frozen=True)
class CompiledGame:
    """A game with its options, whose functions are registered for the type of its state."""

    make_state: Callable[[int], Any]  # the state of a number of environments
    rules: Any  # what the game's functions take besides the state
    shape: tuple[int, ...]  # of an observation
    actions: int
    episode_metrics: tuple[str, ...] = ()
    masked: bool = False  # whether actions may be ruled out
    continuous: bool = False  # whether an action is `actions` numbers, float64 [A], not one of `actions` choices
    players: int = 1
    opponents: tuple[int, ...] = ()  # an episode draws one for the other seats: -1 at random, -2 - n baseline n
    epsilon: float = 0.0  # share of random actions of networks that play the other seats
    snapshot_size: int = 0  # bytes, of a game with a `save` of its own; 0: as many as the arrays have
    made_by: tuple[Any, ...] = ()  # a function and its arguments that make it, also in another process

    def __reduce__(self) -> Any:
        return self.made_by[0], self.made_by[1:]

    @cached_property
    def row_size(self) -> int:
        """Return how many bytes a snapshot has."""
        return self.snapshot_size or sum(array.nbytes for array in arrays_of(self.make_state(1)))

    def action_buffer(self) -> NDArray[np.float64] | None:
        """Return a buffer for one continuous action; None where actions are choices."""
        return np.zeros(self.actions) if self.continuous else None

    def begin(self, first: NDArray[np.uint64]) -> EnvStates:
        """Return environments at the beginning of their first episodes, whose seeds are `first` [L]."""
        state, seeds = self.make_state(len(first)), np.asarray(first, np.uint64)
        _begin_many(state, self.rules, seeds)
        zeros = np.zeros(len(first), np.int64)
        return EnvStates(self.snapshots(state), seeds, zeros, zeros.copy())

    def snapshots(self, state: Any) -> NDArray[np.uint8]:
        """Return the snapshots of all environments.  # [B, S]"""
        rows = np.empty((len(next(arrays_of(state))), self.row_size), np.uint8)
        _save_many(state, self.rules, rows)
        return rows

    def restored(self, snapshots: NDArray[np.uint8]) -> Any:
        """Return the state of environments as they were saved; ValueError where a snapshot is of no such game."""
        self.check(snapshots)
        state = self.make_state(len(snapshots))
        self._check_loaded(_load_many(state, self.rules, np.ascontiguousarray(snapshots)), len(snapshots))
        return state

    def observe(self, snapshots: NDArray[np.uint8], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return what environments showed when they were saved; ValueError: no such game.  # [M, S] -> [M, *shape]"""
        if out is None:
            out = np.empty((len(snapshots), *self.shape), np.float32)
        self.check(snapshots)
        self.observe_rows(self.make_state(1), snapshots, np.arange(len(snapshots), dtype=np.int32), out)
        return out

    def observe_rows(
        self, scratch: Any, snapshots: NDArray[np.uint8], rows: NDArray[np.int32], out: NDArray[np.float32]
    ) -> None:
        """Write what rows of checked snapshots showed, by a `scratch` state; ValueError: one is no such snapshot.

        Shapes: [M, S], [B] -> [B, *shape].
        """
        self._check_loaded(_observe_saved(scratch, self.rules, snapshots, rows, out), len(snapshots))

    def check(self, snapshots: NDArray[np.uint8]) -> None:
        """Raise ValueError where snapshots have another size than this game's, which compiled code would not notice."""
        if snapshots.ndim != 2 or snapshots.shape[1] != self.row_size:
            raise ValueError(f"snapshots of shape {snapshots.shape} are not {self.row_size} bytes each")

    def check_allowed(self, playing: Playing, allowed: NDArray[np.int8], b: int) -> None:
        """Raise ConfigurationError where environment b, unless it is -1, has no action that is `allowed` [A].

        Where what it shows is not finite, a note says so.
        """
        if b < 0:
            return
        where = type(playing.state).__module__, int(playing.clock.seed[b]), int(playing.clock.steps[b])
        if not allowed.any():
            raise no_allowed_action(*where)
        note_observation(*where, lambda: self.observe(self.snapshots(playing)[b : b + 1])[0])

    def check_returns(self, seeds: NDArray[np.uint64], returns: NDArray[np.int64], lengths: NDArray[np.int32]) -> None:
        """Have a note name an episode that has ended without a return, if one has; ConfigurationError: no known end.

        Shapes: [E] each; lengths are 0 of episodes that have not ended.
        """
        module, over = type(self.make_state(1).state).__module__, lengths > 0
        for e in np.flatnonzero(over & (returns < LOST // 2 + NO_END // 2))[:1]:
            raise unknown_end(module, int(seeds[e]), int(lengths[e]))
        for e in np.flatnonzero(over & (np.abs(returns) > LARGEST_RETURN))[:1]:
            note_return(module, int(seeds[e]), int(lengths[e]), bool(returns[e] < LOST // 2))

    def broken_match(self, playing: Playing, b: int, baseline: int | None) -> ConfigurationError:
        """Return the error that in environment b nobody is on turn, or a baseline, by its number, may not move so."""
        clock = playing.clock
        module, seed, steps = type(playing.state).__module__, int(clock.seed[b]), int(clock.steps[b])
        return broken_match(module, seed, steps, baseline, self.actions)

    def _check_loaded(self, loaded: int, count: int) -> None:
        """Raise ValueError where not all of `count` snapshots were loaded, but one was refused."""
        if loaded < count:
            raise ValueError(f"snapshot {loaded} is no position of this game with {self.rules}")
