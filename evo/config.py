"""An experiment, validated: every mistake in the file, in --set and in the flags is found and reported at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

from evo import plugins
from evo.errors import ConfigurationError
from evo.experiment_file import read_all
from evo.mistakes import MOST, Mistake, shown, validate
from evo.options import Section
from evo.policies.network import Network
from evo.policies.network import Options as Policy
from evo.sections import Evaluation, Learner, Run, Workers
from evo.toml_text import section_text, value_text
from evo.wording import did_you_mean

REPORTED = 50  # mistakes; whoever makes more has given us another kind of file
PROVENANCE = "provenance"
FIXED: dict[str, type[Section]] = {
    "run": Run,
    "policy": Policy,
    "workers": Workers,
    "learner": Learner,
    "evaluation": Evaluation,
}


@dataclass(frozen=True)
class Experiment:
    """Everything that a run is told, each option with its value."""

    run: Run
    environment: Any  # the options of the environment that `environment.id` names
    policy: Policy  # resolved
    workers: Workers
    learner: Learner
    evaluation: Evaluation
    sections: Mapping[str, Any]  # the options of every algorithm, by its name
    path: Path = field(default=Path("experiment.toml"), compare=False)

    @property
    def algorithm(self) -> str:
        """Return the name of the chosen algorithm."""
        return self.run.algorithm

    @property
    def options(self) -> Any:
        """Return the options of the chosen algorithm."""
        return self.sections[self.run.algorithm]

    @property
    def generations(self) -> int:
        """Return how many generations the run has in all."""
        return getattr(self.options, "generations", 0) or self.run.generations

    def network(self) -> Network:
        """Return the network that the policy describes for this environment."""
        environment = environment_of(self.environment)
        return Network.build(self.policy, environment.shape, environment.actions)

    def identity(self) -> dict[str, Any]:
        """Return every key that can change a result; ConfigurationError where `init_from` cannot be read."""
        from evo.policies.lanes import ARITHMETIC
        from evo.weights import NOISE_RECIPE

        lanes = self.policy.inference == "lanes"
        identity: dict[str, Any] = {
            "algorithm": self.algorithm,
            "arithmetic": ARITHMETIC if lanes else "tensorflow",
            "environment": self.environment.model_dump(),
            "init_from": _content(self.run.init_from),
            "noise": NOISE_RECIPE,
            "policy": self.policy.model_dump(),
            "seed": self.run.seed,
            self.algorithm: self.options.model_dump(exclude={"generations"}),
        }
        module = plugins.find("algorithms", self.algorithm)
        if getattr(module, "LEARNS", False):
            identity["learner"] = self.learner.model_dump()
        if not lanes:
            per_task = self.workers.candidates_per_task or module.candidates_per_task(self.network())
            identity["candidates_per_task"] = per_task
        return identity

    def to_toml(self, provenance: Mapping[str, object] | None = None) -> str:
        """Return every option as a file that loads to an equal experiment, and where it comes from, if given."""
        sections: dict[str, Section] = {
            "run": self.run,
            "environment": self.environment,
            "policy": self.policy,
            "workers": self.workers,
            "learner": self.learner,
            "evaluation": self.evaluation,
            **self.sections,
        }
        texts = []
        for name, section in sections.items():
            notes = {key: info.description or "" for key, info in type(section).model_fields.items()}
            texts.append(section_text(name, section.model_dump(exclude_none=True), notes))
        if provenance is not None:
            texts.append(section_text(PROVENANCE, provenance))
        return "\n".join(texts)


def load(
    path: str | Path, sets: Sequence[str] = (), flags: Mapping[str, object] | None = None, *, resolved: bool = False
) -> Experiment:
    """Return the validated experiment of a file, of --set assignments and of named flags.

    `flags` maps algorithm, seed, generations, workers and backend to what was typed, or to None. A `resolved` file
    is one that `to_toml` wrote: its [provenance] is passed over. ConfigurationError: all mistakes, a line each.
    """
    given = read_all(path, sets, flags or {})
    if resolved:
        given.tables.pop(PROVENANCE, None)
    if (flags or {}).get("generations") is not None:
        given.forget_generations()
    try:
        sections, mistakes = _sections(given.tables)
    except RecursionError:
        raise ConfigurationError(f"{given.file}:1: tables are nested too deeply") from None
    lines = given.told(mistakes)
    if lines:
        more = ["and more of the same"] if len(lines) > REPORTED else []
        raise ConfigurationError("\n".join(lines[:REPORTED] + more))
    experiment = Experiment(
        run=cast(Run, sections.pop("run")),
        environment=sections.pop("environment"),
        policy=cast(Policy, sections.pop("policy")),
        workers=cast(Workers, sections.pop("workers")),
        learner=cast(Learner, sections.pop("learner")),
        evaluation=cast(Evaluation, sections.pop("evaluation")),
        sections=sections,
        path=Path(path),
    )
    return experiment


def environment_of(options: Any) -> Any:
    """Return the environment that options describe."""
    return plugins.find("environments", _module_of(options.id)).make(options)


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return a line for every key that differs between two identities."""
    ours, theirs = _flat(one), _flat(other)
    return [
        f"{key}: {_told(ours, key)} in the run, {_told(theirs, key)} now"
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    ]


