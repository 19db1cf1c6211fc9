"""The contract tests that users' backends get: ours pass them, and one that breaks the contract does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.testing import backend_tests

TestSerial = backend_tests("evo.evaluators.serial")
TestProcesses = backend_tests("evo.evaluators.processes", count=2)

WRONG = """
from dataclasses import replace
from evo.evaluators import serial

plugs_into = "evaluators"
Options = serial.Options


class Wrong:
    def __init__(self, inner):
        self.inner = inner

    def map(self, tasks):
        played = self.inner.map(tasks)
        return replace(played, results={results})

    def close(self):
        {close}


def make(options, spec):
    return Wrong(serial.make(options, spec))
"""


@pytest.mark.parametrize(
    ("name", "results", "close", "test"),
    [
        ("backwards", "played.results[::-1]", "pass", "test_results_are_in_the_order_of_tasks"),
        ("lossy", "played.results[:6]", "pass", "test_results_are_in_the_order_of_tasks"),
        ("unclosed", "played.results", "self.inner.threads.stop()", "test_it_can_be_closed_before_it_has_played"),
    ],
)
def test_a_backend_that_breaks_the_contract_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, results: str, close: str, test: str
) -> None:
    (tmp_path / f"{name}.py").write_text(WRONG.format(results=results, close=close))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises((AssertionError, ValueError, AttributeError)):
        getattr(backend_tests(name)(), test)()
