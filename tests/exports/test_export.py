"""What is exported computes what the kernel computes, wherever it is loaded."""

from __future__ import annotations

import html
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deap.gp import PrimitiveTree
from numpy.typing import NDArray

from evo.cli.commands.export import ENDINGS
from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.environment import Normalisation
from evo.errors import ConfigurationError, ResourceError
from evo.evolution.toolbox import drawing_from
from evo.evolution.trees import Trees
from evo.exports.networks import FORMATS, SUFFIXES, layers_of, python_file, python_of, write_network
from evo.files.arrays import ArrayDigest, first_hash, next_hash
from evo.files.durable import with_checksum, without_checksum, write_whole
from evo.kernels import lanes
from evo.networks.keras_form import build_keras, set_weights
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.store.champion import Champion, encode_champion, read_champion
from evo.store.run import Run
from evo.store.run_directory import provenance
from evo.store.store import Store
from evo.workers.devices import INSTALL
from tests.helpers.calling import ROOT, called, small_with
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.helpers.networks import random_observations

KINDS = [kind for kind in FORMATS if kind not in ("onnx", "python")]  # which have tests of their own
POLICIES = {
    "mlp": 'kind = "mlp"\ndense = [4]',
    "cnn": 'conv = [[4, 3, 2]]\ndense = [5]\npadding = "valid"\nnorm = "layer"',
}


