"""A run goes on with the arithmetic that it was begun with, or somebody has said that it need not."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.errors import DataError
from evo.files.layout import FINGERPRINT
from evo.store.run_directory import keep_fingerprint


def test_another_arithmetic_is_refused_with_both_named_and_nothing_is_changed(tmp_path: Path) -> None:
    keep_fingerprint(tmp_path, "cpu one")
    keep_fingerprint(tmp_path, "cpu one")
    with pytest.raises(DataError, match=r"--allow-drift(.|\n)*cpu one\n.*cpu two"):
        keep_fingerprint(tmp_path, "cpu two")
    assert (tmp_path / FINGERPRINT).read_text() == "cpu one"


def test_allowed_drift_is_kept_from_then_on(tmp_path: Path) -> None:
    keep_fingerprint(tmp_path, "cpu one")
    keep_fingerprint(tmp_path, "cpu two", allow_drift=True)
    with pytest.raises(DataError):
        keep_fingerprint(tmp_path, "cpu one")


def test_exact_arithmetic_has_no_fingerprint_and_leaves_no_file(tmp_path: Path) -> None:
    keep_fingerprint(tmp_path, "")
    assert not list(tmp_path.iterdir())
