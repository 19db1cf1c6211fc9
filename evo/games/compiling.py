"""Makes a compiled game of functions in plain Python: the contract's functions, around those of the author.

Author's functions, and all functions in Python that they call, are compiled by Numba from copies whose global names
mean compiled functions. So the functions themselves stay plain, and are their own reference.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.compiled.views import clear_row, flat_of
from evo.games import drawing
from evo.games.contract import Playing, register
from evo.games.drawing import Random
from evo.randomness.philox_compiled import draw
from evo.records import GOES_ON, LARGEST_REWARD, TERMINATED, TRUNCATED

kernel_cache.use(__name__)

# Inlined, since a call copies the shapes and strides of every array of the state.
LEAN: Any = {"error_model": "numpy", "_nrt": False, "forceinline": True, "no_cfunc_wrapper": True}
GAME = np.int64(drawing.GAME)
RANDOM = ("random", "numpy.random")  # modules whose numbers no seed of an episode names
LOST = np.int64(-(1 << 62))  # whatever is added to it in an episode, the return is beyond LARGEST_RETURN


@njit(**LEAN)
def _below(random, n):  # type: ignore[no-untyped-def]
    clock, b = random.clock, random.b
    number = draw(clock.seed[b], clock.drawn[b], n, GAME)
    clock.drawn[b] += 1
    return number


class Compiler:
    """Compiles functions in plain Python, each of them once."""

    def __init__(self) -> None:
        self._done: dict[Any, Any] = {drawing.below: _below}

    def compiled(self, function: Callable[..., Any]) -> Any:
        """Return a function and all that it calls, compiled by Numba when it is first called."""
        if function not in self._done:
            copy = FunctionType(function.__code__, dict(function.__globals__), function.__name__, function.__defaults__)
            copy.__module__, copy.__kwdefaults__ = function.__module__, function.__kwdefaults__
            self._done[function] = njit(**LEAN)(copy)
            for name in names_in(function.__code__):
                value = function.__globals__.get(name)
                if isinstance(value, FunctionType):
                    copy.__globals__[name] = self.compiled(value)
        return self._done[function]

    def functions(self) -> list[Callable[..., Any]]:
        """Return all functions that were compiled."""
        return [*self._done]

    def modules(self) -> set[str]:
        """Return the modules of all functions that were compiled."""
        return {function.__module__ for function in self._done}


def names_in(code: CodeType) -> set[str]:
    """Return the global names that code mentions, with those of functions inside of it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(names_in, inner))


def random_elsewhere(functions: Functions) -> str:
    """Return what gives other random numbers than those of an episode, and where a game uses it; else nothing."""
    for function in _of_author(functions):
        for name, line in _drawn_in(function.__code__, function.__globals__):
            return f"{name} ({Path(function.__code__.co_filename).name}:{line})"
    return ""


def undefined_in(functions: Functions) -> tuple[str, str, str] | None:
    """Return a function, FILE:LINE, and the global name that it uses there and nothing defines; None: all are defined.

    Branches count that are never reached, since Numba compiles them too.
    """
    for function in _of_author(functions):
        for name, line in _globals_in(function.__code__):
            if name not in function.__globals__ and not hasattr(builtins, name):
                return function.__name__, f"{Path(function.__code__.co_filename).name}:{line}", name
    return None


def _of_author(functions: Functions) -> list[Callable[..., Any]]:
    """Return a game's functions, and those that they call, which are not ours."""
    compiler = Compiler()
    for function in filter(None, functions):
        compiler.compiled(function)  # nothing is compiled before the first call
    return [one for one in compiler.functions() if one.__module__.partition(".")[0] != "evo"]


def _globals_in(code: CodeType) -> Iterator[tuple[str, int]]:
    """Yield the global names that code reads, and its lines."""
    for one in dis.get_instructions(code):
        if one.opname == "LOAD_GLOBAL":
            yield one.argval, (one.positions and one.positions.lineno) or code.co_firstlineno
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_in(constant)


