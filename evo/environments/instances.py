"""Live environments behind Gymnasium's interface: everything that they return is checked here, as it enters."""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evo.environment import Environment, Frame, as_float32, real_array
from evo.environments.observations import WrongObservation, fits, shown
from evo.errors import ConfigurationError, notice, notice_once
from evo.plugins import directory, mistakes
from evo.process import ALONE, is_passed_on
from evo.records import GOES_ON, TERMINATED, TRUNCATED


class Instance:
    """One live environment, and the episode that it plays."""

    _newest: ClassVar[object] = None  # the episode that began last in this process

    def __init__(
        self, make: Callable[[], Any], shape: tuple[int, ...], actions: int, continuous: bool, renewed: bool = False
    ) -> None:
        """Make an environment with observations of this shape; `renewed`: one for every episode."""
        self._make, self.shape, self._actions, self._continuous = make, shape, actions, continuous
        self._env, self._renewed, self._begun = made(make), renewed, False
        self._episode: object = ()
        self.name = type(self._own).__qualname__
        self.observation: NDArray[np.float32] = np.empty(0, np.float32)  # of any shape
        self.mask: NDArray[np.int8] | None = None  # [A] allowed actions; None: all
        self.info: Mapping[str, Any] = {}
        self._size: tuple[int, ...] = ()  # of the first picture
        self._sampled: Any = None  # the space of actions that `sample` draws from
        self.steps, self.reward, self.total = 0, 0.0, 0.0  # of the episode, of the last step, of the episode

    @classmethod
    def of(cls, environment: Environment, renewed: bool = False) -> Instance:
        """Return a fresh one."""
        return cls(environment.env, environment.shape, environment.actions, environment.continuous, renewed)

    @property
    def _own(self) -> Any:
        """The environment without Gymnasium's wrappers, if it has any."""
        return getattr(self._env, "unwrapped", self._env)

    @property
    def is_undisturbed(self) -> bool:
        """Whether no other episode has begun in this process since its own began."""
        return self._episode is Instance._newest

    @property
    def is_finite(self) -> bool:
        """Whether the last observation has neither a NaN nor an infinity."""
        return bool(np.isfinite(self.observation).all())

    @property
    def not_finite(self) -> str:
        """What is wrong with the last reward or observation, that is not finite."""
        if not math.isfinite(self.reward):
            return f"{self.name}.step gave the reward {self.reward:g}"
        place = tuple(np.argwhere(~np.isfinite(self.observation))[0].tolist())
        return f"{self.name} gave an observation with {self.observation[place]:g} at {list(place)}"

    def reset(self, seed: int | None) -> None:
        """Begin the episode of a seed; ConfigurationError where the environment breaks Gymnasium's interface."""
        if self._renewed and self._begun:
            self.close()
            self._env = made(self._make)
        self.steps, self.reward, self.total, self._begun = 0, 0.0, 0.0, True
        self._episode = Instance._newest = object()
        returned = self._call("reset", **({} if seed is None else {"seed": seed}))
        if not (isinstance(returned, tuple | list) and len(returned) == 2):
            raise self._fault("reset", _described(returned), "it must give an observation and info")
        self._take("reset", returned[0], returned[1], over=False)

    def step(self, action: Any) -> int:
        """Play an action, clipped to its bounds; return GOES_ON, TERMINATED or TRUNCATED. Errors are as in `reset`."""
        if self._continuous:
            space = self._env.action_space
            with np.errstate(over="ignore"):  # float16 without bounds
                action = np.clip(action, space.low, space.high).astype(space.dtype)
        returned = self._call("step", action)
        self.steps += 1
        if not (isinstance(returned, tuple | list) and len(returned) == 5):
            must = "it must give an observation, a reward, terminated, truncated and info"
            raise self._fault("step", _described(returned), must)
        observation, reward, terminated, truncated, info = returned
        self.reward = float(reward) if isinstance(reward, float) else self._number(reward)
        self.total += self.reward
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not (isinstance(flag, bool | np.bool_) or (np.ndim(flag) == 0 and flag in (0, 1))):
                raise self._fault("step", f"{name} = {flag!r:.40}", f"{name} must be true or false")
        self._take("step", observation, info, over=bool(terminated or truncated))
        return TERMINATED if terminated else TRUNCATED if truncated else GOES_ON

    def close(self) -> None:
        """Close the environment; what it raises then has no consequence."""
        close(self._env)

    def sample(self) -> Any:
        """Return an action that the environment allows, drawn by the space that was seeded."""
        return self._sampled.sample(self.mask)

    def seed_samples(self, seed: int) -> None:
        """Let `sample` draw the actions of a seed from now on."""
        self._sampled = self._env.action_space  # an environment may show a new one each time
        self._sampled.seed(seed)

    def drawn(self) -> Frame:
        """Return a picture of the position; ConfigurationError where there is none."""
        picture = self._call("render")
        if not isinstance(picture, np.ndarray):
            raise self._fault("render", type(picture).__name__, "it must be a uint8 array of shape (H, W, 3)")
        self._size = self._size or picture.shape
        if picture.dtype != np.uint8 or picture.shape[2:] != (3,) or not picture.size or picture.shape != self._size:
            what = f"an array of {picture.dtype} {picture.shape}"
            raise self._fault("render", what, "it must be uint8 (H, W, 3), of one size in all steps")
        return picture

    def _call(self, hook: str, *words: Any, **named: Any) -> Any:
        try:
            return getattr(self._env, hook)(*words, **named)
        except WrongObservation as error:
            self.steps += hook == "step"
            raise self._fault(hook, *error.args) from None
        except BaseException as error:  # KeyboardInterrupt too: this process receives its own as `Stopped`
            if is_passed_on(error):
                raise
            raise mistakes.of_hook(self._own, hook, error) from error

    def _fault(self, hook: str, what: str, must: str) -> ConfigurationError:
        where, kind = f" in step {self.steps}" if self.steps else "", type(self._own)
        return ConfigurationError(f"plug-in {kind.__module__}: {kind.__qualname__}.{hook} gave {what}{where}; {must}")

    def _number(self, reward: Any) -> float:
        try:
            found = real_array("None" if reward is None else reward)
            with np.errstate(over="ignore"):  # a long double is not finite then
                return float(found.astype(np.float64).reshape(()))
        except (TypeError, ValueError, OverflowError):
            raise self._fault("step", f"the reward {shown(reward)}", "a reward must be a number") from None

    def _take(self, hook: str, observation: Any, info: Any, over: bool) -> None:
        try:
            found = real_array(() if observation is None else observation)
            self.observation = as_float32(found)  # a copy: it may change theirs
        except (TypeError, ValueError, OverflowError):
            must = f"it must be numbers of shape {self.shape}"
            raise self._fault(hook, f"the observation {shown(observation)}", must) from None
        if not fits(found.shape, self.shape):
            what = f"an observation of shape {self.observation.shape}"
            raise self._fault(hook, what, f"its shape must be {self.shape}, as observation_space says")
        if not isinstance(info, Mapping):
            raise self._fault(hook, f"{info!r:.40} as info", "info must be a dictionary")
        mask, self.info = info.get("action_mask"), info
        self.mask = None if mask is None or self._continuous else self._allowed(hook, mask, over)

    def _allowed(self, hook: str, mask: Any, over: bool) -> NDArray[np.int8] | None:
        try:
            found = real_array(mask)
        except (TypeError, ValueError):
            found = np.empty(0)
        must = f"action_mask must be {self._actions} numbers, 1 for an action that is allowed and 0 for others, or None"
        if found.shape != (self._actions,) or not np.array_equal(found, found != 0):
            raise self._fault(hook, f"info with action_mask = {shown(mask)}", must)
        if not found.any():
            if over:  # nothing is left to do
                return None
            raise self._fault(hook, "an action_mask that allows no action", f"{must}; end the episode where none is")
        return found.astype(np.int8)


