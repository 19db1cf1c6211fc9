"""The contract of a compiled game: the functions that rollouts call, the same for every game.

A game's state is a NamedTuple of arrays whose first axis is the environment; its rules are a
NamedTuple or a NumPy record of numbers.
A game calls `register` once, with compiled functions that implement the generic ones below. Numba chooses among them by
the type of the state when it compiles a rollout, which is as fast as direct calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.core.typing.templates import AbstractTemplate, infer_global
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.views import copy_from_row, copy_to_row
from evo.records import GOES_ON, TERMINATED, TRUNCATED, EnvStates

kernel_cache.use(__name__)

__all__ = ["GOES_ON", "TERMINATED", "TRUNCATED"]  # for games: the status of an environment after a step


class Playing(NamedTuple):
    """The state of a game in plain Python: its own state, and the clock that counts its steps for the trainer."""

    state: Any  # a NamedTuple of arrays [B, ...], by whose type the functions are chosen
    clock: Any  # another one, of the trainer


def begin(state: Any, rules: Any, b: int, seed: int) -> None:
    """Begin the episode of `seed`, uint64, in environment b."""


def step(state: Any, rules: Any, b: int, action: Any) -> tuple[int, int]:
    """Play one action; return (reward in thousandths, GOES_ON | TERMINATED | TRUNCATED), both int64.

    An action is an int64, or float64 [A], which may be written to, where actions are continuous.
    """
    raise NotImplementedError


def steps(state: Any, rules: Any, b: int) -> int:
    """Return how many steps of its episode environment b has played, int64."""
    raise NotImplementedError


def observe(state: Any, rules: Any, b: int, out: NDArray[np.float32]) -> None:
    """Write every value of what environment b shows.  # out [*shape], not always in C order"""


