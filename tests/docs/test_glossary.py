"""The glossary: each term is used elsewhere, has one sentence, and leads to a section that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "glossary.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| term")
]
OTHERS = "".join(
    path.read_text().casefold()
    for path in [DOCS.parent / "README.md", *DOCS.glob("*.md")]
    if path.name != "glossary.md"
)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.casefold()).replace(" ", "-") for heading in headings}


def test_there_are_enough_terms_and_not_too_many() -> None:
    assert 20 <= len(ROWS) <= 40
    assert len({row[0] for row in ROWS}) == len(ROWS)
    assert "](docs/glossary.md)" in (DOCS.parent / "README.md").read_text().split("\n## Documentation\n")[1]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_term_is_used_has_one_sentence_and_a_link(row: list[str]) -> None:
    term, meaning, elsewhere, more = row
    assert re.search(rf"\b{re.escape(term.casefold())}", OTHERS)
    assert re.fullmatch(r"[A-Z0-9][^.]*\.", meaning)
    assert elsewhere
    page, _, anchor = re.fullmatch(r"\[[^]]+\]\(([^)]+)\)", more)[1].partition("#")
    assert not anchor or anchor in anchors(DOCS / page)
