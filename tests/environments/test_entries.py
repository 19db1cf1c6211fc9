"""Arrays of Dict and Tuple observations: shown flat, each as if alone, and learned by layers of their own."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.utils.env_checker import check_env

import evo
from evo.config.experiment import Experiment
from evo.environments.gymnasium import Options, make
from evo.environments.instances import Instance
from evo.errors import ConfigurationError
from tests.helpers.calling import called

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SMALL = ("workers.backend=serial", "validation.episodes=4", "test.episodes=4", "test.every=0", "policy.dense=[4]")


class Several(gymnasium.Env[dict[str, Any], int]):
    """Shows a picture with channels first, choices and numbers in a Tuple, and a picture without channels."""

    def __init__(self, space: Any = None) -> None:
        inner = Tuple((Discrete(3), Box(-1, 1, (2,))))
        self.observation_space = space or Dict(
            {"picture": Box(0, 255, (3, 4, 5), np.uint8), "inner": inner, "grey": Box(0, 255, (4, 5), np.uint8)}
        )
        self.action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 1.0, False, False, {}


@pytest.fixture(autouse=True, scope="module")
def several() -> Iterator[None]:
    gymnasium.register("Entries-v0", Several)
    yield
    gymnasium.registry.pop("Entries-v0")


def arrays(seen: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return what a network sees of each array."""
    return {
        "picture": np.moveaxis(seen["picture"], 0, -1).astype(np.float32) / np.float32(255),
        "inner.0": np.eye(3, dtype=np.float32)[seen["inner"][0]],
        "inner.1": seen["inner"][1],
        "grey": seen["grey"][..., None].astype(np.float32) / np.float32(255),
    }


@pytest.mark.parametrize("stack", [1, 2])
def test_entries_are_shown_side_by_side_each_as_if_alone(stack: int) -> None:
    environment = make(Options(id="gymnasium:Entries-v0", stack=stack))
    assert environment.entries == {
        "picture": (4, 5, 3 * stack), "inner.0": (3 * stack,), "inner.1": (2 * stack,), "grey": (4, 5, stack),
    }  # fmt: skip
    assert environment.shape == (85 * stack,)
    assert "are whole numbers from 0 to 255, which are divided by 255" in environment.notices[0]
    assert all(f'"{name}"' in environment.notices[0] for name in ("picture", "grey"))
    assert environment.recorded_as is None
    env, raw = environment.env(), Several()
    seen, frames = env.reset(seed=3)[0], [arrays(raw.reset(seed=3)[0])]
    if stack > 1:
        seen, frames = env.step(0)[0], [*frames, arrays(raw.step(0)[0])]
    assert seen.dtype == np.float32
    expected = [np.concatenate([frame[name] for frame in frames], axis=-1).ravel() for name in environment.entries]
    np.testing.assert_array_equal(seen, np.concatenate(expected))


@pytest.mark.parametrize(
    ("name", "shown", "said"),
    [
        ("picture", np.zeros((4, 5, 3), np.uint8), r'\["picture"\] of shape \(4, 5, 3\) in step 2; its shape must be'),
        ("picture", np.full((3, 4, 5), 256), r'\["picture"\] array.* in step 2; it must be of Box\(0, 255'),
        ("grey", np.full((4, 5), 0.5), r'\["grey"\] array.* in step 2; it must be of Box\(0, 255'),
        ("inner", (-1, np.zeros(2)), r'the observation\["inner.0"\] -1 in step 2; it must be of Discrete\(3\)'),
        (
            "inner",
            (2**70, np.zeros(2)),
            r'the observation\["inner.0"\] 1180591620717411303424 in step 2; it must',
        ),
        ("inner", (1, np.zeros((2, 2))), r'\["inner.1"\] of shape \(2, 2\) in step 2; its shape must be \(2,\)'),
        ("inner", (1, "ab"), r"\[\"inner.1\"\] 'ab' in step 2; it must be numbers of shape \(2,\)"),
        ("inner", (1,), "in step 2; it must have the entries grey, inner.0, inner.1, picture"),
    ],
)
@pytest.mark.parametrize("stack", [1, 2])
def test_an_entry_that_is_not_of_its_space_is_named(stack: int, name: str, shown: Any, said: str) -> None:
    one = Instance.of(make(Options(id="gymnasium:Entries-v0", stack=stack)))
    one.reset(1)
    assert one.step(0) == 0
    env = one._own
    env.step = lambda action: ({**env.observation_space.sample(), name: shown}, 1.0, False, False, {})
    with pytest.raises(ConfigurationError, match=rf"^plug-in .*: Several.step gave .*{said}"):
        one.step(0)


