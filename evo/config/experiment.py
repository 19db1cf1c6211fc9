"""An experiment: all options of a run, those that can change its results, and the file that holds them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from evo.config.checking import FIXED, PROVENANCE, checked, forget_hosts, play_here
from evo.config.environments import environment_of, require_plug_ins
from evo.config.experiment_file import FLAGS, ExperimentFile, Hosts
from evo.config.identity import CONTENT, by_copies, content_of, copies_in, names_in, opponents_named
from evo.config.sections import RunOptions, TestOptions, ValidationOptions
from evo.environment import Environment, per_task
from evo.errors import ConfigurationError, DataError, did_you_mean, path_of, printable
from evo.files.layout import CONFIG, START, check_format
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.options import AlgorithmOptions, EnvironmentOptions, Section
from evo.plugins import code, registry, script
from evo.records import Evaluator
from evo.setup import LearnerOptions
from evo.toml import plain, section_text
from evo.workers.options import CANDIDATES_ON_GPU, LearnerDevices, WorkersOptions

LEARNING_RULES = "environment.training_generations, version"  # of an identity
OTHER_OPTIONS = (
    "{}: another version of snake-evo began this run, or its configuration was changed; go on with that version, or "
    "evaluate its champion.h5 by itself"
)


@dataclass(frozen=True)
class Experiment:
    """All options of a run; make one by `load` or `build`. Its sections are those of a file."""

    run: RunOptions
    environment: EnvironmentOptions  # the options of the environment that `environment.id` names
    policy: Policy  # the network
    workers: WorkersOptions  # the options of the backend that `workers.backend` names
    learner: LearnerOptions
    validation: ValidationOptions
    test: TestOptions
    sections: Mapping[str, AlgorithmOptions]  # the options of every algorithm, by its name
    other_backends: Mapping[str, Any] = field(default_factory=dict)  # options of [workers] of other backends
    path: Path = field(default=Path("experiment.toml"), compare=False)  # its file
    copies: Mapping[str, Path] = field(default_factory=dict, compare=False)  # `opponents.files` that a run has copied
    more_outputs: int = 0  # that the network of a champion has besides

    @classmethod
    def load(
        cls,
        file: str | Path,
        *changes: str,
        plugins: Sequence[registry.Plugin] = (),
        resolved: bool = False,
        hosts: Hosts = "typed",
        **flags: object,
    ) -> Experiment:
        """Return the experiment of a TOML file.

        `changes` are as those of --set, "ga.sigma=0.2"; `plugins` are modules as those of --plugin; `flags` are
        algorithm, seed, generations, workers and backend, where None sets nothing. `init_from` may be relative to the
        file's folder. A `resolved` file is a run's: `to_toml` wrote it with its provenance, and beside it are copies of
        the champions that the run started from and plays. `hosts` says what becomes of other machines, as in
        `workers.address`. "typed": `changes` may name them, and the file may not; "refused": neither may; "ignored":
        the experiment plays on this machine, unless `flags` have a backend; "kept": they stay, as nothing is played.
        ConfigurationError: all mistakes, a line each. DataError: a resolved file is cut off or of another format.
        """
        if wrong := [name for name in flags if name not in FLAGS]:
            meant = did_you_mean(wrong[0], FLAGS) or f" (there are {', '.join(FLAGS)})"
            raise ConfigurationError(f"{wrong[0]}: is no flag of an experiment{meant}")
        if not all(isinstance(change, str) for change in changes):
            raise ConfigurationError('changes are texts, one after the other, as in load(file, "ga.sigma=0.2")')
        place = path_of("file", file)
        registry.load(plugins, file)
        source, folder = ExperimentFile.read(file), place.parent
        source.hosts = hosts
        source.import_policy(folder)
        if hosts == "ignored":
            play_here(source.tables, flags.get("backend"))
        own, opponents = _named(source.tables), names_in(source.tables.get("environment"))
        source.apply(changes, flags)
        if resolved and hosts == "typed":
            forget_hosts(source.tables, used=False)
        if resolved:
            provenance = source.tables.pop(PROVENANCE, None)
            if not isinstance(provenance, Mapping):
                raise DataError(f"{file}: has no [{PROVENANCE}]; it was cut off, or an earlier snake-evo wrote it")
            check_format(provenance.get("format", 1), str(file))
            kept = (name if name == before else None for name, before in zip(_named(source.tables), own, strict=True))
            require_plug_ins(f"{folder}: this run", *kept)  # of what was typed, the mistakes are named below
        try:
            experiment = cls._checked(source, Path(file))
        except ConfigurationError as error:
            unknown = [line for line in error.args if ": unknown key" in line]
            if resolved and any(line.startswith(f"{file}:") for line in unknown):
                raise ConfigurationError(*error.args, OTHER_OPTIONS.format(folder)) from None
            raise
        start, ignored = experiment.run.init_from, hosts == "ignored"  # who looks at a run opens nothing outside of it
        if resolved:
            copies = copies_in(folder, opponents).items()  # of what was typed, the run has none
            experiment = replace(experiment, copies={name: one for name, one in copies if ignored or one.exists()})
        if resolved and source.is_typed("run", "init_from"):
            return experiment
        copy = folder / (START if resolved else start)
        copied = copy.exists() and (resolved or not Path(start).exists())
        if start and (copied or (resolved and ignored)):
            return replace(experiment, run=experiment.run.model_copy(update={"init_from": str(copy)}))
        return experiment

    @classmethod
    def build(cls, *, plugins: Sequence[registry.Plugin] = (), **sections: Mapping[str, object] | str) -> Experiment:
        """Return the experiment of these sections, as of a TOML file: `run={"seed": 3}, ga={"population": 64}`.

        `policy="mine.keras"` has the layers of a Keras model. ConfigurationError: all mistakes, a line each.
        """
        registry.load(plugins)
        source = ExperimentFile("experiment", dict(plain(sections)), {})
        source.import_policy(Path())
        return cls._checked(source, Path("experiment.toml"))

    @classmethod
    def of_champion(
        cls, file: Path, about: Mapping[str, Any], outputs: int | None = None, **flags: object
    ) -> Experiment:
        """Return the experiment that a champion's file describes as `about`, whose network has `outputs`.

        `flags` and ConfigurationError are as in `load`.
        """
        sections: dict[str, Any] = {"run": {name: about.get(name) for name in ("algorithm", "seed")}}
        for name in ("environment", "policy"):
            values = about.get(name)
            sections[name] = {k: v for k, v in values.items() if v is not None} if isinstance(values, dict) else values
        require_plug_ins(f"{printable(str(file))}: this champion", *_named(sections))
        source = ExperimentFile(printable(str(file)), sections, {})
        source.apply((), flags)
        found = cls._checked(source, file)
        usual = found.network().layers[-1].filters  # which options of the algorithm decide, and these it does not have
        environment = found.make_environment()
        if outputs is None or environment.problem is not None or outputs < environment.actions:
            return found
        return replace(found, more_outputs=outputs - usual)

    @classmethod
    def _checked(cls, source: ExperimentFile, path: Path) -> Experiment:
        sections, others = checked(source)
        own = {name: sections.pop(name) for name in (*FIXED, "environment")}
        return cls(**own, sections=sections, other_backends=others, path=path)

    def with_environment(self, changes: Sequence[str]) -> Experiment:
        """Return this experiment with other options of its environment, as ["environment.size=8"].

        ConfigurationError: an assignment is wrong, or of another section.
        """
        sections: dict[str, Any] = {"run": {"algorithm": self.algorithm, "seed": self.run.seed}}
        sections |= {name: getattr(self, name).model_dump() for name in ("environment", "policy", "workers")}
        source = ExperimentFile(printable(str(self.path)), sections, {})
        for change in changes:
            name, equals, _ = change.partition("=")
            if equals and name.partition(".")[0].strip() not in ("environment", name.strip()):
                wrong = "only options of the environment can be changed in a test"
                source.mistakes.append(f"--set {printable(name)}: {wrong}")
            else:
                source.set(change)
        changed = self._checked(source, self.path)
        usual = changed.options.extra_outputs(self.make_environment())
        return replace(changed, more_outputs=self.extra_outputs - usual)

    @property
    def algorithm(self) -> str:
        """The name of the chosen algorithm."""
        return self.run.algorithm

    @property
    def options(self) -> AlgorithmOptions:
        """The options of the chosen algorithm."""
        return self.sections[self.run.algorithm]

    @property
    def generations(self) -> int:
        """The number of generations that the run has in all."""
        return self.options.generations or self.run.generations

    @property
    def transitions_from(self) -> str:
        """Where transitions are recorded to learn from: "segments", "episodes", or "" for nowhere."""
        options = self.options
        return "episodes" if options.transitions_from and not options.plays_segments else options.transitions_from

    @property
    def extra_outputs(self) -> int:
        """The number of outputs that the algorithm's network has besides the scores of actions."""
        return self.options.extra_outputs(self.make_environment()) + self.more_outputs

    @property
    def hosts(self) -> list[str]:
        """The words of the command line for hosts that no file may name, as --set workers.address=HOST:PORT."""
        named = ((key, getattr(self.workers, key), usual) for key, usual in self.workers.in_files.items())
        words = [f"workers.{key}={value}" for key, value, usual in named if value not in usual]
        return [part for word in words for part in ("--set", word)]

    @property
    def learns(self) -> bool:
        """Whether the algorithm computes gradients."""
        return self.options.learns

    @property
    def learns_in_tensorflow(self) -> bool:
        """Whether the algorithm computes gradients in TensorFlow."""
        return self.learns and not self.learner.is_exact

    @property
    def inference(self) -> Literal["lanes", "tensorflow"]:
        """What computes networks in workers: as the policy says, or what the environment itself needs."""
        return "tensorflow" if self.environment.in_tensorflow else self.policy.player

    @property
    def learner_devices(self) -> LearnerDevices | None:
        """Where TensorFlow computes updates; None where it computes none."""
        return self.learner.place if self.learns_in_tensorflow else None

    def make_environment(self) -> Environment:
        """Return the environment that is played; ConfigurationError: a plug-in's does not keep to the protocol."""
        return environment_of(self.environment)

    def network(self) -> Network:
        """Return the network that the policy describes for this environment and algorithm."""
        return Network.of(self.policy, self.make_environment(), self.extra_outputs)

    @property
    def candidates_per_task(self) -> int:
        """The number of candidates that play in one task: more where all workers launch them on GPUs."""
        usual = self.options.candidates_per_task(self.network().flops)
        if self.workers.on_gpu and self.inference == "lanes" and self.workers.count == "auto":
            usual = max(usual, CANDIDATES_ON_GPU)
        each = per_task(self.make_environment(), self.options.candidates(), usual)
        return self.workers.candidates_per_task or each

    def identity(self) -> dict[str, Any]:
        """Return all that can change a result, by name; ConfigurationError, ResourceError: a file cannot be read."""
        from evo.kernels.lanes import ARITHMETIC as LANES

        lanes, start = self.policy.player == "lanes", self.run.init_from
        lost = self.path.name == CONFIG and not os.path.exists(start)  # the copy of a run
        identity: dict[str, Any] = {
            "algorithm": self.algorithm,
            "arithmetic": LANES if lanes else "tensorflow",
            "environment": self.environment.model_dump(),
            "init_from": start and ("missing" if lost else content_of("run.init_from", Path(start))),
            "noise": self.options.noise_recipe,
            "policy": self.policy.model_dump(),
            "seed": self.run.seed,
            "validation": self.validation.model_dump(),
            self.algorithm: self.options.model_dump(exclude={"generations"}),
        }
        identity |= self.code()
        for name, option in opponents_named(self.environment).items():
            file = self.copies.get(name, Path(name))
            identity[CONTENT + name] = content_of(option, file) if os.path.exists(file) else "missing"
        identity = by_copies(identity) if opponents_named(self.environment) else identity
        identity |= {"run.starts": self.run.searches.identity()} if self.run.starts > 1 and not self.learns else {}
        if self.learns:
            identity["learner"] = self.learner.identity()
            if self.environment.training_generations and not self.options.replays:
                identity[LEARNING_RULES] = 2  # 1: learned from what the first rules would have shown, after them too
        # As configured: how many fill a call on a GPU changes no bit.
        if not lanes and (not self.learns or self.options.candidates() > 1):
            identity["candidates_per_task"] = self.candidates_per_task
        return identity

    def code(self) -> dict[str, dict[str, str]]:
        """Return digests of the code of a user's own game and plug-ins, SHA-256 by name."""
        environment, options = self.make_environment(), repr((self.environment, self.options))
        game = {"sources": environment.sources} if environment.sources else {}
        plugins, problem = script.of_plug_ins(environment.made_by, options), environment.problem
        if problem is not None and not game:  # of a module, whose file is not all that the function reads
            module = registry.problems_in(self.environment.id.split(":")[1]).__name__
            plugins[self.environment.id] = problem.digest(problem.first, module)
        found = {code.GAME: game, code.PLUGINS: plugins}
        return {key: digests for key, digests in found.items() if digests}

    def to_toml(self, provenance: Mapping[str, object] | None = None, *, counting: bool = False) -> str:
        """Return the text of a file that loads to an equal experiment.

        `provenance` is written as a section of its own; `counting` leaves out options that have no effect.
        """
        names = ("run", "environment", "policy", "workers", "learner", "validation", "test")
        sections: dict[str, Section] = {**{name: getattr(self, name) for name in names}, **self.sections}
        ours = {name for name, one in self.sections.items() if type(one).__module__.startswith("evo.")}
        unused = {name for name, one in self.sections.items() if not one.model_fields_set} - ours
        if counting:
            unused = {*self.sections, *([] if self.learns else ["learner"])}
        sections = {name: one for name, one in sections.items() if name == self.algorithm or name not in unused}
        texts = []
        for name, section in sections.items():
            dumped = section.model_dump(exclude_none=True)
            values = {key: dumped.get(key, getattr(section, key)) for key in type(section).model_fields}
            notes = {key: info.description or "" for key, info in type(section).model_fields.items()}
            if name == "workers" and not counting:
                values |= self.other_backends
            texts.append(section_text(name, {k: v for k, v in values.items() if not isinstance(v, Section)}, notes))
        if provenance is not None:
            texts.append(section_text(PROVENANCE, provenance))
        return "\n".join(texts)


