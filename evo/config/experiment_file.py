"""The tables of an experiment and the source of each key: a TOML file, --set, and flags, each overriding the last."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from evo.errors import FORBIDDEN, SHORTAGES, ConfigurationError, EvoError, ResourceError, printable
from evo.files.durable import read_file
from evo.files.layout import LARGEST_CHAMPION, NETWORKS, near
from evo.mistakes import Mistake, name_of, shown
from evo.networks.model_files import layers_in, refuse_graph
from evo.toml import plain, value_of

Keys = tuple[str, ...]  # of a value, from the top of the file
Hosts = Literal["typed", "refused", "ignored", "kept"]  # what becomes of hosts that a file names; see `Experiment.load`

LARGEST = 64 * 1024  # bytes of a file
# Keys of thousands of parts take tomllib minutes. The pattern never backtracks, so long words are fast.
DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""", re.ASCII)

TOKEN = re.compile(
    r"""
      (?P<newline> \n )
    | (?P<skip> [ \t\r]+ | \#[^\n]* )
    | (?P<text> \"{3} (?:[^\\]|\\.)*? \"{3} (?!\") | '{3} .*? '{3} (?!') | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' )
    | (?P<bare> [A-Za-z0-9_:+-]+ )
    | (?P<equals> = )
    | (?P<open> [\[{] )
    | (?P<close> [\]}] )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)

FLAGS = {
    "algorithm": ("run", "algorithm"),
    "seed": ("run", "seed"),
    "generations": ("run", "generations"),
    "workers": ("workers", "count"),
    "backend": ("workers", "backend"),
}


class ExperimentFile:
    """The tables of an experiment, from a file and the command line, and where each key is from."""

    def __init__(self, file: str, tables: dict[str, Any], lines: Mapping[Keys, int]) -> None:
        self.file = file
        self.tables = tables
        self.mistakes: list[str] = []  # in the form of the command line
        self.removed: list[Keys] = []  # keys that are to have their defaults
        self.hosts: Hosts = "kept"
        self._came_from: dict[Keys, int | str] = dict(lines)  # a line, or what was typed

    @classmethod
    def read(cls, path: str | Path) -> ExperimentFile:
        """Read a file; ConfigurationError with the line where it is not a small regular file of valid TOML."""
        file = printable(str(path))
        text = _text(path, file)
        if deep := DEEP_KEY.search(text):
            line = text[: deep.start()].count("\n") + 1
            raise ConfigurationError(f"{file}:{line}: tables are nested too deeply")
        try:
            return cls(file, tomllib.loads(text), key_lines(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(_explained(file, text, str(error))) from error
        except RecursionError:
            raise ConfigurationError(f"{file}:1: brackets are nested too deeply") from None
        except ValueError as error:  # numbers of thousands of digits, and impossible dates
            raise ConfigurationError(f"{file}:1: {printable(str(error))}") from error

    def apply(self, changes: Iterable[str], flags: Mapping[str, object]) -> None:
        """Apply --set assignments, and then flags; one that is None is not set."""
        for assignment in changes:
            self.set(assignment)
        for flag, value in flags.items():
            if value is not None:
                self._assign(FLAGS[flag], plain(value), f"--{flag}")
        if flags.get("generations") is not None:  # it overrides every algorithm's own
            for name, table in self.tables.items():
                if name != "run" and isinstance(table, dict) and isinstance(table.get("generations"), int):
                    del table["generations"]

    def set(self, assignment: str) -> None:
        """Apply one SECTION.KEY=VALUE; a value that is no TOML is text, and none at all brings the default back."""
        _, equals, text = assignment.partition("=")
        path = tuple(key_of(assignment).split("."))
        if not equals or len(path) < 2 or not all(path):
            self.mistakes.append(f"--set {printable(assignment)}: must be SECTION.KEY=VALUE, as in ga.population=256")
            return
        source = f"--set {printable('.'.join(path))}"
        if text.strip():
            self._assign(path, text, source)
        else:
            self._remove(path, source)

    def import_policy(self, folder: Path) -> None:
        """Replace `policy = "mine.keras"` by the layers of that file; it is where it says, or there from the folder."""
        named = self.tables.get("policy")
        if isinstance(named, str):
            file = next((path for path in (Path(named), folder / named) if path.exists()), Path(named))
            try:
                refuse_graph(file)
                self.tables["policy"] = layers_in(read_file(file, most=LARGEST_CHAMPION)).policy
            except (EvoError, ValueError) as error:
                meant = "" if file.exists() else near(file, NETWORKS)
                raise ConfigurationError(f"{self.file}: policy: {shown(named)}: {error}{meant}") from error

    def is_typed(self, *path: str) -> bool:
        """Return whether the value of a key is from the command line, not from the file."""
        return isinstance(self._came_from.get(path), str)

    def lines_of(self, mistakes: Iterable[Mistake]) -> list[str]:
        """Return a line for every mistake: its place, key and text; those in the file first, by line."""
        lines = sorted(self._placed(mistake) for mistake in mistakes)
        in_file = [f"{self.file}:{line}: {text}" for line, text in lines if line]
        return in_file + self.mistakes + [text for line, text in lines if not line]

    def _placed(self, mistake: Mistake) -> tuple[int, str]:
        """Return the line of a mistake, or 0 where it was typed, and its text."""
        what = f"{printable(name_of(mistake.path))}: {printable(mistake.text)}"
        keys = tuple(step for step in mistake.path if isinstance(step, str))
        for length in range(len(keys), 1, -1):
            source = self._came_from.get(keys[:length])
            if isinstance(source, str):
                exact = source == f"--set {'.'.join(keys)}" or not source.startswith("--set")
                return 0, f"{printable(source)}: {printable(mistake.text) if exact else what}"
            if source is not None:
                return source, what
        typed = [str(s) for key, s in self._came_from.items() if key[:1] == keys[:1] and str(s).startswith("--set")]
        if typed:  # the key has its default, which contradicts an option that was typed
            return 0, f"{printable(typed[0])}: {printable(mistake.text) if len(keys) == 1 else what}"
        section = self._came_from.get(keys[:1], 1)
        return (section if isinstance(section, int) else 1), what

    def _assign(self, path: Keys, value: object, source: str) -> None:
        """Put in a value, of a text that of TOML; where the section is no table, that is a mistake of the file."""
        try:
            ".".join(path).encode()
            if isinstance(self.tables.get(path[0], {}), dict):
                self._put(path, value_of(value) if isinstance(value, str) else value, source)
        except (ValueError, RecursionError) as error:
            reason = "brackets are nested too deeply" if isinstance(error, RecursionError) else str(error)
            self.mistakes.append(f"{source}: {printable(reason)}")

    def _remove(self, path: Keys, source: str) -> None:
        table: Any = self.tables
        for key in path[:-1]:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(path[-1], None)
        self._comes_from(path, source)
        self.removed.append(path)

    def _put(self, path: Keys, value: object, source: str) -> None:
        table = self.tables
        for depth, key in enumerate(path[:-1], 1):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ValueError(f"{'.'.join(path[:depth])} is not a table")
        table[path[-1]] = value
        self._comes_from(path, source)

    def _comes_from(self, path: Keys, source: str) -> None:
        for known in [known for known in self._came_from if known[: len(path)] == path]:
            del self._came_from[known]
        self._came_from[path] = source


def key_of(assignment: str) -> str:
    """Return the key of a SECTION.KEY=VALUE, without the spaces around its parts."""
    return ".".join(part.strip() for part in assignment.partition("=")[0].split("."))


def _text(path: str | Path, file: str) -> str:
    try:
        # A pipe without a writer would block an ordinary open forever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ConfigurationError(f"{file}: is not a regular file")
            data = opened.read(LARGEST + 1)
    except IsADirectoryError as error:
        told = "is a directory, not an experiment; `evo resume` continues a run"
        raise ConfigurationError(f"{file}: {told}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, FileNotFoundError):
            meant = near(Path(path), (".toml",), Path("experiments"))
            reason = f"{reason}{meant or '; `evo list` says where experiments are'}"
        lacks = isinstance(error, OSError) and error.errno in SHORTAGES | FORBIDDEN
        raise (ResourceError if lacks else ConfigurationError)(f"{file}: cannot be read: {reason}") from error
    if len(data) > LARGEST:
        raise ConfigurationError(f"{file}:1: is larger than the {LARGEST // 1024} KiB of an experiment")
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise ConfigurationError(f"{file}:1: starts with a byte order mark; save it as UTF-8 without one")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigurationError(
            f"{file}:{line}: is not UTF-8 (byte {data[error.start]:#04x}); save it as UTF-8"
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ConfigurationError(f"{file}:{line}: contains a NUL byte, so it is not a text file")
    return text.replace("\r\n", "\n")


def _explained(file: str, text: str, message: str) -> str:
    match = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if not match:
        return f"{file}:1: {printable(message)}"
    reason = printable(message[: match.start()])
    if not match[1]:
        return f"{file}:{max(1, len(text.splitlines()))}: {reason} at the end of the file"
    return f"{file}:{match[1]}: {reason} at column {match[2]}"


def key_lines(text: str) -> dict[Keys, int]:
    """Return the first line, from 1, of every key and table of valid TOML; keys inside of a value have none."""
    lines: dict[Keys, int] = {}
    table: Keys = ()  # of the last [header]
    key: list[str] = []
    in_value, depth, line = False, 0, 1
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if in_value:
            depth += (kind == "open") - (kind == "close")
            if kind == "newline" and not depth:
                in_value, key = False, []
        elif kind in ("text", "bare"):
            key.append(tomllib.loads(f"key = {token}")["key"] if kind == "text" else token)
        elif kind == "equals" or (kind == "close" and key):  # the second bracket of [[...]] finds no key
            in_value, path = kind == "equals", (*table, *key) if kind == "equals" else tuple(key)
            for length in range(1, min(len(path), 8) + 1):  # nothing that is known lies deeper than 8 tables
                lines.setdefault(path[:length], line)
            if not in_value:
                table, key = path, []
        line += token.count("\n")
    return lines
