"""Mistakes in options as sentences: the key, the allowed values, and the value that is there."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from evo.errors import counted, did_you_mean
from evo.toml import plain, value_text

MOST = 100  # mistakes that are collected of one section
LARGEST_WHOLE = 2.0**53  # below it, a float is the number that was typed

Model = TypeVar("Model", bound=BaseModel)
Path = tuple[str | int, ...]  # of a key, from the top of the file; numbers count items of a list

# Names of options in Stable-Baselines3, CleanRL, EvoTorch, evosax and pycma, and their names here.
ALIASES = {
    "n_envs": "envs", "num_envs": "envs", "n_steps": "horizon", "num_steps": "horizon",
    "n_epochs": "epochs", "update_epochs": "epochs",
    "ent_coef": "entropy_coefficient", "max_grad_norm": "max_gradient_norm",
    "clip_coef": "clip_range", "clip_range_vf": "value_clip_range",
    "normalize_advantage": "normalise_advantages", "norm_obs": "normalise_observations",
    "norm_reward": "normalise_rewards", "net_arch": "dense", "activation_fn": "activation", "n_stack": "stack",
    "frame_stack": "stack", "n_eval_episodes": "episodes", "action_noise": "exploration_noise",
    "target_policy_noise": "target_noise", "lr": "learning_rate", "buffer_size": "replay_size",
    "train_freq": "frames_per_update", "gradient_steps": "frames_per_update", "tau": "target_tau",
    "target_update_interval": "target_every", "exploration_initial_eps": "epsilon", "exploration_fraction": "epsilon",
    "exploration_final_eps": "epsilon", "n_generations": "generations",
    "popsize": "population", "pop_size": "population", "population_size": "population",
    "stdev_init": "sigma", "init_stdev": "sigma", "sigma0": "sigma", "mutation_power": "sigma",
    "center_learning_rate": "learning_rate", "num_elites": "elites",
}  # fmt: skip

CONVERTED = {  # those that count something else or stand elsewhere: the name here (empty: any section), and what to do
    "batch_size": ("minibatches", "set minibatches = envs x horizon / batch_size"),
    "total_timesteps": ("generations", "set run.budget.frames (steps), or run.generations (rollouts)"),
    "vf_coef": (
        "value_coefficient",
        "set value_coefficient, of half the squared error: twice that of Stable-Baselines3",
    ),
    "ent_coef": ("temperature", 'set temperature with learn_temperature = false; "auto" is the default'),
    "eval_freq": ("every", "set every, in generations: eval_freq / horizon"),
    "policy_kwargs": ("", "set options of [policy], as dense = [64, 64]"),
    "lstm_hidden_size": ("", 'set policy.memory = "lstm:UNITS"'),
    "device": ("", 'set learner.device = "gpu", or workers.kind = "gpu"'),
    "tensorboard_log": ("", "give --tensorboard DIR"),
    "verbose": ("", "give --verbose, or --quiet"),
}

WHOLE = "a whole number"
EXPECTED = {
    "int_type": WHOLE,
    "int_from_float": WHOLE,
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text in quotes",
    "string_pattern_mismatch": 'MODULE:CLASS, as in "gymnasium.wrappers:FlattenObservation"',  # the one pattern
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "dict_type": "a table",
    "invalid-json-value": "text, a number, true, false, a list or a table",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
}
LENGTHS = {"too_long": "at most {max_length} are allowed", "too_short": "give at least {min_length}"}  # of a list


@dataclass(frozen=True)
class Mistake:
    """What is wrong with one key."""

    path: Path
    text: str


def validate(
    model: type[Model], section: str, values: Mapping[str, Any], context: Mapping[str, Any] | None = None
) -> tuple[Model | None, list[Mistake]]:
    """Return the validated section, or None and all its mistakes.

    A model checks contradictions between keys only when each key is valid, and may stop at the first. So invalid keys
    are removed and the rest is validated again; mistakes that then name a removed key are ignored.
    """
    rest: Any = plain(values)
    mistakes: list[Mistake] = []
    out: set[Path] = set()
    while True:
        try:
            valid = model.model_validate(rest, context=context)
            return (None if mistakes else valid), mistakes
        except ValidationError as error:
            found: set[Path] = set()
            for path, text, blamed in _grouped(model, rest, error):
                if not blamed & out:
                    mistakes.append(Mistake((section, *path), text))
                found |= {blame for blame in blamed if blame and _inside(blame, rest)[0] == blame}
        if not found or len(mistakes) >= MOST:
            return None, mistakes
        out |= found
        for *tables, key in found:
            table = _inside(tables, rest)[1]
            if isinstance(table, dict):
                table.pop(key, None)


def mistakes_text(model: type[BaseModel], values: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> str:
    """Return what is wrong with the options of a section, in a line; empty: nothing."""
    mistakes = validate(model, "", values, context)[1]
    return "; ".join(": ".join(filter(None, (name_of(one.path[1:]), one.text))) for one in mistakes)


def name_of(path: Path) -> str:
    """Return a key as it is written, as in policy.conv[0][2]."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def unknown_key(wrong: str, known: Iterable[str]) -> str:
    """Return that a key is unknown, and what it is called here, which key is close, or which ones there are."""
    names = list(known)
    name, advice = CONVERTED.get(wrong, ("", ""))
    if advice and name in ("", *names):
        return f"unknown key - {advice}"
    if ALIASES.get(wrong) in names:
        return f"unknown key - it is called `{ALIASES[wrong]}` here"
    listed = f"; known are {', '.join(names)}" if names else ""
    return f"unknown key{did_you_mean(wrong, names) or listed}"


