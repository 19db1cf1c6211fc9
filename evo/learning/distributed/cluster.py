"""A learner whose updates are computed by processes of its own; the master sends requests and watches them.

The master is no member of TensorFlow's cluster: a member whose peer has died may neither report that nor live on. So it
holds a private socket to every process that it started, and each process ends when its socket is closed.
"""

from __future__ import annotations

import json
import os
import select
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, DeviceError, DeviceMemoryError, ResourceError, notice
from evo.learning.distributed.member import END, MemberSpec, described
from evo.learning.distributed.messages import Message, decode, encode
from evo.learning.learner import Learner, Loss, Rows, TargetNetwork, Values, has_target
from evo.learning.tensorflow.learner import part_size
from evo.networks.network import Network
from evo.records import Arrays
from evo.setup import LearnerOptions
from evo.workers import hardware
from evo.workers.channel import Answer, Channel, Failed, GivesUp, WorkerSpec
from evo.workers.fork_server import ForkServer, ForkServerLost
from evo.workers.hardware import VISIBLE
from evo.workers.placement import NO_GPU

TIMEOUT = 3600.0  # seconds for an answer
CONFIG = "TF_CONFIG"
PORT = 4000  # the first; in a network of their own all are free


class Process(NamedTuple):
    """One process of the cluster on this machine."""

    name: str
    channel: Channel
    pid: int


class Cluster:
    """The processes of a learner on this machine; the first one leads."""

    def __init__(self, options: LearnerOptions) -> None:
        """Start the processes; ResourceError where one cannot start, or is lost while it starts."""
        self._options = options
        self._dead: set[str] = set()
        given = os.environ.get(CONFIG, "")  # never from a file: servers listen on the user's own request only
        self.alone, places = not given, list(environments(options, given))
        each = options.model_dump(include={"strategy", "threads", "dtype", "log_placement"})
        spec = MemberSpec(LearnerOptions(**each), private=not given)
        here = "evo.learning.distributed.member"
        self._fork_server = ForkServer(WorkerSpec(f"{here}:join", spec, f"{here}:prepare"), options.thread_count)
        self._finalizer = weakref.finalize(self, self._fork_server.close)  # also at the interpreter's end
        self.processes: list[Process] = []
        try:
            for name, environment in places:
                self.processes.append(Process(name, *self._fork_server.start(environment, TIMEOUT)))
            for process in self.processes:
                self._receive(process)
            for process in self.processes[1:]:
                if options.strategy == "multiworker":
                    self._send(process, b"")  # follow
        except ForkServerLost as error:
            self.close()
            raise ResourceError("learner.strategy: the fork server of the learner's processes was killed") from error
        except BaseException:
            self.close()
            raise

    def ask(self, message: Message) -> Message:
        """Return the leader's answer; ResourceError where a process is lost that the strategy needs."""
        leader = self.processes[0]
        self._look()
        self._send(leader, encode(message).tobytes())
        return decode(np.frombuffer(Answer(*self._receive(leader)).result.unpacked(), "<i4"))

    def _send(self, process: Process, task: bytes) -> None:
        try:
            process.channel.send((0, task))
        except OSError as error:
            raise self._lost(process) from error

    def _receive(self, process: Process) -> Any:
        """Wait for a process's answer, while all others live."""
        while True:
            ready = select.poll()
            for one in self.processes:
                if one.name not in self._dead:
                    ready.register(one.channel, select.POLLIN if one is process else 0)  # a hang-up is always reported
            there = {descriptor for descriptor, _ in ready.poll(1000 * TIMEOUT)}
            if not there:
                raise ResourceError(f"learner.strategy: {process.name} has not answered for {TIMEOUT:g} s")
            if process.channel.fileno() in there:
                try:
                    answer = process.channel.receive()
                except (EOFError, OSError) as error:
                    raise self._lost(process) from error
                if isinstance(answer, GivesUp):
                    raise self._lost(process, answer)
                if isinstance(answer, Failed):
                    raise answer.error()
                return answer
            self._look()

    def _look(self) -> None:
        """Find the processes that have ended; ResourceError where the strategy needs one of them."""
        ready = select.poll()
        for one in self.processes:
            if one.name not in self._dead:
                ready.register(one.channel, 0)
        gone = {descriptor for descriptor, _ in ready.poll(0)}
        for process in self.processes:
            if process.name in self._dead or process.channel.fileno() not in gone:
                continue
            replaceable = self._options.strategy == "parameter-server" and process.name.startswith("worker")
            left = [one for one in self.processes if one.name.startswith("worker") and one.name not in self._dead]
            if not replaceable or left == [process]:
                raise self._lost(process)
            try:
                ending = self._fork_server.end(process.pid)
            except ForkServerLost:  # which alone knows how it ended, and could end the others
                raise self._lost(process) from None
            self._dead.add(process.name)
            notice(f"the learner's {process.name} {ending}; the {len(left) - 1} others take its share")

    def _lost(self, process: Process, *received: object) -> BaseException:
        """End everything; return the error of a process, or how it ended."""
        messages = [*received, *process.channel.arrived()[0]]
        try:
            ending = str(self._fork_server.end(process.pid))
        except ForkServerLost:
            ending = "ended, and the fork server too"
        self.close()
        for message in messages:
            if isinstance(message, Failed):
                return message.error()
            if isinstance(message, GivesUp):
                return DeviceMemoryError(f"learner.strategy: the learner's {process.name} is {message.why}")
        return ResourceError(
            f"the learner's {process.name} {ending}, and {self._options.strategy} cannot go on without it; the last "
            "commit is intact: resume the run"
        )

    def close(self) -> None:
        """End every process; afterwards none is left."""
        self._finalizer()
        for process in self.processes:
            process.channel.close()


