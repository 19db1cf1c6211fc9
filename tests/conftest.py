"""How all tests run: in parallel where all of them do, with signals as a terminal would have them."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

from evo.plugins import registry

MOST_PROCESSES = 4  # many tests start processes of their own
SHORT_EXAMPLES, LONG_EXAMPLES = 25, 200  # of a property, without the long tests and with them

# Neither a first compilation nor a busy machine is a failure.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", patient, max_examples=LONG_EXAMPLES)
settings.register_profile("short", patient, max_examples=SHORT_EXAMPLES)

# Background jobs ignore SIGINT, those under nohup SIGHUP, and children inherit it.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of every property where the long tests are left out."""
    settings.load_profile("short" if config.option.markexpr == "not long" else "long")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many processes share the tests: one more than cores, as tests wait for processes of their own.

    None beside this one where files are named.
    """
    whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    return min(len(os.sched_getaffinity(0)) + 1, MOST_PROCESSES) if whole else 0


@pytest.fixture(autouse=True)
def own_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget afterwards which plug-ins a test has loaded, and from where."""
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))
    monkeypatch.setattr(sys, "path", list(sys.path))
