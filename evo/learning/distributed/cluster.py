"""A learner whose updates are computed by processes of its own; the master sends requests and watches them.

The master is no member of TensorFlow's cluster: a member whose peer has died may neither report that nor live on. So it
holds a private socket to every process that it started, and each process ends when its socket is closed.
"""

from __future__ import annotations

import json
import os
import select
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from evo.errors import ConfigurationError, DeviceError, DeviceMemoryError, ResourceError, notice
from evo.learning.distributed.member import CONFIG, END, FOLLOW
from evo.learning.learner import Learner, Loss, Rows, Values
from evo.networks.network import Network
from evo.records import Arrays
from evo.setup import LearnerOptions
from evo.workers import hardware
from evo.workers.channel import Answer, Channel, Failed, GivesUp, WorkerSpec
from evo.workers.fork_server import ForkServer, ForkServerLost
from evo.workers.hardware import VISIBLE
from evo.workers.placement import NO_GPU

TIMEOUT = 3600.0  # seconds for an answer
PORT = 4000  # the first; in a network of their own all are free


class Process(NamedTuple):
    """One process of the cluster on this machine."""

    name: str
    channel: Channel
    pid: int


class Cluster:
    """Processes of a learner on this machine; the first one leads."""

    def __init__(self, strategy: str, fork_server: ForkServer, places: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """Start processes by their names and environment variables; ResourceError where one is lost."""
        self.processes: list[Process] = []
        self._strategy, self._fork_server = strategy, fork_server
        self._finalizer = weakref.finalize(self, fork_server.close)  # also at the interpreter's end
        try:
            for name, environment in places:
                self.processes.append(Process(name, *fork_server.start(environment, TIMEOUT)))
            for process in self.processes:
                self._receive(process)
            if strategy == "multiworker":
                for process in self.processes[1:]:
                    self._send(process, FOLLOW)
        except ForkServerLost as error:
            self.close()
            raise ResourceError("learner.strategy: the fork server of the learner's processes was killed") from error
        except BaseException:
            self.close()
            raise

    def call(self, method: str, *arguments: Any) -> Any:
        """Return the leader's result of a method; ResourceError where a process is lost that the strategy needs."""
        self._send(self.processes[0], (method, *arguments))
        return Answer(*self._receive(self.processes[0])).result.unpacked()

    def _send(self, process: Process, task: tuple[Any, ...]) -> None:
        try:
            process.channel.send((0, task))
        except OSError as error:
            raise self._lost(process) from error

    def _receive(self, process: Process) -> Any:
        """Wait for a process's message, while all live that the strategy needs; ResourceError where one does not."""
        while not self._has_sent(process):
            pass
        try:
            message = process.channel.receive()
        except (EOFError, OSError) as error:
            raise self._lost(process) from error
        if isinstance(message, GivesUp):
            raise self._lost(process, message)
        if isinstance(message, Failed):
            raise message.error()
        return message

    def _has_sent(self, sender: Process) -> bool:
        """Wait until a process has sent something or any has ended; return whether it is the one that is waited for."""
        there = {one.channel.fileno(): one for one in self.processes}
        ready = select.poll()
        for descriptor, one in there.items():
            ready.register(descriptor, select.POLLIN if one is sender else 0)  # a hang-up is always reported
        found = [there[descriptor] for descriptor, _ in ready.poll(1000 * TIMEOUT)]
        if not found:
            raise ResourceError(f"learner.strategy: {sender.name} has not answered for {TIMEOUT:g} s")
        for process in found:
            if process is not sender:
                self._go_on_without(process)
        return sender in found

    def _go_on_without(self, process: Process) -> None:
        """Leave its share to the other workers of a parameter server; ResourceError where there is none."""
        others = [one for one in self.processes if one.name.startswith("worker") and one is not process]
        if self._strategy != "parameter-server" or not process.name.startswith("worker") or not others:
            raise self._lost(process)
        try:
            ending = self._fork_server.end(process.pid)
        except ForkServerLost:  # which alone knows how it ended, and could end the others
            raise self._lost(process) from None
        process.channel.close()
        self.processes.remove(process)
        notice(f"the learner's {process.name} {ending}; the {len(others)} others take its share")

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
            f"the learner's {process.name} {ending}, and {self._strategy} cannot go on without it; the last commit is "
            "intact: resume the run"
        )

    def close(self) -> None:
        """End every process; afterwards none is left."""
        self._finalizer()
        for process in self.processes:
            process.channel.close()


