"""SAC compared with Stable-Baselines3's: the same environments, layers, batches and updates per frame.

    python -m benchmarks --only sac [--peers DIR]

Both run in the peers' environment, which has MuJoCo. Without it nothing is measured.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers import ROOT, interpreter, missing
from benchmarks.ppo import TIMEOUT, WARM, Lines, add_pair, checked, of_peer, ours, speed
from benchmarks.tables import Form, Table
from evo.config.experiment import Experiment

EXPERIMENT = ROOT / "experiments" / "games" / "sac_pendulum.toml"
SETTING = (
    "environment.rescale_actions=true", "policy.dense=[256, 256]", "sac.envs=4", "sac.envs_per_task=2",
    "sac.batch_size=256", "sac.learning_starts=256",  # one generation
    "workers.count=2", "learner.threads=2",
)  # fmt: skip
BOUNDS = {"Pendulum-v1": (-2000, 1), "Hopper-v5": (-1, 4000), "HalfCheetah-v5": (-2000, 8000)}  # of mean returns
COUNTED, TURNS = 8, 3
LEAST = 2.0  # times Stable-Baselines3's frames
PEER = "Stable-Baselines3"


def settings_of(name: str) -> tuple[str, ...]:
    """Return the settings of a run in an environment."""
    return f"environment.id=gymnasium:{name}", *SETTING


def theirs(python: Path, name: str, frames: int) -> Lines:
    """Return frames and seconds after each rollout of Stable-Baselines3."""
    experiment = Experiment.load(EXPERIMENT, *settings_of("Pendulum-v1"))  # others need MuJoCo, which is over there
    described = {
        "id": name,
        "dense": experiment.policy.model_dump()["dense"],
        "sac": experiment.options.model_dump(),
        "threads": 2,
        "seed": 1,
    }
    return of_peer(python, "sb3_sac", described, TIMEOUT, frames)


def run(form: Form) -> Table:
    """Return the table of frames a second of both."""
    table = Table(
        "SAC on Gymnasium environments",
        "Frames per second on two cores, learning included: 4 environments, an update of 256 transitions per frame, "
        "and three networks of two hidden layers of 256 units. Ours plays on two workers, which wait while two threads "
        "learn. Medians over generations and alternating runs.",
        ("environment", PEER, "ours", "ratio"),
    )
    python = form.peers and interpreter(form.peers, "gymnasium")
    if not python:
        table.without(missing("gymnasium", PEER))
        return table
    # Four are enough for the 200 steps of an episode of Pendulum: a mean return shows that both play the same.
    generations = WARM + (3 if form.smoke else COUNTED)
    for name in list(BOUNDS)[:1] if form.smoke else BOUNDS:
        options = Experiment.load(EXPERIMENT, *settings_of("Pendulum-v1")).options.model_dump()
        frames, found = generations * options["envs"] * options["horizon"], list[tuple[float, float]]()
        for _ in range(1 if form.smoke else TURNS):
            other = checked(PEER, theirs(python, name, frames), frames, BOUNDS[name])
            own = ours(generations, settings_of(name), experiment=EXPERIMENT, python=str(python))
            found.append((speed(checked("ours", own, frames, BOUNDS[name])), speed(other)))
        add_pair(table, name, f"SAC, {name}: times {PEER}'s frames", LEAST, found)
    return table
