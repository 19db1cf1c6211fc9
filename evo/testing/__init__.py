"""Contract tests for the files of users: `TestMyGame = game_tests("my_game")` in a file that pytest finds."""

from __future__ import annotations

from evo.testing.games import game_tests

__all__ = ["game_tests"]
