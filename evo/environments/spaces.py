"""The spaces of Gymnasium: as what a network sees observations, and as which choices or numbers it gives actions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.environment import as_float32
from evo.environments.observations import WrongObservation, checked, is_pixels, shown
from evo.errors import ConfigurationError
from evo.lazy import gymnasium, spaces, wrappers
from evo.plugins.mistakes import MOST_CHOICES, MOST_SEEN

SCALED = "divides_pixels"  # the attribute of an environment that does
ENTRIES = "entries"  # the attribute of one that flattens a Dict or Tuple: an `Entry` for each array, by its name
FULL = np.float32(255)  # the largest number of a pixel
CHANNELS = (1, 3, 4)  # of pictures
DRAWN = "rgb_array"  # the render mode that gives pictures


class Pixels:
    """Observations that are whole numbers from 0 to 255, divided by 255: they are recorded as these numbers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def recorded(self, observation: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the numbers of what is shown, which `observe` gives exactly.  # float32 to uint8, of any shape"""
        return np.asarray(np.rint(observation * FULL), np.uint8)

    def observe(self, rows: NDArray[np.uint8], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the observations.  # uint8 to float32, of any shape"""
        return np.divide(rows, FULL, out=out, dtype=np.float32)

    def check(self, rows: NDArray[np.uint8]) -> None:
        """Raise ValueError where observations have another shape.  # [M, ...]"""
        if rows.shape[1:] != self.shape:
            raise ValueError(f"observations are of shape {rows.shape[1:]}, not {self.shape}")

    def make_state(self, count: int) -> None:
        """Return no state: observations need none."""

    def observe_rows(
        self, state: None, snapshots: NDArray[np.uint8], rows: NDArray[np.int32], out: NDArray[np.float32]
    ) -> None:
        """Write what some rows show.  # [M, ...], [B] -> [B, ...]"""
        self.observe(snapshots[rows], out)


class Entry(NamedTuple):
    """An array of a Dict or Tuple."""

    shape: tuple[int, ...]  # with all frames of a stack
    scaled: bool  # whether it is of pixels, divided by 255
    path: tuple[Any, ...]  # keys that lead to it
    raw_shape: tuple[int, ...]  # in the Dict or Tuple
    convert: Callable[[Any], NDArray[np.float32]]  # from there to a frame, or WrongObservation


class Spaces(NamedTuple):
    """What a network sees, and what it does."""

    shape: tuple[int, ...]
    actions: int
    continuous: bool
    notices: tuple[str, ...]
    drawn: bool = False  # whether it can be made with render_mode = "rgb_array"
    pixels: Pixels | None = None  # where observations are those
    action_bounds: tuple[Any, Any] | None = None  # of a Box of actions [D] each
    entries: Mapping[str, Entry] = {}  # arrays of a Dict or Tuple that are not empty


def spaces_of(env: gymnasium.Env[Any, Any], stack: int) -> Spaces:
    """Return those of an environment whose actions are Discrete or a Box.

    Its observations are a Box, of `stack` frames side by side on the last axis.
    """
    seen: Any = env.observation_space
    taken: Any = env.action_space
    notices, shape = [], tuple(int(side) for side in seen.shape)
    entries: dict[str, Entry] = env.get_wrapper_attr(ENTRIES) if env.has_wrapper_attr(ENTRIES) else {}
    scaled = [f'"{name}"' for name, entry in entries.items() if entry.scaled]
    if scaled or env.has_wrapper_attr(SCALED):
        notices.append(
            f"observations{' of ' + ', '.join(scaled) if scaled else ''} are whole numbers from 0 to 255, which are "
            "divided by 255; environment.normalise = 10000 scales them by what random play shows instead, which is "
            "better where they are codes"
        )
    entries = {name: entry for name, entry in entries.items() if math.prod(entry.shape)}
    stacked = [one for one in (*(entry.shape for entry in entries.values()), shape) if one]
    for first in filter(_has_channels_first, ((*one[:-1], one[-1] // stack) for one in stacked)):
        notices.append(
            f"observations of shape {first} look like pictures whose channels come first, but layers of a cnn take the "
            "last axis as channels: register the environment in a wrapper that moves them there, as "
            "TransformObservation(env, lambda x: np.moveaxis(x, 0, -1), space) of gymnasium.wrappers"
        )
    continuous = isinstance(taken, spaces.Box)
    actions, modes = int(taken.shape[0] if continuous else taken.n), (env.metadata or {}).get("render_modes") or ()
    pixels = Pixels(shape) if env.has_wrapper_attr(SCALED) else None
    bounds = (taken.low, taken.high) if continuous else None
    return Spaces(shape, actions, continuous, tuple(notices), DRAWN in modes, pixels, bounds, entries)


def with_array_observations(
    env: gymnasium.Env[Any, Any], name: str, stack: int, scaled: bool
) -> gymnasium.Env[Any, Any]:
    """Return an environment that shows arrays, the last `stack` of them side by side on their last axis.

    Pixels, whole numbers from 0 to 255, have their channels last, and are divided by 255 where they are `scaled`.
    The arrays of a Dict or Tuple are such, flattened, one behind the other. ConfigurationError: some are no numbers.
    """
    space: Any = env.observation_space
    if strange := _without_numbers(space):
        raise ConfigurationError(
            f"environment.id: {name} has {strange}, which is not numbers; leave that out by a wrapper, as in "
            'environment.wrappers = ["minigrid.wrappers:ImgObsWrapper"] with --plugin minigrid.wrappers'
        )
    if not 0 < (size := stack * int(spaces.flatdim(space))) <= MOST_SEEN:  # before an array of that size is made
        what = f"of shape {space.shape}" if isinstance(space, spaces.Box) else f"of {shown(space)}"
        raise ConfigurationError(
            f"environment.id: an observation {what} has {size:,} numbers; there must be at least one, and at most "
            f"{MOST_SEEN:,} fit"
        )
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _with_entries(env, stack, scaled)
    check = checked(space, scaled)
    if not isinstance(space, spaces.Box):
        flatten = spaces.flatten  # looked up once, not in every step
        env = wrappers.TransformObservation(env, lambda seen: flatten(space, check(seen)), spaces.flatten_space(space))
    elif stack > 1 or is_pixels(space) or not space.shape:
        env = wrappers.TransformObservation(env, check, space)
    pixels = is_pixels(env.observation_space)
    if not env.observation_space.shape:  # one number
        env = wrappers.ReshapeObservation(env, (1,))
    if pixels:
        env = _with_channels_last(env)
    if stack > 1:
        env = gymnasium.wrappers.FrameStackObservation(env, stack)
        seen: Any = env.observation_space
        low, high = _side_by_side(seen.low), _side_by_side(seen.high)
        env = wrappers.TransformObservation(env, _side_by_side, spaces.Box(low, high, dtype=seen.dtype))
    if pixels and scaled:
        space = spaces.Box(0, 1, env.observation_space.shape, np.float32)
        env = wrappers.TransformObservation(env, lambda frame: np.asarray(frame, np.float32) / FULL, space)
        setattr(env, SCALED, True)
    return env


def _has_channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] in CHANNELS and shape[2] not in CHANNELS


def _with_entries(env: gymnasium.Env[Any, Any], stack: int, scaled: bool) -> gymnasium.Env[Any, Any]:
    """Return an environment that shows the arrays of a Dict or Tuple, each as alone, flat and one behind the other."""
    paths = dict(found := list(_arrays(env.observation_space)))
    if len(paths) < len(found):
        raise ConfigurationError(f"environment.id: two entries of {env.observation_space} have one name; rename one")
    entries = {name: _entry(path, space, stack, scaled, f'["{name}"]') for name, (path, space) in paths.items()}

    def apart(seen: Any) -> dict[str, NDArray[np.float32]]:
        return {name: entries[name].convert(part) for name, part in parts_of(seen, entries).items()}

    def joined(seen: Any) -> NDArray[np.float32]:
        return np.concatenate([(_side_by_side(seen[name]) if stack > 1 else seen[name]).ravel() for name in paths])

    def frame(shape: tuple[int, ...]) -> spaces.Box:
        return spaces.Box(-np.inf, np.inf, (*shape[:-1], shape[-1] // stack), np.float32)

    alone: dict[str, Any] = {name: frame(entry.shape) for name, entry in entries.items()}
    env = wrappers.TransformObservation(env, apart, spaces.Dict(alone))
    if stack > 1:
        env = wrappers.FrameStackObservation(env, stack)
    size = sum(math.prod(entry.shape) for entry in entries.values())
    env = wrappers.TransformObservation(env, joined, spaces.Box(-np.inf, np.inf, (size,), np.float32))
    setattr(env, ENTRIES, entries)
    return env


def _arrays(space: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[str, tuple[tuple[Any, ...], Any]]]:
    """Yield names, paths and spaces of all arrays within a Dict or Tuple, in the order in which Gymnasium flattens."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield ".".join(map(str, path)), (path, space)
        return
    for key, part in space.items() if isinstance(space, spaces.Dict) else enumerate(space):
        yield from _arrays(part, (*path, key))


def parts_of(seen: Any, entries: Mapping[str, Entry]) -> dict[str, Any]:
    """Return the entries of what was shown, each as it is; WrongObservation: one is missing."""
    try:
        return {name: reduce(getitem, entry.path, seen) for name, entry in entries.items()}
    except (LookupError, TypeError):
        must = f"it must have the entries {', '.join(entries)}"
        raise WrongObservation(f"the observation {shown(seen)}", f"{must:.200}") from None


def flat(seen: Any, entries: Mapping[str, Entry]) -> NDArray[np.float32]:
    """Return a Dict or Tuple as a network sees it, or a batch of them: an array [B, ...] for each entry.  # [N], [B, N]

    WrongObservation: it is neither.
    """
    parts = parts_of(seen, entries)
    sizes = {name: np.shape(parts[name])[: np.ndim(parts[name]) - len(entries[name].raw_shape)] for name in entries}
    batch = next(iter(sizes.values()))
    for name, entry in entries.items():
        if sizes[name] != batch or len(batch) > 1 or np.shape(parts[name]) != (*batch, *entry.raw_shape):
            must = f"{entry.raw_shape} or {str(('B', *entry.raw_shape)).replace(chr(39), '')} fit, alike in all entries"
            raise WrongObservation(f'observation["{name}"] of shape {np.shape(parts[name])}', must)
    rows = [[parts[name][b] for name in entries] for b in range(batch[0])] if batch else [list(parts.values())]
    converts = [entry.convert for entry in entries.values()]
    out: list[NDArray[np.float32]] = [
        np.concatenate([to(part).ravel() for to, part in zip(converts, row, strict=True)]) for row in rows
    ]
    return np.stack(out) if batch else out[0]


def _entry(path: tuple[Any, ...], space: Any, stack: int, scaled: bool, place: str) -> Entry:
    check = checked(space, scaled, place)
    raw: tuple[int, ...] = space.shape or ()
    if not isinstance(space, spaces.Box):
        size, flatten = stack * spaces.flatdim(space), spaces.flatten
        return Entry((size,), False, path, raw, lambda seen: np.asarray(flatten(space, check(seen)), np.float32))
    shape, pixels = raw or (1,), is_pixels(space)
    first, divided = pixels and _has_channels_first(shape), pixels and scaled
    own = (*shape[1:], shape[0]) if first else (*shape, 1) if pixels and len(shape) == 2 else shape
    own = own if len(own) <= 3 else (math.prod(own),)

    def convert(seen: Any) -> NDArray[np.float32]:
        array = check(seen)
        frame = as_float32(np.moveaxis(array, 0, -1) if first else array).reshape(own)
        return frame / FULL if divided else frame

    return Entry((*own[:-1], stack * own[-1]), divided, path, raw, convert)


def _with_channels_last(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment of pictures [H, W, C], also where they were [H, W] or [C, H, W]."""
    shape: tuple[int, ...] = env.observation_space.shape or ()
    if len(shape) == 2:
        return wrappers.ReshapeObservation(env, (*shape, 1))
    if not _has_channels_first(shape):
        return env
    space = spaces.Box(0, 255, (*shape[1:], shape[0]), env.observation_space.dtype)  # type: ignore[arg-type]
    return wrappers.TransformObservation(env, lambda frame: np.moveaxis(frame, 0, -1), space)


def _without_numbers(space: Any) -> str:
    """Return which part of an observation is neither numbers nor choices, and what it is; empty: none."""
    known = spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete
    for _, (path, part) in _arrays(space):
        if not isinstance(part, known):
            return f"an observation{''.join(f'[{key!r}]' for key in path)} of {type(part).__qualname__}"
    return ""


def _side_by_side(frames: Any) -> Any:
    """Return frames side by side on their last axis.  # [K, ..., C] -> [..., K C]"""
    return np.concatenate(list(frames), axis=-1) if np.ndim(frames) > 1 else np.asarray(frames)


def with_known_actions(env: gymnasium.Env[Any, Any], name: str, rescaled: bool) -> gymnasium.Env[Any, Any]:
    """Return an environment with Discrete actions from 0, or a Box [D], `rescaled` or not, or a ConfigurationError."""
    taken: Any = env.action_space
    whole = isinstance(taken, spaces.Box) and np.issubdtype(taken.dtype, np.integer)
    bounded = isinstance(taken, spaces.Box) and np.isfinite(taken.low).all() and np.isfinite(taken.high).all()
    if rescaled and (whole or not bounded or (taken.low == taken.high).any()):
        raise ConfigurationError(
            f"environment.rescale_actions: {name} has actions {taken}; only a Box of floats with finite bounds can be "
            "scaled, each low below its high; remove rescale_actions"
        )
    if whole or isinstance(taken, spaces.MultiDiscrete | spaces.MultiBinary):
        low = taken.low if whole else getattr(taken, "start", np.zeros(taken.shape, taken.dtype))
        high = taken.high if whole else low + (taken.nvec - 1 if isinstance(taken, spaces.MultiDiscrete) else 1)
        sides = [int(most) - int(least) + 1 for most, least in zip(np.ravel(high), np.ravel(low), strict=True)]
        if sides and math.prod(sides) <= MOST_CHOICES:
            return _with_combinations(env, sides, np.asarray(low, taken.dtype))
    elif isinstance(taken, spaces.Discrete) and taken.n <= MOST_CHOICES:
        first = int(taken.start)
        return wrappers.TransformAction(env, lambda action: action + first, spaces.Discrete(taken.n)) if first else env
    elif isinstance(taken, spaces.Box) and 0 not in taken.shape and np.issubdtype(taken.dtype, np.floating):
        shape = taken.shape
        flat = spaces.Box(taken.low.ravel(), taken.high.ravel(), dtype=taken.dtype)
        env = env if len(shape) == 1 else wrappers.TransformAction(env, lambda action: action.reshape(shape), flat)
        return wrappers.RescaleAction(env, np.float32(-1), np.float32(1)) if rescaled else env
    raise ConfigurationError(
        f"environment.id: {name} has actions {taken}; at most {MOST_CHOICES} choices or combinations of choices, or a "
        "Box of numbers are needed"
    )


def _with_combinations(env: gymnasium.Env[Any, Any], sides: list[int], low: NDArray[Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment of one choice among all combinations of choices, of which the last one counts fastest.

    Choice k is one of `sides[k]` numbers from `low` on. A mask that is a tuple has an array for each choice.
    """

    class Combinations(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, **words: Any) -> Any:
            return _combined(self.env.reset(**words))

        def step(self, action: Any) -> Any:
            places: NDArray[Any] = np.array(np.unravel_index(int(action), sides))
            return _combined(self.env.step((places.reshape(low.shape) + low).astype(low.dtype)))

    def _combined(returned: Any) -> Any:
        info: Any = returned[-1] if isinstance(returned, tuple) and returned else None
        mask = info.get("action_mask") if isinstance(info, dict) else None
        if not isinstance(mask, tuple) or [np.shape(part) for part in mask] != [(side,) for side in sides]:
            return returned
        return (*returned[:-1], {**info, "action_mask": reduce(np.multiply.outer, mask).ravel()})

    combinations = Combinations(env)
    combinations.action_space = spaces.Discrete(math.prod(sides))
    return combinations
