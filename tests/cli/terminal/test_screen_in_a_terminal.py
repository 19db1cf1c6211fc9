"""The live screen in a real terminal, tmux: at three sizes, resized, when a worker is killed, and at Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.evaluators.test_evaluators import children
from tests.helpers.calling import ROOT, SMALL

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux"),
]
NUMBERS = count()  # of servers: one that ends still has its socket
TIMEOUT = 120.0  # seconds; the first run compiles
SIZES = [(80, 24), (120, 40), (200, 50)]
LASTING = SMALL.replace("generations = 4", "generations = 100000").replace('"serial"', '"processes"\ncount = 2')


class Tmux:
    """A terminal of its own server, in which a command runs."""

    def __init__(self, where: Path) -> None:
        self._socket, self._where = f"evo-{os.getpid()}-{next(NUMBERS)}", where

    def start(self, width: int, height: int, *words: str) -> None:
        """Run `python -m words`, and print its exit code below what it shows."""
        line = f"{sys.executable} -m {' '.join(words)}; echo exit code $?; sleep 1000"
        size = ("-x", str(width), "-y", str(height))
        self("new-session", "-d", *size, "-c", str(self._where), "-e", f"PYTHONPATH={ROOT}", line)

    def __call__(self, *words: str) -> str:
        line = ["tmux", "-L", self._socket, "-f", "/dev/null", *words]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout

    def shown(self, *, history: bool = False) -> list[str]:
        """Return the lines of the terminal, also those that have left it."""
        return self("capture-pane", "-p", *(["-S", "-"] if history else [])).rstrip("\n").split("\n")

    def until(self, holds: Callable[[str], object]) -> str:
        """Wait until what is shown is as wanted, and return it."""
        end = time.monotonic() + TIMEOUT
        while not holds(text := "\n".join(self.shown())):
            assert time.monotonic() < end, text
            time.sleep(0.05)
        return text


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    (tmp_path / "lasting.toml").write_text(LASTING)
    terminal = Tmux(tmp_path)
    try:
        yield terminal
    finally:
        terminal("kill-server")


def is_whole(text: str, width: int) -> bool:
    """Return whether curves, state, the champion's board and the table are there, once each."""
    wanted = [
        r"(?m)^best .*[▁-█].* -?\d",
        r"(?m)^time left",
        r"2 workers",
        r"champion of generation",
        r"(?m)^ *generation +best",
    ]
    return all(len(re.findall(one, text)) == 1 for one in wanted) and max(map(len, text.split("\n"))) <= width


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_screen_is_drawn_in_place_and_leaves_the_terminal_as_it_was(tmux: Tmux, width: int, height: int) -> None:
    tmux.start(width, height, "evo.run", "lasting.toml", "--run-dir", "run", "--no-report")
    tmux.until(lambda text: is_whole(text, width))
    for _ in range(20):  # moments of many drawings; tmux may show half of one that it has read half of
        moments = ["\n".join(tmux.shown()) for _ in range(3)]
        assert any(is_whole(text, width) for text in moments), moments
        time.sleep(0.1)
    assert len([line for line in tmux.shown(history=True) if "time left" in line and "worker" in line]) == 1
    tmux("send-keys", "C-c")
    text = tmux.until(lambda text: "exit code" in text)
    assert "exit code 130" in text
    assert re.search(r"python -m evo resume \S*run", text)
    assert "Traceback" not in "\n".join(tmux.shown(history=True))
    assert tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"


def test_a_terminal_may_change_its_size_and_a_worker_may_be_killed(tmux: Tmux) -> None:
    tmux.start(80, 24, "evo.run", "lasting.toml", "--run-dir", "run", "--no-report")
    tmux.until(lambda text: is_whole(text, 80))
    for width, height in [SIZES[2], (100, 30), SIZES[1]]:
        tmux("resize-window", "-x", str(width), "-y", str(height))
        tmux.until(lambda text, width=width: is_whole(text, width))  # type: ignore[misc]
    shell = int(tmux("display-message", "-p", "#{pane_pid}"))
    os.kill(max(children(shell)), signal.SIGKILL)  # workers are started last
    tmux.until(lambda text: "2 workers (1 replaced)" in text)


def test_a_run_of_another_process_is_watched(tmux: Tmux, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "evo.run", "lasting.toml", "--run-dir", "run", "--quiet"]
    with subprocess.Popen(line, cwd=tmp_path) as run:
        try:
            while not (tmp_path / "run" / "metrics.jsonl").exists():
                assert run.poll() is None
                time.sleep(0.05)
            tmux.start(100, 30, "evo", "watch", "run")
            tmux.until(lambda text: is_whole(text, 100))
            tmux("send-keys", "C-c")
            tmux.until(lambda text: "exit code" in text)
            assert run.poll() is None  # it is the reader that was stopped
        finally:
            run.kill()
