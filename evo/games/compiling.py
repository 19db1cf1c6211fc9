"""Make a compiled game of functions in plain Python.

Author's functions, and all functions in Python that they call, are compiled by Numba from copies whose global names
mean compiled functions. So the functions themselves stay plain, and are their own reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum, EnumType
from functools import partial
from inspect import getsource
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.compiled.views import flat_of
from evo.games import primitives
from evo.games.contract import LEAN, CompiledGame, batch_of, register
from evo.games.declaration import Declaration, GameOptions
from evo.games.faults import names_in
from evo.games.primitives import zeros_of
from evo.plugins.mistakes import OURS
from evo.randomness.philox_compiled import draw

kernel_cache.use(__name__)

GAME, NUMBERED = np.int64(primitives.GAME), np.int64(primitives.NUMBERED)  # typed: literals would be compiled for


@njit(**LEAN)
def _below(random, n):  # type: ignore[no-untyped-def]
    clock, b = random.clock, random.b
    number = draw(clock.seed[b], clock.drawn[b], n, GAME)
    clock.drawn[b] += 1
    return number


@njit(**LEAN)
def _draw_number(random, number, n):  # type: ignore[no-untyped-def]
    return draw(random.clock.seed[random.b], np.int64(number), np.int64(n), NUMBERED)


PRIMITIVES: dict[Any, Any] = {
    primitives.below: _below, primitives.draw_number: _draw_number, primitives.flat: flat_of,
}  # fmt: skip


class Compiler:
    """Compiles functions in plain Python, each of them once."""

    def __init__(self) -> None:
        self._done = dict(PRIMITIVES)
        self.draws_in_order = False  # whether any of them calls `below`

    def compiled(self, function: Callable[..., Any]) -> Any:
        """Return a function and all that it calls, compiled by Numba when it is first called."""
        self.draws_in_order |= function is primitives.below
        if function not in self._done:
            cells = tuple(CellType(self._value(cell.cell_contents)) for cell in function.__closure__ or ())
            copy = FunctionType(
                function.__code__, dict(function.__globals__), function.__name__, function.__defaults__, cells
            )
            copy.__module__, copy.__kwdefaults__ = function.__module__, function.__kwdefaults__
            self._done[function] = njit(**LEAN)(copy)
            names = names_in(function.__code__)
            for name in names & function.__globals__.keys():
                copy.__globals__[name] = self._value(function.__globals__[name])
                if isinstance(copy.__globals__[name], ModuleType):
                    self._note(copy.__globals__[name], names)
        return self._done[function]

    def _value(self, value: Any) -> Any:
        """Return what a name means in compiled code."""
        value = getattr(value, "py_func", value)  # of an author's own njit
        return self.compiled(value) if isinstance(value, FunctionType) else value

    def _note(self, module: ModuleType, names: Set[str]) -> None:
        """Take an author's own njit functions of these names in a module for some that are called."""
        found = (getattr(vars(module).get(name), "py_func", None) for name in names)
        for function in found:
            if isinstance(function, FunctionType) and _is_authors(function):
                self.compiled(function)

    def functions(self) -> list[Callable[..., Any]]:
        """Return all functions that were compiled."""
        return [*self._done]

    def modules(self) -> set[str]:
        """Return the modules of all functions that were compiled."""
        return {function.__module__ for function in self._done}

    def data(self) -> list[str]:
        """Return the numbers, texts and arrays that an author's functions read, and which functions they call.

        Compiled code holds their values. These may be of a file that a game reads when it is imported, or be chosen
        there, so sources do not tell them.
        """
        found = set()
        for function in filter(_is_authors, self._done):
            names, cells = names_in(function.__code__), [cell.cell_contents for cell in function.__closure__ or ()]
            read = {name: function.__globals__.get(name) for name in names}
            read |= dict(zip(function.__code__.co_freevars, cells, strict=True))
            known = {name: _data(value, names) for name, value in read.items()}
            known["()"] = _data((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()), names)
            found.add(_data(function, names))
            found |= {f"{_data(function, names)} {name} {value}" for name, value in known.items() if value}
        return sorted(found)


def _is_authors(function: FunctionType) -> bool:
    return function.__module__.partition(".")[0] not in {*OURS, "numpy", "numba"}


def _digest_of(function: FunctionType) -> str:
    try:
        return hashlib.sha256(getsource(function).encode()).hexdigest()[:16]
    except OSError:  # of no file
        return ""


