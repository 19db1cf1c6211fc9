"""A run starts from another one's champion, whole or with other outputs, and says what that cost."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.algorithms import ga
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError
from evo.networks.candidates import Rebuilder
from evo.networks.likeness import refuse_unlike
from evo.networks.network import Network, Options
from evo.setup import Setup
from evo.store.champion import encode_champion, network_layers, read_champion
from evo.store.store import Store
from evo.training import beginning
from evo.training.beginning import fit, keep
from evo.training.refusals import refuse_another_view
from tests.algorithms.test_ga import NETWORK
from tests.helpers.calling import SMALL, called, summary_of
from tests.helpers.learning import tensorflow  # noqa: F401


def network(extra: int = 0, shape: tuple[int, ...] = (7, 7, 2), **options: object) -> Network:
    return Network.build(Options(**{"conv": [[3, 3, 2]], "dense": [5], **options}), shape, 3, extra)


def numbered(net: Network) -> np.ndarray:
    return np.arange(1, net.size + 1, dtype=np.float32)


@pytest.mark.long
@pytest.mark.parametrize("norm", ["none", "layer"])
def test_weights_of_an_equal_network_are_handed_over_as_they_are(norm: str) -> None:
    net = network(1, norm=norm)
    assert fit(numbered(net), network_layers(net), net).tolist() == numbered(net).tolist()


@pytest.mark.long
def test_outputs_that_are_new_are_zero_and_outputs_that_are_not_wanted_are_dropped() -> None:
    small, large = network(0), network(2)
    grown = fit(numbered(small), network_layers(small), large)
    for name, before, after in zip(small.names(), small.split(numbered(small)), large.split(grown), strict=True):
        assert after[..., : before.shape[-1]].tolist() == before.tolist(), name
        assert not after[..., before.shape[-1] :].any(), name
    assert fit(grown, network_layers(large), small).tolist() == numbered(small).tolist()


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (network(dense=[6]), ["1_dense_kernel is 48x6, here 48x5", "1_dense_bias is 6, here 5", "2_dense_kernel"]),
        (network(shape=(7, 7, 3)), ["0_conv_kernel is 3x3x3x3, here 3x3x2x3"]),
        (network(dense=[5, 5]), ["3_dense_kernel is 5x3, here absent"]),
        (network(dense=[]), ["2_dense_kernel is absent, here 5x3"]),
        (network(norm="layer"), ["0_conv_gamma is 3, here absent", "1_dense_beta is 5, here absent"]),
    ],
    ids=["units", "planes", "more layers", "fewer layers", "normalised"],
)
def test_networks_that_differ_elsewhere_are_refused_by_the_names_of_their_layers(
    other: Network, told: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        fit(numbered(other), network_layers(other), network())
    for text in told:
        assert text in str(caught.value)
    assert "0_conv_bias" not in str(caught.value)


@pytest.mark.parametrize("elites", [0, 1, 3])
def test_the_first_generation_is_the_champion_and_its_children(elites: int) -> None:
    start = np.linspace(-1, 1, NETWORK.size, dtype=np.float32)
    options = ga.Options(population=8, parents=3, elites=elites, episodes=2)
    algorithm = ga.make(options, Setup(0, NETWORK, None, 4, start=start))
    first = next(algorithm.generation(0))
    assert first.weights is not None
    assert first.weights.tolist() == [start.tolist()]
    sources = [task.weights for task in first.tasks]
    assert np.concatenate([source.rows for source in sources]).tolist() == [0] * 8
    sigmas = np.concatenate([source.sigmas for source in sources])
    assert sigmas[0] == 0
    assert (sigmas[1:] > 0).all()
    rebuilt = np.empty(NETWORK.size, np.float32)
    Rebuilder(NETWORK).rebuild(first.weights, sources[0], 0, rebuilt)
    assert rebuilt.tobytes() == start.tobytes()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SMALL)
    summary_of(tmp_path, "small.toml", "--run-dir", "source", "--generations", 2)
    return tmp_path


FROM = ("--set", "run.init_from=source")


def test_a_run_from_a_champion_says_what_it_was_and_is_and_goes_on_without_the_source(small: Path) -> None:
    output, _ = called(small, "small.toml", "--run-dir", "heir", *FROM, "--generations", 2)
    fitness = read_champion(small / "source").about["fitness"]
    told = f"starts from a champion of fitness {fitness:.3f} in its own run, {fitness:.3f} here"
    assert told in output  # the same seed, so the same validation episodes
    straight = summary_of(small, "small.toml", "--run-dir", "straight", *FROM)
    assert straight["champion"]["fitness"] >= fitness
    shutil.rmtree(small / "source")
    resumed = summary_of(small, "--resume", "heir", "--generations", 4)
    assert resumed["state_hash"] == straight["state_hash"]
    fresh = summary_of(small, "small.toml", "--run-dir", "fresh")
    assert fresh["state_hash"] != straight["state_hash"]


def test_a_resumed_run_holds_its_copy_against_the_hash(small: Path) -> None:
    summary_of(small, "small.toml", "--run-dir", "heir", *FROM, "--generations", 1)
    weights, layers, about = read_champion(small / "source")
    (small / "heir" / "start.h5").write_bytes(encode_champion(weights * 2, layers, about)[0])
    _, errors = called(small, "--resume", "heir", "--generations", 2, code=2)
    assert "init_from" in errors


def test_a_source_that_changes_while_a_run_begins_is_noticed(small: Path) -> None:
    experiment = Experiment.load(small / "small.toml", f"run.init_from={small / 'source'}")
    for content, is_kept in ((experiment.identity()["init_from"], True), ("another", False)):
        with Store.create(small / content[:8], experiment.to_toml(), {"init_from": content}) as store:
            with nullcontext() if is_kept else pytest.raises(ConfigurationError, match="has changed"):
                keep(experiment, store)
            assert (store.directory / "start.h5").exists() == is_kept


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (("--set", "policy.dense=[5]"), "0_dense_kernel is 125x4, here 125x5"),
        (("--set", "environment.actions=absolute", "--set", "environment.observation=planes"), "its actions are"),
        (
            ("--set", "environment.observation=planes", "--set", "environment.window="),
            "it sees the observation 'window'",
        ),
        (("--set", "run.init_from=nowhere"), "nowhere: missing"),
        (
            ("--set", "policy.activation=tanh"),
            'run.init_from: source: its network has policy.activation = "relu", and here it is "tanh"; set that',
        ),
    ],
    ids=["layers", "actions", "observation", "nowhere", "activation"],
)
@pytest.mark.parametrize("more", [("--run-dir", "heir"), ("--dry-run",)], ids=["run", "dry run"])
def test_a_champion_that_does_not_fit_is_one_line_and_no_directory(
    small: Path, sets: tuple[str, ...], told: str, more: tuple[str, ...]
) -> None:
    _, errors = called(small, "small.toml", *FROM, *sets, *more, code=2)
    assert told in errors
    assert len(errors.strip().splitlines()) == 1
    assert not (small / "heir").exists()


@pytest.mark.long
def test_a_run_that_has_begun_from_a_network_that_computed_otherwise_goes_on(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(beginning, "refuse_unlike", lambda *_, **__: None)  # as there was none once
        summary_of(
            small, "small.toml", *FROM, "--set", "policy.activation=tanh", "--run-dir", "heir", "--generations", 1
        )
    assert summary_of(small, "--resume", "heir", "--generations", 2)["status"] == "done"


SWING = {"id": "gymnasium:Pendulum-v1"}
CAR = {"id": "gymnasium:MountainCar-v0"}


@pytest.mark.parametrize(
    ("theirs", "ours", "told"),
    [
        (SWING, {**SWING, "normalise": 20}, "with environment.normalise = 0, and here it is 20; set that"),
        ({**SWING, "normalise": 20}, SWING, "with environment.normalise = 20, and here it is 0; set that"),
        (SWING, {**SWING, "rescale_actions": True}, "environment.rescale_actions = false, and here it is true; set"),
        ({**SWING, "rescale_actions": True, "stack": 2}, SWING,
         "environment.stack = 2 and environment.rescale_actions = true, and here they are 1 and false; set those"),
        ({**CAR, "wrappers": ["gymnasium.wrappers:FlattenObservation"]}, CAR,
         'environment.wrappers = ["gymnasium.wrappers:FlattenObservation"], and here it is []; set that'),
        (CAR, {"id": "gymnasium:MountainCarContinuous-v0"}, "its actions are 3 choices, and here 1 number; they must"),
        ({"id": "cartpole"}, {"id": "snake"}, "its actions are 2 choices, and here 3 choices"),
        ({**CAR, "wrappers": ["gymnasium.wrappers:NormalizeReward"]}, {**CAR, "max_steps": 30}, ""),
        ({**CAR, "training": {"max_steps": 3}}, CAR, ""),
        ({"id": "gymnasium:NoSuch-v0"}, CAR, ""),
        ({"id": "gymnasium:MountainCar-v0", "of_another_version": 3}, {**CAR, "normalise": 20}, ""),
        ({"id": "cartpole"}, {"id": "gymnasium:CartPole-v1"}, ""),
    ],
)  # fmt: skip
def test_a_champion_that_saw_or_did_something_else_is_refused_by_its_options(
    theirs: dict[str, object], ours: dict[str, object], told: str
) -> None:
    options = Experiment.build(environment=ours, policy={"kind": "linear"}).environment
    with pytest.raises(ConfigurationError, match=re.escape(told)) if told else nullcontext():
        refuse_another_view(theirs, options)


def test_a_run_does_not_begin_from_a_champion_of_another_view(tmp_path: Path) -> None:
    sections: dict[str, Any] = {"policy": {"kind": "linear"}, "run": {"init_from": str(tmp_path / "champion.h5")}}
    one, other = (Experiment.build(environment={**CAR, "normalise": steps}, **sections) for steps in (0, 20))
    weights, about = np.zeros(one.network().size, np.float32), {"environment": one.environment.model_dump()}
    (tmp_path / "champion.h5").write_bytes(encode_champion(weights, network_layers(one.network()), about)[0])
    assert beginning.start_of(one) is not None
    assert beginning.start_of(other, begun=True) is not None  # it has begun when nobody looked at that
    with pytest.raises(
        ConfigurationError, match=r"^run\.init_from: .*champion\.h5: it was trained with environment\.n"
    ):
        beginning.start_of(other)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text there")
def test_a_run_from_a_champion_in_a_folder_whose_name_is_not_utf_8_is_read_again(small: Path) -> None:
    folder = small / os.fsdecode(b"\xfcbung")
    folder.mkdir()
    shutil.copy(small / "source" / "champion.h5", folder / "begun.h5")
    (folder / "mine.toml").write_text(SMALL.replace("[run]", '[run]\ninit_from = "begun.h5"'))
    summary_of(small, folder / "mine.toml", "--run-dir", "heir", "--generations", 1)
    shutil.rmtree(folder)
    assert "udcfcbung" in (small / "heir" / "config.resolved.toml").read_text()
    assert summary_of(small, "--resume", "heir", "--generations", 2)["status"] == "done"
    _, errors = called(small, "small.toml", "--set", f"run.init_from={folder}", code=2)
    assert "run.init_from: it is not UTF-8" in errors


LIST = {"layers": ["conv 3 3 2 valid", "tanh", "max_pool 2 1 same", "dense 5", "relu"]}
POOLED = {**LIST, "layers": [*LIST["layers"][:2], "average_pool 2 1 same", *LIST["layers"][3:]]}


@pytest.mark.parametrize(
    ("theirs", "ours", "told"),
    [
        ({"activation": "tanh"}, {}, 'policy.activation = "tanh", and here it is "relu"; set that'),
        ({"output": "tanh"}, {}, 'policy.output = "tanh", and here it is ""; set that'),
        ({"conv": [[3, 3, 4]]}, {"padding": "valid", "activation": "tanh", "conv": [[3, 3, 3]]},
         'has policy.conv = [[3, 3, 4]] and policy.activation = "relu", and here they are [[3, 3, 3]] and "tanh"; set'),
        (POOLED, LIST, "average_pool 2 1 same"),
        ({"conv": [[3, 3, 2]], "activation": "tanh"}, {"layers": ["conv 3 3 2", "relu", "dense 5", "tanh"]},
         'policy.layers = ["conv 3 3 2 same", "tanh", "dense 5", "tanh"], and here it is ["conv 3 3 2 same", "relu", '),
        ({"sides": 3}, {}, "its policy.sides is not known here"),
        ({"kind": "cnn", "conv": [[3, 3, 2]], "dense": [5], "inference": "tensorflow"}, {}, None),
        ({"layers": ["conv 3 3 2", "relu", "dense 5", "relu"]}, {}, None),
        ({"kind": "linear"}, {"kind": "mlp", "dense": [], "activation": "tanh"}, None),
        ({"conv": [[3, 1, 2]], "padding": "valid"}, {"conv": [[3, 1, 2]]}, None),  # both pad nothing
    ],
)  # fmt: skip
def test_networks_of_the_same_arrays_that_compute_otherwise_are_refused_by_their_options(
    theirs: dict[str, object], ours: dict[str, object], told: str | None
) -> None:
    here = {"conv": [[3, 3, 2]], "dense": [5]}
    net = Network.build(Options(**(ours if ours.keys() & {"layers", "kind"} else {**here, **ours})), (7, 7, 2), 3, 1)
    policy = theirs if theirs.keys() & {"layers", "kind"} else {**here, **theirs}  # other keys: as by default
    with nullcontext() if told is None else pytest.raises(ConfigurationError, match=re.escape(told)):
        refuse_unlike(policy, net, "")


def test_outputs_that_an_algorithm_sets_are_said_with_it() -> None:
    net = network(output="tanh")
    policy = {"conv": [[3, 3, 2]], "dense": [5]}
    with pytest.raises(ConfigurationError, match=r'^its .* policy\.output = "", and sac needs "tanh"; start from'):
        refuse_unlike(policy, net, "sac")
    refuse_unlike(policy, net, "sac", any_output=True)  # a model of another program


def test_entries_whose_layers_compute_otherwise_are_refused_by_their_name() -> None:
    def of(activation: str) -> Options:
        options = Options(inputs={"a": {"layers": ["dense 4", activation]}, "b": {}}, dense=[5])
        return options.resolved(entries={"a": (3,), "b": (2,)})

    net = Network.build(of("relu"), (5,), 3)
    refuse_unlike(of("relu").model_dump(), net, "")
    told = 'its network has policy.inputs.a.layers = ["dense 4", "tanh"], and here it is ["dense 4", "relu"]; set that'
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        refuse_unlike(of("tanh").model_dump(), net, "")


BOTH = f"""{SMALL}
[learner]
threads = 1
[ppo]
envs = 6
horizon = 8
minibatches = 3
[dqn]
envs = 6
horizon = 8
replay_size = 100
learning_starts = 40
frames_per_update = 8
batch_size = 16
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ga", "ppo"),
        pytest.param("dqn", "ga", marks=pytest.mark.long),
        pytest.param("ppo", "ga", marks=pytest.mark.long),
        pytest.param("ga", "dqn", marks=pytest.mark.long),
    ],
)
def test_learning_goes_on_from_evolution_and_evolution_from_learning(tmp_path: Path, first: str, second: str) -> None:
    (tmp_path / "both.toml").write_text(BOTH)
    summary_of(tmp_path, "both.toml", "--algorithm", first, "--run-dir", "source", "--generations", 2)
    output, _ = called(tmp_path, "both.toml", "--algorithm", second, "--run-dir", "heir", *FROM, "--generations", 1)
    fitness = read_champion(tmp_path / "source").about["fitness"]
    told = f"starts from a champion of fitness {fitness:.3f} in its own run, {fitness:.3f} here"
    assert told in output  # heads change no greedy action, and the validation episodes are the same
    assert Store.read(tmp_path / "heir").metrics()[0]["start_validation"] == pytest.approx(fitness)
    assert read_champion(tmp_path / "heir").about["fitness"] >= fitness
