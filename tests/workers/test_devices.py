"""Processes are pinned before TensorFlow looks: what they really see is read in them, and what is not there refused."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from evo.errors import ConfigurationError, DeviceError
from evo.workers import devices
from evo.workers.channel import WorkerSpec
from evo.workers.hardware import VISIBLE
from evo.workers.placement import NO_GPU, ORDER, LocalOptions, plan
from evo.workers.pool import Pool

ROOT = Path(__file__).parents[2]


def test_the_plan_needs_no_tensorflow() -> None:
    script = (
        "import sys; from evo.evaluators import processes, serial; from evo.workers import placement; "
        "placement.plan(processes.Options(gpus=[1]), 'tensorflow'); print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.long
def test_a_gpu_that_is_not_there_stops_the_run_and_says_what_is_seen() -> None:
    slots = plan(LocalOptions(gpus=[1]), "tensorflow", "63")  # no machine has so many
    pool = Pool(WorkerSpec("tests.workers.players:make_pinned", None), slots)
    try:
        with pytest.raises(DeviceError, match=r"CUDA_VISIBLE_DEVICES = '63'.*must see 1 GPU, but TensorFlow sees none"):
            pool.map(["anything"])
    finally:
        pool.close()


@pytest.mark.long
def test_another_backend_of_keras_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(ConfigurationError, match=r"^--to keras needs KERAS_BACKEND=tensorflow in the .*, not jax$"):
        devices.import_tensorflow(on_gpu=False, wanted="--to keras")


def test_the_line_that_installs_tensorflow_names_the_versions_of_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(shlex.split(devices.INSTALL)[-2:]) == project["optional-dependencies"]["tensorflow"]
    assert not {"tensorflow", "keras"} & {re.split("[<>=]", package)[0] for package in project["dependencies"]}


@pytest.mark.long
@pytest.mark.parametrize(("visible", "order"), [(None, "PCI_BUS_ID"), ("1,0", None)])
def test_a_process_that_learns_counts_gpus_as_the_plan_does(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, order: str | None
) -> None:
    for name, value in ((VISIBLE, visible), (ORDER, None)):
        monkeypatch.setenv(name, str(value))  # so that it is put back
        if value is None:
            monkeypatch.delenv(name)
    devices.import_tensorflow(on_gpu=False)
    assert os.environ.get(ORDER) == order
    monkeypatch.setenv(ORDER, "FASTEST_FIRST")  # a user's own
    devices.import_tensorflow(on_gpu=False)
    assert os.environ[ORDER] == "FASTEST_FIRST"


@pytest.mark.long
def test_what_prepares_the_workers_touches_no_device() -> None:
    script = (
        "from pathlib import Path; from tests.helpers.specs import spec; from evo.player import prepare; "
        "prepare(spec(Path('.'), {'id': 'snake'}, {'inference': 'tensorflow'}, {}, 'tensorflow')); "
        "from tensorflow.python.eager import context; assert context.context()._physical_devices is None; "
        "import tensorflow as tf; tf.config.set_visible_devices([], 'GPU'); "
        "tf.config.threading.set_intra_op_parallelism_threads(3); print(tf.config.list_logical_devices('GPU'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"  # an initialised TensorFlow refuses both settings
    assert done.stderr == ""


def claimed(*statements: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run statements in a process that has claimed the CPU with these options."""
    words = ", ".join(f"{name}={value!r}" for name, value in options.items())
    claim = (
        "from evo.workers import devices; from evo.workers.options import WorkersOptions; "
        f"devices.claim(WorkersOptions({words}))"
    )
    script = "\n".join([claim, "import tensorflow as tf", *statements])
    environment = {**os.environ, VISIBLE: NO_GPU}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)


ON_A_GPU = (
    "try:\n"
    "    with tf.device('/GPU:0'): print('ran on', tf.add(1.0, 1.0).device[-5:])\n"
    "except tf.errors.InvalidArgumentError as error: print('refused', 'GPU:0' in str(error))"
)


@pytest.mark.long
def test_soft_placement_is_off_unless_it_is_asked_for() -> None:
    assert claimed(ON_A_GPU).stdout.strip() == "refused True"
    assert claimed(ON_A_GPU, soft_placement=True).stdout.strip() == "ran on CPU:0"


@pytest.mark.long
def test_placement_is_logged_and_threads_are_limited_where_they_are_asked_for() -> None:
    threads = "get_intra_op_parallelism_threads(), tf.config.threading.get_inter_op_parallelism_threads()"
    done = claimed(
        "print('threads', tf.config.threading." + threads + ")",
        "tf.function(lambda x: tf.matmul(x, x))(tf.ones((2, 2)))",
        threads=3, threads_inter=2, log_placement=True,
    )  # fmt: skip
    assert "threads 3 2" in done.stdout
    assert any("MatMul" in line and "CPU:0" in line for line in (done.stdout + done.stderr).splitlines())
