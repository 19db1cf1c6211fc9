"""Which worker is pinned to which GPU: a plan that needs no GPU, and holds for machines of any kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.cli.main import main
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError, DeviceError
from evo.evaluators import serial
from evo.setup import CLUSTERS, LearnerOptions
from evo.workers import hardware, placement
from evo.workers.hardware import VISIBLE, Gpu
from evo.workers.options import LearnerDevices
from evo.workers.placement import CUDA_PLAYER, GROWTH, LocalOptions, describe
from tests.helpers.calling import small_with

TENSORFLOW = "learner.arithmetic=tensorflow"
FOUR = [Gpu(i, "Tesla V100-SXM2-16GB", f"GPU-{i}{i}{i}{i}-abc") for i in range(4)]
SLICED = [Gpu(0, "A100", "GPU-0000", ("MIG-aa", "MIG-ab", "MIG-ac")), Gpu(1, "A100", "GPU-1111")]


def learning(strategy: str = "one", devices: Sequence[str] = (), weight: int = 0) -> LearnerDevices:
    return LearnerDevices(tuple(devices), strategy != "one", strategy in CLUSTERS, weight)


def plan(
    workers: dict[str, Any], inference: str, visible: str | None = None, learner: Any = None, **more: Any
) -> placement.Slots:
    where = None if learner is None else learning(**learner)
    return placement.plan(LocalOptions(**workers), inference, visible, learner=where, **more)


def pinned(workers: dict[str, Any], visible: str | None = None, **more: Any) -> list[str]:
    return [slot[VISIBLE] for slot in plan(workers, "tensorflow", visible, **more)]


def shares(workers: dict[str, Any], found: list[Gpu] = FOUR, **more: Any) -> list[int]:
    names = pinned(workers, found=found, **more)
    return [names.count(name) for gpu in found for name in gpu.names]


@pytest.mark.parametrize(
    ("workers", "learner", "wanted"),
    [
        # Thirty-two workers on four GPUs, the learner with nearly one of its own.
        ({"gpus": [2, 10, 10, 10]}, {"devices": ["GPU:0"]}, [2, 10, 10, 10]),
        ({"gpus": [3, 10, 10, 10]}, None, [3, 10, 10, 10]),  # the same, where the learner is counted as one
        ({"gpus": [6, 9, 9, 9]}, None, [6, 9, 9, 9]),
        ({"count": 32, "placement": "weighted"}, {"devices": ["GPU:0"], "weight": 8}, [2, 10, 10, 10]),
        ({"count": 32, "placement": "weighted"}, {"devices": [], "weight": 8}, [2, 10, 10, 10]),
        ({"count": 32, "placement": "weighted"}, {"devices": ["GPU:3"], "weight": 8}, [10, 10, 10, 2]),
        ({"count": 32, "placement": "weighted"}, {"devices": ["GPU:1", "GPU:2"], "weight": 8}, [12, 4, 4, 12]),
        ({"count": 12, "placement": "weighted"}, {"devices": [], "strategy": "mirrored", "weight": 5}, [3, 3, 3, 3]),
        ({"count": 32, "placement": "weighted"}, {"devices": ["CPU:0"], "weight": 8}, [8, 8, 8, 8]),
        ({"count": 32, "placement": "weighted"}, {"devices": ["GPU:0"], "weight": 0}, [8, 8, 8, 8]),
        ({"count": 32, "placement": "weighted"}, {"devices": ["GPU:0"], "weight": 100}, [0, 11, 11, 10]),
        ({"count": 32, "placement": "weighted"}, None, [8, 8, 8, 8]),
        ({"count": 32, "placement": "spread"}, {"devices": ["GPU:0"], "weight": 8}, [8, 8, 8, 8]),
        ({"count": 32}, None, [8, 8, 8, 8]),
        ({"count": 5}, None, [2, 1, 1, 1]),
        ({"count": 2, "kind": "gpu"}, None, [1, 1, 0, 0]),
        ({"count": "auto"}, None, [2, 2, 2, 2]),
        ({"gpu_ids": [3, 1], "count": 5}, None, [0, 2, 0, 3]),
        ({"gpu_ids": [3, 1], "gpus": [4, 0]}, None, [0, 0, 0, 4]),
        ({"gpu_ids": [2, 0], "count": 6, "placement": "weighted"}, {"devices": ["GPU:0"], "weight": 2}, [2, 0, 4, 0]),
        ({"gpu_ids": [1], "count": 6, "placement": "weighted"}, {"devices": ["GPU:0"], "weight": 2}, [0, 6, 0, 0]),
        # Two more are on the one that is named by its id, beside the learner.
        (
            {"gpu_ids": ["GPU-2", 0], "count": 6, "placement": "weighted"},
            {"devices": ["GPU:2"], "weight": 2},
            [4, 0, 0, 0],
        ),
        ({"gpus": [1, 1, 1, 1], "memory": "all"}, {"strategy": "multiworker"}, [1, 1, 1, 1]),
        ({"gpus": [1, 1, 1, 1], "memory": "all"}, {"devices": ["CPU:0"]}, [1, 1, 1, 1]),
        ({"gpus": [0, 1, 1, 1], "memory": "all"}, {"devices": ["GPU:0"]}, [0, 1, 1, 1]),
    ],
)
def test_four_gpus_are_shared_as_the_options_say(workers: Any, learner: Any, wanted: list[int]) -> None:
    assert shares(workers, learner=learner) == wanted


@pytest.mark.parametrize(
    ("learner", "last"),
    [
        ({}, 0),
        ({"devices": ["GPU:2"]}, 2),
        ({"devices": ["CPU:0"]}, 0),
        ({"strategy": "mirrored"}, None),
        ({"strategy": "mirrored", "devices": ["GPU:3", "GPU:1"]}, 3),
        ({"strategy": "multiworker", "devices": []}, 0),
    ],
)
def test_a_learner_sees_no_gpu_after_the_last_that_it_needs(learner: dict[str, Any], last: int | None) -> None:
    assert LearnerOptions(**learner).place.last_gpu == last


def test_workers_of_a_gpu_have_numbers_that_follow_each_other() -> None:
    assert pinned({"count": 6}, found=FOUR) == ["0", "0", "1", "1", "2", "3"]


@pytest.mark.parametrize(
    ("workers", "wanted"),
    [
        ({"count": 4}, ["MIG-aa", "MIG-ab", "MIG-ac", "1"]),  # an instance is a device; a GPU that has some is none
        ({"gpu_ids": ["MIG-ab"], "count": 2}, ["MIG-ab"] * 2),
        ({"gpu_ids": ["MIG-ac", "GPU-1"], "gpus": [1, 2]}, ["MIG-ac", "GPU-1111", "GPU-1111"]),
        ({"gpus": [1, 0, 2]}, ["MIG-aa", "MIG-ac", "MIG-ac"]),
    ],
)
def test_instances_of_a_gpu_and_ids_are_devices_like_others(workers: dict[str, Any], wanted: list[str]) -> None:
    assert pinned(workers, found=SLICED) == wanted


@pytest.mark.parametrize(
    ("workers", "visible", "wanted"),
    [
        ({"gpus": [1, 2]}, "5,3,1", ["5", "3", "3"]),
        ({"gpus": [1, 1]}, "GPU-ab, MIG-cd", ["GPU-ab", "MIG-cd"]),
        ({"gpu_ids": [2], "count": 1}, "5,3,1", ["1"]),
        ({"gpu_ids": ["MIG-c"], "count": 1}, "GPU-ab,MIG-cd", ["MIG-cd"]),
        ({"kind": "gpu", "count": 3}, "1,0", ["1", "1", "0"]),
        ({"count": 2}, "-1", ["-1", "-1"]),
        ({"count": 2}, "", ["-1", "-1"]),
        ({"count": 2, "kind": "cpu"}, "0,1", ["-1", "-1"]),
    ],
)
def test_what_the_user_has_hidden_stays_hidden(workers: dict[str, Any], visible: str, wanted: list[str]) -> None:
    assert pinned(workers, visible, found=FOUR) == wanted


def test_a_machine_without_gpus_and_workers_that_want_none_have_them_hidden() -> None:
    assert pinned({"count": 3}, found=[]) == ["-1"] * 3
    assert pinned({"count": "auto"}, cores=5) == ["-1"] * 5
    assert pinned({"count": 2, "kind": "cpu"}, found=FOUR) == ["-1"] * 2
    assert plan({"count": 2}, "lanes", found=FOUR) == [{}] * 2


@pytest.mark.parametrize(
    ("workers", "wanted"),
    [
        ({}, ["", ""]),
        ({"kind": "cpu", "count": 3}, ["", "", ""]),
        ({"kind": "gpu"}, ["0", "1", "2", "3"]),  # one on each
        ({"kind": "gpu", "count": 6}, ["0", "1", "2", "3", "", ""]),  # the others on the CPU: results are the same
        ({"kind": "gpu", "count": 2}, ["0", "1"]),
        ({"gpus": [3, 0, 1]}, ["0", "0", "0", "2"]),
        ({"gpus": [3, 10, 10, 10]}, ["0"] * 3 + ["1"] * 10 + ["2"] * 10 + ["3"] * 10),
        ({"gpus": [3, 10, 10, 10], "count": 34}, ["0"] * 3 + ["1"] * 10 + ["2"] * 10 + ["3"] * 10 + [""]),
        ({"gpu_ids": [3], "count": 3}, ["3", "", ""]),
    ],
)
def test_the_exact_kernel_has_a_worker_on_each_gpu_that_is_asked_for(workers: Any, wanted: list[str]) -> None:
    slots = plan(workers, "lanes", found=FOUR, cores=2)
    assert [slot.get(VISIBLE, "") for slot in slots] == wanted
    assert [slot.get(CUDA_PLAYER) for slot in slots] == ["1" if name else None for name in wanted]
    assert all(GROWTH not in slot for slot in slots)


def test_the_exact_kernel_falls_back_to_no_other_device() -> None:
    with pytest.raises(DeviceError, match="sees no GPU"):
        plan({"kind": "gpu"}, "lanes", found=[])


@pytest.mark.parametrize(
    ("workers", "more", "said"),
    [
        ({"gpus": [1, 1]}, {"found": []}, "lists 2 GPUs, but this machine has none"),
        ({"gpus": [1]}, {"found": []}, "lists 1 GPU, but this machine has none"),
        ({"gpus": [1] * 5}, {"found": FOUR}, "lists 5 GPUs, but this machine has 4"),
        ({"gpus": [1, 1]}, {"visible": "3"}, "CUDA_VISIBLE_DEVICES = '3' lets this process see 1"),
        ({"kind": "gpu"}, {"found": []}, "sees no GPU"),
        ({"kind": "gpu"}, {"visible": "-1", "found": FOUR}, "sees no GPU"),
        ({"gpu_ids": [4]}, {"found": FOUR}, "GPU 4 is missing: this process sees 0, 1, 2, 3"),
        ({"gpu_ids": ["GPU-9"]}, {"found": FOUR}, "GPU-9 is not one of GPU-0000-abc, "),
        ({"gpu_ids": ["MIG-a"]}, {"found": SLICED}, "MIG-a is not one of"),  # it fits all of them
        ({"gpu_ids": ["GPU-0"]}, {"visible": "0,1", "found": FOUR}, "which has numbers; use numbers in both"),
        ({"gpu_ids": ["GPU-0000"]}, {"found": SLICED}, "GPU-0000 is not one of MIG-aa"),
        ({"count": 1, "gpu_ids": [1]}, {"found": FOUR[:1]}, "GPU 1 is missing"),
        ({"count": 1}, {"found": FOUR, "learner": {"devices": ["GPU:4"]}}, 'learner.devices: "GPU:4" is missing'),
    ],
)
def test_a_device_that_is_not_there_is_named(workers: dict[str, Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(DeviceError, match=said) as caught:
        plan(workers, "tensorflow", **more)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("workers", "inference", "learner", "key"),
    [
        ({"gpus": [2], "count": 1}, "lanes", None, "workers.count"),
        ({"gpus": [1, 1], "gpu_ids": [0]}, "lanes", None, "workers.gpu_ids"),
        ({"gpus": [1], "count": 2}, "tensorflow", None, "workers.count"),
        ({"gpus": [1, 1], "gpu_ids": [0]}, "tensorflow", None, "workers.gpu_ids"),
        ({"gpu_ids": ["GPU-1", "GPU-11"]}, "tensorflow", None, "workers.gpu_ids: .* names a GPU twice"),
        ({"gpu_ids": [0, "GPU-0"]}, "tensorflow", None, "workers.gpu_ids: .* names a GPU twice"),
        ({"gpus": [2], "memory": "all"}, "tensorflow", None, "workers.memory"),
        ({"count": 5, "memory": "all"}, "tensorflow", None, "workers.memory"),
        ({"gpus": [1], "memory": "all"}, "tensorflow", {"devices": ["GPU:0"]}, "with the learner"),
    ],
)
def test_contradictions_are_named_by_their_key(workers: Any, inference: str, learner: Any, key: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        plan(workers, inference, found=FOUR, learner=learner)


def test_memory_and_allocator_are_in_the_environment_of_a_slot() -> None:
    def variables(**workers: Any) -> dict[str, str]:
        (slot,) = plan({"gpus": [1], **workers}, "tensorflow", found=FOUR)
        return slot

    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert variables() == {VISIBLE: "0", **order, GROWTH: "true"}
    assert variables(memory="limit", memory_limit_mb=500) == {VISIBLE: "0", **order, GROWTH: "false"}
    assert variables(memory="all") == {VISIBLE: "0", **order, GROWTH: "false"}
    assert variables(allocator="cuda_malloc_async")["TF_GPU_ALLOCATOR"] == "cuda_malloc_async"
    (slot,) = plan({"gpus": [1]}, "tensorflow", visible="7")
    assert slot == {VISIBLE: "7", GROWTH: "true"}  # the user's own numbers are of the user's own order


def test_the_plan_is_told_in_one_line() -> None:
    slots = plan({"gpus": [2, 10, 10, 10]}, "tensorflow", found=FOUR)
    told = "32 workers: 2 on GPU 0, 10 on GPU 1, 10 on GPU 2, 10 on GPU 3"
    assert describe(slots) == told
    assert describe(slots, learning(devices=["GPU:0"])) == f"{told}; the learner on GPU 0"
    assert describe(slots, learning(devices=["GPU:0", "GPU:1"])) == f"{told}; the learner on GPU 0 and GPU 1"
    assert describe([{}], learning(devices=["CPU:0"])) == "1 worker: 1 on the CPU; the learner on the CPU"
    assert describe([{}], learning(devices=[])).endswith("; the learner on the first GPU that it sees, else the CPU")
    assert describe([{}], learning(strategy="towers")).endswith("; the learner on all GPUs that it sees, else the CPU")
    assert describe([{}], learning(strategy="multiworker")).endswith("; the learner on the CPU")
    assert describe([{VISIBLE: "MIG-aa"}, {VISIBLE: "-1"}]) == "2 workers: 1 on MIG-aa, 1 on the CPU"


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any))
def test_every_listed_worker_is_pinned_to_exactly_one_gpu(listed: list[int]) -> None:
    names = pinned({"gpus": listed})
    assert [names.count(str(gpu)) for gpu in range(len(listed))] == listed
    assert len(names) == sum(listed)


@given(st.integers(1, 100), st.integers(1, 8), st.integers(0, 30), st.integers(0, 7))
def test_weighted_loads_differ_by_one_at_most_wherever_a_worker_is(count: int, gpus: int, weight: int, at: int) -> None:
    at %= gpus
    found = [Gpu(i, "", f"GPU-{i}") for i in range(gpus)]
    had = shares({"count": count, "placement": "weighted"}, found, learner={"devices": [f"GPU:{at}"], "weight": weight})
    loads = [share + weight * (i == at) for i, share in enumerate(had)]
    assert sum(had) == count
    assert max((load for load, share in zip(loads, had, strict=True) if share), default=0) - min(loads) <= 1


LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb      Device  1: (UUID: MIG-GPU-5d5ba0d6/9/0)
GPU 1: NVIDIA H200 (UUID: GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0)
"""


