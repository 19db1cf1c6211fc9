"""Gradient methods in tests: small environments, and generations played in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.environment import Environment
from evo.environments import gymnasium
from evo.games.catalogue import snake
from evo.learning.gradient_algorithm import GradientAlgorithm
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import Metrics, Request, Result
from evo.rollouts.rollout import Rollout
from evo.setup import LearnerOptions, Setup
from tests.helpers import generations

ONE = LearnerOptions(threads=1)
LINEAR = Policy(kind="linear")


def made(
    module: Any, environment: Any, policy: Policy = LINEAR, seed: int = 1, start: Any = None, **options: Any
) -> GradientAlgorithm:
    """Return an algorithm of the module with these options."""
    chosen = module.Options(**options)
    network = Network.build(policy, environment.shape, environment.actions, chosen.extra_outputs(environment))
    algorithm: GradientAlgorithm = module.make(chosen, Setup(seed, network, environment, learner=ONE, start=start))
    return algorithm


def board(**options: Any) -> Any:
    """Return a small game of Snake; its mask rules out nothing, and has kernels compiled once for all that learn."""
    return snake.make(snake.Options(**{"size": 5, "starvation": 9, "observation": "ego", "mask": "reverse", **options}))


def pole(name: str = "CartPole-v1") -> Any:
    """Return an environment without snapshots."""
    return gymnasium.make(gymnasium.Options(id=f"gymnasium:{name}", max_steps=30))


def play(algorithm: GradientAlgorithm, request: Request) -> list[Result]:
    """Play the tasks of a request."""
    rollout = Rollout(algorithm.setup.network, algorithm.setup.environment)
    assert request.weights is not None
    return [rollout.play(task, request.weights) for task in request.tasks]


def drive(
    algorithm: GradientAlgorithm,
    number: int | range,
    answer: Callable[[Request], Sequence[Result]] | None = None,
) -> Metrics:
    """Run generations, answering every request; return the metrics of the last one."""
    for generation in [number] if isinstance(number, int) else number:
        metrics = generations.drive(algorithm, generation, answer or (lambda request: play(algorithm, request)))
    return metrics


def frozen(state: Any) -> dict[str, NDArray[Any]]:
    """Return a copy of a state."""
    return {name: np.array(array) for name, array in state.items()}


def assert_same(one: Any, other: Any) -> None:
    """Compare states bit for bit."""
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert np.asarray(array).tobytes() == np.asarray(other[name]).tobytes(), name


class Chain(Environment):
    """Five cells in a row: 1 goes right, 0 left; the right end is worth 1 and ends it, as does the twelfth step."""

    shape, actions, cells = (5,), 2, 5

    def env(self) -> Chain:
        return Chain()

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        self.cell, self.steps = seed % (self.cells - 1), 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.cell, self.steps = max(self.cell + (1 if action else -1), 0), self.steps + 1
        done = self.cell == self.cells - 1
        return self._seen(), float(done), done, not done and self.steps == 12, {}

    def _seen(self) -> np.ndarray:
        return np.eye(self.cells, dtype=np.float32)[self.cell]

    def metrics_of_episode(self, info: dict[str, Any], truncated: bool) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        pass


def assert_chain_is_valued(algorithm: GradientAlgorithm, gamma: float, dueling: bool) -> None:
    """Compare the action values of the chain's cells with the truth."""
    from evo.learning.returns import action_values

    rollout = Rollout(algorithm.setup.network, algorithm.setup.environment)
    rollout.play(next(algorithm.generation(41)).tasks[0], algorithm.finalists(1).weights)
    values = action_values(rollout.kernel.score(np.eye(5, dtype=np.float32)), 2, dueling)[:4]
    right = gamma ** np.arange(3, -1, -1)
    left = gamma * np.array([right[0], right[0], right[1], right[2]])
    np.testing.assert_allclose(values, np.stack([left, right], axis=1), atol=0.03)


def assert_mirrored_or_not(before: np.ndarray, after: np.ndarray, done: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Return which examples were mirrored; actions (left, straight, right) must be mirrored with them."""
    same = (before == after).all(axis=(1, 2, 3))
    mirrored = (before[:, :, ::-1] == after).all(axis=(1, 2, 3))
    assert (same | mirrored).all()
    assert (same & ~mirrored).sum() > 10
    assert (mirrored & ~same).sum() > 10
    clear = same != mirrored  # a board that is not its own mirror image
    np.testing.assert_array_equal(moved[clear], np.where(same, done, 2 - done)[clear])
    result: np.ndarray = mirrored
    return result


SMALL = """
[run]
algorithm = "ALGORITHM"
generations = 4
[environment]
size = 5
observation = "ego"
starvation = 12
mask = "reverse"
[policy]
conv = [[4, 3, 1]]
dense = [8]
[workers]
backend = "serial"
[validation]
every = 2
episodes = 6
[test]
every = 4
episodes = 10
[learner]
threads = 1
[dqn]
envs = 6
horizon = 8
envs_per_task = 4
replay_size = 100
learning_starts = 40
frames_per_update = 7
batch_size = 16
symmetry = true
[pqn]
envs = 6
horizon = 8
envs_per_task = 4
symmetry = true
epochs = 2
minibatches = 3
"""


def small(algorithm: str) -> str:
    """Return a small experiment of Q-learning."""
    return SMALL.replace("ALGORITHM", algorithm)


def without_board(algorithm: str) -> str:
    """Return it without a board: neither [environment] nor [policy], nor symmetries."""
    text = small(algorithm)
    return (text[: text.index("[environment]")] + text[text.index("[workers]") :]).replace("symmetry = true\n", "")