@pytest.mark.parametrize(
    ("space", "shown", "said"),
    [
        (Discrete(3, start=2), 1, "observation 1 in step 2; it must be of Discrete"),
        (MultiDiscrete([3, 4]), np.array([3, 0]), "in step 2; it must be of MultiDiscrete"),
        (MultiBinary(2), [0, 2], "in step 2; it must be of MultiBinary"),
        (Box(0, 255, (3, 4, 5), np.uint8), np.full((3, 4, 5), -1), "in step 2; it must be of Box"),
    ],
)
def test_an_observation_that_is_not_of_its_space_is_named(space: Any, shown: Any, said: str) -> None:
    gymnasium.register("Alone-v0", type("Alone", (Several,), {"__init__": lambda self: Several.__init__(self, space)}))
    try:
        one = Instance.of(make(Options(id="gymnasium:Alone-v0")))
        one.reset(1)
        assert one.step(0) == 0
        one._own.step = lambda action: (shown, 1.0, False, False, {})
        with pytest.raises(ConfigurationError, match=said):
            one.step(0)
    finally:
        gymnasium.registry.pop("Alone-v0")


@pytest.mark.parametrize("space", [Box(-99, 99, (2,)), Dict(a=Box(-99, 99, (2,)))])
@pytest.mark.filterwarnings("ignore:.*share an object")
def test_a_stack_has_what_was_shown_where_an_environment_changes_its_array(space: Any) -> None:
    class Counting(Several):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.array = np.zeros(2, np.float32)
            return ({"a": self.array} if isinstance(space, Dict) else self.array), {}

        def step(self, action: int) -> Any:
            self.array += 1
            return ({"a": self.array} if isinstance(space, Dict) else self.array), 1.0, False, False, {}

    gymnasium.register("Alone-v0", lambda: Counting(space))
    try:
        one = Instance.of(make(Options(id="gymnasium:Alone-v0", stack=2)))
        one.reset(1)
        assert [one.step(0), one.step(0)] == [0, 0]
        assert one.observation.tolist() == [1, 1, 2, 2]
    finally:
        gymnasium.registry.pop("Alone-v0")


@pytest.fixture(params=[1, 0], ids=["one", "normalised"])
def policy(request: pytest.FixtureRequest) -> evo.Policy:
    experiment = Experiment.build(
        environment={"id": "gymnasium:Entries-v0", "normalise": 0 if request.param else 20}, policy={"kind": "linear"}
    )
    weights = np.random.default_rng(1).normal(size=experiment.network().size).astype(np.float32)
    return evo.Policy(experiment.network(), weights, experiment)


@pytest.mark.long
def test_a_policy_takes_observations_as_the_environment_gives_them(policy: evo.Policy) -> None:
    vector = gymnasium.make_vec("Entries-v0", num_envs=3, vectorization_mode="sync")
    batch, one = vector.reset(seed=5)[0], Several().reset(seed=5)[0]
    expected = policy.scores(policy._environment.env().reset(seed=5)[0])
    assert np.ptp(expected) > 0
    np.testing.assert_array_equal(policy.scores(one), expected)
    np.testing.assert_array_equal(policy.scores(batch)[0], expected)
    assert policy(batch).shape == (3,)


