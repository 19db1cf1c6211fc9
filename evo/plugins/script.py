"""Digests of code that the results of a run depend on: of plug-ins, and of what a script or notebook defines itself."""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, NamedTuple

from evo.plugins import code, registry

DECLARED = {"make", "Options", "fitness", "problem"}  # what a plug-in is known by
INSTALLED = {"site-packages", "dist-packages"}
ANONYMOUS = "<lambda>"
SHORT = 8  # hexadecimal digits that tell one text of a definition from another


class _Statement(NamedTuple):
    text: str
    defines: set[str]
    replaces: set[str]  # of these, without a look at what they were
    writes_out: set[str]  # of these, with the value that they have now, as in SIZE = 8: no other statement counts
    reads: set[str]  # global names
    node: ast.stmt


def of_plug_ins(made_by: Any, options: str) -> dict[str, str]:
    """Return the digests of loaded plug-ins, and that of the module which makes the environment if it is none of them.

    `made_by` is what Gymnasium makes the environment by and its arguments, if it does. `options` is a text in which
    functions of a script are named as in "__main__:function". Of a script, what the environment and the plug-in that it
    is do not read can be edited. What has no source is left out. Below the digest of a script are those of its parts.
    """
    found = {name: code.of_plugin(name) for name in registry.with_results()}
    named = re.findall(rf"\b{code.MAIN}:(\w+)", options)
    names, arguments = DECLARED.union(named) if registry.script_has_results() else set[str](), None
    if made_by is not None:
        by: Any = made_by[0]
        arguments = made_by[1]
        while isinstance(by, functools.partial):
            by, arguments = by.func, [arguments, by.args, by.keywords]
        parts = (
            by.split(":")
            if isinstance(by, str)
            else [str(getattr(by, key, "")) for key in ("__module__", "__qualname__")]
        )
        module, name = parts[0], parts[-1].partition(".")[0]
        if module == code.MAIN and name == ANONYMOUS:
            inner = [*code.with_inner(by.__code__)]
            names = names.union(*(one.co_names for one in inner))
            constants = [one for each in inner for one in each.co_consts if isinstance(one, str | float | bool | int)]
            arguments = [arguments, constants]
        elif module == code.MAIN:
            names.add(name)
        elif module.partition(".")[0] not in {one.partition(".")[0] for one in found} and _is_own(module):
            found[module] = code.of_plugin(module)
        around = [getattr(cell, "cell_contents", None) for cell in getattr(by, "__closure__", None) or ()]
        if module == code.MAIN and (inside := [one for one in around if isinstance(one, code.NUMBERS)]):
            arguments = [arguments, inside]
    digest, defined = _of_main(names)
    if digest:
        with suppress(ValueError, RecursionError):  # they hold themselves
            digest += json.dumps(arguments, default=_plain, skipkeys=True)
        whole = hashlib.sha256(digest.encode()).hexdigest()
        found[code.MAIN] = "\n".join([whole, *(f"{defined[name]} {name}" for name in sorted(defined))])
    return found


def _plain(value: Any) -> Any:
    """Return an array as lists, a member of an Enum as its name, and any other object as the name of its type."""
    return value.tolist() if hasattr(value, "tolist") else getattr(value, "name", type(value).__name__)


def _is_own(module: str) -> bool:
    if module.partition(".")[0] not in (*code.OWN_PACKAGES, "gymnasium"):
        with suppress(ImportError, ValueError):
            spec = find_spec(module)
            file = Path((spec and spec.origin) or "")
            return file.suffix == ".py" and not INSTALLED & {*file.parts}
    return False


