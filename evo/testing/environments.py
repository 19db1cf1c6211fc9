"""What every environment must do: pytest finds these tests in a class that `environment_tests` makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evo.environment import Environment
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins import mistakes, registry
from evo.records import ActionRule, Episodes, Result, Task
from evo.rollouts.gymnasium_episodes import seed_check
from evo.rollouts.rollout import Rollout
from evo.testing.games import EMPTY, FRESH, SEEDS


class EnvironmentTests:
    """The tests; `environment` is what is tested."""

    environment: Environment
    module: str

    def _played(self, seeds: Any) -> Result:
        environment = self.environment
        spreads = environment.actions if environment.continuous else 0
        network = Network.build(Policy(kind="mlp", dense=[8]), environment.shape, environment.actions, spreads)
        rule = ActionRule("gaussian" if environment.continuous else "softmax")
        return Rollout(network, environment).play(Task(FRESH, Episodes(seeds), rule, record_transitions=True), EMPTY)

    def test_it_says_what_it_is(self) -> None:
        """Shape, actions and the names of metrics are of the types that the trainer expects."""
        mistakes.check_environment(self.environment, self.module)

    def test_a_seed_names_an_episode(self) -> None:
        """Environments do the same after a reset with the same seed, fresh ones and others."""
        assert seed_check(self.environment) == ""

    def test_an_episode_does_not_depend_on_those_beside_it(self) -> None:
        """Episodes that are played together or alone have the same returns and lengths."""
        together = self._played(SEEDS[:4])
        for e in range(4):
            alone = self._played(SEEDS[e : e + 1])
            assert together.returns[0, e] == alone.returns[0, 0]
            assert together.lengths[0, e] == alone.lengths[0, 0]

    def test_episodes_end_and_their_numbers_are_finite(self) -> None:
        """Every episode has an end, and observations and rewards are numbers."""
        played = self._played(SEEDS[:4])
        assert played.finite.all()
        steps: Any = played.transitions
        assert np.isfinite(steps.rewards).all()
        assert (steps.ends > 0).sum() == 4


def environment_tests(identifier: str, *, plugin: str | Sequence[str] = (), **options: Any) -> type[EnvironmentTests]:
    """Return a class of tests of an environment, by its `environment.id`, with these options.

    `plugin` names the modules to load, as --plugin does.
    """
    registry.load([plugin] if isinstance(plugin, str) else plugin)
    found = registry.find("environments", registry.module_of(identifier))
    environment = found.make(found.Options(id=identifier, **options))
    return type("EnvironmentTests", (EnvironmentTests,), {"environment": environment, "module": identifier})
