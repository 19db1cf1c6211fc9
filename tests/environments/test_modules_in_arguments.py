"""No file imports a module by the arguments of an environment, also not where that makes other environments."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from pydantic import ValidationError

from evo.config.experiment import Experiment
from evo.environments.gymnasium import Options
from evo.errors import ConfigurationError
from evo.plugins import importing, registry
from tests.helpers.calling import called, small_with

MAKER = """
import gymnasium


def made(env_id="CartPole-v1", inner={}, **options):
    return gymnasium.make(inner.get("ids", [env_id])[0], **options)


gymnasium.register("makers/Any-v0", made)
"""
MODULE = """
import pathlib

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

pathlib.Path("executed").touch()
gymnasium.register("Foo-v0", CartPoleEnv)
"""
SMALL = {"run": "generations = 1", "policy": 'kind = "linear"', "ga": "population = 4\nparents = 2\nepisodes = 1"}
REFUSED = "names a module to import, which no file may; name the module with --plugin, and here the ID"


def written(folder: Path, options: str, name: str = "makers/Any-v0") -> None:
    """Write an experiment in this environment, with these options of it."""
    lines = f'id = "gymnasium:{name}"\nmax_steps = 5\n{options}'
    (folder / "small.toml").write_text(small_with(environment=lines, **SMALL))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with a plug-in that makes other environments, and a module that must not be imported."""
    (tmp_path / "makers.py").write_text(MAKER)
    for name in ("beside", "12"):
        (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_loaded", {})
    yield tmp_path
    for name in ("makers", "beside", "12"):
        sys.modules.pop(name, None)
    for name in ("makers/Any-v0", "Foo-v0"):
        gymnasium.registry.pop(name, None)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ('kwargs = {env_id = "beside:Foo-v0"}', r'kwargs: env_id: "beside:Foo-v0" '),
        ('kwargs = {inner = {ids = ["beside:Foo-v0"]}}', r'kwargs: inner\.ids\[0\]: "beside:Foo-v0" '),
        ('kwargs = {env_id = "12:30"}', r'kwargs: env_id: "12:30" '),
        ('training = {kwargs = {env_id = "beside:Foo-v0"}}', r'training: kwargs: env_id: "beside:Foo-v0" '),
    ],
    ids=["text", "nested", "of a file here", "training"],
)
def test_a_text_among_the_arguments_of_an_environment_imports_nothing(folder: Path, options: str, where: str) -> None:
    written(folder, options)
    with pytest.raises(ConfigurationError, match=rf"small\.toml:\d+: environment\.{where}{REFUSED}"):
        Experiment.load("small.toml", plugins=["makers"])
    assert not (folder / "executed").exists()


def test_a_dry_run_imports_nothing_and_says_so_in_a_line(folder: Path) -> None:
    written(folder, 'kwargs = {env_id = "beside:Foo-v0"}')
    out, err = called(folder, "small.toml", "--plugin", "makers", "--dry-run", code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert REFUSED in err
    assert not (folder / "executed").exists()


def test_the_arguments_that_a_run_and_a_champion_record_import_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(folder, 'kwargs = {env_id = "beside:Foo-v0"}')
    with monkeypatch.context() as unchecked:
        unchecked.setattr(importing, "names_module", lambda text: False)
        called(folder, "small.toml", "--plugin", "makers", "--run-dir", "run", "--backend", "serial")
    sys.modules.pop("beside")
    (folder / "executed").unlink()
    for words in (("evaluate", "run"), ("verify", "run"), ("evaluate", "run/champion.h5")):
        assert REFUSED in "".join(called(folder, *words, "--plugin", "makers", code=3, program="evo"))
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("text", ["cuda:0", "12:30", "http://a", "a text: no name", "", ":", ":Foo", "dotted.module"])
def test_other_texts_are_arguments(text: str) -> None:
    assert Options(id="gymnasium:CartPole-v1", kwargs={"one": text}).kwargs == {"one": text}


@pytest.mark.parametrize("kwargs", [{"a.b:C": 1}, {"x": {"a:B": 1}}, {"x": [[{"y": "évil:Foo"}]]}, {"x": "a:b:c"}])
def test_names_of_arguments_and_names_with_more_colons_are_refused_too(kwargs: Any) -> None:
    with pytest.raises(ValidationError, match="names a module to import"):
        Options(id="gymnasium:CartPole-v1", kwargs=kwargs)


def test_the_module_of_a_registered_game_is_no_option_of_it(folder: Path) -> None:
    import evo.games  # noqa: F401  registers the games

    written(folder, 'kwargs = {module = "beside"}', "evo/catch-v0")
    with pytest.raises(ConfigurationError, match=r"environment\.id: game catch: module: unknown key"):
        Experiment.load("small.toml")
    assert not (folder / "executed").exists()


def test_a_registered_game_is_made_again_of_what_is_written_of_it() -> None:
    import evo.games.game

    env = gymnasium.make("evo/catch-v0", rows=12)
    assert env.spec is not None
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.observation_space == env.observation_space
    assert gymnasium.make_vec("evo/catch-v0", 2).num_envs == 2
    with pytest.raises(AttributeError, match="no attribute 'make_it evo'"):
        getattr(evo.games.game, "make_it evo")
