"""From a file, --set and flags to a validated experiment; all mistakes are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evo.config.experiment import PROVENANCE, Experiment, curriculum_of, difference, environment_of
from evo.config.experiment_file import ExperimentFile, read_all
from evo.config.mistakes import MOST, Mistake, hint, shown, validate
from evo.config.plug_ins import file_here, require_plug_ins
from evo.config.sections import Run, Test, Validation
from evo.config.toml_text import plain
from evo.errors import ConfigurationError, DataError, did_you_mean, printable
from evo.files.layout import START, check_format
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.options import AlgorithmOptions, EnvironmentOptions, Section
from evo.plugins import registry
from evo.setup import LearnerOptions
from evo.workers.options import WorkersOptions

if TYPE_CHECKING:
    from evo.environment import Environment

__all__ = ["FIXED", "Experiment", "difference", "load"]

REPORTED = 50  # mistakes; a file with more is another kind of file
FIXED: dict[str, type[Section]] = {
    "run": Run,
    "policy": Policy,
    "workers": WorkersOptions,
    "learner": LearnerOptions,
    "validation": Validation,
    "test": Test,
}
RESERVED = {*FIXED, "environment", PROVENANCE}  # sections that no algorithm can have


def load(
    path: str | Path, sets: Sequence[str] = (), flags: Mapping[str, object] | None = None, *, resolved: bool = False
) -> Experiment:
    """Return the validated experiment of a file, of --set assignments and of named flags.

    `flags` maps algorithm, seed, generations, workers and backend to what was typed, or to None. A `resolved` file
    is one that `to_toml` wrote: its [provenance] is ignored, and the champion that the run started from is the copy in
    the same folder. Of any other, `init_from` may be relative to the folder of the file too. Raises ConfigurationError
    with all mistakes, a line each, and DataError where a resolved file is incomplete or of another format.
    """
    given = read_all(path, sets, flags or {})
    if resolved:
        provenance = given.tables.pop(PROVENANCE, None)
        if not isinstance(provenance, Mapping):
            raise DataError(f"{path}: has no [{PROVENANCE}]; it was cut off, or an earlier snake-evo wrote it")
        check_format(provenance.get("format", 1), str(path))
        run, environment = given.tables.get("run"), given.tables.get("environment")
        if isinstance(run, Mapping) and isinstance(environment, Mapping):
            require_plug_ins(f"{Path(path).parent}: this run", run.get("algorithm"), environment.get("id"))
    if (flags or {}).get("generations") is not None:
        given.forget_generations()
    experiment = _validated(given, Path(path))
    start = experiment.run.init_from
    kept = Path(path).parent / (START if resolved else start)
    if start and kept.exists() and (resolved or not Path(start).exists()):
        return replace(experiment, run=experiment.run.model_copy(update={"init_from": str(kept)}))
    return experiment


def of_sections(sections: Mapping[str, Mapping[str, object]]) -> Experiment:
    """Return the validated experiment of sections that no file holds; ConfigurationError: all mistakes."""
    return _validated(ExperimentFile("experiment", dict(plain(sections)), {}), Path("experiment.toml"))


def of_champion(file: Path, about: Mapping[str, Any], flags: Mapping[str, object] | None = None) -> Experiment:
    """Return the experiment that a champion's description has, with flags as in `load`; raises as `load`."""
    environment = about.get("environment")
    identifier = environment.get("id") if isinstance(environment, Mapping) else None
    require_plug_ins(f"{printable(str(file))}: this champion", about.get("algorithm"), identifier)
    sections: dict[str, Any] = {"run": {"algorithm": about.get("algorithm"), "seed": about.get("seed")}}
    for name in ("environment", "policy"):
        values = about.get(name)
        sections[name] = {k: v for k, v in values.items() if v is not None} if isinstance(values, dict) else values
    given = ExperimentFile(printable(str(file)), sections, {})
    for flag, value in (flags or {}).items():
        if value is not None:
            given.flag(flag, value)
    return _validated(given, file)


def with_environment(experiment: Experiment, sets: Sequence[str]) -> Experiment:
    """Return the experiment in an environment with other options, from --set assignments of [environment].

    ConfigurationError: another section, or a mistake as in `load`.
    """
    sections: dict[str, Any] = {"run": {"algorithm": experiment.algorithm, "seed": experiment.run.seed}}
    for name, section in (("environment", experiment.environment), ("policy", experiment.policy)):
        sections[name] = section.model_dump()
    sections["workers"] = experiment.workers.model_dump()
    given = ExperimentFile(printable(str(experiment.path)), sections, {})
    for assignment in sets:
        name, equals, _ = assignment.partition("=")
        if equals and name.partition(".")[0].strip() not in ("environment", name.strip()):
            given.mistakes.append(f"--set {printable(name)}: only options of the environment can be others in a test")
        else:
            given.set(assignment)
    return _validated(given, experiment.path)


