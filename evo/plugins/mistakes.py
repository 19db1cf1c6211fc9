"""Mistakes in the code of plug-ins and of registered environments: the function, its line, and what is expected."""

from __future__ import annotations

import inspect
import linecache
import math
import operator
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Any

from evo.errors import ConfigurationError, EvoError, notice, text_of
from evo.plugins import registry
from evo.plugins.importing import innermost, module_of_file
from evo.process import is_passed_on

LONG = 10.0  # seconds between looks at a call of a plug-in; one that is seen twice is reported
MOST_CHOICES = 128  # an action is recorded in a byte
MOST_SEEN = 1 << 22  # numbers of an observation; sixteen are held at a time, and their activations
OURS = ("evo", "snake")  # packages
ONLY_IN_MAIN = "signal only works in main thread"
PLUG_IN = "plug-in "  # what a line about one begins with
HOOKS = {"generation", "finalists", "state", "record", "restore"}  # of an algorithm that is made
NUMBA = "numba.core.errors"
FILE_FROM_NUMBA = re.compile(r'File "([^"]+)", line (\d+):')
PLACE_FROM_NUMBA = re.compile(r"(?:from|at) (\S+\.py) \((\d+)\)")
ARRAYS = (
    "it must return a dictionary of arrays of numbers, each named by at most 64 letters, digits, _ . and -, and not "
    "`champion` or `champion_origin`"
)
EXPECTED = {
    "make": "it must return what its options describe",
    "shape": f"it must be a tuple of positive whole numbers, whose product is at most {MOST_SEEN:,}",
    "actions": f"it must be a positive whole number, at most {MOST_CHOICES} where actions are discrete",
    "continuous": "it must be true or false",
    "episode_metrics": "it must be a tuple of names, each another one",
    "reset": "it must return an observation of the environment's shape, and a dictionary",
    "step": "it must return an observation, a reward, terminated, truncated, and a dictionary",
    "metrics_of_episode": "it must return a whole number for each of `episode_metrics`",
    "generation": "it must yield Requests of Tasks, with weights [S, P] of float32 or None, be sent their "
    "results, and return a dictionary of numbers",
    "generation: metric": "it must be a number, named by at most 60 letters, digits, _ . / and -, and not "
    "`generation`, `validation` or `test`; frames, slots, passes and seconds are 0 or more",
    "finalists": "it must return Finalists, with weights [F, P] of float32, P of one network, and numbers [F] or None",
    "state": ARRAYS,
    "record": ARRAYS,
    "restore": "after it `state` must return what it was given",
}


def raised(error: BaseException) -> ConfigurationError | None:
    """Return the mistake of a loaded plug-in that an exception stands for; None: other code raised it."""
    if isinstance(error, MemoryError) or (isinstance(error, EvoError) and not _is_of_algorithm(error)):
        return None
    if isinstance(error.__cause__, StopIteration):  # a generator of ours, which called it, raises a RuntimeError
        error = error.__cause__
    if type(error).__module__ == NUMBA:
        return _not_compiled(str(error))
    if (found := innermost(error, _packages().__contains__)) is None:
        return None
    frame, place = found
    what = f"{exception_text(error)} ({place})"
    return mistake(str(frame.f_globals["__name__"]), frame.f_code.co_qualname, what)


def _is_of_algorithm(error: EvoError) -> bool:
    """Return whether a plug-in's algorithm has called us wrongly; what `make` raises is about the options of a user."""
    from evo.records import Algorithm

    if is_passed_on(error) or str(error).startswith(PLUG_IN):
        return False
    packages, frames = _packages(), [frame for frame, _ in walk_tb(error.__traceback__)]
    called = (frame for frame in frames if _package_of(frame) in packages and frame.f_code.co_name in HOOKS)
    by_algorithm = any(Algorithm in type(frame.f_locals.get("self")).__mro__ for frame in called)
    return by_algorithm and _package_of(frames[-1]) in OURS


def is_mistake(error: BaseException | None) -> bool:
    """Return whether an exception is a mistake in an experiment, its game or a plug-in, before or after it is named."""
    if isinstance(error, Exception | SystemExit) and not is_passed_on(error):
        error = raised(error) or error
    return isinstance(error, ConfigurationError)


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _packages() -> set[str]:
    return {name.partition(".")[0] for name in registry.loaded()} - {*OURS}


def place_in_plugins(frame: FrameType) -> str:
    """Return "FUNCTION (FILE:LINE)" of the innermost frame that is in a plug-in; of the innermost where none is."""
    frames = [one for one, _ in walk_stack(frame)]
    packages = _packages()
    own = (one for one in frames if _package_of(one) in packages)
    found = next(own, frames[0])
    return f"{found.f_code.co_qualname} ({Path(found.f_code.co_filename).name}:{found.f_lineno})"