def test_gpus_are_read_from_what_the_driver_s_tool_prints() -> None:
    first, second = hardware.parsed(LISTED)
    assert (first.index, first.model) == (0, "NVIDIA A100-SXM4-40GB")
    assert first.names == ("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-GPU-5d5ba0d6/9/0")
    assert second == Gpu(1, "NVIDIA H200", "GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0")
    assert second.names == ("1",)
    assert hardware.parsed("No devices were found\n") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [(None, ("0", "1")), ("1", ("1",)), ("", ()), ("-1", ()), ("-1,0", ()), ("0,-1,1", ("0",)), (" 1 , 0", ("1", "0"))],
)
def test_a_process_may_use_what_cuda_reads_of_the_variable(
    monkeypatch: pytest.MonkeyPatch, text: str | None, names: tuple[str, ...]
) -> None:
    two = [Gpu(0, "NVIDIA T4", "GPU-a"), Gpu(1, "NVIDIA T4", "GPU-b")]
    if text is None:
        monkeypatch.delenv(VISIBLE, raising=False)
    else:
        monkeypatch.setenv(VISIBLE, text)
    monkeypatch.setattr(hardware, "found", lambda: two)
    assert hardware.visible.__wrapped__() == names
    monkeypatch.setattr(hardware, "found", list)
    assert hardware.visible.__wrapped__() == ()


