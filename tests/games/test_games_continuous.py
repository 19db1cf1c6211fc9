"""Games with continuous actions take the steps of the implementations that they are named after."""

from __future__ import annotations

import json
import math
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from evo.games.catalogue import pendulum, swingup

SWINGUP = json.loads((Path(__file__).parent / "swingup_steps.json").read_text())


def test_the_pendulum_is_gymnasium_s() -> None:
    theirs = gymnasium.make("Pendulum-v1").unwrapped
    ours = pendulum.make(pendulum.Options(id="pendulum")).plain()
    random = np.random.default_rng(1)
    for episode in range(5):
        theirs.reset(seed=episode)
        ours.begin(0, episode)
        theirs.state = np.array([ours.state.angle[0], ours.state.speed[0]])
        for _ in range(199):
            action = random.uniform(-1.2, 1.2)
            seen, reward, *_ = theirs.step(np.array([2.0 * action]))
            mine, status = ours.step(0, [action])
            assert (mine, status) == (pytest.approx(float(reward), rel=1e-9, abs=1e-9), 0)
            # Theirs differs by the C library's sine and by float32 in the reward's angle; chaos is weak here.
            np.testing.assert_allclose(ours.observe(0), seen, rtol=1e-5, atol=1e-6)
            theirs.state = np.array([ours.state.angle[0], ours.state.speed[0]])
    for episode in range(200):
        ours.begin(0, episode)
        assert abs(ours.state.angle[0]) <= math.pi
        assert abs(ours.state.speed[0]) <= 1


def test_the_swing_up_is_evojax_s() -> None:
    ours = swingup.make(swingup.Options(id="swingup")).plain()
    for state, action, after, seen, reward, ended in SWINGUP:
        for array, value in zip(ours.state, state, strict=True):
            array[0] = value
        mine, over = ours.definition.step(ours.state, ours.rules, 0, ours.playable([action]), None)
        np.testing.assert_allclose([array[0] for array in ours.state], after, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(ours.observe(0), np.array(seen, np.float32), rtol=1e-6, atol=1e-7)
        assert (mine, over) == (pytest.approx(reward, rel=1e-12, abs=1e-14), bool(ended))


@pytest.mark.parametrize("harder", [False, True])
def test_the_swing_up_begins_where_evojax_s_does(harder: bool) -> None:
    ours = swingup.make(swingup.Options(id="swingup", harder=harder)).plain()
    begun = []
    for seed in range(400):
        ours.begin(0, seed)
        begun.append([array[0] for array in ours.state])
    mean, deviation = np.mean(begun, axis=0), np.std(begun, axis=0)
    spread = np.array([2.4, 10.0, math.pi / 2, 10.0]) / math.sqrt(3) if harder else np.full(4, 0.2)
    np.testing.assert_allclose(mean, [0, 0, math.pi, 0], atol=4 * spread.max() / 20)
    np.testing.assert_allclose(deviation, spread, rtol=0.12)


@pytest.mark.long
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_action_that_is_not_finite_is_refused(number: float) -> None:
    vector = pendulum.make(pendulum.Options(id="pendulum")).vector_env(2)
    vector.reset(seed=1)
    with pytest.raises(ValueError, match="not all are finite"):
        vector.step(np.array([[0.5], [number]]))
    assert np.isfinite(vector.step(np.array([[0.5], [-0.5]]))[1]).all()
