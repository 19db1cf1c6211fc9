"""Normalisers: observations folded into the first layer, rewards by their discounted sums."""

from __future__ import annotations

import numpy as np
import pytest

from evo.algorithms.pqn import PQNLoss
from evo.errors import ConfigurationError
from evo.kernels import lanes
from evo.learning.exact.learner import ExactLearner
from evo.learning.learner import Pieces
from evo.learning.normalisers import ObservationNormaliser, RewardNormaliser
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import SEGMENT_END, TERMINATED, TRUNCATED

MLP = Policy(kind="mlp", dense=[6])


def test_an_observation_normaliser_is_folded_into_the_first_layer() -> None:
    network = Network.build(MLP, (4,), 2, 1)
    draw = np.random.default_rng(3)
    seen = (draw.normal(size=(500, 4)) * [1, 10, 0.1, 0] + [0, 5, -3, 2]).astype(np.float32)
    normaliser, parts = ObservationNormaliser(network), np.split(seen, [100, 170])
    for part in parts:
        normaliser.moments.add(part)
    np.testing.assert_allclose(normaliser.moments.mean, seen.mean(axis=0, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(normaliser.moments.variance, seen.var(axis=0, dtype=np.float64), rtol=1e-6, atol=1e-9)
    applied = normaliser.apply(seen)
    np.testing.assert_allclose(applied.std(axis=0), [1, 1, 1, 0], atol=1e-5)
    weights = draw.normal(size=network.size).astype(np.float32)
    plain, folded = lanes.scores(network, weights, applied), lanes.scores(network, normaliser.fold(weights), seen)
    np.testing.assert_allclose(folded, plain, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(normaliser.unfold(normaliser.fold(weights)), weights, rtol=1e-3, atol=1e-3)
    with pytest.raises(ConfigurationError, match="normalise_observations"):
        ObservationNormaliser(Network.build(Policy(), (9, 9, 5), 3, 1))


def test_rewards_are_normalised_by_their_discounted_sums_which_go_on_in_every_env() -> None:
    rewards, ends = (
        np.arange(1, 9, dtype=np.float32),
        np.array([0, TERMINATED, 0, SEGMENT_END, 0, 0, TRUNCATED, SEGMENT_END], np.uint8),
    )
    normaliser = RewardNormaliser(0.5, 2)
    scaled = normaliser.apply(rewards, ends)
    sums = [1, 2.5, 3, 5.5, 5, 8.5, 11.25, 8]
    np.testing.assert_allclose(scaled, rewards / np.std(sums), rtol=1e-6)
    np.testing.assert_allclose(normaliser.sums_by_name()["reward_sums"], [5.5, 8])
    normaliser.apply(np.ones(2, np.float32), np.full(2, SEGMENT_END, np.uint8))
    np.testing.assert_allclose(normaliser.sums_by_name()["reward_sums"], [1 + 5.5 / 2, 1 + 8 / 2])


def test_sets_of_environments_have_discounted_sums_of_their_own() -> None:
    normaliser, ones, ends = RewardNormaliser(0.5, 2), np.ones(2, np.float32), np.full(2, SEGMENT_END, np.uint8)
    for slot in (0, 1, 0, 3):
        normaliser.apply(ones, ends, slot)
    wanted = {"reward_sums": [1.5, 1.5], "reward_sums1": [1, 1], "reward_sums3": [1, 1]}
    assert {name: sums.tolist() for name, sums in normaliser.sums_by_name().items()} == wanted
    again = RewardNormaliser(0.5, 2)
    again.restore_sums({**normaliser.sums_by_name(), "reward_moments": np.zeros(3)})
    again.apply(ones, ends, 1)
    assert again.sums_by_name()["reward_sums1"].tolist() == [1.5, 1.5]
    assert again.sums_by_name()["reward_sums"].tolist() == [1.5, 1.5]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_an_observation_normaliser_is_folded_into_a_recurrent_first_layer(kind: str) -> None:
    network = Network.build(Policy(layers=[f"{kind} 5"]), (4,), 2)
    draw, steps = np.random.default_rng(3), np.arange(8, dtype=np.int32)
    seen = (draw.normal(size=(8, 4)) * [1, 10, 0.1, 1] + [0, 5, -3, 2]).astype(np.float32)
    normaliser, weights = ObservationNormaliser(network), draw.normal(size=network.size).astype(np.float32)
    normaliser.moments.add(seen)
    learner = ExactLearner(network, 1, PQNLoss(2, False, 0.0), pieces=Pieces(8))
    found = []
    for observations, own in ((normaliser.apply(seen), weights), (seen, normaliser.fold(weights))):
        learner.begin(own)
        data = {"memories": np.zeros((8, network.memory), np.float32), "begins": steps == 0}
        learner.load({"observations": observations, "actions": steps % 2, "targets": seen[:, 0], **data})
        found.append(learner.outputs(observations, steps))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(normaliser.unfold(normaliser.fold(weights)), weights, rtol=1e-3, atol=1e-3)
