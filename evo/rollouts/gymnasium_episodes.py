"""Whole episodes of any environment through Gymnasium's interface, recorded where transitions are asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.environment import Environment
from evo.environments.instances import OPEN, Instance
from evo.errors import ConfigurationError, notice_once
from evo.games.step import FOLLOWED, FRAMES, ROWS, SLOTS, Ended, PlayedEpisodes, Record, Recorder, Score, actions_for
from evo.plugins import mistakes
from evo.process import ALONE
from evo.records import GOES_ON, LARGEST_FLOAT, SEGMENT_END, TRUNCATED, ActionRule, Episodes, Task
from evo.rollouts.action_rules import RULES, choose_action, draw_action

PROBED, PROBED_STEPS, FIRST_PROBED = range(1, 9), 3, 50  # seeds, and steps of each and of the first, of `seed_check`
LONG = 100_000  # steps of an episode that may have no end
FIRST = 1024  # recorded steps for which there is memory before it grows
Floats = NDArray[np.float32]
FAILED = -1  # in place of what follows a step: something is not finite


def play_gymnasium(
    score: Score, environment: Environment, task: Task, ended: Ended, renewed: bool = False, memory: int = 0
) -> PlayedEpisodes:
    """Play every episode of a task with one candidate, some of them side by side; fill in `ended` [E].

    Rewards are added in float64 in the order of steps. Where instances are `renewed`, each plays one episode. The
    network's hidden state has `memory` floats.
    """
    assert isinstance(task.play, Episodes)
    seeds, shift = task.play.seeds, 64 - environment.seed_bits
    steps = Steps(environment, task.action_rule, FIRST, len(seeds) if task.record_transitions else None)
    instances = OPEN.here.of(environment, len(seeds), renewed) if len(seeds) else []
    live = list(zip(instances, range(len(seeds)), strict=False))  # and the episode that each of them plays
    for one, e in live:
        one.reset(int(seeds[e]) >> shift)
    begun = len(live)
    states = np.zeros((len(live), memory), np.float32)
    while live:
        table = score(np.stack([one.observation.reshape(environment.shape) for one, _ in live]), states)
        steps.progress[SLOTS] += len(live)
        left, places = [], []  # who plays on, and their rows of `states`
        for place, (scores, (one, e)) in enumerate(zip(table, live, strict=True)):
            status = steps.play(e, one, seeds[e], scores, states[place])
            if status == FAILED:
                return steps.played(False, steps.progress, ended, score)
            if status == GOES_ON:
                left.append((one, e))
                places.append(place)
                if one.steps == LONG:
                    goes_on = f"an episode of {one.name} has {LONG:,} steps and goes on"
                    notice_once(f"{goes_on}; environment.max_steps = N ends it after N steps")
                continue
            ended.returns[e], ended.lengths[e] = one.total, one.steps
            ended.episode_metrics[e] = metrics_of_episode(environment, one, status)
            if begun < len(seeds):
                one.reset(int(seeds[begun]) >> shift)
                left.append((one, begun))
                places.append(place)
                states[place] = 0
                begun += 1
        live, states = left, states[places]
    steps.drop_masks()
    return steps.played(True, steps.progress, ended, score)


def metrics_of_episode(environment: Environment, one: Instance, status: int) -> tuple[int, ...]:
    """Return the metrics of the episode that an instance has ended; ConfigurationError where they cannot be had."""
    counts = np.empty(len(environment.episode_metrics), np.int64)
    try:
        counts[:] = environment.metrics_of_episode(one.info, status == TRUNCATED)
        return tuple(counts.tolist())
    except (LookupError, OverflowError, TypeError, ValueError) as error:
        raise mistakes.of_hook(environment, "metrics_of_episode", error) from error


class Steps(Recorder):
    """Steps behind Gymnasium's interface, recorded a row each, in the order of play."""

    def __init__(self, environment: Environment, how: ActionRule, rows: int, followed: int | None) -> None:
        """Prepare for `rows` steps, or more, and for `followed` observations that follow one; None: no transitions."""
        self.progress = np.zeros(FOLLOWED + 1, np.int64)
        self._environment, self._act, self._masked = environment, _chooser(environment, how), False
        self._new = None if followed is None else (rows, followed)
        self._largest = LARGEST_FLOAT if followed is None else float(np.finfo(np.float32).max)
        self._pixels = environment.recorded_as
        super().__init__(actions_for(environment, rows), observe=self._pixels and self._pixels.observe)

    def play(
        self, e: int, one: Instance, seed: np.uint64, outputs: Floats, memory: Floats, is_last: bool = False
    ) -> int:
        """Choose, play and record a step of episode `e`, of this seed; return GOES_ON, TERMINATED or TRUNCATED.

        FAILED where outputs, an observation or a reward are not finite. After the last step of a segment is recorded
        what follows it. `memory` [S] is the hidden state after the step.
        """
        clock.progress.made()
        action = self._act(outputs, one.mask, seed, one.steps)
        if action is None:
            if not one.is_finite:
                notice_once(f"{one.not_finite}; the network that played ranks worst")
            return FAILED
        self._before_step(e, action, one, outputs, memory)
        status = one.step(action)
        if not abs(one.reward) <= self._largest:  # also where it is NaN; a learner has float32
            beyond = f"gave a reward that is NaN or beyond {self._largest:.3g}"
            notice_once(f"{one.name}.step {beyond}; the network that played ranks worst")
            return FAILED
        self._after_step(one, SEGMENT_END if is_last and status == GOES_ON else status)
        return status

    def drop_masks(self) -> None:
        """Record no masks where each of them allows all, as no mask does."""
        if self.record is not None and not self._masked:
            none = np.empty((0, 0), np.int8)
            self.record = self.record._replace(action_masks=none, next_action_masks=none)

    def _before_step(self, e: int, action: Any, one: Instance, outputs: Floats, memory: Floats) -> None:
        if self._new is not None:
            shape, masked = self._environment.shape, 0 if self._environment.continuous else self._environment.actions
            kinds = np.float32 if self._pixels is None else np.uint8, np.float32
            self.record = Record.empty(*self._new, shape, kinds, masked, len(outputs), len(memory))
            self._new = None
        row = int(self.progress[ROWS])
        if row == len(self.actions):
            self.grow()
        self.episodes[row], self.actions[row] = e, action
        if self.record is not None:
            self._show(self.record.observations, self.record.action_masks, row, one)
            self.record.outputs[row] = outputs
            if self.record.memories is not None:
                self.record.memories[row] = memory
        self.progress[ROWS] += 1

    def _after_step(self, one: Instance, status: int) -> None:
        self.progress[FRAMES] += 1
        if self.record is None:
            return
        row, followed = int(self.progress[ROWS]) - 1, int(self.progress[FOLLOWED])
        self.record.rewards[row], self.record.ends[row] = one.reward, status
        if status >= TRUNCATED:  # or SEGMENT_END
            self.record.followed[followed] = row
            self._show(self.record.next_observations, self.record.next_action_masks, followed, one)
            self.progress[FOLLOWED] += 1

    def _show(self, observations: Any, masks: Any, row: int, one: Instance) -> None:
        seen = one.observation.reshape(self._environment.shape)
        observations[row] = seen if self._pixels is None else self._pixels.recorded(seen)
        self._masked = self._masked or not (one.mask is None or one.mask.all())
        if masks.shape[1]:
            masks[row] = 1 if one.mask is None else one.mask


