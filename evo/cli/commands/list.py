"""List algorithms, environments and backends, or the options of one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args, get_origin

from evo.cli.arguments import add
from evo.errors import ConfigurationError, did_you_mean, printable
from evo.plugins import registry

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}  # as annotated_types names them, in words


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show all options of this one, as in `evo list ga`")
    add(parser, "--plugin", help="a module that adds to the list; may be repeated")


def main(arguments: Namespace) -> int:
    """Print every name with a sentence, or one of them with its options."""
    groups = _groups()
    if arguments.name is None:
        for title, entries in groups.items():
            print(f"{title}:")
            for name, (sentence, _) in entries.items():
                print(f"  {name:<14} {sentence}")
            print()
        print("all options of one: evo list NAME")
        if (experiments := _experiments()) is not None:
            print(f"experiments to start from: {printable(str(experiments))}")
        return 0
    known = {name: entry for entries in groups.values() for name, entry in entries.items()}
    if arguments.name not in known:
        from evo.config.environments import file_here

        here = file_here(arguments.name)
        close = f"; {here}" if here else did_you_mean(arguments.name, known) or f"; there are {', '.join(known)}"
        raise ConfigurationError(f"{arguments.name}: there is nothing of this name{close}")
    sentence, options = known[arguments.name]
    print(f"{arguments.name}: {sentence}")
    for left, info in _rows(options, arguments.name):
        print(f"  {left:<34} {info.description or ''}{_choices(info)}{_range(info)}")
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
    matching = (file for file in files if file.match("share/snake-evo/experiments/*.toml"))
    installed = (Path(str(file.locate())).resolve() for file in matching)
    return next((file.parent for file in installed if file.exists()), None)


def _groups() -> dict[str, dict[str, tuple[str, dict[str, FieldInfo]]]]:
    """Return a sentence and the options of everything that has a name, by kind; of a backend, only its own options."""
    from evo.config.checking import FIXED

    groups: dict[str, dict[str, tuple[str, dict[str, FieldInfo]]]] = {}
    for title, folder in (("algorithms", "algorithms"), ("environments", "environments"), ("backends", "evaluators")):
        shared = FIXED["workers"].model_fields if folder == "evaluators" else {}
        groups[title] = {}
        for name in registry.names(folder):
            options = registry.find(folder, name).Options.model_fields
            own = {key: info for key, info in options.items() if key not in shared}
            groups[title][name] = registry.summary(folder, name), own
    groups["other sections of an experiment"] = {
        name: ((model.__doc__ or "").partition(": ")[2], model.model_fields) for name, model in FIXED.items()
    }
    return groups


def _rows(options: Mapping[str, FieldInfo], name: str) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every option as `key = default`; after an option that is a table, also each of its keys."""
    from evo.options import Section

    for key, info in options.items():
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        if isinstance(default, Section):
            yield key, info
            for inner, field in type(default).model_fields.items():
                yield _assignment(f"{key}.{inner}", getattr(default, inner)), field
        elif info.is_required():
            yield f"{key} (required)", info
        else:
            yield _assignment(key, name if key == "id" and not default else default), info


def _assignment(key: str, default: object) -> str:
    from evo.toml import value_text

    return f"{key} (not set)" if default is None else f"{key} = {value_text(default)}"


def _choices(info: FieldInfo) -> str:
    choices = [choice or '""' for choice in get_args(info.annotation) if isinstance(choice, str)]
    return f" ({' | '.join(choices)})" if len(choices) > 1 else ""


def _range(info: FieldInfo) -> str:
    """Return the bounds of a number in brackets, as in " (0 to 1)", or those of the items of a list or table."""
    if text := _bounds(info.metadata):
        return f" ({text})"
    each = "each " if get_origin(info.annotation) in (list, dict) else ""
    return next((f" ({each}{text})" for metadata in _inner(info.annotation) if (text := _bounds(metadata))), "")


def _inner(annotation: object) -> Iterator[list[object]]:
    from pydantic.fields import FieldInfo

    for part in get_args(annotation):
        if get_origin(part) is Annotated:
            yield FieldInfo.from_annotation(part).metadata
        yield from _inner(part)


def _bounds(metadata: Sequence[object]) -> str:
    bounds = {name: getattr(one, name) for one in metadata for name in BOUNDS if hasattr(one, name)}
    if {"ge", "le"} <= bounds.keys():
        return f"{_number(bounds['ge'])} to {_number(bounds['le'])}"
    return ", ".join(f"{BOUNDS[name]} {_number(bounds[name])}" for name in BOUNDS if name in bounds)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"