def _data(value: Any, names: Set[str], within: tuple[Any, ...] = ()) -> str:
    """Return what compiled code holds of a value, of a module that of these names in it; nothing of other things.

    A function is known by its text, of several in a line by its place, and of several of a text by what they enclose:
    sources do not tell which one was chosen. `within` are those that enclose this one.
    """
    value = getattr(value, "py_func", value)
    if isinstance(value, FunctionType):
        if value in within or not _is_authors(value):
            return ""
        cells = [_data(cell.cell_contents, names, (*within, value)) for cell in value.__closure__ or ()]
        places = [one[::2] for one in value.__code__.co_positions() if None not in one]  # none: -X no_debug_ranges
        column = max(places, default=(0, 0))[1] if value.__name__ == "<lambda>" else 0
        return f"{value.__qualname__} {_digest_of(value)} {column} {cells}"
    if isinstance(value, ModuleType):
        found = {name: _data(vars(value).get(name), names - {name}) for name in sorted(names)}
        return str({name: one for name, one in found.items() if one} or "")
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple | list | EnumType):
        return str([_data(one, names) for one in value] or "")
    return repr(value) if isinstance(value, int | float | complex | str | bytes | np.generic | Enum) else ""


def _clipped(step: Any, low: float, high: float) -> Any:
    """Return an author's step to which the numbers of a continuous action come within these bounds."""

    @njit(**LEAN)
    def clipped(state, options, b, action, random):  # type: ignore[no-untyped-def]
        for d in range(action.shape[0]):
            action[d] = min(max(action[d], low), high)
        return step(state, options, b, action, random)

    return clipped


def _cleared(observe: Any) -> Any:
    @njit(**LEAN)
    def cleared(state, options, b, out):  # type: ignore[no-untyped-def]
        out[...] = 0.0
        observe(state, options, b, out)

    return cleared


@njit(**LEAN)
def _empty_cell(state, options, b, lane, out):  # type: ignore[no-untyped-def]
    values, lanes = flat_of(out), out.shape[out.ndim - 1]
    for channel in range(out.shape[out.ndim - 2]):
        values[channel * lanes + lane] = np.float32(0)


def _drawn(observe: Any) -> Any:
    @njit(**LEAN)
    def draw(state, options, b, lane, out):  # type: ignore[no-untyped-def]
        observe(state, options, b, out[..., lane])

    return draw


def _each_lane(observe: Any) -> Any:
    @njit(**LEAN)
    def observe_lanes(state, options, index, out):  # type: ignore[no-untyped-def]
        values = flat_of(out)
        for i in range(values.shape[0]):  # at once: a single lane's zeros would lie one in each line of the cache
            values[i] = 0.0
        for lane in range(index.shape[0]):
            observe(state, options, index[lane], out[..., lane])

    return observe_lanes


def _savers(compiler: Compiler, author_saves: Any, author_loads: Any) -> dict[str, Any]:
    """Return `save` and `load` of the contract: the author's bytes, then steps, seed, and draws if there are any."""
    in_order = compiler.draws_in_order
    put, get, get_signed = [compiler.compiled(one) for one in (primitives.put, primitives.get, primitives.get_signed)]

    @njit(**LEAN)
    def save(playing, options, b, row):  # type: ignore[no-untyped-def]
        clock, at = playing.clock, row.shape[0] - (20 if in_order else 12)
        author_saves(playing.state, options, b, row[:at])
        at = put(row, at, clock.steps[b], 4)
        at = put(row, at, np.int64(clock.seed[b]), 8)
        if in_order:
            put(row, at, clock.drawn[b], 8)

    @njit(**LEAN)
    def load(playing, options, b, row):  # type: ignore[no-untyped-def]
        clock, at = playing.clock, row.shape[0] - (20 if in_order else 12)
        if not author_loads(playing.state, options, b, row[:at]):
            return False
        clock.steps[b] = get_signed(row, at, 4)
        clock.seed[b] = np.uint64(get(row, at + 4, 8))
        clock.drawn[b] = get(row, at + 12, 8) if in_order else np.int64(0)
        return True

    return {"save": save, "load": load}


def _or_else(function: Any, number: int, others: Any) -> Any:
    """Return a function of the contract that plays one baseline by its number, and others by theirs."""

    @njit(**LEAN)
    def choose(state, options, b, which, random):  # type: ignore[no-untyped-def]
        if which == number:
            return np.int64(function(state, options, b, state.seats_turn[b], random))
        return others(state, options, b, which, random)

    return choose


