"""A Ray cluster of several nodes on this machine, for tests, and what can be seen of its processes."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evo.evaluators.ray.cluster import EVERYWHERE, OURS

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (requirements-ray.lock)")
STORE = 80 << 20  # bytes of a node's object store: the least that Ray takes, nearly


class Nodes:
    """Nodes that come and go; the first is the head, to which drivers in this process belong."""

    def __init__(self, client_port: int | None = None) -> None:
        surroundings()
        from ray.cluster_utils import Cluster

        head = {**self._options(), "ray_client_server_port": client_port}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self._others: list[Any] = []

    def _options(self) -> dict[str, Any]:
        return {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def raylets(self) -> list[int]:
        """The process of every node, the head's first."""
        return [self._raylet(node) for node in (self._cluster.head_node, *self._others)]

    @property
    def spilled(self) -> int:
        """Bytes that the nodes' object stores have put on disk; only the living are asked."""
        from ray._private.internal_api import node_stats

        living = (self._cluster.head_node, *self._others)
        asked = [node_stats(node.node_ip_address, node.node_manager_port, include_memory_info=False) for node in living]
        return sum(int(stats.store_stats.spilled_bytes_total) for stats in asked)

    def be(self, count: int) -> None:
        """Let there be so many nodes."""
        while len(self._others) + 1 < count:
            self.join()
        while len(self._others) + 1 > count:
            self.kill()

    def join(self, **options: Any) -> int:
        """Add a node, and return its process."""
        self._others.append(self._cluster.add_node(**{**self._options(), **options}))
        return self._raylet(self._others[-1])

    @contextmanager
    def beside(self, **options: Any) -> Iterator[None]:
        """Have one node more for a while."""
        self.join(**options)
        try:
            yield
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the newest node with all its processes."""
        node = self._others.pop()
        node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
        self._cluster.worker_nodes.discard(node)

    def kill_head(self) -> None:
        """Kill what all of the others need."""
        self._cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)

    def close(self) -> None:
        self.be(1)
        self.kill_head()

    def _raylet(self, node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)


def surroundings() -> None:
    """Make the environment of this process that of a cluster: it has to be so before Ray is imported."""
    for name, value in {**EVERYWHERE, **OURS, "RAY_AUTH_TOKEN": uuid.uuid4().hex}.items():
        os.environ.setdefault(name, value)


@contextmanager
def nodes(count: int, client_port: int | None = None) -> Iterator[Nodes]:
    """Run a cluster of so many nodes, whose workers can import what tests import; `client_port` is for ray://."""
    cluster = Nodes(client_port)
    try:
        cluster.be(count)
        yield cluster
    finally:
        cluster.close()


def playing(raylet: int) -> list[int]:
    """Return the workers of a node that play a task at this moment."""
    return _children(raylet, b"ray::play")


def beginning(raylet: int) -> list[int]:
    """Return the workers of a node that have a task and no guard yet: they have never played."""
    return [worker for worker in playing(raylet) if not _children(worker, PYTHON.encode())]


def waiting(raylet: int) -> list[int]:
    """Return the workers of a node that wait for their next task and have played one: those that are guarded."""
    return [worker for worker in _children(raylet, b"ray::IDLE") if _children(worker, PYTHON.encode())]


def guarded(raylet: int) -> list[int]:
    """Return the workers of a node that have played, or begun to."""
    return [worker for worker in _children(raylet, b"ray::") if _children(worker, PYTHON.encode())]


def _children(parent: int, doing: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                name = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if above == parent and name.startswith(doing):
                found.append(int(entry.name))
    return found


def marked(mark: str) -> dict[int, str]:
    """Return the living processes that have this text in their environment, each with its command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
            except OSError:
                continue
    return found


def variables(process: int) -> set[str]:
    """Return the environment that a process was started with, as lines of NAME=VALUE."""
    try:
        return set(Path(f"/proc/{process}/environ").read_text().split("\0"))
    except OSError:
        return set()


def listening(processes: Iterator[int] | list[int] | dict[int, str]) -> set[str]:
    """Return the addresses, as the kernel writes them in hexadecimal, that these processes accept connections on."""
    sockets = set()
    for pid in processes:
        try:
            links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        sockets |= {link[8:-1] for link in links if link.startswith("socket:[")}
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets}


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
PYTHON = sys.executable
