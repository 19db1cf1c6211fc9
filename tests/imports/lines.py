"""Files and lines of `evo` and `snake` by folder; code has no blank lines, comments and docstrings.

`python tests/imports/lines.py [ROOT]` prints the table, of another checkout where one is named.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def sources(root: Path = ROOT) -> list[Path]:
    """Return every file of both packages, relative to the root."""
    found = [*root.glob("evo/**/*.py"), *root.glob("snake/**/*.py")]
    return sorted(path.relative_to(root) for path in found)


def code_lines(source: bytes) -> int:
    """Return how many lines have code: something else than a comment or a docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    strings = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            strings |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    lines = set[int]()
    for token in tokenize.tokenize(BytesIO(source).readline):
        if token.type not in LAYOUT:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    return len(lines - strings)


def table(root: Path = ROOT) -> list[tuple[str, int, int, int]]:
    """Return a row for each folder, and a last one for all: its name, files, lines, lines of code."""
    counts: dict[str, Counter[str]] = {}
    for path in sources(root):
        source = (root / path).read_bytes()
        counted = Counter(files=1, lines=source.count(b"\n"), code=code_lines(source))
        folder = "/".join(path.parts[:2]) if len(path.parts) > 2 else path.parts[0]
        for name in (folder, "all"):
            counts.setdefault(name, Counter()).update(counted)
    order = sorted(counts, key=lambda name: (name == "all", name))
    return [(name, counts[name]["files"], counts[name]["lines"], counts[name]["code"]) for name in order]


if __name__ == "__main__":
    print(f"{'folder':<20} {'files':>6} {'lines':>7} {'code':>7}")
    for name, files, lines, code in table(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT):
        print(f"{name:<20} {files:>6,} {lines:>7,} {code:>7,}")
