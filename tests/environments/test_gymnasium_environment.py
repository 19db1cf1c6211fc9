"""Any registered Gymnasium environment is played through its own interface, and what does not fit is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from pydantic import ValidationError

import evo
from evo.config.experiment import Experiment
from evo.config.identity import difference
from evo.environments import gymnasium as gymnasium_environment
from evo.environments.gymnasium import Options, make
from evo.errors import ConfigurationError
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins import registry
from evo.randomness.streams import Purpose, episode_keys
from evo.records import NOT_DETERMINISTIC, ActionRule, Episodes, Result, Task, WeightSource
from evo.rollouts.rollout import Rollout
from evo.run import generations
from evo.training.beginning import open_or_begin
from evo.training.session import Session
from tests.helpers.calling import called, small_with, summary_of


def cart_pole(**options: object) -> Rollout:
    environment = make(Options(id="gymnasium:CartPole-v1", **options))
    return Rollout(Network.build(Policy(kind="linear"), environment.shape, environment.actions), environment)


def play(rollout: Rollout, parents: np.ndarray, seeds: np.ndarray, rule: str = "greedy") -> Result:
    count = len(parents)
    rows, keys = np.arange(count, dtype=np.int32), np.zeros(count, np.uint64)
    source = WeightSource(rows, np.full(count, -1, np.int32), keys, np.zeros(count, np.float32))
    return rollout.play(Task(source, Episodes(seeds), ActionRule(rule), record_actions=True), parents)


# Push to the side that the pole falls to: scores are -w and +w of its angle and its speed.
BALANCE = np.array([[0, 0, 0, 0, -1, 1, -1, 1, 0, 0]], np.float32)
SEEDS = episode_keys(0, Purpose.TRAINING, 0, 5)


def test_the_shape_and_the_actions_are_the_environments_own() -> None:
    environment = make(Options(id="gymnasium:CartPole-v1"))
    assert (environment.shape, environment.actions, environment.episode_metrics) == ((4,), 2, ())


def test_returns_are_the_sums_of_the_rewards() -> None:
    result = play(cart_pole(max_steps=300), BALANCE, SEEDS)
    for e, seed in enumerate(SEEDS):
        env = gymnasium.make("CartPole-v1", max_episode_steps=300)
        env.reset(seed=int(seed) >> 33)
        rewards, ended = [], False
        for action in result.actions[e].tolist():
            assert not ended
            _, reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            ended = terminated or truncated
        assert ended
        assert result.returns[0, e] == sum(rewards)
        assert result.lengths[0, e] == len(rewards)
    assert result.returns.min() > 150
    assert result.frames == result.lengths.sum()


def test_the_actions_follow_the_scores_of_the_network() -> None:
    rollout = cart_pole(max_steps=40)
    result = play(rollout, np.concatenate([-BALANCE, BALANCE]), SEEDS)
    assert result.returns[0].max() < result.returns[1].min() == 40


def test_max_steps_truncates() -> None:
    assert play(cart_pole(max_steps=7), BALANCE, SEEDS).lengths.tolist() == [[7] * 5]


def test_an_episode_is_the_same_alone_and_in_company_and_another_seed_is_another() -> None:
    rollout = cart_pole(max_steps=60)
    weights = np.random.default_rng(0).standard_normal((2, 10)).astype(np.float32)
    together = play(rollout, weights, SEEDS, "softmax")
    for k in range(2):
        for e in range(5):
            alone = play(rollout, weights[k : k + 1], SEEDS[e : e + 1], "softmax")
            assert alone.actions[0].tolist() == together.actions[5 * k + e].tolist()
    assert len({tuple(trace.tolist()) for trace in together.actions}) > 5


@pytest.mark.parametrize("identifier", ["gymnasium:os:CartPole-v1", "gymnasium:", ""])
def test_a_name_that_would_import_a_module_is_refused(identifier: str) -> None:
    with pytest.raises(ValidationError, match="registered name"):
        Options(id=identifier)


@pytest.mark.parametrize("name", ["NoSuchThing-v0", "CartPole-v99", "CartPol-v1"])
def test_an_unknown_environment_is_a_mistake_in_the_configuration(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"environment\.id"):
        make(Options(id="gymnasium:" + name)).env()


class Choices(gymnasium.Env):
    """Shows what it was last told to do, and samples of a space."""

    def __init__(self, actions: gymnasium.Space, observations: gymnasium.Space | None = None, **options: Any) -> None:
        self.action_space, self.told = actions, np.zeros(1)
        self.observation_space = gymnasium.spaces.Box(0, 1, (2,)) if observations is None else observations

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.action_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.told = action
        return self.observation_space.sample(), 1.0, False, False, {}


SPACES = gymnasium.spaces
NUMBERS, TWO = SPACES.Box(-1, 1, (3,)), SPACES.Discrete(2)
TAKEN = {  # actions, what they become, an action, and what it is there
    "Late": (SPACES.Discrete(3, start=5), 3, 2, 7),
    "Several": (SPACES.MultiDiscrete([2, 3]), 6, 4, [1, 1]),
    "Grid": (SPACES.MultiDiscrete([[2, 3], [1, 4]], start=[[0, 1], [0, 0]]), 24, 23, [[1, 3], [0, 3]]),
    "Switches": (SPACES.MultiBinary(3), 8, 3, [0, 1, 1]),
    "Half": (SPACES.Box(-1, 1, (2,), np.float16), 2, np.array([0.25, 0.5], np.float16), [0.25, 0.5]),
    "One": (SPACES.Box(-1, 1, ()), 1, np.array([0.25], np.float32), 0.25),
    "Sheet": (SPACES.Box(-1, 1, (2, 2)), 4, np.arange(4, dtype=np.float32) / 4, [[0, 0.25], [0.5, 0.75]]),
}
SHOWN = {  # observations, and the shape that they become
    "Place": (SPACES.Discrete(16), (16,)),
    "Number": (SPACES.Box(-1, 1, ()), (1,)),
    "Parts": (SPACES.Dict({"a": SPACES.Discrete(3), "b": SPACES.Box(-1, 1, (2, 2))}), (7,)),
    "Pair": (SPACES.Tuple([SPACES.MultiBinary(4), SPACES.MultiDiscrete([2, 3])]), (9,)),
}
for name, (space, *_) in TAKEN.items():
    gymnasium.register(f"{name}-v0", Choices, max_episode_steps=3, kwargs={"actions": space})
for name, (space, _) in SHOWN.items():
    gymnasium.register(f"{name}-v0", Choices, max_episode_steps=3, kwargs={"actions": TWO, "observations": space})
gymnasium.register("Most-v0", Choices, kwargs={"actions": SPACES.Discrete(128)})
gymnasium.register("Many-v0", Choices, kwargs={"actions": SPACES.Discrete(129)})
gymnasium.register("Buttons-v0", Choices, kwargs={"actions": SPACES.MultiBinary(8)})
gymnasium.register("Boundless-v0", Choices, kwargs={"actions": SPACES.Box(-np.inf, np.inf, (2,))})
POINT = SPACES.Box(np.float32([-1, 1]), np.float32([1, 1]))
gymnasium.register("Point-v0", Choices, kwargs={"actions": POINT}, disable_env_checker=True)  # which warns of it
gymnasium.register("Whole-v0", Choices, kwargs={"actions": SPACES.Box(0, 3, (2,), np.int64)})
gymnasium.register("List-v0", Choices, kwargs={"actions": TWO, "observations": SPACES.Sequence(NUMBERS)})


def test_as_many_choices_as_a_byte_holds_are_taken() -> None:
    assert make(Options(id="gymnasium:Most-v0")).actions == 128


@pytest.mark.parametrize(
    ("name", "what"),
    [("Buttons-v0", "combinations"), ("Many-v0", "at most 128"), ("List-v0", "obs")],
)
def test_spaces_that_do_not_fit_are_named(name: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        make(Options(id="gymnasium:" + name)).env()


@pytest.mark.parametrize("name", ["Late-v0", "Several-v0", "Switches-v0", "Whole-v0", "Boundless-v0", "Point-v0"])
def test_only_numbers_with_bounds_are_scaled(name: str) -> None:
    make(Options(id=f"gymnasium:{name}")).env()
    with pytest.raises(ConfigurationError, match="only a Box of floats with finite bounds can be scaled"):
        make(Options(id=f"gymnasium:{name}", rescale_actions=True)).env()


@pytest.mark.long
@pytest.mark.parametrize("name", TAKEN)
def test_actions_of_every_kind_reach_the_environment(name: str) -> None:
    _, count, action, there = TAKEN[name]
    environment = make(Options(id=f"gymnasium:{name}-v0"))
    assert environment.actions == count
    env = environment.env()
    env.reset(seed=1)
    env.step(action)
    np.testing.assert_array_equal(env.unwrapped.told, there)
    network = Network.build(Policy(kind="linear"), environment.shape, environment.actions)
    zeros = np.zeros((1, network.size), np.float32)
    assert play(Rollout(network, environment), zeros, SEEDS).lengths.tolist() == [[3] * len(SEEDS)]


@pytest.mark.parametrize("name", [*TAKEN, *SHOWN])
def test_a_policy_acts_in_the_environment_of_its_run_whatever_the_spaces_are(name: str) -> None:
    experiment = Experiment.build(environment={"id": f"gymnasium:{name}-v0"}, policy={"kind": "linear"})
    network = experiment.network()
    weights = np.random.default_rng(1).normal(0, 9, network.size).astype(np.float32)
    policy, env = evo.Policy(network, weights, experiment), experiment.make_environment().env()
    over, observation = False, env.reset(seed=1)[0]
    while not over:
        observation, _, _, over, _ = env.step(policy(observation))  # which asserts that its space has the action


@pytest.mark.parametrize("name", SHOWN)
def test_observations_that_are_no_arrays_are_flattened(name: str) -> None:
    space, shape = SHOWN[name]
    environment = make(Options(id=f"gymnasium:{name}-v0"))
    assert environment.shape == shape
    seen, _ = environment.env().reset(seed=4)
    space.seed(4)
    np.testing.assert_array_equal(seen, SPACES.flatten(space, space.sample()))


def test_the_newest_observations_are_shown_beside_each_other() -> None:
    one, three = (make(Options(id="gymnasium:CartPole-v1", stack=stack)) for stack in (1, 3))
    assert (one.shape, three.shape) == ((4,), (12,))
    single, stacked = one.env(), three.env()
    shown = [single.reset(seed=1)[0]] * 3
    np.testing.assert_array_equal(stacked.reset(seed=1)[0], np.concatenate(shown))
    for action in (0, 1, 1):
        shown = [*shown[1:], single.step(action)[0]]
        np.testing.assert_array_equal(stacked.step(action)[0], np.concatenate(shown))
    assert "stack" not in one.options.model_dump()
    assert three.options.model_dump()["stack"] == 3


def test_observations_are_normalised_by_those_of_random_play() -> None:
    usual, normal = (make(Options(id="gymnasium:Pendulum-v1", normalise=steps)) for steps in (0, 2000))
    shown = []
    for environment in (usual, normal, make(normal.options)):  # the last in another process, as it were
        env = environment.env()
        env.action_space.seed(3)
        env.reset(seed=5)
        shown.append(np.array([env.step(env.action_space.sample())[0] for _ in range(200)]))
    mean, deviation = shown[1].mean(axis=0), shown[1].std(axis=0)
    assert (np.abs(mean) < 0.6).all(), mean
    assert ((deviation > 0.4) & (deviation < 1.6)).all(), deviation  # the speed of the raw ones varies by 3
    assert shown[0].std(axis=0)[2] > 2
    steepness = (shown[1][1:] - shown[1][:-1]) / (shown[0][1:] - shown[0][:-1])
    np.testing.assert_allclose(steepness, np.broadcast_to(np.median(steepness, axis=0), steepness.shape), rtol=0.05)
    np.testing.assert_array_equal(shown[1], shown[2])


def test_observations_are_normalised_alike_in_training_and_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(id="gymnasium:MountainCar-v0", normalise=300, training={"max_steps": 20})
    played: list[int] = []
    sampled = gymnasium_environment.normalisation_of

    def counted(env: Any, steps: int) -> Any:
        played.append(steps)
        return sampled(env, steps)

    monkeypatch.setattr(gymnasium_environment, "normalisation_of", counted)
    first = [make(some).env().reset(seed=3)[0] for some in (options, *options.in_training(), options)]
    assert played == [300]
    np.testing.assert_array_equal(first[0], first[1])
    for other in ({"normalise": 20}, {"kwargs": {"goal_velocity": 1.0}}):
        with pytest.raises(ValidationError, match="where observations are normalised"):
            Options(id="gymnasium:MountainCar-v0", normalise=300, training=other)


def test_what_is_not_normalised_is_no_part_of_what_a_run_is() -> None:
    assert "normalise" not in Options(id="gymnasium:CartPole-v1").model_dump()
    assert Options(id="gymnasium:CartPole-v1", normalise=5).track == {"stack": 1, "normalise": 5}


@pytest.mark.parametrize(("name", "what"), [("Infinite-v0", "not finite"), ("Breaking-v0", "ZeroDivisionError")])
def test_random_play_that_gives_no_scale_is_a_mistake_in_the_configuration(name: str, what: str) -> None:
    class Odd(gymnasium.Env):  # type: ignore[type-arg]
        observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.full(2, np.inf if name == "Infinite-v0" else 1 // 0, np.float32), 0.0, False, False, {}

    gymnasium.register(name, Odd, max_episode_steps=5, disable_env_checker=True)
    try:
        with pytest.raises(ConfigurationError, match=f"environment.normalise: .*{what}"):
            make(Options(id=f"gymnasium:{name}", normalise=10)).env()
    finally:
        del gymnasium.registry[name]


@pytest.fixture
def rich() -> Iterator[None]:
    """Register CartPole with other rewards."""

    def make_rich(reward: float, **options: object) -> gymnasium.Env:
        return gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1", **options), lambda _: reward)

    gymnasium.register("Rich-v0", make_rich)
    yield
    del gymnasium.registry["Rich-v0"]


@pytest.mark.usefixtures("rich")
@pytest.mark.parametrize("reward", [1e-5, 1e12, 2.0**-900, 1e147, 1e150, 1e308])
def test_returns_of_any_size_are_kept_and_what_float64_cannot_hold_is_not_finite(reward: float) -> None:
    environment = make(Options(id="gymnasium:Rich-v0", kwargs={"reward": reward}))
    rollout = Rollout(Network.build(Policy(kind="linear"), environment.shape, environment.actions), environment)
    result = play(rollout, BALANCE, SEEDS)
    if reward >= 1e150:  # of which the squares, too, are finite
        assert not result.finite[0]
        assert (result.returns == -np.inf).all()
    else:
        assert result.returns[0].tolist() == [np.cumsum(np.full(length, reward))[-1] for length in result.lengths[0]]


FEW = {
    **{name: {"population": 8, "episodes": 2} for name in registry.names("algorithms")},
    "ga": {"population": 8, "parents": 3, "elites": 2, "episodes": 2, "memory": 3},
    "nsga2": {"population": 8, "survivors": 4, "episodes": 2},
    "map_elites": {"population": 12, "reevaluated": 4, "episodes": 2, "high": [50.0], "check_every": 2},
    "cma_me": {"population": 20, "emitters": 2, "reevaluated": 4, "episodes": 2, "high": [50.0]},
    "es": {"population": 8, "parents": 3, "episodes": 2},
    "gp": {"population": 12, "elites": 2, "episodes": 2},
    "sep_cma_es": {"population": 8, "episodes": 2, "restart_after": 1},
}


@pytest.mark.usefixtures("rich")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("ga", "sep_cma_es") else [pytest.mark.long])
        for name in registry.names("algorithms")
        if not registry.find("algorithms", name).Options.learns
    ],
)
def test_every_search_selects_alike_whatever_the_size_of_rewards(name: str, tmp_path: Path) -> None:
    found = []
    for reward in (2.0**-40, 2.0**50):
        experiment = Experiment.build(
            run={"algorithm": name, "generations": 3},
            environment={"id": "gymnasium:Rich-v0", "kwargs": {"reward": reward}, "max_steps": 40},
            policy={"layers": ["tree 3"]} if name == "gp" else {"kind": "linear"},
            workers={"backend": "serial"},
            validation={"episodes": 4, "every": 1},
            test={"episodes": 4},
            **{name: FEW[name]},
        )
        directory = tmp_path / str(reward)
        with open_or_begin(experiment, directory) as store, Session(experiment, store) as session:
            rows = list(generations(session))
            assert session.algorithm.best is not None
            found.append((session.algorithm.best.tobytes(), session.algorithm.fitness / reward))
            assert rows[-1].metrics["mean"] / reward > 5
    assert found[0] == found[1]
    assert "agrees" in called(tmp_path, "verify", str(directory), program="evo")[0]


MODULE = """
import gymnasium
import numpy as np

