"""Checks a game in plain Python: a broken contract is an error that names the function of the game and the line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np

from evo.environment import Shown
from evo.errors import ConfigurationError, EvoError, did_you_mean, notice_once
from evo.games.faults import endless_named, undefined_in, unseeded_in
from evo.games.pictures import Picture
from evo.games.plain import PlainGame, random_action
from evo.games.primitives import Random
from evo.games.seats import NOBODY
from evo.records import GOES_ON, LARGEST_REWARD, TERMINATED, TRUNCATED

SEEDS, MOST_STEPS = range(1, 4), 200  # episodes, and steps of each
BEGINNINGS = 64  # episodes that are begun twice
DRAWN_STEPS = 5  # whose pictures are drawn, and that of the last one
NOISE = 1e-9  # of arithmetic; a smaller reward was meant to be 0
FROM_GAME = {  # names of `evo.games`
    "below", "cos", "draw_number", "exp", "flat", "get", "get_signed", "normal", "one_of", "put", "sin", "steps_played",
    "tanh", "uniform", "GOES_ON", "TERMINATED", "TRUNCATED",
}  # fmt: skip
RANDOM = "below, uniform and normal"
WATCHED, OTHERS = 1, (0, 2)  # environments that are played, and whose state may not change
HERE = Path(__file__).parent  # whose frames of a traceback are not the author's
DRAWING = ("render", "shown")
TAKEN = {  # what each function of a game is given, in this order
    "begin": ("state", "options", "b", "random"),
    "step": ("state", "options", "b", "action", "random"),
    **dict.fromkeys(("observe", "mask", "metrics"), ("state", "options", "b", "out")),
    **dict.fromkeys(DRAWING, ("state", "options", "b")),
    "observe_lanes": ("state", "options", "index", "out"),
    **dict.fromkeys(("save", "load"), ("state", "options", "b", "row")),
}
TAKEN_BY_SEVERAL = TAKEN | {  # of a game of several players; where they take turns, `step` is given one action
    "step": ("state", "options", "b", "actions", "rewards", "random"),
    "turn": ("state", "options", "b"),
    **dict.fromkeys(("observe", "mask", "metrics"), ("state", "options", "b", "player", "out")),
}
CHOOSES = ("state", "options", "b", "player", "random")  # a baseline of a game of several players
EXPECTED = (ArithmeticError, AttributeError, LookupError, NameError, RecursionError, TypeError, ValueError)  # mistakes
KINDS = {np.dtype(kind) for kind in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "f8")}


def check_game(make: Callable[[int], PlainGame]) -> None:
    """Play a few episodes with random actions; `make` returns a number of environments in plain Python.

    ConfigurationError names the function that breaks the contract: a value that is not finite, an index outside of an
    array, a change of another environment, or randomness that the seed does not fix. A call of seconds is reported.
    """
    game = make(3)
    written = game.definition.written
    functions = {name: function for name in TAKEN_BY_SEVERAL if (function := getattr(written, name)) is not None}
    with endless_named(game.definition.module, functions):
        _check(game, make)


def _check(game: PlainGame, make: Callable[[int], PlainGame]) -> None:
    module, definition = game.definition.module, game.definition.written
    _check_declaration(game)
    if found := undefined_in(definition.functions.values()):  # also on branches that no episode here reaches
        function, where, name = found
        known = definition.step.__globals__
        hint = f"; add `from evo.games import {name}`" if name in FROM_GAME else did_you_mean(name, known)
        raise _broken(module, function, f"({where}) uses {name}, which is not defined{hint}")
    if used := unseeded_in(definition.functions.values()):  # which compiled code does not repeat, whatever is seen
        raise _broken(module, "it", f"uses {used}: draw random numbers with {RANDOM} alone")
    rewards: list[float] = []
    for seed in SEEDS:
        first, again = _episode(make(3), seed), _episode(make(3), seed)
        for number, (one, other) in enumerate(zip(first, again, strict=True)):
            if one != other:
                raise _differ(module, seed, f"after step {number}" if number else "in what begin writes")
        rewards += [step[1] for step in first[1:] if isinstance(step[1], float) and step[1]]
    _check_beginnings(make(1), make(1))
    _notice_faint(module, rewards)


def _notice_faint(module: str, rewards: Sequence[float]) -> None:
    faint = [reward for reward in rewards if round(1000 * reward) == 0 and abs(reward) > NOISE]
    if not faint:
        return
    what = f"step returned the reward {faint[0]:g}, which counts as 0: rewards are kept in thousandths"
    if all(round(1000 * reward) == 0 for reward in rewards):
        largest = f"{max(map(abs, faint)):g}"
        what = f"rewards up to {largest} count as 0, as they are rounded to thousandths; scale them up"
    notice_once(f"game {module}: {what}", (module, "rewards"))


def _check_beginnings(one: PlainGame, other: PlainGame) -> None:
    """Begin the episodes of many seeds twice; a draw that the seed does not fix may be equal in a few of them."""
    for seed in range(BEGINNINGS):
        for game in (one, other):
            with failures_named(game, "begin"):
                game.begin(0, seed)
        if any(a.tobytes() != b.tobytes() for a, b in zip(one.state, other.state, strict=True)):
            raise _differ(one.definition.module, seed, "in what begin writes")


def _differ(module: str, seed: int, where: str) -> ConfigurationError:
    what = f"draw random numbers with {RANDOM} alone, and keep what changes in the state"
    return _broken(module, "", f"two episodes of seed {seed} differ {where}: {what}")


def _check_declaration(game: PlainGame) -> None:
    module, definition = game.definition.module, game.definition.written
    if not isinstance(game.state, tuple) or not hasattr(game.state, "_fields"):
        raise _broken(module, "arrays", f"returned a {type(game.state).__name__}, and a state is a NamedTuple")
    taken = TAKEN if definition.players == 1 else TAKEN_BY_SEVERAL
    if definition.turn is not None:
        taken = taken | {"step": tuple("action" if name == "actions" else name for name in taken["step"])}
    for name, wanted in taken.items():
        function = getattr(definition, name)
        if function is not None and not _takes(function, wanted):
            takes = ", ".join(signature(function).parameters)
            raise _broken(module, name, f"takes ({takes}), and must take ({', '.join(wanted)})")
    for name, array in zip(game.state._fields, game.state, strict=True):
        if array.dtype not in KINDS:
            known = "float64, bool, int8 to int64 or uint8 to uint32"
            raise _broken(module, "arrays", f"made {name} of type {array.dtype}; use {known}")
    if not isinstance(game.shape, tuple) or not all(isinstance(n, int) and n > 0 for n in game.shape):
        raise _broken(module, "shape", f"is {game.shape!r}, and must be a tuple of positive whole numbers")
    for name, count in (("action_names", game.actions), ("observation_names", math.prod(game.shape))):
        names = definition.of(getattr(definition, name), game.options)
        if not isinstance(names, tuple | list) or not all(isinstance(one, str) for one in names):
            raise _broken(module, name, f"is {names!r:.60}, and must be a tuple of texts")
        if len(names) not in (0, count):
            raise _broken(module, name, f"has {len(names)} names for {count} values")
    bounds = _bounds(game)
    pair = isinstance(bounds, tuple | list) and all(isinstance(n, int | float) and math.isfinite(n) for n in bounds)
    if bounds is not None and (not pair or len(bounds) != 2 or bounds[0] >= bounds[1]):
        what = f"is {bounds!r:.60}, and must be the lowest and then the highest score, as in (0.0, 1.0)"
        raise _broken(module, "score_bounds", what)
    baselines = {} if definition.baselines is None else definition.baselines(game.options)
    if not isinstance(baselines, Mapping) or not all(map(callable, baselines.values())):
        raise _broken(module, "baselines", f"returned {baselines!r:.60}, and must return functions by name")
    for name, function in baselines.items() if definition.players > 1 else ():
        if not _takes(function, CHOOSES):
            raise _broken(module, f"the baseline {name}", f"must take ({', '.join(CHOOSES)})")
    if (definition.metrics is None) != (not definition.episode_metrics):
        raise _broken(module, "episode_metrics", "and metrics go together: names, and a function that writes numbers")


def _bounds(game: PlainGame) -> Any:
    return game.definition.of(game.definition.score_bounds, game.options)


def _takes(function: Callable[..., Any], wanted: tuple[str, ...]) -> bool:
    """Return whether a function can be called with these, and has not their names in another order."""
    try:
        given = signature(function).bind(*wanted).arguments
    except TypeError:
        return False
    return set(given) != set(wanted) or tuple(given) == wanted


def _episode(game: PlainGame, seed: int) -> list[tuple[object, ...]]:
    module = game.definition.module
    before = _bytes_of_others(game)
    with failures_named(game, "begin"):
        game.begin(WATCHED, seed)
    _hold_others(game, before, "begin")
    _check_seats(game)
    shown: list[tuple[object, ...]] = [(_observed(game),)]
    total = 0
    _check_picture(game)
    for step in range(MOST_STEPS):
        action = random_action(game.definition, game.actions, _mask(game), seed, step)
        with failures_named(game, "step"):
            taken, random = game.playable(action), Random(game.clock, WATCHED)
            returned = game.definition.step(game.state, game.rules, WATCHED, taken, random)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise _broken(module, "step", f"returned {returned!r:.60}, and must return a reward and whether it ended")
        reward, ended = returned
        if not isinstance(reward, int | float) or not abs(reward) * 1000 <= LARGEST_REWARD:
            raise _broken(module, "step", f"gave the reward {reward!r:.60}, and it must be a number within two million")
        _check_seats(game)
        if ended not in (GOES_ON, TERMINATED, TRUNCATED):
            raise _broken(module, "step", f"returned {ended!r:.60} as its end: False, True, or TRUNCATED are known")
        game.clock.steps[WATCHED] += 1
        total += round(1000 * reward)
        _hold_others(game, before, "step")
        shown.append((action.tolist(), float(reward), int(ended), _observed(game)))
        if ended or step < DRAWN_STEPS:
            _check_picture(game)
        if ended:
            _check_score(game, total / 1000)
            break
    return shown


def _check_seats(game: PlainGame) -> None:
    """Check what a step of a game of several players has left: rewards of all, and the player that moves next."""
    if (players := game.definition.players) == 1:
        return
    for player, reward in enumerate(game.state.seats_rewards[WATCHED].tolist()):
        if not abs(reward) * 1000 <= LARGEST_REWARD:
            what = f"gave player {player} the reward {reward:.60}, and it must be a number within two million"
            raise _broken(game.definition.module, "step", what)
    if game.state.seats_turn[WATCHED] == NOBODY:
        turn: Any = game.definition.written.turn
        returned = turn(game.state, game.rules, WATCHED)
        raise _broken(game.definition.module, "turn", f"returned {returned}, and players are 0 to {players - 1}")


def _observed(game: PlainGame) -> bytes:
    with _reading(game, "observe"):
        seen = game.observe(WATCHED)
    if not np.isfinite(seen).all():
        place = tuple(int(n) for n in np.argwhere(~np.isfinite(seen))[0])
        raise _broken(game.definition.module, "observe", f"wrote {seen[place]} to out{list(place)}")
    return seen.tobytes()


def _mask(game: PlainGame) -> Any:
    with _reading(game, "mask"):
        mask = game.mask(WATCHED)
    if not np.isin(mask, (0, 1)).all() or not mask.any():
        raise _broken(game.definition.module, "mask", f"wrote {mask.tolist()}: 0 or 1 for every action, at least one 1")
    return mask


def _check_picture(game: PlainGame) -> None:
    if game.definition.render is None:
        return
    with _reading(game, "render"):
        picture = game.picture(WATCHED)
    if picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
        shape = f"a picture of shape {picture.shape}, and must return uint8 [height, width, 3]"
        raise _broken(game.definition.module, "render", f"returned {shape}")


def drawn(game: PlainGame, b: int, caption: str, before: Sequence[Shown] = ()) -> Shown:
    """Return environment b as it is shown; ConfigurationError names the line at which that fails.

    `before` are the positions of the episode so far, whose pictures are of one size.
    """
    with failures_named(game, "render" if game.definition.shown is None else "shown"):
        shown = game.shown(b, caption)
    for first in before[:1]:
        if isinstance(shown, Picture) and isinstance(first, Picture) and shown.shape != first.shape:
            shapes = f"a picture of shape {shown.shape} after one of {first.shape}"
            raise _broken(game.definition.module, "render", f"returned {shapes}, and all of an episode have one size")
    return shown


def _check_score(game: PlainGame, score: float) -> None:
    with _reading(game, "metrics"):
        metrics = game.metrics(WATCHED).tolist()
    named = dict(zip(game.definition.episode_metrics, metrics, strict=True))
    score, won = named.get("score", score), named.get("won", 0)
    if won not in (0, 1):
        raise _broken(game.definition.module, "metrics", f"wrote {won} as won, and must write 0 or 1")
    bounds = _bounds(game)
    if bounds is not None and not bounds[0] <= score <= bounds[1]:
        what = f"is {bounds[0]:g} to {bounds[1]:g}, and an episode of random actions scores {score:g}"
        raise _broken(game.definition.module, "score_bounds", what)


def _bytes_of_others(game: PlainGame) -> list[bytes]:
    return [np.asarray(array)[list(OTHERS)].tobytes() for array in (*game.state, *game.clock)]


def _hold_others(game: PlainGame, before: list[bytes], function: str) -> None:
    for name, one, other in zip(
        (*game.state._fields, *game.clock._fields), before, _bytes_of_others(game), strict=True
    ):
        if one != other:
            raise _broken(game.definition.module, function, f"changed {name} of another environment than b")


@contextmanager
def _reading(game: PlainGame, function: str) -> Iterator[None]:
    """Do as `failures_named` of a function that may only read the state: how often it is called may differ."""
    state = [array.tobytes() for array in game.state]
    with failures_named(game, function):
        yield
    if [array.tobytes() for array in game.state] != state:
        raise _broken(game.definition.module, function, "changed the state, and may only read it")


@contextmanager
def failures_named(game: PlainGame, function: str) -> Iterator[None]:
    """Raise ConfigurationError that names the function whose call fails, and the line; drawing may raise anything."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (EvoError, MemoryError):
        raise
    except Exception as error:
        if function in DRAWING or isinstance(error, EXPECTED):
            raise _failed(game, function, error) from error
        raise


def _failed(game: PlainGame, function: str, error: Exception) -> ConfigurationError:
    frames = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename).parent != HERE]
    code, turn = getattr(game.definition.written, function).__code__, game.definition.written.turn
    if turn is not None and turn.__name__ in [frame.name for frame in frames]:  # which begin and step go on to
        function = "turn"
    mine = [frame for frame in frames if frame.filename == code.co_filename] or frames  # not a package that it calls
    file, line = (mine[-1].filename, mine[-1].lineno) if mine else (code.co_filename, code.co_firstlineno)
    where = f"{Path(file).name}:{line}"
    outside = " outside of its arrays" if isinstance(error, IndexError) else ""
    message = " ".join(str(error).split())
    return _broken(game.definition.module, function, f"failed{outside} ({where}): {type(error).__name__}: {message}")


def _broken(module: str, function: str, text: str) -> ConfigurationError:
    return ConfigurationError(f"game {module}: {function}{' ' if function else ''}{text}")
