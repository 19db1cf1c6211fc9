"""A real Ray of several nodes: they are killed, join, fill up and lose their head, and results are those of serial."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from evo.errors import ConfigurationError, DeviceMemoryError, PoisonError, ResourceError
from evo.evaluators import serial
from evo.evaluators.ray import tasks as tasks_module
from evo.evaluators.ray.cluster import RayCluster
from evo.evaluators.ray.tasks import Ray
from evo.games.catalogue import snake
from evo.learning.collecting import begin_envs, segment_tasks
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins.code import OURS
from evo.records import ActionRule, Episodes, Result, Task, WeightSource
from evo.rollouts.gymnasium_episodes import PROBED
from evo.workers.hardware import VISIBLE
from evo.workers.options import WorkersOptions
from evo.workers.placement import GROWTH, memory_variables
from evo.workers.round import Deadlines
from tests.evaluators.ray.ray_nodes import (
    STORE,
    Nodes,
    beginning,
    guarded,
    marked,
    needs_ray,
    nodes,
    playing,
    waiting,
)
from tests.evaluators.test_evaluators import alive, until
from tests.helpers.calling import ROOT, after, command, summary_of
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.helpers.specs import make, spec
from tests.run.golden_runs import experiment_of, golden_of
from tests.run.test_golden_hash import GOLDEN
from tests.run.test_resume import WAYS, written

pytestmark = needs_ray

WANDERING = """
import os
from tests.workers.treacherous import Environment as Walking, Options, Walk
from evo.evaluators.ray import worker

plugs_into = "environments"
made = []

class Noted(Walk):
    def reset(self, **how):
        for player, _ in worker._players.values():
            player.notices = {notes}
        return super().reset(**how)

class Environment(Walking):
    def env(self):
        return Noted()

def make(options):
    made.append(options)
    return Environment()
"""
SEEN = f"""[f"made {{len(made)}}, sees GPU {{os.environ.get('{VISIBLE}')}}, grows {{os.environ.get('{GROWTH}')}}"]"""
ENVIRONMENT = {"id": "snake", "size": 8, "starvation": 200, "observation": "ego"}
POLICY = {"conv": [[8, 3, 1]], "dense": [16]}
WALK: dict[str, Any] = {
    "environment": {"id": "treacherous"},
    "policy": {"kind": "linear"},
    "plugins": ("tests.workers.treacherous",),
}


@pytest.fixture(scope="module")
def ray_nodes() -> Iterator[Nodes]:
    with nodes(1) as cluster:
        yield cluster


@contextmanager
def evaluator(place: Path, cluster: Nodes, deadline: float = 30.0, **how: Any) -> Iterator[Ray]:
    """Connect to a cluster as a run does; `variables` are in its workers' environment, a task takes `request`."""
    variables, request = how.pop("variables", {}), how.pop("request", {"CPU": 1.0})
    workers = WorkersOptions(backend="ray", deadline=deadline)
    context = spec(place, **{"environment": ENVIRONMENT, "policy": POLICY, "workers": workers, **how})
    with closing(Ray(context, RayCluster(cluster.address, 1, variables), request)) as ray:
        yield ray


def tasks(count: int, episodes: int = 64, each: int = 4) -> list[Task]:
    """Return tasks of fresh candidates."""
    made = []
    for first in range(0, count * each, each):
        keys, minus = np.arange(first, first + each, dtype=np.uint64), np.full(each, -1, np.int32)
        source = WeightSource(minus, minus, keys, np.zeros(each, np.float32))
        made.append(Task(source, Episodes(np.arange(episodes, dtype=np.uint64)), ActionRule("softmax")))
    return made


def assert_same(results: list[Result], wanted: list[Result]) -> None:
    assert len(results) == len(wanted)
    for result, other in zip(results, wanted, strict=True):
        for name in ("returns", "lengths", "episode_metrics", "finite"):
            np.testing.assert_array_equal(getattr(result, name), getattr(other, name))
        assert (result.frames, result.lane_slots) == (other.frames, other.lane_slots)


