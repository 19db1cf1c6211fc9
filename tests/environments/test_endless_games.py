"""A game that does not return is told in a line, with its function and the line, before and at Ctrl-C."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from tests.helpers.calling import ROOT, command
from tests.helpers.sampling import sampled

SKELETONS = ROOT / "evo" / "cli" / "skeletons"
BEGIN = "    state.walker[b] = options.cells // 2\n"
STEP = "    state.walker[b] += 1 if action == 1 else -1\n"
TIMEOUT = 120.0  # seconds
SOONER = ("-c", "from evo.games import faults; faults.EVERY = 0.5; from evo.cli import main; main.main_run()")


@pytest.mark.parametrize(("function", "line"), sampled([("step", STEP), ("begin", BEGIN)]))
def test_a_loop_without_an_end_is_named_with_its_line(tmp_path: Path, function: str, line: str) -> None:
    source = (SKELETONS / "game.py").read_text()
    assert source.count(line) == 1
    endless = source.replace(line, f"{line}    while state.walker[b] < 1000:\n        pass\n")
    (tmp_path / "own_endless.py").write_text(endless)
    (tmp_path / "own.toml").write_text((SKELETONS / "game.toml").read_text().replace("my_game", "own_endless"))
    loop = endless.split("\n").index("        pass")  # counted from 0: the line before it, counted from 1
    places = {f"game own_endless: {function} (own_endless.py:{number})" for number in (loop, loop + 1)}
    with command(tmp_path, "own.toml", "--plugin", "own_endless", program=SOONER) as process:
        assert process.stderr is not None
        late = threading.Timer(TIMEOUT, process.kill)
        late.start()
        told = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate()
        late.cancel()
    assert told in {f"note: {place} has not returned yet; is its loop endless? Ctrl-C ends it\n" for place in places}
    assert rest in {f"note: {place} was interrupted\ninterrupted\n" for place in places}
    assert process.returncode == 130