@njit(**LEAN)
def _no_baseline(state, options, b, which, random):  # type: ignore[no-untyped-def]
    return np.int64(0)


def adapt(state_type: type, definition: Declaration, baselines: Sequence[Any] = ()) -> int:
    """Have rollouts play a game with this type of state; return the bytes of a snapshot that are the clock's.

    TypeError where another game has the same type of state.
    """
    functions, bounds = definition.functions, (definition.action_low, definition.action_high)
    declared = functions, bounds if definition.continuous else None, definition.zeroed, tuple(baselines)
    if state_type in _adapted:
        known, clock_bytes = _adapted[state_type]
        if known != declared:
            raise TypeError(f"two games have the state {state_type.__module__}.{state_type.__qualname__}")
        return clock_bytes
    compiler = Compiler()
    made = {name: compiler.compiled(one) for name, one in functions.items()}
    if definition.players > 1:
        made["baseline"] = _no_baseline
        for number, function in enumerate(baselines):
            made["baseline"] = _or_else(compiler.compiled(function), number, made["baseline"])
    clock_bytes = 20 if compiler.draws_in_order else 12
    _adapted[state_type] = declared, clock_bytes
    if definition.continuous:
        made["step"] = _clipped(made["step"], *map(float, bounds))
    made.setdefault("observe_lanes", _each_lane(made["observe"]))
    made.setdefault("cell", _empty_cell)
    made.setdefault("draw", _drawn(made["observe"]))
    if definition.zeroed:
        made["observe"] = _cleared(made["observe"])
    if "save" in made:
        made |= _savers(compiler, made["save"], made["load"])
    data = [*compiler.data(), *(map(str, bounds) if definition.continuous else ())]
    register(state_type, {state_type.__module__, *compiler.modules()}, made, data)
    return clock_bytes


_adapted: dict[type, tuple[Any, int]] = {}


def sources_of(definition: Declaration, options: GameOptions) -> str:
    """Return a hash of the files of a game's functions and of all that they call or read, less `render`.

    What it declares of its state, its actions and its observations is part of it: that may come from another file.
    """
    compiler, render = Compiler(), definition.render
    baselines = definition.baselines_of(options) if definition.players > 1 else {}
    functions = definition.functions | dict(baselines)
    for function in functions.values():
        compiler.compiled(function)  # nothing is compiled before the first call
    uncompiled = isinstance(render, FunctionType) and render not in compiler.functions()
    less = render if uncompiled else None
    depending = definition.shape, definition.actions, definition.masked, definition.snapshot_size
    shape, actions, masked, size = (definition.of(one, options) for one in depending)
    arrays = [(array.dtype.str, array.shape) for array in zeros_of(definition.state_of(options), 1)]
    bounds = (definition.action_low, definition.action_high) if definition.continuous else ()
    declared = [*functions, shape, actions, arrays, masked, size, bounds, definition.episode_metrics, definition.zeroed]
    return kernel_cache.sources_of(compiler.modules(), [*compiler.data(), *map(str, declared)], but="evo", less=less)


def compiled_game(definition: Declaration, options: GameOptions) -> CompiledGame:
    """Return a game with its options, compiled when it is first played."""
    example = definition.state_of(options)
    baselines = [*definition.baselines_of(options).values()] if definition.players > 1 else []
    clock_bytes = adapt(type(example), definition, baselines)
    return CompiledGame(
        make_state=partial(batch_of, example),
        rules=rules_of(options.numbers),
        shape=definition.of(definition.shape, options),
        actions=definition.of(definition.actions, options),
        episode_metrics=definition.episode_metrics,
        masked=definition.masks_actions(options),
        continuous=definition.continuous,
        players=definition.players,
        opponents=definition.opponents_of(options),
        epsilon=options.opponents.epsilon,
        snapshot_size=0 if definition.save is None else definition.of(definition.snapshot_size, options) + clock_bytes,
        made_by=(compiled_game, definition, options),
    )


def rules_of(values: Mapping[str, float]) -> Any:
    """Return options as the record of whole (also 0 or 1) and other numbers that compiled functions are given."""
    kinds = {name: np.float64 if isinstance(value, float) else np.int64 for name, value in values.items()}
    record = np.zeros(1, np.dtype(list(kinds.items())))
    for name, value in values.items():
        record[0][name] = value
    return record[0]
