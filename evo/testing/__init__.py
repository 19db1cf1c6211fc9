"""Contract tests for the files of users: `TestMyGame = game_tests("my_game")` in a file that pytest finds."""

from __future__ import annotations

from evo.testing.environments import environment_tests, game_tests
from evo.testing.runs import algorithm_tests, backend_tests

__all__ = ["algorithm_tests", "backend_tests", "environment_tests", "game_tests"]