def observe_lanes(state: Any, rules: Any, index: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """Write what environment index[l] shows to lane l, for every lane.  # out [*shape, L] in C order"""


def mask(state: Any, rules: Any, b: int, out: NDArray[np.int8]) -> None:
    """Write 1 for every action that is allowed, else 0; at least one is.  # out [A]"""


def metrics(state: Any, rules: Any, b: int, out: NDArray[np.int32]) -> None:
    """Write the metrics of the episode that has ended in environment b.  # out [M]"""


def save(state: Any, rules: Any, b: int, row: NDArray[np.uint8]) -> None:
    """Write an exact copy of environment b, its snapshot; equal positions have equal bytes.  # row [S]"""


def load(state: Any, rules: Any, b: int, row: NDArray[np.uint8]) -> bool:
    """Set environment b to what `save` wrote; return whether it can be: a snapshot may be of a damaged file."""
    raise NotImplementedError


def register(state: type, modules: Iterable[str] = (), **functions: Callable[..., Any]) -> None:
    """Have the generic functions of these names mean `functions`, compiled by Numba, where a state is of this type.

    Machine code is compiled again where the sources of the game change: the packages of `functions`, and `modules`.
    Where `state` is inside of a Playing, the functions are given the whole of it. A game has
    `begin`, `step`, `steps` and `observe`; `observe_lanes`, `mask`, `metrics`, and `save` with `load` are derived where
    they are not given. TypeError names what is missing, or is no function of a game.
    """
    missing, unknown = REQUIRED - set(functions), set(functions) - set(GENERIC)
    if missing or unknown:
        raise TypeError(f"a compiled game has {', '.join(sorted(missing | unknown))}, which it must not lack or have")
    packages = {name.partition(".")[0] for name in (state.__module__, *map(_module, functions.values()))}
    kernel_cache.depend(state, modules or packages)
    if state not in _games:
        _name_apart(state)
    _games[state] = {**DERIVED, **functions}


def _name_apart(state: type) -> None:
    """Give a state's type a name that no other game's has.

    Numba tells named tuples apart by their names and fields alone when it looks for machine code, so of two games whose
    states have the same, it would play the first in place of the second.
    """
    name = f"{state.__module__}.{state.__qualname__}"
    earlier = sum(known.__name__.partition(" ")[0] == name for known in _games)  # a module that was loaded again
    state.__name__ = f"{name} {earlier}" if earlier else name


def _module(function: Any) -> str:
    return str(function.py_func.__module__)


def _functions_of(state: Any) -> dict[str, Any] | None:
    """Return the functions of the game that has such a state, by the names of the generic ones."""
    if isinstance(state, types.BaseNamedTuple) and state.instance_class is Playing:
        state = next(iter(state))
    return _games.get(state.instance_class) if isinstance(state, types.BaseNamedTuple) else None


class _Choice(AbstractTemplate):  # type: ignore[misc]
    """Has Numba call the function of a game where the generic one is called, as if its name stood there."""

    def generic(self, arguments: Any, keywords: Any) -> Any:
        functions = _functions_of(arguments[0])
        if functions is None:
            return None
        return types.Dispatcher(functions[self.key.__name__]).get_call_type(self.context, arguments, keywords)

    def get_impl_key(self, signature: Any) -> Any:
        functions = _functions_of(signature.args[0])
        assert functions is not None
        return types.Dispatcher(functions[self.key.__name__]).get_impl_key(signature)


@njit(error_model="numpy", _nrt=False)
def _observe_each(state, rules, index, out):  # type: ignore[no-untyped-def]
    for lane in range(index.shape[0]):
        observe(state, rules, index[lane], out[..., lane])


@njit(error_model="numpy", _nrt=False)
def _allow_all(state, rules, b, out):  # type: ignore[no-untyped-def]
    out[:] = 1


@njit(error_model="numpy", _nrt=False)
def _measure_nothing(state, rules, b, out):  # type: ignore[no-untyped-def]
    pass


@njit(error_model="numpy", _nrt=False)
def _save_arrays(state, rules, b, row):  # type: ignore[no-untyped-def]
    copy_to_row(state, b, row)


@njit(error_model="numpy", _nrt=False)
def _load_arrays(state, rules, b, row):  # type: ignore[no-untyped-def]
    copy_from_row(state, b, row)
    return True


GENERIC = {
    function.__name__: function for function in (begin, step, steps, observe, observe_lanes, mask, metrics, save, load)
}
for _generic in GENERIC.values():
    infer_global(_generic)(_Choice)
_games: dict[type, dict[str, Any]] = {}  # the functions of every game that is registered, by the type of its state

REQUIRED = {"begin", "step", "steps", "observe"}
DERIVED: dict[str, Any] = {
    "observe_lanes": _observe_each, "mask": _allow_all, "metrics": _measure_nothing, "save": _save_arrays,
    "load": _load_arrays,
}  # fmt: skip


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, no_cfunc_wrapper=True)
def _begin_many(state, rules, seeds):  # type: ignore[no-untyped-def]
    for b in range(seeds.shape[0]):
        begin(state, rules, b, seeds[b])


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, no_cfunc_wrapper=True)
def _save_many(state, rules, out):  # type: ignore[no-untyped-def]
    for b in range(out.shape[0]):
        save(state, rules, b, out[b])


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, no_cfunc_wrapper=True)
def _load_many(state, rules, rows):  # type: ignore[no-untyped-def]
    for b in range(rows.shape[0]):
        if not load(state, rules, b, rows[b]):
            return b
    return rows.shape[0]


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, no_cfunc_wrapper=True)
def _observe_saved(state, rules, snapshots, rows, out):  # type: ignore[no-untyped-def]
    for k in range(rows.shape[0]):
        if not load(state, rules, 0, snapshots[rows[k]]):
            return rows[k]
        observe(state, rules, 0, out[k])
    return snapshots.shape[0]


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, no_cfunc_wrapper=True)
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
    snapshot_size: int = 0  # bytes, of a game with a `save` of its own; 0: as many as the arrays have

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
        """Return what environments showed when they were saved, in `out` if given.  # [M, S] -> [M, *shape]

        ValueError where a snapshot is of no such game.
        """
        if out is None:
            out = np.empty((len(snapshots), *self.shape), np.float32)
        self.check(snapshots)
        self.observe_rows(self.make_state(1), snapshots, np.arange(len(snapshots), dtype=np.int32), out)
        return out

    def observe_rows(
        self, scratch: Any, snapshots: NDArray[np.uint8], rows: NDArray[np.int32], out: NDArray[np.float32]
    ) -> None:
        """Write what the environments of some rows showed when they were saved.  # [M, S], [B] -> [B, *shape]

        The snapshots passed `check`; `scratch` is a state of one environment. ValueError where one is no such position.
        """
        self._check_loaded(_observe_saved(scratch, self.rules, snapshots, rows, out), len(snapshots))

    def check(self, snapshots: NDArray[np.uint8]) -> None:
        """Raise ValueError where snapshots have another size than this game's, which compiled code would not notice."""
        if snapshots.ndim != 2 or snapshots.shape[1] != self.row_size:
            raise ValueError(f"snapshots of shape {snapshots.shape} are not {self.row_size} bytes each")

    def _check_loaded(self, loaded: int, count: int) -> None:
        """Raise ValueError where not all of `count` snapshots were loaded, but one was refused."""
        if loaded < count:
            raise ValueError(f"snapshot {loaded} is no position of this game with {self.rules}")
