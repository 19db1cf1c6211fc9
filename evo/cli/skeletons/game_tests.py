"""The contract of a game, held by my_game: run it with pytest."""

from evo.testing import game_tests

TestMyGame = game_tests("my_game")
