"""A process of a learner that has several: the leader, its followers, and servers.

`TF_CONFIG` says which one it is, as everywhere in TensorFlow. The master sends its requests to the leader. Processes of
"multiworker" all call the same methods: the leader broadcasts its requests to the followers, so that only TensorFlow
listens on the network. Processes of other machines are started by hand; docs/learners.md shows how.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
from argparse import ArgumentParser
from itertools import count
from typing import Any

import numpy as np

from evo.errors import DeviceError, DeviceMemoryError, EvoError, ResourceError
from evo.lazy import tf
from evo.learning.distributed import replicas
from evo.learning.tensorflow import explained, start_tensorflow
from evo.learning.tensorflow.learner import TensorFlowLearner
from evo.records import Player
from evo.setup import LearnerOptions
from evo.workers import devices
from evo.workers.channel import Packed
from evo.workers.hardware import VISIBLE
from evo.workers.placement import NO_GPU

CONFIG = "TF_CONFIG"
GROUP = 990_001  # of these broadcasts; TensorFlow numbers its groups from 1
FOLLOW, END = ("follow",), "end"  # in place of a call: do what the leader broadcasts; end that
WORD = 4  # bytes; TensorFlow broadcasts whole numbers of this size
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # <linux/sched.h>
SET_FLAGS, UP = 0x8914, 0x1 | 0x40  # <linux/sockios.h>, <linux/if.h>: up and running
REQUEST = struct.Struct("16sh14x")  # struct ifreq


def prepare(_: LearnerOptions) -> None:
    """Leave the network, before there is a second thread, and import TensorFlow for all forked processes.

    Where the user has set TF_CONFIG, processes of other machines are reached over the network.
    """
    if not os.environ.get(CONFIG):
        enter_private_network()
    devices.import_tensorflow(on_gpu=False, wanted="learner.strategy: every process")


def enter_private_network() -> None:
    """Move this process, which has one thread, into a new network namespace; ResourceError where the system refuses.

    TensorFlow's servers listen on every interface, without authentication, and run what they receive. So where all
    processes of a learner are on this machine, they have a network with nothing but a loopback interface (Linux).
    """
    try:
        if not sys.platform.startswith("linux"):
            raise OSError("this is not Linux")
        _unshare()
        import fcntl

        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, SET_FLAGS, REQUEST.pack(b"lo", UP))
    except OSError as error:
        raise ResourceError(
            "learner.strategy: TensorFlow's servers would be open to everybody who reaches this machine: the system "
            f"refuses a network of their own ({error}); use a strategy of one process, or start the processes yourself "
            "where that is safe, with their addresses in TF_CONFIG"
        ) from error


def _unshare() -> None:
    """Leave the parent's network; without that permission, in a new user namespace of one user."""
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(NEW_NETWORK) == 0:
        return
    user, group = os.getuid(), os.getgid()
    if system.unshare(NEW_USER | NEW_NETWORK) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w", encoding="ascii") as out:
            out.write(text)


class Member(Player):
    """One process of a cluster."""

    def __init__(self, options: LearnerOptions) -> None:
        """Join the cluster of TF_CONFIG; DeviceError where the GPU of this process is missing."""
        pinned = os.environ.get(VISIBLE, NO_GPU)
        if pinned != NO_GPU:
            seen = [gpu.name for gpu in tf.config.list_physical_devices("GPU")]
            if len(seen) != 1:  # else it would silently compute on the CPU
                raise DeviceError(f"learner.devices: a process is pinned to GPU {pinned} and sees {seen or 'none'}")
        config = json.loads(os.environ[CONFIG])
        kind, index, cluster = config["task"]["type"], int(config["task"]["index"]), config["cluster"]
        self._all_act = options.strategy == "multiworker"
        self._broadcasts = count(1)
        self._learner: TensorFlowLearner | None = None
        try:
            start_tensorflow(options)
            tf.get_logger().setLevel("CRITICAL")  # the master reports a lost worker in one line
            if self._all_act or kind == "chief":
                self._replicas = replicas.replicas_of(options.strategy, ())
            else:
                self.server = _server(cluster, kind, index, options)
        except tf.errors.OpError as error:
            raise explained(error) from None

    def play(self, task: tuple[Any, ...]) -> Any:
        """Return the result of a call of the learner, with the help of all followers; or follow until the end."""
        try:
            if task == FOLLOW:
                return self._follow()
            if self._all_act:
                self._broadcast(Packed.of(task).body)
            return self._act(*task)
        except tf.errors.OpError as error:
            failure = explained(error)
        raise failure  # outside of `except`, so that the traceback does not keep the tensors alive

    def _follow(self) -> None:
        """Execute the calls that the leader broadcasts, until the last one."""
        while (call := Packed(self._received()).unpacked())[0] != END:
            try:
                self._act(*call)
            except DeviceMemoryError:  # perhaps of this process alone
                raise
            except EvoError:  # the leader has it too, and reports it to the master
                pass

    def _act(self, method: str, *arguments: Any) -> Any:
        if method == "make":
            made = replicas.ReplicatedLearner if self._all_act else replicas.ServedLearner
            self._learner = made(*arguments)
            return None
        return None if method == END else getattr(self._learner, method)(*arguments)

    def _broadcast(self, data: bytes) -> None:
        with tf.device("/CPU:0"):
            for words in (np.array([len(data)], "<i4"), np.frombuffer(data + bytes(-len(data) % WORD), "<i4")):
                tf.raw_ops.CollectiveBcastSendV2(input=tf.constant(words), **self._next())

    def _received(self) -> bytes:
        with tf.device("/CPU:0"):
            (size,) = tf.raw_ops.CollectiveBcastRecvV2(shape=[1], T=tf.int32, **self._next()).numpy()
            words = tf.raw_ops.CollectiveBcastRecvV2(shape=[-(-size // WORD)], T=tf.int32, **self._next()).numpy()
        return bytes(words.tobytes()[:size])

    def _next(self) -> dict[str, int]:
        """Return the arguments of the next broadcast."""
        return {"group_size": len(self._replicas.names), "group_key": GROUP, "instance_key": next(self._broadcasts)}


def _server(cluster: Any, kind: str, index: int, options: LearnerOptions) -> Any:
    """Start a server of TensorFlow, which serves in its own threads."""
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=options.thread_count,
        inter_op_parallelism_threads=len(cluster["worker"]) + 8,  # fewer than workers and one more would hang
        log_device_placement=options.log_placement,
    )
    return tf.distribute.Server(cluster, job_name=kind, task_index=index, protocol="grpc", config=config)


def main() -> int:
    """Run the process that TF_CONFIG describes, on another machine than the run; return the exit code."""
    parser = ArgumentParser(description="Run one process of a learner on several machines; TF_CONFIG says which.")
    parser.add_argument("--threads", type=int, default=2, help="as learner.threads of the run")
    threads = parser.parse_args().threads
    if not os.environ.get(CONFIG):
        sys.exit("TF_CONFIG is not set; see docs/learners.md")
    os.environ.setdefault(VISIBLE, NO_GPU)  # the CPU, like every process without a device of its own
    servers = "chief" in json.loads(os.environ[CONFIG])["cluster"]
    options = LearnerOptions(strategy="parameter-server" if servers else "multiworker", threads=threads)
    try:
        prepare(options)
        member = Member(options)
        if servers:
            member.server.join()
        member.play(FOLLOW)
    except EvoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
