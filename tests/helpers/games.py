"""Games that a test writes itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def module_of(folder: Path, name: str, text: str) -> Iterator[Any]:
    """Import a module with this text, and forget it afterwards."""
    (folder / f"{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield import_module(name)
    del sys.modules[name]
