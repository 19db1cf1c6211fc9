"""Faults of a game's functions that playing it does not show: undefined names, other random numbers, endless calls."""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from evo.errors import ConfigurationError, notice, notice_once
from evo.plugins.mistakes import long_calls_named

EVERY = 2.5  # seconds between looks at a call; one that is seen twice is reported
INEXACT = {  # functions of libraries whose last bits depend on the machine
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "arcsin", "arccos", "arctan", "arctan2", "hypot", "cbrt"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "arcsinh", "arccosh", "arctanh", "erf", "erfc", "gamma"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "pow", "power", "float_power", "lgamma"),
}
RANDOM = ("random", "numpy.random")  # modules whose numbers no seed of an episode names
ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


def names_in(code: CodeType) -> set[str]:
    """Return the global names that code mentions, with those of functions inside of it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(names_in, inner))


def unseeded_in(functions: Iterable[Callable[..., Any]]) -> str:
    """Return what gives other random numbers than those of an episode, and where a game uses it; else nothing."""
    for _, one, value, before, where in _loads(functions):
        if before is np and one.opname in ATTRIBUTE and one.argval == "random":
            return f"np.random ({where})"
        if isinstance(value, ModuleType) and value.__name__ in RANDOM:
            return f"{value.__name__} ({where})"
        if type(getattr(value, "__self__", None)).__module__.startswith(RANDOM):
            return f"{one.argval} ({where})"
    return ""


def inexact_in(functions: Iterable[Callable[..., Any]]) -> str:
    """Return a function of a library whose last bits depend on the machine, and where a game uses it; else nothing."""
    for _, one, value, before, where in _loads(functions):
        attribute = one.argval if (before is math or before is np) and one.opname in ATTRIBUTE else ""
        library = type(value) is np.ufunc or getattr(value, "__module__", "") == "math"
        name = attribute or (getattr(value, "__name__", "") if library else "")
        if name in INEXACT:
            return f"{name} ({where})"
    return ""


def powers_in(functions: Iterable[Callable[..., Any]]) -> str:
    """Return where a game has powers, as FILE:LINE, FILE:LINE; those of constant whole numbers are products."""
    before, found = None, dict[str, None]()
    for _, one, value, _, where in _loads(functions):
        is_whole = before is not None and before.opname == "LOAD_CONST" and isinstance(before.argval, int)
        is_power = one.opname == "BINARY_OP" and one.argrepr in ("**", "**=") and not is_whole
        if is_power or (one.opname == "LOAD_GLOBAL" and one.argval == "pow" and value is None):
            found[where] = None
        before = one
    return ", ".join(found)


def undefined_in(functions: Iterable[Callable[..., Any]]) -> tuple[str, str, str] | None:
    """Return a function, FILE:LINE and a global name that it uses there, on any branch, and nothing defines."""
    for function, one, _, _, where in _loads(functions):
        name = one.argval
        if one.opname == "LOAD_GLOBAL" and name not in function.__globals__ and not hasattr(builtins, name):
            return function.__name__, where, name
    return None


def _loads(functions: Iterable[Callable[..., Any]]) -> Iterator[tuple[FunctionType, dis.Instruction, Any, Any, str]]:
    """Yield instructions of a game: its function, the global value loaded there and the one before, and the place."""
    for function in _of_author(functions):
        before: Any = None
        file = Path(function.__code__.co_filename).name
        for one, line in _instructions(function.__code__):
            value = function.__globals__.get(one.argval) if one.opname == "LOAD_GLOBAL" else None
            yield function, one, value, before, f"{file}:{line}"
            before = value


def _of_author(functions: Iterable[Callable[..., Any]]) -> list[FunctionType]:
    found, waiting = dict[FunctionType, None](), [one for one in functions if isinstance(one, FunctionType)]
    while waiting:
        one = waiting.pop(0)
        if one not in found and one.__module__.partition(".")[0] != "evo":
            found[one] = None
            called = (one.__globals__.get(name) for name in sorted(names_in(one.__code__)))
            waiting += [other for other in called if isinstance(other, FunctionType)]
    return [*found]


def _instructions(code: CodeType) -> Iterator[tuple[dis.Instruction, int]]:
    for one in dis.get_instructions(code):
        yield one, (one.positions and one.positions.lineno) or code.co_firstlineno
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)


def broken_in_play(module: str, seed: int, steps: int, what: str, must: str) -> ConfigurationError:
    """Return the error that a game breaks its contract in mid-episode."""
    return ConfigurationError(f"game {module}: {what} after {steps} steps of the episode of seed {seed}; {must}")


def no_allowed_action(module: str, seed: int, steps: int) -> ConfigurationError:
    """Return the error that a game's mask allows no action."""
    return broken_in_play(module, seed, steps, "mask allowed no action", "it must write at least one 1")


def unknown_end(module: str, seed: int, steps: int) -> ConfigurationError:
    """Return the error that an episode's last step returned an end that is none."""
    return broken_in_play(module, seed, steps, "step returned no known end", "False, True, or TRUNCATED are known")


def note_observation(module: str, seed: int, steps: int, seen: Callable[[], Any]) -> None:
    """Note, once, what of an observation is not finite, if anything is; `seen` returns it."""
    if np.isfinite(shown := seen()).all():
        return
    place = tuple(np.argwhere(~np.isfinite(shown))[0].tolist())
    what = f"observe wrote {shown[place]:g} to out{list(place)}"
    notice_once(str(broken_in_play(module, seed, steps, what, "no action follows from it")), (module, "observe"))


def note_return(module: str, seed: int, steps: int, lost: bool) -> None:
    """Note, once, why an episode has no return: a reward that was `lost`, or the sum of all."""
    beyond = "step gave a reward that is not finite or beyond two million"
    what = beyond if lost else "rewards add up beyond 4.4 billion"
    notice_once(str(broken_in_play(module, seed, steps, what, "such an episode has no return")), (module, "step"))


def broken_match(module: str, seed: int, steps: int, baseline: int | None, actions: int) -> ConfigurationError:
    """Return the error that a baseline, by its number from 1 on, chose no such action, or that nobody is on turn."""
    if baseline is None:
        return broken_in_play(module, seed, steps, "turn returned no player", "it must return one from 0 on")
    must = f"it must return one of 0 to {actions - 1} that mask allows"
    return broken_in_play(module, seed, steps, f"baseline {baseline} chose an action that is not allowed", must)


@contextmanager
def endless_named(module: str, functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Print a line where a call of a game goes on for seconds, and where Ctrl-C ends one: function, file and line."""
    try:
        with long_calls_named(f"game {module}: ", partial(_call, functions), EVERY):
            yield
    except KeyboardInterrupt as stop:
        call, where = _call(functions, walk_tb(stop.__traceback__))
        if call is not None:
            notice(f"game {module}: {where} was interrupted")
        raise


def _call(
    functions: Mapping[str, Callable[..., Any]], frames: Iterable[tuple[FrameType, int]]
) -> tuple[FrameType | None, str]:
    """Return the frame of a game's function among frames, the newest last, and its name with the file and line."""
    names = {getattr(function, "__code__", None): name for name, function in functions.items()}
    call, where = None, ""
    for frame, line in frames:
        if call is None and frame.f_code in names:
            call = frame
        if call is not None and frame.f_code.co_filename == call.f_code.co_filename:
            where = f"{names[call.f_code]} ({Path(frame.f_code.co_filename).name}:{line})"
    return call, where
