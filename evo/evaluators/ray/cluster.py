"""Join a Ray cluster, or start one that no other machine can reach, and check its resources."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evo.errors import ConfigurationError, DeviceError, HeadLostError, ResourceError, first_line
from evo.process import hashes

EVERYWHERE = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else, under `uv run`, it uploads the whole project, runs and all
    "RAY_USAGE_STATS_ENABLED": "0",
}
OURS = {
    "RAY_AUTH_MODE": "token",
    # Ray's default on other systems than Linux: everything listens on the loopback address alone.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
PREFIX = "evo-ray-"  # of directories of clusters
LONGEST = 24  # characters of the directory around one: paths of sockets in it may have 107
JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
EXCLUDED = ["runs/", "*.h5", "__pycache__/", "*.nbc", "*.nbi"]  # of what is sent to a cluster
CLIENT_TRIES = 3  # for the server of ray:// to start a process
HEAD_TIMEOUT = 10.0  # seconds without the head; Ray itself ends the process after 60
MISSING = (
    'workers.backend: "ray" needs Ray, which is not installed here; '
    'install it with: python -m pip install -r requirements-ray.lock (or choose "processes")'
)


class RayCluster:
    """A connection to Ray; `ray` is the module. ConfigurationError where Ray is missing.

    `environment` is for workers; `cpus` and the directory `scratch` are for a cluster of its own. ResourceError where
    there is no cluster at the address, or none can start.
    """

    def __init__(self, address: str, cpus: float, environment: Mapping[str, str], scratch: str = "") -> None:
        if "ray" not in sys.modules:  # Ray reads them when it is imported
            token = {"RAY_AUTH_TOKEN": os.urandom(32).hex()}  # of this process and its children alone
            for name, value in {**EVERYWHERE, **({**OURS, **token} if address == "local" else {})}.items():
                os.environ.setdefault(name, value)
        self.ray: Any = imported()
        self._address = address
        self._seen = self._checked = time.monotonic()
        if self.ray.is_initialized():
            raise ConfigurationError("this process has joined a Ray cluster already; let it leave by ray.shutdown()")
        with suppress(AttributeError):  # standard output is for the run's own lines
            self.ray._private.worker.print_worker_logs = lambda *_, **__: None
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "address": address}
        if address == "local":
            how |= {"include_dashboard": False, "num_cpus": cpus, "_temp_dir": scratch}
        how["runtime_env"] = runtime_env(address, {**hashes(), **environment}, os.environ.get(JOB, "{}"))
        try:
            self._join(how)
        except BaseException:
            self.close()
            raise

    def _join(self, how: Mapping[str, Any]) -> None:
        there = self._address.removeprefix("ray://")
        if there == "auto":
            there = os.environ.get("RAY_ADDRESS") or self.ray._private.utils.read_ray_address() or ""
        try:
            if re.fullmatch(r"[^/]+:\d+", there):
                reach(there)  # Ray itself would try for minutes
            for left in reversed(range(CLIENT_TRIES if self._address.startswith("ray://") else 1)):
                try:
                    self.ray.init(**how)
                    break
                except ConnectionAbortedError:  # the client server's new process died, which happens
                    if not left:
                        raise
        except Exception as error:  # Ray raises any kind, also a bare Exception where a node does not start in time
            what = "cannot start Ray" if self._address == "local" else f"cannot join a Ray cluster at {self._address}"
            raise ResourceError(f"workers.address: {what}: {first_line(error)}") from error
        if self._address.startswith("ray://"):
            self._head = self._address.removeprefix("ray://")
        else:
            self._head = str(self.ray.get_runtime_context().gcs_address)
        if self._address == "local" and not self._head.startswith(("127.", "localhost", "[::1]")):
            raise ResourceError(
                f"workers.address: Ray would listen on {self._head}, which other machines may reach; import evo "
                f"before ray, or set {', '.join(f'{name}={value}' for name, value in OURS.items())}"
            )

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """Return the nodes that are alive, as Ray describes them."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    def refuse(self, request: Mapping[str, float]) -> None:
        """Raise a ResourceError that names what is missing, where no node has the resources of a task."""
        nodes = self.nodes
        if missing := lacking([node["Resources"] for node in nodes], request):
            raise ResourceError(f"workers.resources: {missing}")
        many = [node for node in nodes if node["Resources"].get("GPU", 0) > 1]
        if "GPU" in request and many:
            raise DeviceError(
                f"workers.resources: the Ray node {many[0]['NodeManagerAddress']} has "
                f"{many[0]['Resources']['GPU']:g} GPUs, and Ray may move a process between them, which TensorFlow "
                "cannot follow; start a node for each GPU: CUDA_VISIBLE_DEVICES=0 ray start --num-gpus=1 ..."
            )

    def check(self) -> None:
        """Raise a HeadLostError where the head of the cluster has not answered for a while; check once a second."""
        now = time.monotonic()
        if now - self._checked < 1.0:
            return
        self._checked = now
        try:
            reach(self._head)
            self._seen = time.monotonic()
        except OSError as error:
            if time.monotonic() - self._seen > HEAD_TIMEOUT:
                raise self.lost(error) from error

    def lost(self, error: object) -> HeadLostError:
        """Return the error for a head, or a connection to it, that is lost."""
        return HeadLostError(f"the head of the Ray cluster at {self._head} is lost ({first_line(error)})")

    def close(self) -> None:
        """Leave; a cluster of its own ends with all its processes."""
        self.ray.shutdown()


