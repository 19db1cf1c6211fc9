"""The tables of a report: scores, optimism gap, ancestors, time, configuration and provenance."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from evo.config.experiment import Experiment
from evo.config.identity import MODEL, by_copies, opponents_named
from evo.errors import EvoError, counted, printable_lines
from evo.files.layout import START
from evo.networks.keras_models import layers_of
from evo.numbers import UNKNOWN, amount, duration, interval, number, percentage
from evo.options import Section
from evo.plugins import code
from evo.plugins.registry import HERE, command, registering
from evo.report.charts import TIMES, step_named
from evo.report.html import Markup, details, element, joined, quiet, table
from evo.report.records import Ancestry
from evo.report.replays import Replays
from evo.store.run import Run
from evo.toml import section_text, value_text
from evo.training.testing import Baseline

MOST_ANCESTORS = 200  # rows of the lineage, newest first
END = "END_OF_EXPERIMENT"
OF_SCRIPT = {code.MAIN, HERE}  # modules that stand for a script or notebook


def scores(runs: Sequence[Run], baselines: Mapping[str, Baseline]) -> Markup:
    """Return the test scores of champions and of players that need no learning, and what the interval says."""
    heads = ["player", "mean score", "95 % interval", "episodes", "median", "best", "won", "mean steps"]
    rows: list[list[object]] = []
    for run, score in ((run, run.score) for run in runs):
        if score is not None:
            won = UNKNOWN if score.win_rate is None else f"{percentage(score.win_rate)} %"
            exact = run.environment.is_exact  # so all episodes are one call
            within, episodes = ("exact", "1") if exact else (interval(score.ci95), f"{score.episodes:,}")
            played = [within, episodes, f"{score.median:g}", f"{score.max:g}", won, number(score.mean_length)]
            rows.append([element("b", "champion" if len(runs) == 1 else run.name), number(score.mean), *played])
    if not rows:
        return Markup("")
    for name, other in baselines.items():
        rows.append([name, number(other.mean), interval(other.ci95), f"{other.episodes:,}", *[""] * 4])
    text = (
        "The 95 % interval says where a player's mean score would lie if it played all test episodes that there could "
        "be: of a hundred such intervals, about 95 or more hold that mean. It says nothing about other seeds."
    )
    known = any(run.score is not None and run.score.episodes > 1 and not run.environment.is_exact for run in runs)
    about = quiet(text, " The other players need no learning." if baselines else "")
    return joined([table(heads, rows, range(1, 8)), *([about] if known else [])])


def optimism(run: Run, ancestry: Ancestry, replays: Replays) -> Markup:
    """Return the returns by which the champion was chosen, and how much they exceed its test return.

    Nothing where one call is exact: then no luck is in them.
    """
    if run.environment.is_exact:
        return Markup("")
    rows = list[tuple[str, float, str]]()
    born = ancestry.lineage[0].mean_return if ancestry.lineage else None
    if born is not None and run.origin is not None:
        rows.append(("training return", born, f"of generation {run.origin + 1:,}, by which it was selected"))
    if run.fitness is not None:
        rows.append(("validation return", run.fitness, "by which it became the champion"))
    test, about = replays.mean_return, f"on the first {counted(replays.episodes, 'test episode')}"
    if replays.ci95:
        about += f", 95 % interval {interval(replays.ci95)}"
    if run.score is not None and run.score.mean_return is not None:
        test, about = run.score.mean_return, f"on {counted(run.score.episodes, 'test episode')}"
    if test is None or not rows:
        return Markup("")
    listed = [[name, number(value), number(value - test), why] for name, value, why in rows]
    listed.append(["test return", number(test), "", about])
    text = quiet(
        "The champion was chosen because it did well in training and validation, partly by luck, so these returns are "
        "often too high. Test episodes chose nothing: their return is what to expect."
    )
    gaps = table(["measure", "mean", "minus test", "measured"], listed, (1, 2))
    return joined([element("h3", "Optimism gap"), text, gaps])


def ancestors(ancestry: Ancestry) -> Markup:
    """Return every ancestor of the champion that was new in its generation."""
    born = [one for one in ancestry.lineage if not one.kept]
    if not born:
        return Markup("")
    rows = list[Sequence[object]]()
    for one in born[:MOST_ANCESTORS]:
        sigma, mates = f"{one.sigma:.3g}" if one.sigma else UNKNOWN, "two parents" if one.mate else ""
        rows.append((f"{one.generation + 1:,}", f"{one.candidate:,}", number(one.mean_return), sigma, mates))
    heads = ["generation", "candidate", "training return", "mutation sigma", "born of"]
    oldest = f"the first of generation {born[-1].generation + 1:,}{', drawn at random' if ancestry.founded else ''}"
    title = f"The champion and its ancestors: {counted(len(born), 'network')}, {oldest}"
    how = quiet(
        "Sigma is the standard deviation of the mutation. "
        "evo replay RUN_DIR --generation G --candidate N --step shows one; there, G counts from 0."
    )
    return details(title, joined([table(heads, rows, (0, 1, 2, 3)), how]))


def times(runs: Sequence[Run]) -> Markup:
    """Return how long the runs took, and the shares of its parts after the first generation, which starts workers."""
    rows = []
    for run in runs:
        steady = run.metrics[1:] or run.metrics
        seconds = sum(row.get("seconds", 0.0) for row in steady)
        parts = [sum(row.get(name, 0.0) for row in steady) for name in TIMES]
        whole = 1.01 * seconds if seconds > 0 else -1.0  # rounding may bring a part above the sum
        shares = [f"{100 * part / seconds:.0f} %" if 0 <= part <= whole else UNKNOWN for part in parts]
        spent = run.store.spent
        pace = amount((spent.frames + spent.frames_validating) / spent.seconds) if spent.seconds > 0 else UNKNOWN
        played = [f"{spent.frames:,}", f"{spent.frames_validating:,}"]
        rows.append([duration(spent.seconds), *played, pace, *shares])
        if len(runs) > 1:
            rows[-1].insert(0, run.name)
    unit = step_named(runs[0])
    counts = [f"training {unit}", f"validation {unit}", f"{unit} per second"]
    heads = [*(["run"] if len(runs) > 1 else []), "time", *counts, *TIMES.values()]
    return table(heads, rows, range(len(heads) - len(TIMES) - 4, len(heads)))


def lost_workers(run: Run) -> Markup:
    """Return in which generations workers died and were replaced; nothing where none did."""
    lost = [(generation + 1, int(row.get("workers_replaced", 0))) for generation, row in enumerate(run.metrics)]
    rows = [(f"{generation:,}", f"{count:,}") for generation, count in lost if count > 0]
    if not rows:
        return Markup("")
    total = sum(count for _, count in lost)
    died = f"{counted(total, 'worker')} died and {'was' if total == 1 else 'were'} replaced"
    text = quiet(f"{died}; no result depends on it.")
    return joined([text, details("In which generations", table(["generation", "workers"], rows[:200], (0, 1)))])


def configuration(runs: Sequence[Run]) -> Markup:
    """Return every option that is not the default in one of the runs."""
    defaults, found = dict[str, str](), list[dict[str, str]]()
    for run in runs:
        changed = list(differences(run.config))
        defaults |= {name: default for name, _, default in changed}
        found.append({name: value for name, value, _ in changed})
    rows = []
    for name, default in defaults.items():
        values = [each.get(name, default) for each in found]
        kind = "b" if len(set(values)) > 1 else "code"
        rows.append([element("code", name), *(element(kind, value) for value in values), element("code", default)])
    heads = ["option", *(["value"] if len(runs) == 1 else [run.name for run in runs]), "default"]
    return joined([quiet("Every option that is not the default."), table(heads, rows, class_="configuration")])


def provenance(run: Run) -> Markup:
    """Return where a run comes from, and what to type for the same one."""
    known: Mapping[str, Any] = run.provenance
    versions = known.get("versions")
    packages = [f"{name} {version}" for name, version in sorted(versions.items())] if isinstance(versions, dict) else []
    rows: list[tuple[str, object]] = [
        ("state hash", element("code", run.store.state_hash)),
        ("generations", f"{run.store.next_generation:,} of {run.config.generations:,}"),
        ("commit", known.get("git_commit") or "not recorded"),
        ("machine", known.get("machine") or "not recorded"),
        ("Python", known.get("python") or "not recorded"),
        ("packages", ", ".join(packages) or "not recorded"),
        *((name, element("code", text)) for name, text in sorted(run.fingerprints.items())),
    ]
    where = " on a machine with the same fingerprints" if run.fingerprints else ""
    verify = element("code", command("evo", "verify", run.name))
    about = "The state hash is a checksum of everything that was trained."
    if run.fingerprints:
        about += " A fingerprint is a checksum of how this machine rounds."
    if {*_names_of_code(run)} & OF_SCRIPT or registering(run.config.environment.id) is None:
        again = (
            f"The script or notebook that began this run trains the same again, to the same state hash{where}, in a "
            "run directory of its own. No command does: what was trained is defined there."
        )
        return joined([table(["fact", "value"], rows, class_="facts"), quiet(f"{about} {again}")])
    again = f"These lines train the same again, to the same state hash{where}."
    if run.is_fork:
        again = "These lines begin anew, with the same options, not with the state that this fork began with."
    text = quiet(f"{about} {again} ", verify, " checks this run.")
    train = command("evo.run", "again.toml", "--run-dir", "again")
    typed = f"cat > again.toml <<'{END}'\n{experiment_text(run.config)}{END}\n{train}"
    lines = Markup(html.escape(printable_lines(typed)))
    return joined([table(["fact", "value"], rows, class_="facts"), text, element("pre", lines, tabindex="0")])


def _names_of_code(run: Run) -> Iterator[str]:
    """Yield the names of what a run depends on besides this program: modules, and a function of one."""
    yield from run.config.environment.id.split(":")
    yield run.config.algorithm
    plugins = run.store.identity.get(code.PLUGINS)
    yield from plugins if isinstance(plugins, Mapping) else ()


def differences(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and default of every option that is not the default, in the order of an experiment file."""
    for name, (section, changed) in _sections(experiment).items():
        for key, value in changed.items():
            info = type(section).model_fields[key]
            default = None if info.is_required() else info.get_default(call_default_factory=True)
            default = default.model_dump(exclude_none=True) if isinstance(default, Section) else default
            shown = START if (name, key) == ("run", "init_from") else value
            text = layers_of(value) if f"{name}.{key}" == MODEL else value_text(shown)
            yield f"{name}.{key}", text, "" if default is None else value_text(default)