@contextmanager
def long_calls_named(
    who: str, call_in: Callable[[Iterable[tuple[FrameType, int]]], tuple[FrameType | None, str]], every: float
) -> Iterator[None]:
    """Print a line, once, where two looks at this thread, `every` seconds apart, see it in the same call.

    `call_in` returns the frame of the call among frames, the newest last, and its place; None: there is no such call.
    """
    over, thread = threading.Event(), threading.get_ident()

    def look() -> None:
        before: FrameType | None = None
        while not over.wait(every):
            call, where = call_in(reversed([*walk_stack(sys._current_frames().get(thread))]))
            if call is not None and call is before:
                notice(f"{who}{where} has not returned yet; is its loop endless? Ctrl-C ends it")
                return
            before = call

    looking = threading.Thread(target=look, name="endless calls", daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()  # none is left where a process is forked


def plug_in_calls_named(modules: Iterable[str]) -> AbstractContextManager[None]:
    """Print a line, once, where a call of these plug-ins, or the import of one, takes very long in this thread."""
    packages = {module_of_file(module).partition(".")[0] for module in modules} - {*OURS}

    def call_in(frames: Iterable[tuple[FrameType, int]]) -> tuple[FrameType | None, str]:
        own = [one for one, _ in frames if _package_of(one) in packages]
        return (own[0], place_in_plugins(own[-1])) if own else (None, "")

    return long_calls_named("plug-in ", call_in, LONG) if packages else nullcontext()


def _not_compiled(text: str) -> ConfigurationError | None:
    """Return the line of a game that Numba's message is about; None: it is about none."""
    for file, number in [*FILE_FROM_NUMBA.findall(text), *PLACE_FROM_NUMBA.findall(text)]:
        path = Path(file).resolve()
        if "site-packages" not in path.parts and (registry.ROOT not in path.parents or path.parent.name == "catalogue"):
            line = linecache.getline(str(path), int(number)).strip()
            return ConfigurationError(
                f"{path.name}:{number}: Numba cannot compile `{line}`; functions of a game use numbers and arrays of "
                "numbers alone, and take no new memory"
            )
    return None


def compiling_line(error: Exception) -> str:
    """Return what a compiler's message of many lines says is wrong, and of which line of a game if of one."""
    lines = [line.strip(" >") for line in text_of(error).splitlines() if line.strip(" >")]
    lines = [line for line in lines if not line.startswith("Failed in ")] or [type(error).__name__]
    wrong = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    known = _not_compiled(text_of(error))
    return f"{known}: {wrong}" if known else wrong


def of_hook(owner: object, hook: str, error: BaseException) -> ConfigurationError:
    """Return the mistake that a failed call of an environment's method stands for."""
    kind = type(owner)
    return of_function(kind.__module__, f"{kind.__qualname__}.{hook}", error)


def of_function(module: str, name: str, error: BaseException, function: Any = None) -> ConfigurationError:
    """Return the mistake that a failed call of a plug-in's function stands for: where it failed, or is defined."""
    where = place_of(error, module) if error.__traceback__ and error.__traceback__.tb_next else ""
    if not where and (code := getattr(inspect.unwrap(function), "__code__", None)):
        where = f" ({Path(code.co_filename).name}:{code.co_firstlineno})"
    return mistake(module, name, f"{exception_text(error)}{where}")


def check_environment(environment: Any, module: str) -> None:
    """Raise ConfigurationError where a plug-in's environment breaks the protocol."""
    for name in ("shape", "actions", "continuous", "episode_metrics"):
        found = getattr(environment, name, None)
        if not _fits(name, found, bool(getattr(environment, "continuous", False))):
            raise ConfigurationError(f"environment.id: {mistake(module, name, f'is {found!r:.60}')}")
    environment.check()


def is_named(found: object) -> bool:
    """Return whether an object is a mapping from names."""
    return isinstance(found, Mapping) and all(isinstance(name, str) for name in found)


def _fits(name: str, found: Any, continuous: bool) -> bool:
    if name == "continuous":
        return isinstance(found, bool)
    if name == "episode_metrics":
        names = isinstance(found, tuple) and all(isinstance(name, str) and name.isidentifier() for name in found)
        return names and len({*found}) == len(found)
    if name == "shape":
        return isinstance(found, tuple) and all(map(_is_positive, found)) and math.prod(found) <= MOST_SEEN
    return _is_positive(found) and (continuous or found <= MOST_CHOICES)


def _is_positive(number: Any) -> bool:
    try:
        return operator.index(number) > 0
    except TypeError:
        return False


def place_of(error: BaseException, module: str = "") -> str:
    """Return " (FILE:LINE)" of the last frame of an exception that is not in our packages; empty: all are.

    Of an error of ours, it is the last one in a plug-in or in the package of `module`, if any is: we called the others.
    """
    own = {module.partition(".")[0], *_packages()} - {*OURS} if isinstance(error, EvoError) else set[str]()
    found = innermost(error, own.__contains__) or innermost(error, lambda package: package not in OURS)
    return f" ({found[1]})" if found else ""


def exception_text(error: BaseException) -> str:
    """Return an exception in a line."""
    if isinstance(error, SystemExit):
        return f"called sys.exit({error.code if error.code is not None else ''})"
    text = " ".join(text_of(error).split())
    thread = '; backend = "serial" plays in a thread, and workers do not' if ONLY_IN_MAIN in text else ""
    return f"raised {type(error).__name__}{': ' if text else ''}{text[:200]}{thread}"


def mistake(module: str, function: str, what: str) -> ConfigurationError:
    """Return the error of a plug-in's function, with what is expected of it."""
    expected = EXPECTED.get(function.rpartition(".")[2])
    return ConfigurationError(f"{PLUG_IN}{module}: {function} {what}{f'; {expected}' if expected else ''}")
