"""Check a champion: that it comes from its run, and that it scores in test episodes what its file states."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evo.config.experiment import Experiment
from evo.errors import DataError
from evo.files.arrays import first_hash
from evo.files.durable import read_file
from evo.files.layout import CHAMPION, LARGEST_CHAMPION, READABLE
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.plugins import code
from evo.records import Evaluator, Request, Task
from evo.store import sandbox
from evo.store.champion import Champion, encode_champion, network_layers, score_in
from evo.store.checkpoints import read_record
from evo.store.metrics import finite
from evo.store.policy import INVALID_STATE, Policy
from evo.store.run import Run
from evo.training import testing
from evo.training.beginning import make_algorithm
from evo.training.generation import Publish
from evo.training.session import NAMED_BY
from evo.training.testing import playing
from evo.training.validation import Validated
from evo.verify.verification import Evidence, Report

READABLE_LARGEST = 1 << 22
HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
HASH_SHOWN = 12  # characters of a hash in a message


class ChampionFiles(NamedTuple):
    """A valid champion and its readable copy."""

    champion: Champion
    sha256: str  # of champion.h5; empty where the run has since replaced it
    copy: bytes | None  # champion.json


def read(directory: Path, report: Report) -> ChampionFiles | None:
    """Return the champion, if there is one; call this before reading the manifest, which a run writes first."""
    file = directory / CHAMPION
    if not os.path.lexists(file):
        report.unknown.append(f"{file}: missing: there is no champion yet, or a resume will write it")
        return None
    try:
        before, champion = read_file(file, most=LARGEST_CHAMPION), sandbox.read_champion(directory)
        same = read_file(file, most=LARGEST_CHAMPION) == before
        copy = read_file(path, most=READABLE_LARGEST) if os.path.lexists(path := directory / READABLE) else None
        return ChampionFiles(champion, hashlib.sha256(before).hexdigest() if same else "", copy)
    except DataError as error:
        report.disagrees.append(str(error))
        return None


def examine(files: ChampionFiles, evidence: Evidence, report: Report) -> bool:
    """Compare the facts of a champion with the run; return whether they agree."""
    file = evidence.directory / CHAMPION
    champion, about = files.champion, files.champion.about
    origin, known = about.get("generation"), about.get("generations")
    if type(origin) is not int or type(known) is not int or not 0 <= origin < known:
        report.disagrees.append(f"{file}: does not state its generation")
        return False
    if known > len(evidence.lines) and evidence.manifest.broken:
        report.unknown.append(f"{file}: is of generation {known - 1}, behind the valid part of the manifest")
        return False
    mistakes = [*_of_this_run(champion, evidence), *_lineage(champion, evidence), *_copy(files, evidence, report)]
    report.disagrees += [f"{file}: {mistake}" for mistake in mistakes]
    if mistakes:
        return False
    report.agrees.append(f"champion: from generation {origin}, as its record and the hash chain show")
    if evidence.experiment is not None:
        _compare_with_states(champion, evidence, evidence.experiment, report)
    return True


def _of_this_run(champion: Champion, evidence: Evidence) -> Iterator[str]:
    identity = evidence.manifest.identity
    yield from champion.mistakes(identity, evidence.lines)
    made = champion.about.get("provenance", {})  # files of earlier versions have none
    known = {"configuration": first_hash(identity), "game": code.game_of(identity)}
    if not isinstance(made, Mapping) or (made and any(made.get(name) != value for name, value in known.items())):
        yield "its hash of the options or of the game's sources is not that of the run"
    experiment = evidence.experiment
    if experiment is not None and list(champion.layers) != network_layers(experiment.network()):
        yield "its layers are not those of the run's network"


def _lineage(champion: Champion, evidence: Evidence) -> Iterator[str]:
    """Yield a mistake where the lineage of a champion is not that in the record of its generation."""
    about = champion.about
    generation, candidate = about["generation"], about.get("candidate")
    if candidate is None or generation not in evidence.records:
        return
    record = read_record(evidence.directory, evidence.lines[generation])
    named = {name: record[name] for name in NAMED_BY if name in record}
    if type(candidate) is not int or not all(0 <= candidate < len(array) for array in named.values()):
        yield f"generation {generation} has no candidate {candidate!r}"
    elif {name: array[candidate].item() for name, array in named.items()} != about.get("lineage"):
        yield f"its lineage is not that of candidate {candidate} in the record of generation {generation}"


def _copy(files: ChampionFiles, evidence: Evidence, report: Report) -> Iterator[str]:
    """Yield a mistake where champion.json differs; a crash between the two files leaves one of another state."""
    if files.copy is None or not files.sha256:
        return
    champion = files.champion
    try:
        expected = json.loads(encode_champion(*champion)[1]) | {"file_sha256": files.sha256}
        copy = json.loads(files.copy)
        about = copy["about"]
        known = any(line.state_hash == about["state_hash"] for line in evidence.lines)
        # It is written when it is chosen, and again when it is tested.
        other = about["state_hash"] != champion.about["state_hash"] or about["test"] is None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        yield f"its copy {READABLE} cannot be read ({error})"
        return
    if copy == expected:
        return
    if known and other:
        report.unknown.append(
            f"{evidence.directory / READABLE}: of another state than {CHAMPION}; a resume will rewrite it"
        )
    else:
        yield f"its copy {READABLE} differs"


def _compare_with_states(champion: Champion, evidence: Evidence, experiment: Experiment, report: Report) -> None:
    """Compare the weights with those in a kept checkpoint of the time when this was the champion."""
    file, about = evidence.directory / CHAMPION, champion.about
    held = sorted(evidence.states, key=lambda generation: (generation >= about["generations"], -generation))
    for generation in held:
        if generation < about["generation"]:
            continue
        with closing(make_algorithm(experiment, experiment.make_environment())) as algorithm:
            try:
                state = evidence.state(generation)
                if state is None:
                    continue
                algorithm.restore_champion(state)
            except (DataError, *INVALID_STATE) as error:
                report.disagrees.append(f"generation {generation}: its state cannot be restored ({error})")
                continue
            same = has_champion(champion, algorithm)
            if same is None and generation >= about["generations"]:
                continue  # a later champion has replaced it
            if same:
                report.agrees.append(f"champion: its weights are those of the checkpoint of generation {generation}")
            elif generation == about["generation"] == about["generations"] - 1 and not algorithm.due(generation):
                algorithm.restore(state, ())  # it is of the validation at the end of the run
                finalists = algorithm.algorithm.finalists(experiment.validation.finalists).weights
                what = "finalist of the generation in which the run ended"
                if any(weights.tobytes() == champion.weights.tobytes() for weights in finalists):
                    report.agrees.append(f"champion: its weights are those of a {what}")
                else:
                    report.disagrees.append(f"champion: it is no {what}")
            else:
                report.disagrees.append(f"{file}: is not the champion in the checkpoint of generation {generation}")
            return
    report.unknown.append(f"{file}: no checkpoint with this champion is kept")


def has_champion(champion: Champion, algorithm: Validated) -> bool | None:
    """Return whether the champion of a replay has these weights; None where its facts are different."""
    weights = algorithm.best
    facts: Mapping[str, Any] = algorithm.origin() if weights is not None else {}
    if weights is None or any(champion.about.get(name) != value for name, value in facts.items()):
        return None
    return bool(weights.tobytes() == champion.weights.tobytes())


def rebuilt(champion: Champion, network: Network, request: Request) -> bool:
    """Return whether the champion's candidate, rebuilt from the first request of its generation, has its weights."""
    task = task_of(request.tasks, champion.about["candidate"])
    if task is None:
        return False
    parents = np.empty((0, network.size), np.float32) if request.weights is None else request.weights
    weights = np.empty(network.size, np.float32)
    Rebuilder(network).rebuild(parents, task.weights, 0, weights)
    return weights.tobytes() == champion.weights.tobytes()


