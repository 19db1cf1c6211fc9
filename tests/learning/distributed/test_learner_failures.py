"""Where a learner's processes or devices fail, one line says which of them, how, and what to do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from evo.errors import DeviceMemoryError, ResourceError
from evo.learning.distributed.cluster import Cluster
from evo.learning.tensorflow import explained
from evo.workers.channel import GivesUp, WorkerSpec
from evo.workers.devices import shortages_as
from evo.workers.fork_server import ForkServer
from tests.helpers.learning import tensorflow  # noqa: F401

NAMES = ("coordinator", "parameter server", "worker 0", "worker 1")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Four real processes under a real fork_server, without TensorFlow in them."""
    fork_server = ForkServer(WorkerSpec("tests.workers.players:Echo", None))
    one = Cluster("parameter-server", fork_server, [(name, {}) for name in NAMES])
    yield one
    one.close()


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def lost(cluster: Cluster, name: str, *others: int) -> None:
    """Kill `others`, and then the process of that name, and wait until its end is seen."""
    for pid in others:
        killed(pid)
    process = next(one for one in cluster.processes if one.name == name)
    killed(process.pid)
    with pytest.raises(EOFError):
        process.channel.receive()


def test_a_call_comes_back_as_it_was_sent_from_a_leader_that_echoes(cluster: Cluster) -> None:
    for _ in range(2):
        method, weights, settings = cluster.call("update", np.arange(5, dtype=np.float32), {"rate": 0.5})
        assert (method, settings) == ("update", {"rate": 0.5})
        assert np.array_equal(weights, np.arange(5, dtype=np.float32))


def test_a_worker_that_can_be_done_without_is_noted(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    lost(cluster, "worker 1")
    assert cluster.call("update") == ("update",)
    assert "worker 1 was killed by SIGKILL" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_where_who_started_the_processes_is_gone_too_a_line_says_so(cluster: Cluster, name: str) -> None:
    lost(cluster, name, cluster._fork_server._process.pid)
    told = f"the learner's {name} ended, and the fork server too, and .* resume the run"
    with pytest.raises(ResourceError, match=told):
        cluster.call("update")
    assert all(process.channel.fileno() < 0 for process in cluster.processes)


def test_a_process_that_is_gone_before_it_is_told_anything_is_named(cluster: Cluster) -> None:
    lost(cluster, "worker 0")
    with pytest.raises(ResourceError, match="the learner's worker 0 was killed by SIGKILL"):
        cluster._send(cluster.processes[2], ())


def test_a_process_whose_device_is_too_small_says_so_with_its_last_words(cluster: Cluster) -> None:
    told = "learner.strategy: the learner's worker 0 is out of memory: it was so"
    with pytest.raises(DeviceMemoryError, match=told):
        raise cluster._lost(cluster.processes[2], GivesUp(0, "out of memory: it was so"))


OOM = (
    "{{function_node __wrapped__Fill_device_/job:localhost/replica:0/task:0/device:GPU:0}} OOM when allocating tensor "
    "with shape[99] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Fill]"
)


def failing(what: str) -> Callable[[], object]:
    import tensorflow as tf

    compiled = tf.function(lambda places: tf.gather(tf.zeros(3), places))

    def short() -> None:
        raise tf.errors.ResourceExhaustedError(None, None, OOM)

    return {
        "memory": short,
        "compiled": lambda: compiled(tf.constant([5])),
        "eager": lambda: tf.gather(tf.zeros(3), [5]),
    }[what]


@pytest.mark.parametrize(
    ("what", "kind", "told"),
    [
        (
            "memory",
            DeviceMemoryError,
            r"^out of memory: OOM when .*/device:GPU:0 by .*; use more minibatches",
        ),
        ("compiled", ResourceError, r"could not compute an update \(InvalidArgumentError: indices\[0\] = 5 is not in"),
        ("eager", ResourceError, r"could not compute an update \(InvalidArgumentError: indices\[0\] = 5 is not in"),
    ],
)
def test_what_tensorflow_says_is_told_in_one_line(what: str, kind: type[ResourceError], told: str) -> None:
    import tensorflow as tf

    with pytest.raises(tf.errors.OpError) as caught:
        failing(what)()
    failure = explained(caught.value)
    assert type(failure) is kind
    with pytest.raises(kind, match=told):
        raise failure
    assert "\n" not in str(failure)
    assert "lost" not in str(failure)


@pytest.mark.parametrize("name", ["Unavailable", "Aborted", "Cancelled", "DeadlineExceeded"])
def test_only_what_tells_of_others_is_a_lost_process(name: str) -> None:
    import tensorflow as tf

    error = getattr(tf.errors, f"{name}Error")(None, None, "Graph execution error:\n\nConnection reset by peer")
    told = rf"lost their connection \({name}Error: Connection reset by peer\); the last commit is intact"
    with pytest.raises(ResourceError, match=told):
        raise explained(error)


def test_a_learner_s_own_device_without_memory_has_its_line_and_a_mistake_of_ours_keeps_its_traceback() -> None:
    import tensorflow as tf

    with pytest.raises(DeviceMemoryError, match="OOM"), shortages_as(explained):
        failing("memory")()
    with pytest.raises(tf.errors.InvalidArgumentError), shortages_as(explained):
        failing("eager")()


@pytest.mark.long  # TensorFlow waits for ten seconds that somebody gives memory back
def test_a_real_out_of_memory_is_told_with_its_device() -> None:
    import tensorflow as tf

    with pytest.raises(DeviceMemoryError, match=r"OOM when allocating .*/device:CPU:0"), shortages_as(explained):
        tf.zeros((1 << 40,))
