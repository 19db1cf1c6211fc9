"""What a worker needs to play any task of a run, and the players; small, picklable, never an array of weights."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evo import clock
from evo.errors import ConfigurationError
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.options import EnvironmentOptions
from evo.plugins import code, registry
from evo.process import fork_doing
from evo.records import NOT_DETERMINISTIC, ActionRule, Episodes, Player, Result, Segment, Task, WeightSource
from evo.workers import devices, hardware
from evo.workers.options import LearnerDevices, WorkersOptions
from evo.workers.placement import CUDA_PLAYER
from evo.workers.round import worst_result

if TYPE_CHECKING:
    from evo.environment import Environment
    from evo.rollouts.problem_calls import ProblemCalls
    from evo.rollouts.rollout import Kernel, Rollout


DEFAULT = WorkersOptions()
PLAYED, RECORDED = "playing", "recording transitions"  # kinds of kernels


@dataclass(frozen=True)
class RunSpec:
    """A run as its players need to know it: options, and where published weights are."""

    run_dir: Path
    environment: EnvironmentOptions
    policy: Policy
    workers: WorkersOptions = DEFAULT
    inference: Literal["lanes", "tensorflow"] = "lanes"  # policy.inference, with "auto" resolved
    plugins: tuple[str, ...] = ()  # modules of --plugin
    extra_outputs: int = 0  # of the network, besides the scores of actions
    learner: LearnerDevices | None = None  # None: nothing learns
    transitions_from: str = ""  # "segments" or "episodes" whose transitions are recorded; "": from neither
    code: tuple[str, str] = ("", "")  # `own_code` of the process that wants it played; "": nothing is compared


def make_player(spec: RunSpec, files: Any = None) -> Player:
    """Return the player of a run, on the device that this process is pinned to.

    `files.matrix(name, size)` gives published weights, which without it are files of the run directory.
    """
    from evo.networks.candidates import PublishedFiles
    from evo.rollouts.gymnasium_episodes import seed_check, shares_state
    from evo.rollouts.rollout import RolloutPlayer

    rollouts, files = _rollouts(spec), PublishedFiles(spec.run_dir) if files is None else files
    inexact = spec.inference == "tensorflow" or os.environ.get(CUDA_PLAYER)
    if inexact and any(rollout.environment.players > 1 for rollout in rollouts):
        raise ConfigurationError(
            "environment.id: a game of several players is played by the exact kernel on CPUs alone; set "
            'policy.inference = "lanes", and no workers.kind of GPUs'
        )
    if spec.inference == "tensorflow" and rollouts[-1].environment.problem is None:
        from evo.rollouts.tensorflow_kernel import TensorFlowKernel

        kernel = TensorFlowKernel(rollouts[-1].network, spec.workers)
        rollouts = _rollouts(spec, kernel)
    elif os.environ.get(CUDA_PLAYER):
        return _on_gpu(rollouts, spec.transitions_from == "segments", files)
    player = RolloutPlayer(rollouts, files)
    seen = set[str]()
    for rollout in rollouts:
        if rollout.environment.problem is not None:
            seen.add(rollout.seed_check())
        elif rollout.environment.game is None:
            rollout.seeds = seed_check(rollout.environment)
            seen.add(rollout.seeds)
            if rollout.seeds != "ignored" and shares_state(rollout.environment):
                seen.add("shared")
    player.one_by_one = "shared" in seen
    player.notices = [
        f"an episode of this environment depends on those {text}"
        for kind, text in (
            ("renewed", "before it, so each is played in a fresh environment"),
            ("shared", "that go on at the same time, so they are played one after the other, which may take long"),
        )
        if kind in seen
    ]
    problem = rollouts[-1].environment.problem
    if spec.code[1] and spec.code[1] != own_code(rollouts[-1].environment, spec.plugins)[1]:
        what, which = ("environment", f": {spec.code[1]} here") if problem is None else ("fitness function", "")
        player.notices.append(
            f"workers import the module of the {what} anew, and it reads other numbers there than in this process"
            f'{which}; set them in the module, or use workers = 1 or backend = "serial"'
        )
    if "ignored" in seen:
        player.fingerprint = " ".join(filter(None, [NOT_DETERMINISTIC, player.fingerprint]))
    return player


def prepare(spec: RunSpec) -> None:
    """Import, and compile or load from Numba's cache, what all players of a run need; touches no device."""
    for rollout in _rollouts(spec):
        if spec.inference == "tensorflow":
            from evo.rollouts.tensorflow_kernel import warm_up

            devices.import_tensorflow(on_gpu=spec.workers.on_gpu)
            warm_up(rollout.environment.game)
        else:
            _warm_up(rollout, spec.transitions_from)