class Walk(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (2,)), gymnasium.spaces.Discrete(2)
    def __init__(self, length=5):
        self.length = length
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        generator = {generator}
        self.place, self.steps = generator.normal(size=2).astype(np.float32), 0
        return self.place, {{}}
    def step(self, action):
        self.place, self.steps = self.place + np.float32(0.1 * action), self.steps + 1
        return self.place, float(self.place[0]), self.steps >= self.length, False, {{}}

gymnasium.register("{name}/Walk-v0", Walk)
"""


def registered(tmp_path: Path, name: str, generator: str = "self.np_random") -> tuple[object, ...]:
    """Write a module that registers an environment, and an experiment in it; return how to run that."""
    (tmp_path / f"{name}.py").write_text(MODULE.format(generator=generator, name=name))
    (tmp_path / "small.toml").write_text(small_with(environment=f'id = "gymnasium:{name}/Walk-v0"'))
    return ("small.toml", "--plugin", name, "--generations", 1, "--run-dir", "run")


@pytest.mark.long
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_a_module_that_registers_environments_is_named_by_plugin(tmp_path: Path, backend: str) -> None:
    words = registered(tmp_path, f"walks_{backend}")
    length = ("--set", "environment.kwargs={length = 7}")
    summary = summary_of(tmp_path, *words, *length, "--backend", backend, "--workers", 1)
    assert summary["champion"]["test"]["mean_length"] == 7
    plugin = words[1:3]
    evaluated = called(tmp_path, "evaluate", "run", *plugin, "--episodes", 3, "--json", program="evo")[0]
    assert json.loads(evaluated)["mean_length"] == 7
    assert "agrees: 1 generation" in called(tmp_path, "verify", "run", *plugin, program="evo")[0]
    with pytest.raises(ConfigurationError, match="registered name; name its module with --plugin"):
        Experiment.load(tmp_path / "small.toml", f"environment.id=gymnasium:walks_{backend}:Walk-v0")


@pytest.mark.long
@pytest.mark.parametrize("commands", [("verify",), ("evaluate", "report")], ids=["verify", "others"])
def test_a_run_of_a_registered_environment_is_not_accused_without_the_module(
    tmp_path: Path, commands: tuple[str, ...]
) -> None:
    words = registered(tmp_path, "other_walks")
    (tmp_path / "variants.py").write_text(
        "import gymnasium, other_walks\n"
        "gymnasium.register('variants/Walk-v0', other_walks.Walk, kwargs={'length': 3})\n"
    )
    variant = ("--set", "environment.id=gymnasium:variants/Walk-v0", "--plugin", "variants", "--generations", 1)
    summary_of(
        tmp_path, words[0], *variant, "--run-dir", "run", apart=True
    )  # registered by another module than its own
    for command in commands:
        line = [sys.executable, "-m", "evo", command, "run"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert "DIFFERS" not in done.stdout
        assert "--plugin MODULE" in done.stderr


def test_an_environment_that_cannot_be_made_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = registered(tmp_path, "closed_walks")
    source = (tmp_path / "closed_walks.py").read_text()
    (tmp_path / "closed_walks.py").write_text(source.replace("self.length = length", "raise KeyError(length)"))
    monkeypatch.chdir(tmp_path)
    told = r"environment\.id: making closed_walks/Walk-v0 raised KeyError: 5 \(closed_walks\.py:8\)"
    with pytest.raises(ConfigurationError, match=told):
        Experiment.load(tmp_path / str(words[0]), plugins=["closed_walks"])


def test_arguments_of_an_environment_are_part_of_what_a_run_is(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text('[environment]\nid = "gymnasium:CartPole-v1"\n[policy]\nkind = "mlp"\n')
    plain = Experiment.load(tmp_path / "small.toml")
    assert plain.identity()["environment"] == {
        "id": "gymnasium:CartPole-v1",
        "max_steps": 0,
    }
    other = Experiment.load(tmp_path / "small.toml", "environment.kwargs={sutton_barto_reward = true}")
    assert difference(plain.identity(), other.identity()) == [
        "environment.kwargs.sutton_barto_reward: nothing in the run, true now"
    ]
    (tmp_path / "again.toml").write_text(other.to_toml())
    assert Experiment.load(tmp_path / "again.toml") == other
    with pytest.raises(
        ConfigurationError, match=r"environment\.kwargs: making CartPole-v1 raised TypeError: .*'colour'"
    ):
        Experiment.load(tmp_path / "small.toml", "environment.kwargs={colour = 1}")


def test_an_environment_that_ignores_its_seed_in_training_alone_is_noticed(tmp_path: Path) -> None:
    words = registered(tmp_path, "sometimes", "np.random.default_rng() if self.length == 9 else self.np_random")
    assert called(tmp_path, *words)[0]
    assert not (tmp_path / "run" / "fingerprint").exists()
    for number, training in enumerate(("{kwargs = {length = 9}}", "[{}, {kwargs = {length = 9}}]")):
        others = [*words[:-1], f"run{number}", "--set", f"environment.training={training}"]
        called(tmp_path, *others)
        assert (tmp_path / f"run{number}" / "fingerprint").read_text() == NOT_DETERMINISTIC


def test_an_environment_that_ignores_its_seed_is_noticed_at_the_start_and_is_no_forgery(tmp_path: Path) -> None:
    words = registered(tmp_path, "random_walks", "np.random.default_rng()")
    noted = "note: the environment is not deterministic under its seed: this run cannot be repeated or verified\n"
    assert called(tmp_path, *words)[1].count(noted) == 1
    assert (tmp_path / "run" / "fingerprint").read_text() == NOT_DETERMINISTIC
    out = called(tmp_path, "verify", "run", *words[1:3], program="evo")[0]
    assert "unknown  not replayable: the environment is not deterministic under its seed" in out
    normalised = *words[:-1], "normalised", "--set", "environment.normalise=20"
    told = called(tmp_path, *normalised, code=2)[1]
    assert "environment.normalise: random play: the environment does not follow the seed of its reset" in told
    assert told.count("\n") == 1
    assert not (tmp_path / "normalised").exists()
    steady = registered(tmp_path, "steady_walks")
    assert noted not in called(tmp_path, *steady[:-1], "steady")[1]
    assert not (tmp_path / "steady" / "fingerprint").exists()


def test_a_dry_run_refuses_what_a_run_refuses(tmp_path: Path) -> None:
    (tmp_path / "swing.toml").write_text('[environment]\nid = "gymnasium:Pendulum-v1"\n[policy]\nkind = "mlp"\n')
    for words in (("--dry-run",), ("--run-dir", "run")):
        err = called(tmp_path, "swing.toml", "--algorithm", "dqn", *words, code=2)[1]
        assert err.startswith("--algorithm: Q-learning chooses among discrete actions")
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_an_environment_that_changes_its_arguments_gets_them_anew_each_time(tmp_path: Path) -> None:
    class Taking(gymnasium.envs.classic_control.CartPoleEnv):
        def __init__(self, config: dict[str, Any], lengths: list[float]) -> None:
            super().__init__()
            self.length = config.pop("length") + lengths.pop()

    gymnasium.register("Taking-v0", Taking, max_episode_steps=9)
    kwargs = {"config": {"length": 0.4}, "lengths": [0.1, 0.2]}
    few = {"population": 4, "parents": 2, "episodes": 2}
    try:
        experiment = Experiment.build(
            run={"generations": 1}, environment={"id": "gymnasium:Taking-v0", "kwargs": kwargs}, ga=few,
            policy={"kind": "linear"}, workers={"backend": "serial"}, validation={"episodes": 2}, test={"episodes": 2},
        )  # fmt: skip
        assert len([*evo.train(experiment, tmp_path / "run")]) == 1
        assert experiment.environment.kwargs == kwargs
        assert evo.Run(tmp_path / "run").notes == []
    finally:
        gymnasium.registry.pop("Taking-v0")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kwargs": {"a": None}}, "kwargs: a is None, which no experiment file can say; leave it out"),
        ({"kwargs": {"a": [1, {"b": None}]}}, r"kwargs: a\[1\].b is None"),
        ({"training": {"max_steps": None}}, "training: max_steps"),
        ({"kwargs": {"a": {1, 2}}}, "kwargs.a: must be text, a number, true, false, a list or a table, not {1, 2}"),
        ({"kwargs": {"a": {"b": ["\udcff"]}}}, "kwargs: is not UTF-8, as all of an experiment is"),  # a name of a file
        ({"kwargs": {"\udcff": 1}}, "kwargs: is not UTF-8"),
        ({"training": {"kwargs": {"a": "\udcff"}}}, "training: is not UTF-8"),
    ],
)
def test_a_value_that_no_file_can_have_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"environment\.{said}"):
        Experiment.build(environment={"id": "gymnasium:CartPole-v1", **options}, policy={"kind": "linear"})
