"""A run that is read without a lock: its curves, its champion as a policy, its test score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.config import loading
from evo.config.experiment import Experiment, environment_of, evaluator_of
from evo.config.plug_ins import stored
from evo.errors import ConfigurationError, DataError, notice
from evo.plugins import registry
from evo.store import sandbox
from evo.store.champion import WEIGHTS
from evo.store.metrics import MetricsFile
from evo.store.paths import PUBLISHED
from evo.store.published import Published
from evo.store.recovery import require_run_directory
from evo.store.run_directory import CONFIG
from evo.store.store import Store
from evo.training.champion import champion_of, network_layers, of_another_run, score_of_champion

if TYPE_CHECKING:
    from evo.networks.network import Network
    from evo.records import Evaluator
    from evo.store.champion import Champion
    from evo.training.testing import Score


class Run:
    """A run directory, or a champion.h5 by itself; it is only read, also while it trains.

    DataError: it is neither. Plug-ins that it needs are loaded before, by `evo.plugins.registry.load`.
    """

    def __init__(self, directory: str | Path, *, plugins: Sequence[str] = ()) -> None:
        registry.load(plugins)
        self.directory = Path(directory)

    @cached_property
    def config(self) -> Experiment:
        """The experiment, with every option."""
        if self.directory.is_file():
            return look_at(self.directory).experiment
        return loading.load(self.directory / CONFIG, resolved=True)

    @property
    def curves(self) -> dict[str, NDArray[np.float64]]:
        """The columns of metrics.jsonl, NaN where a generation has no such metric; DataError: no run.  # [G] each"""
        if not (self.directory / CONFIG).is_file():
            raise DataError(f"{self.directory}: is no run directory")
        lines = MetricsFile(self.directory).read()
        names = list(dict.fromkeys(name for line in lines for name in line))
        return {name: np.array([line.get(name) for line in lines], np.float64) for name in names}

    @property
    def champion(self) -> Policy:
        """The champion so far, as a policy; DataError where there is none yet."""
        found = look_at(self.directory)
        return Policy(found.experiment.network(), found.champion.weights, found.experiment)

    @property
    def elites(self) -> list[Elite]:
        """The elites of an archive (MAP-Elites, CMA-ME) so far, by cell; DataError where the run has no archive."""
        store = Store.read(self.directory)
        state = store.read_state(store.next_generation - 1) if store.next_generation else {}
        if "grid" not in state:
            raise DataError(f"{self.directory}: {self.config.algorithm} keeps no archive, or none yet")
        options: Any = self.config.options
        network, per = self.config.network(), 1000.0 * options.episodes
        places = zip(*np.unravel_index(np.asarray(state["cells"], np.int64), options.bins), strict=True)
        return [
            Elite(tuple(map(int, place)), float(fitness) / per, Policy(network, weights, self.config))
            for place, fitness, weights in zip(places, state["fitness"], state["weights"], strict=True)
        ]

    @property
    def test(self) -> Score | None:
        """The champion's test score; None before it is tested."""
        return score_of_champion(look_at(self.directory).champion.about)


