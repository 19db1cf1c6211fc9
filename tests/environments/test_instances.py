"""Everything that a live environment returns is checked as it enters, and environments are reset, not made again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from evo.environments.gymnasium import Options, make
from evo.environments.instances import OPEN, Instance
from evo.environments.normalisation import normalisation_of
from evo.errors import ConfigurationError
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.randomness.streams import Purpose, episode_keys
from evo.records import ActionRule, Episodes, Task, WeightSource
from evo.rollouts.gymnasium_episodes import seed_check, shares_state
from evo.rollouts.rollout import Rollout

SEEDS = episode_keys(0, Purpose.TRAINING, 0, 20)
SEEN, TWO = Box(-1, 1, (2,)), Discrete(2)


class Odd(gymnasium.Env):
    """Returns what it is given, in its third step or from `reset`."""

    made = 0
    alive: set[int] = set()  # noqa: RUF012

    def __init__(
        self,
        returned: Callable[[tuple[Any, ...]], Any] = lambda usual: usual,
        begun: Any = None,
        actions: Any = TWO,
        observations: Any = SEEN,
        **kind: Any,
    ) -> None:
        self.returned, self.begun, self.action_space, self.observation_space = returned, begun, actions, observations
        self.kind, self.level, self.taken, self.seeds = kind, 0, [], []
        if kind.get("alone") and Odd.alive:
            raise RuntimeError("one at a time")
        Odd.made += 1
        Odd.alive.add(id(self))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.level = 0, self.level + 1
        self.seeds.append(seed)
        if self.kind.get("shared"):
            random.seed(seed)
        if self.kind.get("old"):
            self.old = np.random.RandomState(seed)
        if self.kind.get("class_state"):
            Odd.made += 1
        self.x = self.np_random.uniform(-1, 1, self.observation_space.shape or (2,)).astype(np.float32)
        if self.kind.get("fresh"):
            self.x = np.random.default_rng(seed).uniform(-1, 1, 2).astype(np.float32)
        if self.level > self.kind.get("ignores_from", self.level):
            self.x = np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)
        return (self.x, {}) if self.begun is None else self.begun

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.taken.append(action)
        pay = 1.0 / self.level if self.kind.get("carries") else float(Odd.made if self.kind.get("class_state") else 1)
        pay += random.random() * bool(self.kind.get("shared"))
        usual = self.x, pay, self.steps >= 5, False, {}
        return self.returned(usual) if self.steps == 3 else usual

    def close(self) -> None:
        Odd.alive.discard(id(self))


@pytest.fixture
def odd() -> Iterator[Callable[..., Any]]:
    """Return a function that registers `Odd` with these words, and makes our environment of it."""
    OPEN.here.close()
    Odd.made, Odd.alive = 0, set()

    def made(options: dict[str, Any] | None = None, **words: Any) -> Any:
        gymnasium.registry.pop("Odd-v0", None)
        gymnasium.register("Odd-v0", partial(Odd, **words), disable_env_checker=True)
        return make(Options(id="gymnasium:Odd-v0", **(options or {})))

    yield made
    OPEN.here.close()
    OPEN.here.one_by_one = False
    gymnasium.registry.pop("Odd-v0", None)


def played(environment: Any, rule: str = "softmax", seeds: Any = SEEDS) -> Any:
    network = Network.build(Policy(kind="linear"), environment.shape, environment.actions)
    task = Task(WeightSource.of_row(-1), Episodes(seeds), ActionRule(rule, 0.5), record_actions=True)
    return Rollout(network, environment).play(task, np.empty((0, network.size), np.float32))


def changed(place: int, value: Any) -> Callable[[tuple[Any, ...]], Any]:
    return lambda usual: (*usual[:place], value, *usual[place + 1 :])


def masked(mask: Any) -> Callable[[tuple[Any, ...]], Any]:
    return changed(4, {"action_mask": mask})


STEP = [
    (lambda usual: None, "gave None in step 3; it must give an observation, a reward, terminated, truncated and info"),
    (lambda usual: usual[:4], "gave 4 values in step 3"),
    (changed(0, None), "gave an observation of shape (0,) in step 3; its shape must be (2,)"),
    (changed(0, {"a": 1}), "gave the observation {'a': 1} in step 3"),
    (changed(0, np.zeros(3)), "gave an observation of shape (3,) in step 3; its shape must be (2,)"),
    (changed(1, None), "gave the reward None in step 3; a reward must be a number"),
    (changed(0, np.ma.masked_array([0, 1], mask=[0, 1])), "gave the observation masked_array(data=[0, --]"),
    (changed(0, np.array([1j, 0])), "gave the observation array([0.+1.j, 0.+0.j]) in step 3"),
    (changed(1, [1.0, 2.0]), "gave the reward [1.0, 2.0] in step 3"),
    (changed(1, np.ma.masked), "gave the reward masked in step 3"),
    (changed(1, np.timedelta64(3, "s")), "gave the reward np.timedelta64(3,'s') in step 3"),
    (changed(1, 10**400), "gave the reward 1000"),
    (changed(2, None), "gave terminated = None in step 3; terminated must be true or false"),
    (changed(3, "no"), "gave truncated = 'no' in step 3"),
    (changed(4, None), "gave None as info in step 3; info must be a dictionary"),
    (masked([1]), "gave info with action_mask = [1] in step 3; action_mask must be 2 numbers"),
    (masked(np.ones((1, 2))), "action_mask = array([[1., 1.]]) in step 3"),
    (masked([1, 0, 1]), "action_mask = [1, 0, 1] in step 3"),
    (masked(np.ma.masked_array([1, 1], mask=[0, 1])), "action_mask = masked_array(data=[1, --]"),
    (masked([2, 0]), "action_mask = [2, 0] in step 3"),
    (masked("all"), "action_mask = 'all' in step 3"),
    (masked(([1], [1, 2])), "action_mask = ([1], [1, 2]) in step 3"),
    (masked(np.zeros(2, np.int8)), "gave an action_mask that allows no action in step 3"),
]


@pytest.mark.parametrize(("returned", "said"), STEP, ids=[said for _, said in STEP])
def test_what_a_step_returns_is_checked(odd: Callable[..., Any], returned: Any, said: str) -> None:
    for rule in ("greedy", "epsilon_greedy"):
        with pytest.raises(ConfigurationError) as error:
            played(odd(returned=returned), rule)
        assert str(error.value).startswith(f"plug-in {__name__}: Odd.step gave ")
        assert said in str(error.value)


@pytest.mark.parametrize(
    ("begun", "said"),
    [
        (np.zeros(2), "gave array([0., 0.]); it must give an observation and info"),
        ((np.zeros(2), None), "gave None as info; info must be a dictionary"),
        ((np.zeros(1), {}), "gave an observation of shape (1,)"),
        ((np.zeros(2), {"action_mask": [0, 0]}), "gave an action_mask that allows no action;"),
    ],
)
def test_what_a_reset_returns_is_checked(odd: Callable[..., Any], begun: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        played(odd(begun=begun))
    assert f"Odd.reset {said}" in str(error.value)


def test_an_observation_of_other_sides_is_refused_though_its_numbers_are_as_many(odd: Callable[..., Any]) -> None:
    for seen in (np.zeros((2, 3)), np.zeros((1, 2, 3)), np.zeros(6)):
        Instance.of(odd(observations=Box(-1, 1, (2, 3)), begun=(seen, {}))).reset(1)
    with pytest.raises(ConfigurationError, match=r"of shape \(3, 2\); its shape must be \(2, 3\)"):
        Instance.of(odd(observations=Box(-1, 1, (2, 3)), begun=(np.zeros((3, 2)), {}))).reset(1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, FileNotFoundError, ZeroDivisionError])
def test_whatever_an_environment_raises_is_named(odd: Callable[..., Any], error: type[BaseException]) -> None:
    def raising(usual: Any) -> Any:
        raise error

    with pytest.raises(ConfigurationError, match=r"Odd\.step (raised|called) .*test_instances\.py:"):
        played(odd(returned=raising))


@pytest.mark.parametrize("mask", [None, [1, 0], np.array([True, False]), np.array([1, 0], np.int8), (1, 0)])
def test_masks_of_any_form_are_understood(odd: Callable[..., Any], mask: Any) -> None:
    result = played(odd(begun=(np.zeros(2), {"action_mask": mask}), returned=masked(mask)))
    firsts = {int(trace[0]) for trace in result.actions} | {int(trace[3]) for trace in result.actions}
    assert firsts == ({0, 1} if mask is None else {0})


def test_the_mask_of_several_choices_is_a_tuple_of_one_each(odd: Callable[..., Any]) -> None:
    mask = (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))
    environment = odd(actions=MultiDiscrete([2, 3]), begun=(np.zeros(2), {"action_mask": mask}))
    assert environment.actions == 6
    assert {int(trace[0]) for trace in played(environment).actions} == {1, 2}


def test_nothing_need_be_allowed_after_the_end(odd: Callable[..., Any]) -> None:
    ending = changed(2, True)
    result = played(odd(returned=lambda usual: masked([0, 0])(ending(usual))))
    assert set(result.lengths[0].tolist()) == {3}


def test_whole_numbers_are_choices(odd: Callable[..., Any]) -> None:
    environment = odd(actions=Box(-1, 2, (2,), np.int32))
    assert (environment.actions, environment.continuous) == (16, False)
    env = environment.env()
    env.reset(seed=1)
    for action in (0, 6, 15):
        env.step(action)
    assert np.array(env.unwrapped.taken).tolist() == [[-1, -1], [0, 1], [2, 2]]
    assert env.unwrapped.taken[0].dtype == np.int32
    with pytest.raises(ConfigurationError, match="at most 128"):
        odd(actions=Box(-(2**31), 2**31 - 1, (1,), np.int32)).env()


class Mission(gymnasium.Space[str]):
    """As MiniGrid's."""


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (Dict(image=SEEN, mission=Text(9)), "an observation['mission'] of Text"),
        (Dict(image=SEEN, direction=TWO, mission=Mission((), str)), "an observation['mission'] of"),
        (Tuple([SEEN, Dict(a=Text(3))]), "an observation[1]['a'] of Text"),
        (Text(3), "an observation of Text"),
        (Dict(image=SEEN, word=Discrete(10**12)), "1,000,000,000,002 numbers; there must be at least one"),
        (Box(-1, 1, (0,)), "an observation of shape (0,) has 0 numbers; there must be at least one"),
    ],
)
def test_observations_without_numbers_are_refused_by_name(odd: Callable[..., Any], space: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        odd(observations=space).env()
    assert said in str(error.value)
    assert "wrapper" in str(error.value) or "at least one" in said


def test_a_single_number_is_an_observation(odd: Callable[..., Any]) -> None:
    environment = odd(observations=Box(-1, 1, ()), begun=(np.float32(0.5), {}), returned=changed(0, 0.25))
    assert environment.shape == (1,)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (Box(0, 255, (12, 12, 3), np.uint8), "divided by 255"),
        (Box(0, 255, (4, 12, 16), np.uint8), "divided by 255"),
        (Box(0, 1, (3, 12, 16)), "channels come first"),
        (Box(0, 1, (12, 16, 3)), ""),
        (MultiBinary(4), ""),
        (Box(0, 1, (4, 4, 1)), ""),
        (Dict({"a": Box(0, 1, (4, 4, 1)), "b": Box(0, 1, (2,))}), ""),
        (Dict({"a": Box(0, 1, (3, 12, 2))}), "of shape (3, 12, 2) look like pictures whose channels come first"),
    ],
)
@pytest.mark.parametrize("stack", [1, 2])
def test_pictures_that_may_be_misread_are_noticed(odd: Callable[..., Any], space: Any, said: str, stack: int) -> None:
    notices = odd(observations=space, options={"stack": stack}).notices
    assert (said in notices[0]) if said else not notices
    assert len(notices) == bool(said)