def _with_copies(experiment: Experiment) -> Experiment:
    """Return the experiment with the run's own copies of champions' files, since those that it names may go on."""
    run, environment = experiment.run, experiment.environment
    if opponents_named(environment):
        known = by_copies({"environment": environment.model_dump()})
        environment = type(environment).model_validate(known["environment"])
    run = run.model_copy(update={"init_from": START} if run.init_from else {})
    return replace(experiment, run=run, environment=environment)


def _sections(experiment: Experiment) -> dict[str, tuple[Section, dict[str, Any]]]:
    """Return the sections that have an effect, by name, with what is not their default."""
    alike = ("run", "environment", "policy", "workers", "learner", "validation", "test")
    names = [name for name in alike if name != "learner" or experiment.learns]
    found = {**{name: getattr(experiment, name) for name in names}, experiment.algorithm: experiment.options}
    return {name: (one, one.model_dump(exclude_defaults=True, exclude_none=True)) for name, one in found.items()}


def experiment_text(experiment: Experiment) -> str:
    """Return the shortest experiment file that is known to load as the same experiment."""
    experiment = _with_copies(experiment)
    sections: dict[str, Any] = {name: changed for name, (_, changed) in _sections(experiment).items()}
    whole, again = experiment.to_toml(counting=True), ""
    with suppress(EvoError, TypeError):
        again = Experiment.build(**sections).to_toml(counting=True)
    if again != whole:
        return whole
    return "\n".join(section_text(name, values) for name, values in sections.items() if values)
