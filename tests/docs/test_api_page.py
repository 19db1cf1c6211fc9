"""docs/api.md names all that `import evo` offers, once, and every class of evo that a reader gets from it."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import evo
from evo.comparison.formats import Grid
from evo.environment import Environment
from evo.networks.network import Network
from evo.options import Section
from evo.records import EnvStates, Task, Transitions
from evo.store.store import Store
from evo.training.validation import Validated
from evo.workers.options import LearnerDevices
from tests.helpers.calling import ROOT

# Other pages tell of what is in these.
ELSEWHERE = {Environment, EnvStates, Grid, LearnerDevices, Network, Section, Store, Transitions, Validated}


@cache
def imported(module: str) -> dict[str, str]:
    """Return from which module of evo a module has its names, those too that only type checkers import."""
    nodes = ast.walk(ast.parse(inspect.getsource(sys.modules[module])))
    found = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("evo")]
    return {name.name: str(node.module) for node in found for name in node.names}


def annotations(thing: Any) -> Iterator[str]:
    """Yield what a function returns; of a class, its public fields and what its properties and methods return."""
    if not inspect.isclass(thing):
        yield str(inspect.signature(thing).return_annotation)
        return
    for name, member in {**vars(thing), **vars(thing).get("__annotations__", {})}.items():
        if not name.startswith("_") or name == "__call__":
            inner = [getattr(member, one, None) for one in ("fget", "func", "__func__")]
            function = next(filter(None, inner), member)
            yield member if isinstance(member, str) else getattr(function, "__annotations__", {}).get("return", "")


def given(thing: Any) -> Iterator[type]:
    """Yield the classes of evo that these annotations name."""
    for word in re.findall(r"[A-Z]\w+", " ".join(annotations(thing))):
        module = import_module(imported(thing.__module__).get(word, thing.__module__))
        found = getattr(module, word, None)
        if inspect.isclass(found) and found.__module__.startswith("evo."):
            yield found


def test_every_export_and_every_class_that_it_gives_is_on_the_page_once() -> None:
    paths = re.findall(r"^::: evo\.(\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(path for path in paths if "." not in path) == sorted(evo.__all__)
    homes = [path.rpartition(".") for path in paths]
    shown = [getattr(import_module(f"evo.{home}" if home else "evo"), name) for home, _, name in homes]
    assert len({id(one) for one in shown}) == len(shown)
    wanted = [
        f"{one.__module__}.{one.__name__} of {thing.__name__}"
        for thing in shown if thing is not Task
        for one in given(thing) if one not in shown and not ELSEWHERE & {*one.__mro__}
    ]  # fmt: skip
    assert wanted == []