def test_where_the_tool_is_missing_the_driver_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bus, uuid in (("0000:3b:00.0", "GPU-b"), ("0000:1a:00.0", "GPU-a")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \t\t NVIDIA T4\nIRQ:   1\nGPU UUID: \t {uuid}\n")
    monkeypatch.setattr(hardware, "DRIVER", tmp_path)
    monkeypatch.setenv("PATH", "")
    assert hardware.found() == [Gpu(0, "NVIDIA T4", "GPU-a"), Gpu(1, "NVIDIA T4", "GPU-b")]
    monkeypatch.setattr(hardware, "DRIVER", tmp_path / "none")
    assert hardware.found() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('start = "threads"', 'workers.start: must be one of "forkserver", "spawn", not "threads"'),
        ('kind = "cpu"\ngpus = [1]', 'workers.kind: "cpu" does not use gpus'),
        ("gpus = [0, 0]", "workers.gpus: [0, 0] has no worker"),
        ('gpus = [1]\nplacement = "weighted"', 'workers.placement: "weighted" counts workers per GPU itself'),
        ('placement = "explicit"', 'workers.placement: "explicit" needs gpus'),
        ("gpu_ids = [1, 1]", "workers.gpu_ids: [1, 1] names a GPU twice"),
        ('gpu_ids = ["0"]', 'workers.gpu_ids: "0" is no number'),
        ('gpu_ids = ["GPU-1,2"]', 'workers.gpu_ids: "GPU-1,2" is no number'),
        ("gpu_ids = [-1]", "workers.gpu_ids"),
        ('allocator = "none"', 'workers.allocator: must be one of "", "cuda_malloc_async"'),
    ],
)
def test_a_contradiction_in_the_file_is_a_line_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(f"[workers]\n{text}\n")
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        Experiment.load(path)


