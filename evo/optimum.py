"""Search for the vector of the highest or lowest fitness of any function, by any evolutionary algorithm."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from math import inf, isfinite, log
from pathlib import Path
from types import ModuleType
from typing import Any, Concatenate, NoReturn, ParamSpec

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evo.config.experiment import Experiment
from evo.environment import real_array
from evo.environments.problem import PREFIX, Fitness, Problem, look_anew
from evo.errors import ConfigurationError, did_you_mean, require_callable
from evo.files.layout import CHAMPION
from evo.lazy import keras
from evo.networks.candidates import Rebuilder
from evo.networks.keras_models import KerasModel, describe, is_model
from evo.plugins import registry
from evo.plugins.mistakes import OURS
from evo.records import LARGEST_FLOAT, Result
from evo.run import Row, train
from evo.setup import Setup
from evo.store.champion import encode_champion
from evo.store.run import Run
from evo.training.generation import AskTell

Options = ParamSpec("Options")
EPISODES, TESTS = 4, 100  # calls for a candidate, and for the best vector, of a function that takes a seed
DISTRIBUTIONS = ("sep_cma_es", "cma_es", "snes")  # whose usual population is 4 + 3 ln P (Hansen, 2016, table 1)


@dataclass(frozen=True)
class Optimum:
    """The best vector of a search."""

    x: NDArray[np.float32]  # [P]
    fitness: float  # what the function gives; a mean over fresh seeds, where it takes one
    run: Run  # of the search
    calls: int  # of the function, in training and validation
    model: Any = None  # the Keras model with these weights, where it began with one; else None


def _search(
    minimises: bool,
    /,
    fitness: Fitness | Problem,
    start: ArrayLike | keras.Model | int | None = None,
    *,
    lower: float = -inf,
    upper: float = inf,
    measures: Sequence[str] = (),
    algorithm: str = "sep_cma_es",
    generations: int = 200,
    seed: int = 1,
    workers: int | Mapping[str, object] = 1,
    run_dir: str | Path | None = None,
    progress: Callable[[Row], object] | None = None,
    **sections: Mapping[str, object],
) -> Optimum:
    require_callable(progress)
    problem, outer = _declared(fitness, start, minimises, lower, upper, measures), registry.searched_here.get()
    if not isinstance(workers, Mapping):
        workers = {"backend": "serial"} if _is(workers, 1) else {"count": workers}
    written_here = False
    look_anew(problem.fitness)
    try:
        with tempfile.TemporaryDirectory() as folder:
            experiment = _experiment(problem, algorithm, generations, seed, workers, sections, Path(folder))
            for row in train(experiment, run_dir):
                run_dir, written_here = row.run_dir.absolute(), True  # `progress` may change the working directory
                if progress is not None:
                    progress(row)
        assert run_dir is not None
        found = Run(run_dir, trusted=written_here)
        if found.champion_file is None:
            what = "no finite number, of at most 1e150, for any vector"
            if measures := problem.measures:
                what = f"no vector finite numbers, of at most 1e150, for all of fitness, {', '.join(measures)}"
            raise ConfigurationError(f"fitness: {problem.name} has given {what}; see {run_dir}")
        test, x = found.test, problem.inside(found.champion.weights)
        assert test is not None
    finally:
        registry.searched_here.set(outer)
    model = KerasModel(problem.model).with_weights(x) if problem.model else None
    spent, best = found.store.spent, 0.0 - test.mean if problem.minimise else test.mean
    return Optimum(x, best, found, spent.frames + spent.frames_validating, model)


def _declared_as(
    search: Callable[Concatenate[bool, Options], Optimum],
) -> Callable[[Callable[..., Optimum]], Callable[Options, Optimum]]:
    """Return what gives a function the signature of `search`, less the direction, for readers and type checkers."""

    def declared(function: Callable[..., Optimum]) -> Callable[Options, Optimum]:
        own = signature(search)
        function.__signature__ = own.replace(parameters=[*own.parameters.values()][1:])  # type: ignore[attr-defined]
        return function

    return declared


@_declared_as(_search)
def maximise(fitness: Fitness | Problem, start: Any = None, **options: Any) -> Optimum:
    """Return the vector of the highest fitness that a search finds.

    `fitness(weights, seed)` or `fitness(weights)` gets float32 [P] and returns a number; `start` is the first vector,
    or P for zeros. Of a Keras model as `start`, the weights that it trains are evolved, and `fitness` gets the model.
    Every weight is between `lower` and `upper`. Where there are `measures`, it returns a tuple: the fitness, and a
    number of each of these names, for `nsga2` and `map_elites`. `workers` (1) is their number, or the options of
    [workers]. The search has `algorithm` ("sep_cma_es"), `generations` (200), `seed` (1), `progress`, which gets the
    `Row` of every generation, and sections of an experiment, as in `sep_cma_es={"sigma": 0.3}`. A `run_dir` that holds
    this search is resumed; None: the next free one in runs/. Several workers import the function, or the `Problem`,
    from its module. ConfigurationError: an option is wrong, the function fails, workers cannot find it, or the model
    has code.
    """
    return _search(False, fitness, start, **options)


@_declared_as(_search)
def minimise(fitness: Fitness | Problem, start: Any = None, **options: Any) -> Optimum:
    """Return the vector of the lowest fitness that a search finds; arguments and errors as of `maximise`."""
    return _search(True, fitness, start, **options)


class Search:
    """A search whose fitness is computed elsewhere: `ask` for vectors, `tell` their fitness.

    `start` is the first vector [P], or P for zeros; `options` are those of the algorithm's section. Fitness is
    maximised, unless `minimise` is set. ConfigurationError: the algorithm is none of evolution, or an option is wrong.
    """

    def __init__(
        self,
        start: ArrayLike | int,
        algorithm: str = "sep_cma_es",
        *,
        seed: int = 1,
        minimise: bool = False,
        **options: object,
    ) -> None:
        if not _is(options.get("episodes", 1), 1):
            raise ConfigurationError("episodes: tell the mean over as many calls as you want; a search has one number")

        def told(weights: NDArray[np.float32]) -> float:  # of no module, so that no plug-in is loaded
            raise ConfigurationError("this fitness is told, not computed")

        problem, outer = Problem(told, start, minimise), registry.searched_here.get()
        sections = {str(algorithm): {**options, "episodes": 1}}
        try:
            experiment = _experiment(problem, algorithm, 1, seed, {"backend": "serial"}, sections)
            identity, code = experiment.identity(), experiment.code()  # code: that of `told` is no argument
            about = repr(([one for one in identity.items() if one[0] not in code], problem.first.tolist()))
            self._identity = hashlib.sha256(about.encode()).digest()
            network, environment = experiment.network(), experiment.make_environment()
            setup = Setup(experiment.run.seed, network, environment, candidates_per_task=1 << 30, start=problem.first)
            make = registry.find("algorithms", algorithm).make
            self._begun: Callable[[], AskTell] = lambda: AskTell(make(experiment.options, setup))
            self._loop = self._begun()
        finally:
            registry.searched_here.set(outer)
        self._rebuilder, self._parents = Rebuilder(network), np.empty((0, network.size), np.float32)
        self._sign, self._asked = -1.0 if minimise else 1.0, np.empty((0, network.size), np.float32)
        self.best = problem.first  # [P], the best vector so far
        self.fitness = -self._sign * inf  # of the best vector

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Search is neither pickled nor copied: keep its state(), and restore() it in one like this")

    @property
    def generation(self) -> int:
        """The number of generations that have ended."""
        return self._loop.generation

    def ask(self) -> NDArray[np.float32]:
        """Return the vectors whose fitness the search waits for; the same until `tell`.  # float32 [N, P]"""
        request = self._loop.ask()
        if request.weights is not None:
            self._parents = request.weights
        self._asked = np.concatenate([self._rebuilder.all(self._parents, task.weights) for task in request.tasks])
        return self._asked.copy()

    def tell(self, fitness: ArrayLike) -> None:
        """Take the fitness [N]; what is not finite, or beyond 1e150, ranks worst. ConfigurationError: not N numbers."""
        if not len(self._asked):
            raise ConfigurationError("fitness: ask comes first")
        try:
            with np.errstate(over="ignore"):
                values = real_array(fitness).astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ConfigurationError(f"fitness: {fitness!r:.60} is not {len(self._asked)} numbers") from None
        if values.shape != (len(self._asked),):
            raise ConfigurationError(f"fitness: {values.shape}, where {len(self._asked)} vectors were asked for")
        signed = self._sign * values
        finite = np.abs(signed) <= LARGEST_FLOAT
        first, results = 0, []
        for task in self._loop.ask().tasks:
            part = slice(first, first + len(task.weights))
            returns = np.where(finite[part], signed[part], -inf)[:, np.newaxis]
            lengths, metrics = np.ones((len(returns), 1), np.int32), np.zeros((len(returns), 1, 0), np.int64)
            results.append(Result(returns, lengths, metrics, finite[part], len(returns), len(returns)))
            first = part.stop
        if finite.any() and signed[finite].max() > self._sign * self.fitness:
            place = int(np.argmax(np.where(finite, signed, -inf)))
            self.best, self.fitness = self._asked[place].copy(), float(values[place])
        self._asked = self._asked[:0]
        self._loop.tell(results)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that is needed to go on, between `tell` and `ask`, as arrays by name."""
        algorithm, own = self._loop.algorithm, dict[str, NDArray[Any]]()
        for kind, arrays in (("state", algorithm.state()), ("record", algorithm.record())):
            own |= {f"{kind}.{name}": np.array(array) for name, array in arrays.items()}
        own |= {"generation": np.array(self.generation), "best": self.best, "fitness": np.array(self.fitness)}
        return {**own, "digest": self._digest(own)}

    def _digest(self, state: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
        """Return a digest of the arguments of this search and of all arrays of a state but this one.  # [32]"""
        digest = hashlib.sha256(self._identity)
        for name, array in sorted(state.items()):
            if name != "digest":
                digest.update(repr((name, np.asarray(array).dtype.str, np.shape(array))).encode())
                digest.update(np.asarray(array).tobytes())
        return np.frombuffer(digest.digest(), np.uint8)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned, of a search with the same arguments; ConfigurationError: it is not."""

        def part(prefix: str) -> dict[str, NDArray[Any]]:
            return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}

        given = isinstance(state, Mapping) and all(
            isinstance(name, str) and isinstance(array, np.ndarray) for name, array in state.items()
        )
        if not given or not np.array_equal(state.get("digest", ()), self._digest(state)):
            raise ConfigurationError("state: it is damaged, or not of a search with the same arguments")
        loop = self._begun()  # without what was asked for since
        loop.generation = int(state["generation"])
        if loop.generation:
            loop.algorithm.restore(part("state."), [part("record.")])
        self._loop, self._asked = loop, self._asked[:0]
        self.best, self.fitness = np.array(state["best"], np.float32), float(state["fitness"])


def _is(value: object, wanted: object) -> bool:
    """Return whether a value is the wanted one; an array, which compares its numbers, is not."""
    same = value == wanted
    return isinstance(same, bool | np.bool_) and bool(same)


def _declared(
    fitness: Fitness | Problem, start: Any, minimises: bool, lower: float, upper: float, measures: Sequence[str]
) -> Problem:
    if isinstance(fitness, Problem):
        bounded = not (_is(lower, -inf) and _is(upper, inf))
        if start is not None or minimises != fitness.minimise or bounded or measures:
            way = "minimise" if fitness.minimise else "maximise"
            raise ConfigurationError(f"a Problem has its own start and bounds, and this one is for evo.{way}")
        return fitness
    if start is None:
        raise ConfigurationError("start: give the first vector, or how many numbers it has")
    model = ""
    if is_model(start):
        model, start = describe(start)
    return Problem(fitness, start, minimises, lower, upper, model, measures)


def _experiment(
    problem: Problem,
    algorithm: str,
    generations: int,
    seed: int,
    workers: Mapping[str, object],
    sections: Mapping[str, Mapping[str, object]],
    folder: Path | None = None,
) -> Experiment:
    known = registry.names("algorithms")
    if not isinstance(algorithm, str) or algorithm not in known:
        close = did_you_mean(str(algorithm), known) or f"; there are {', '.join(known)}"
        raise ConfigurationError(f"algorithm: {algorithm!r:.60} is not known{close}")
    unused = {*sections} & {*known} - {algorithm}
    if unused:
        name = min(unused)
        raise ConfigurationError(f'{name}: is not the algorithm, which is {algorithm}; add algorithm="{name}"')
    for key, section in sections.items():
        if not isinstance(section, Mapping):
            raise ConfigurationError(f"{key}: no option of a search; others are in sections, as in {algorithm}={{...}}")
    size, count = problem.first.size, workers.get("count", 1)
    if isinstance(count, int) and count < 1:
        raise ConfigurationError(f"workers: there must be at least 1, not {count}")
    module, name, declared = _home(problem, alone=_is(workers.get("backend"), "serial"))
    environment: dict[str, object] = {"id": f"{PREFIX}{module}:{name}"}
    if not declared:
        environment |= {"size": size, "minimise": problem.minimise, "model": problem.model}
        environment["measures"] = [*problem.measures]
        bounds = {key: getattr(problem, key) for key in ("lower", "upper")}
        environment |= {key: float(value) for key, value in bounds.items() if np.ndim(value) == 0 and isfinite(value)}
    episodes, tests = (EPISODES, TESTS) if problem.seeded else (1, 1)
    own: dict[str, object] = {}
    if algorithm in DISTRIBUTIONS:
        own = {"population": 4 + int(3 * log(size)), "episodes": episodes}
    usual: dict[str, dict[str, object]] = {
        "run": {"algorithm": algorithm, "generations": generations, "seed": seed},
        "environment": environment,
        algorithm: own,
        "validation": {"episodes": tests, "finalists": 1, "every": 10 if problem.seeded else 1},
        "test": {"episodes": tests},
        "workers": {**workers},
    }
    if folder is not None and not declared and problem.first.any():
        path = folder / CHAMPION
        path.write_bytes(encode_champion(problem.first, [("0_vector_values", problem.first.shape)], {})[0])
        usual["run"]["init_from"] = str(path)
    merged: dict[str, Any] = {key: {**usual.get(key, {}), **sections.get(key, {})} for key in {**usual, **sections}}
    return Experiment.build(**merged)


def _home(problem: Problem, alone: bool) -> tuple[str, str, bool]:
    """Return the module and the name where players find a problem, and whether it is declared there with its start."""
    home = getattr(problem.fitness, "__module__", None) or "__main__"  # what C defines may have none
    own = str(home).partition(".")[0] in ("__main__", *OURS)  # no plug-in; a function of `exec` has None
    named = {} if own or home not in sys.modules else vars(sys.modules[home])
    plain = not np.ndim(problem.lower) and not np.ndim(problem.upper)  # as an experiment can say it
    for wanted in (problem, problem.fitness) if plain else (problem,):
        for name in (name for name, value in named.items() if value is wanted):
            with suppress(ConfigurationError):
                registry.load([home])
                registry.problem(home.rpartition(".")[2], name)
                return home.rpartition(".")[2], name, wanted is problem
    if not alone:
        raise ConfigurationError(
            f"workers: other processes cannot import {problem.name} of {home}; "
            "put it into a module, named `fitness` or in `problem = evo.Problem(...)`, or leave workers out"
        )
    name = getattr(problem.fitness, "__name__", "")
    name = name if name.isidentifier() else "fitness"
    here = sys.modules.setdefault(registry.HERE, ModuleType(registry.HERE))
    vars(here).update({"plugs_into": registry.PROBLEMS, name: problem})
    registry.load([registry.HERE])
    registry.searched_here.set({name: problem})
    return registry.HERE, name, False
