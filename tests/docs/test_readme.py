"""What the pages say exists: commands parse, experiments load, links lead somewhere."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

import evo
from evo.cli.arguments import flags
from evo.cli.main import Parser
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError
from evo.plugins import registry
from evo.store.store import Store

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN = [*PAGES, ROOT / "Makefile", ROOT / ".ci" / "run", *sorted((ROOT / "benchmarks").rglob("*.py"))]
WITHOUT_LINKS = ("cartpole.md", "results.md", "warm_starts.md")
NAMING = [path for path in WRITTEN if re.search(r"\btests/[\w/]+\.\w", path.read_text())]


def named(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def commands(page: Path) -> list[str]:
    """Every command of ours in a page: those of shell blocks, and those between backticks with an argument."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    inline = re.findall(r"`((?:python -m )?evo [^`]+|python -m evo\.run [^`]+)`", FENCE.sub("", page.read_text()))
    return [part.removeprefix(".venv/bin/") for part in [*parts, *inline]]


def parsed(words: list[str]) -> None:
    """Parse one of our commands, and load the experiment that it names; whoever is wrong raises."""
    if words[:3] == ["python", "-m", "evo.run"]:
        name, arguments = "run", words[3:]
    else:
        start = 3 if words[0] == "python" else 1
        name, arguments = words[start], words[start + 1 :]
    assert name in ("--version", *registry.names("cli.commands", "main")), f"no command {name}"
    if not arguments:
        return
    module = import_module(f"evo.cli.commands.{name}")
    parser = Parser(prog=name, allow_abbrev=False)
    module.add_arguments(parser)
    if "--help" in arguments:
        return
    given = parser.parse_args(arguments)
    reader_s = name == "run" and (given.experiment or "EXPERIMENT").startswith(("EXPERIMENT", "my_"))
    if name == "run" and not reader_s and not given.experiment.isupper():
        registry.load(given.plugin)
        Experiment.load(ROOT / given.experiment, *given.set, **flags(given))


DOCUMENTED = sorted({command for page in PAGES for command in commands(page)})


@pytest.mark.parametrize("command", DOCUMENTED)
def test_every_documented_command_parses_and_its_experiment_loads(command: str) -> None:
    words = shlex.split(command)
    if "lunarlander" in command:
        pytest.importorskip("Box2D")
    if words[0] == "evo" or (words[:2] == ["python", "-m"] and words[2].split(".")[0] == "evo"):
        parsed(words)
    elif words[:3] == ["python", "-m", "benchmarks"]:
        assert (ROOT / "benchmarks" / "__main__.py").exists()
    else:
        assert words[0] in ("python3", "python", ".ci/run"), f"what is {command}?"


def test_documented_commands_are_found() -> None:
    assert "python -m evo evaluate runs/first --episodes 5000" in DOCUMENTED
    assert "python -m evo.run experiments/ga_snake.toml" in DOCUMENTED


def test_a_command_that_does_not_exist_is_found_out() -> None:
    for wrong in ("evo nothing x", "evo replay x --backwards", "python -m evo.run experiments/none.toml"):
        with pytest.raises((AssertionError, ConfigurationError)):
            parsed(shlex.split(wrong))


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_every_link_and_every_file_that_is_named_is_there(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert targets or page.name in WITHOUT_LINKS
    for target in targets:
        assert target.startswith("https://") or (page.parent / target).exists(), target
    for path in re.findall(r"`((?:evo|snake|experiments|benchmarks|docs|tests)/[\w./-]+)`", text):
        assert "NAME" in path or (ROOT / path).exists(), path


@pytest.mark.parametrize("file", NAMING, ids=named(NAMING))
def test_every_file_of_the_tests_that_is_named_is_there(file: Path) -> None:
    found = re.findall(r"\btests/[\w/]+(?:\.\w+)+", file.read_text())
    assert found
    assert [path for path in found if not (ROOT / path).is_file()] == []


def test_every_page_is_in_the_navigation_of_the_site_or_below_one_that_links_to_it() -> None:
    told = re.findall(r"^ +- (?:[^:\n]+: )?([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    listed = {ROOT / "docs" / name for name in told if name != "index.md"}
    assert len(told) == len(listed) + 1
    assert {*(ROOT / "docs").glob("*.md")} - listed == set()
    linked = {
        (page.parent / name).resolve()
        for page in listed
        for name in re.findall(r"\]\(([\w/.-]+\.md)", page.read_text())
    }
    assert {*(ROOT / "docs").rglob("*.md")} - listed - linked == set()


@pytest.mark.parametrize("kind", ["algorithms", "environments"])
def test_every_option_stands_on_a_page_or_in_an_experiment(kind: str) -> None:
    files = [*PAGES, *(ROOT / "experiments").rglob("*.toml")]
    words = {word for file in files if file.name != "CHANGELOG.md" for word in re.findall(r"\w+", file.read_text())}
    options = {name: {*registry.find(kind, name).Options.model_fields} for name in registry.names(kind)}
    assert {name: missing for name, found in options.items() if (missing := found - words)} == {}


@pytest.mark.parametrize("heading", ["Run", "Test"])
def test_one_command_follows_the_heading(heading: str) -> None:
    section = (ROOT / "README.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = FENCE.findall(section)
    assert len(found) == 1
    assert len(found[0][1].strip().splitlines()) == 1


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1000


def test_the_citation_has_what_its_format_requires_and_the_version_of_the_program() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    told = dict(re.findall(r"^([\w-]+):[ ]?(.*)$", text, re.MULTILINE))
    assert {"cff-version", "message", "title", "authors"} <= told.keys()
    assert told["version"] == evo.__version__


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_every_experiment_that_is_written_out_loads(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "toml"):
        path = tmp_path / "example.toml"
        path.write_text(text)
        assert Experiment.load(path).algorithm in registry.names("algorithms")


def test_every_experiment_is_on_a_page_of_its_own_command() -> None:
    index = (ROOT / "docs" / "experiments.md").read_text()
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "experiments").glob("*.md"))
    games = "".join((ROOT / "docs" / page).read_text() for page in ("games.md", "several_players.md"))
    for experiment in (ROOT / "experiments" / "games").glob("*.toml"):
        assert f"(../experiments/games/{experiment.name})" in games
    for experiment in (ROOT / "experiments" / "gymnasium").glob("*.toml"):
        assert f"(../experiments/gymnasium/{experiment.name})" in (ROOT / "docs" / "gymnasium.md").read_text()
    for experiment in (ROOT / "experiments").glob("*.toml"):
        command = f"python -m evo.run experiments/{experiment.name}"
        assert f"](../experiments/{experiment.name})" in index
        assert re.search(rf"^{re.escape(command)}( --seed 1)?$", pages, re.MULTILINE)


def test_what_is_announced_does_not_exist_yet_and_everything_that_exists_is_not_announced() -> None:
    section = (ROOT / "docs" / "guarantees.md").read_text().split("\n## Limitations\n")[1].split("\n## ")[0]
    existing = set(registry.names("cli.commands", "main"))
    announced = {"verify", "watch", "report", "compare", "plan", "play", "export"}
    assert {name for name in announced if f"`{name}`" in section} == announced - existing
    assert ("`ga` is the only algorithm" in section) == (registry.names("algorithms") == ["ga"])


@pytest.mark.long
def test_every_array_of_a_state_and_a_record_is_on_the_page_of_file_formats(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    sets = ["run.generations=1", "ga.islands=1", "ga.population=4", "ga.parents=2", "ga.elites=1", "ga.episodes=1"]
    sets += ["validation.finalists=1", "validation.episodes=1", "test.episodes=2", "workers.backend=serial"]
    experiment = Experiment.load(ROOT / "experiments" / "ga_snake_6x6.toml", *sets)
    list(evo.train(experiment, directory))
    store = Store.read(directory)
    page = (ROOT / "docs" / "file-formats.md").read_text()
    arrays = {**store.read_state(0), **store.read_record(0)}
    assert arrays
    assert [name for name in arrays if f"`{name}`" not in page] == []
    for file in directory.iterdir():
        assert file.name in page
