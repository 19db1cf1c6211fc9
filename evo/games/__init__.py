"""Games, each of them one file of plain Python; importing this registers them with Gymnasium, as "evo/catch-v0"."""

from __future__ import annotations

from pathlib import Path

from evo.environments.game import register

for _file in sorted(Path(__file__).parent.glob("[!_]*.py")):
    if b"\nmake = Game(" in _file.read_bytes():
        register(f"evo.games.{_file.stem}")