def _sections(tables: Mapping[str, Any]) -> tuple[dict[str, Section], list[Mistake]]:
    """Validate every section, named or not, and then what they say together."""
    algorithms = plugins.names("algorithms")
    models = {**FIXED, **{name: plugins.find("algorithms", name).Options for name in algorithms}}
    mistakes = _unknown_sections(tables, [*models, "environment"])
    environment = _environment_model(tables, mistakes)
    if environment:
        models["environment"] = environment
    sections: dict[str, Section] = {}
    for name, model in models.items():
        values = tables.get(name, {})
        if not isinstance(values, Mapping):
            mistakes.append(Mistake((name,), f"must be a section [{name}], not {shown(values)}"))
            continue
        section, wrong = validate(model, name, values)
        mistakes += wrong
        if section is not None:
            sections[name] = section
    backend, backends = _given(tables, "workers", "backend"), plugins.names("evaluators")
    if isinstance(backend, str) and backend not in backends:
        mistakes.append(Mistake(("workers", "backend"), _unknown(backend, backends)))
    mistakes += _algorithm_mistakes(tables, algorithms)
    if "policy" in sections:
        policy = cast(Policy, sections["policy"]).resolved()
        sections["policy"] = policy
        if "environment" in sections:
            mistakes += _network_mistakes(policy, sections["environment"])
    return sections, mistakes


def _unknown_sections(tables: Mapping[str, Any], known: Sequence[str]) -> list[Mistake]:
    mistakes = []
    for name, value in islice(((name, tables[name]) for name in tables if name not in known), MOST):
        if name == PROVENANCE:
            text = "is written into a run directory and belongs there; take the section out"
        elif isinstance(value, Mapping):
            text = f"unknown section{did_you_mean(name, known) or '; known are ' + ', '.join(sorted(known))}"
        else:
            homes = [section for section, model in FIXED.items() if name in model.model_fields]
            text = f"must be inside of a section{f', as in [{homes[0]}]' if homes else ''}"
        mistakes.append(Mistake((name,), text))
    return mistakes


def _environment_model(tables: Mapping[str, Any], mistakes: list[Mistake]) -> type[Section] | None:
    identifier = _given(tables, "environment", "id") or "snake"
    known = plugins.names("environments")
    if not isinstance(identifier, str):
        mistakes.append(Mistake(("environment", "id"), f"must be text in quotes, not {shown(identifier)}"))
        return None
    if _module_of(identifier) not in known:
        mistakes.append(Mistake(("environment", "id"), _unknown(identifier, known)))
        return None
    return cast(type[Section], plugins.find("environments", _module_of(identifier)).Options)


def _algorithm_mistakes(tables: Mapping[str, Any], known: Sequence[str]) -> list[Mistake]:
    path = ("run", "algorithm")
    algorithm = _given(tables, "run", "algorithm")
    if not isinstance(algorithm, str):
        return []  # which the section's own model reports
    if algorithm in known:
        module = plugins.find("algorithms", algorithm)
        if _given(tables, "run", "init_from") and not getattr(module, "STARTS_FROM_CHAMPION", False):
            return [Mistake(("run", "init_from"), f"{algorithm} cannot start from a champion")]
        return []
    for name in known:
        method = plugins.find("algorithms", name).Options.model_fields.get("method")
        if method and algorithm in getattr(method.annotation, "__args__", ()):
            text = f'{shown(algorithm)} is not known - did you mean `{name}` with `{name}.method = "{algorithm}"`?'
            return [Mistake(path, text)]
    return [Mistake(path, _unknown(algorithm, known))]


def _network_mistakes(policy: Policy, options: Any) -> list[Mistake]:
    try:
        environment = environment_of(options)
        Network.build(policy, environment.shape, environment.actions)
    except ConfigurationError as error:
        name, _, text = str(error).partition(": ")
        return [Mistake(tuple(name.split(".")), text)]
    return []


def _given(tables: Mapping[str, Any], section: str, key: str) -> Any:
    """Return what a key is set to, right or wrong, or its default."""
    default = FIXED[section].model_fields[key].default if section in FIXED else None
    values = tables.get(section)
    return values.get(key, default) if isinstance(values, Mapping) else default


def _unknown(name: str, known: Sequence[str]) -> str:
    return f"{shown(name)} is not known; there are {', '.join(known)}{did_you_mean(name, known)}"


def _module_of(identifier: str) -> str:
    """Return the name of the module in `evo/environments` that an environment's id begins with."""
    return identifier.partition(":")[0]


def _content(source: str) -> str:
    """Return the SHA-256 of the champion that a run starts from, or nothing where it starts from none."""
    if not source:
        return ""
    path = Path(source)
    try:
        return hashlib.sha256((path / "champion.h5" if path.is_dir() else path).read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"run.init_from: {shown(source)} cannot be read: {error}") from error


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {prefix + key: item}
    return flat


def _told(values: Mapping[str, Any], key: str) -> str:
    return value_text(values[key]) if key in values else "nothing"