def _validated(given: ExperimentFile, path: Path) -> Experiment:
    try:
        others, wrong = _of_other_backends(given.tables)
        sections, mistakes = _sections(_without(given.tables, others))
    except RecursionError:
        raise ConfigurationError(f"{given.file}:1: tables are nested too deeply") from None
    if not mistakes:
        mistakes = [mistake for key in given.removed for mistake in _unknown_key(sections, key)]
    lines = given.lines_of(wrong + mistakes)
    if lines:
        more = ["and more of the same"] if len(lines) > REPORTED else []
        raise ConfigurationError("\n".join(lines[:REPORTED] + more))
    own: dict[str, Any] = {name: sections.pop(name) for name in (*FIXED, "environment")}
    of_algorithms = cast(dict[str, AlgorithmOptions], sections)
    return Experiment(**own, sections=of_algorithms, other_backends=others, path=path)


def _unknown_key(sections: Mapping[str, Section], path: tuple[str, ...]) -> list[Mistake]:
    """Return the mistake where a key that is to have its default does not exist."""
    value: Any = sections.get(path[0])
    if value is None:
        return _unknown_sections({path[0]: {}}, list(sections))
    for depth, key in enumerate(path[1:], 1):
        known = [*type(value).model_fields] if isinstance(value, Section) else []
        if isinstance(value, dict):
            return []
        if key not in known:
            text = "unknown key" + (hint(key, known) or (f"; known are {', '.join(known)}" if known else ""))
            return [Mistake(path[: depth + 1], text)]
        value = getattr(value, key)
    return []


def _sections(tables: Mapping[str, Any]) -> tuple[dict[str, Section], list[Mistake]]:
    """Validate every section, given or not, and then their combination."""
    algorithms = registry.names("algorithms")
    models = {**FIXED, **{name: registry.find("algorithms", name).Options for name in algorithms}}
    mistakes = _unknown_sections(tables, [*models, "environment"])
    environment = _environment_model(tables, mistakes)
    if environment:
        models["environment"] = environment
    backend, backends = _given(tables, "workers", "backend"), registry.names("evaluators")
    if backend in backends:
        models["workers"] = _backend_model(backend)
    elif isinstance(backend, str):
        mistakes.append(Mistake(("workers", "backend"), _unknown(backend, backends)))
    sections: dict[str, Section] = {}
    for name, model in models.items():
        values = tables.get(name, {})
        if not isinstance(values, Mapping):
            mistakes.append(Mistake((name,), f"must be a section [{name}], not {shown(values)}"))
            continue
        section, wrong = validate(model, name, values)
        if section is None and name == "environment":
            wrong = _identifier_mistakes(model, values) or wrong  # other keys depend on the id
        mistakes += wrong
        if section is not None:
            sections[name] = section
    mistakes += _algorithm_mistakes(tables, algorithms)
    if "policy" in sections:
        policy = cast(Policy, sections["policy"])
        if "environment" in sections:
            chosen = sections.get(str(_given(tables, "run", "algorithm")))
            policy, wrong = _fitted(policy, sections["environment"], chosen)
            mistakes += wrong
        sections["policy"] = policy
    return sections, mistakes