def dry_run(path: Path, capsys: pytest.CaptureFixture[str], *sets: str) -> list[str]:
    path.write_text('[policy]\ninference = "tensorflow"\n')
    words = [word for one in sets for word in ("--set", one)]
    assert main(["run", str(path), "--dry-run", *words]) == 0
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]


def test_a_dry_run_prints_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setattr(hardware, "found", lambda: FOUR)  # what the machine has is all that is not real here
    path = tmp_path / "experiment.toml"
    told = "# 32 workers: 2 on GPU 0, 10 on GPU 1, 10 on GPU 2, 10 on GPU 3"
    assert dry_run(path, capsys, "workers.gpus=[2, 10, 10, 10]") == [told]
    assert dry_run(path, capsys, 'workers.gpu_ids=["GPU-3333", 0]', "workers.count=3") == [
        "# 3 workers: 2 on GPU GPU-3333-abc, 1 on GPU 0"
    ]
    monkeypatch.setattr(hardware, "found", list)
    plan_line, note = dry_run(path, capsys, "workers.gpus=[2, 10, 10, 10]")
    assert plan_line == told
    assert note == "# not on this machine: workers.gpus lists 4 GPUs, but this machine has none"
    assert dry_run(path, capsys, "workers.count=2") == ["# 2 workers: 2 on the CPU"]


