"""What the names on a page mean, in a few plain words each: metrics, parts of the time, and signs of the diagnosis."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from evo.training.accounting import PARTS

SIGN = re.compile(r"\D+?(?= -?\d| unknown| nan|$)")  # the name of a sign, before its value

METRICS = {
    "mean": "mean return of the training episodes",
    "best": "best mean return of a candidate, or best return of an episode",
    "best_fitness": "highest fitness, by which candidates are ranked",
    "mean_fitness": "mean fitness of the candidates",
    "mean_length": "mean number of steps of a training episode",
    "training_table": "which table of environment.training the generation used, from 0",
    "episodes": "training episodes that ended",
    "validation": "the champion's mean return on validation episodes",
    "start_validation": "mean validation return of the network that the run began with",
    "test": "the champion's mean score on test episodes",
    "test_return": "the champion's mean return on test episodes",
    "optimism": "training return of the finalists (best candidates), minus their validation return",
    "frames": "environment steps of training in the generation",
    "frames_so_far": "environment steps of training so far",
    "slots": "lane slots computed, including idle ones",
    "sigma": "standard deviation of mutations or of the search (median)",
    "nonfinite": "candidates whose scores were infinite or not a number",
    "signal_to_noise": "variance between candidates, over that due to luck in their mean returns",
    "distinct": "number of different ways to play, per candidate",
    "improving": "share of children that beat their parent on the same episodes",
    "neutral": "share of children that play exactly like their parent",
    "surviving_sigma": "standard deviation of the mutations that survived",
    "turnover": "share of new networks among the survivors",
    "weight_rms": "typical size of a weight (root mean square)",
    "diversity": "distance of survivors from their mean network, over the size of weights",
    "between_islands": "share of the variance of weights that lies between islands",
    "centre": "training return of the search distribution's mean",
    "restarts": "restarts of the search so far",
    "start": "which of several searches plays, from 0",
    "step_norm": "how far the search distribution's mean moved",
    "step_size": "overall standard deviation of CMA-ES",
    "step_path": "length of the path of recent steps, over the expected length",
    "axis_ratio": "longest over shortest axis of the search distribution",
    "front": "survivors on the first Pareto front",
    "elites": "networks in the archive",
    "coverage": "share of the archive's cells that are filled",
    "qd_score": "sum of the elites' fitness when they entered",
    "qd_score_checked": "sum of the elites' fitness on fresh episodes",
    "splits": "splits of the best decision tree",
    "mean_splits": "splits of a decision tree, on average",
    "learner_return": "return of the learner's network among the candidates",
    "learner_selected": "whether the learner's network was selected (1) or not (0)",
    "explored": "mean return of the learner's exploration episodes",
    "updates": "gradient updates of the generation",
    "learning_rate": "step size of the optimizer",
    "gradient_norm": "norm of the gradient before it is clipped",
    "loss": "what the updates minimise",
    "policy_loss": "the policy's part of the loss",
    "value_loss": "the value's part of the loss",
    "entropy": "randomness of the policy; 0: always the same action",
    "temperature": "weight of the entropy in the loss",
    "explained_variance": "how well values predict returns; 1: perfectly, 0: not at all",
    "approx_kl": "how far an update moves the policy (KL divergence, approximate)",
    "clip_fraction": "share of probability ratios that PPO clips",
    "epsilon": "share of random actions in training",
    "q_value": "mean predicted return of the chosen actions",
    "replay_size": "transitions in the replay buffer",
    "seconds": "time of the generation",
    **PARTS,
    "seconds_straggling": "all workers but one wait for the last task",
    "seconds_validating": "time of the validation episodes",
    "frames_validating": "environment steps of the validation episodes",
    "frames_of_baselines": "training moves made by baselines, without a network",
    "seconds_background": "updates that ran while workers played",
    "seconds_committing": "time to write the generation to disk",
    "seconds_compiling": "time to compile kernels, once per machine; not counted",
    "forward_passes": "outputs of networks computed, one per observation",
    "forward_passes_so_far": "outputs of networks computed by the run so far",
    "backward_passes": "gradients computed, one per example",
    "multiply_adds": "multiplications in the networks, each with an addition",
    "multiply_adds_so_far": "multiplications of the run so far",
    "cpu_seconds": "processor time of all processes",
    "cpu_seconds_so_far": "processor time of the run so far",
    "lane_utilisation": "share of the kernel's 16 lanes (parallel episodes) that played",
    "workers": "worker processes",
    "workers_replaced": "workers that died and were replaced",
    "bytes_published": "bytes of weights that workers map into memory",
    "bytes_sent": "bytes of tasks sent to workers",
    "bytes_received": "bytes of results received from workers",
}
TIMES = " ".join(f"{name.removeprefix('seconds_')}: {means}." for name, means in PARTS.items())
SIGNS = {
    "diversity": METRICS["diversity"],
    "new survivors": METRICS["turnover"],
    "signal to noise": METRICS["signal_to_noise"],
    "first sigma over weights": "sigma of the first mutations, over the size of weights",
    "first sigma": "sigma of the first mutations, if the size of weights is 0",
    "improving mutations": METRICS["improving"],
    "sigma over weights": "sigma of later mutations, over the size of weights",
    "approximate KL divergence": METRICS["approx_kl"],
    "clipped": METRICS["clip_fraction"],
    "gradient norm": METRICS["gradient_norm"],
    "entropy": METRICS["entropy"],
    "explained variance": METRICS["explained_variance"],
    "actions from": "the lowest and the highest value of a continuous action",
    "returns all": "best and mean return of every generation",
    "champion's score": "mean score of its test episodes",
    "random player": "mean score of a player that acts at random",
    "training gap": METRICS["optimism"],
    "validation gap": "the champion's validation return, minus its test return",
    "lanes used": METRICS["lane_utilisation"],
    "workers idle": "share of the time in which workers had no task",
    "master's share of the time": "share of the time in which workers waited for the main process",
}


def of_metric(name: str) -> str:
    """Return what a metric means; empty where it is not ours."""
    if name not in METRICS and name.startswith("best_"):
        return "best mean value of an objective"
    return METRICS.get(name, "")


def of_signs(looked_at: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the signs that a diagnosis looked at, as they stand there with their values, and what they mean."""
    for label in looked_at:
        for part in label.split(", "):
            name = SIGN.match(part)
            if name and name[0] in SIGNS:
                yield part, SIGNS[name[0]]
