"""List algorithms, environments and backends, or the options of one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from evo.cli.arguments import add
from evo.errors import ConfigurationError, did_you_mean
from evo.plugins import registry

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from evo.plugins.options import Section


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show all options of this one, as in `evo list ga`")
    add(parser, "--plugin", help="a module that adds to the list")


def main(arguments: Namespace) -> int:
    """Print every name with a sentence, or one of them with its options."""
    registry.load(arguments.plugin)
    groups = _groups()
    if arguments.name is None:
        for title, entries in groups.items():
            print(f"{title}:")
            for name, (sentence, _) in entries.items():
                print(f"  {name:<14} {sentence}")
            print()
        print("all options of one: evo list NAME")
        if (experiments := _experiments()) is not None:
            print(f"experiments to start from: {experiments}")
        return 0
    known = {name: entry for entries in groups.values() for name, entry in entries.items()}
    if arguments.name not in known:
        close = did_you_mean(arguments.name, known) or f"; there are {', '.join(known)}"
        raise ConfigurationError(f"{arguments.name}: there is nothing of this name{close}")
    sentence, options = known[arguments.name]
    print(f"{arguments.name}: {sentence}")
    for key, info in options.items():
        print(f"  {_assignment(key, info):<34} {info.description or ''}{_choices(info)}")
    return 0


def _experiments() -> Path | None:
    """Return the folder of the published experiments: of the source tree, or where a wheel has installed them."""
    there = registry.ROOT.parent / "experiments"
    if there.is_dir():
        return there
    try:
        files = metadata.files("snake-evo") or []
    except metadata.PackageNotFoundError:
        return None
    installed = [
        Path(str(file.locate())).resolve() for file in files if file.match("share/snake-evo/experiments/*.toml")
    ]
    return next((file.parent for file in installed if file.exists()), None)


def _groups() -> dict[str, dict[str, tuple[str, dict[str, FieldInfo]]]]:
    """Return a sentence and the options of everything that has a name, by kind; of a backend, only its own options."""
    from evo.config.loading import FIXED

    groups = {}
    for title, folder in (("algorithms", "algorithms"), ("environments", "environments"), ("backends", "evaluators")):
        shared = FIXED["workers"].model_fields if folder == "evaluators" else {}
        groups[title] = {
            name: (registry.summary(folder, name), _without(registry.find(folder, name).Options, shared))
            for name in registry.names(folder)
        }
    groups["other sections of an experiment"] = {
        name: ((model.__doc__ or "").partition(": ")[2], model.model_fields) for name, model in FIXED.items()
    }
    return groups


def _without(options: type[Section], shared: Collection[str]) -> dict[str, FieldInfo]:
    return {key: info for key, info in options.model_fields.items() if key not in shared}


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
