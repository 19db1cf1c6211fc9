"""Errors with their exit codes, notices, text that is safe to print, and imports that may fail."""

from __future__ import annotations

import difflib
import errno
import os
import re
import shlex
import sys
from collections.abc import Iterable
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any

# Numbers of OSErrors that mean that the machine lacks something.
SHORTAGES = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EROFS
}  # fmt: skip

FORBIDDEN = {errno.EACCES, errno.EPERM}


class EvoError(Exception):
    """A failure, in lines for the user; `exit_code` is what a command ends with. All errors below are subclasses."""

    exit_code = 1

    def __init__(self, *lines: object) -> None:
        super().__init__(*(printable(str(line)) for line in lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


class ConfigurationError(EvoError):
    """A mistake in the experiment file, on the command line, or a missing extra."""

    exit_code = 2


class OptionError(ConfigurationError, ValueError):
    """Options of a game that Gymnasium was asked for are wrong."""


class MissingPluginError(ConfigurationError):
    """A run or a champion needs a plug-in that the command line does not name."""


class DataError(EvoError):
    """A file that is corrupt, of another program, or of another shape than expected."""

    exit_code = 3


class LockedError(EvoError):
    """Another process holds the run directory."""

    exit_code = 4


class ResourceError(EvoError):
    """The machine lacks something: disk, memory, a device, a worker that stays alive."""

    exit_code = 5


class OutOfMemoryError(ResourceError):
    """Memory does not suffice, or the system has ended a process by SIGKILL, as it does then."""


class DeviceError(ResourceError):
    """A process does not see exactly the device that it was pinned to."""


class DeviceAbsentError(DeviceError):
    """A process sees no device at all where it was pinned to one."""


class DeviceMemoryError(DeviceError, OutOfMemoryError):
    """A device has too little memory left for a computation."""


class DeviceLostError(DeviceError):
    """A device has failed while it computed; a new process may use it again."""


class HeadLostError(ResourceError):
    """The head of a cluster is gone, and with it all that was being played."""


class PoisonError(ResourceError):
    """A task ends every worker that plays it."""

    def __init__(self, message: str, task: int = 0, first: int = 0, count: int = 1, why: str = "") -> None:
        super().__init__(message)
        self.task = task  # which of those that were to be played
        self.first, self.count = first, count  # its candidates that cause this
        self.why = why  # what became of the last worker, as "was killed by SIGSEGV"


def plug_in_advice(module: str) -> str:
    """Return advice for a missing plug-in, on the command line and in Python."""
    return f'add --plugin {module} (in Python plugins=["{module}"])'


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return " - did you mean ...?" with the closest of the known names, or nothing where none is close."""
    close = closest(wrong, known)
    return f" - did you mean `{close}`?" if close else ""


def closest(wrong: str, known: Iterable[str]) -> str:
    """Return the closest of the known names, or ""; a word in front, as in restart_population, makes another thing."""
    names = [name for name in known if not wrong.endswith(f"_{name}")]
    close = difflib.get_close_matches(wrong[:100], names, 1) or difflib.get_close_matches(wrong[:100].lower(), names, 1)
    close = close or [name for name in names if len(wrong) > 1 and name.startswith(wrong)]
    return close[0] if close else ""


def counted(count: int, noun: str) -> str:
    """Return a number of things, as in 1 generation or 3 generations."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_line(error: object) -> str:
    """Return the first line of an error, without the advice after it."""
    lines = text_of(error).splitlines()
    return lines[0] if lines else type(error).__name__


def text_of(error: object) -> str:
    """Return the text of an error; empty where it has none, or where its own `__str__` fails."""
    try:
        return str(error).strip()
    except Exception:
        return ""


APOSTROPHE, COMPUTED = "'", ("=", "+", "-", "@", "\t", "\r")  # of cells of a spreadsheet
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # what moves a cursor or begins a line


def printable(text: str) -> str:
    """Return the text with everything escaped that could move a terminal's cursor or hide what stands there."""
    if text.isprintable():
        return str(text)
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return the text with everything escaped but the ends of its lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def typed(words: Iterable[str]) -> str:
    """Return words as they are typed in a shell; those that cannot be shown are quoted byte by byte."""
    return " ".join(shlex.quote(word) if word.isprintable() else _bytes_typed(word) for word in words)


def _bytes_typed(word: str) -> str:
    plain = (chr(one) if 32 <= one < 127 and chr(one) not in "'\\" else f"\\x{one:02x}" for one in os.fsencode(word))
    return f"$'{''.join(plain)}'"


def cell(value: object) -> object:
    """Return a cell of a CSV file: text is escaped, after an apostrophe where a spreadsheet would compute it."""
    if not isinstance(value, str):
        return value
    return f"{APOSTROPHE * value.startswith(COMPUTED)}{printable(value)}"


def notice(*texts: str) -> None:
    """Print lines that a user should know, on standard error."""
    for text in texts:
        print(f"note: {printable(text)}", file=sys.stderr, flush=True)


def notice_once(text: str, about: object = None) -> None:
    """Print a notice, once in a process for what it is about, or for its text."""
    if (about or text) not in _noticed:
        _noticed.add(about or text)
        notice(text)


_noticed = set[object]()


def require_callable(progress: object) -> None:
    """Raise ConfigurationError unless `progress` is callable."""
    if progress is not None and not callable(progress):
        raise ConfigurationError(f"progress: {progress!r:.40} is not a function, as print is")


def refuse_control(*words: str) -> None:
    """Raise ConfigurationError where a word has line ends or control characters, which forge or hide lines."""
    if hidden := next(filter(CONTROL.search, words), ""):
        raise ConfigurationError(f"'{hidden}': no name or value holds line ends or control characters")


def path_of(name: str, value: object) -> Path:
    """Return an argument as a path; ConfigurationError: it cannot be that of a file or a directory."""
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise ConfigurationError(f"{name}: {value!r:.60} is not the path of a file or a directory")
    return Path(value)


def require_integer(name: str, value: object, least: int, most: int) -> None:
    """Raise ConfigurationError unless an argument is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise ConfigurationError(f"{name}: must be a whole number from {least} to {most}, not {value!r:.40}")


def require_assignments(sets: object) -> None:
    """Raise ConfigurationError unless an argument is a list of assignments, as --set takes."""
    if not isinstance(sets, list | tuple) or not all(isinstance(one, str) for one in sets):
        raise ConfigurationError(f"sets: must be a list of assignments, as in ['ga.sigma=0.1'], not {sets!r:.60}")


def extra(module: str, wanted: str) -> Any:
    """Return a module of an optional library that `wanted`, as typed, needs; ConfigurationError: it is missing."""
    try:
        found = import_module(module)
        if getattr(found, "__path__", ()) and getattr(found, "__file__", None) is None:  # a tracker's output
            raise ImportError(f"{next(iter(found.__path__))} is no package")
        return found
    except (ImportError, TypeError) as error:  # the latter where a library that it needs is of another version
        package = module.partition(".")[0].replace("_", "-")
        raise ConfigurationError(
            f"{wanted} needs {package}, and it cannot be imported ({first_line(error)}); install it with: "
            f"python -m pip install {package}"
        ) from error