def task_of(tasks: Sequence[Task], candidate: int) -> Task | None:
    """Return a task of this candidate alone; None where there are fewer."""
    for task in tasks:
        if candidate < len(task.weights):
            return replace(task, weights=task.weights.some(slice(candidate, candidate + 1)))
        candidate -= len(task.weights)
    return None


def measure(
    champion: Champion | Policy, experiment: Experiment, evaluator: Evaluator, publish: Publish, report: Report
) -> None:
    """Test the champion again, and compare its score."""
    if champion.about.get("test") is None:
        report.unknown.append("the champion has no test score yet")
        return
    known = score_in(champion.about)
    if known is None:
        report.disagrees.append("the champion's test score is not in the form of one")
        return
    environment, stated = experiment.make_environment(), finite(asdict(known))
    try:
        count, block = known.episodes, known.block
        again, _ = testing.measure(champion.weights, publish, evaluator, environment, count, block=block)
        score = finite(asdict(again))
    except (DataError, *INVALID_STATE) as error:
        report.disagrees.append(f"the champion cannot be tested again ({error})")
        return
    # Intervals are computed by library functions, whose last bit depends on the machine.
    if known.mean_return is None:  # a version that did not know it wrote the file
        del score["mean_return"]
    differing = [name for name in score if not _close(stated[name], score[name])]
    if differing:
        differences = ", ".join(f"{name} {stated[name]}, replayed {score[name]}" for name in differing)
        report.replay_differs(experiment, f"the champion's test score differs: {differences}")
    else:
        report.agrees.append(f"champion: its test score on {count} episodes, measured again")


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_close, one, other))
    if one is None or other is None:
        return one is other
    try:
        return math.isclose(one, other, rel_tol=1e-9)
    except OverflowError:  # a whole number that no float can be
        return False


def examine_file(file: Path, report: Report, flags: Mapping[str, object]) -> None:
    """Report what a champion's file shows, played as `flags` say; DataError: it is none, or cannot be played here."""
    run = Run(file, flags=flags)
    about, made = run.champion.about, run.champion.about.get("provenance")
    made = made if isinstance(made, Mapping) else {}
    generations, state_hash = about.get("generations"), about.get("state_hash")
    if type(generations) is int and generations > 0:
        report.generations = generations
    if isinstance(state_hash, str) and HASH.fullmatch(state_hash):
        report.state_hash = state_hash
    report.agrees.append(f"{file}: the weights have the hash and the layers that the file states")
    parts = [f"{about.get('algorithm')} with seed {about.get('seed')}, generation {about.get('generation')}"]
    parts += [f"snake-evo {made['version']}"] if made.get("version") else []
    if commit := str(made.get("git_commit") or ""):
        parts.append(f"commit {commit[:HASH_SHOWN]}{'-dirty' * commit.endswith('-dirty')}")
    if configuration := made.get("configuration"):
        parts.append(f"configuration {str(configuration)[:HASH_SHOWN]}")
    source = ", ".join(parts)
    report.unknown.append(f"where it comes from: {source}; `evo verify` of its run directory can check it")
    game = made.get("game")
    if game is not None and game != run.environment.sources:
        report.unknown.append(f"{run.config.environment.id} is another game now: its code has changed since")
    with playing(run.config) as (evaluator, published):
        measure(run.champion, run.config, evaluator, published.publish, report)
    if not report.ok and run.config.policy.player == "tensorflow":
        report.unknown.append("its network plays in TensorFlow, whose sums depend on the machine")