def in_thread(act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.mark.parametrize(("name", "number"), WAYS)
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.long), 3])
def test_every_algorithm_has_the_hash_of_one_process_on_any_number_of_nodes(
    tmp_path: Path, ray_nodes: Nodes, name: str, number: int, count: int
) -> None:
    ray_nodes.be(count)
    file = written(tmp_path, name, number)
    wanted = summary_of(tmp_path, file, "--run-dir", "serial", "--generations", 2)
    words = ("--backend", "ray", "--set", f"workers.address={ray_nodes.address}", "--generations", 2)
    summary = summary_of(tmp_path, file, "--run-dir", "ray", *words)
    for key in ("state_hash", "frames", "champion"):
        assert summary[key] == wanted[key], key


@pytest.mark.long
def test_a_run_that_changes_its_backend_after_every_generation_ends_with_the_pinned_hash(
    tmp_path: Path, ray_nodes: Nodes
) -> None:
    ray_nodes.be(3)
    (tmp_path / "golden.toml").write_text(experiment_of("ga"))
    on_ray = ("--backend", "ray", "--set", f"workers.address={ray_nodes.address}")
    summary_of(tmp_path, "golden.toml", "--run-dir", "run", "--generations", 1, *on_ray)
    for done, words in enumerate((("--backend", "processes", "--workers", 2), on_ray, ("--backend", "serial")), 1):
        summary_of(tmp_path, "--resume", "run", "--generations", done + 1, *words)
    assert golden_of(tmp_path / "run") == GOLDEN["ga"]


@pytest.mark.long
def test_networks_that_tensorflow_computes_play_the_same_on_ray(small: Path, ray_nodes: Nodes) -> None:
    ray_nodes.be(2)
    computed = ("--generations", 2, "--set", "policy.inference=tensorflow")
    wanted = summary_of(small, "small.toml", "--run-dir", "serial", *computed, apart=True)
    words = ("--backend", "ray", "--set", f"workers.address={ray_nodes.address}")
    summary = summary_of(small, "small.toml", "--run-dir", "ray", *computed, *words, apart=True)
    assert (summary["state_hash"], summary["champion"]) == (wanted["state_hash"], wanted["champion"])


def test_a_worker_that_is_killed_changes_nothing(tmp_path: Path, ray_nodes: Nodes) -> None:
    ray_nodes.be(2)
    many = tasks(60, 256)
    wanted = make(serial, spec(tmp_path, ENVIRONMENT, POLICY)).map(many).results
    with evaluator(tmp_path, ray_nodes) as ray:
        ray.map(tasks(4, 1))
        killed: list[int] = []

        def found() -> bool:
            killed.extend(pid for raylet in ray_nodes.raylets for pid in playing(raylet))
            return bool(killed)

        def kill() -> None:
            assert until(found, 20)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

        killer = in_thread(kill)
        played = ray.map(many)
        killer.join()
        assert_same(played.results, wanted)
        assert killed
        assert not any(map(alive, killed))
        assert played.effort.replaced >= 1


def test_a_node_that_is_killed_and_one_that_joins_change_nothing_and_the_new_one_is_used(
    tmp_path: Path, ray_nodes: Nodes
) -> None:
    ray_nodes.be(3)
    many = tasks(120, 256)
    wanted = make(serial, spec(tmp_path, ENVIRONMENT, POLICY)).map(many).results
    with evaluator(tmp_path, ray_nodes) as ray:
        ray.map(tasks(6, 1))
        answers: list[Sequence[Result]] = []
        done = threading.Event()

        def go_on() -> None:
            while not done.is_set():
                answers.append(ray.map(many).results)

        player = in_thread(go_on)
        try:
            assert until(lambda: bool(playing(ray_nodes.raylets[-1])), 30)
            ray_nodes.kill()
            new = ray_nodes.join()
            assert until(lambda: bool(playing(new)), 60)
        finally:
            done.set()
            player.join()
        assert answers
        for results in answers:
            assert_same(results, wanted)


def test_a_run_of_which_a_node_is_killed_in_mid_generation_has_the_same_hash(small: Path, ray_nodes: Nodes) -> None:
    ray_nodes.be(2)
    many = ("--set", "ga.population=400", "--set", "ga.episodes=64", "--generations", 4)
    wanted = summary_of(small, "small.toml", "--run-dir", "serial", *many)

    def kill() -> None:
        assert until(lambda: bool(playing(ray_nodes.raylets[-1])), 60)
        ray_nodes.kill()

    killer = in_thread(kill)
    words = ("--backend", "ray", "--set", f"workers.address={ray_nodes.address}")
    summary = summary_of(small, "small.toml", "--run-dir", "ray", *many, *words)
    killer.join()
    assert len(ray_nodes.raylets) == 1
    assert (summary["state_hash"], summary["champion"]) == (wanted["state_hash"], wanted["champion"])