def environments(options: LearnerOptions, given: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the environment variables of every process to start, the leader first.

    With the user's own TF_CONFIG (`given`) that is the leader alone; the user starts the others.
    """
    served = options.strategy == "parameter-server"
    leader = "chief" if served else "worker"
    if given:
        cluster = _given(given, ("chief", "ps", "worker") if served else ("worker",), leader, options.processes)
    else:
        addresses = [f"127.0.0.1:{PORT + i}" for i in range(options.processes + 2 * served)]
        parts = {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}
        cluster = parts if served else {"worker": addresses}
    for kind, places in cluster.items():
        for index in range(len(places)):
            name = {"chief": "coordinator", "ps": "parameter server"}.get(kind, f"worker {index}")
            task = {"cluster": cluster, "task": {"type": kind, "index": index}}
            if not given or (kind, index) == (leader, 0):
                pin = _pin(options.devices[index] if kind == "worker" and options.devices else "CPU:0")
                yield name, {CONFIG: json.dumps(task), VISIBLE: pin}


def _pin(device: str) -> str:
    """Return CUDA's name of "GPU:0", the first of those that this process may see; DeviceError where it is missing."""
    if not device.startswith("GPU:"):
        return NO_GPU
    number, visible = int(device.removeprefix("GPU:")), os.environ.get(VISIBLE)
    seen = hardware.usable(visible, hardware.found() if visible is None else ())
    if number < len(seen):
        return seen[number]
    if visible is None and not seen:  # unknown here; the process checks it
        return str(number)
    why = f"this machine has {len(seen)}" if visible is None else f"{VISIBLE} is {visible!r}"
    raise DeviceError(f"learner.devices: {device} is missing: {why}")


def _given(text: str, kinds: Sequence[str], leader: str, workers: int) -> dict[str, list[str]]:
    """Return the cluster of a TF_CONFIG; ConfigurationError where the run cannot be the one that leads it."""
    try:
        config = json.loads(text)
        cluster = {kind: [str(place) for place in config["cluster"][kind]] for kind in kinds}
        first = config["task"]["type"] == leader and int(config["task"]["index"]) == 0
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{CONFIG}: has no addresses of {' and '.join(kinds)}: {error!r}") from error
    if not first:
        raise ConfigurationError(
            f"{CONFIG}: a run is {leader} 0; start the others by python -m evo.learning.distributed.member"
        )
    if len(cluster["worker"]) != workers:
        raise ConfigurationError(f"{CONFIG}: has {len(cluster['worker'])} workers, and learner.processes is {workers}")
    return cluster


class ClusterLearner(Learner):
    """A learner whose updates a cluster computes."""

    def __init__(self, network: Network, options: LearnerOptions, loss: Loss, max_gradient_norm: float = 0.0) -> None:
        """Start the processes; their weights are all zero."""
        super().__init__(network)
        self.options, self.part = options, part_size(network)
        self.devices = options.processes
        text = described(network, options, loss, max_gradient_norm)
        self.cluster = Cluster(options)
        self._ask("make", text=text)
        self.target = RemoteTarget(self) if has_target(loss) else None

    def load(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Send the arrays that batches are gathered from, each [M, ...]."""
        self._ask("load", data)

    def buffer(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return a buffer for observations."""
        return np.empty(shape, np.float32)

    def updates_on(
        self, batches: Iterable[Rows], learning_rate: float, settings: Mapping[str, float]
    ) -> Iterator[tuple[Rows, Values]]:
        """Update by each batch; as many updates as the staleness are in flight besides the one waited for."""
        if not self.options.staleness:
            yield from super().updates_on(batches, learning_rate, settings)
            return
        in_flight: deque[Rows] = deque()
        try:
            for rows in batches:
                self._ask("schedule", {"rows": rows}, self._numbers(learning_rate, settings))
                in_flight.append(rows)
                if len(in_flight) > self.options.staleness:
                    yield in_flight.popleft(), self._collected()
            while in_flight:
                yield in_flight.popleft(), self._collected()
        finally:
            for _ in in_flight:  # the caller wants no more
                self._collected()

    def update(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> Values:
        """Update the weights as `Learner.update`, in the cluster."""
        values = self._ask("update", {"rows": rows}, self._numbers(learning_rate, settings)).arrays
        self.updates += 1
        return dict(values)

    def _collected(self) -> Values:
        values = self._ask("collect").arrays
        self.updates += 1
        return dict(values)

    def _numbers(self, learning_rate: float, settings: Mapping[str, float]) -> dict[str, float]:
        return {**settings, "learning_rate": learning_rate, "part": self.part}

    def weights(self) -> NDArray[np.float32]:
        """Return the weights.  # [P]"""
        return self._ask("weights").arrays["weights"]

    def state(self) -> Arrays:
        """Return the state, as `Learner.state`."""
        return dict(self._ask("state").arrays)

    def restore(self, state: Arrays) -> None:
        """Restore a state that `state` returned."""
        names = ("weights", "first", "second", "updates")
        self._ask("restore", {name: np.asarray(state[name]) for name in names})
        self.updates = int(np.asarray(state["updates"], np.int64)[0])

    def begin(self, weights: NDArray[np.float32]) -> None:
        """Begin with these weights [P], with zero moments and no updates."""
        self._ask("begin", {"weights": np.asarray(weights, np.float32)})
        self.updates = 0

    def fingerprint(self) -> str:
        """Return the fingerprint, as `Learner.fingerprint`."""
        return self._ask("fingerprint").text

    def close(self) -> None:
        """End the processes, also those of other machines."""
        if not self.cluster.alone:
            with suppress(ResourceError):
                self._ask(END)
        self.cluster.close()

    def _ask(
        self, method: str, arrays: Mapping[str, NDArray[Any]] | None = None,
        numbers: Mapping[str, float] | None = None, text: str = "",
    ) -> Message:  # fmt: skip
        return self.cluster.ask(Message(method, arrays or {}, numbers or {}, text))


class RemoteTarget(TargetNetwork):
    """The target network, in the cluster like its learner."""

    def __init__(self, learner: ClusterLearner) -> None:
        self._asked = learner

    def weights(self) -> NDArray[np.float32]:
        """Return the weights.  # [P]"""
        return self._asked._ask("target").arrays["weights"]

    def set(self, weights: NDArray[np.float32]) -> None:
        """Set the weights.  # [P]"""
        self._asked._ask("target", {"weights": np.asarray(weights, np.float32)})

    def follow(self, tau: float, every: int) -> None:
        """Move towards the learner's weights, as `Target.follow`."""
        self._asked._ask("follow", numbers={"tau": tau, "every": every})