def test_a_dry_run_plans_for_a_machine_that_has_the_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setattr(hardware, "found", list)
    path, kind = tmp_path / "experiment.toml", "workers.kind=gpu"
    absent = '# not on this machine: workers.kind: "gpu", and this process sees no GPU; "auto" plays on the CPU where '
    assert dry_run(path, capsys, kind) == ["# 2 workers on each GPU", f"{absent}there is none"]
    assert dry_run(path, capsys, kind, "workers.count=32")[0] == "# 32 workers on all GPUs together"
    learned = ("run.algorithm=ppo", 'learner.devices=["GPU:0"]')
    weighted = ("workers.count=32", "workers.placement=weighted", "workers.gpu_ids=[0, 1, 2, 3]")
    assert dry_run(path, capsys, kind, *weighted, *learned)[0] == (
        "# 32 workers: 2 on GPU 0, 10 on GPU 1, 10 on GPU 2, 10 on GPU 3; the learner on GPU 0"
    )
    assert dry_run(path, capsys, kind, *learned)[0] == "# 2 workers on each GPU; the learner on GPU 0"
    alone, *notes = dry_run(path, capsys, "workers.backend=serial", *learned)
    assert alone == "# no worker: the master plays; the learner on GPU 0"
    assert len(notes) == 1
    monkeypatch.setenv(VISIBLE, "-1")  # hidden here, and not there
    plan_line, note = dry_run(path, capsys, "workers.gpus=[2, 10]")
    assert plan_line == "# 12 workers: 2 on GPU 0, 10 on GPU 1"
    assert note.endswith("CUDA_VISIBLE_DEVICES = '-1' lets this process see 0")