def environments(options: LearnerOptions, tf_config: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the environment variables of every process to start, the leader first.

    With the user's own TF_CONFIG that is the leader alone; the user starts the others. ConfigurationError where a run
    cannot lead the cluster of that TF_CONFIG.
    """
    kinds = ("chief", "ps", "worker") if options.strategy == "parameter-server" else ("worker",)
    if tf_config:
        cluster = _cluster_of(tf_config, kinds, options.processes)
    else:
        counts = [options.processes if kind == "worker" else 1 for kind in kinds]
        ports = iter(range(PORT, PORT + sum(counts)))
        cluster = {kind: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for kind, n in zip(kinds, counts, strict=True)}
    for kind, addresses in cluster.items():
        for index in range(len(addresses)):
            name = {"chief": "coordinator", "ps": "parameter server"}.get(kind, f"worker {index}")
            config = {"cluster": cluster, "task": {"type": kind, "index": index}}
            pin = _pin(options.devices[index] if kind == "worker" and options.devices else "CPU:0")
            yield name, {CONFIG: json.dumps(config), VISIBLE: pin}
            if tf_config:
                return


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


def _cluster_of(text: str, kinds: Sequence[str], workers: int) -> dict[str, list[str]]:
    """Return the cluster of a TF_CONFIG; ConfigurationError where the run cannot be the one that leads it."""
    try:
        config = json.loads(text)
        cluster = {kind: [str(address) for address in config["cluster"][kind]] for kind in kinds}
        task = config["task"]["type"], int(config["task"]["index"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{CONFIG}: has no addresses of {' and '.join(kinds)}: {error!r}") from error
    if task != (kinds[0], 0):
        raise ConfigurationError(
            f"{CONFIG}: a run is {kinds[0]} 0; start the others by python -m evo.learning.distributed.member"
        )
    if len(cluster["worker"]) != workers:
        raise ConfigurationError(f"{CONFIG}: has {len(cluster['worker'])} workers, and learner.processes is {workers}")
    return cluster


def _executed(method: str) -> Any:
    """Return a method that the cluster's learner executes."""

    def call(self: ClusterLearner, *arguments: Any) -> Any:
        return self.cluster.call(method, *arguments)

    return call


class ClusterLearner(Learner):
    """A learner whose updates a cluster computes."""

    load, begin, update, weights, state, fingerprint, target_weights, set_target, update_target = map(
        _executed,
        ("load", "begin", "update", "weights", "state", "fingerprint", "target_weights", "set_target", "update_target"),
    )

    def __init__(self, network: Network, options: LearnerOptions, loss: Loss, max_gradient_norm: float) -> None:
        """Start the processes; their weights are all zero. ResourceError where one cannot start."""
        super().__init__(network, loss)
        self.options = options
        tf_config = os.environ.get(CONFIG, "")  # never from a file: servers listen on the user's own request only
        self._alone = not tf_config  # no process is on another machine
        places = list(environments(options, tf_config))
        own = options.model_copy(update={"devices": []})  # each sees one alone
        module = "evo.learning.distributed.member"
        spec = WorkerSpec(f"{module}:Member", own, f"{module}:prepare", deadline=0)
        self.cluster = Cluster(options.strategy, ForkServer(spec, options.thread_count), places)
        self.cluster.call("make", network, own, loss, max_gradient_norm)

    def updates_on(
        self, batches: Iterable[Rows], learning_rate: float, settings: Mapping[str, float]
    ) -> Iterator[Values]:
        """Update by each batch; as many updates as the staleness are in flight besides the one waited for."""
        if not self.options.staleness:
            yield from super().updates_on(batches, learning_rate, settings)
            return
        scheduled = (self.cluster.call("schedule", rows, learning_rate, settings) for rows in batches)
        in_flight = len(list(islice(scheduled, self.options.staleness)))
        try:
            for _ in scheduled:
                yield self.cluster.call("collect")
            while in_flight:
                in_flight -= 1
                yield self.cluster.call("collect")
        except GeneratorExit:  # the caller wants no more
            for _ in range(in_flight):
                self.cluster.call("collect")
            raise

    def restore(self, state: Arrays) -> None:
        """Restore a state that `state` returned."""
        self.cluster.call("restore", {name: np.asarray(array) for name, array in state.items()})

    def close(self) -> None:
        """End the processes, also those of other machines."""
        if not self._alone:
            with suppress(ResourceError):
                self.cluster.call(END)
        self.cluster.close()
