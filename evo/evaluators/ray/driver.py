"""The process of Ray's driver: Ray ends it without a message where the head is lost, and the run lives on."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from evo.evaluators.ray.cluster import RayCluster
from evo.evaluators.ray.tasks import Ray
from evo.rollouts.player import RunSpec
from evo.workers.channel import Channel, Failed
from evo.workers.worker import leave_with_master


@dataclass(frozen=True)
class DriverSpec:
    """What the process needs to join a cluster."""

    run: RunSpec
    address: str
    request: Mapping[str, float]  # of resources, by one task
    most: float  # tasks in flight
    cpus: int  # of a cluster of its own
    environment: Mapping[str, str]  # of workers
    scratch: str  # a directory for a cluster of its own; the master removes it


def serve(descriptor: int) -> NoReturn:
    """Answer the master on the socket with this file descriptor, until it is closed or the master dies."""
    channel = Channel(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)
    threading.Thread(target=leave_with_master, args=(descriptor, _leave), daemon=True).start()
    ray: Ray | None = None
    try:
        spec: DriverSpec = channel.receive()
        while True:
            try:
                if ray is None:
                    ray = join(spec)
                    channel.send(None)
                tasks = channel.receive()
                if tasks is None:
                    break
                channel.send(ray.map(tasks))
            except Exception as error:
                channel.send(Failed.of(error))
                if ray is None:
                    break
        if ray is not None:
            ray.close()
    finally:
        _leave()


def _leave() -> NoReturn:
    """End this process, with a cluster of its own, which is in its group; workers end with their node."""
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def join(spec: DriverSpec) -> Ray:
    """Join the cluster and return its evaluator; ResourceError where it lacks resources."""
    cluster = RayCluster(spec.address, spec.cpus, spec.environment, spec.scratch)
    try:
        cluster.refuse(spec.request)
        return Ray(spec.run, cluster, spec.request, spec.most)
    except BaseException:
        cluster.close()
        raise