def _of_main(names: set[str]) -> tuple[str, dict[str, str]]:
    """Return a digest of the statements that define these names and all that they read, with files that they import.

    With it are digests of each of the names and files, which say what differs.
    """
    file = getattr(sys.modules[code.MAIN], "__file__", None)
    known = vars(sys.modules[code.MAIN]).get("In")  # the cells of a notebook
    cells: Sequence[Any] = [_text(file)] if file else known if isinstance(known, list) else ()
    left: list[_Statement] = []
    for cell in cells if names else ():
        own = [*_statements(str(cell))]
        anew = {name for one in own for name in one.replaces}
        left = [one._replace(defines=one.defines - anew) for one in left] + own
    written = set[str]().union(*(one.writes_out for one in left))
    left = [one._replace(defines=one.defines - written | one.writes_out) for one in left]
    chosen, wanted = list[_Statement](), names
    while more := [one for one in left if one.defines & wanted]:
        chosen, left = chosen + more, [one for one in left if one not in more]
        wanted = wanted.union(*(one.reads for one in more))
    if not any(one.defines & names for one in chosen):
        return "", {}
    folder = Path(file).parent if file else Path()
    modules = code.with_helpers({path for one in chosen for path in code.imported_from(folder, one.node)}, folder)
    texts, defined = sorted({one.text for one in chosen}), set[str]().union(*(one.defines for one in chosen))
    named = {name: {one.text for one in chosen if name in one.defines} for name in defined & wanted}
    parts = {name: repr(sorted(own)).encode() for name, own in named.items()}
    values = _computed((defined & wanted) - written, chosen)
    parts |= {name: parts[name] + value.encode() for name, value in values.items()}
    parts |= {path.relative_to(folder).as_posix(): path.read_bytes() for path in modules}
    short = {name: hashlib.sha256(text).hexdigest()[:SHORT] for name, text in parts.items()}
    whole = repr(texts) + (repr(sorted(values.items())) if values else "")
    return hashlib.sha256(whole.encode() + code.digest_of(folder, modules)).hexdigest(), short


def _computed(names: set[str], statements: Sequence[_Statement]) -> dict[str, str]:
    """Return the numbers and texts of these names, which statements compute; of classes, those in their attributes."""
    found, now = dict[str, str](), vars(sys.modules[code.MAIN])
    nodes = [one for statement in statements for one in ast.walk(statement.node)]
    kept = {name for one in nodes if isinstance(one, ast.Global) for name in one.names}  # as a counter of calls
    kept |= {one.attr for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)}
    for one in (one for node in nodes if isinstance(node, ast.ClassDef) for one in node.body):
        if isinstance(one, ast.Assign) and _is_written_out(one.value):
            kept |= {target.id for target in one.targets if isinstance(target, ast.Name)}
    for name in names - kept:
        of_class = vars(now[name]) if isinstance(now.get(name), type) else {}
        known = {key: one for key, one in of_class.items() if not key.startswith("__") and key not in kept}
        values = [f"{key}{one!r}" for key, one in {**known, "": now.get(name)}.items() if isinstance(one, code.NUMBERS)]
        found |= {name: " ".join(values)} if values else {}
    return found


def _is_written_out(node: ast.expr) -> bool:
    with suppress(ValueError, TypeError, RecursionError):
        ast.literal_eval(node)
        return True
    return False


def _statements(text: str) -> Iterator[_Statement]:
    """Yield the statements of a module, also those below an `if`; of no Python, none."""
    tree, lines, now = ast.Module([], []), text.split("\n"), vars(sys.modules[code.MAIN])
    with suppress(SyntaxError, ValueError):
        tree = ast.parse(text)
    left = tree.body[::-1]
    while left:
        node = left.pop()
        if isinstance(node, ast.If):
            left += [*node.body, *node.orelse][::-1]
            continue
        imported = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
        if imported[1:]:
            left += [type(node)(**{**vars(node), "names": [one]}) for one in imported]
            continue
        defines = {one.id for it in getattr(node, "targets", ()) for one in ast.walk(it) if isinstance(one, ast.Name)}
        reads, before = set[str](), set[str]()
        with suppress(SyntaxError):
            whole = compile(ast.Module([node], []), "", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            for one in code.with_inner(whole):
                for step in dis.get_instructions(one):
                    if step.opname in ("STORE_NAME", "STORE_GLOBAL") and (one is whole or "GLOBAL" in step.opname):
                        defines.add(step.argval)
                    elif step.opname == "LOAD_NAME" or step.opname.endswith(("LOAD_GLOBAL", "OR_GLOBALS")):
                        reads.add(step.argval)
                        before |= {step.argval} if one is whole else set()
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            with suppress(ImportError, KeyError):  # it has not run
                name = resolve_name("." * node.level + (node.module or ""), now.get("__package__"))
                defines = {name for name, value in vars(sys.modules[name]).items() if now.get(name, now) is value}
        replaces, writes_out = defines - before, set[str]()
        with suppress(ValueError, TypeError, RecursionError):  # it has no value, or computes one
            value = ast.literal_eval(getattr(node, "value", None))  # type: ignore[arg-type]
            writes_out = {name for name in replaces if type(now.get(name)) is type(value) and now[name] == value}
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        own = ast.unparse(node) if imported else "\n".join(lines[first - 1 : node.end_lineno]).strip()
        yield _Statement(own, defines, replaces, writes_out, reads, node)


@functools.cache
def _text(file: str) -> str:
    """Return the source of a script as it was at the first look."""
    with suppress(OSError, ValueError):
        return Path(file).read_text("utf-8")
    return ""