def _warm_up(rollout: Any, transitions_from: str) -> None:
    """Compile what plays, while a forked process compiles functions that it calls on another core."""
    from evo.compiled.cache import is_kept
    from evo.games.step import Ended
    from evo.kernels.lanes import compile_layers
    from evo.kernels.tiles import compute

    game, kernel = rollout.environment.game, rollout.kernel
    parents = np.zeros((1, rollout.network.size), np.float32)
    source = replace(WeightSource.of_row(), sigmas=np.ones(1, np.float32))
    seeds = np.zeros(int(game is not None), np.uint64)  # none where nothing is compiled: that could hang
    opponents = None if rollout.environment.opponents is None else source
    task = Task(source, Episodes(seeds), opponents=opponents)
    nothing = replace(task, play=Episodes(seeds[:0]))
    if rollout.environment.problem is not None:
        rollout.play(task, parents)
        return
    drawn = next(filter(rollout.takes, (ActionRule("softmax"), ActionRule("gaussian"), ActionRule("noisy"))))

    def compile_parts() -> None:
        compile_layers(*kernel.arguments[:5])
        rollout.take(task, 0, parents)
        if game is not None and transitions_from:  # outputs of what follows recorded steps
            kernel.score(np.zeros((1, *rollout.environment.shape), np.float32))

    alone = hardware.cores() == 1 or is_kept(compute, kernel.arguments[0][0], kernel.arguments[1])
    with nullcontext() if alone else fork_doing(compile_parts):
        if game is None:
            kernel.score(np.zeros((1, *rollout.environment.shape), np.float32))
        else:
            kernel.play_episodes(game, nothing, Ended.empty(0, len(game.episode_metrics)))
    rollout.play(task, parents)
    clock.progress.say_compiled(PLAYED)
    if game is None:
        return
    if transitions_from == "segments":
        rollout.play(Task(source, Segment(game.begin(seeds), 1), drawn, opponents=opponents), parents)
    elif transitions_from == "episodes":
        rollout.play(Task(source, Episodes(seeds), drawn, record_transitions=True, opponents=opponents), parents)
    if transitions_from:
        clock.progress.say_compiled(RECORDED)


def worst(spec: RunSpec, task: Task) -> Result:
    """Return the result of a task that cannot be played, as `workers.on_poison = "worst"` wants it."""
    registry.load(spec.plugins)
    return worst_result(task, registry.environment_of(spec.environment))


def _on_gpu(rollouts: list[Any], segments: bool, files: Any) -> Player:
    """Return the player of rollouts on this process's GPU, with the CPU's bits.

    ConfigurationError where one cannot be there, DeviceError where there is no GPU, or one with other bits.
    """
    from evo.cuda.driver import device_of_process
    from evo.cuda.rollout import CudaPlayer, CudaRollout

    if any(rollout.environment.game is None for rollout in rollouts):
        raise ConfigurationError("workers.kind: only compiled games are played on GPUs, and this environment is none")
    device = device_of_process()
    made = [CudaRollout(rollout, device) for rollout in rollouts]
    for one in made:
        one.check(segments)
    return CudaPlayer(made, files)


def own_code(environment: Environment, plugins: Sequence[str]) -> tuple[str, str]:
    """Return a digest of a user's own code that plays, and one of the numbers that a fitness function reads with it.

    For an environment, the second are the numbers that were set from outside. They are of what this process has
    imported, and "" where there is none, or workers are given the function.
    """
    problem, sources = environment.problem, environment.sources
    if problem is not None and sources:
        return "", ""
    files = sources, *map(code.of_plugin, plugins)
    digest = hashlib.sha256("".join(files).encode()).hexdigest() if any(files) else ""
    if problem is None:
        return digest, ", ".join(code.set_from_outside(plugins))
    return digest, hashlib.sha256(repr(code.of_function(problem.fitness, arrays=False)).encode()).hexdigest()


def _rollouts(spec: RunSpec, kernel: Kernel | None = None) -> list[Any]:
    """Return a rollout for each environment of training, and last that of validation and test."""
    from evo.rollouts.problem_calls import ProblemCalls
    from evo.rollouts.rollout import Rollout

    registry.load(spec.plugins)
    wanted = spec.code[0]
    if wanted and wanted != own_code(registry.environment_of(spec.environment), spec.plugins)[0]:
        raise ConfigurationError(
            f"{' and '.join(spec.plugins)}: workers have imported other code than this process has, or data of a game "
            "have changed since: start it again, and set values in the file, not from outside"
        )

    def rollout(environment: Environment) -> Rollout | ProblemCalls:
        network = Network.of(spec.policy, environment, spec.extra_outputs)
        if environment.problem is not None:
            return ProblemCalls(network, environment, spec.workers)
        return Rollout(network, environment, kernel)

    return [rollout(registry.environment_of(one)) for one in (*spec.environment.in_training(), spec.environment)]
