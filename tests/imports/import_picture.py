"""The imports between the folders of `evo` and `snake`, as a graph.

`python tests/imports/import_picture.py [--dot]` prints it.

Imports inside of functions and under `if TYPE_CHECKING` count; those of a program's entry point under
`if __name__ == "__main__"` do not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Low to high: a folder imports only folders that stand before it.
LAYERS = (
    "version", "errors", "lazy", "numbers", "clock", "process", "statistics", "toml", "mistakes", "records",
    "options", "environment", "plugins",
    "compiled", "randomness", "games", "networks", "kernels", "snake", "environments", "files", "workers", "setup",
    "rollouts", "cuda", "player", "evaluators", "learning", "evolution", "algorithms", "config", "store", "training",
    "verify", "comparison", "diagnosis", "exports", "sweeps", "report", "run", "optimum", "planning",
    "testing", "cli", "__main__", "__init__",
)  # fmt: skip

Graph = Mapping[str, set[str]]


def modules() -> dict[str, Path]:
    """Return every module of both packages by its dotted name."""
    paths = sorted([*ROOT.glob("evo/**/*.py"), *ROOT.glob("snake/**/*.py")])
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_bytes())


@cache
def names_imported(path: Path, *, only_at_import: bool = False) -> list[str]:
    """Return the dotted name of everything that a file imports; `only_at_import`: what importing it imports too."""
    found, nodes = list[str](), list[ast.AST]([parsed(path)])
    skipped = ["__name__ == '__main__'", *(["TYPE_CHECKING"] if only_at_import else [])]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in skipped:
            continue
        if only_at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += (f"{node.module}.{alias.name}" for alias in node.names)
        nodes += ast.iter_child_nodes(node)
    return found


def module_graph() -> Graph:
    """Return the modules that each module imports."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for importer, path in known.items():
        names = names_imported(path)
        found = {name if name in known else name.rpartition(".")[0] for name in names}
        graph[importer] = (found & known.keys()) - {importer}
    return graph


def folder(module: str) -> str:
    """Return the folder of a module, or its own name where it stands in `evo` itself."""
    package, _, rest = module.partition(".")
    return package if package == "snake" else rest.partition(".")[0] or "__init__"


def folder_graph() -> dict[tuple[str, str], list[str]]:
    """Return the imports "module -> module" behind every arrow between two folders."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for importer, imported in module_graph().items():
        for name in sorted(imported):
            if folder(importer) != folder(name):
                arrows.setdefault((folder(importer), folder(name)), []).append(f"{importer} -> {name}")
    return arrows


def circles(graph: Graph) -> list[list[str]]:
    """Return every set of nodes that reach one another, sorted."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        found, frontier = set[str](), [start]
        while frontier:
            new = graph.get(frontier.pop(), set()) - found
            found |= new
            frontier += new
        reached[start] = found
    together = {tuple(sorted(b for b in found if a in reached.get(b, ()))) for a, found in reached.items()}
    return sorted(list(group) for group in together if len(group) > 1)


def text() -> str:
    """Return a line a folder, high to low: what it imports, with the number of imports."""
    arrows = folder_graph()
    lines = []
    for name in reversed(LAYERS):
        below = [f"{other} {len(arrows[name, other])}" for other in reversed(LAYERS) if (name, other) in arrows]
        lines.append(f"{name:<12} -> {', '.join(below) or '-'}")
    return "\n".join(lines)


def dot() -> str:
    """Return the graph in the language of Graphviz, one rank a layer."""
    edges = (f'  "{above}" -> "{below}" [label={len(names)}];' for (above, below), names in folder_graph().items())
    return "\n".join(["digraph imports {", "  rankdir=TB; node [shape=box];", *edges, "}"])


if __name__ == "__main__":
    print(dot() if "--dot" in sys.argv[1:] else text())