def test_a_policy_takes_a_tuple_and_a_batch_of_them() -> None:
    experiment = Experiment.build(environment={"id": "gymnasium:Blackjack-v1"}, policy={"kind": "linear"})
    weights = np.arange(experiment.network().size, dtype=np.float32)
    policy = evo.Policy(experiment.network(), weights, experiment)
    one = policy.scores((14, 2, 1))
    np.testing.assert_array_equal(policy.scores((np.array([3, 14]), np.array([1, 2]), np.array([0, 1])))[1], one)
    np.testing.assert_array_equal(policy.scores(np.eye(45, dtype=np.float32)[[14, 34, 44]].sum(0)), one)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"grey": None}, r"it must have the entries grey, inner.0, inner.1, picture"),
        ({"grey": np.zeros((5, 4))}, r'"grey"\] of shape \(5, 4\); \(4, 5\) or \(B, 4, 5\) fit, alike in all'),
        ({"grey": np.zeros((2, 4, 5))}, r'"inner.0"\] of shape \(\); \(\) or \(B,\) fit, alike in all entries'),
        ({"inner": (3, np.zeros(2))}, r'"inner.0"\] 3; it must be of Discrete\(3\)'),
    ],
)
def test_a_policy_names_what_does_not_fit(policy: evo.Policy, change: dict[str, Any], said: str) -> None:
    seen = {**Several().reset(seed=5)[0], **change}
    with pytest.raises(ValueError, match=said) as error:
        policy({name: part for name, part in seen.items() if part is not None})
    assert len(str(error.value).splitlines()) == 1


def test_a_policy_of_arrays_takes_no_dict_and_one_of_a_stack_no_single_frame() -> None:
    for options, error, said in (
        ({"id": "gymnasium:CartPole-v1"}, TypeError, "tables"),
        ({"id": "gymnasium:Entries-v0", "stack": 2}, ValueError, "environment.stack = 2 a network sees several"),
    ):
        experiment = Experiment.build(environment=options, policy={"kind": "linear"})
        policy = evo.Policy(experiment.network(), np.zeros(experiment.network().size, np.float32), experiment)
        with pytest.raises(error, match=said):
            policy(Several().reset(seed=5)[0])


@pytest.mark.parametrize("normalise", [0, 20])
def test_a_policy_takes_pixels_as_the_environment_gives_them(normalise: int) -> None:
    gymnasium.register("Picture-v0", lambda: Several(Box(0, 255, (4, 5, 3), np.uint8)))
    try:
        options = {"id": "gymnasium:Picture-v0", "normalise": normalise}
        experiment = Experiment.build(environment=options, policy={"kind": "linear"})
        weights = np.random.default_rng(1).normal(size=experiment.network().size).astype(np.float32)
        policy, raw = evo.Policy(experiment.network(), weights, experiment), gymnasium.make("Picture-v0")
        one, seen = raw.reset(seed=5)[0], policy._environment.env().reset(seed=5)[0]
        assert (one.dtype, seen.dtype) == (np.uint8, np.float32)
        expected = policy.scores(seen)
        for given in (seen, one, one.astype(np.int64)):
            np.testing.assert_array_equal(policy.scores(given), expected)
        np.testing.assert_array_equal(policy.scores(np.stack([0 * one, one]))[1], expected)
        with pytest.raises(ValueError, match=r"of shape \(5, 4, 3\), where \(4, 5, 3\)"):
            policy(np.swapaxes(one, 0, 1))
    finally:
        gymnasium.registry.pop("Picture-v0")


def test_a_policy_is_pickled_and_names_lists_that_are_no_array(policy: evo.Policy) -> None:
    seen = Several().reset(seed=5)[0]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(policy)).scores(seen), policy.scores(seen))
    for ragged in (lambda: policy([[1, 2], [3]]), lambda: policy(seen, ([1, 0], [1]))):
        with pytest.raises(ValueError, match="lists of several lengths, one beside the other, are no array"):
            ragged()


