"""Check every section of an experiment, and their combination; all mistakes are reported at once."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from evo.config.environments import curriculum_of, environment_of, file_here
from evo.config.experiment_file import ExperimentFile
from evo.config.sections import RunOptions, TestOptions, ValidationOptions
from evo.environment import Environment
from evo.errors import ConfigurationError, did_you_mean
from evo.mistakes import MOST, Mistake, shown, unknown_key, validate
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.options import AlgorithmOptions, EnvironmentOptions, Section
from evo.plugins import registry
from evo.setup import LearnerOptions
from evo.workers.options import WorkersOptions

FIXED: dict[str, type[Section]] = {
    "run": RunOptions, "policy": Policy, "workers": WorkersOptions, "learner": LearnerOptions,
    "validation": ValidationOptions, "test": TestOptions,
}  # fmt: skip
PROVENANCE = "provenance"
RESERVED = {*FIXED, "environment", PROVENANCE}  # sections that no algorithm can have
REPORTED = 50  # mistakes; a file with more is another kind of file
NAMED = {
    "run": ("algorithm", "algorithms"),
    "environment": ("id", "environments"),
    "workers": ("backend", "evaluators"),
}
HERE = ("processes", "serial")  # backends that play on this machine, whatever their options
HOST = (
    "a file may only name {}: whoever answers elsewhere can run code as you. If you trust that host, type: --set {}"
    ' (where there is no --set: "auto" in the file, RAY_ADDRESS in the environment)'
)
NOT_HERE = {  # algorithms that have other names here, or none
    "pg": "is a family of algorithms: choose ppo, a2c or reinforce",
    "ddpg": "is not one of the algorithms here; for continuous actions choose td3 or sac, ppo, or evolution, "
    "as pgpe or sep_cma_es",
    "recurrentppo": 'is ppo here, with policy.memory = "lstm:UNITS"',
    "ppolstm": 'is ppo here, with policy.memory = "lstm:UNITS"',
    "maskableppo": "is ppo here, which learns with the masks of an environment",
}


def checked(source: ExperimentFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return every section by name, and options of [workers] of other backends; ConfigurationError: all mistakes."""
    try:
        others, mistakes = _other_backend_options(source.tables)
        mistakes += _hosts(source)
        tables = source.tables
        if others:
            used = {key: value for key, value in tables["workers"].items() if key not in others}
            tables = {**tables, "workers": used}
        sections, wrong = _sections(tables)
    except RecursionError:
        raise ConfigurationError(f"{source.file}:1: tables are nested too deeply") from None
    mistakes += wrong or [mistake for key in source.removed for mistake in _unknown_key(sections, key)]
    if lines := source.lines_of(mistakes):
        more = ["and more of the same"] if len(lines) > REPORTED else []
        raise ConfigurationError(*lines[:REPORTED], *more)
    return sections, others


