"""What every environment and every game must do: pytest finds these tests in classes that functions make."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from evo.environment import Environment
from evo.games.game import GameEnvironment
from evo.games.plain import PlainGame, action_space, observation_space, random_action
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins import mistakes, registry
from evo.records import GOES_ON, TERMINATED, TRUNCATED, ActionRule, Episodes, Result, Segment, Task, WeightSource
from evo.rollouts.gymnasium_episodes import seed_check
from evo.rollouts.rollout import Rollout
from evo.rollouts.segments import replay_segment

EMPTY = np.empty((0, 0), np.float32)
SEEDS = np.arange(20, dtype=np.uint64)
FRESH = replace(WeightSource.of_row(-1), keys=np.array([5], np.uint64))  # a network without a parent


def rollout_of(environment: Environment) -> Rollout:
    """Return a rollout of a network with a hidden layer of 8 units."""
    policy, spreads = Policy(kind="mlp", dense=[8]), environment.actions if environment.continuous else 0
    return Rollout(Network.build(policy, environment.shape, environment.actions, spreads), environment)


class EnvironmentTests:
    """The tests; `environment` is what is tested."""

    environment: Environment
    module: str

    def _played(self, seeds: Any) -> Result:
        rule = ActionRule("gaussian" if self.environment.continuous else "softmax")
        return rollout_of(self.environment).play(Task(FRESH, Episodes(seeds), rule, record_transitions=True), EMPTY)

    def test_it_says_what_it_is(self) -> None:
        """Shape, actions and the names of metrics are of the types that the trainer expects."""
        mistakes.check_environment(self.environment, self.module)

    def test_a_seed_names_an_episode(self) -> None:
        """Environments do the same after a reset with the same seed, fresh ones and others."""
        assert seed_check(self.environment) == ""

    def test_an_episode_does_not_depend_on_those_beside_it(self) -> None:
        """Episodes that are played together or alone have the same returns and lengths."""
        together = self._played(SEEDS[:4])
        for e in range(4):
            alone = self._played(SEEDS[e : e + 1])
            assert together.returns[0, e] == alone.returns[0, 0]
            assert together.lengths[0, e] == alone.lengths[0, 0]

    def test_episodes_end_and_their_numbers_are_finite(self) -> None:
        """Every episode has an end, and observations and rewards are numbers."""
        played = self._played(SEEDS[:4])
        assert played.finite.all()
        steps: Any = played.transitions
        assert np.isfinite(steps.rewards).all()
        assert (steps.ends > 0).sum() == 4


class PlainEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """One environment of a game in plain Python, behind Gymnasium's interface."""

    def __init__(self, game: PlainGame) -> None:
        self.game, self.masked = game, game.definition.masks_actions(game.options)
        self.observation_space = observation_space(game.definition, game.options)
        self.action_space = action_space(game.definition, game.actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin the episode of `seed`, or of one that is drawn."""
        super().reset(seed=seed)
        self.game.begin(0, int(self.np_random.integers(1 << 63)) if seed is None else seed)
        return self.game.observe(0), self._info(GOES_ON)

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Play an action."""
        reward, status = self.game.step(0, action)
        seen = self.game.observe(0)
        return seen, round(reward * 1000) / 1000, status == TERMINATED, status == TRUNCATED, self._info(status)

    def _info(self, status: int) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if self.masked:
            info["action_mask"] = self.game.mask(0)
        metrics = dict(zip(self.game.definition.episode_metrics, self.game.metrics(0).tolist(), strict=True))
        over, live = status != GOES_ON, self.game.definition.live_metrics
        info |= {name: value for name, value in metrics.items() if over or name in live}
        return info


class Plain(GameEnvironment):
    """A game of which nothing is compiled."""

    game = None

    def env(self, render_mode: str | None = None) -> PlainEnv:
        """Return the game in plain Python."""
        return PlainEnv(self.plain())


class GameTests:
    """The tests; `environment` is the game with the options that are tested."""

    environment: GameEnvironment

    @property
    def _rule(self) -> ActionRule:
        return ActionRule("gaussian" if self.environment.continuous else "softmax")

    def test_the_game_keeps_the_contract(self) -> None:
        """No mistake is found in a few episodes."""
        self.environment.check()

    def test_compiled_episodes_are_those_of_plain_python(self) -> None:
        """Returns, lengths, metrics, observations, masks, actions, rewards and ends agree bit for bit.

        Of several players, the moves of all are played again, and returns, lengths and metrics are compared.
        """
        if self.environment.players > 1:
            self._hold_matches()
            return
        task = Task(FRESH, Episodes(SEEDS), self._rule, record_actions=True, record_transitions=True)
        twin = Plain(self.environment.definition, self.environment.options)
        compiled, plain = rollout_of(self.environment).play(task, EMPTY), rollout_of(twin).play(task, EMPTY)
        np.testing.assert_array_equal(compiled.returns, np.rint(1000 * plain.returns), "returns")
        for name in ("lengths", "episode_metrics"):
            np.testing.assert_array_equal(getattr(compiled, name), getattr(plain, name), name)
        mine: Any = compiled.transitions
        theirs: Any = plain.transitions
        game = self.environment.game
        np.testing.assert_array_equal(game.observe(mine.observations), theirs.observations, "observations")
        np.testing.assert_array_equal(game.observe(mine.next_observations), theirs.next_observations)
        for name in ("actions", "rewards", "ends", "outputs"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), name)
        ours, other = (1 if steps.action_masks is None else steps.action_masks for steps in (mine, theirs))
        np.testing.assert_array_equal(ours, other, "action_masks")

    def test_segments_go_on_from_snapshots_and_are_replayed(self) -> None:
        """Two segments are the halves of one of twice the length, and a replay of the actions gives the same."""
        rollout, game = rollout_of(self.environment), self.environment.game
        envs = game.begin(SEEDS)
        whole = rollout.play(Task(FRESH, Segment(envs, 60), self._rule), EMPTY)
        first = rollout.play(Task(FRESH, Segment(envs, 30), self._rule), EMPTY)
        assert first.envs is not None
        second = rollout.play(Task(FRESH, Segment(first.envs, 30), self._rule), EMPTY)
        for name in ("observations", "actions", "rewards"):
            halves = [_by_env(result, name, 30) for result in (first, second)]
            np.testing.assert_array_equal(np.concatenate(halves, axis=1), _by_env(whole, name, 60), name)
        if self.environment.players > 1:  # only the candidate's moves are recorded
            return
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

    def _hold_matches(self) -> None:
        played = rollout_of(self.environment).play(Task(FRESH, Episodes(SEEDS), self._rule, record_actions=True), EMPTY)
        assert played.actions is not None
        for e, seed in enumerate(SEEDS.tolist()):
            game, total, status = self.environment.plain(), 0, GOES_ON
            game.begin(0, seed)
            for action in played.actions[e].tolist():
                assert status == GOES_ON
                reward, status = game.step(0, action)
                total += round(1000 * reward)
            assert status != GOES_ON
            assert (total, len(played.actions[e])) == (played.returns[0, e], played.lengths[0, e])
            np.testing.assert_array_equal(game.metrics(0), played.episode_metrics[0, e])

    def _hold_vector(self, mode: AutoresetMode) -> None:
        vector, count = self.environment.vector_env(4, autoreset_mode=mode), 4
        singles = [self.environment.env() for _ in range(count)]
        seen, _ = vector.reset(seed=7)
        alone = [env.reset(seed=7 + i)[0] for i, env in enumerate(singles)]
        ended = np.zeros(count, np.bool_)
        for step in range(100):
            where = f"{mode}, step {step}"
            np.testing.assert_array_equal(seen, np.stack(alone), where)
            game, choices = self.environment.definition, self.environment.actions
            actions = np.stack([random_action(game, choices, None, i, step) for i in range(count)])
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
    name = registry.known("environments", module)
    found = registry.find("environments", name)
    environment = found.make(found.Options(id=name, **options))
    return type("GameTests", (GameTests,), {"environment": environment, "__module__": module})


def environment_tests(identifier: str, *, plugin: str | Sequence[str] = (), **options: Any) -> type[EnvironmentTests]:
    """Return a class of tests of an environment by its id, with options; `plugin` names modules to load."""
    registry.load([plugin] if isinstance(plugin, str) else plugin)
    found = registry.find("environments", registry.module_of(identifier))
    environment = found.make(found.Options(id=identifier, **options))
    return type("EnvironmentTests", (EnvironmentTests,), {"environment": environment, "module": identifier})
