"""Wrappers of an environment are options of an experiment, but only of modules that the command line names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evo.config.experiment import Experiment
from evo.environments.gymnasium import Options, make
from evo.errors import ConfigurationError, MissingPluginError
from evo.plugins import registry
from tests.helpers.calling import called, small_with

OWN = """
import gymnasium


class Dearer(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


class Fails(gymnasium.Wrapper):
    def __init__(self, env):
        raise ValueError("no room")
"""
EXPERIMENT = small_with(
    run="generations = 1", policy='kind = "linear"',
    environment='id = "gymnasium:CartPole-v1"\nmax_steps = 5\nwrappers = ["own_wrappers:Dearer"]',
    ga="population = 4\nparents = 2\nelites = 1\nepisodes = 1",
)  # fmt: skip


def wrapped(*names: str) -> Options:
    return Options(id="gymnasium:CartPole-v1", wrappers=list(names))


def test_wrappers_of_gymnasium_are_put_around_the_environment_in_order() -> None:
    assert make(wrapped("gymnasium.wrappers:TimeAwareObservation")).shape == (5,)
    several = wrapped("gymnasium.wrappers:TimeAwareObservation", "gymnasium.wrappers:FlattenObservation")
    assert make(several).shape == (5,)
    assert wrapped().model_dump() == Options(id="gymnasium:CartPole-v1").model_dump()
    assert "wrappers" not in wrapped().model_dump()


@pytest.mark.parametrize("name", ["os:system", "evo.cli.main:main", "antigravity:Wrapper", "own_wrappers:Dearer"])
def test_no_file_imports_a_module_by_a_wrapper(name: str) -> None:
    before = set(sys.modules)
    with pytest.raises(
        MissingPluginError, match=rf"environment\.wrappers: {name} .* add --plugin {name.split(':')[0]}"
    ):
        make(wrapped(name)).env()
    assert set(sys.modules) == before


@pytest.mark.parametrize("name", ["os", "os:path.join", ":Wrapper", "a b:C", "gymnasium.wrappers:__class__"])
def test_what_names_no_class_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"wrappers\[0\]: must be MODULE:CLASS, as in .*, not "):
        Experiment.build(environment={"id": "gymnasium:CartPole-v1", "wrappers": [name]}, policy={"kind": "linear"})


@pytest.mark.parametrize("name", ["NoSuchWrapper", "vector"])
def test_what_is_no_wrapper_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"has no gymnasium.Wrapper of the name {name}"):
        make(wrapped(f"gymnasium.wrappers:{name}")).env()


def test_a_wrapper_whose_package_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium.wrappers.jax_to_numpy", None)
    with pytest.raises(ConfigurationError, match="JaxToNumpy raised ModuleNotFoundError"):
        make(wrapped("gymnasium.wrappers:JaxToNumpy")).env()


def test_wrappers_of_a_plug_in_change_what_is_played_and_their_failures_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_wrappers.py").write_text(OWN)
    (tmp_path / "own.toml").write_text(EXPERIMENT)
    monkeypatch.syspath_prepend(tmp_path)
    _, err = called(tmp_path, "own.toml", "--run-dir", "run", code=2)
    assert "own.toml:6: environment.wrappers: own_wrappers:Dearer needs its module: add --plugin own_wrappers" in err
    try:
        _, err = called(
            tmp_path, "own.toml", "--plugin", "own_wrappers", "--set", 'environment.wrappers=["own_wrappers:Fails"]',
            "--run-dir", "run", code=2,
        )  # fmt: skip
        assert "environment.wrappers: making CartPole-v1 raised ValueError: no room" in err
        out, _ = called(tmp_path, "own.toml", "--plugin", "own_wrappers", "--run-dir", "run")
        assert "champion   validation return 10.00" in out
    finally:
        registry._loaded.pop(("", "own_wrappers"), None)
        sys.modules.pop("own_wrappers", None)
