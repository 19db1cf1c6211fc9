"""A process of a learner that has several: the leader, its followers, and servers.

`TF_CONFIG` says which one it is, as everywhere in TensorFlow. The master sends its requests to the leader. Processes of
"multiworker" all call the same methods: the leader broadcasts its requests to the followers, so that only TensorFlow
listens on the network. Processes of other machines are started by hand; docs/learners.md shows how.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, DeviceError, DeviceMemoryError, EvoError
from evo.learning.distributed import private_network
from evo.learning.distributed.messages import Message, decode, encode
from evo.learning.learner import ActionValueLoss, Loss, PolicyLoss
from evo.learning.tensorflow.learner import TensorFlowLearner
from evo.learning.tensorflow.setup import explained, start_tensorflow
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import Player
from evo.setup import LearnerOptions
from evo.workers import devices
from evo.workers.hardware import VISIBLE
from evo.workers.placement import NO_GPU

OURS = "evo."  # modules that losses of a learner with several processes are of
GROUP = 990_001  # of these broadcasts; TensorFlow numbers its groups from 1
END = "end"


@dataclass(frozen=True)
class MemberSpec:
    """What all processes of a learner on this machine have in common."""

    options: LearnerOptions  # of one process
    private: bool  # in a network namespace of their own


def prepare(spec: MemberSpec) -> None:
    """Leave the network, before there is a second thread, and import TensorFlow for all forked processes."""
    if spec.private:
        private_network.enter()
    devices.import_tensorflow(on_gpu=False, wanted="learner.strategy: every process")


def join(spec: MemberSpec) -> Member:
    """Join the cluster of TF_CONFIG; DeviceError where the GPU of this process is missing."""
    pinned = os.environ.get(VISIBLE, NO_GPU)
    import tensorflow as tf

    if pinned != NO_GPU:
        seen = [gpu.name for gpu in tf.config.list_physical_devices("GPU")]
        if len(seen) != 1:  # else it would silently compute on the CPU
            raise DeviceError(f"learner.devices: a process is pinned to GPU {pinned} and sees {seen or 'none'}")
    try:
        return Member(spec.options)
    except tf.errors.OpError as error:
        raise explained(error) from None


def described(network: Network, options: LearnerOptions, loss: Loss, max_gradient_norm: float) -> str:
    """Return a learner as JSON; ConfigurationError where its loss is unknown."""
    module, name = type(loss).__module__, type(loss).__name__
    if not isinstance(loss, PolicyLoss | ActionValueLoss) or not module.startswith(OURS):
        raise ConfigurationError(f'learner.strategy: "{options.strategy}" does not know the loss {name}')
    return json.dumps(
        {
            "policy": network.options.model_dump(),
            "shape": network.shape,
            "actions": network.actions,
            "extra": network.outputs - network.actions,
            "options": options.model_dump(),
            "loss": [module, name, asdict(loss)],
            "max_gradient_norm": max_gradient_norm,
        }
    )


class Member(Player):
    """One process of a cluster."""

    fingerprint = ""

    def __init__(self, options: LearnerOptions) -> None:
        config = json.loads(os.environ["TF_CONFIG"])
        self.kind, self.index = config["task"]["type"], int(config["task"]["index"])
        self._all_act = "chief" not in config["cluster"]
        self._broadcasts = 0
        self._learner: TensorFlowLearner | None = None
        tf = start_tensorflow(options)
        tf.get_logger().setLevel("CRITICAL")  # the master reports a lost worker in one line
        self._failures = tf.errors.OpError
        if self._all_act:
            from evo.learning.distributed.replicas import replicas_of

            replicas_of("multiworker", ())  # waits until all are there
        elif self.kind == "chief":
            from evo.learning.distributed.parameter_server import served

            served()
        else:
            self._server = _server(tf, config["cluster"], self.kind, self.index, options)

    def play(self, task: bytes) -> bytes:
        """Answer a request, together with all followers; an empty one makes this process a follower until the end."""
        try:
            if not task:
                self.follow()
                return b""
            words = np.frombuffer(task, "<i4")
            if self._all_act:
                self._broadcast(np.array([len(words)], np.int32))
                self._broadcast(words)
            return encode(self.act(decode(words))).tobytes()
        except self._failures as error:
            failure = explained(error)
        raise failure  # outside of `except`, so that the traceback does not keep the tensors alive

    def follow(self) -> None:
        """Execute the requests that the leader broadcasts, until the last one."""
        while (message := decode(self._received(int(self._received(1)[0])))).method != END:
            try:
                self.act(message)
            except DeviceMemoryError:  # perhaps of this process alone
                raise
            except EvoError:  # the leader has it too, and reports it to the master
                pass

    def act(self, message: Message) -> Message:
        """Call a method of the learner."""
        if message.method == "make":
            self._learner = _made(json.loads(message.text))
            return Message("")
        learner, arrays, numbers = self._learner, message.arrays, dict(message.numbers)
        if learner is None:
            raise RuntimeError("no learner was made")
        if "part" in numbers:
            learner.part = int(numbers.pop("part"))
        match message.method:
            case "load":
                learner.load(arrays)
            case "update":
                return Message("", learner.update(arrays["rows"], numbers.pop("learning_rate"), numbers))
            case "schedule":
                learner.schedule(arrays["rows"], numbers.pop("learning_rate"), numbers)  # type: ignore[attr-defined]
            case "collect":
                return Message("", learner.collect())  # type: ignore[attr-defined]
            case "begin":
                learner.begin(arrays["weights"])
            case "restore":
                learner.restore(arrays)
            case "state":
                return Message("", {name: np.asarray(array) for name, array in learner.state().items()})
            case "weights":
                return Message("", {"weights": learner.weights()})
            case "fingerprint":
                return Message("", text=learner.fingerprint())
            case "target" if learner.target is not None:
                if "weights" in arrays:
                    learner.target.set(arrays["weights"])
                return Message("", {"weights": learner.target.weights()})
            case "follow" if learner.target is not None:
                learner.target.follow(numbers["tau"], int(numbers["every"]))
            case "end":  # for followers
                pass
            case _:
                raise RuntimeError(f"no learner has a method {message.method}")
        return Message("")

    def _broadcast(self, words: NDArray[np.int32]) -> None:
        import tensorflow as tf

        with tf.device("/CPU:0"):
            tf.raw_ops.CollectiveBcastSendV2(input=tf.constant(words), **self._next())

    def _received(self, count: int) -> NDArray[np.int32]:
        import tensorflow as tf

        with tf.device("/CPU:0"):
            words: NDArray[np.int32] = tf.raw_ops.CollectiveBcastRecvV2(
                shape=[count], T=tf.int32, **self._next()
            ).numpy()
        return words

    def _next(self) -> Mapping[str, int]:
        from evo.learning.distributed.replicas import replicas_of

        self._broadcasts += 1
        return {
            "group_size": len(replicas_of("multiworker", ()).names),
            "group_key": GROUP,
            "instance_key": self._broadcasts,
        }


def _made(text: dict[str, Any]) -> TensorFlowLearner:
    network = Network.build(Policy(**text["policy"]), tuple(text["shape"]), text["actions"], text["extra"])
    module, name, fields = text["loss"]
    if not module.startswith(OURS):
        raise ConfigurationError(f"learner.strategy: the loss {name} is of {module}, which is no part of this package")
    loss = getattr(import_module(module), name)(**fields)
    options = LearnerOptions(**{**text["options"], "devices": []})
    if options.strategy == "parameter-server":
        from evo.learning.distributed.parameter_server import ServedLearner as Made
    else:
        from evo.learning.distributed.replicas import ReplicatedLearner as Made  # type: ignore[assignment]
    return Made(network, options, loss, text["max_gradient_norm"])


def _server(tf: Any, cluster: Any, kind: str, index: int, options: LearnerOptions) -> Any:
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
    if "TF_CONFIG" not in os.environ:
        sys.exit("TF_CONFIG is not set; see docs/learners.md")
    os.environ.setdefault(VISIBLE, NO_GPU)  # the CPU, like every process without a device of its own
    servers = "chief" in json.loads(os.environ["TF_CONFIG"])["cluster"]
    options = LearnerOptions(strategy="parameter-server" if servers else "multiworker", threads=threads)
    spec = MemberSpec(options, private=False)
    try:
        prepare(spec)
        member = join(spec)
        if servers:
            member._server.join()
        member.play(b"")
    except EvoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
