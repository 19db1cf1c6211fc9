"""A memory that is made again from what every generation did: the game is exact, so its actions are enough.

Where an environment has snapshots, a record has the "actions" [L, T] and, where a memory begins, the lanes as they were
then; where it has none, the steps themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError
from evo.learning import acting
from evo.learning.replay_buffer import Replay
from evo.records import Arrays, EnvStates, Transitions

BEGIN = "begin_"
STEPS = ("observations", "action_masks", "actions", "rewards", "ends", "next_observations", "next_action_masks")


def record_of(steps: Transitions, lanes: EnvStates | None) -> dict[str, NDArray[Any]]:
    """Return the record of a generation, played on lanes or (None) in whole episodes."""
    if lanes is not None:
        return {"actions": steps.actions.reshape(len(lanes), -1)}
    return {name: getattr(steps, name) for name in STEPS if getattr(steps, name) is not None}


def remake(replay: Replay, environment: Any, records: Iterable[Arrays]) -> None:
    """Put back the steps that belong to a memory's restored state, from the records of all generations.

    A run that took up the state of another one (a fork) begins with an empty memory. DataError where records do not
    lead to the state.
    """
    wanted, replay.written = replay.written, 0
    lanes: EnvStates | None = None
    forked = False
    for record in records:
        if "actions" not in record:
            forked = True
            continue
        count = record["actions"].size
        needless = replay.written + count <= wanted - replay.capacity  # others have replaced them by now
        if BEGIN + "first" in record:
            lanes = acting.lanes_of_arrays(record, BEGIN)
        if lanes is not None:
            steps, lanes = environment.play_again(lanes, record["actions"], not needless)
        else:
            steps = _steps_of(record)
        if needless:
            replay.skip(count)
        else:
            replay.remake(steps)
    if forked and not replay.written:
        replay.forget()
    elif replay.written != wanted:
        raise DataError(f"records of {replay.written} steps, where the state remembers {wanted}")


def _steps_of(record: Arrays) -> Transitions:
    nothing = np.empty((0, 0), np.float32)
    arrays: dict[str, Any] = {name: record.get(name) for name in STEPS}
    return Transitions(outputs=nothing, next_outputs=nothing, **arrays)
