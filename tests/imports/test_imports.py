"""Imports point one way, and what must be instant imports nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from evo.plugins import registry
from tests.helpers.sampling import sampled
from tests.imports.import_picture import LAYERS, circles, folder_graph, module_graph, names_imported, parsed, text

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("snake/**/*.py"), *ROOT.glob("evo/**/*.py")])
HEAVY = {"deap", "gymnasium", "h5py", "keras", "numba", "numpy", "pydantic", "rich", "tensorflow"}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def offenders(folder: str, *forbidden: str, **options: bool) -> list[str]:
    """Return "module imports module" for every import from files under a dotted name that may not be."""
    found = []
    for path in FILES:
        if (module_name(path) + ".").startswith(folder + "."):
            for name in names_imported(path, **options):
                if any((name + ".").startswith(bad + ".") for bad in forbidden):
                    found.append(f"{module_name(path)} imports {name}")
    return found


def test_imports_go_down_between_folders() -> None:
    arrows = folder_graph()
    assert {name for arrow in arrows for name in arrow} <= set(LAYERS), "a folder without a layer"
    up = {arrow: names for arrow, names in arrows.items() if LAYERS.index(arrow[1]) > LAYERS.index(arrow[0])}
    assert up == {}


def test_no_folders_import_one_another_in_a_circle() -> None:
    folders: dict[str, set[str]] = {}
    for above, below in folder_graph():
        folders.setdefault(above, set()).add(below)
    assert circles(folders) == []


def test_no_files_import_one_another_in_a_circle() -> None:
    assert circles(module_graph()) == []


def test_imports_for_type_checking_and_in_functions_count(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    text = "import a\nif TYPE_CHECKING:\n    from b import c\ndef f():\n    import d\n"
    file.write_text(text + "if __name__ == '__main__':\n    import e\n")
    assert {*names_imported(file)} == {"a", "b.c", "d"}
    assert {*names_imported(file, only_at_import=True)} == {"a"}


def test_a_circle_is_found_wherever_it_is() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}}) == []


def test_the_picture_has_a_line_for_every_folder() -> None:
    assert [line.split()[0] for line in text().splitlines()] == list(reversed(LAYERS))


def test_snake_takes_the_form_of_games_and_what_lies_below_from_the_trainer_and_nothing_else() -> None:
    there = {line.split()[2] for line in offenders("snake", "evo")}
    assert {".".join(name.split(".")[:2]) for name in there} <= {"evo.games", "evo.randomness", "evo.records"}


def test_the_nouns_import_arrays_only() -> None:
    found = set(names_imported(ROOT / "evo" / "records.py"))
    allowed = {"__future__", "collections", "dataclasses", "enum", "typing", "numpy"}
    assert {name for name in found if name.split(".")[0] not in allowed} <= {"evo.errors.PoisonError"}


def test_algorithms_and_evaluators_never_meet() -> None:
    assert offenders("evo.algorithms", "evo.evaluators", "evo.workers.devices", "evo.store", "evo.rollouts") == []
    assert offenders("evo.evaluators", "evo.algorithms", "evo.store.store") == []
    assert (
        offenders("evo.rollouts", "evo.evaluators", "evo.algorithms", "evo.store.store", "evo.config.experiment") == []
    )
    assert offenders("evo.store", "evo.evaluators", "evo.algorithms", "evo.rollouts") == []
    assert offenders("evo.store.store", "evo.config") == []


def test_ray_is_imported_in_one_place_and_there_only_when_it_is_asked_for() -> None:
    assert offenders("evo", "ray") + offenders("snake", "ray") == []
    assert [module_name(path) for path in FILES if 'import_module("ray")' in path.read_text()] == [
        "evo.evaluators.ray.cluster"
    ]


def test_algorithms_do_not_inherit_from_one_another() -> None:
    # ERL's learner is a DQN; CMA-ME is MAP-Elites with searches of separable CMA-ES as emitters; REINFORCE has the loss
    # and the update of A2C, with other advantages.
    composed = {"erl": {"dqn"}, "cma_me": {"map_elites", "sep_cma_es"}, "reinforce": {"a2c"}}
    for name in registry.names("algorithms"):
        found = {line.split()[2].split(".")[2] for line in offenders(f"evo.algorithms.{name}", "evo.algorithms")}
        assert found == composed.get(name, set())


def test_nothing_imports_the_run_but_the_commands() -> None:
    importers = {line.split()[0] for line in offenders("evo", "evo.run", "evo.cli.main")}
    assert {name for name in importers if not name.startswith("evo.cli.")} <= {
        *("evo", "evo.__main__", "evo.run", "evo.optimum", "evo.planning.probe", "evo.testing.runs")
    }


def test_tensorflow_is_imported_inside_of_functions_only() -> None:
    assert offenders("evo", "tensorflow", "keras", only_at_import=True) == []


def test_nothing_draws_from_a_global_random_stream_or_evaluates_text() -> None:
    unwanted = offenders("evo", "random", "numpy.random", "secrets", "uuid", "marshal", "shelve", "dill")
    # DEAP's operators draw from it: it is seeded from a named stream, and restored.
    assert sorted(unwanted) == ["evo.evolution.toolbox imports random", "evo.evolution.trees imports random"]
    assert offenders("snake", "random", "secrets", "uuid", "pickle") == []
    assert {line.split()[0] for line in offenders("evo", "pickle", "cloudpickle")} <= {"evo.workers.channel"}
    for path in FILES:
        called = {
            node.func.id
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not called & {"eval", "exec", "__import__"}, path


def loaded_after(statements: str) -> set[str]:
    program = f"import sys\n{statements}\nprint('|', *{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.rsplit("|", 1)[1].split())


@pytest.mark.parametrize(
    "module",
    sampled(
        [
            "evo.evaluators.processes",
            "evo.evaluators.serial",
            "evo.algorithms.ga",
            "evo.store.store",
            "evo.config.experiment",
            "evo.workers.devices",
        ],
        *(0, 4),
    ),
)
def test_what_comes_before_pinning_leaves_tensorflow_unloaded(module: str) -> None:
    assert not loaded_after(f"import {module}") & {"tensorflow", "keras"}


@pytest.mark.parametrize(
    "command",
    sampled(["evo", "evo.run", *(f"evo {name}" for name in registry.names("cli.commands", "main"))], *range(6)),
)
def test_help_is_instant_because_it_imports_nothing_heavy(command: str) -> None:
    module, *words = command.split()
    statements = (
        f"import runpy\nsys.argv = {['x', *words, '--help']}\n"
        f"try: runpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: assert not end.code"
    )
    assert not loaded_after(statements) & HEAVY


def test_checking_an_experiment_of_evolution_leaves_tensorflow_unloaded(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    statements = f"from evo.cli import main as cli\ncli.main(['run', {str(tmp_path / 'empty.toml')!r}, '--dry-run'])"
    assert not loaded_after(statements) & {"tensorflow", "keras"}
