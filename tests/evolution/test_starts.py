"""Searches begin one after the other, the best of them goes on, and such a run is as exact as any other."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.environment import Starts
from evo.errors import ConfigurationError
from evo.evolution import starts
from evo.evolution.starts import MultiStart
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import Algorithm, Arrays, Generation
from evo.run import train
from evo.setup import Setup
from evo.store.store import Store
from evo.verify.candidate import SOUND, replay_candidate
from evo.verify.replaying import verify
from tests.helpers.calling import called, small_with
from tests.helpers.sampling import sampled

SEARCHES, EACH, AFTER = 3, 4, 3  # searches, generations of each, and of the best one afterwards
SECTIONS: dict[str, dict[str, Any]] = {
    "ga": {"population": 12, "parents": 4, "episodes": 2, "sigma_path": True},
    "sep_cma_es": {"population": 8, "episodes": 2},
}


def built(algorithm: str = "ga", seed: int = 1, **run: Any) -> Experiment:
    return Experiment.build(
        run={
            "algorithm": algorithm, "seed": seed, "generations": SEARCHES * EACH + AFTER,
            "starts": SEARCHES, "start_generations": EACH, **run,
        },
        environment={
            "id": "snake", "size": 6, "starvation": 30,
            "training": [{"starvation": 12}, {"max_steps": 20}], "training_generations": EACH + 1,
        },
        policy={"kind": "linear"},
        workers={"backend": "serial"},
        validation={"episodes": 16, "every": 2},
        test={"episodes": 32, "every": 0},
        **{algorithm: SECTIONS[algorithm]},
    )  # fmt: skip


def of(experiment: Experiment, generations: int) -> Experiment:
    return replace(experiment, run=experiment.run.model_copy(update={"generations": generations}))


def medians(directory: Path) -> list[float]:
    """The median return of the candidates of every generation."""
    store = Store.read(directory)
    return [float(np.median(store.read_record(k)["return"])) for k in range(store.next_generation)]


@pytest.mark.parametrize("algorithm", sampled(SECTIONS))
def test_the_best_of_several_searches_goes_on_with_its_own_curriculum(algorithm: str, tmp_path: Path) -> None:
    won = set()
    for seed in range(1, 5):
        directory = tmp_path / str(seed)
        rows = list(train(built(algorithm, seed), directory))
        compared = medians(directory)[EACH - 1 : SEARCHES * EACH : EACH]  # the last tenth of four is one
        best = int(np.argmax(compared))
        searches = [row.metrics["start"] for row in rows]
        assert searches == [*np.repeat(range(SEARCHES), EACH), *[best] * AFTER]
        tables = [row.metrics.get("training_table") for row in rows]
        assert tables == [0, 1, 0, 1] * SEARCHES + [0, None, None]
        won.add(best)
    assert len(won) > 1


def test_a_search_is_what_it_would_be_alone(tmp_path: Path) -> None:
    list(train(built(), tmp_path / "run"))
    list(train(built(starts=1, start_generations=0), tmp_path / "alone"))
    run, alone = Store.read(tmp_path / "run"), Store.read(tmp_path / "alone")
    for number in range(EACH):
        for name, array in alone.read_record(number).items():
            assert np.array_equal(run.read_record(number)[name], array), (number, name)
    first, second = run.read_record(0)["key"], run.read_record(EACH)["key"]
    assert len({*first.tolist()} & {*second.tolist()}) <= 1  # that of no noise


def test_a_search_that_is_good_enough_goes_on_at_once(tmp_path: Path) -> None:
    list(train(built(seed=19), tmp_path / "all"))
    unit = 1000 * SECTIONS["ga"]["episodes"]  # of recorded sums
    reached = medians(tmp_path / "all")[2 * EACH - 1] / unit  # by the second search, which is better than the first
    assert reached > 0  # so that another unit would be seen
    for more in (0.0, 0.001):
        rows = list(train(built(seed=19, start_return=reached + more), tmp_path / f"{more}"))
        searches = [int(row.metrics["start"]) for row in rows]
        tables = [row.metrics.get("training_table") for row in rows]
        if more:
            assert searches[EACH * SEARCHES - 1] == SEARCHES - 1
        else:
            assert searches == [0] * EACH + [1] * (2 * EACH + AFTER)
            assert tables == [0, 1, 0, 1] * 2 + [0] + [None] * (EACH + AFTER - 1)


@pytest.mark.parametrize(
    ("seed", "enough", "expected"),
    [
        pytest.param(1, (-0.5, -0.5), [0] * 15, id="the first passes both stages"),
        pytest.param(
            9, (-0.75, -0.2), [0] * 5 + [1] * 10, id="the second does, after the first fell short in the last"
        ),
        pytest.param(3, (-0.4, -0.5), [0] * 2 + [1] * 2 + [2] * 11, id="the third does, after two in the first stage"),
        pytest.param(12, (-0.5, -0.2), [0] * 2 + [1] * 5 + [2] * 2 + [1] * 6, id="none does, and the second was last"),
    ],
)
def test_a_search_ends_after_the_stage_in_which_it_falls_short(
    seed: int, enough: tuple[float, float], expected: list[int], tmp_path: Path
) -> None:
    rows = list(train(built(seed=seed, start_generations=[2, 5], start_return=[*enough]), tmp_path))
    assert [int(row.metrics["start"]) for row in rows] == expected
    for k in range(1, len(rows)):
        if (
            expected[k] != expected[k - 1]
        ):  # a search has the curriculum from its beginning, and one that goes on has not
            begins = expected[k] not in expected[:k]
            assert rows[k].metrics.get("training_table") == (0 if begins else None)


def test_generations_of_an_earlier_stage_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "COMPARED", 1)  # all of a search's generations, were they not of an earlier stage
    list(train(built(generations=3, start_generations=EACH), tmp_path / "alone"))
    last = medians(tmp_path / "alone")[2] / (1000 * SECTIONS["ga"]["episodes"])
    assert last < 0  # so that a sum of more would be seen
    for more, search in ((0.0, 0.0), (0.1, 1.0)):
        run = {"generations": 4, "start_generations": [2, 3], "start_return": [-9.0, last + more]}
        rows = list(train(built(**run), tmp_path / f"{more}"))
        assert rows[-1].metrics["start"] == search


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        pytest.param("sep_cma_es", {"start_return": 0.0}, id="enough-sep_cma_es", marks=pytest.mark.long),
        pytest.param("ga", {"start_generations": [2, 4], "start_return": [-0.5, 5.0]}, id="stages-ga"),
        pytest.param("ga", {"start_return": 0.0}, id="enough-ga", marks=pytest.mark.long),
        *(pytest.param(name, {}, id=f"all-{name}", marks=pytest.mark.long) for name in SECTIONS),
    ],
)
def test_runs_in_parts_have_the_same_state_and_every_candidate_is_replayed(
    algorithm: str, options: dict[str, float], tmp_path: Path
) -> None:
    seed = {"ga": 5, "sep_cma_es": 3}[algorithm]  # whose first search has the lowest score
    experiment = built(algorithm, seed, keep_every=1, **options)
    list(train(experiment, tmp_path / "run"))
    for count in (2, 4, 8, 12, 13, 15):
        list(train(of(experiment, count), tmp_path / "parts"))
    run, parts = Store.read(tmp_path / "run"), Store.read(tmp_path / "parts")
    for number in range(SEARCHES * EACH + AFTER):
        state = run.read_state(number)
        assert {name: array.tobytes() for name, array in parts.read_state(number).items()} == {
            name: array.tobytes() for name, array in state.items()
        }
    assert parts.state_hash == run.state_hash
    for generation in (EACH - 1, EACH, SEARCHES * EACH - 1, SEARCHES * EACH + 1):
        assert replay_candidate(tmp_path / "run", generation, 0, 1).outcome.endswith(SOUND)


@pytest.mark.parametrize(("algorithm", "seed"), [("ga", 3), ("sep_cma_es", 2)])
def test_a_champion_of_the_last_validation_is_verified(algorithm: str, seed: int, tmp_path: Path) -> None:
    list(train(built(algorithm, seed), tmp_path / "run"))
    report = verify(tmp_path / "run", count=0)
    assert any("its weights are those of a finalist of the generation" in line for line in report.agrees)
    assert not report.disagrees


@pytest.mark.long
def test_the_processes_of_the_command_line_end_in_the_state_of_one(tmp_path: Path) -> None:
    run = "generations = 5\nstarts = 2\nstart_generations = 2"
    (tmp_path / "small.toml").write_text(small_with(run=run, ga="population = 20\nparents = 4\nsigma_path = true"))
    for backend in ("serial", "processes"):
        called(tmp_path, "small.toml", "--backend", backend, "--workers", 2, "--run-dir", backend, "--quiet")
    assert Store.read(tmp_path / "serial").state_hash == Store.read(tmp_path / "processes").state_hash


@pytest.mark.parametrize(
    "run",
    [
        {"start_generations": 0},
        {"starts": 1},
        {"starts": 1, "start_generations": 0, "start_return": 3.0},
        {"start_generations": [4, 4], "start_return": [1.0, 2.0]},
        {"start_generations": [2, 4], "start_return": 1.0},
        {"start_generations": [2, 4]},
    ],
)
def test_what_several_starts_need_goes_with_them(run: dict[str, Any]) -> None:
    told = r"run\.start_(generations|return): (there is one search; )?(set it where|must rise|one value for each)"
    with pytest.raises(ConfigurationError, match=told):
        built(**run)


def test_too_many_starts_are_all_that_is_said_of_them() -> None:
    with pytest.raises(ConfigurationError, match=r"^[^\n]*run\.starts: must be at most 1000, not 1001$"):
        built(starts=1001, start_generations=2, start_return=3.0)


def test_a_fork_is_one_search_and_says_what_to_type(tmp_path: Path) -> None:
    run = "generations = 5\nstarts = 2\nstart_generations = 2"
    (tmp_path / "small.toml").write_text(small_with(run=run, ga="population = 20\nparents = 4\nsigma_path = true"))
    called(tmp_path, "small.toml", "--run-dir", "run", "--quiet")
    words = ("--resume", "run", "--fork", "more", "--generations", 3, "--quiet")
    one = ("--set", "run.starts=1", "--set", "run.start_generations=0")
    _, said = called(tmp_path, *words, code=2)
    assert f"a fork is one search: add {' '.join(one)}\n" in said
    called(tmp_path, *words, *one)
    assert Store.read(tmp_path / "runs" / "more").next_generation == 3


def test_an_algorithm_whose_record_has_no_returns_is_refused_in_one_line() -> None:
    two = Starts(2, (1,), (0.0,))
    search = MultiStart(
        lambda setup: Silent(), Setup(1, Network.build(Policy(kind="linear"), (4,), 2), None, starts=two)
    )
    with pytest.raises(
        ConfigurationError, match=re.escape('run.starts: the record of this algorithm has no array "return"')
    ):
        next(search.generation(0))


class Silent(Algorithm):
    """Asks for nothing, and records nothing."""

    def generation(self, number: int) -> Generation:
        yield from ()
        return {}

    def record(self) -> Arrays:
        return {}


@pytest.mark.long
def test_what_learns_by_gradients_has_one_search(tmp_path: Path) -> None:
    ppo = {"envs": 8, "horizon": 8, "minibatches": 2}
    sections = {"workers": {"backend": "serial"}, "test": {"episodes": 8}, "validation": {"episodes": 8}, "ppo": ppo}
    for name, more in (("alone", {}), ("several", {"starts": 2, "start_generations": 1})):
        run = {"algorithm": "ppo", "generations": 3, **more}
        list(
            train(
                Experiment.build(run=run, environment={"id": "cartpole"}, policy={"kind": "linear"}, **sections),
                tmp_path / name,
            )
        )
    assert Store.read(tmp_path / "several").state_hash == Store.read(tmp_path / "alone").state_hash
    (tmp_path / "ga.toml").write_text(small_with(run="generations = 1\nstarts = 2\nstart_generations = 2"))
    _, said = called(tmp_path, "ga.toml", "--algorithm", "ppo", "--run-dir", "ppo", "--quiet")
    assert "run.starts is ignored: ppo computes gradients, in one search" in said