@pytest.mark.parametrize(
    ("shape", "stack", "seen"),
    [((12, 16), 1, (12, 16, 1)), ((12, 16), 4, (12, 16, 4)), ((3, 12, 16), 2, (12, 16, 6)), ((5,), 2, (10,))],
)
def test_pixels_are_divided_by_255_and_stacked_as_channels_which_come_last(
    odd: Callable[..., Any], shape: tuple[int, ...], stack: int, seen: tuple[int, ...]
) -> None:
    frame = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    environment = odd(observations=Box(0, 255, shape, np.uint8), begun=(frame, {}), options={"stack": stack})
    observation, _ = environment.env().reset(seed=1)
    assert environment.shape == observation.shape == seen
    channels = frame if len(shape) == 1 else frame[..., None] if len(shape) == 2 else np.moveaxis(frame, 0, -1)
    np.testing.assert_array_equal(observation, np.concatenate([channels] * stack, axis=-1) / np.float32(255))


def test_seeds_have_31_bits_or_64(odd: Callable[..., Any]) -> None:
    for options, fits in (({}, True), ({"seed_bits": 64}, False)):
        environment = odd(options, old=True)
        if not fits:
            with pytest.raises(ConfigurationError, match=r"Odd\.reset raised ValueError"):
                played(environment)
            environment = odd(options)
        one = Instance.of(environment)
        played(environment)
        seeds = [seed for instance in OPEN.here._open for seed in instance._own.seeds]
        assert sorted(seeds) == sorted(int(seed) >> (33 if fits else 0) for seed in SEEDS)
        assert max(seeds) > 1 << (30 if fits else 60)
        one.close()