def _grouped(model: type[BaseModel], values: Any, error: ValidationError) -> list[tuple[Path, str, set[Path]]]:
    """Return the path and sentence of every mistake in `error`, and the keys that it names."""
    found: list[tuple[Path, str, set[Path]]] = []
    expected: dict[Path, tuple[Any, list[str], list[str]]] = {}  # value, what may be there, and choices among that
    for one in error.errors(include_url=False)[:MOST]:
        kind, context = one["type"], one.get("ctx", {})
        path, value = _inside(one["loc"], values)
        if kind == "missing":
            found.append((one["loc"], "is missing", {one["loc"]}))
        elif kind == "extra_forbidden":
            found.append((path, unknown_key(str(path[-1]), _fields(model, path[:-1])), {path}))
        elif kind == "value_error":
            broken = context["error"]
            for rule in broken.args if type(broken) is ValueError else [broken]:
                keys, text = _named(str(rule), _fields(model, path))
                blamed = {(*path, key) for key in keys} or {_table(path)}
                found.append((path + tuple(keys[:1]), text, blamed))
        elif kind in LENGTHS:
            has = f"has {counted(len(value), 'item')}" if value else "is empty"
            found.append((path, f"{has}; {LENGTHS[kind].format(**context)}", {_table(path)}))
        else:
            _, phrases, choices = expected.setdefault(path, (value, [], []))
            if kind == "literal_error":
                options = re.findall(r"'([^']*)'", context["expected"])
                choices += options
                quoted = ", ".join(f'"{option}"' for option in options)
                phrases.append(f"one of {quoted}" if len(options) > 1 else quoted)
            elif kind == "list_type" and isinstance(value, str):
                phrases.append(f"a list, as in [{shown(value)}]")  # with its brackets, as it was given
            else:
                phrases.append(EXPECTED[kind].format(**context) if kind in EXPECTED else f"right: {one['msg']}")
    for path, (value, phrases, choices) in expected.items():
        suggestion = did_you_mean(value, choices) if isinstance(value, str) else ""
        if WHOLE in phrases and isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_WHOLE:
            suggestion = f"; write {int(value):_}"
        text = f"must be {' or '.join(dict.fromkeys(phrases))}, not {shown(value)}{suggestion}"
        found.append((path, text, {_table(path)}))
    return found


def _table(path: Path) -> Path:
    return tuple(itertools.takewhile(lambda step: isinstance(step, str), path))


def _inside(location: Iterable[str | int], values: Any) -> tuple[Path, Any]:
    """Return the part of a location that leads through values, without branches of unions, and what is there."""
    path: list[str | int] = []
    for step in location:
        known = step in values if isinstance(values, Mapping) else isinstance(values, list) and isinstance(step, int)
        if not known:
            break
        values = values[step]
        path.append(step)
    return tuple(path), values


def _fields(model: type[BaseModel], path: Path) -> list[str]:
    steps = iter(path)
    for step in steps:
        if isinstance(step, int):  # of a list, whose items the step before it led to
            continue
        field = model.model_fields.get(str(step))
        inner = field.annotation if field else None
        if get_origin(inner) is list:
            (inner,) = get_args(inner)
        elif get_origin(inner) is dict and next(steps, None) is not None:
            inner = get_args(inner)[1]
        if not isinstance(inner, type) or not issubclass(inner, BaseModel):
            return []
        model = inner
    return list(model.model_fields)


def _named(text: str, known: Iterable[str]) -> tuple[list[str], str]:
    """Split "key, other: what is wrong" into its keys and the rest; "key = 3 is wrong" names a key too."""
    known = set(known)
    match = re.match(r"(\w+(?:, \w+)*)(: | = )", text)
    keys = match[1].split(", ") if match else []
    if not match or not set(keys) <= known:
        return [], text
    return keys, text[match.end() :] if match[2] == ": " else text


def shown(value: object) -> str:
    """Return a value as TOML writes it, or its kind where that is long."""
    if value is None:  # of JSON
        return "nothing"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, datetime.date | datetime.time):
        return "a date or time"
    if isinstance(value, int) and abs(value) > 1 << 66:
        return "a huge whole number"
    try:
        text = value_text(value)
    except TypeError:  # of a call in Python
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
