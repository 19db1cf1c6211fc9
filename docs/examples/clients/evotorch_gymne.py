"""EvoTorch's GymNE evolves a linear policy for CartPole."""

from __future__ import annotations

from evotorch.algorithms import PGPE
from evotorch.neuroevolution import GymNE

import evo.games  # noqa: F401


def main() -> None:
    """Evolve for a few seconds, and print the mean return of the centre."""
    problem = GymNE("evo/cartpole-v0", "Linear(obs_length, act_length)", num_episodes=2)
    problem.manual_seed(1)
    searcher = PGPE(
        problem, popsize=40, center_learning_rate=0.5, stdev_learning_rate=0.1, radius_init=1.0, optimizer="clipup"
    )
    searcher.run(10)
    mean = float(searcher.status["mean_eval"])
    print(f"mean return {mean:.1f} of 500")
    assert mean > 50


if __name__ == "__main__":
    main()