def test_segments_that_are_more_than_the_object_store_come_back_whole(tmp_path: Path, ray_nodes: Nodes) -> None:
    ray_nodes.be(2)
    before = ray_nodes.spilled
    lanes = begin_envs(snake.make(snake.Options(**ENVIRONMENT)), 1, 0, 1152)
    wide = segment_tasks(lanes, 1024, 96, ActionRule("softmax"))
    fresh = [Task(tasks(1, each=1)[0].weights, task.play, task.action_rule) for task in wide]
    wanted = make(serial, spec(tmp_path, ENVIRONMENT, POLICY)).map(fresh).results
    with evaluator(tmp_path, ray_nodes) as ray:
        theirs = ray._cluster.ray.put(np.arange(STORE // 4, dtype=np.uint16))  # half of the head's store
        played = ray.map(fresh)
        results = played.results
        assert played.effort.bytes_received > 1.4 * STORE
        assert ray_nodes.spilled > before
        assert ray._cluster.ray.get(theirs)[-1] == (STORE // 4 - 1) % 2**16
        assert_same(results, wanted)
        for result, other in zip(results, wanted, strict=True):
            assert result.transitions is not None
            assert other.transitions is not None
            for name in ("observations", "actions", "rewards", "ends", "outputs", "next_observations"):
                np.testing.assert_array_equal(getattr(result.transitions, name), getattr(other.transitions, name))
        base = results[0].transitions
        assert base is not None
        assert not base.observations.flags.writeable  # seen where it lies in the object store, and not copied


def test_a_request_that_no_node_can_meet_is_refused_at_once(small: Path, ray_nodes: Nodes) -> None:
    words = ("--backend", "ray", "--set", f"workers.address={ray_nodes.address}", "--run-dir", "run")
    began = time.monotonic()
    summary = summary_of(small, "small.toml", *words, "--set", "workers.resources={CPU = 64, tpu = 2}", code=5)
    assert time.monotonic() - began < 30
    assert "what is missing is CPU (at most 1), tpu (at most 0)" in summary["error"]
    nowhere = ("--backend", "ray", "--set", "workers.address=127.0.0.1:9", "--run-dir", "run2")
    summary = summary_of(small, "small.toml", *nowhere, code=5)
    assert "cannot join a Ray cluster at 127.0.0.1:9" in summary["error"]


@pytest.mark.long
def test_where_no_node_is_left_that_could_play_the_run_ends_with_what_is_missing(
    tmp_path: Path, ray_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_module, "NO_NODE", 5.0)
    ray_nodes.be(1)
    ray_nodes.join(resources={"field": 1})
    with evaluator(tmp_path, ray_nodes, request={"CPU": 1.0, "field": 1.0}) as ray:
        assert len(ray.map(tasks(2, 1)).results) == 2
        ray_nodes.kill()
        with pytest.raises(ResourceError, match=r"none of 1 Ray nodes can ever play it; what is missing is field"):
            ray.map(tasks(2, 1))


@pytest.mark.parametrize("on_poison", ["worst", pytest.param("stop", marks=pytest.mark.long)])
def test_a_candidate_that_ends_every_worker_is_found(
    tmp_path: Path, ray_nodes: Nodes, monkeypatch: pytest.MonkeyPatch, on_poison: str
) -> None:
    ray_nodes.be(2)
    monkeypatch.setenv("WALKS", str(tmp_path / "walks"))
    plain = [Task(task.weights, task.play) for task in tasks(2, 3)]
    wanted = make(serial, spec(tmp_path, **WALK)).map(plain).results
    checked = f"{PROBED[0]:016x}:"  # a seed of the check before
    names = [name for name in (tmp_path / "walks").read_text().split() if not name.startswith(checked)]
    deadly = next(i for i, name in enumerate(names) if names.count(name) == 1)
    where = deadly // 12, deadly // 3 % 4, 1
    workers = {"on_poison": on_poison}
    with evaluator(tmp_path, ray_nodes, variables={"DEADLY": names[deadly]}, workers=workers, **WALK) as ray:
        if on_poison == "stop":
            with pytest.raises(PoisonError, match="died") as caught:
                ray.map(plain)
            assert (caught.value.task, caught.value.first, caught.value.count) == where
            return
        played = ray.map(plain)
        results = played.results
        returns, expected = (np.concatenate([one.returns for one in all_]) for all_ in (results, wanted))
        assert np.flatnonzero((returns == -np.inf).all(1)).tolist() == [deadly // 3]
        others = np.arange(len(returns)) != deadly // 3
        np.testing.assert_array_equal(returns[others], expected[others])
        assert [(one.task, one.first, one.count) for one in played.poisoned] == [where]


def test_notices_of_players_arrive_which_are_made_once_and_see_their_part_of_a_gpu(
    tmp_path: Path, ray_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU is needed: Ray believes what a node says of itself."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # the benchmarks, which are imported here too, set it
    (tmp_path / "wandering.py").write_text(WANDERING.format(notes=SEEN))
    monkeypatch.syspath_prepend(tmp_path)
    walk = {**WALK, "environment": {"id": "wandering"}, "plugins": ("wandering",)}
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT))),
        **memory_variables(WorkersOptions()),
    }
    request = {"CPU": 0.5, "GPU": 0.5}
    with (
        ray_nodes.beside(num_gpus=1),
        evaluator(tmp_path, ray_nodes, request=request, variables=variables, **walk) as ray,
    ):
        plain = [Task(task.weights, task.play) for task in tasks(1, 1)]
        rounds = [ray.map(plain) for _ in range(3)]
        told = r"worker [0-9a-f]{8} \(process \d+ on .+\): made 1, sees GPU 0, grows true"
        notices = [notice for played in rounds for notice in played.notices]
        assert len(notices) == 3
        assert all(re.fullmatch(told, notice) for notice in notices), notices


def test_a_node_with_another_version_of_the_program_or_a_plug_in_or_without_it_is_refused(
    tmp_path: Path, ray_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in ("here", "other", "none"):
        (tmp_path / node).mkdir()
    (tmp_path / "here" / "wandering.py").write_text(WANDERING.format(notes=SEEN))
    (tmp_path / "other" / "wandering.py").write_text(WANDERING.format(notes="[]"))
    monkeypatch.syspath_prepend(tmp_path / "here")
    walk = {**WALK, "environment": {"id": "wandering"}, "plugins": ("wandering",)}
    plain = [Task(task.weights, task.play) for task in tasks(1, 1)]

    def on(node: str) -> Any:
        path = os.pathsep.join(map(str, (tmp_path / node, ROOT)))
        return evaluator(tmp_path, ray_nodes, variables={"PYTHONPATH": path}, **walk)

    with on("other") as ray:
        with pytest.raises(ConfigurationError, match=r"another version of the plug-in wandering, in .*/other/"):
            ray.map(plain)
        ray._code = {OURS: "0" * 64}
        with pytest.raises(ConfigurationError, match=r"has another version of this program, in .*evo; every"):
            ray.map(plain)
    with on("none") as ray, pytest.raises(ConfigurationError, match="lacks the plug-in wandering; every node"):
        ray.map(plain)


def test_workers_that_hang_or_are_stopped_while_they_play_or_wait_are_replaced_and_change_nothing(
    tmp_path: Path, ray_nodes: Nodes
) -> None:
    ray_nodes.be(2)
    plain = [Task(task.weights, task.play) for task in tasks(4, 3)]
    wanted = make(serial, spec(tmp_path, **WALK)).map(plain).results
    faults = tmp_path / "faults"
    faults.mkdir()
    (faults / f"spin-{1:016x}-7").touch()  # in the check of seeds, which plays that far
    (faults / f"spin-{2:016x}-7").touch()
    (faults / f"stop-{2:016x}-5").touch()
    with evaluator(tmp_path, ray_nodes, 2.0, variables={"TREACHERY": str(faults)}, **WALK) as ray:
        ray._deadlines.note(0.1, 12)
        began = time.monotonic()
        played = ray.map(plain)
        assert_same(played.results, wanted)
        assert played.effort.replaced >= 3  # and others, where the machine is slow
        assert not any(faults.iterdir())
        idle = [pid for raylet in ray_nodes.raylets for pid in waiting(raylet)]
        assert idle
        for pid in idle:
            os.kill(pid, signal.SIGSTOP)
        assert_same(ray.map(plain).results, wanted)
        assert time.monotonic() - began < 300  # neither waits for ever, however slow the machine is
    assert until(lambda: not any(map(alive, idle)), 10)


def test_a_worker_that_is_stopped_before_it_has_ever_played_is_replaced(
    tmp_path: Path, ray_nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray_nodes.be(1)
    monkeypatch.setattr(tasks_module, "START_DEADLINE", 1.0)
    stopped: list[int] = []

    def stop() -> None:
        assert until(lambda: bool(beginning(ray_nodes.raylets[0])), 30)
        stopped.extend(beginning(ray_nodes.raylets[0]))
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        if not until(lambda: not any(map(alive, stopped)), 90):
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)  # so that a failure ends

    wanted = make(serial, spec(tmp_path, ENVIRONMENT, POLICY)).map(tasks(2)).results
    with evaluator(tmp_path, ray_nodes) as ray:
        ray._deadlines = Deadlines(2.0, 2.0)
        stopper = in_thread(stop)
        played = ray.map(tasks(2))
        assert_same(played.results, wanted)
        stopper.join()
        assert stopped
        assert re.search(r"no result came from Ray for \d+ seconds, so 2 tasks are sent again", capsys.readouterr().err)
    assert until(lambda: not any(map(alive, stopped)), 10)


def test_a_worker_whose_device_is_too_small_ends_and_fewer_play_at_a_time(tmp_path: Path, ray_nodes: Nodes) -> None:
    ray_nodes.be(2)
    plain = [Task(task.weights, task.play) for task in tasks(4, 3)]
    wanted = make(serial, spec(tmp_path, **WALK)).map(plain).results
    fault = tmp_path / "faults" / f"device-{2:016x}-5"
    fault.parent.mkdir()
    with evaluator(tmp_path, ray_nodes, variables={"TREACHERY": str(fault.parent)}, **WALK) as ray:
        fault.touch()
        played = ray.map(plain)
        assert_same(played.results, wanted)
        (note,) = played.notices
        told = r"worker [0-9a-f]{8} \(process \d+ on .+\) gives up: out of memory on the Stand-in; "
        assert re.fullmatch(told + r"\d+ at a time plays? on without it", note)
        assert played.effort.replaced <= 1  # a task that had begun in it when it ended

        def until_none_is_left() -> None:
            for _ in ray_nodes.raylets:
                fault.touch()
                ray.map(plain)

        with pytest.raises(DeviceMemoryError, match=told + "no worker is left. Give each more memory"):
            until_none_is_left()


@pytest.mark.long
def test_a_device_that_holds_two_of_three_evaluators_is_played_on_by_two(tmp_path: Path, ray_nodes: Nodes) -> None:
    """Processes keep their share of a device's memory until they end, as those of TensorFlow do."""
    ray_nodes.be(1)
    plain = [Task(task.weights, task.play) for task in tasks(12, 3)]
    wanted = make(serial, spec(tmp_path, **WALK)).map(plain).results
    (tmp_path / "seats").mkdir()
    slowly = {"SEATS": f"2:{tmp_path / 'seats'}", "PACE": "0.02"}
    request = {"CPU": 1.0, "device": 1.0}
    with (
        ray_nodes.beside(num_cpus=3, resources={"device": 3}),
        evaluator(tmp_path, ray_nodes, request=request, variables=slowly, **WALK) as ray,
    ):
        played = ray.map(plain)
        assert_same(played.results, wanted)
        assert [notice.rpartition("; ")[2] for notice in played.notices] == ["2 at a time play on without it"]
        played = ray.map(plain)
        assert_same(played.results, wanted)
        assert not played.notices


def test_weights_are_read_once_and_a_python_error_in_a_worker_is_raised_as_it_is(
    tmp_path: Path, ray_nodes: Nodes
) -> None:
    source = tasks(1)[0].weights
    bad = Task(
        WeightSource(source.rows + 9, source.mates, source.keys, source.sigmas), Episodes(np.zeros(1, np.uint64))
    )
    environment = snake.make(snake.Options(**ENVIRONMENT))
    size = Network.build(Policy(**POLICY), environment.shape, environment.actions).size
    with h5py.File(tmp_path / "parents.h5", "w") as file:
        file["weights"] = np.random.default_rng(1).standard_normal((2, size), np.float32)
    named = [
        replace(one, weights=replace(one.weights, rows=one.weights.rows + 2, published="parents.h5"))
        for one in tasks(3)
    ]
    wanted = make(serial, spec(tmp_path, ENVIRONMENT, POLICY)).map(named).results
    with evaluator(tmp_path, ray_nodes) as ray:
        assert_same(ray.map(named).results, wanted)
        (tmp_path / "parents.h5").unlink()
        assert_same(ray.map(named).results, wanted)  # from the object store, where they are already
        with pytest.raises(Exception, match="names row 8") as caught:
            ray.map([bad])
        assert type(caught.value).__name__ == "DataError"
        assert_same(ray.map(tasks(2)).results, make(serial, spec(tmp_path, ENVIRONMENT, POLICY)).map(tasks(2)).results)


def test_a_run_that_is_interrupted_leaves_no_process_on_a_cluster_of_others_and_goes_on_without_it(
    small: Path, ray_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray_nodes.be(1)
    mark = uuid.uuid4().hex
    monkeypatch.setenv("EVO_TEST_MARK", mark)
    words = ("--run-dir", "run", "--generations", 100000, "--backend", "ray")
    with command(small, "small.toml", *words, "--set", f"workers.address={ray_nodes.address}") as process:
        after(process, 2)
        workers = guarded(ray_nodes.raylets[0])
        assert workers
        assert len(marked(mark)) >= 2  # the master and the driver
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 128 + signal.SIGINT
    assert until(lambda: not marked(mark), 10), marked(mark)
    assert until(lambda: not any(map(alive, workers)), 10)
    reached = summary_of(small, "--resume", "run", "--generations", 2, "--backend", "serial")["generations"]
    straight = summary_of(small, "small.toml", "--run-dir", "straight", "--generations", reached + 1)
    again = summary_of(small, "--resume", "run", "--generations", reached + 1, "--backend", "serial")
    assert again["state_hash"] == straight["state_hash"]


def test_a_head_that_is_lost_ends_the_run_with_a_line_and_it_goes_on_without_ray(small: Path) -> None:
    with nodes(1) as cluster:
        words = ("--run-dir", "run", "--generations", 100000, "--backend", "ray")
        with command(small, "small.toml", *words, "--set", f"workers.address={cluster.address}") as process:
            after(process, 2)
            cluster.kill_head()
            assert process.stderr is not None
            assert process.wait(60) == 5
            err = process.stderr.read()
    assert "the head of the Ray cluster" in err
    assert "evo resume run --backend processes" in err.replace(str(small) + "/", "")
    assert "Traceback" not in err
    reached = summary_of(small, "--resume", "run", "--generations", 2, "--backend", "serial")["generations"]
    straight = summary_of(small, "small.toml", "--run-dir", "straight", "--generations", reached + 2)
    words = ("--generations", reached + 2, "--backend", "processes", "--workers", 2)
    assert summary_of(small, "--resume", "run", *words)["state_hash"] == straight["state_hash"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*ray_client_server:pytest.PytestUnraisableExceptionWarning")  # Ray's own files
def test_a_run_on_a_machine_outside_of_the_cluster_sends_its_code_and_has_the_same_hash(small: Path) -> None:
    wanted = summary_of(small, "small.toml", "--run-dir", "serial")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with nodes(1, port) as cluster:
        assert cluster.raylets
        words = ("--backend", "ray", "--set", f"workers.address=ray://127.0.0.1:{port}")
        summary = summary_of(small, "small.toml", "--run-dir", "ray", *words)
    assert (summary["state_hash"], summary["champion"]) == (wanted["state_hash"], wanted["champion"])


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["multiworker", "parameter-server"])
def test_a_learner_of_several_processes_learns_the_same_from_what_ray_plays(
    tmp_path: Path, ray_nodes: Nodes, strategy: str
) -> None:
    ray_nodes.be(3)
    file = written(tmp_path, "ppo", 0)
    learner = ("--generations", 2, "--set", f"learner.strategy={strategy}", "--set", "learner.processes=2")
    wanted = summary_of(tmp_path, file, "--run-dir", "serial", *learner, apart=True)
    words = ("--backend", "ray", "--set", f"workers.address={ray_nodes.address}")
    summary = summary_of(tmp_path, file, "--run-dir", "ray", *learner, *words, apart=True)
    assert (summary["state_hash"], summary["champion"]) == (wanted["state_hash"], wanted["champion"])