@directory.kept()
def close(env: Any) -> None:
    """Close an environment; what it raises then has no consequence."""
    try:
        env.close()
    except Exception as error:
        name = type(getattr(env, "unwrapped", env)).__qualname__
        notice(f"{name}.close {mistakes.exception_text(error)}")


def _described(returned: Any) -> str:
    """Return the result of a function, in words."""
    return f"{len(returned)} values" if isinstance(returned, tuple | list) else f"{returned!r:.40}"


@dataclass
class Kept:
    """An instance that stays open between segments, and what it has played of its episode."""

    environment: Environment
    instance: Instance
    episode: int = -1  # number in its sequence; -1: none has begun
    played: bytes = b""  # its actions
    uses: tuple[int, int] = (0, 0)  # when it was used the time before last, and last


class Instances:
    """The live environments of a thread: they are reset for every episode, not made again.

    Those of whole episodes are all of one environment. Some can be made only once in a process: others are closed then.
    """

    def __init__(self) -> None:
        self._environment: Environment | None = None
        self._open: list[Instance] = []
        self._most = 0  # that can be made
        self._kept: dict[int, Kept] = {}  # by the seed of the first episode of their sequence
        self._uses, self._in_use = 0, threading.RLock()
        self.one_by_one = False  # whether an episode must not be played while another one goes on

    @contextmanager
    def used(self, one_by_one: bool = False) -> Iterator[Instances]:
        """Let nobody else close them meanwhile; `one_by_one`: nor any other thread play what needs that as well."""
        with ALONE if one_by_one else nullcontext(), self._in_use:
            self.one_by_one = one_by_one
            yield self

    def give_way(self) -> bool:
        """Close them all, unless they are used; return whether that was done."""
        if is_free := self._in_use.acquire(blocking=False):
            self.close()
            self._in_use.release()
        return is_free

    def of(self, environment: Environment, most: int, renewed: bool) -> list[Instance]:
        """Return at most `most` instances, at least one; fewer where the environment cannot be made more often."""
        IN_PROCESS.add(self)
        if self.one_by_one:
            self._close_kept(*self._kept)
        if self._environment is not environment:
            self._close_open()
            self._environment, self._most = environment, 1 if self.one_by_one else environment.instances
        while len(self._open) < min(most, self._most):
            try:
                self._open.append(Instance.of(environment, renewed))
            except ConfigurationError as error:
                if self._kept:
                    self._close_kept(*self._kept)
                    continue
                if not self._open:
                    raise
                self._most = len(self._open)
                notice_once(f"{self._open[0].name}: episodes are played {self._most} at a time: {error}")
        return self._open[:most]

    def keep(self, environment: Environment, sequences: Sequence[int], renewed: bool) -> list[Kept]:
        """Return the instances that play these sequences of episodes, and keep them open.

        Fewer, of the first, where not as many can be open at a time. Those of other sequences that have not
        been used since these were used the time before last are closed.
        """
        IN_PROCESS.add(self)
        found: list[Kept] = []
        if self.one_by_one:
            sequences = sequences[:1]
            self._close_open()
            goes_on = {first for first, one in self._kept.items() if one.instance.is_undisturbed}
            self._close_kept(*self._kept.keys() - goes_on.intersection(sequences))
        while len(found) < len(sequences):
            first = sequences[len(found)]
            if (known := self._kept.get(first)) is None or known.environment is not environment:
                self._close_kept(first)
                try:
                    known = self._kept[first] = Kept(environment, Instance.of(environment, renewed))
                except ConfigurationError:
                    if found:
                        break
                    if not self.any:
                        raise
                    self.close()
                    continue
            found.append(known)
        self._uses += 1
        for one in found:
            one.uses = one.uses[1], self._uses
        stale = min(one.uses[0] for one in found)
        self._close_kept(*(first for first, one in self._kept.items() if one.uses[1] < stale))
        return found

    @property
    def any(self) -> bool:
        """Whether one is open."""
        return bool(self._open or self._kept)

    def close(self) -> None:
        """Close them all."""
        self._close_open()
        self._close_kept(*self._kept)
        IN_PROCESS.discard(self)

    def _close_open(self) -> None:
        while self._open:
            self._open.pop().close()
        self._environment = None

    def _close_kept(self, *sequences: int) -> None:
        for first in [first for first in sequences if first in self._kept]:
            self._kept.pop(first).instance.close()


class _Open(threading.local):
    """The instances of each thread, as some environments can only be used where they were made."""

    def __init__(self) -> None:
        self.here = Instances()


OPEN = _Open()
IN_PROCESS: set[Instances] = set()  # those of all threads in which an environment may be open


def made(make: Callable[[], Any]) -> Any:
    """Return a fresh environment; where that fails, after those were closed that nobody in other threads plays now."""
    try:
        return make()
    except ConfigurationError:
        closed = [one.give_way() for one in list(IN_PROCESS) if one is not OPEN.here]
        if not closed:
            raise
    try:
        return make()
    except ConfigurationError as error:
        if all(closed):
            raise
        raise ConfigurationError(
            f"{error}; another run plays in this process, and where an environment can be made only once in one, train "
            'one run after the other, or with workers.backend = "processes"'
        ) from error


@atexit.register
def _close() -> None:
    for one in list(IN_PROCESS):
        one.close()