@pytest.mark.parametrize("backend", ["processes", "serial"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            small_with(run='algorithm = "ppo"\ngenerations = 1', learner='devices = ["GPU:0"]'),
            'learner.devices: "GPU:0" is missing: this process sees no GPU; "CPU:0" is the CPU',
        ),
        (
            small_with(run="generations = 1", policy='inference = "tensorflow"', workers="gpus = [1, 1]"),
            "workers.gpus lists 2 GPUs, but this machine has none",
        ),
    ],
)
def test_a_run_that_asks_for_a_gpu_that_is_not_there_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    backend: str, text: str, told: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(hardware, "found", list)
    monkeypatch.delenv(VISIBLE, raising=False)
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    assert main(["run", str(path), "--backend", backend, "--run-dir", str(tmp_path / "run")]) == 5
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_gpus_of_other_processes_need_not_be_here() -> None:
    of_others = {"strategy": "multiworker", "devices": ["GPU:0", "GPU:4"]}
    assert plan({"count": 1}, "lanes", "0", learner=of_others) == [{}]
    assert pinned({"count": 1}, found=FOUR, learner=of_others) == ["0"]


def test_a_master_that_plays_itself_has_a_gpu_to_itself_and_its_learner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setattr(hardware, "found", lambda: FOUR)
    assert [slot[VISIBLE] for slot in serial.Options(memory="all", count=8).slots("tensorflow")] == ["0"]
    assert [slot[VISIBLE] for slot in serial.Options(memory="all", gpus=[0, 1]).slots("tensorflow")] == ["1"]
    path = tmp_path / "experiment.toml"
    told = dry_run(path, capsys, "workers.backend=serial", "workers.memory=all", "run.algorithm=ppo", TENSORFLOW)
    assert told == ["# no worker: the master plays; the learner on the first GPU that it sees, else the CPU"]


def test_where_it_is_played_and_placed_is_in_no_hash(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('[run]\nalgorithm = "ppo"\n')
    plain = Experiment.load(path).identity()
    sets = ['workers.kind="cpu"', 'workers.placement="weighted"', "workers.threads_inter=2", 'workers.start="spawn"']
    assert Experiment.load(path, *sets, "workers.log_placement=true", "learner.weight=3").identity() == plain


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, 99),
        ({"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 99),
        ({}, 99),
    ],
)
def test_a_container_s_share_of_the_cores_is_seen_in_both_versions_of_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], share: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(99)))
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert hardware.cores(tmp_path) == share
