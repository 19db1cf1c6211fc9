"""Plays tasks on a Ray cluster, each as a plain Ray task: the same results, on any number of machines.

Weights are put into the object store once and fetched once per node; results come back through it. Ray gives tasks to
free workers, and repeats those of a lost worker or node; results are in task order.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Annotated, Any, ClassVar

from pydantic import Field

from evo.errors import ConfigurationError, HeadLostError
from evo.evaluators.ray.cluster import Scratch, installed
from evo.evaluators.ray.tasks import DriverSpec
from evo.player import RunSpec
from evo.plugins import registry
from evo.records import Played, Task
from evo.workers.channel import Channel, Failed
from evo.workers.fork_server import THREADS, start_connected
from evo.workers.hardware import cores
from evo.workers.options import LearnerDevices, WorkersOptions, describe_learner
from evo.workers.placement import memory_variables

PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from evo.evaluators.ray.tasks import serve; serve(int(sys.argv[1]))"
CLOSE_TIMEOUT = 2.0  # seconds for leaving a cluster that was joined
Amount = Annotated[float, Field(gt=0, le=1e15)]
ADDRESS = r"auto|local|(ray://)?[\w.-]{1,253}:\d{1,5}"


class Options(WorkersOptions):
    """[workers] of the Ray backend."""

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("gpus", "gpu_ids", "placement"),
        "is for processes of this machine; on Ray say which part of a GPU each worker takes, as in "
        "resources = {GPU = 0.1}",
    )

    in_files: ClassVar[Mapping[str, tuple[str, ...]]] = {"address": ("local", "auto")}  # others can run code here

    address: str = Field(
        "local", description='Ray cluster: "auto", "HOST:PORT" or "ray://HOST:PORT"; "local" starts one for the run'
    )
    resources: dict[str, Amount] = Field(
        {}, max_length=64, description="Ray resources per worker, as {CPU = 1, GPU = 0.25}; {} = a CPU per thread"
    )

    def _check(self) -> None:
        super()._check()
        if not re.fullmatch(ADDRESS, self.address, re.ASCII):
            raise ValueError(f'address: {self.address[:60]!r} is not "auto", "local", "HOST:PORT" or "ray://HOST:PORT"')
        gpu = self.resources.get("GPU")
        if gpu is not None and gpu > 1:
            raise ValueError("resources: a worker computes on one GPU or a part of it; GPU must be at most 1")
        if gpu is not None and gpu < 1 and self.memory == "all":
            raise ValueError('memory: "all" gives a whole GPU to one worker; use "growth" or "limit"')
        if self.kind != "auto" and (self.kind == "gpu") != (gpu is not None):
            raise ValueError(
                f'kind: "{self.kind}", but on Ray a worker computes on a GPU where resources has one, '
                "as in {GPU = 0.1}"
            )

    def request(self, inference: str) -> dict[str, float]:
        """Return the resources of one task; ConfigurationError where nothing computes on the GPU it asks for."""
        if "GPU" in self.resources and inference != "tensorflow":
            raise ConfigurationError('workers.resources: only policy.inference = "tensorflow" computes on GPUs')
        return {"CPU": float(self.threads), **self.resources}

    def plan(self, inference: str, learner: LearnerDevices | None = None, other_machine: bool = False) -> str:
        """Return in one line which cluster plays; ConfigurationError where Ray is missing."""
        installed()
        asked = ", ".join(f"{name} = {amount:g}" for name, amount in self.request(inference).items())
        known = {"local": "a Ray cluster of its own", "auto": "the Ray cluster that this machine is in"}
        cluster = known.get(self.address, f"the Ray cluster at {self.address}")
        return f"tasks on {cluster}, each with {asked}{describe_learner(learner)}"


class Driver(AbstractContextManager["Driver"]):
    """Ray's driver in a process of its own: where it ends, the run ends with one line and can be resumed.

    `map` raises PoisonError as `Pool` does, ResourceError where the cluster is lost or cannot play, and an
    exception of a worker's Python code as it is.
    """

    def __init__(self, driver: DriverSpec, scratch: Scratch | None = None) -> None:
        self._spec, self._scratch, self._joined = driver.run, scratch, False
        # The master handles signals of the terminal.
        self._process, ours = start_connected(PROGRAM, start_new_session=True)
        self._channel = Channel(ours)
        self._channel.send(driver)

    def __exit__(self, *_: object) -> None:
        self.close()

    def map(self, tasks: Sequence[Task]) -> Played:
        """Play the tasks; results are in task order."""
        if not self._joined:
            self._answer()
            self._joined = True
        played: Played = self._answer(list(tasks))
        return played

    def close(self) -> None:
        """Leave the cluster; one of its own is ended with all its processes."""
        if self._channel.fileno() < 0:
            return
        if not self._scratch:
            with suppress(OSError, subprocess.TimeoutExpired):
                self._channel.send(None)
                self._process.wait(CLOSE_TIMEOUT)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # a cluster of its own is in its process group
        self._process.wait()
        self._channel.close()
        if self._scratch:
            self._scratch.close()

    def _answer(self, tasks: list[Task] | None = None) -> Any:
        """Send tasks, if there are any, and return the next answer."""
        try:
            if tasks is not None:
                self._channel.send(tasks)
            answer = self._channel.receive()
        except (EOFError, OSError) as error:
            raise HeadLostError(f"the head of the Ray cluster is lost{self._advice()}") from error
        if isinstance(answer, Failed):
            problem = answer.error()
            if isinstance(problem, HeadLostError):
                raise HeadLostError(f"{problem}{self._advice()}") from problem
            raise problem
        return answer

    def _advice(self) -> str:
        again = registry.command("evo", "resume", str(self._spec.run_dir), "--backend", "processes")
        return f"; the last commit is intact; resume the run without Ray with: {again}"


def make(options: Options, spec: RunSpec) -> Driver:
    """Return the evaluator of a run."""
    installed()
    request = options.request(spec.inference)
    most = math.inf if options.count == "auto" else options.count
    cpus = request["CPU"] * (cores() if options.count == "auto" else options.count)
    environment = {**dict.fromkeys(THREADS, str(options.threads)), **memory_variables(options)}
    scratch = Scratch() if options.address == "local" else None
    inner = scratch.inner if scratch else ""
    return Driver(DriverSpec(spec, options.address, request, most, math.ceil(cpus), environment, inner), scratch)
