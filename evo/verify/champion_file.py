"""Check a champion's file by itself: play the test episodes that it states again, and compare the score."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.store.run import Run
from evo.training.testing import playing
from evo.verify import champion_origin

if TYPE_CHECKING:
    from evo.verify.verification import Report

HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
HASH_SHOWN = 12  # characters of a hash in a message


def examine(file: Path, report: Report, flags: Mapping[str, object]) -> None:
    """Report what a champion's file shows; DataError: it is none, or cannot be played here.

    `flags` are those of `Experiment.load`, and say how to play. The weights are read in a process that can
    do nothing else, and are held to their hash.
    """
    run = Run(file, flags=flags)
    about = run.champion.about
    generations, state_hash = about.get("generations"), about.get("state_hash")
    if type(generations) is int and generations > 0:
        report.generations = generations
    if isinstance(state_hash, str) and HASH.fullmatch(state_hash):
        report.state_hash = state_hash
    report.agrees.append(f"{file}: the weights have the hash and the layers that the file states")
    report.unknown.append(f"where it comes from: {_origin(about)}; `evo verify` of its run directory can check it")
    game = _provenance(about).get("game")
    if game is not None and game != run.environment.sources:
        report.unknown.append(f"{run.config.environment.id} is another game now: its code has changed since")
    with playing(run.config) as (evaluator, published):
        champion_origin.measure(run.champion, run.config, evaluator, published.publish, report)
    if not report.ok and run.config.policy.player == "tensorflow":
        report.unknown.append("its network plays in TensorFlow, whose sums depend on the machine")


def _origin(about: Mapping[str, Any]) -> str:
    """Return what the file says of its run, in words."""
    made = _provenance(about)
    parts = [f"{about.get('algorithm')} with seed {about.get('seed')}, generation {about.get('generation')}"]
    if version := made.get("version"):
        parts.append(f"snake-evo {version}")
    if commit := made.get("git_commit"):
        parts.append(f"commit {str(commit)[:HASH_SHOWN]}{'-dirty' * str(commit).endswith('-dirty')}")
    if configuration := made.get("configuration"):
        parts.append(f"configuration {str(configuration)[:HASH_SHOWN]}")
    return ", ".join(parts)


def _provenance(about: Mapping[str, Any]) -> Mapping[str, Any]:
    found = about.get("provenance")
    return found if isinstance(found, Mapping) else {}
