"""Which worker sees which GPU: a plan that needs no GPU, and a real refusal of GPUs that are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo import devices
from evo.errors import ConfigurationError, DeviceError
from evo.evaluators.processes import Processes
from evo.evaluators.worker import Upbringing

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_of(slots: list[dict[str, str]]) -> list[str]:
    return [slot[VISIBLE] for slot in slots]


def test_each_gpu_gets_as_many_workers_as_it_lists() -> None:
    slots = devices.plan({"gpus": [2, 10, 10, 10]}, "tensorflow")
    assert gpus_of(slots) == ["0"] * 2 + ["1"] * 10 + ["2"] * 10 + ["3"] * 10
    assert devices.describe(slots) == "32 workers: 2 on GPU 0, 10 on GPU 1, 10 on GPU 2, 10 on GPU 3"


def test_a_gpu_may_be_left_out() -> None:
    assert gpus_of(devices.plan({"gpus": [0, 3]}, "tensorflow")) == ["1"] * 3


def test_the_plan_keeps_to_the_gpus_that_the_user_left_visible() -> None:
    assert gpus_of(devices.plan({"gpus": [1, 2]}, "tensorflow", "5,3,1")) == ["5", "3", "3"]
    assert gpus_of(devices.plan({"gpus": [1, 1]}, "tensorflow", "GPU-ab, MIG-cd")) == ["GPU-ab", "MIG-cd"]


@pytest.mark.parametrize("visible", ["", "-1", "0", "0,-1,1", "0,0"])
def test_more_gpus_than_are_visible_are_refused(visible: str) -> None:
    with pytest.raises(DeviceError, match="lists 2 GPUs") as caught:
        devices.plan({"gpus": [1, 1]}, "tensorflow", visible)
    assert caught.value.exit_code == 5


def test_workers_without_gpus_hide_them_all_from_tensorflow_and_need_no_pin_elsewhere() -> None:
    assert gpus_of(devices.plan({"count": 3}, "tensorflow", "0,1")) == ["-1"] * 3
    assert devices.plan({"count": 3, "gpus": []}, "lanes") == [{}] * 3
    assert len(devices.plan({"count": "auto"}, "lanes")) == devices.cores()
    assert devices.describe([{}]) == "1 worker: 1 on the CPU"


def test_the_memory_of_a_gpu_is_shared_as_the_options_say() -> None:
    growth = devices.plan({"gpus": [2], "memory": "growth"}, "tensorflow")
    assert {slot["TF_FORCE_GPU_ALLOW_GROWTH"] for slot in growth} == {"true"}
    limit = devices.plan({"gpus": [2], "memory": "limit", "memory_limit_mb": 500}, "tensorflow")
    assert {slot["TF_FORCE_GPU_ALLOW_GROWTH"] for slot in limit} == {"false"}


@pytest.mark.parametrize(
    ("workers", "inference", "key"),
    [
        ({"gpus": [1]}, "lanes", "workers.gpus"),
        ({"gpus": [1], "count": 2}, "tensorflow", "workers.count"),
        ({"gpus": [2], "memory": "all"}, "tensorflow", "workers.memory"),
        ({"gpus": [2], "memory": "limit"}, "tensorflow", "workers.memory_limit_mb"),
    ],
)
def test_contradictions_are_named_by_their_key(workers: dict[str, Any], inference: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        devices.plan(workers, inference)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any))
def test_every_listed_worker_is_pinned_to_exactly_one_gpu(gpus: list[int]) -> None:
    slots = devices.plan({"gpus": gpus}, "tensorflow")
    assert [gpus_of(slots).count(str(gpu)) for gpu in range(len(gpus))] == gpus
    assert len(slots) == sum(gpus)


def test_the_plan_needs_no_tensorflow() -> None:
    script = (
        "import sys; from evo import devices; from evo.evaluators import processes, serial; "
        "devices.plan({'gpus': [1]}, 'tensorflow'); print('tensorflow' in sys.modules)"
    )
    root = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.long
def test_a_gpu_that_is_not_there_stops_the_run_and_says_what_is_seen() -> None:
    slots = devices.plan({"gpus": [1]}, "tensorflow", "63")  # no machine has so many
    pool = Processes(Upbringing("players:make_pinned", None), slots)
    try:
        with pytest.raises(DeviceError, match=r"CUDA_VISIBLE_DEVICES = '63'.*must see 1 GPU, but TensorFlow sees none"):
            pool.map(["anything"])
    finally:
        pool.close()


@pytest.mark.long
def test_what_prepares_the_workers_touches_no_device() -> None:
    script = (
        "from pathlib import Path; from evo.evaluators.context import Context, prepare; "
        "prepare(Context(Path('.'), {'id': 'snake'}, {'inference': 'tensorflow'}, {}, 'tensorflow')); "
        "import tensorflow as tf; tf.config.set_visible_devices([], 'GPU'); "
        "tf.config.threading.set_intra_op_parallelism_threads(3); print(tf.config.list_logical_devices('GPU'))"
    )
    root = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"  # an initialised TensorFlow refuses both settings
    assert done.stderr == ""