def _of_other_backends(tables: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the options of [workers] that only other backends have, and what is wrong with them.

    One file serves every backend, as --backend swaps them. Such options are validated and otherwise ignored, unless the
    chosen backend refuses them.
    """
    values, backends = tables.get("workers"), registry.names("evaluators")
    if not isinstance(values, Mapping):
        return {}, []
    backend = _given(tables, "workers", "backend")
    chosen = _backend_model(backend) if backend in backends else WorkersOptions
    others: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for name in backends if set(values) - chosen.model_fields.keys() else ():
        model = _backend_model(name)
        unused = {key: values[key] for key in values if key in model.model_fields.keys() - chosen.model_fields.keys()}
        section, wrong = validate(model, "workers", {key: unused[key] for key in unused if key not in others})
        mistakes += wrong
        for key in unused if section else ():
            if key in chosen.refused and unused[key] != model.model_fields[key].default:
                mistakes.append(Mistake(("workers", key), chosen.refused[key]))
        others |= unused
    return others, mistakes


def _backend_model(name: str) -> type[WorkersOptions]:
    return cast(type[WorkersOptions], registry.find("evaluators", name).Options)


def _without(tables: Mapping[str, Any], others: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tables without these options of [workers]."""
    if not others:
        return tables
    return {**tables, "workers": {key: value for key, value in tables["workers"].items() if key not in others}}


def _unknown_sections(tables: Mapping[str, Any], known: Sequence[str]) -> list[Mistake]:
    mistakes = []
    for name, value in islice(((name, tables[name]) for name in tables if name not in known), MOST):
        if name == PROVENANCE:
            text = "belongs to the configuration in a run directory; remove the section"
        elif isinstance(value, Mapping):
            text = f"unknown section{did_you_mean(name, known) or '; known are ' + ', '.join(sorted(known))}"
        else:
            homes = [section for section, model in FIXED.items() if name in model.model_fields]
            text = f"must be in a section{f', as in [{homes[0]}]' if homes else ''}"
        mistakes.append(Mistake((name,), text))
    return mistakes


def _environment_model(tables: Mapping[str, Any], mistakes: list[Mistake]) -> type[Section] | None:
    identifier = _given(tables, "environment", "id") or "snake"
    known = registry.names("environments")
    if not isinstance(identifier, str):
        mistakes.append(Mistake(("environment", "id"), f"must be text in quotes, not {shown(identifier)}"))
        return None
    if registry.module_of(identifier) not in known:
        mistakes.append(Mistake(("environment", "id"), _unknown_environment(identifier, known)))
        return None
    return cast(type[Section], registry.find("environments", registry.module_of(identifier)).Options)


def _identifier_mistakes(model: type[Section], values: Mapping[str, Any]) -> list[Mistake]:
    """Return what is wrong with the id of an environment, whatever else is wrong with its section."""
    options, wrong = validate(model, "environment", {"id": values["id"]} if "id" in values else {})
    if options is None:
        return wrong
    return [mistake for mistake in _made(options, lambda environment: environment.shape) if "id" in mistake.path]


def _algorithm_mistakes(tables: Mapping[str, Any], known: Sequence[str]) -> list[Mistake]:
    path = ("run", "algorithm")
    algorithm = _given(tables, "run", "algorithm")
    if not isinstance(algorithm, str):
        return []  # the section's own model reports it
    if algorithm in known:
        return []
    if algorithm == "pg":
        return [Mistake(path, '"pg" is a family of algorithms: choose ppo, a2c or reinforce')]
    if algorithm.lower() in ("sac", "td3", "ddpg"):
        others = "choose ppo, a2c or reinforce, or evolution, as pgpe or sep_cma_es"
        return [Mistake(path, f"{shown(algorithm)} is not one of the algorithms here; for continuous actions {others}")]
    return [Mistake(path, _unknown(algorithm, known))]


def _fitted(policy: Policy, options: Any, algorithm: Section | None) -> tuple[Policy, list[Mistake]]:
    """Return the policy resolved for an environment, and what is wrong with its network or the algorithm there."""
    fitted = [policy]

    def build(environment: Any) -> None:
        fitted[0] = policy.resolved(environment.codes if policy.has_codes else 0)
        extra = algorithm.extra_outputs(environment) if isinstance(algorithm, AlgorithmOptions) else 0
        network = Network.build(fitted[0], environment.shape, environment.actions, extra)
        if isinstance(algorithm, AlgorithmOptions) and algorithm.learns and not network.differentiable:
            raise ConfigurationError(
                "policy.layers: a decision tree has no gradients to learn by; evolve it, as with --algorithm gp"
            )
        if isinstance(algorithm, AlgorithmOptions):
            _trainable(options, environment, algorithm)

    mistakes = _made(options, build)
    return fitted[0], mistakes


def _trainable(options: EnvironmentOptions, environment: Environment, algorithm: AlgorithmOptions) -> None:
    """ConfigurationError: the algorithm cannot train in environments that change as they do."""
    if len(options.changes) > 1 and (what := algorithm.needs_stationary_training):
        raise ConfigurationError(
            f"environment.training: {what} compares the fitness of generations, which a list of tables makes unlike; "
            "give one table, or leave that out"
        )
    environments = curriculum_of(options, environment).environments()
    if algorithm.replays and environment.game is not None and options.training:
        sizes = {one.game.row_size for one in environments if one.game}
        if len(options.changes) > 1 or len(sizes) > 1:
            raise ConfigurationError(
                "environment.training: a replay buffer holds boards of one kind; give one table that keeps their size, "
                "or use ppo, a2c, pqn or evolution"
            )


def _made(options: Any, use: Callable[[Any], object]) -> list[Mistake]:
    """Return what is wrong where the environment of these options is made, and used in this way."""
    try:
        use(environment_of(options))
    except ConfigurationError as error:
        name, _, text = str(error).partition(": ")
        if name.startswith("game "):  # a function of it failed
            return [Mistake(("environment", "id"), str(error))]
        return [Mistake(tuple(name.split(".")), text)]
    return []


def _given(tables: Mapping[str, Any], section: str, key: str) -> Any:
    """Return the value of a key, valid or not, or its default."""
    default = FIXED[section].model_fields[key].default if section in FIXED else None
    values = tables.get(section)
    return values.get(key, default) if isinstance(values, Mapping) else default


def _unknown_environment(name: str, known: Sequence[str]) -> str:
    from gymnasium import registry as registered

    if name in registered:
        return f"{shown(name)} is not known - did you mean `gymnasium:{name}`?"
    if here := file_here(name):
        return f"{_unknown(name, known)}; {here}"
    return f'{_unknown(name, known)}; a registered one is named as in "gymnasium:CartPole-v1"'


def _unknown(name: str, known: Sequence[str]) -> str:
    return f"{shown(name)} is not known{did_you_mean(name, known)} (there are {', '.join(known)}; --plugin adds others)"
