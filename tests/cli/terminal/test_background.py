"""Runs as jobs of a shell: in the background they write plain lines, set no terminal, and leave the cursor shown."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.calling import SMALL

TABLE = r"\x1b\[1mtime left"
RUN = f"{sys.executable} -m evo.run small.toml --run-dir run --no-report"


class Shell:
    """A shell with job control in a terminal of its own."""

    def __init__(self, where: Path) -> None:
        self.text = ""
        self.pid, self._descriptor = pty.fork()
        if not self.pid:
            os.chdir(where)
            environment = {**os.environ, "TERM": "xterm", "PS1": "ready> ", "NO_COLOR": "1"}
            environment.pop("CI", None)
            os.execvpe("bash", ["bash", "--norc", "--noediting", "-i"], environment)

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def until(self, wanted: str, seconds: float = 60.0) -> str:
        """Read until a text is shown; return what was shown until then."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(wanted, self.text)):
            left = deadline - time.monotonic()
            assert select.select([self._descriptor], [], [], max(left, 0))[0], self.text[-2000:]
            self.text += os.read(self._descriptor, 1 << 16).decode(errors="replace")
        before, self.text = self.text[: found.end()], self.text[found.end() :]
        return before


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "small.toml").write_text(SMALL.replace("generations = 4", "generations = 100000"))
    found = Shell(tmp_path)
    try:
        yield found
    finally:
        found.type("kill -9 %1; exit\n")
        os.close(found._descriptor)
        os.waitpid(found.pid, 0)


@pytest.mark.long
def test_a_run_in_the_background_of_a_terminal_writes_plain_lines_to_its_end(shell: Shell) -> None:
    shell.type(f"{RUN} --generations 3 &\n")
    shown = shell.until(r"python -m evo resume \S+")
    assert "generation 3/3  best" in shown
    assert "\x1b[?25l" not in shown
    shell.type("jobs; wait; echo code $?\n")
    assert "Stopped" not in shell.until(r"code 0")


@pytest.mark.long
def test_a_run_that_is_stopped_and_goes_on_in_the_background_shows_the_cursor_and_ends(shell: Shell) -> None:
    shell.type(f"{RUN}\n")
    shell.until(TABLE)
    shell.type("\x1a")
    assert "\x1b[?25h" in shell.until(r"Stopped")
    shell.type("bg\n")
    shown = shell.until(r"generation +\d+/100000  best.*\n.*generation +\d+/100000  best")
    assert "\x1b[?25l" not in shown
    shell.type("fg\n")
    shell.until(TABLE)  # the table again
    shell.type("\x1a")
    shell.until(r"Stopped")
    shell.type("bg\n")
    shell.until(r"generation +\d+/100000  best")
    shell.type("kill -INT %1\n")
    shown = shell.until(r"python -m evo resume \S+")
    assert shown.rfind("\x1b[?25h") >= shown.rfind("\x1b[?25l")
    shell.type("wait %1; echo code $?\n")
    assert "Stopped" not in shell.until(r"code 130")


def test_a_game_that_is_stopped_shows_the_cursor_and_is_drawn_again_once_where_it_goes_on(shell: Shell) -> None:
    shell.type(f"{sys.executable} -m evo play\n")
    shell.until("q leaves")
    time.sleep(0.5)  # a signal just before it waits for a key would wait, too
    shell.type("\x1a")
    assert "\x1b[?25h" in shell.until(r"Stopped")
    shell.type("fg\n")
    assert shell.until(r"q leaves", 20).count("test episode 0") == 1
    shell.type("q")
    assert "test episode" not in shell.until(r"ready> ")
