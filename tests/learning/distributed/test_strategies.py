"""Every strategy ends where one device does, clips after it has merged, and survives or tells what is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evo.errors import ConfigurationError, DeviceError
from evo.learning.distributed import make_learner
from evo.learning.distributed.cluster import environments
from evo.setup import LearnerOptions
from evo.workers import hardware
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.learning.distributed import spread_learners

ROOT = Path(__file__).parents[3]
CLOSE = {"rtol": 0, "atol": 1e-6}
WITHIN = {
    f"{name} {n}": {"strategy": name, "logical_cpus": 4, "devices": [f"CPU:{i}" for i in range(n)]}
    for name in ("towers", "mirrored", "central")
    for n in (2, 4)
}
APART = {
    f"{name} {n}": {"strategy": name, "processes": n} for name in ("multiworker", "parameter-server") for n in (2, 4)
}
NAMED = {"one 1": {"devices": ["CPU:0"]}}
KILLED = "killed:worker 1"
QUICK = ("towers 2",)


def learned(where: Path, jobs: dict[str, dict[str, Any]]) -> dict[str, NDArray[Any]]:
    """Return what a process of its own has learned: devices are decided before TensorFlow starts."""
    out = where / "out.npz"
    words = [sys.executable, spread_learners.__file__, str(out), json.dumps(jobs)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(out) as file:
        return {**file, "stderr": np.array(done.stderr), "stdout": np.array(done.stdout)}


def of(learned_by: dict[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    return {key.partition("/")[2]: array for key, array in learned_by.items() if key.startswith(f"{name}/")}


@pytest.fixture(scope="session")
def one() -> dict[str, NDArray[Any]]:
    return spread_learners.everything(LearnerOptions(threads=1, arithmetic="tensorflow"))


def assert_same(several: dict[str, NDArray[Any]], one: dict[str, NDArray[Any]], name: str) -> None:
    for array in ("ppo_weights", "ppo_first", "ppo_second", "kl", "norms", "dqn_weights", "target", "errors"):
        np.testing.assert_allclose(several[array], one[array], err_msg=f"{name}: {array}", **CLOSE)
    assert several["ppo_updates"] == one["ppo_updates"] == spread_learners.STEPS
    assert (one["norms"] > 0.05).sum() > 10  # of which most are clipped: after the merge, or they would not agree
    np.testing.assert_array_equal(several["restored"], several["ppo_weights"])
    told = str(several["fingerprint"])
    assert told.startswith(str(one["fingerprint"]).split(", learning step")[0])
    assert f", {name.split()[0]} on " in told


@pytest.mark.long
def test_twenty_steps_of_ppo_and_dqn_on_several_devices_are_those_of_one(
    tmp_path: Path, one: dict[str, NDArray[Any]]
) -> None:
    learned_by = learned(tmp_path, {name: WITHIN[name] for name in QUICK})
    for name in QUICK:
        assert_same(of(learned_by, name), one, name)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["towers", "mirrored", "central"])
def test_the_backward_pass_of_every_share_is_computed_where_its_forward_pass_is(tmp_path: Path, strategy: str) -> None:
    learned_by = learned(tmp_path, {":one update": {"strategy": strategy, "logical_cpus": 2, "log_placement": True}})
    told = re.findall(r"\((\w+)\): .*device:(CPU:\d)$", str(learned_by["stdout"]), re.MULTILINE)
    found = {
        kind: [device for operation, device in told if operation == kind]
        for kind in ("Conv2D", "ReluGrad", "Conv2DBackpropFilter", "MatMul")
    }
    for kind, devices in found.items():
        assert devices.count("CPU:0") == devices.count("CPU:1") > 0, kind


@pytest.mark.long
def test_steps_in_two_processes_are_those_of_one_and_one_that_is_killed_stops_both_in_one_line(
    tmp_path: Path, one: dict[str, NDArray[Any]]
) -> None:
    learned_by = learned(tmp_path, {"multiworker 2": APART["multiworker 2"], KILLED: APART["multiworker 2"]})
    assert_same(of(learned_by, "multiworker 2"), one, "multiworker 2")
    told = json.loads(str(of(learned_by, KILLED)["told"]))
    assert told["code"] == 5
    assert "the learner's worker 1 was killed by SIGKILL" in told["error"]
    assert "resume the run" in told["error"]
    assert told["left"] == []
    assert told["apart"]  # in a network of their own, which has
    assert told["interfaces"] == ["lo"]  # nothing but a loopback
    assert told["listening"] == 2


@pytest.mark.long
@pytest.mark.parametrize("jobs", [WITHIN, NAMED, APART], ids=["within", "named", "apart"])
def test_twenty_steps_are_the_same_with_every_strategy(
    tmp_path: Path, one: dict[str, NDArray[Any]], jobs: dict[str, dict[str, Any]]
) -> None:
    learned_by = learned(tmp_path, jobs)
    for name in jobs:
        assert_same(of(learned_by, name), one, name)


@pytest.mark.long
def test_a_device_that_is_not_there_is_named(one: dict[str, NDArray[Any]]) -> None:
    from evo.learning.distributed.replicas import present

    assert present(("CPU:0",)) == present(()) == ["/CPU:0"]
    with pytest.raises(
        DeviceError, match=r"learner\.devices: CPU:1, GPU:7 missing; this process sees CPU:0; .*logical_cpus"
    ):
        present(("CPU:0", "CPU:1", "GPU:7"))


@pytest.mark.parametrize(
    ("visible", "there", "told"),
    [
        (
            None,
            [hardware.Gpu(0, "A100", "GPU-0"), hardware.Gpu(1, "A100", "GPU-1")],
            "TensorFlow sees none of GPU 0, 1; ",
        ),
        ("GPU-1", [], "TensorFlow sees none of GPU GPU-1; "),
        (None, [], ""),
        ("-1", [hardware.Gpu(0, "A100", "GPU-0")], ""),  # hidden, so nobody expects it
    ],
)
def test_a_learner_that_does_not_see_the_gpus_that_are_there_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], visible: str | None, there: Any, told: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(visible))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(hardware, "found", lambda: there)
    for options in (LearnerOptions(threads=1, arithmetic="tensorflow"), LearnerOptions(threads=1, devices=["CPU:0"])):
        make_learner(spread_learners.NETWORK, options, spread_learners.PPOLoss(3))
    said = capsys.readouterr().err
    assert said.count("the learner is on the CPU") == bool(told)  # not where the CPU was asked for
    assert told in said


@pytest.mark.long
def test_a_worker_of_a_parameter_server_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    both = {KILLED: APART["parameter-server 2"], "whole:nobody": {"strategy": "parameter-server", "processes": 1}}
    learned_by = learned(tmp_path, both)
    run = of(learned_by, KILLED)
    told = json.loads(str(run["told"]))
    assert told["updates"] == 10
    assert told["left"] == []
    assert "worker 1 was killed by SIGKILL" in str(learned_by["stderr"])
    assert told["apart"]
    np.testing.assert_allclose(run["weights"], of(learned_by, "whole:nobody")["weights"], **CLOSE)


@pytest.mark.long
def test_updates_that_run_ahead_survive_a_killed_worker_too_and_each_is_counted_once(tmp_path: Path) -> None:
    learned_by = learned(tmp_path, {"killed:worker 0": {"strategy": "parameter-server", "staleness": 2}})
    run = of(learned_by, "killed:worker 0")
    told = json.loads(str(run["told"]))
    assert (told["updates"], told["left"]) == (10, [])
    assert np.isfinite(run["weights"]).all()


@pytest.mark.long
@pytest.mark.parametrize(("victim", "staleness"), [("parameter server", 2), ("coordinator", 0)])
def test_who_holds_the_weights_cannot_be_done_without(tmp_path: Path, victim: str, staleness: int) -> None:
    options = {"strategy": "parameter-server", "staleness": staleness}
    learned_by = learned(tmp_path, {f"killed:{victim}": options})
    told = json.loads(str(of(learned_by, f"killed:{victim}")["told"]))
    assert told["code"] == 5
    assert f"the learner's {victim} was killed by SIGKILL" in told["error"]
    assert told["left"] == []


@pytest.mark.long
def test_processes_of_a_learner_end_with_a_master_that_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, spread_learners.__file__, "none"]
    words.append('{":wait": {"strategy": "multiworker"}}')
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as master:
        assert master.stdout is not None
        pids = [int(word) for word in master.stdout.readline().split()]
        master.kill()
    assert len(pids) == 2
    deadline = time.monotonic() + 20
    while left := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


RUN = """
[run]
algorithm = "ppo"
generations = 3
[environment]
size = 4
starvation = 12
observation = "ego"
[policy]
conv = [[3, 3, 1]]
dense = [6]
[workers]
backend = "serial"
[validation]
every = 2
episodes = 5
[test]
every = 10
episodes = 5
[learner]
threads = 1
[ppo]
envs = 12
horizon = 9
envs_per_task = 5
epochs = 2
minibatches = 3
"""


def ran(where: Path, *words: str) -> tuple[dict[str, Any], str]:
    (where / "small.toml").write_text(RUN)
    found = {**os.environ, "PYTHONPATH": str(ROOT)}
    found.pop("CUDA_VISIBLE_DEVICES", None)  # the benchmarks, which other tests import, set it
    line = [sys.executable, "-m", "evo.run", *words, "--json"]
    done = subprocess.run(line, cwd=where, env=found, capture_output=True, text=True, timeout=1800)
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**summary, "code": done.returncode}, done.stderr


@pytest.mark.long
def test_a_device_that_is_not_there_is_told_at_once_and_nothing_hangs(tmp_path: Path) -> None:
    words = ("--set", "learner.strategy=mirrored", "--set", 'learner.devices=["CPU:0", "GPU:7"]')
    summary, told = ran(tmp_path, "small.toml", "--run-dir", "run", *words)
    assert summary["code"] == 5
    assert 'learner.devices: "GPU:7" is missing' in told
    assert "Traceback" not in told


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["towers --set learner.logical_cpus=2", "multiworker", "parameter-server"])
def test_where_operations_run_is_told_beside_a_run_whose_last_line_stays_its_summary(
    tmp_path: Path, strategy: str
) -> None:
    words = ("--set", *f"learner.strategy={strategy}".split(), "--set", "learner.log_placement=true")
    summary, told = ran(tmp_path, "small.toml", "--run-dir", "run", "--generations", "1", *words)
    assert (summary["code"], summary["status"]) == (0, "done")
    # Lines of two processes may run into each other, so several operations are looked for.
    places = re.findall(r"\((?:Conv2D|MatMul)\w*\): .*task:(\d)/device:(CPU:\d)$", told, re.MULTILINE)
    assert set(places) == {("0", "CPU:0"), ("0", "CPU:1") if "towers" in strategy else ("1", "CPU:0")}
    resumed, told = ran(tmp_path, "--resume", "run", "--generations", "2")  # it is in no identity
    assert (resumed["code"], resumed["generations"]) == (0, 2)


@pytest.mark.long
@pytest.mark.parametrize(
    "strategy", ["mirrored --set learner.logical_cpus=2", "multiworker", "parameter-server --set learner.staleness=1"]
)
def test_a_run_learns_with_a_strategy_resumes_with_it_alone_and_keeps_its_fingerprint(
    tmp_path: Path, strategy: str
) -> None:
    name = strategy.split()[0]
    words = ("--set", *f"learner.strategy={strategy}".split())
    straight, told = ran(tmp_path, "small.toml", "--run-dir", "straight", *words)
    assert (straight["code"], straight["generations"]) == (0, 3)
    assert ("results are not exact" in told) == ("staleness" in strategy)
    assert f"{name} on " in (tmp_path / "straight" / "fingerprint.learning").read_text()
    ran(tmp_path, "small.toml", "--run-dir", "run", "--generations", "1", *words)
    resumed, _ = ran(tmp_path, "--resume", "run", "--generations", "3")
    assert resumed["generations"] == 3
    assert (resumed["state_hash"] == straight["state_hash"]) or "staleness" in strategy
    changed, told = ran(tmp_path, "--resume", "run", "--generations", "4", "--set", "learner.learning_rate=root")
    assert changed["code"] == 2
    assert 'learner.learning_rate: "given" in the run, "root" now' in told


@pytest.mark.long
def test_a_process_that_lacks_its_gpu_is_not_let_to_compute_elsewhere(tmp_path: Path) -> None:
    words = ("--set", "learner.strategy=multiworker", "--set", 'learner.devices=["CPU:0", "GPU:0"]')
    summary, told = ran(tmp_path, "small.toml", "--run-dir", "run", *words)
    assert summary["code"] == 5
    assert "learner.devices: a process is pinned to GPU 0 and sees none" in told
    assert "Traceback" not in told


def test_every_process_is_told_its_place_and_only_ours_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hardware, "found", list)

    def places(given: str = "", **options: Any) -> list[tuple[str, str, int, str, dict[str, list[str]]]]:
        found = []
        for name, environment in environments(LearnerOptions(**options), given):
            told = json.loads(environment["TF_CONFIG"])
            task = told["task"]
            found.append((name, task["type"], task["index"], environment["CUDA_VISIBLE_DEVICES"], told["cluster"]))
        return found

    pair = {"worker": ["127.0.0.1:4000", "127.0.0.1:4001"]}
    assert places(strategy="multiworker", devices=["GPU:3", "CPU:0"]) == [
        ("worker 0", "worker", 0, "3", pair),
        ("worker 1", "worker", 1, "-1", pair),
    ]
    served = places(strategy="parameter-server", processes=1)
    assert [one[:3] for one in served] == [
        ("coordinator", "chief", 0), ("parameter server", "ps", 0), ("worker 0", "worker", 0)
    ]  # fmt: skip
    sliced = [hardware.Gpu(0, "A100", "GPU-0", ("MIG-a", "MIG-b")), hardware.Gpu(1, "A100", "GPU-1")]
    monkeypatch.setattr(hardware, "found", lambda: sliced)
    assert [one[3] for one in places(strategy="multiworker", devices=["GPU:2", "GPU:1"])] == ["1", "MIG-b"]
    with pytest.raises(DeviceError, match=r"learner\.devices: GPU:3 is missing: this machine has 3"):
        places(strategy="multiworker", devices=["GPU:2", "GPU:3"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,7")
    assert [one[3] for one in places(strategy="multiworker", devices=["GPU:1", "GPU:0"])] == ["7", "GPU-a"]
    with pytest.raises(DeviceError, match=r"learner\.devices: GPU:2 is missing"):
        places(strategy="multiworker", devices=["GPU:1", "GPU:2"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # all are hidden
    with pytest.raises(DeviceError, match=r"learner\.devices: GPU:0 is missing"):
        places(strategy="multiworker", devices=["GPU:0", "GPU:0"])
    elsewhere = {"worker": ["10.0.0.1:4000", "10.0.0.2:4000"]}
    given = {"cluster": elsewhere, "task": {"type": "worker", "index": 0}}
    ours = ("worker 0", "worker", 0, "-1", elsewhere)
    assert places(json.dumps(given), strategy="multiworker") == [ours]
    # What another machine has is not ours to know.
    assert places(json.dumps(given), strategy="multiworker", devices=["CPU:0", "GPU:0"]) == [ours]
    for wrong, told in (
        ({**given, "task": {"type": "worker", "index": 1}}, "a run is worker 0"),
        ({**given, "cluster": {"worker": ["10.0.0.1:4000"]}}, r"1 workers, and learner\.processes is 2"),
        ({"cluster": {}}, "has no addresses of worker"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            places(json.dumps(wrong), strategy="multiworker")


@pytest.mark.long
def test_a_process_that_is_started_by_hand_and_lacks_its_gpu_says_so_in_a_line() -> None:
    config = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 1}}
    environment = {**os.environ, "TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": "63"}  # nobody has so many
    words = [sys.executable, "-m", "evo.learning.distributed.member"]
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    told = "learner.devices: a process is pinned to GPU 63 and sees none\n"
    assert (done.returncode, done.stderr) == (5, told)


@pytest.mark.long
def test_processes_on_given_addresses_are_joined_by_those_that_are_started_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    places = [f"127.0.0.1:{port}" for port in ports]
    config = [json.dumps({"cluster": {"worker": places}, "task": {"type": "worker", "index": i}}) for i in (0, 1)]
    words = [sys.executable, "-m", "evo.learning.distributed.member", "--threads", "1"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    environment = {**os.environ, "TF_CONFIG": config[1]}
    with subprocess.Popen(words, env=environment) as by_hand:
        try:
            monkeypatch.setenv("TF_CONFIG", config[0])
            run = of(learned(tmp_path, {":nobody": {"strategy": "multiworker"}}), ":nobody")
            assert by_hand.wait(timeout=30) == 0
        finally:
            by_hand.kill()
    told = json.loads(str(run["told"]))
    assert (told["updates"], told["apart"]) == (10, False)
