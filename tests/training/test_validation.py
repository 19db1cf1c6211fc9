"""The champion is chosen by validation episodes alone, for every algorithm, and a fork begins without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest

from evo.config.sections import ValidationOptions
from evo.errors import ConfigurationError
from evo.randomness.streams import Purpose, episode_keys
from evo.records import WORST, Algorithm, Arrays, Finalists, Generation, Metrics, Request, Result
from evo.training.validation import Validated
from tests.helpers import generations

OPTIONS = ValidationOptions(every=3, episodes=70, finalists=2)
Values = Sequence[int]  # the return of every episode, by finalist


class Counting(Algorithm):
    """An algorithm that plays nothing; its networks are the number of the generation, and that with a fraction."""

    def __init__(self, numbered: bool = True) -> None:
        self.number, self.numbered, self.records = -1, numbered, [{"some": np.zeros(1)}]

    def generation(self, number: int) -> Generation:
        self.number = number
        yield from ()
        return {"frames": 5.0, "slots": 6.0, "mean": 1.0}

    def finalists(self, count: int) -> Finalists:
        weights = np.array([[self.number, k / 8] for k in range(3)], np.float32)
        return Finalists(weights[:count], [10, 11, 12][:count] if self.numbered else None)

    def state(self) -> Arrays:
        return {"number": np.array([self.number])}

    def record(self) -> Arrays:
        return {"number": np.array([self.number])}

    def restore(self, state: Arrays, records: Iterable[Arrays]) -> None:
        self.number, self.records = int(state["number"][0]), list(records)


def drive(validated: Validated, number: int, values: Values) -> tuple[Metrics, list[Request]]:
    """Run a generation in which the finalists of every request have these returns in all episodes."""
    asked = list[Request]()

    def answer(request: Request) -> list[Result]:
        asked.append(request)
        return answers(request, values)

    return generations.drive(validated, number, answer), asked


def answers(request: Request, values: Values) -> list[Result]:
    """Return results in which every finalist has its return in all episodes."""
    results = []
    for task in request.tasks:
        value, episodes = values[int(task.weights.rows[0])], len(task.play.seeds)
        returns, lengths = np.full((1, episodes), value, np.int64), np.ones((1, episodes), np.int32)
        finite = np.array([value != WORST])
        results.append(Result(returns, lengths, np.zeros((1, episodes, 0), np.int32), finite, episodes, episodes))
    return results


def test_finalists_play_the_same_greedy_episodes_in_the_generations_that_are_due() -> None:
    validated = Validated(Counting(), OPTIONS, seed=4)
    asked = [drive(validated, number, [1, 2])[1] for number in range(7)]
    assert [len(requests) for requests in asked] == [1, 0, 1, 0, 0, 1, 0]
    for requests in (asked[0], asked[2]):
        assert [task.action_rule.kind for task in requests[0].tasks] == ["greedy"] * 4
        played = [
            np.concatenate([t.play.seeds for t in requests[0].tasks if t.weights.rows[0] == row]) for row in (0, 1)
        ]
        assert [seeds.tolist() for seeds in played] == [episode_keys(4, Purpose.VALIDATION, 0, 70).tolist()] * 2


def test_the_best_finalist_becomes_the_champion_and_stays_it_until_one_is_strictly_better() -> None:
    validated = Validated(Counting(), OPTIONS, seed=4)
    metrics, _ = drive(validated, 0, [2000, 3000])
    assert validated.best is not None
    assert validated.best.tolist() == [0, 1 / 8]
    assert validated.origin() == {"fitness": 3.0, "generation": 0, "candidate": 11}
    assert validated.changed
    assert metrics == {
        **metrics,
        "validation": 3.0,
        "frames": 5.0,
        "slots": 6.0,
        "frames_validating": 140.0,
        "mean": 1.0,
    }
    assert drive(validated, 1, [])[0]["validation"] == 3.0
    drive(validated, 2, [3000, 1])
    assert (validated.origin()["generation"], validated.changed) == (0, False)
    drive(validated, 5, [3001, 3001])
    assert validated.origin() == {"fitness": 3.001, "generation": 5, "candidate": 10}


def test_a_finalist_that_is_not_finite_is_no_champion() -> None:
    validated = Validated(Counting(), OPTIONS, seed=4)
    assert np.isnan(drive(validated, 0, [WORST, WORST])[0]["validation"])
    assert validated.best is None
    drive(validated, 2, [WORST, -7000])
    assert validated.origin()["candidate"] == 11


def test_a_finalist_with_fewer_calls_that_are_not_finite_is_better_and_then_the_mean_of_the_others_counts() -> None:
    def drive_calls(validated: Validated, number: int, values: Sequence[tuple[float, int]]) -> None:
        def answer(request: Request) -> list[Result]:
            results = answers(request, [0] * len(values))
            for task, result in zip(request.tasks, results, strict=True):
                value, lost = values[int(task.weights.rows[0])]
                returns = np.full(result.returns.shape, value)
                returns[0, : lost if returns.size == 64 else 0] = -np.inf
                object.__setattr__(result, "returns", returns)
            return results

        generations.drive(validated, number, answer)

    first, second = (Validated(Counting(), OPTIONS, seed=4, calls=True) for _ in range(2))
    drive_calls(first, 0, [(9.0, 2), (1.0, 1)])
    assert first.origin() == {"fitness": 1.0, "generation": 0, "candidate": 11}
    second.restore(first.state(), [])
    drive_calls(second, 2, [(5.0, 1), (8.0, 2)])
    assert second.origin() == {"fitness": 5.0, "generation": 2, "candidate": 10}
    drive_calls(second, 5, [(9.0, 1), (0.5, 0)])
    assert second.origin() == {"fitness": 0.5, "generation": 5, "candidate": 11}
    assert second.state()["champion_origin"].shape == (3,)


def test_where_candidates_have_no_numbers_the_champion_has_none() -> None:
    validated = Validated(Counting(numbered=False), OPTIONS, seed=4)
    drive(validated, 0, [1, 2])
    assert validated.origin() == {"fitness": 0.002, "generation": 0}


def test_what_a_run_starts_from_is_validated_before_its_first_generation() -> None:
    validated = Validated(Counting(), OPTIONS, 4, np.array([7, 7], np.float32))
    metrics, asked = drive(validated, 0, [9000, 1000])
    assert [request.weights.tolist() for request in asked] == [[[7, 7]], [[0, 0], [0, 1 / 8]]]
    assert metrics["start_validation"] == 9
    assert validated.best.tolist() == [7, 7]
    assert validated.origin() == {"fitness": 9.0, "generation": 0}
    assert "start_validation" not in drive(validated, 2, [1, 1])[0]


def test_a_checkpoint_holds_the_champion_and_gives_the_algorithm_its_own_arrays_and_records() -> None:
    straight, resumed = Validated(Counting(), OPTIONS, 4), Validated(Counting(), OPTIONS, 4)
    drive(straight, 0, [1, 2])
    records = [{"number": np.zeros(1)}]
    resumed.restore(straight.state(), records)
    assert resumed.origin() == straight.origin()
    assert resumed.best.tobytes() == straight.best.tobytes()
    assert resumed.algorithm.records == records
    assert {name: array.tobytes() for name, array in resumed.state().items()} == {
        name: array.tobytes() for name, array in straight.state().items()
    }


def test_a_fork_has_the_state_no_records_and_no_champion() -> None:
    source, forked = Validated(Counting(), OPTIONS, 4), Validated(Counting(), OPTIONS, 4)
    drive(source, 0, [1, 2])
    forked.fork(source.state())
    assert (forked.algorithm.number, forked.algorithm.records) == (0, [])
    assert forked.best is None
    assert not forked.state()["champion"].size


@pytest.mark.parametrize(
    "spoil", [lambda state: {}, lambda state: {"number": np.zeros(0)}, lambda state: {"number": 3}]
)
def test_a_fork_that_an_algorithm_cannot_take_is_one_line(spoil: Callable[[Arrays], Arrays]) -> None:
    with pytest.raises(ConfigurationError, match="cannot continue from the state"):
        Validated(Counting(), OPTIONS, 4).fork(spoil({}))


def test_an_algorithm_may_not_use_the_names_of_the_trainer() -> None:
    class Taking(Counting):
        def state(self) -> Arrays:
            return {"champion": np.zeros(1)}

    with pytest.raises(ValueError, match="champion"):
        Validated(Taking(), OPTIONS, 4).state()


def test_the_generation_in_which_a_run_ends_is_validated_without_a_trace_in_its_state() -> None:
    validated = Validated(Counting(), OPTIONS, seed=4)
    drive(validated, 0, [2000, 3000])
    drive(validated, 1, [])
    state = validated.state()
    assert not validated.due(1)
    rounds = validated.last(1)
    request = rounds.send(None)
    assert [task.weights.rows[0] for task in request.tasks] == [0, 0, 1, 1]
    with pytest.raises(StopIteration):
        rounds.send(answers(request, [4000, 1000]))
    assert validated.changed
    assert validated.origin() == {"fitness": 4.0, "generation": 1, "candidate": 10}
    validated.restore_champion(state)
    assert validated.origin() == {"fitness": 3.0, "generation": 0, "candidate": 11}