def seed_check(environment: Environment) -> str:
    """Return what a fresh environment and one after other episodes show that have the seeds of earlier ones.

    "": the same as before; "renewed": fresh environments do, but an episode depends on those before it; "ignored": a
    seed does not name an episode. ConfigurationError: an observation or a reward is not finite, or the environment
    breaks Gymnasium's interface.
    """
    OPEN.here.close()
    with ALONE, closing(Instance.of(environment)) as one:
        shown = [_first_steps(one, environment, seed) for seed in PROBED]
        later = [_first_steps(one, environment, seed) for seed in reversed(PROBED)][::-1]
    with ALONE, closing(Instance.of(environment)) as other:
        fresh = [_first_steps(other, environment, seed) for seed in PROBED]
    return "ignored" if fresh != shown else "renewed" if later != shown else ""


def shares_state(environment: Environment) -> bool:
    """Return whether an episode depends on another at the same time, as where both draw from `numpy.random`."""
    with ALONE, closing(Instance.of(environment)) as one:
        alone = _first_steps(one, environment, PROBED[0])
    with ALONE, closing(Instance.of(environment)) as one:
        try:
            other = Instance.of(environment)
        except ConfigurationError:  # it can be made only once
            return False
        with closing(other):
            between = partial(_first_steps, other, environment, PROBED[1])
            return _first_steps(one, environment, PROBED[0], between) != alone


def _first_steps(
    one: Instance, environment: Environment, seed: int, between: Callable[[], Any] = tuple
) -> list[tuple[object, ...]]:
    """Return what an environment shows in its first steps, after each of which `between` is called.

    An end ends them early.
    """
    clock.progress.made()
    one.reset(seed)
    shown: list[tuple[object, ...]] = []
    for step in range(FIRST_PROBED if seed == PROBED[0] else PROBED_STEPS):
        clock.progress.made()
        shown.append((_observed(one), one.reward))
        between()
        action: Any = np.full(environment.actions, 0.5, np.float32)
        if not environment.continuous:
            allowed = np.arange(environment.actions) if one.mask is None else np.flatnonzero(one.mask)
            action = int(allowed[(seed + step) % len(allowed)])
        if one.step(action) != GOES_ON:
            break
    return [*shown, (_observed(one), one.reward, one.steps)]


def _observed(one: Instance) -> bytes:
    if not (one.is_finite and np.isfinite(one.reward)):
        raise ConfigurationError(f"environment.id: {one.not_finite}")
    return one.observation.tobytes()


def _chooser(environment: Environment, how: ActionRule) -> Callable[..., Any]:
    """Return a function of (outputs, mask, seed, step) that chooses an action; None where outputs are not finite."""
    if environment.continuous:

        def draw(outputs: NDArray[np.float32], _: Any, seed: np.uint64, step: int) -> Any:
            action = np.empty(environment.actions, np.float32)
            finite = draw_action(outputs, 1, 0, RULES[how.kind], how.epsilon, seed, step, action)
            return action if finite else None

        return draw
    everything, rule = np.ones(environment.actions, np.int8), RULES[how.kind]

    def pick(outputs: NDArray[np.float32], mask: NDArray[np.int8] | None, seed: np.uint64, step: int) -> Any:
        allowed = everything if mask is None else mask
        action = choose_action(outputs, 1, 0, allowed, rule, how.epsilon, seed, step)
        return None if action < 0 else action

    return pick
