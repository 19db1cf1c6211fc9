"""Every metric, sign of the diagnosis and column of a comparison is explained where it stands, and on the pages."""

from __future__ import annotations

import re
from pathlib import Path

import evo.diagnosis
from evo.comparison.formats import METHODS, PAIRS
from evo.report import meanings

DOCS = Path(__file__).parents[2] / "docs"


def first_columns(page: str, after: str, before: str) -> list[str]:
    """Return the first cells of all rows of tables between two headings of a page."""
    text = (DOCS / page).read_text().split(f"\n{after}\n")[1].split(f"\n{before}\n")[0]
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]


def test_every_metric_of_the_page_has_a_meaning_and_no_other_one() -> None:
    listed = " ".join(first_columns("file-formats.md", "## The metrics", "## Exit codes"))
    names = set(re.findall(r"`(\w+)`", listed)) - {"generation"}
    assert names | {"seconds"} == meanings.METRICS.keys()
    assert meanings.of_metric("best_length") == "best mean value of an objective"
    assert meanings.of_metric("of_a_plug_in") == ""


def test_a_meaning_is_short_and_no_sentence() -> None:
    for means in (*meanings.METRICS.values(), *meanings.SIGNS.values()):
        assert 10 <= len(means) <= 85, means
        assert not means.endswith(".")


def test_every_sign_that_the_diagnosis_looks_at_has_a_meaning() -> None:
    folder = Path(evo.diagnosis.__file__).parent
    labels = "\n".join(
        re.findall(r"^ +label(?:, \w+)? = (.+)$", "\n".join(map(Path.read_text, folder.glob("*.py"))), re.M)
    )
    names = {name for name in re.findall(r"([A-Za-z][A-Za-z' ]+) \{", labels) if not name.startswith(("of ", "gap"))}
    assert len(names) > 10
    assert names <= meanings.SIGNS.keys()
    found = list(meanings.of_signs(["first sigma over weights 0.6", "improving mutations 10 %, sigma over weights 0.3",
                                    "validation gap -0.1", "signal to noise unknown"]))  # fmt: skip
    assert [name for name, _ in found] == [
        "first sigma over weights 0.6", "improving mutations 10 %", "sigma over weights 0.3", "validation gap -0.1",
        "signal to noise unknown",
    ]  # fmt: skip


def test_every_column_of_a_comparison_is_explained_on_its_page_and_in_its_report() -> None:
    listed = first_columns("compare.md", "## The table", "## The verdict")
    columns = [column for cell in listed for column in cell.split(", ")]
    for column in METHODS[1:]:
        assert column.title in columns
        assert column.meaning
    assert all(column.meaning for column in PAIRS[2:])
