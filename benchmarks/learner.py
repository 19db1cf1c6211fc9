"""Learning from a generation's transitions: the exact learner and TensorFlow, in turns in one process.

    python -m benchmarks --only learner

Both learners get the same transitions of the published experiments, and make all updates of a generation. What prepares
the arrays is the same code for both, and is counted. TensorFlow decides its threads once a process, so every number of
threads has a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import median
from typing import Any

import numpy as np

from benchmarks.peers import ROOT
from benchmarks.ppo import THREE_EPOCHS
from benchmarks.tables import Form, Limit, Table, seconds
from evo.config.experiment import Experiment
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm
from evo.records import Arrays, EnvStates, Transitions
from evo.rollouts.rollout import Rollout
from evo.training.beginning import make_algorithm

TURNS = 7
LEARNERS = ("exact", "tensorflow")
CHAMPION = f"run.init_from={ROOT}/champions/ppo_snake_full_early.h5"
SHORT = ("dqn.learning_starts=1", "dqn.replay_size=10000")  # every update of DQN is like the others


@dataclass(frozen=True)
class Case:
    """A published experiment, and how many times as fast as TensorFlow exact updates should be, by threads."""

    experiment: str
    settings: tuple[str, ...]
    targets: dict[int, float]


CASES = {
    "ppo_snake_full, its champion": Case("ppo_snake_full", (CHAMPION,), {1: 1.7, 2: 1.9}),
    "ppo_snake, fresh": Case("ppo_snake", (), {}),
    "PPO, three epochs of eight batches": Case("ppo_snake", THREE_EPOCHS, {1: 1.3}),
    "dqn_snake, fresh": Case("dqn_snake", SHORT, {1: 1.5}),
    "pqn_snake, fresh": Case("pqn_snake", (), {1: 1.5}),
}


def learners(threads: int) -> dict[str, list[str]]:
    """Return the settings of both learners, with so many threads."""
    return {name: [f"learner.arithmetic={name}", f"learner.threads={threads}"] for name in LEARNERS}


def algorithm_of(case: Case, learner: Sequence[str]) -> GradientAlgorithm:
    """Return the algorithm of an experiment with these settings of the learner; without a type: float32."""
    settings = [*case.settings, "learner.dtype=float32", "policy.inference=lanes", *learner]
    own = [text for text in settings if not text.startswith("dqn.") or case.experiment.startswith("dqn")]
    experiment = Experiment.load(ROOT / "experiments" / f"{case.experiment}.toml", *own)
    algorithm = make_algorithm(experiment).algorithm
    assert isinstance(algorithm, GradientAlgorithm)
    return algorithm


def played(algorithm: GradientAlgorithm) -> tuple[Transitions, EnvStates | None]:
    """Play a first generation in this process; return its transitions, and the environments before them."""
    rollout = Rollout(algorithm.setup.network, algorithm.setup.environment)
    request = next(algorithm.generation(0))
    before = algorithm.collector.envs(0)
    assert request.weights is not None
    results = [rollout.play(task, request.weights) for task in request.tasks]
    return algorithm.collector.take(results, 0), before


def of_case(case: Case, learners: Mapping[str, Sequence[str]], turns: int) -> dict[str, Any]:
    """Return the examples of a generation's updates, the learners' last hashes, and the seconds of each turn."""
    made = {name: algorithm_of(case, settings) for name, settings in learners.items()}
    transitions, before = played(next(iter(made.values())))
    found: dict[str, list[float]] = {name: [] for name in learners}
    examples = 0.0
    for _ in range(turns + 1):  # the first compiles
        for name, algorithm in made.items():
            method = algorithm.method
            method.receive(transitions, before, len(transitions))
            fresh = None if method.options.replays else Collected(transitions, 0)
            told: list[Any] = []
            taken = seconds(
                lambda: told.append(method.learn(fresh, 0, len(transitions), lambda: False))  # noqa: B023
            )
            found[name].append(taken)
            options: Any = algorithm.options
            updates = told[0]["updates"]
            batch = options.batch_size if method.options.replays else len(transitions) // options.minibatches
            examples = updates * batch
    hashes = {name: state_hash(algorithm.method.learner.state()) for name, algorithm in made.items()}
    for algorithm in made.values():
        algorithm.close()
    return {"examples": examples, "hashes": hashes, **{name: taken[1:] for name, taken in found.items()}}


def state_hash(state: Arrays) -> str:
    """Return a hash of a learner's weights and moments."""
    return sha256(b"".join(np.asarray(array).tobytes() for array in state.values())).hexdigest()[:16]


def run(form: Form) -> Table:
    """Return the table of all cases, for one thread and for two."""
    table = Table(
        "Exact updates, and TensorFlow's",
        "Examples per second of all updates of one generation, in float32, with the same transitions; medians over "
        "turns. *Ratio* is the exact learner divided by TensorFlow, the median over turns. Exact updates skip zeros: "
        "behind the ReLUs of a champion there are more of them than in a fresh network.",
        ("experiment", "threads", "exact", "TensorFlow", "ratio"),
    )
    for threads in (1,) if form.smoke else (1, 2):
        for name, case in CASES.items():
            command = [
                sys.executable,
                "-m",
                "benchmarks.learner",
                name,
                str(threads),
                "1" if form.smoke else str(TURNS),
            ]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            exact, other = (found[learner] for learner in LEARNERS)
            ratio = median(b / a for a, b in zip(exact, other, strict=True))
            speeds = [f"{found['examples'] / median(taken):,.0f}" for taken in (exact, other)]
            table.rows.append([name, str(threads), *speeds, f"{ratio:.2f}"])
            if threads in case.targets:
                what = f"exact updates by TensorFlow's, {name}, {threads} threads"
                best = max(b / a for a, b in zip(exact, other, strict=True))
                table.limits.append(Limit(what, ratio, case.targets[threads], ratio=True, best=best))
    return table


if __name__ == "__main__":
    print(json.dumps(of_case(CASES[sys.argv[1]], learners(int(sys.argv[2])), int(sys.argv[3]))))