@pytest.fixture(scope="module", params=[pytest.param("mlp", marks=pytest.mark.long), "cnn"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp(request.param)
    (where / "small.toml").write_text(small_with(policy=POLICIES[request.param]))
    called(where, "small.toml", "--run-dir", "run", "--generations", 1)
    return where / "run"


def few(kind: str, *slow: str) -> Any:
    """Return a parameter that is left to the long tests where it is one of the slow formats."""
    return pytest.param(kind, marks=[pytest.mark.long] if kind in slow else [])


def loaded(kind: str, file: Path, network: Any, observations: NDArray[np.float32], by: Any = None) -> Any:
    """Return the outputs of what was exported."""
    import keras
    import tensorflow as tf

    if kind == "savedmodel":
        served = tf.saved_model.load(str(file))
        return served.serve(observations).numpy()
    if kind == "keras":
        return keras.models.load_model(file)(observations).numpy()
    model = build_keras(network, normalisation=by)
    if kind == "checkpoint":  # restored by a model as a .keras file holds it
        blank = file.with_name("blank.keras")
        model.save(blank)
        model = keras.models.load_model(blank)
        blank.unlink()
        tf.train.Checkpoint(model=model).restore(tf.train.latest_checkpoint(str(file))).assert_consumed()
    else:
        with np.load(file) as arrays:
            assert list(arrays)[: len(network.names())] == network.names()
            model.set_weights([arrays[name] for name in network.names()])
    return model(observations).numpy()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own, where it saves
@pytest.mark.parametrize("kind", [few(kind, "savedmodel") for kind in KINDS])
def test_an_export_computes_what_the_kernel_does(run: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"champion{SUFFIXES.get(kind, '')}"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    out, _ = called(run.parent, "export", "run", "--to", kind, file, program="evo")
    assert "3 scores" in out
    assert ("model has the same layers: keras.models.load_model" in out) == (kind == "checkpoint")
    network = Run(run).config.network()
    observations = random_observations(network, 7, 1)
    scores = lanes.scores(network, read_champion(run).weights, observations)
    assert np.ptp(scores) > 0
    np.testing.assert_allclose(loaded(kind, file, network, observations), scores, rtol=1e-4, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "policy",
    [
        'conv = [[4, 3, 2], [3, 2, 1]]\ndense = [5]\nnorm = "layer"',
        'conv = [[4, 4, 3]]\npadding = "valid"',
        'kind = "mlp"\ndense = [4]\nactivation = "tanh"',
        'kind = "linear"',
        'embed = "one_hot"\ncodes = 3\nconv = [[4, 3, 1]]',
        'layers = ["one_hot 3", "conv 4 3 1", "max_pool 3 2 same", "tanh", "average_pool 2", "norm", "dense 5"]',
    ],
)
def test_the_player_in_the_documentation_needs_nothing_but_the_arrays(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(f"[environment]\nsize = 7\n[policy]\n{policy}\n")
    experiment = Experiment.load(tmp_path / "small.toml")
    network, generator = experiment.network(), np.random.default_rng(1)
    weights = generator.normal(size=network.size).astype(np.float32)
    np.savez(
        tmp_path / "champion.npz",
        **dict(zip(network.names(), network.split(weights), strict=True)),
        **layers_of(network),
    )
    example = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "exports.md").read_text(), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    exec(example, namespace)
    observations = random_observations(network, 5, 2)
    if network.layers[0].kind == "one_hot":
        observations = generator.integers(0, 3, observations.shape).astype(np.float32)
    expected = lanes.scores(network, weights, observations)
    np.testing.assert_allclose(namespace["outputs"](observations), expected, rtol=1e-4, atol=1e-4)
    assert namespace["outputs"](observations[:0]).shape == (0, expected.shape[1])
    with np.load(tmp_path / "champion.npz") as arrays:  # nothing is pickled
        assert (tuple(arrays["shape"]), int(arrays["actions"])) == (network.shape, network.actions)


@pytest.mark.long
@pytest.mark.parametrize("kind", [few(kind, "savedmodel", "checkpoint", "npz") for kind in KINDS])
def test_without_keras_only_arrays_are_written_and_a_line_says_what_to_do(run: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "keras.py").write_text("raise ModuleNotFoundError(\"No module named 'keras'\")")
    file = tmp_path / f"champion{SUFFIXES.get(kind, '')}"
    words = [sys.executable, "-m", "evo", "export", str(run), "--to", kind, str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    (line,) = done.stderr.splitlines() or [""]
    if kind == "npz":
        assert (done.returncode, line) == (0, "")
        return
    assert done.returncode == 2
    told = f"--to {kind} needs TensorFlow and Keras, and they cannot be imported: No module named 'keras'; "
    assert line == f"{told}{INSTALL}, or use --to npz, which needs neither"
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["keras.py"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run that has evolved a decision tree for a game that other tests compile."""
    where = tmp_path_factory.mktemp("tree")
    smaller = ("--set", "environment.id=catch", "--set", "gp.population=64", "--set", "gp.episodes=8")
    few = (
        *smaller,
        "--set",
        "validation.episodes=32",
        "--set",
        "test.episodes=32",
        "--generations",
        12,
        "--backend",
        "serial",
    )
    called(where, ROOT / "experiments" / "games" / "gp_cartpole.toml", "--run-dir", "run", *few)
    return where / "run"


def test_a_decision_tree_is_exported_as_a_function_that_plays_the_same_episode(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "catching.py"
    out, _ = called(tree.parent, "export", "run", "--to", "python", file, program="evo")
    assert "numbers of an observation" in out
    assert "from catching import act" in out
    assert called(tree.parent, "export", "run", "--to", "python", program="evo")[0] == file.read_text()
    written: dict[str, Any] = {}
    exec(file.read_text(), written)
    assert " = observation[" in file.read_text()
    assert "# left" in file.read_text()
    champion = Run(tree)
    env = champion.environment.env()
    for seed in range(5):
        observation, steps, over = env.reset(seed=seed)[0], 0, False
        while not over:
            action = written["act"](observation.ravel().tolist())
            scores = lanes.scores(champion.config.network(), champion.champion.weights, observation[np.newaxis])
            assert action == int(np.argmax(scores))
            observation, _, terminated, truncated, _ = env.step(action)
            steps, over = steps + 1, terminated or truncated
        assert steps > 5


@pytest.mark.parametrize("damaged", [True, False])
def test_no_text_of_a_run_becomes_code(tree: Path, tmp_path: Path, damaged: bool) -> None:
    run, code = Path(shutil.copytree(tree, tmp_path / "run")), '"""\nraise SystemExit("of the run")\n"""'
    champion = read_champion(run)
    about = {**champion.about, "algorithm": code}
    lines = [without_checksum(line) for line in (run / "manifest.jsonl").read_bytes().splitlines()]
    if damaged:  # what is said of the champion is not compared with the manifest
        about["seed"] = code
        lines.append({"generation": -1})
    else:
        lines[0]["identity"]["algorithm"] = code
        before = lines[0]["state_hash"] = first_hash(lines[0]["identity"])
        for line in lines[1:]:
            arrays = {name: ArrayDigest(*one) for name, one in line["arrays"].items()}
            before = line["state_hash"] = next_hash(before, line["generation"], arrays)
        about["state_hash"] = lines[about["generations"]]["state_hash"]
    (run / "manifest.jsonl").write_bytes(b"".join(with_checksum(line) + b"\n" for line in lines))
    (run / "champion.h5").write_bytes(encode_champion(champion.weights, champion.layers, about)[0])
    text, _ = called(tmp_path, "export", "run", "--to", "python", program="evo", code=0 if damaged else 3)
    exec(text, written := {})
    assert {*written} - {"__builtins__", "__doc__"} == ({"act"} if damaged else set())
    assert not damaged or written["__doc__"] == "A decision tree that plays catch (algorithm gp, seed 1)."


def test_of_a_game_that_masks_actions_a_tree_is_a_function_of_the_mask_as_well(tmp_path: Path) -> None:
    experiment = Experiment.load(ROOT / "experiments" / "gp_snake.toml", "environment.mask=fatal")
    Store.create(tmp_path / "run", experiment.to_toml(provenance()), experiment.identity()).close()
    run, network, generator = Run(tmp_path / "run"), experiment.network(), np.random.default_rng(1)
    with drawing_from(1):
        weights = Trees(network, 1.0).weights(PrimitiveTree(Trees(network, 1.0).grown(3, 4)))
    run._champion = Champion(weights, (), {})
    exec(python_file(run), written := {})
    seen = generator.normal(size=(64, *network.shape)).astype(np.float32)
    masks = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1]] * 16)
    allowed = np.where(masks, lanes.scores(network, weights, seen), -np.inf).argmax(axis=1)
    found = [written["act"](one.ravel().tolist(), mask) for one, mask in zip(seen, masks, strict=True)]
    assert found == allowed.tolist()
    assert {*found} == {0, 1, 2}
    run = Run(tmp_path / "run")
    run._champion = Champion(generator.normal(size=network.size).astype(np.float32), (), {})
    with pytest.raises(ConfigurationError, match="leaves of this tree rank them"):
        python_file(run)


@pytest.mark.parametrize("kind", [few("savedmodel", "savedmodel"), "checkpoint"])
@pytest.mark.usefixtures("tensorflow")
def test_a_model_that_the_disk_has_no_room_for_is_one_line_and_leaves_nothing(
    run: Path, tmp_path: Path, kind: str
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    champion = Run(run)
    assert champion.champion.weights.size
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
        with pytest.raises(ResourceError, match=r"^cannot write .*/champion: File too large$"):
            write_whole(tmp_path / "champion", lambda place: write_network(place, kind, champion))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [*tmp_path.iterdir()]


@pytest.mark.long
def test_a_decision_tree_has_no_other_form_than_python_and_arrays_and_no_network_has_that(
    run: Path, tree: Path, tmp_path: Path
) -> None:
    for kind, file in (("keras", "x.keras"), ("savedmodel", "x"), ("onnx", "x.onnx")):
        _, error = called(tree.parent, "export", "run", "--to", kind, tmp_path / file, program="evo", code=2)
        assert error.strip() == f"--to {kind}: a decision tree has no such form; use --to python or --to npz"
    called(tree.parent, "export", "run", "--to", "npz", tmp_path / "x.npz", program="evo")
    _, error = called(run.parent, "export", "run", "--to", "python", tmp_path / "x.py", program="evo", code=2)
    assert error.startswith("--to python writes decision trees: the policy must be a decision tree alone")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


@pytest.fixture(scope="module")
def normalising(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run whose environment normalises observations, some to their limit."""
    where = tmp_path_factory.mktemp("normalised")
    game = 'id = "gymnasium:CartPole-v1"\nnormalise = 7'
    policy = 'layers = ["tree 3"]' if request.param == "tree" else POLICIES["mlp"]
    (where / "small.toml").write_text(small_with(environment=game, policy=policy))
    called(where, "small.toml", "--run-dir", "run", "--generations", 1)
    return where / "run"


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own, where it saves
@pytest.mark.parametrize(
    ("normalising", "kind"),
    [
        pytest.param(
            "tree" if kind == "python" else "mlp",
            kind,
            marks=[] if kind == "onnx" else [pytest.mark.long],
        )
        for kind in FORMATS
    ],
    indirect=["normalising"],
)
def test_exports_take_raw_observations_and_normalise_them_as_training_did(
    normalising: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    champion = Run(normalising)
    network = champion.config.network()
    if kind == "onnx":
        pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
        runtime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    file = tmp_path / f"champion{SUFFIXES.get(kind, '')}"
    out, _ = called(normalising.parent, "export", "run", "--to", kind, file, program="evo")
    assert "it takes raw observations and normalises them itself, as in training" in out
    by = environment_of(champion.config.environment).normalisation
    assert by is not None
    raw = (by.mean + by.deviation * np.random.default_rng(1).normal(0, 6, (64, 4))).astype(np.float32)
    seen = np.clip((raw - by.mean) / by.deviation, -by.limit, by.limit).astype(np.float32)
    assert (np.abs(seen) == by.limit).any(0).all()  # that there is a limit matters
    scores = lanes.scores(network, champion.champion.weights, seen)
    if kind == "python":
        written: dict[str, Any] = {}
        exec(file.read_text(), written)
        assert [written["act"](one) for one in raw.tolist()] == scores.argmax(1).tolist()
        called(normalising.parent, "report", "run", program="evo")
        page = html.unescape((normalising / "report.html").read_text())
        assert file.read_text()[file.read_text().index("def act") :] in page
        return
    if kind == "npz":
        monkeypatch.chdir(tmp_path)
        exec(
            re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "exports.md").read_text(), re.DOTALL)[0], written := {}
        )
        found = written["outputs"](raw)
    elif kind == "onnx":
        found = runtime.InferenceSession(str(file)).run(["scores"], {"observations": raw})[0]
    else:
        found = loaded(kind, file, network, raw, by)
    np.testing.assert_allclose(found, scores, rtol=1e-3, atol=1e-4)


def test_normalisation_by_a_mean_far_from_zero_is_that_of_the_environment() -> None:
    by = Normalisation(np.array([1e6 + 0.03, -3e7]), np.array([0.1, 4.0]), 10.0)
    raw = np.stack([1e6 + np.arange(64) / 16, -3e7 + np.arange(64) * 2], axis=1).astype(np.float32)
    seen = np.clip((raw - by.mean) / by.deviation, -10, 10).astype(np.float32)
    network = Network.build(Policy(kind="linear"), (2,), 2)
    weights = np.array([1, 0, 0, 1, 0, 0], np.float32)
    model = build_keras(network, normalisation=by)
    set_weights(model, network, weights)
    np.testing.assert_array_equal(model(raw).numpy(), seen)
    tree, generator = Network.build(Policy(layers=["tree 3"]), (2,), 2), np.random.default_rng(1)
    for _ in range(20):
        weights = (2 * generator.normal(size=tree.size)).astype(np.float32)
        weights[:7] = generator.integers(0, 2, 7)  # which number a node looks at
        written: dict[str, Any] = {}
        exec(python_of(tree, weights, ("max", "float"), (), by), written)
        assert [written["act"](one) for one in raw] == lanes.scores(tree, weights, seen).argmax(axis=1).tolist()


def test_mistakes_write_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "there.keras").write_text("mine")
    for file, kind, told in (
        ("there.keras", "keras", "is there already"),
        ("champion.h5", "keras", "ends with .keras"),
        ("none/champion.npz", "npz", "there is no directory"),
        (run / "x.npz", "npz", "run is a run, and an export never changes one; choose another folder"),
        (run / "population" / "x.csv", "csv", "run is a run, and an export never changes one; choose another folder"),
    ):
        _, error = called(run.parent, "export", "run", "--to", kind, tmp_path / file, program="evo", code=2)
        assert told in error
    _, error = called(run.parent, "export", "run", "--to", "onnx", "x", program="evo", code=2)
    assert "ends with .onnx" in error
    _, error = called(tmp_path, "export", tmp_path, "--to", "npz", "x.npz", program="evo", code=3)
    for kind, ending in {"checkpoint": "", "tensorboard": "", **ENDINGS}.items():  # said before what is no run is read
        _, error = called(tmp_path, "export", "none", "--to", kind, f"/proc/x{ending}", program="evo", code=5)
        assert error == f"cannot write /proc/x{ending}: No such file or directory\n"
    assert [path.name for path in tmp_path.iterdir()] == ["there.keras"]
    assert (tmp_path / "there.keras").read_text() == "mine"
