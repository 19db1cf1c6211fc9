"""The options of a run that are not the defaults, and the command that trains the same again from them alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from evo.config.experiment import Experiment
from evo.config.toml import section_text, value_text
from evo.errors import EvoError
from evo.options import Section
from evo.plugins.registry import command

if TYPE_CHECKING:
    from evo.config.experiment import Experiment

ALIKE = ("run", "environment", "policy", "workers", "learner", "validation", "test")
END = "END_OF_EXPERIMENT"


class Difference(NamedTuple):
    """An option that is not the default."""

    name: str  # as in ga.sigma
    value: str
    default: str


def sections_of(experiment: Experiment) -> Mapping[str, Section]:
    """Return the sections that count, by name."""
    names = [name for name in ALIKE if name != "learner" or experiment.learns]
    return {**{name: getattr(experiment, name) for name in names}, experiment.algorithm: experiment.options}


def differences(experiment: Experiment) -> list[Difference]:
    """Return every option that is not the default, in the order of an experiment file."""
    return list(_differences(experiment))


def _differences(experiment: Experiment) -> Iterator[Difference]:
    for name, section in sections_of(experiment).items():
        for key, value in _changed(section).items():
            info = type(section).model_fields[key]
            default = "" if info.is_required() else _dumped(info.get_default(call_default_factory=True))
            shown = "start.h5" if (name, key) == ("run", "init_from") else value
            yield Difference(f"{name}.{key}", value_text(shown), "" if default is None else value_text(default))


def _changed(section: Section) -> dict[str, Any]:
    """Return the options of a section that are not the default."""
    dumped = section.model_dump(exclude_none=True)
    fields = type(section).model_fields
    return {
        key: value
        for key, value in dumped.items()
        if fields[key].is_required() or value != _dumped(fields[key].get_default(call_default_factory=True))
    }


def _dumped(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if isinstance(value, Section) else value


def experiment_text(experiment: Experiment) -> str:
    """Return the shortest experiment file that is known to load as the same experiment."""
    sections: dict[str, Any] = {name: _changed(section) for name, section in sections_of(experiment).items()}
    try:
        same = Experiment.build(**sections).to_toml(counting=True) == experiment.to_toml(counting=True)
    except (EvoError, TypeError):
        same = False
    if "init_from" in sections["run"]:
        sections["run"]["init_from"] = "start.h5"
    texts = [section_text(name, values) for name, values in sections.items() if values]
    return "\n".join(texts) if same else experiment.to_toml(counting=True)


def repeating(experiment: Experiment) -> str:
    """Return what to type in a shell to train the same again."""
    train = command("evo.run", "again.toml", "--run-dir", "again")
    return f"cat > again.toml <<'{END}'\n{experiment_text(experiment)}{END}\n{train}"
