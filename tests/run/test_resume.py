"""A run that was stopped, moved, copied and taken up again is the same run: for every algorithm that there is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.config.identity import difference
from evo.files.arrays import first_hash
from evo.files.layout import CONFIG
from evo.networks.chain import Branch
from evo.options import Section
from evo.plugins import registry
from evo.store.champion import read_champion
from evo.store.store import Store
from tests.helpers.calling import called, summary_of
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.helpers.sampling import sampled

BASE = """
[run]
generations = 4
[environment]
size = 5
observation = "ego"
starvation = 12
[policy]
conv = [[3, 3, 2]]
dense = [4]
[workers]
backend = "serial"
[learner]
threads = 1
[test]
every = 3
episodes = 8
"""
# An experiment of seconds for every algorithm, or several: add yours here. All of its state should come to matter.
TINY: dict[str, tuple[str, ...]] = {
    "ga": (
        "[ga]\npopulation = 12\nparents = 4\nelites = 2\nepisodes = 3\n",
        "[ga]\npopulation = 12\nparents = 5\nelites = 3\nepisodes = 3\n"
        'memory = 3\nselection = "tournament"\nsigma_spread = 1.0\ncrossover = "uniform"\n',
        "[ga]\npopulation = 12\nparents = 6\nelites = 3\nepisodes = 3\nmemory = 3\nislands = 3\nmigration_every = 2\n",
    ),
    "ppo": (
        "[ppo]\nenvs = 6\nhorizon = 8\nenvs_per_task = 4\nminibatches = 3\n"
        "asynchronous = true\nnormalise_rewards = true\n",
        "[ppo]\nenvs = 6\nhorizon = 8\nenvs_per_task = 4\nminibatches = 3\n"
        "target_kl = 0.01\nvalue_clip_range = 0.2\nentropy_coefficient_frames = 200\n",
    ),
    "a2c": ("[a2c]\nenvs = 6\nhorizon = 8\nenvs_per_task = 4\n",),
    "reinforce": ("[reinforce]\nepisodes = 5\nenvs_per_task = 3\n",),
    "dqn": (
        "[dqn]\nenvs = 6\nhorizon = 8\nenvs_per_task = 4\nreplay_size = 100\nlearning_starts = 40\n"
        "frames_per_update = 8\nbatch_size = 16\nsymmetry = true\n",
        "[dqn]\nenvs = 6\nhorizon = 8\nenvs_per_task = 4\nreplay_size = 100\nlearning_starts = 40\n"
        "frames_per_update = 8\nbatch_size = 16\nasynchronous = true\n",
    ),
    "nsga2": ("[nsga2]\npopulation = 12\nsurvivors = 4\nepisodes = 3\n",),
    "map_elites": (
        "[map_elites]\npopulation = 12\nreevaluated = 4\nepisodes = 3\ncheck_every = 2\ncheck_episodes = 3\n",
    ),
    "cma_me": (
        "[cma_me]\npopulation = 14\nreevaluated = 4\nemitters = 2\nepisodes = 3\ncheck_every = 2\ncheck_episodes = 3\n",
    ),
    "openai_es": ("[openai_es]\npopulation = 12\nepisodes = 3\nrestart_after = 2\n",),
    "pgpe": ("[pgpe]\npopulation = 12\nepisodes = 3\n",),
    "snes": ("[snes]\npopulation = 12\nepisodes = 3\n",),
    "sep_cma_es": (
        "[sep_cma_es]\npopulation = 12\nepisodes = 3\n",
        "[sep_cma_es]\npopulation = 6\nepisodes = 3\nrestart_after = 1\n",
    ),
    "cma_es": ("[cma_es]\npopulation = 12\nepisodes = 3\n",),
    "es": ("[es]\npopulation = 12\nparents = 3\nepisodes = 3\n",),
    "erl": (
        "[erl]\npopulation = 8\nparents = 4\nelites = 2\nepisodes = 2\nshared = 6\nexplore_episodes = 3\n"
        "replay_size = 200\nlearning_starts = 40\nframes_per_update = 16\nbatch_size = 16\nsymmetry = true\n",
        "[erl]\npopulation = 8\nparents = 4\nelites = 2\nepisodes = 2\nshared = 8\nexplore_episodes = 0\n"
        "sync_every = 2\nreplay_size = 5000\nlearning_starts = 40\nframes_per_update = 16\nbatch_size = 16\n"
        "prioritized = false\n",
    ),
    "gp": (
        "[gp]\npopulation = 12\nelites = 2\nepisodes = 3\n",
        "[gp]\npopulation = 12\nelites = 3\nepisodes = 3\nnudge = 1.0\ncrossover = 0.2\nparsimony = 1.8\n",
    ),
    "pqn": ("[pqn]\nenvs = 6\nhorizon = 8\nenvs_per_task = 4\nepochs = 2\nminibatches = 3\nasynchronous = true\n",),
}
TINY |= {
    name: (
        f"[{name}]\nenvs = 6\nhorizon = 8\nenvs_per_task = 4\nreplay_size = 100\nlearning_starts = 40\n"
        "frames_per_update = 8\nbatch_size = 16\n",
    )
    for name in ("sac", "td3")
}
BOTH_KINDS = ("ga", "ppo")  # with candidates, and with gradients


def way(name: str, number: int, long: bool) -> Any:
    return pytest.param(name, number, marks=[pytest.mark.long] if long else [])


NUMBERED = [(name, number) for name in sorted(TINY) for number in range(len(TINY[name]))]
MOVED = [way(name, number, number > 0 or name not in BOTH_KINDS) for name, number in NUMBERED]
WAYS = [way(name, number, number > 0 or name != "ga") for name, number in NUMBERED]
NAMES = [pytest.param(name, marks=[] if name in BOTH_KINDS else [pytest.mark.long]) for name in sorted(TINY)]
GENERATIONS = 4


def written(where: Path, name: str, number: int = 0) -> str:
    base = BASE.replace("conv = [[3, 3, 2]]\ndense = [4]\n", 'layers = ["tree 3"]\n') if name == "gp" else BASE
    if name in ("sac", "td3"):
        base = BASE.replace('size = 5\nobservation = "ego"\nstarvation = 12\n', 'id = "pendulum"\n')
        base = base.replace("conv = [[3, 3, 2]]\n", 'kind = "mlp"\n')
    (where / "tiny.toml").write_text(base.replace("[run]\n", f'[run]\nalgorithm = "{name}"\n') + TINY[name][number])
    return "tiny.toml"


def hashes(run: Path) -> list[str]:
    return [line.state_hash for line in Store.read(run).lines]


def test_every_algorithm_has_a_tiny_experiment_here() -> None:
    missing = set(registry.names("algorithms")) - set(TINY)
    assert not missing, f"add a tiny experiment of {', '.join(sorted(missing))} to TINY, so that its resumes are tested"


@pytest.mark.parametrize(("name", "number"), MOVED)
def test_a_run_that_moves_after_every_generation_is_the_straight_one_and_so_are_its_copies(
    tmp_path: Path, name: str, number: int
) -> None:
    file = written(tmp_path, name, number)
    straight = summary_of(tmp_path, file, "--run-dir", "straight")
    wanted = hashes(tmp_path / "straight")
    assert len(set(wanted)) == GENERATIONS
    place = "stop-1"
    summary_of(tmp_path, file, "--run-dir", place, "--generations", 1)
    for total in range(2, GENERATIONS + 1):
        moved = f"far/stop-{total}"
        os.renames(tmp_path / place, tmp_path / moved)
        if total == 3:
            shutil.copytree(tmp_path / moved, tmp_path / "copied")
            (tmp_path / "linked").symlink_to("copied")
        place = moved
        resumed = summary_of(tmp_path, "--resume", place, "--generations", total)
        assert hashes(tmp_path / place) == wanted[:total]
    copied = summary_of(tmp_path, "--resume", "linked", "--generations", GENERATIONS)
    for summary in (resumed, copied):
        for key in ("generations", "frames", "state_hash", "champion"):
            assert summary[key] == straight[key], key
    first, *others = (read_champion(tmp_path / run) for run in ("straight", place, "copied"))
    for other in others:
        assert (other.weights.tobytes(), other.about) == (first.weights.tobytes(), first.about)


@pytest.mark.parametrize(("name", "number"), WAYS)
def test_what_cannot_change_a_result_may_be_set_on_a_resume(tmp_path: Path, name: str, number: int) -> None:
    file = written(tmp_path, name, number)
    straight = summary_of(tmp_path, file, "--run-dir", "straight", "--generations", 3)
    summary_of(tmp_path, file, "--run-dir", "run", "--generations", 1)
    words = ("--set", "test.episodes=5", "--set", "test.every=1", "--set", "run.budget={frames=100000000}")
    summary_of(tmp_path, "--resume", "run", "--generations", 2, "--backend", "processes", "--workers", 2, *words)
    resumed = summary_of(tmp_path, "--resume", "run", "--generations", 3, "--set", "workers.backend=serial")
    assert (resumed["state_hash"], resumed["frames"]) == (straight["state_hash"], straight["frames"])
    assert resumed["champion"]["fitness"] == straight["champion"]["fitness"]
    assert (straight["champion"]["test"]["episodes"], resumed["champion"]["test"]["episodes"]) == (8, 5)


@pytest.mark.long
@pytest.mark.parametrize("name", ["erl", "reinforce"])
def test_whole_episodes_that_tensorflow_plays_are_recorded_as_others_and_resumed(tmp_path: Path, name: str) -> None:
    file, how = written(tmp_path, name), ("--set", "policy.inference=tensorflow")
    straight = summary_of(tmp_path, file, "--run-dir", "straight", "--generations", 3, *how)
    summary_of(tmp_path, file, "--run-dir", "run", "--generations", 1, *how)
    for total in (2, 3):
        resumed = summary_of(tmp_path, "--resume", "run", "--generations", total)
    assert (resumed["state_hash"], resumed["champion"]) == (straight["state_hash"], straight["champion"])


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_starts_a_chain_of_its_own_that_resumes_as_exactly(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, name)
    summary_of(tmp_path, file, "--run-dir", "run", "--generations", 2)
    before = snapshot(tmp_path / "run")
    fork = ("--resume", "run", "--seed", 7, "--fork")
    straight = summary_of(tmp_path, *fork, "whole", "--generations", 4)
    summary_of(tmp_path, *fork, "half", "--generations", 2)
    resumed = summary_of(tmp_path, "--resume", "runs/half", "--generations", 4)
    assert (resumed["state_hash"], resumed["champion"]) == (straight["state_hash"], straight["champion"])
    assert straight["seed"] == 7
    assert snapshot(tmp_path / "run") == before


def test_what_a_resume_cannot_read_is_not_answered_with_the_same_resume(small: Path) -> None:
    called(small, "small.toml", "--run-dir", "run", "--no-report")
    for file in (small / "run" / "records").iterdir():
        file.unlink()
    err = called(small, "resume", "run", "--generations", "9", program="evo", code=3)[1]
    assert err.splitlines()[-1].endswith(".h5: missing")


def snapshot(directory: Path) -> dict[str, bytes]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


# What may be said on a resume


def another(value: Any, annotation: Any) -> Any:
    """Return a value that an option has not, of its type."""
    if get_origin(annotation) is Literal:
        return next(choice for choice in get_args(annotation) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        first = [1] if "list[list" in str(annotation) else "relu" if "str" in str(annotation) else 1
        return value[:-1] if value else [first]
    if isinstance(value, dict):
        return {"image": Branch()} if "Branch" in str(annotation) else {**value, "max_steps": 1}
    if isinstance(value, Section):
        name, info = next(iter(type(value).model_fields.items()))
        return value.model_copy(update={name: another(getattr(value, name), info.annotation)})
    return 1  # of an option that is optional


# These say what else there is, or are of games of several players.
DECIDING = (
    ("run", "algorithm"),
    ("run", "init_from"),
    ("environment", "id"),
    ("environment", "opponents"),
    ("policy", "inference"),
)


def variants(experiment: Experiment) -> Iterator[tuple[str, str, Experiment]]:
    """Yield section, key, and the experiment with that one option changed, for every option that there is."""
    fixed = ("run", "environment", "policy", "workers", "learner", "validation", "test")
    for name in (*fixed, *experiment.sections):
        section = getattr(experiment, name) if name in fixed else experiment.sections[name]
        for key, info in type(section).model_fields.items():
            if (name, key) in DECIDING:
                continue
            changed = section.model_copy(update={key: another(getattr(section, key), info.annotation)})
            if name in fixed:
                yield name, key, replace(experiment, **{name: changed})
            else:
                yield name, key, replace(experiment, sections={**experiment.sections, name: changed})


@pytest.mark.parametrize("name", sampled(sorted(TINY), *range(0, len(TINY), 3)))
def test_every_option_is_free_on_a_resume_or_in_the_identity_and_named_where_it_differs(
    tmp_path: Path, name: str
) -> None:
    loaded = Experiment.load(tmp_path / written(tmp_path, name))
    learner = loaded.learner.model_copy(update={"arithmetic": "tensorflow"})
    experiment = replace(loaded, learner=learner)
    learns = registry.find("algorithms", name).Options.learns
    free, bound = set(), set()
    for section, key, changed in variants(experiment):
        told = difference(experiment.identity(), changed.identity())
        (bound if told else free).add((section, key))
        named = key if (section, key) == ("run", "seed") else f"{section}.{key}"
        named = "learner.arithmetic" if key == "arithmetic" else named
        assert all(line.startswith(named) for line in told), told
    deciding = {"environment", "policy", "validation", name, *(["learner"] if learns else [])}
    assert {section for section, _ in bound} == {*deciding, "run"}
    assert {key for section, key in bound if section == "run"} == {"seed", *([] if learns else ["starts"])}
    where = {("learner", key) for key in ("device", "weight", "log_placement")} if learns else set()
    idle = {"pqn": ["gamma_final"]}
    where |= {(name, key) for key in idle.get(name, ())}
    assert {(section, key) for section, key in free if section in deciding} == {(name, "generations"), *where}


@pytest.mark.parametrize("name", [name for name in sorted(TINY) if registry.find("algorithms", name).Options.learns])
def test_nothing_about_an_exact_learner_is_in_the_identity_but_its_arithmetic(tmp_path: Path, name: str) -> None:
    experiment = Experiment.load(tmp_path / written(tmp_path, name))
    assert experiment.identity()["learner"] == {"arithmetic": "gradient-1"}
    other = replace(experiment, learner=experiment.learner.model_copy(update={"threads": 7}))
    assert other.identity() == experiment.identity()
    inexact = replace(experiment, learner=experiment.learner.model_copy(update={"strategy": "mirrored"}))
    assert difference(experiment.identity(), inexact.identity()) == [
        'learner.arithmetic: "gradient-1" in the run, nothing now'
    ]


@pytest.fixture
def stopped(small: Path) -> Path:
    summary_of(small, "small.toml", "--run-dir", "run", "--generations", 2)
    return small


def test_a_resume_that_would_change_results_names_every_such_key_and_touches_nothing(stopped: Path) -> None:
    before = snapshot(stopped)
    words = (
        "--seed",
        9,
        "--set",
        "ga.sigma=0.5",
        "--set",
        "environment.rewards={fruit=2}",
        "--set",
        "policy.dense=[5]",
    )
    error = summary_of(stopped, "--resume", "run", *words, "--set", "test.episodes=5", code=2)["error"]
    assert error.splitlines()[1:] == [
        "environment.rewards.fruit: 1.0 in the run, 2.0 now",
        "ga.sigma: 0.1 in the run, 0.5 now",
        "policy.dense: [4] in the run, [5] now",
        "seed: 1 in the run, 9 now",
    ]
    assert "--fork NAME" in error
    other = summary_of(stopped, "--resume", "run", "--algorithm", "ppo", code=2)["error"]
    assert 'algorithm: "ga" in the run, "ppo" now' in other
    assert snapshot(stopped) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--algorithm", "ppo"), "another [environment] or algorithm needs another network"),
        (("--set", "policy.dense=[5]"), "another [policy]"),
        (("--set", "environment.window=3"), "another [environment]"),
        (("--set", "ga.sigma=much"), "ga.sigma: must be a number"),
    ],
)
def test_a_fork_that_could_not_take_up_the_state_is_refused(stopped: Path, words: tuple[str, ...], said: str) -> None:
    before = snapshot(stopped)
    assert said in summary_of(stopped, "--resume", "run", *words, "--fork", "other", code=2)["error"]
    assert snapshot(stopped) == before


@pytest.mark.parametrize("name", sampled(["taken", "../up", "a/b", ".", ""], 0, 1))
def test_a_fork_needs_a_plain_name_that_is_free(stopped: Path, name: str) -> None:
    summary_of(stopped, "--resume", "run", "--fork", "taken", "--generations", 2)
    before = snapshot(stopped)
    said = "runs/taken exists and is not empty" if name == "taken" else f"{name!r} is not a plain name"
    assert said in summary_of(stopped, "--resume", "run", "--fork", name, code=2)["error"]
    assert snapshot(stopped) == before


def test_a_fork_of_the_same_options_is_another_chain_all_the_same(stopped: Path) -> None:
    forked = summary_of(stopped, "--resume", "run", "--fork", "same", "--generations", 2)
    source, other = Store.read(stopped / "run"), Store.read(stopped / "runs" / "same")
    origin = {"run": first_hash(source.identity), "state": source.state_hash}
    assert other.identity == {**source.identity, "forked_from": origin}
    assert forked["state_hash"] != source.state_hash
    assert other.lines[0].frames == 0


def test_fewer_generations_than_there_are_leave_nothing_to_do(stopped: Path) -> None:
    kept = [stopped / "run" / name for name in ("manifest.jsonl", CONFIG)]
    before = [path.read_bytes() for path in kept]
    out, _ = called(stopped, "--resume", "run", "--generations", 1, "--json")
    advice = "--generations is the new total; for 1 more: --generations 3"
    assert f"nothing to do: 2 generations are done. {advice}\n" in out
    assert json.loads(out.splitlines()[-1])["generations"] == 2
    assert [path.read_bytes() for path in kept] == before
    out, _ = called(stopped, "--resume", "run")
    assert "nothing to do: 2 generations done, 2 asked for" in out


CLIMBER = ("--plugin", "tests.plugins.climber", "--algorithm", "climber")  # another file than those in evo/algorithms


@pytest.mark.long
def test_a_plug_in_s_algorithm_is_resumed_forked_and_started_from_a_champion(small: Path) -> None:
    straight = summary_of(small, "small.toml", *CLIMBER, "--run-dir", "straight")
    summary_of(small, "small.toml", *CLIMBER, "--run-dir", "run", "--generations", 2)
    forked = summary_of(small, "--resume", "run", *CLIMBER[:2], "--seed", 7, "--fork", "other", "--generations", 4)
    assert (forked["generations"], forked["seed"], forked["champion"] is None) == (4, 7, False)
    source, other = Store.read(small / "run"), Store.read(small / "runs" / "other")
    assert np.array_equal(source.read_state(1)["position"], other.read_state(0)["position"])
    resumed = summary_of(small, "--resume", "run", *CLIMBER[:2], "--generations", 4)
    assert (resumed["state_hash"], resumed["champion"]) == (straight["state_hash"], straight["champion"])
    words = (*CLIMBER, "--set", "run.init_from=run", "--generations", 1, "--seed", 1, "--run-dir", "heir")
    heir, fitness = summary_of(small, "small.toml", *words), straight["champion"]["fitness"]
    assert heir["champion"]["fitness"] >= fitness


def test_a_fork_to_an_algorithm_that_needs_other_arrays_names_what_is_missing(stopped: Path) -> None:
    before = snapshot(stopped)
    error = summary_of(stopped, "--resume", "run", *CLIMBER, "--fork", "other", code=2)["error"]
    assert "cannot continue from the state of that run: there is no array 'position'" in error
    assert snapshot(stopped) == before


@pytest.mark.long
def test_a_fork_that_fails_closes_all_that_it_opened(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary_of(small, "small.toml", "--run-dir", "first", "--generations", 1)
    begun = ("small.toml", *CLIMBER, "--set", "run.init_from=first")
    summary_of(small, *begun, "--run-dir", "run", "--generations", 1)
    closed, create = [], Store.create

    def created(*what: Any) -> Store:
        (small / "run" / "start.h5").write_bytes(b"another")
        return create(*what)

    monkeypatch.setattr(Store, "create", created)
    monkeypatch.setattr(
        registry.find("algorithms", "climber").Climber, "close", lambda algorithm: closed.append(algorithm)
    )
    error = summary_of(small, "--resume", "run", *CLIMBER[:2], "--fork", "other", code=2)["error"]
    assert "has changed while it was read" in error
    assert len(closed) == 1
    Store.open(small / "runs" / "other").close()  # nobody holds its lock