class Policy:
    """A network that acts greedily: call it with an observation, or with a batch of them."""

    def __init__(self, network: Network, weights: NDArray[np.float32], experiment: Experiment) -> None:
        self.network, self.weights = network, weights  # [P]
        self._continuous = environment_of(experiment.environment).continuous
        self._tensorflow = experiment.policy.player == "tensorflow"
        self._origin = f"{experiment.algorithm} for {experiment.environment.id}"

    def __repr__(self) -> str:
        numbers = "numbers as actions" if self._continuous else "actions"
        seen = f"observations {self.network.shape}, {self.network.actions} {numbers}"
        return f"<Policy of {self._origin}: {seen}, {len(self.weights):,} weights>"

    def __call__(self, observations: NDArray[Any], action_masks: NDArray[Any] | None = None) -> Any:
        """Return the action of the highest score, the first of equals; of continuous actions, their means.

        observations [*shape] or [B, *shape], action_masks [A] or [B, A] with 1 for allowed actions. One observation
        gives an int, or float32 [D]; a batch gives int64 [B], or float32 [B, D]. ValueError: another shape.
        """
        seen, shape = np.asarray(observations, np.float32), self.network.shape
        if shape not in (seen.shape, seen.shape[1:]):
            raise ValueError(
                f"observations of shape {seen.shape}, where {shape} or (B, {', '.join(map(str, shape))}) fit"
            )
        scores = self.scores(seen.reshape(-1, *shape))[:, : self.network.actions]
        if self._continuous:
            return scores[0] if seen.shape == shape else scores
        if action_masks is not None:
            scores = np.where(np.asarray(action_masks).reshape(len(scores), -1) != 0, scores, -np.inf)
        actions = scores.argmax(axis=1)
        return int(actions[0]) if seen.shape == shape else actions

    def scores(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return all outputs of the network.  # [B, *shape] -> [B, O]"""
        if self._tensorflow:
            return np.asarray(self._model(observations), np.float32)
        from evo.kernels import lanes
        from evo.workers.process import interrupts_wait

        with interrupts_wait():  # the first call compiles
            return lanes.scores(self.network, self.weights, observations)

    @cached_property
    def _model(self) -> Any:
        """The network in Keras, which takes long to build; with the weights of that time."""
        from evo.networks.keras_form import build_keras, set_weights

        model = build_keras(self.network)
        set_weights(model, self.network, self.weights)
        return model


class Elite(NamedTuple):
    """A network of an archive."""

    cell: tuple[int, ...]  # its bin of each descriptor, from 0
    fitness: float  # of an episode, on average, when it entered
    policy: Policy


class Finished(NamedTuple):
    """What a run directory holds."""

    directory: Path
    experiment: Experiment
    champion: Champion


def look_at(directory: Path, flags: Mapping[str, object] | None = None) -> Finished:
    """Read a run directory, or a champion.h5 by itself; DataError where it is none, or has no champion of its network.

    `flags` are those of `loading.load`, and say how to play.
    """
    if directory.is_file():
        return _by_itself(directory, flags)
    require_run_directory(directory)
    champion = sandbox.read_champion(directory) if (directory / WEIGHTS).exists() else None
    store = Store.read(directory)  # afterwards, for a run that goes on writes its manifest first
    with stored():
        loading.load(directory / CONFIG, resolved=True)
    experiment = loading.load(directory / CONFIG, (), flags, resolved=True)
    if experiment.policy.model_dump() != store.identity.get("policy"):
        raise DataError(f"{directory / CONFIG}: its [policy] is not the one that the run was begun with")
    if environment_of(experiment.environment).sources != store.identity.get("game", {}).get("sources", ""):
        notice(f"{experiment.environment.id} has changed since this run was begun; what is played now is another game")
    champion = champion_of(directory, experiment.network(), lambda _: champion or sandbox.read_champion(directory))
    for mistake in () if store.notices else of_another_run(champion, store.identity, store.lines):
        raise DataError(f"{directory / WEIGHTS}: is not of this run: {mistake}; to use it by itself, name the file")
    return Finished(directory, experiment, champion)


def with_environment(experiment: Experiment, sets: Sequence[str]) -> Experiment:
    """Return the experiment in an environment with other options, as `loading.with_environment`, for the same network.

    ConfigurationError: the network does not fit there.
    """
    changed = loading.with_environment(experiment, sets)
    ours, there = experiment.network(), changed.network()
    if network_layers(there) != network_layers(ours):
        raise ConfigurationError(
            f"--set: the network is of an environment that shows {ours.shape} with {ours.actions} actions; this one "
            f"shows {there.shape} with {there.actions}"
        )
    return changed


def _by_itself(file: Path, flags: Mapping[str, object] | None) -> Finished:
    champion = sandbox.read_champion(file)
    with stored():
        loading.of_champion(file, champion.about)
    experiment = loading.of_champion(file, champion.about, flags)
    if list(champion.layers) != network_layers(experiment.network()):
        raise DataError(f"{file}: its layers are not those of the network that it describes")
    return Finished(file.parent, experiment, champion)


@contextmanager
def playing(experiment: Experiment) -> Iterator[tuple[Evaluator, Published]]:
    """Yield an evaluator, and what publishes weights for it in a temporary folder; all of it is gone afterwards."""
    with temporary() as published, closing(evaluator_of(experiment, published.directory)) as evaluator:
        yield evaluator, published


@contextmanager
def temporary() -> Iterator[Published]:
    """Yield what publishes weights in a temporary folder."""
    with TemporaryDirectory(prefix="snake-evo-") as place:
        (Path(place) / PUBLISHED).mkdir()
        yield Published(Path(place))
