"""Learns the same twenty steps of PPO and of DQN under a strategy, in a process of its own, and writes what came of it.

python tests/learning/distributed/spread_learners.py OUT.npz '{"strategy": "mirrored", "logical_cpus": 2}' ...
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.algorithms import dqn
from evo.algorithms.ppo import PPOLoss
from evo.learning.distributed import make_learner
from evo.learning.tensorflow.learner import TensorFlowLearner
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.setup import LearnerOptions

NETWORK = Network.build(Policy(conv=[[4, 3, 1]], dense=[8]), (5, 5, 3), 3, 1)
SIZES = (33, 3, 50, 1, 40)  # of batches, which no number of devices divides
EXAMPLES, STEPS = 101, 20
SETTINGS = {"entropy_coefficient": 0.01, "value_coefficient": 0.5, "clip_range": 0.2, "value_clip_range": 0.0}


def ppo(options: LearnerOptions, norm: float = 0.05) -> TensorFlowLearner:
    learner = make_learner(NETWORK, options, PPOLoss(3), norm)
    draw = np.random.default_rng(1)
    learner.begin(draw.normal(0, 0.2, NETWORK.size).astype(np.float32))
    learner.load(
        {
            "observations": draw.random((EXAMPLES, 5, 5, 3), np.float32),
            "actions": draw.integers(0, 3, EXAMPLES).astype(np.int32),
            "log_probabilities": np.log(draw.uniform(0.2, 0.5, EXAMPLES)).astype(np.float32),
            **{name: draw.normal(size=EXAMPLES).astype(np.float32) for name in ("advantages", "returns", "values")},
        }
    )
    return learner


def batches(count: int = STEPS) -> Iterator[NDArray[np.int32]]:
    draw = np.random.default_rng(2)
    for k in range(count):
        yield draw.permutation(EXAMPLES)[: SIZES[k % len(SIZES)]].astype(np.int32)


def after_ppo(options: LearnerOptions) -> dict[str, NDArray[Any]]:
    learner = ppo(options)
    values = list(learner.updates_on(batches(), 1e-2, SETTINGS))
    half = learner.state()
    told = {
        "kl": np.concatenate([value["approx_kl"] for value in values]),
        "norms": np.concatenate([value["gradient_norm"] for value in values]),
        "fingerprint": np.array(learner.fingerprint()),
        **{f"ppo_{name}": array for name, array in half.items()},
    }
    learner.restore({name: np.asarray(array) * 0 for name, array in half.items()})
    learner.restore(half)
    told["restored"] = learner.state()["weights"]
    learner.close()
    return told


def after_dqn(options: LearnerOptions) -> dict[str, NDArray[Any]]:
    learner = make_learner(NETWORK, options, dqn.DQNLoss(3, True, 1.0, True), 0.5)
    draw = np.random.default_rng(3)
    learner.begin(draw.normal(0, 0.2, NETWORK.size).astype(np.float32))
    learner.set_target(draw.normal(0, 0.2, NETWORK.size).astype(np.float32))
    errors = []
    for k in range(STEPS):
        count = SIZES[k % 2]
        learner.load(
            {
                "observations": draw.random((count, 5, 5, 3), np.float32),
                "next_observations": draw.random((count, 5, 5, 3), np.float32),
                "actions": draw.integers(0, 3, count).astype(np.int32),
                "n_step_rewards": draw.normal(size=count).astype(np.float32),
                "discounts": np.full(count, 0.9, np.float32),
                "next_action_masks": (draw.random((count, 3)) < 0.9).astype(np.int8),
                "importance_weights": draw.random(count, np.float32),
            }
        )
        errors.append(learner.update(np.arange(count, dtype=np.int32), 1e-2, {})["td_error"])
        learner.update_target(0.1, 5 if k > 10 else 0)
    told = {"dqn_weights": learner.weights(), "target": learner.target_weights(), "errors": np.concatenate(errors)}
    learner.close()
    return told


def processes_of(learner: Any) -> list[int]:
    return [process.pid for process in learner.cluster.processes]


def listening(pid: int) -> set[str]:
    """Return the addresses that the network of a process listens on, as the process names them."""
    found = set()
    for kind in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{kind}") as file:
            found |= {line.split()[1] for line in file.readlines()[1:] if line.split()[3] == "0A"}
    return found


def killed(options: LearnerOptions, victim: str) -> dict[str, NDArray[Any]]:
    """Kill a process by its name before the fifth of ten updates; say what is told, and what is left."""
    learner: Any = ppo(options)
    pids = processes_of(learner)
    with open(f"/proc/{pids[0]}/net/dev") as file:
        interfaces = [line.split(":")[0].strip() for line in file.readlines()[2:]]
    outside = os.readlink(f"/proc/{pids[0]}/ns/net") != os.readlink("/proc/self/ns/net")
    told: dict[str, Any] = {"interfaces": interfaces, "apart": outside, "listening": len(listening(pids[0]))}

    def some() -> Iterator[NDArray[np.int32]]:
        for k, rows in enumerate(batches(10)):
            if k == 4:
                for one in learner.cluster.processes:
                    if one.name == victim:
                        os.kill(one.pid, signal.SIGKILL)
            yield rows

    weights = np.empty(0, np.float32)
    try:
        for _ in learner.updates_on(some(), 1e-2, SETTINGS):
            pass
        told["updates"] = int(learner.state()["updates"][0])
        weights = learner.weights()
    except Exception as error:
        told["error"], told["code"] = str(error), getattr(error, "exit_code", 1)
    learner.close()
    told["left"] = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    return {"told": np.array(json.dumps(told)), "weights": weights}


def everything(options: LearnerOptions) -> dict[str, NDArray[Any]]:
    return {**after_ppo(options), **after_dqn(options)}


if __name__ == "__main__":
    out, text = sys.argv[1:]
    found: dict[str, NDArray[Any]] = {}
    for name, told in json.loads(text).items():
        asked, victim = LearnerOptions(threads=1, arithmetic="tensorflow", **told), name.partition(":")[2]
        if victim == "wait":
            kept: Any = ppo(asked)
            print(*processes_of(kept), flush=True)
            signal.pause()
        if victim == "one update":
            for rows in batches(1):
                ppo(asked).update(rows, 1e-2, SETTINGS)
            continue
        came = killed(asked, victim) if victim else everything(asked)
        found |= {f"{name}/{key}": array for key, array in came.items()}
    np.savez(out, **found)  # type: ignore[arg-type]