def test_normalised_pixels_are_not_divided_first() -> None:
    environment = make(Options(id="gymnasium:Entries-v0", normalise=20))
    assert environment.notices == ()
    assert environment.normalisation is not None
    assert (environment.normalisation.mean > 20).sum() == 80


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "signpost", raising=False)
    monkeypatch.delitem(gymnasium.registry, "Signpost-v0", raising=False)  # as another module
    evo.plugins.registry.load(("signpost",))
    yield EXAMPLES / "signpost.toml"
    gymnasium.registry.pop("Signpost-v0")


def test_the_example_has_layers_for_both_entries(example: Path) -> None:
    check_env(gymnasium.make("Signpost-v0").unwrapped, skip_render_check=True)
    network = Experiment.load(example).network()
    assert [(part.name, part.shape, part.end - part.first) for part in network.parts] == [
        ("picture", (8, 8, 1), 3), ("sign", (2,), 1),
    ]  # fmt: skip
    assert Experiment.load(example, "policy.inputs=", 'policy.kind="mlp"').network().parts == ()  # flat, as before


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("policy.inputs={picture={}}", r'policy.inputs: the entry "sign" \(2\) is missing'),
        ("policy.inputs={pictures={}, sign={}}", "no entry \"pictures\" - did you mean `picture`"),
        ("policy.inputs={picture={cnv=[]}, sign={}}", "policy.inputs.picture.cnv: unknown key - did you mean `conv`"),
        ("policy.inputs={picture={conv=[[8, 3]]}, sign={}}", r"policy.inputs.picture.conv: \[8, 3\] is not"),
        ("policy.inputs={picture=3, sign={}}", "policy.inputs.picture: must be a table, not 3"),
        ("policy.inputs.sign.conv=[[4, 3, 1]]", 'policy.inputs: "sign": "conv 4 3 1 same" needs an image'),
        ('environment.id="snake"', "policy.inputs: only Dict and Tuple observations have entries"),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_one_clear_line(example: Path, change: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as error:
        Experiment.load(example, change)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ga", "ppo"])
def test_a_champion_is_evaluated_verified_resumed_and_exported(tmp_path: Path, example: Path, algorithm: str) -> None:
    small = ["ga.population=4", "ga.parents=2", "ga.elites=1", "ga.episodes=1", "ppo.horizon=16", *SMALL]
    words = [word for one in small for word in ("--set", one)]
    plugin, more = ("--plugin", "signpost"), ("--json", "--no-report", "--algorithm", algorithm)
    out, _ = called(tmp_path, example, *words, *plugin, *more, "--generations", 2, "--run-dir", "straight")
    straight = json.loads(out.splitlines()[-1])
    called(tmp_path, example, *words, *plugin, *more, "--generations", 1, "--run-dir", "run")
    out, _ = called(tmp_path, "--resume", "run", *plugin, "--json", "--no-report", "--generations", 2)
    assert json.loads(out.splitlines()[-1])["state_hash"] == straight["state_hash"]
    out, _ = called(tmp_path, "verify", "run", *plugin, "--json", program="evo")
    assert json.loads(out.splitlines()[-1])["ok"]
    out, _ = called(tmp_path, "evaluate", "run", *plugin, "--episodes", 4, "--json", program="evo")
    assert json.loads(out)["episodes"] == 4
    called(tmp_path, "export", "run", *plugin, "--to", "npz", "champion.npz", program="evo")
    assert np.load(tmp_path / "champion.npz")["entry_picture_shape"].tolist() == [8, 8, 1]
    policy = evo.Run(tmp_path / "run").champion
    assert policy.scores(np.zeros((3, 66), np.float32)).shape[0] == 3


@pytest.mark.long
def test_the_example_is_learned(tmp_path: Path, example: Path) -> None:
    *_, last = evo.train(Experiment.load(example, "workers.backend=serial", "test.episodes=100"), tmp_path / "run")
    assert last.metrics["test"] > 15.5  # who sees one entry alone has 8 of 16