def evaluator_of(experiment: Experiment, directory: Path, transitions_from: str = "", **how: Any) -> Evaluator:
    """Return the evaluator of a run, of the backend of its [workers]; `how` goes to the backend's `make`."""
    from evo.player import RunSpec, own_code

    workers = experiment.workers
    if experiment.learns_in_tensorflow and workers.backend == "serial":  # a process has one number of its threads
        threads, threads_inter = experiment.learner.threading
        workers = workers.model_copy(update={"threads": threads, "threads_inter": threads_inter})
    spec = RunSpec(
        run_dir=directory.absolute(),
        environment=experiment.environment,
        policy=experiment.policy,
        workers=workers,
        inference=experiment.inference,
        plugins=registry.loaded(),
        extra_outputs=experiment.extra_outputs,
        learner=experiment.learner_devices,
        transitions_from=transitions_from or experiment.transitions_from,
        code=own_code(experiment.make_environment(), registry.loaded()),
    )
    evaluator: Evaluator = registry.find("evaluators", workers.backend).make(workers, spec, **how)
    return evaluator


def _named(tables: Mapping[str, Any]) -> tuple[object, ...]:
    sections = (tables.get("run"), "algorithm"), (tables.get("environment"), "id")
    return tuple(one.get(key) if isinstance(one, Mapping) else None for one, key in sections)
