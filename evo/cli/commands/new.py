"""Write a game, an environment or an algorithm to start from."""

from __future__ import annotations

import keyword
import re
import sys
from argparse import ArgumentParser, Namespace
from importlib.machinery import PathFinder
from pathlib import Path

from evo.errors import ConfigurationError
from evo.files.durable import replace_file, resources
from evo.plugins import registry
from evo.plugins.mistakes import OURS

SKELETONS = Path(__file__).parent.parent / "skeletons"
NAMES = {"game": "my_game", "environment": "my_env", "algorithm": "my_algorithm"}
TESTS = '''"""The contract of the {kind} {name}: run it with pytest."""

from evo.testing import {kind}_tests

Test{class_name} = {kind}_tests({arguments})
'''
FOLDERS = {"game": "environments", "environment": "environments", "algorithm": "algorithms"}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("kind", metavar="KIND", choices=sorted(NAMES), help="game, environment or algorithm")
    parser.add_argument("name", metavar="NAME", help="its name: small letters, digits and _, as in my_game")
    players = "number of players of a game, 1 to 8 (default: 1)"
    parser.add_argument("--players", metavar="N", type=int, choices=range(1, 9), default=1, help=players)


def main(arguments: Namespace) -> int:
    """Write NAME.py, test_NAME.py and NAME.toml into this directory; ConfigurationError where one exists."""
    kind, name = arguments.kind, arguments.name
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigurationError(f"{name}: {_wrong_name(name)}")
    if name in registry.names(FOLDERS[kind]):
        raise ConfigurationError(f"{name}: there is one of this name already (evo list)")
    if shadowed := _shadowed(kind, name):
        raise ConfigurationError(f"{name}: {shadowed}; choose another name, as my_{name}")
    class_name = _class_name(name)
    tested = f'"gymnasium:{class_name}-v0", plugin="{name}"' if kind == "environment" else f'"{name}"'
    if arguments.players > 1 and kind != "game":
        raise ConfigurationError("--players: only a game has players")
    skeleton = "game_of_players" if arguments.players > 1 else kind
    texts = {f"test_{name}.py": TESTS.format(kind=kind, name=name, class_name=class_name, arguments=tested)}
    for ending in ("py", "toml"):
        text = (SKELETONS / f"{skeleton}.{ending}").read_text(encoding="utf-8")
        text = text.replace("PLAYERS = 2", f"PLAYERS = {arguments.players}")
        texts[f"{name}.{ending}"] = text.replace(NAMES[kind], name).replace(_class_name(NAMES[kind]), class_name)
    files = [f"{name}.py", f"test_{name}.py", f"{name}.toml"]
    for file in map(Path, files):
        if file.exists():
            raise ConfigurationError(f"{file}: exists already, and is left as it is")
    for file in map(Path, files):
        with resources("write", file):
            replace_file(file, texts[file.name].encode(), durable=False)
    print(f"wrote {', '.join(files)}; next:")
    print(f"python -m pytest test_{name}.py")
    print(f"python -m evo.run {name}.toml --plugin {name}")
    return 0


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _wrong_name(name: str) -> str:
    if keyword.iskeyword(name):
        return "is a word of Python; choose another name, as my_game"
    if re.fullmatch("[a-z0-9_]*[a-z0-9]", name):
        return f"a name begins with a letter, as my_{name.lstrip('_')} does"
    return "a name begins with a letter, and has small letters, digits and _, as my_game does"


def _shadowed(kind: str, name: str) -> str:
    """Return what a file of this name would hide, or what else has the name; nothing where it is free."""
    from evo.config.checking import RESERVED

    if kind == "algorithm" and name in RESERVED:
        return f"an experiment has a section [{name}] already"
    others = [place for place in sys.path if Path(place).resolve() != Path.cwd()]
    found = PathFinder.find_spec(name, others)
    installed = found is not None and found.loader is not None  # not a mere folder
    if installed or name in sys.stdlib_module_names | {*OURS} or Path(name, "__init__.py").exists():
        return "there is a module of this name, which the file would hide from Python"
    return ""