def _sections(tables: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """Validate every section, with its defaults where it is left out, and then their combination."""
    models = {**FIXED, **{name: registry.find("algorithms", name).Options for name in registry.names("algorithms")}}
    mistakes = _unknown_sections(tables, [*models, "environment"])
    for section, (key, folder) in NAMED.items():
        module, wrong = _named(tables, section, key, folder)
        mistakes += wrong
        if module is not None and section != "run":
            models[section] = module.Options
    sections: dict[str, Any] = {}
    for name, model in models.items():
        values = tables.get(name, {})
        if not isinstance(values, Mapping):
            mistakes.append(Mistake((name,), f"must be a section [{name}], not {shown(values)}"))
            continue
        options, wrong = validate(model, name, values)
        if options is not None:
            sections[name] = options
        elif name == "environment":
            wrong = _identifier_mistakes(model, values) or wrong  # other keys depend on the id
        mistakes += [_misplaced(one, models) or one for one in wrong]
    if "policy" in sections and "environment" in sections:
        algorithm = sections.get(str(_value_of(tables, "run", "algorithm")))
        sections["policy"], wrong = _fitted(sections["policy"], sections["environment"], algorithm)
        mistakes += wrong
        if algorithm is not None and not mistakes and environment_of(sections["environment"]).dear:
            candidates, generations = algorithm.candidates(), algorithm.generations or sections["run"].generations
            episodes = algorithm.episodes_per_generation()
            sections["validation"] = sections["validation"].affordable(candidates, episodes)
            sections["test"] = sections["test"].affordable(generations * episodes)
    return sections, mistakes


def _named(tables: Mapping[str, Any], section: str, key: str, folder: str) -> tuple[Any, list[Mistake]]:
    """Return the module that a key names, or None and what is wrong with the name."""
    name = _value_of(tables, section, key)
    if not isinstance(name, str):  # of [run] and [workers], the section's own model reports it
        text = f"must be text in quotes, not {shown(name)}"
        return None, [Mistake((section, key), text)] if section == "environment" else []
    module = registry.module_of(name) if section == "environment" else name
    if module in registry.names(folder):
        return registry.find(folder, module), []
    return None, [Mistake((section, key), _unknown_name(folder, name))]


def _unknown_name(folder: str, name: str) -> str:
    known = registry.names(folder)
    if folder == "algorithms" and (told := NOT_HERE.get(name.lower().replace("_", ""))):
        return f"{shown(name)} {told}"
    text = f"{shown(name)} is not known{did_you_mean(name, known)} (there are {', '.join(known)}; --plugin adds others)"
    if folder != "environments":
        return text
    from gymnasium import registry as registered

    if name in registered:
        return f"{shown(name)} is not known - did you mean `gymnasium:{name}`?"
    return f"{text}; " + (file_here(name) or 'a registered one is named as in "gymnasium:CartPole-v1"')


def _value_of(tables: Mapping[str, Any], section: str, key: str) -> Any:
    default = FIXED[section].model_fields[key].default if section in FIXED else "snake"
    values = tables.get(section)
    return values.get(key, default) if isinstance(values, Mapping) else default


def _other_backend_options(tables: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """Return options of [workers] of other backends, validated and ignored unless the chosen one refuses them."""
    values, mistakes = tables.get("workers"), list[Mistake]()
    if not isinstance(values, Mapping):
        return {}, []
    models = _backends()
    backend = _value_of(tables, "workers", "backend")
    chosen: type[WorkersOptions] = models[backend] if backend in [*models] else WorkersOptions
    others: dict[str, Any] = {}
    for model in models.values() if set(values) - chosen.model_fields.keys() else ():
        unused = {key: values[key] for key in values if key in model.model_fields.keys() - chosen.model_fields.keys()}
        section, wrong = validate(model, "workers", {key: unused[key] for key in unused if key not in others})
        mistakes += wrong
        for key in unused if section else ():
            if key in chosen.refused and unused[key] != model.model_fields[key].default:
                mistakes.append(Mistake(("workers", key), chosen.refused[key]))
        others |= unused
    return others, mistakes


def play_here(tables: dict[str, Any], backend: object) -> None:
    """Remove other backends from tables, unless a `backend` was typed, and in any case hosts of the file."""
    values = tables.get("workers")
    if isinstance(values, dict) and backend is None and values.get("backend", HERE[0]) not in HERE:
        tables["workers"] = {key: value for key, value in values.items() if key == "candidates_per_task"}
    forget_hosts(tables)


def forget_hosts(tables: Mapping[str, Any], used: bool = True) -> None:
    """Replace hosts in the tables of a file, but not those that the chosen backend has, unless `used` is true."""
    chosen = _value_of(tables, "workers", "backend")
    for backend, key, usual in _named_hosts(tables):
        if used or backend != chosen:
            tables["workers"][key] = usual[-1]


def _hosts(source: ExperimentFile) -> list[Mistake]:
    """Return a mistake for every host that is named in a file, where only the command line may name it."""
    mistakes = []
    for _, key, usual in _named_hosts(source.tables) if source.hosts != "kept" else ():
        if source.hosts != "typed" or not source.is_typed("workers", key):
            names = " or ".join(f'"{one}"' for one in usual)
            word = shlex.quote(f"workers.{key}={source.tables['workers'][key]}"[:300])
            mistakes.append(Mistake(("workers", key), HOST.format(names, word)))
    return mistakes


def _named_hosts(tables: Mapping[str, Any]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the options of [workers] that name hosts: backend, key, and the values that a file may have."""
    values = tables.get("workers")
    if not isinstance(values, Mapping) or not values.keys() - WorkersOptions.model_fields.keys():
        return []
    hosts = ((name, *one) for name, model in _backends().items() for one in model.in_files.items())
    return [(name, key, usual) for name, key, usual in hosts if key in values and values[key] not in usual]


def _backends() -> dict[str, type[WorkersOptions]]:
    return {name: registry.find("evaluators", name).Options for name in registry.names("evaluators")}


def _unknown_sections(tables: Mapping[str, Any], known: Sequence[str]) -> list[Mistake]:
    mistakes = []
    for name in [name for name in tables if name not in known][:MOST]:
        if name == PROVENANCE:
            text = "belongs to the configuration in a run directory; remove the section"
        elif isinstance(tables[name], Mapping):
            text = f"unknown section{did_you_mean(name, known) or '; known are ' + ', '.join(sorted(known))}"
        else:
            homes = [section for section, model in FIXED.items() if name in model.model_fields]
            text = f"must be in a section{f', as in [{homes[0]}]' if homes else ''}"
        mistakes.append(Mistake((name,), text))
    return mistakes


def _unknown_key(sections: Mapping[str, Section], path: tuple[str, ...]) -> list[Mistake]:
    value: Any = sections.get(path[0])
    if value is None:
        return _unknown_sections({path[0]: {}}, list(sections))
    for depth, key in enumerate(path[1:], 2):
        if isinstance(value, dict):
            break
        known = [*type(value).model_fields] if isinstance(value, Section) else []
        if key not in known:
            return [Mistake(path[:depth], unknown_key(key, known))]
        value = getattr(value, key)
    return []


def _identifier_mistakes(model: type[EnvironmentOptions], values: Mapping[str, Any]) -> list[Mistake]:
    """Return what is wrong with the id of an environment, whatever else is wrong with its section."""
    options, wrong = validate(model, "environment", {"id": values["id"]} if "id" in values else {})
    if options is None:
        return wrong
    with _noted(wrong):
        _ = environment_of(options).shape
    return [mistake for mistake in wrong if "id" in mistake.path]


def _misplaced(mistake: Mistake, sections: Iterable[str]) -> Mistake | None:
    """Return what to do about an unknown key that is the name of a section; None: it is none."""
    section, *keys = mistake.path
    if len(keys) != 1 or str(keys[0]) not in sections or not mistake.text.startswith("unknown key"):
        return None
    return Mistake(mistake.path, f"unknown key - [{keys[0]}] is a section of its own; leave `{section}.` out")


def _fitted(policy: Policy, options: Any, algorithm: AlgorithmOptions | None) -> tuple[Policy, list[Mistake]]:
    """Return the policy resolved for an environment, and what is wrong with its network or the algorithm there."""
    mistakes = list[Mistake]()
    with _noted(mistakes):
        environment = environment_of(options)
        entries = environment.entries if policy.inputs else None
        policy = policy.resolved(environment.codes if policy.has_codes else 0, entries)
        learns = algorithm is not None and algorithm.learns
        if algorithm and algorithm.output:
            policy = policy.model_copy(update={"output": algorithm.output})
        elif learns and policy.output:
            raise ConfigurationError("policy.output: this algorithm learns linear outputs; leave this option out")
        if environment.problem is not None and policy != Policy().resolved():
            raise ConfigurationError("policy: a fitness function has no network; leave this section out")
        if environment.problem is not None and learns:
            raise ConfigurationError(
                "run.algorithm: a fitness function has no steps to learn from; evolve it, as with sep_cma_es or ga"
            )
        network = Network.of(policy, environment, algorithm.extra_outputs(environment) if algorithm else 0)
        if algorithm:
            _check_training(policy, network, options, environment, algorithm)
    return policy, mistakes


def _check_training(
    policy: Policy, network: Network, options: EnvironmentOptions, environment: Environment, algorithm: AlgorithmOptions
) -> None:
    """Raise ConfigurationError where the algorithm cannot train the network, or in environments as these change."""
    if algorithm.learns and not network.differentiable:
        raise ConfigurationError(
            "policy.layers: a decision tree has no gradients to learn by; evolve it, as with --algorithm gp"
        )
    if algorithm.learns and network.memory and not algorithm.remembers:
        raise ConfigurationError(
            f"policy.{'memory' if policy.memory else 'layers'}: this algorithm does not learn networks with memory; "
            "use ppo, a2c or pqn, or evolve it, as with --algorithm ga"
        )
    if len(options.changes) > 1 and (what := algorithm.needs_stationary_training):
        raise ConfigurationError(
            f"environment.training: {what} compares the fitness of generations, but with a list of tables they train "
            "in different environments; give one table, or leave that out"
        )
    environments = [*curriculum_of(options, environment).environments()]
    from_all = any(one.opponents is not None and one.opponents.learn_from == "all" for one in environments)
    segments = algorithm.remembers and algorithm.plays_segments and not getattr(algorithm, "normalise_rewards", False)
    if from_all and algorithm.learns and not segments:
        raise ConfigurationError(
            "environment.training.opponents.learn_from: all seats are for ppo, a2c and pqn, without whole_episodes and "
            "normalise_rewards"
        )
    if algorithm.replays and environment.game is not None and options.training:
        sizes = {one.game.row_size for one in environments if one.game}
        if len(options.changes) > 1 or len(sizes) > 1:
            raise ConfigurationError(
                "environment.training: a replay buffer holds boards of one kind; give one table that keeps their size, "
                "or use ppo, a2c, pqn or evolution"
            )


@contextmanager
def _noted(mistakes: list[Mistake]) -> Iterator[None]:
    """Add what a ConfigurationError says, which begins with a key, to mistakes."""
    try:
        yield
    except ConfigurationError as error:
        name, _, text = str(error).partition(": ")
        if name.startswith("game "):  # a function of it failed
            name, text = "environment.id", str(error)
        mistakes.append(Mistake(tuple(name.split(".")), text))
