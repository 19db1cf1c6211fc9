"""List all algorithms, environments and backends, with every option."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from evo.plugins import registry

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from evo.plugins.options import Section


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="MODULE", help="a module that adds to the list"
    )


def main(arguments: Namespace) -> int:
    """Print the lists."""
    from evo.config.loading import FIXED
    from evo.networks import network

    registry.load(arguments.plugin)
    for title, folder in (("algorithms", "algorithms"), ("environments", "environments"), ("backends", "evaluators")):
        _heading(title)
        for name in registry.names(folder):
            options = registry.find(folder, name).Options
            _entry(name, registry.summary(folder, name), options, FIXED["workers"] if folder == "evaluators" else None)
    _heading("policies")
    _entry("network", " ".join((network.__doc__ or "").split()), network.Options)
    _heading("the other sections of an experiment")
    for name, model in FIXED.items():
        if name != "policy":
            _entry(f"[{name}]", (model.__doc__ or "").partition(": ")[2], model)
    return 0


def _heading(title: str) -> None:
    print(f"\n{title}:")


def _entry(name: str, sentence: str, options: type[Section], shared: type[Section] | None = None) -> None:
    """Print a name and its options, without those that are `shared` by all."""
    print(f"  {name:<12} {sentence}")
    for key, info in options.model_fields.items():
        if shared is None or key not in shared.model_fields:
            print(f"      {_assignment(key, info):<34} {info.description or ''}{_choices(info)}")


def _assignment(key: str, info: FieldInfo) -> str:
    from evo.config.toml_text import value_text
    from evo.plugins.options import Section

    if info.is_required():
        return f"{key} (required)"
    default = info.get_default(call_default_factory=True)
    if isinstance(default, Section):
        default = default.model_dump(exclude_none=True)
    return f"{key} = {value_text(default)}"


def _choices(info: FieldInfo) -> str:
    arguments = getattr(info.annotation, "__args__", ())
    choices = [choice for choice in arguments if isinstance(choice, str)]
    return f" ({' | '.join(choice or 'none' for choice in choices)})" if len(choices) > 1 else ""
