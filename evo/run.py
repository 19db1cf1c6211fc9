"""The training loop: an algorithm requests tasks, an evaluator plays them, and the store commits each generation."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from inspect import GEN_CLOSED, getgeneratorstate
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from evo.errors import ConfigurationError, EvoError, notice

if TYPE_CHECKING:
    from evo.config.experiment import Experiment
    from evo.plugins.registry import Plugin
    from evo.records import Metrics
    from evo.store.champion import ChampionScore
    from evo.store.policy import Policy
    from evo.store.store import Store
    from evo.training.session import Session


def generations(session: Session) -> Iterator[Row]:
    """Play, commit, test and yield one generation after the other, until all are done or a budget is spent."""
    from evo.training.generation import play_out, shortage_named

    algorithm, store = session.algorithm, session.store
    while not session.done:
        if _leaving.is_set():
            return session.leave()
        generation = store.next_generation
        with shortage_named(session.experiment):
            metrics = play_out(algorithm.generation(generation), session.evaluator, store.publish, session.quarantine)
        session.commit(generation, metrics)
        session.report(generation, metrics)
        yield Row(generation, metrics, session.champion, algorithm.changed, store.directory, session)
    session.finish()


SCORES = ("best", "mean", "validation", "test")  # that a printed row shows, of those that it has
TITLES = {"test": "test score"}  # all others are returns


@dataclass(frozen=True)
class Row:
    """A committed generation."""

    generation: int  # from 0
    metrics: Metrics  # the line of metrics.jsonl
    champion: ChampionScore | None  # with its test score, where it has been tested
    new_champion: bool  # whether this generation brought it
    run_dir: Path
    _session: Session | None = field(default=None, repr=False, compare=False)

    @property
    def policy(self) -> Policy:
        """The network that this generation left, as a policy; of evolution, the one with the best returns in training.

        ConfigurationError: a later generation has been played; ask for it before the next row.
        """
        from evo.store.policy import Policy

        session = self._session
        if session is None or session.store.next_generation != self.generation + 1:
            raise ConfigurationError("row.policy: the run has gone on, or this is a copy; ask before the next row")
        weights = session.algorithm.algorithm.finalists(1).weights[0].copy()
        return Policy(session.experiment.network(), weights, session.experiment)

    def __getstate__(self) -> dict[str, object]:
        """Pickle what was measured: a copy has no `policy`."""
        return {**vars(self), "_session": None}

    def __str__(self) -> str:
        """Return the generation, its returns and its test score in a line."""
        shown = (f"{TITLES.get(name, name)} {self.metrics[name]:z.6g}" for name in SCORES if name in self.metrics)
        return "  ".join([f"generation {self.generation}", *shown])


def train(
    experiment: Experiment, run_dir: str | Path | None = None, *, plugins: Sequence[Plugin] = ()
) -> Iterator[Row]:
    """Train in a run directory, and yield every generation after its commit.

    A directory that holds a run of this experiment is resumed; None creates the next free one in runs/. The iteration
    may stop at any row: every generation that was yielded is committed, and the champion of that moment is validated,
    also where the interpreter ends while it holds the iterator. `plugins` are modules as those of --plugin.
    ConfigurationError: the directory holds something else, or a run whose options give other results. DataError: its
    run is damaged. LockedError: another process trains it. ResourceError: memory, disk or a worker is missing.
    """
    from evo.training.beginning import require_experiment

    require_experiment(experiment)
    stores: list[Store] = []
    rows = _rows(experiment, run_dir, plugins, stores)
    atexit.unregister(_close_all)
    atexit.register(_close_all)  # anew, so that it comes before whatever was registered meanwhile
    _open[rows] = stores
    return rows


def _rows(
    experiment: Experiment, run_dir: str | Path | None, plugins: Sequence[Plugin], stores: list[Store]
) -> Generator[Row, None, None]:
    from evo.plugins import registry
    from evo.process import interrupts_wait
    from evo.training.beginning import open_or_begin
    from evo.training.session import Session

    registry.load(plugins)
    with interrupts_wait(), open_or_begin(experiment, run_dir) as store, Session(experiment, store) as session:
        stores.append(store)
        try:
            yield from generations(session)
        except GeneratorExit:  # the iteration stops here
            session.leave()
            raise


GRACE = 5.0  # seconds in which another thread may end its generation when the interpreter ends
_leaving = threading.Event()
_open = WeakKeyDictionary[Generator[Row, None, None], "list[Store]"]()  # what `train` has returned, and its store


def _close_all() -> None:
    """Close what is not iterated to its end when the interpreter ends, while everything can still be imported."""
    _leaving.set()
    for rows, stores in list(_open.items()):
        try:
            rows.close()
        except (EvoError, KeyboardInterrupt) as error:
            notice(str(error) or "interrupted")
        except ValueError:  # another thread is in it: where it is cut off in compiled code, the interpreter may hang
            until = time.monotonic() + GRACE
            while getgeneratorstate(rows) != GEN_CLOSED and time.monotonic() < until:
                time.sleep(0.01)
            for store in stores if getgeneratorstate(rows) != GEN_CLOSED else ():
                store.flush(last=True)


if __name__ == "__main__":
    from evo.cli.main import main_run

    sys.exit(main_run())