@pytest.mark.parametrize(("options", "most"), [({}, 16), ({"instances": 1}, 1), ({"instances": 3}, 3)])
def test_environments_are_reset_and_not_made_again(odd: Callable[..., Any], options: dict[str, Any], most: int) -> None:
    environment = odd(options)
    assert environment.shape == (2,)
    usual = played(environment)
    for _ in range(2):
        again = played(environment)
        assert [trace.tolist() for trace in again.actions] == [trace.tolist() for trace in usual.actions]
    assert Odd.made == most + 1  # one that was asked for its spaces
    assert len(Odd.alive) == most
    other = odd({"max_steps": 2})
    assert set(played(other).lengths[0].tolist()) == {2}
    assert len(Odd.alive) == 16  # those of the first environment are closed


def test_an_environment_that_can_be_made_once_plays_one_episode_after_the_other(
    odd: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    several = [trace.tolist() for trace in played(odd()).actions]
    OPEN.here.close()
    environment = odd({"normalise": 20}, alone=True)
    assert seed_check(environment) == ""
    OPEN.here.close()
    environment = odd(alone=True)
    assert [trace.tolist() for trace in played(environment).actions] == several
    assert "note: Odd: episodes are played 1 at a time: " in capfd.readouterr().err
    assert len(Odd.alive) == 1


@pytest.mark.parametrize("kind", [{}, {"fresh": True}])
def test_a_normalisation_is_the_same_in_every_process(odd: Callable[..., Any], kind: dict[str, Any]) -> None:
    make_raw = odd(**kind)._raw
    first, again = (normalisation_of(make_raw, 50) for _ in range(2))
    np.testing.assert_array_equal(first.mean, again.mean)
    assert len(np.unique(first.deviation)) == 2
    assert not Odd.alive


@pytest.mark.parametrize("level", [0, 2])
def test_there_is_no_normalisation_where_the_same_steps_show_something_else(
    odd: Callable[..., Any], level: int
) -> None:
    for kind, fits in (({"ignores_from": 50}, True), ({"ignores_from": level}, False)):
        environment = odd({"normalise": 50}, **kind)
        if fits:
            assert environment.normalisation.limit == 10
            continue
        with pytest.raises(
            ConfigurationError, match=r"^environment\.normalise: random play: .* does not follow the seed"
        ):
            environment.env()
        assert not Odd.alive


def test_an_environment_that_is_registered_again_is_normalised_by_its_own_numbers(odd: Callable[..., Any]) -> None:
    first, other = (odd({"normalise": 50}, **kind).normalisation for kind in ({}, {"fresh": True}))
    assert not np.array_equal(first.mean, other.mean)


def test_an_environment_that_another_thread_plays_is_not_closed_until_that_is_over(odd: Callable[..., Any]) -> None:
    environment, begun, over = odd(alone=True), threading.Event(), threading.Event()
    assert environment.shape == (2,)

    def play() -> None:
        with OPEN.here.used() as instances:
            instances.of(environment, 1, False)
            begun.set()
            over.wait()

    thread = threading.Thread(target=play)
    thread.start()
    begun.wait()
    try:
        with pytest.raises(ConfigurationError, match=r"one at a time.*another run plays .* one run after the other"):
            Instance.of(environment)
        assert len(Odd.alive) == 1
    finally:
        over.set()
        thread.join()
    Instance.of(environment).close()
    assert not Odd.alive


def test_what_stays_of_earlier_episodes_is_found(odd: Callable[..., Any]) -> None:
    assert seed_check(odd()) == ""
    assert seed_check(odd(class_state=True)) == "ignored"
    environment = odd(carries=True)
    assert seed_check(environment) == "renewed"
    rollout = Rollout(Network.build(Policy(kind="linear"), (2,), 2), environment)
    task = Task(WeightSource.of_row(-1), Episodes(SEEDS))
    for expected in (False, True):
        returns = rollout.play(task, np.empty((0, 6), np.float32)).returns
        assert (set(returns[0].tolist()) == {5.0}) == expected
        rollout.seeds = "renewed"
        OPEN.here.close()


@pytest.mark.parametrize("kind", [{}, {"alone": True}])
def test_episodes_that_disturb_each_other_are_found_and_played_one_by_one(
    odd: Callable[..., Any], kind: dict[str, Any]
) -> None:
    assert not shares_state(odd(**kind))
    assert not shares_state(odd(carries=True))
    OPEN.here.close()
    environment = odd(shared=True, **kind)
    assert shares_state(environment) != kind.get("alone", False)
    OPEN.here.one_by_one = True
    together = played(environment).returns[0]
    assert together.tolist() == [played(environment, seeds=SEEDS[k : k + 1]).returns[0, 0] for k in range(len(SEEDS))]
    assert len(Odd.alive) == 1


def test_an_observation_that_is_changed_later_is_seen_as_it_was(odd: Callable[..., Any]) -> None:
    one = Instance.of(odd())
    one.reset(1)
    seen = one.observation.copy()
    one._own.x += 1
    np.testing.assert_array_equal(one.observation, seen)


class Unclosable(gymnasium.Env):
    """Raises where it is closed."""

    observation_space, action_space = SEEN, TWO

    def close(self) -> None:
        raise RuntimeError("it is stuck")


def test_an_environment_that_cannot_be_closed_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    gymnasium.register("odd/Unclosable-v0", Unclosable)
    assert make(Options(id="gymnasium:odd/Unclosable-v0")).actions == 2
    assert "Unclosable.close raised RuntimeError: it is stuck" in capsys.readouterr().err


class Anew(Odd):
    """Shows another space of actions at each look, which pays what is chosen."""

    action_space = property(lambda self: Discrete(9), lambda self, _: None)

    def step(self, action: Any) -> Any:
        self.x, pays = self.x + action, float(action)
        return (*changed(1, pays)(super().step(action))[:2], self.steps >= 5, False, {})


def test_a_random_player_is_the_same_where_each_look_shows_another_space(odd: Callable[..., Any]) -> None:
    odd()
    gymnasium.registry["Odd-v0"].entry_point = Anew
    environment = make(Options(id="gymnasium:Odd-v0", normalise=50))
    play = environment.baselines["random"]
    assert [play(seed << 40) for seed in range(4)] == [play(seed << 40) for seed in range(4)]
    assert environment.normalisation.mean.shape == (2,)