def _drawn_in(code: CodeType, known: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield names of modules and functions of random numbers that code mentions, and its lines."""
    before: Any = None
    for one in dis.get_instructions(code):
        line = (one.positions and one.positions.lineno) or code.co_firstlineno
        value = known.get(one.argval) if one.opname == "LOAD_GLOBAL" else None
        if before is np and one.opname in ("LOAD_ATTR", "LOAD_METHOD") and one.argval == "random":
            yield "np.random", line
        elif isinstance(value, ModuleType) and value.__name__ in RANDOM:
            yield value.__name__, line
        elif type(getattr(value, "__self__", None)).__module__.startswith(RANDOM):
            yield str(one.argval), line
        before = value
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _drawn_in(constant, known)


class Functions(NamedTuple):
    """What the author of a game has written; `b` is always the environment."""

    begin: Callable[..., Any]  # (state, options, b, random)
    step: Callable[..., Any]  # (state, options, b, action, random) -> reward, terminated
    observe: Callable[..., Any]  # (state, options, b, out)
    mask: Callable[..., Any] | None = None  # (state, options, b, out)
    metrics: Callable[..., Any] | None = None  # (state, options, b, out)


@njit(**LEAN)
def _as_it_is(action):  # type: ignore[no-untyped-def]
    return action


def _clipped(low: float, high: float) -> Any:
    """Return a function that brings the numbers of a continuous action into these bounds."""

    @njit(**LEAN)
    def clip(action):  # type: ignore[no-untyped-def]
        for d in range(action.shape[0]):
            action[d] = min(max(action[d], low), high)
        return action

    return clip


def _of_state(function: Any) -> Any:
    """Return a function that gives an author's function the state without its clock."""

    @njit(**LEAN)
    def write(playing, options, b, out):  # type: ignore[no-untyped-def]
        function(playing.state, options, b, out)

    return write


def adapt(state_type: type, functions: Functions, bounds: tuple[float, float] | None = None) -> None:
    """Have rollouts play the game with this type of state by `functions`, with the clock that the trainer keeps.

    `bounds` are those of continuous actions. A reward that is not finite, or beyond LARGEST_REWARD, is LOST.
    TypeError where another game has the same type of state.
    """
    if state_type in _adapted:
        if _adapted[state_type] != (functions, bounds):
            raise TypeError(f"two games have the state {state_type.__module__}.{state_type.__qualname__}")
        return
    _adapted[state_type] = functions, bounds
    compiler = Compiler()
    author_begins, author_steps = compiler.compiled(functions.begin), compiler.compiled(functions.step)
    author_observes = compiler.compiled(functions.observe)
    playable = _clipped(*map(float, bounds)) if bounds else _as_it_is

    @njit(**LEAN)
    def begin(playing, options, b, seed):  # type: ignore[no-untyped-def]
        clear_row(playing, b)
        clock = playing.clock
        clock.seed[b] = seed
        author_begins(playing.state, options, b, Random(clock, b))

    @njit(**LEAN)
    def step(playing, options, b, action):  # type: ignore[no-untyped-def]
        clock = playing.clock
        reward, ended = author_steps(playing.state, options, b, playable(action), Random(clock, b))
        clock.steps[b] += 1
        status = np.int64(ended)
        if status == GOES_ON and clock.steps[b] >= options.max_steps:
            status = np.int64(TRUNCATED)
        thousandths = np.rint(reward * 1000.0)
        if not abs(thousandths) <= LARGEST_REWARD:  # also where it is NaN
            return LOST, np.int64(TERMINATED)
        return np.int64(thousandths), status

    @njit(**LEAN)
    def steps(playing, options, b):  # type: ignore[no-untyped-def]
        return playing.clock.steps[b]

    @njit(**LEAN)
    def observe(playing, options, b, out):  # type: ignore[no-untyped-def]
        out[...] = 0.0
        author_observes(playing.state, options, b, out)

    @njit(**LEAN)
    def observe_lanes(playing, options, index, out):  # type: ignore[no-untyped-def]
        values = flat_of(out)
        for i in range(values.shape[0]):  # at once: a single lane's zeros would lie one in each line of the cache
            values[i] = 0.0
        for lane in range(index.shape[0]):
            author_observes(playing.state, options, index[lane], out[..., lane])

    made: dict[str, Any] = {"begin": begin, "step": step, "steps": steps, "observe": observe}
    made["observe_lanes"] = observe_lanes
    if functions.mask is not None:
        made["mask"] = _of_state(compiler.compiled(functions.mask))
    if functions.metrics is not None:
        made["metrics"] = _of_state(compiler.compiled(functions.metrics))
    register(state_type, {state_type.__module__, *compiler.modules()}, **made)


_adapted: dict[type, tuple[Functions, tuple[float, float] | None]] = {}


def sources_of(functions: Functions, render: Callable[..., Any] | None = None) -> str:
    """Return a hash of the files that a game's functions, and what they call, are written in, less `render`."""
    compiler = Compiler()
    for function in filter(None, functions):
        compiler.compiled(function)  # nothing is compiled before the first call
    uncompiled = isinstance(render, FunctionType) and render not in compiler.functions()
    return kernel_cache.sources_of(compiler.modules(), but="evo", less=render if uncompiled else None)


def rules_of(values: Mapping[str, float]) -> Any:
    """Return options as the record of whole and other numbers that compiled functions are given.

    A truth is 0 or 1.
    """
    kinds = {name: np.float64 if isinstance(value, float) else np.int64 for name, value in values.items()}
    record = np.zeros(1, np.dtype(list(kinds.items())))
    for name, value in values.items():
        record[0][name] = value
    return record[0]


def batch_of(state: Any, count: int) -> Playing:
    """Return the arrays of `count` environments, each with the shape and type that it has in `state` of one."""
    arrays = [np.zeros((count, *np.shape(part)), np.asarray(part).dtype) for part in state]
    return Playing(type(state)(*arrays), drawing.clock_of(count))
