"""The examples of docs/fitness.md run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import evo
from evo.plugins import registry
from tests.helpers.calling import summary_of
from tests.helpers.learning import tensorflow  # noqa: F401

PAGE = (Path(__file__).parents[2] / "docs" / "fitness.md").read_text()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras, which saves
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras = pytest.importorskip("keras")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    first, with_keras, module, third = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (experiment,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(first + third, names)
    best, search = names["best"], names["search"]
    assert isinstance(best, evo.Optimum)
    assert isinstance(search, evo.Search)
    assert best.fitness < 1e-6
    assert search.fitness < 1e-6
    assert best.calls == 3800

    keras.utils.set_random_seed(1)
    exec(with_keras, names)
    trained = names["best"]
    assert isinstance(trained, evo.Optimum)
    assert trained.fitness == pytest.approx(names["error"](trained.model), rel=1e-6)  # type: ignore[operator]
    assert trained.fitness < 0.5 * names["error"](names["model"])  # type: ignore[operator]

    (tmp_path / "my_arm.py").write_text(module)
    (tmp_path / "my_arm.toml").write_text(experiment)
    few = ("--set", "run.generations=3", "--set", "cma_es.population=4")
    one = summary_of(tmp_path, "my_arm.toml", *few, "--plugin", "my_arm", "--backend", "serial", "--run-dir", "one")
    two = summary_of(tmp_path, "my_arm.toml", *few, "--plugin", "my_arm", "--workers", 2, "--run-dir", "two")
    assert one["state_hash"] == two["state_hash"]
    my_arm = sys.modules["my_arm"]
    found = evo.maximise(my_arm.problem, workers=2, generations=2, algorithm="cma_es", run_dir=tmp_path / "three")
    assert found.x.shape == (12,)
    registry._loaded.pop((registry.PROBLEMS, "my_arm"))
    sys.modules.pop("my_arm")
