"""How all tests run: in parallel where all of them do, with signals as a terminal would have them."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from evo.plugins import directory, registry
from evo.process import HASHES
from evo.store.sandbox import reading_several
from tests.helpers.calling import ROOT, SMALL

MOST_PROCESSES = 4  # many tests start processes of their own
SHORT_EXAMPLES, LONG_EXAMPLES = 25, 200  # of a property, without the long tests and with them

# Neither a first compilation nor a busy machine is a failure. The short tests try the same examples every time; the
# long ones look for new ones, unless `--hypothesis-seed` is given.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", patient, max_examples=LONG_EXAMPLES)
settings.register_profile("short", patient, max_examples=SHORT_EXAMPLES, derandomize=True)

os.environ["PYTHONPATH"] = str(ROOT)  # of all processes that tests start, wherever they stand
os.environ.setdefault(HASHES, "0")  # so that no command that a test types begins again
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # what tests expect is a CPU's, also where there is a GPU

# Background jobs ignore SIGINT, those under nohup SIGHUP, and children inherit it.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of every property where the long tests are left out; compile a kernel in one process alone."""
    settings.load_profile("short" if config.option.markexpr == "not long" else "long")
    compile_once()


def compile_once() -> None:
    """Have processes that test side by side wait for one that compiles the same kernel, and load it from the cache."""
    places = Path(tempfile.gettempdir()) / f"snake-evo-compiling-{os.getuid()}"
    places.mkdir(mode=0o700, exist_ok=True)
    compiling = Dispatcher.compile

    def alone(self: Any, signature: Any) -> Any:
        if isinstance(self._cache, NullCache):
            return compiling(self, signature)
        with (places / f"{self.py_func.__module__}.{self.py_func.__qualname__}").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return compiling(self, signature)

    Dispatcher.compile = alone


def pytest_collection(session: pytest.Session) -> None:
    """Rewrite the assertions of a share of the tests, where other processes do those of the rest and keep them too."""
    beside = getattr(session.config, "workerinput", None)
    if beside is None:
        return
    number, count = int(beside["workerid"].removeprefix("gw")), beside["workercount"]
    for place in filter(Path.is_dir, map(session.config.invocation_params.dir.joinpath, session.config.args)):
        for file in sorted(place.rglob("test_*.py"))[number::count]:
            with suppress(Exception, pytest.skip.Exception):  # where it is collected, that is said
                import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what needs TensorFlow, so that one process has most of it: each takes seconds to import it."""
    items.sort(key=lambda item: "tensorflow" not in getattr(item, "fixturenames", ()))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many processes share the tests: one more than cores, as tests wait for processes of their own.

    None beside this one where files are named.
    """
    whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    return min(len(os.sched_getaffinity(0)) + 1, MOST_PROCESSES) if whole else 0


@pytest.fixture(scope="session", autouse=True)
def quick_readings() -> Iterator[None]:
    """Read all champions by children of one process."""
    with reading_several():
        yield


@pytest.fixture(autouse=True)
def own_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget afterwards which plug-ins a test has loaded, and from where, and what it has made."""
    registry._made_last.set("")
    monkeypatch.setattr(directory, "_theirs", {})
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a folder that holds small.toml, an experiment of a second."""
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path
