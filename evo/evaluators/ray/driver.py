"""The process that is Ray's driver for a run: a Ray whose head is lost ends it, without a word, and nothing else."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from evo.evaluators.ray.cluster import Cluster
from evo.evaluators.ray.tasks import Ray
from evo.rollouts.player import RunSpec
from evo.workers.channel import Channel, Failed


@dataclass(frozen=True)
class Joining:
    """What the process is told once."""

    spec: RunSpec
    address: str
    request: Mapping[str, float]  # of resources, by one task
    most: float  # tasks in flight
    cpus: int  # of a cluster of our own
    environment: Mapping[str, str]  # of workers
    scratch: str  # a directory for a cluster of our own; the master removes it


def serve(descriptor: int) -> NoReturn:
    """Answer the master on the socket with this file descriptor, until it is closed or the master dies."""
    channel = Channel(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)
    threading.Thread(target=_leave_with_master, args=(descriptor,), daemon=True).start()
    ray: Ray | None = None
    try:
        joining: Joining = channel.receive()
        while True:
            try:
                if ray is None:
                    ray = join(joining)
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


def _leave_with_master(descriptor: int) -> None:
    """End as soon as the master's end of the socket is gone."""
    watch = select.poll()
    watch.register(descriptor, 0)  # a hang-up is always reported
    watch.poll()
    _leave()


def _leave() -> NoReturn:
    """End this process, and with it a cluster of our own, which is in its group; workers end with their node."""
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def join(joining: Joining) -> Ray:
    """Return what plays, with a cluster that can."""
    cluster = Cluster(joining.address, joining.cpus, joining.environment, joining.scratch)
    try:
        cluster.refuse(joining.request)
        return Ray(joining.spec, cluster, joining.request, joining.most)
    except BaseException:
        cluster.close()
        raise
