"""What holds for every game: pytest finds these tests in a class that `game_tests` makes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from evo.environment import Environment
from evo.games.game import GameEnvironment
from evo.games.plain import random_action
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins import registry
from evo.records import ActionRule, Episodes, Result, Segment, Task, WeightSource
from evo.rollouts.rollout import Rollout
from evo.rollouts.segments import replay_segment

EMPTY = np.empty((0, 0), np.float32)
SEEDS = np.arange(20, dtype=np.uint64)
NONE = np.full(1, -1, np.int32)
FRESH = WeightSource(NONE, NONE, np.array([5], np.uint64), np.zeros(1, np.float32))  # a network without a parent


class Plain(GameEnvironment):
    """A game of which nothing is compiled."""

    game = None

    def env(self, render_mode: str | None = None) -> Any:
        """Return the game in plain Python."""
        return self.plain_env()


class GameTests:
    """The tests; `environment` is the game with the options that are tested."""

    environment: GameEnvironment

    def _rollout(self, environment: Environment) -> Rollout:
        policy, spreads = Policy(kind="mlp", dense=[8]), environment.actions if environment.continuous else 0
        return Rollout(Network.build(policy, environment.shape, environment.actions, spreads), environment)

    def _played(self, environment: Environment, task: Task) -> Result:
        return self._rollout(environment).play(task, EMPTY)

    @property
    def _rule(self) -> ActionRule:
        return ActionRule("gaussian" if self.environment.continuous else "softmax")

    def _action(self, seed: int, step: int) -> Any:
        return random_action(self.environment.definition, self.environment.actions, None, seed, step)

    def test_the_game_keeps_the_contract(self) -> None:
        """No mistake is found in a few episodes."""
        self.environment.check()

    def test_compiled_episodes_are_those_of_plain_python(self) -> None:
        """Returns, lengths, metrics, observations, masks, actions, rewards and ends agree bit for bit."""
        task = Task(FRESH, Episodes(SEEDS), self._rule, record_actions=True, record_transitions=True)
        twin = Plain(self.environment.definition, self.environment.options)
        compiled, plain = self._played(self.environment, task), self._played(twin, task)
        np.testing.assert_array_equal(compiled.returns, np.rint(1000 * plain.returns), "returns")
        for name in ("lengths", "episode_metrics"):
            np.testing.assert_array_equal(getattr(compiled, name), getattr(plain, name), name)
        mine: Any = compiled.transitions
        theirs: Any = plain.transitions
        game = self.environment.game
        np.testing.assert_array_equal(game.observe(mine.observations), theirs.observations, "observations")
        np.testing.assert_array_equal(game.observe(mine.next_observations), theirs.next_observations)
        for name in ("actions", "rewards", "ends", "outputs", "action_masks"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), name)

    def test_segments_go_on_from_snapshots_and_are_replayed(self) -> None:
        """Two segments are the halves of one of twice the length, and a replay of the actions gives the same."""
        rollout, game = self._rollout(self.environment), self.environment.game
        envs = game.begin(SEEDS)
        whole = rollout.play(Task(FRESH, Segment(envs, 60), self._rule), EMPTY)
        first = rollout.play(Task(FRESH, Segment(envs, 30), self._rule), EMPTY)
        assert first.envs is not None
        second = rollout.play(Task(FRESH, Segment(first.envs, 30), self._rule), EMPTY)
        for name in ("observations", "actions", "rewards"):
            halves = [_by_env(result, name, 30) for result in (first, second)]
            np.testing.assert_array_equal(np.concatenate(halves, axis=1), _by_env(whole, name, 60), name)
        assert whole.envs is not None
        steps: Any = whole.transitions
        again, left = replay_segment(game, envs, _by_env(whole, "actions", 60))
        for name in ("observations", "rewards", "ends", "next_observations"):
            np.testing.assert_array_equal(getattr(again, name), getattr(steps, name), name)
        np.testing.assert_array_equal(left.snapshots, whole.envs.snapshots)

    def test_gymnasium_finds_no_fault(self) -> None:
        """Gymnasium's own check has no warning."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(self.environment.env(), skip_render_check=True)

    def test_environments_of_a_vector_are_single_ones(self) -> None:
        """Each environment of a vector shows what a single one of the same seed does, in every mode of resets."""
        for mode in AutoresetMode:
            self._hold_vector(mode)

    def _hold_vector(self, mode: AutoresetMode) -> None:
        vector, count = self.environment.vector_env(4, autoreset_mode=mode), 4
        singles = [self.environment.env() for _ in range(count)]
        seen, _ = vector.reset(seed=7)
        alone = [env.reset(seed=7 + i)[0] for i, env in enumerate(singles)]
        ended = np.zeros(count, np.bool_)
        for step in range(100):
            where = f"{mode}, step {step}"
            np.testing.assert_array_equal(seen, np.stack(alone), where)
            actions = np.stack([self._action(i, step) for i in range(count)])
            if mode is AutoresetMode.DISABLED and ended.any():
                assert _refuses(vector, actions), f"{where}: an episode that is over is played on"
                seen, _ = vector.reset(options={"reset_mask": ended})
                alone = [env.reset()[0] if over else one for env, over, one in zip(singles, ended, alone, strict=True)]
                np.testing.assert_array_equal(seen, np.stack(alone), where)
            seen, rewards, terminated, truncated, info = vector.step(actions)
            for i, env in enumerate(singles):
                if mode is AutoresetMode.NEXT_STEP and ended[i]:
                    alone[i] = env.reset()[0]
                    assert rewards[i] == 0, where
                    continue
                one = env.step(actions[i])
                alone[i] = one[0]
                assert one[1:4] == (rewards[i], terminated[i], truncated[i]), where
                if mode is AutoresetMode.SAME_STEP and (one[2] or one[3]):
                    np.testing.assert_array_equal(info["final_obs"][i], one[0], where)
                    alone[i] = env.reset()[0]
            ended = terminated | truncated

    def test_pictures_are_drawn_where_there_are_any(self) -> None:
        """A picture is uint8 [H, W, 3], and drawing it changes nothing."""
        plain = self.environment.plain()
        if plain.definition.render is None:
            import pytest

            pytest.skip("the game has no render")
        plain.begin(0, 3)
        before = [array.tobytes() for array in plain.state]
        picture = plain.picture(0)
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert [array.tobytes() for array in plain.state] == before


def _refuses(vector: Any, actions: NDArray[Any]) -> bool:
    """Return whether a vector asks for a reset."""
    try:
        vector.step(actions)
    except RuntimeError:
        return True
    return False


def _by_env(result: Result, name: str, horizon: int) -> NDArray[Any]:
    array: NDArray[Any] = getattr(result.transitions, name)
    return array.reshape(len(SEEDS), horizon, *array.shape[1:])


def game_tests(module: str, **options: Any) -> type[GameTests]:
    """Return a class of tests of the game in a module, as --plugin names it, or of ours, with these options."""
    name = registry.module_of_file(module).rpartition(".")[2]
    if name not in registry.names("environments"):
        registry.load([module])
    found = registry.find("environments", name)
    environment = found.make(found.Options(id=name, **options))
    return type("GameTests", (GameTests,), {"environment": environment, "__module__": module})