class Scratch:
    """A cluster's directory of mode 700, locked while this process lives; those of killed processes are removed.

    Ray gives its own directory, `inner`, to everybody (mode 777), and writes pickles there.
    """

    def __init__(self) -> None:
        around = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST else "/tmp")
        for path in around.glob(f"{PREFIX}*"):
            _remove_abandoned(path)
        while True:
            self._path = tempfile.mkdtemp(prefix=PREFIX, dir=around)
            self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.path.exists(self._path):
                break
            os.close(self._lock)  # another process has removed it before it was locked
        self.inner = os.path.join(self._path, "r")

    def close(self) -> None:
        """Remove the directory."""
        if self._lock >= 0:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _remove_abandoned(path: Path) -> None:
    """Remove a directory of this user that no process has locked."""
    with suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def reach(address: str) -> None:
    """Raise an OSError where nobody answers at HOST:PORT."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=3.0).close()


def installed() -> None:
    """Raise a ConfigurationError where Ray is not installed; it is not imported."""
    if find_spec("ray") is None:
        raise ConfigurationError(MISSING)


def imported() -> Any:
    """Return Ray; ConfigurationError where it is not installed."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise ConfigurationError(MISSING if error.name == "ray" else f"{MISSING}: {error}") from error


def lacking(nodes: Sequence[Mapping[str, float]], request: Mapping[str, float]) -> str:
    """Return why no node has all that is asked for; empty where one has."""
    if any(all(node.get(name, 0) >= amount for name, amount in request.items()) for node in nodes):
        return ""
    most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in request}
    asked = ", ".join(f"{name} = {amount:g}" for name, amount in request.items())
    short = [f"{name} (at most {most[name]:g})" for name, amount in request.items() if most[name] < amount]
    why = f"what is missing is {', '.join(short)}" if short else "each of them some node has, but none has all"
    return f"a task asks for {asked}, and none of {len(nodes)} Ray nodes can ever play it; {why}"


def capacity(node: Mapping[str, float], request: Mapping[str, float]) -> int:
    """Return how many tasks at a time a node with these resources can play."""
    return min((int(node.get(name, 0) / amount + 1e-6) for name, amount in request.items()), default=0)


def runtime_env(address: str, environment: Mapping[str, str], job: str) -> dict[str, Any]:
    """Return Ray's runtime environment: variables, and this program where this machine is in no cluster itself.

    Runs are not sent. Nodes that have the program keep theirs, with its compiled kernels. `job` is Ray's description of
    a submitted job, as JSON.
    """
    given = json.loads(job).get("runtime_env") or {}
    theirs = given.get("env_vars", {})
    prepared: dict[str, Any] = {"env_vars": {name: text for name, text in environment.items() if name not in theirs}}
    if address == "local":
        prepared["env_vars"]["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(map(os.path.abspath, sys.path)))
    elif address.startswith("ray://") and not given.keys() & {"working_dir", "py_modules", "excludes"}:
        root = Path(__file__).parents[3]
        prepared |= {"py_modules": [str(root / "evo"), str(root / "snake")], "excludes": EXCLUDED}
    return prepared
