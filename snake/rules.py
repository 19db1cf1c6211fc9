"""One game of Snake in plain Python, as `snake.Game`, and the names of what it takes."""

from __future__ import annotations

from evo.games.catalogue.snake.observations import OBSERVATIONS as OBSERVATIONS
from evo.games.catalogue.snake.position import ACTIONS as ACTIONS
from evo.games.catalogue.snake.position import DEFAULT_REWARDS as DEFAULT_REWARDS
from evo.games.catalogue.snake.position import MASKS as MASKS
from evo.games.catalogue.snake.position import MOVES as MOVES
from evo.games.catalogue.snake.position import Cell as Cell
from evo.games.catalogue.snake.position import Game as Game
from evo.games.catalogue.snake.rules import HEADINGS as HEADINGS
from evo.randomness.streams import episode_seed as episode_seed
