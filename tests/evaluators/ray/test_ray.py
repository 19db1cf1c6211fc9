"""What can be said of the Ray backend without a cluster, and one of its own on this machine that leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.errors import ConfigurationError, DataError, HeadLostError, first_line
from evo.evaluators import ray
from evo.evaluators.ray import Options
from evo.evaluators.ray.cluster import EVERYWHERE, Scratch, capacity, lacking, runtime_env
from evo.evaluators.ray.cluster import OURS as RAYS_OWN
from evo.evaluators.ray.tasks import array_bytes, matrix_of
from evo.evaluators.ray.worker import TaskMatrix
from evo.files.layout import CONFIG
from evo.plugins import registry
from evo.records import Episodes, Task, WeightSource
from evo.store.run import Run
from evo.training.beginning import begin, take_up
from tests.evaluators.ray.ray_nodes import LOOPBACK, listening, marked, needs_ray, variables
from tests.evaluators.test_evaluators import alive, until
from tests.helpers.calling import ROOT, SMALL, after, called, command, summary_of
from tests.helpers.specs import make, spec

GONE = 10.0  # seconds in which all processes of a cluster have to end with its master


@pytest.mark.long
def test_where_ray_is_not_installed_a_run_ends_with_the_command_that_installs_it_and_makes_nothing(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for words in (("--run-dir", "run"), ("--dry-run",)):
        summary = summary_of(small, "small.toml", *words, "--backend", "ray", code=2)
        assert "python -m pip install -r requirements-ray.lock" in summary["error"]
        assert "\n" not in summary["error"]
    assert not (small / "run").exists()
    summary_of(small, "small.toml", "--run-dir", "run", "--generations", 1)
    assert (
        "pip install" in summary_of(small, "--resume", "run", "--generations", 2, "--backend", "ray", code=2)["error"]
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("workers.address=ray:/x", 'is not "auto", "local", "HOST:PORT" or "ray://HOST:PORT"'),
        ("workers.address=10.0.0.1", 'is not "auto", "local"'),
        ("workers.resources={GPU = 2}", "GPU must be at most 1"),
        ("workers.resources={CPU = 0}", "must be more than 0"),
        ("workers.resources={CPU = -1.5}", "must be more than 0"),
    ],
)
def test_an_address_or_a_request_that_makes_no_sense_is_a_mistake(small: Path, word: str, message: str) -> None:
    _, err = called(small, "small.toml", "--dry-run", "--set", word, code=2)
    assert message in err


HOST = "ray://203.0.113.9:10001"  # of nobody
TYPED = f"--set workers.address={HOST}"
ON_HOST = f'backend = "ray"\naddress = "{HOST}"'


@pytest.mark.parametrize("backend", ["ray", "processes"])
def test_a_file_that_names_a_host_is_refused_with_the_words_to_type(small: Path, backend: str) -> None:
    text = SMALL.replace('backend = "serial"', ON_HOST.replace("ray", backend, 1))
    (small / "stranger.toml").write_text(text)
    line = text.splitlines().index(f'address = "{HOST}"') + 1
    for words in ("run stranger.toml", "run stranger.toml --dry-run", "plan stranger.toml", "plan stranger.toml --set "
                  "workers.backend=serial", "sweep stranger.toml --over ga.sigma=0.1,0.2 --seeds 1"):  # fmt: skip
        _, err = called(small, *words.split(), program="evo", code=2)
        assert f"stranger.toml:{line}: workers.address: a file may only name" in err
        assert TYPED in err
    (small / "compared.toml").write_text('[comparison]\nexperiments = ["stranger.toml"]\nseeds = [1]\n')
    assert TYPED in called(small, "compare", "compared.toml", program="evo", code=2)[1]
    assert {path.name for path in small.iterdir()} == {"small.toml", "stranger.toml", "compared.toml"}
    typed = Experiment.load(small / "stranger.toml", f"workers.address={HOST}", backend="ray")
    assert typed.hosts == TYPED.split()
    for address in ("local", "auto"):
        (small / "usual.toml").write_text(text.replace(HOST, address))
        assert Experiment.load(small / "usual.toml", backend="ray").hosts == []


def test_changes_that_a_comparison_file_asks_for_name_no_host_either(small: Path) -> None:
    changes = ["workers.backend=ray", f"workers.address={HOST}"]
    text = f'[comparison]\nexperiments = ["small.toml"]\nseeds = [1]\nset = {json.dumps(changes)}\n'
    (small / "compared.toml").write_text(text)
    _, err = called(small, "compare", "compared.toml", program="evo", code=2)
    assert "compared.toml:4: comparison.set: workers.address: a file may only name" in err
    assert not (small / "runs").exists()


@pytest.mark.long
def test_a_run_directory_that_names_a_host_is_only_played_here_and_not_resumed_there(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary_of(small, "small.toml", "--run-dir", "run", "--generations", 1)
    config = small / "run" / CONFIG
    stored = re.sub(r'(?m)^backend = "serial"', ON_HOST, config.read_text())
    assert HOST in stored
    config.write_text(stored)

    def refused(*_: object) -> object:
        raise AssertionError("a file has chosen Ray")

    monkeypatch.setattr(ray, "make", refused)
    for words in ("evaluate run --episodes 8 --workers 1", "verify run --workers 1", "report run", "doctor run",
                  "watch run", "replay run --json --episode 0", "replay run --generation 0 --candidate 1"):  # fmt: skip
        called(small, *words.split(), program="evo")
    _, err = called(small, "resume", "run", "--generations", 2, program="evo", code=2)
    assert "workers.address: a file may only name" in err
    assert TYPED in err
    assert config.read_text() == stored
    called(small, "resume", "run", "--generations", 2, "--backend", "serial", program="evo")


def test_a_run_that_was_begun_with_a_host_is_resumed_with_it_or_without_ray(small: Path) -> None:
    typed = Experiment.load(small / "small.toml", "workers.backend=ray", f"workers.address={HOST}", generations=1)
    begin(typed, small / "run").close()
    with pytest.raises(ConfigurationError, match=re.escape(TYPED)):
        Experiment.load(small / "run" / CONFIG, resolved=True)
    again = Experiment.load(small / "run" / CONFIG, *TYPED.split()[1:], resolved=True)
    take_up(again, small / "run").close()
    assert again.hosts == typed.hosts == TYPED.split()
    summary = summary_of(small, "--resume", "run", "--backend", "serial")
    summary_of(small, "small.toml", "--run-dir", "straight", "--generations", 1)
    assert summary["state_hash"] == Run(small / "straight").store.state_hash


def test_a_request_is_a_cpu_a_thread_and_what_resources_say() -> None:
    assert Options(threads=3).request("lanes") == {"CPU": 3.0}
    assert Options(threads=3, resources={"CPU": 0.5, "big": 2.0}).request("lanes") == {"CPU": 0.5, "big": 2.0}
    on_gpu = Options(kind="gpu", resources={"GPU": 0.25})
    assert on_gpu.request("tensorflow") == {"CPU": 1.0, "GPU": 0.25}
    with pytest.raises(ConfigurationError, match=r"only policy\.inference"):
        on_gpu.request("lanes")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("gpus = [2, 2]", "workers.gpus: is for processes of this machine; on Ray say which part of a GPU"),
        ("gpu_ids = [0]", "workers.gpu_ids: is for processes of this machine"),
        ('placement = "weighted"', "workers.placement: is for processes of this machine"),
        ('kind = "gpu"', 'workers.kind: "gpu", but on Ray'),
        ('kind = "cpu"\nresources = {GPU = 0.25}', 'workers.kind: "cpu", but on Ray'),
        ('memory = "all"\nresources = {GPU = 0.25}', "workers.memory"),
    ],
)
def test_options_that_have_no_effect_on_ray_are_refused(tmp_path: Path, keys: str, message: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(f'[workers]\nbackend = "ray"\n{keys}\n')
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        Experiment.load(path)


def test_what_is_missing_is_named() -> None:
    nodes = [{"CPU": 4.0, "memory": 1e9}, {"CPU": 8.0, "GPU": 1.0}]
    for request in ({"CPU": 8.0}, {"CPU": 0.5, "GPU": 1.0}, {"CPU": 4.0, "memory": 1e9}):
        assert lacking(nodes, request) == ""
    assert "none of 2 Ray nodes can ever play it; what is missing is tpu (at most 0)" in lacking(nodes, {"tpu": 1.0})
    assert "CPU (at most 8), GPU (at most 1)" in lacking(nodes, {"CPU": 9.0, "GPU": 4.0})
    assert "none has all" in lacking(nodes, {"GPU": 1.0, "memory": 1e9})
    assert "none of 0 Ray nodes" in lacking([], {"CPU": 1.0})


def test_a_node_has_room_for_as_many_tasks_as_its_scarcest_resource() -> None:
    assert capacity({"CPU": 16.0, "GPU": 1.0}, {"CPU": 1.0, "GPU": 0.25}) == 4
    assert capacity({"CPU": 3.0, "GPU": 1.0}, {"CPU": 1.0, "GPU": 0.1}) == 3
    assert capacity({"GPU": 1.0, "CPU": 99.0}, {"CPU": 1.0, "GPU": 0.1}) == 10
    assert capacity({"CPU": 16.0}, {"CPU": 1.0, "GPU": 0.25}) == 0


def test_weights_of_another_network_are_refused_by_a_worker(tmp_path: Path) -> None:
    matrix = TaskMatrix()
    matrix.parents = np.ones((2, 5), np.float32)
    assert matrix.matrix("a.h5", 5) is matrix.parents
    assert matrix.matrix("", 7).shape == (0, 7)
    with pytest.raises(DataError, match=r"a\.h5"):
        matrix.matrix("a.h5", 7)
    assert matrix_of(tmp_path, "").shape == (0, 0)


def test_what_a_task_carries_is_counted() -> None:
    source = WeightSource(*(np.zeros(3, kind) for kind in (np.int32, np.int32, np.uint64, np.float32)))
    assert array_bytes(Task(source, Episodes(np.zeros(5, np.uint64)))) == 3 * (4 + 4 + 8 + 4) + 5 * 8


def test_what_is_sent_to_a_cluster_is_code_and_no_run() -> None:
    sent = runtime_env("ray://10.0.0.1:10001", {"THREADS": "1"}, "{}")
    assert [Path(path).name for path in sent["py_modules"]] == ["evo", "snake"]
    assert all((Path(path) / "__init__.py").exists() for path in sent["py_modules"])
    assert {"runs/", "*.h5"} <= set(sent["excludes"])
    assert sent["env_vars"] == {"THREADS": "1"}
    for address in ("local", "auto", "10.0.0.1:6379"):  # where nodes have the code already
        assert runtime_env(address, {"THREADS": "1"}, "{}").keys() == {"env_vars"}


def test_a_submitted_job_s_own_directory_is_the_code() -> None:
    job = '{"runtime_env": {"working_dir": "gcs://x.zip", "excludes": ["runs/"], "env_vars": {"THREADS": "4"}}}'
    assert runtime_env("ray://a:1", {"THREADS": "1", "OTHER": "1"}, job) == {"env_vars": {"OTHER": "1"}}
    assert "py_modules" in runtime_env("ray://a:1", {}, '{"runtime_env": {}, "metadata": {}}')


def test_advice_of_many_lines_becomes_one() -> None:
    assert first_line(ValueError("no such thing\nfirst, try this\nthen that")) == "no such thing"
    assert first_line(ValueError()) == "ValueError"


@needs_ray
def test_the_plan_says_where_and_with_what() -> None:
    assert Options(threads=2).plan("lanes") == "tasks on a Ray cluster of its own, each with CPU = 2"
    there = Options(address="10.0.0.1:6379", resources={"GPU": 0.1})
    assert there.plan("tensorflow") == "tasks on the Ray cluster at 10.0.0.1:6379, each with CPU = 1, GPU = 0.1"


@needs_ray
def test_a_cluster_of_ones_own_hears_nobody_else_and_is_gone_afterwards(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = summary_of(small, "small.toml", "--run-dir", "serial", "--backend", "serial")
    mark = uuid.uuid4().hex
    scratch = small / "t"
    scratch.mkdir()
    monkeypatch.setenv("EVO_TEST_MARK", mark)
    monkeypatch.setenv("TMPDIR", str(scratch))
    for name in (*EVERYWHERE, *RAYS_OWN):
        monkeypatch.delenv(name, raising=False)  # of earlier tests
    heard: set[str] = set()
    told: set[str] = set()
    words = ("small.toml", "--run-dir", "ray", "--backend", "ray", "--workers", 2, "--json")
    with command(small, *words) as process:
        while process.poll() is None:
            now = marked(mark)
            heard |= listening(now)
            told |= {line for pid, name in now.items() if "raylet/raylet" in name for line in variables(pid)}
            time.sleep(0.2)
        assert process.stdout is not None
        out = process.stdout.read()
        assert process.stderr is not None
        assert (process.returncode, process.stderr.read()) == (0, "")
    assert heard
    assert heard <= LOOPBACK
    assert {f"{name}={value}" for name, value in {**EVERYWHERE, **RAYS_OWN}.items()} <= told
    assert until(lambda: not marked(mark), GONE), marked(mark)
    assert list(scratch.iterdir()) == []
    summary = json.loads(out.splitlines()[-1])
    assert (summary["state_hash"], summary["champion"]) == (wanted["state_hash"], wanted["champion"])
    assert all(
        line.startswith(("ga on", "mlp of", "generation", "champion", "test", "baselines"))
        for line in out.splitlines()[:5]
    )


@needs_ray
@pytest.mark.long
def test_a_node_that_does_not_start_ends_the_run_with_a_line(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv("EVO_TEST_MARK", mark)
    with command(small, "small.toml", "--run-dir", "run", "--backend", "ray") as process:
        while process.poll() is None:
            for node in [pid for pid, name in marked(mark).items() if "raylet/raylet" in name]:
                with suppress(ProcessLookupError):
                    os.kill(node, signal.SIGKILL)
            time.sleep(0.1)
        assert process.stderr is not None
        err = process.stderr.read()
    assert process.returncode == 5
    assert err.splitlines()[-1].startswith("workers.address: cannot start Ray: ")
    assert "Traceback" not in err
    assert until(lambda: not marked(mark), GONE), marked(mark)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Be the temporary directory of the commands that are started; Ray's sockets need a short path."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as path:
        Path(path).chmod(0o777)
        monkeypatch.setenv("TMPDIR", path)
        monkeypatch.setattr(tempfile, "tempdir", None)  # which was read before
        yield Path(path)


ABANDONED = """
import os, signal
from evo.evaluators.ray.cluster import Scratch
scratch = Scratch()
os.mkdir(scratch.inner)
os.chmod(scratch.inner, 0o777)  # as Ray does
print(scratch.inner, flush=True)
signal.pause()
"""


def test_a_directory_that_a_killed_process_left_is_removed_and_no_other(short: Path) -> None:
    (short / "evo-ray-link").symlink_to(ROOT)
    (short / "evo-ray-file").write_text("")
    with subprocess.Popen([sys.executable, "-c", ABANDONED], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        inner = Path(process.stdout.readline().strip())
        assert inner.parent.stat().st_mode & 0o777 == 0o700
        if os.getuid() == 0:
            assert subprocess.run(["ls", inner], user=65534, group=65534, extra_groups=[], cwd="/").returncode
        Scratch().close()
        assert inner.exists()  # the process lives
        process.kill()
    Scratch().close()
    assert sorted(path.name for path in short.iterdir()) == ["evo-ray-file", "evo-ray-link"]
    assert ROOT.exists()


@needs_ray
@pytest.mark.long
def test_nobody_else_reads_the_directory_of_ray_and_one_of_a_killed_run_is_removed_by_the_next(
    small: Path, short: Path
) -> None:
    with command(small, "small.toml", "--run-dir", "run", "--generations", 100000, "--backend", "ray") as process:
        after(process, 1)
        (directory,) = short.iterdir()
        assert list(directory.glob("**/session_latest"))  # Ray uses it
        modes = [path.stat().st_mode & 0o777 for path in (directory, *directory.glob("r"))]
        assert modes[0] == 0o700
        if os.getuid() == 0:
            for path in (directory, directory / "r"):
                assert subprocess.run(["ls", path], user=65534, group=65534, extra_groups=[], cwd="/").returncode
        other = Scratch()
        assert set(short.iterdir()) == {directory, Path(other.inner).parent}  # that of a run that lives stays
        other.close()
        process.kill()
    assert list(short.iterdir()) == [directory]

    def only_the_next_is_left() -> bool:
        following = Scratch()
        left = list(short.iterdir()) == [Path(following.inner).parent]
        following.close()
        return left

    assert until(only_the_next_is_left, GONE)  # Ray's processes write until they end
    assert list(short.iterdir()) == []


@needs_ray
@pytest.mark.parametrize(
    "number", [*(pytest.param(one, marks=pytest.mark.long) for one in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL]
)
def test_a_signal_ends_a_run_on_ray_and_all_of_its_processes(
    small: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv("EVO_TEST_MARK", mark)
    with command(small, "small.toml", "--run-dir", "run", "--generations", 100000, "--backend", "ray") as process:
        after(process, 2)
        assert marked(mark)
        began = time.monotonic()
        os.kill(process.pid, number)
        code = process.wait(30)
        took = time.monotonic() - began
    assert code == (-9 if number == signal.SIGKILL else 128 + number)
    assert took < 10
    assert until(lambda: not marked(mark), GONE), marked(mark)
    total = json.loads(called(small, "--resume", "run", "--generations", 2, "--json")[0].splitlines()[-1])[
        "generations"
    ]
    straight = summary_of(small, "small.toml", "--run-dir", "straight", "--generations", total + 1)
    again = summary_of(small, "--resume", "run", "--generations", total + 1, "--backend", "serial")
    assert again["state_hash"] == straight["state_hash"]


@needs_ray
def test_where_the_driver_is_lost_the_command_that_goes_on_is_whole(tmp_path: Path) -> None:
    registry.load(["tests.plugins.climber"])
    with make(ray, spec(tmp_path / "a run", {"id": "snake"}, {}, Options())) as driver:
        os.kill(driver._process.pid, signal.SIGKILL)
        with pytest.raises(HeadLostError) as lost:
            driver.map([])
    assert str(lost.value).endswith(f"evo resume '{tmp_path}/a run' --backend processes --plugin tests.plugins.climber")
    assert not alive(driver._process.pid)


@needs_ray
@pytest.mark.long
def test_nobody_without_the_token_joins_a_cluster_of_ones_own(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv("EVO_TEST_MARK", mark)
    with command(small, "small.toml", "--run-dir", "run", "--generations", 100000, "--backend", "ray") as process:
        after(process, 1)
        lines = [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in marked(mark)]
        (head, *_) = {found[1] for line in lines if (found := re.search(r"--gcs-address=(\S+)", line))}
        probe = f"from ray._raylet import GcsClient; print(GcsClient(address='{head}').get_all_node_info(timeout=5))"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        done = subprocess.run(
            [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, timeout=120
        )
    assert done.returncode
    assert "oken" in done.stderr


@needs_ray
def test_the_file_for_rented_machines_is_what_ray_takes() -> None:
    """In a process of its own: Ray reads its environment once, and a cluster of later tests needs another one."""
    probe = """
import sys, yaml
from ray.autoscaler._private.util import prepare_config, validate_config
config = prepare_config(yaml.safe_load(sys.stdin.read()))
validate_config(config)
print(config["max_workers"])
"""
    text = (ROOT / "docs" / "cluster" / "aws.yaml").read_text()
    done = subprocess.run([sys.executable, "-c", probe], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "8"
