"""What is published stays true: experiment files load, and quick ones end with the published hash and score."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import median

import pytest

from benchmarks.results import CHAMPIONS, KEPT, PAGE, page
from evo.config.experiment import Experiment

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted(
    set((ROOT / "experiments").rglob("*.toml")) - set((ROOT / "experiments" / "comparisons").iterdir())
)
PUBLISHED = json.loads(KEPT.read_text())


@pytest.mark.parametrize("path", EXPERIMENTS, ids=[path.stem for path in EXPERIMENTS])
def test_a_published_experiment_loads_and_stops_by_generations(path: Path) -> None:
    if path.stem.endswith("lunarlander"):
        pytest.importorskip("Box2D")
    experiment = Experiment.load(path)
    assert experiment.generations > 0
    assert not experiment.run.budget.seconds


def test_a_published_experiment_finds_what_it_starts_from_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [path for path in EXPERIMENTS if "init_from" in tomllib.loads(path.read_text())["run"]]
    assert len(files) > 3
    assert [path for path in files if not Path(Experiment.load(path).run.init_from).is_file()] == []


@pytest.mark.long
@pytest.mark.parametrize("method", ["ga", "cma", "ppo", "a2c", "pqn", "dqn"])
def test_the_small_board_is_learned_to_its_published_score(method: str, tmp_path: Path) -> None:
    experiment = f"{method}_snake_6x6"
    seed = tomllib.loads((ROOT / "experiments" / f"{experiment}.toml").read_text())["run"].get("seed", 1)
    published = PUBLISHED["runs"][f"{experiment} {seed}"]
    words = [f"experiments/{experiment}.toml", "--run-dir", str(tmp_path / "run"), "--json"]
    words += [
        "--set",
        f"test.block={published['test']['block']}",
        "--set",
        f"test.episodes={published['test']['episodes']}",
    ]
    done = subprocess.run([sys.executable, "-m", "evo.run", *words], cwd=ROOT, capture_output=True, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    score = summary["champion"]["test"]
    assert published["arithmetic"] == "exact"  # on every machine
    assert summary["state_hash"] == published["state_hash"]
    assert score["mean"] == published["test"]["mean"]


def test_the_page_of_results_shows_what_was_measured() -> None:
    assert PAGE.read_text() == page(PUBLISHED)


def test_the_pages_state_the_mean_of_every_measured_experiment() -> None:
    pages = [ROOT / "docs" / name for name in ("experiments.md", "games.md", "gymnasium.md")]
    rows = [line for page in pages for line in page.read_text().splitlines() if ".toml" in line]
    short = [
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| [") and ".toml" in line
    ]
    assert len(short) > 5
    assert len(PUBLISHED["runs"]) > 50
    for name in sorted({run.split()[0] for run in PUBLISHED["runs"]}):
        (row,) = [row for row in rows if f"experiments/{name}.toml" in row]
        means = [run["test"]["mean"] for key, run in PUBLISHED["runs"].items() if key.split()[0] == name]
        for stated in (row, *(row for row in short if f"experiments/{name}.toml" in row)):
            assert [f"{mean:z.1f}" for mean in means if f"{mean:z.1f}" not in stated] == [], stated
            if len(means) >= 5:
                assert f"median {median(means):.1f}" in stated, stated


def test_the_seed_of_a_file_is_one_that_was_published() -> None:
    names = {run.split()[0] for run in PUBLISHED["runs"]}
    files = {name: tomllib.loads((ROOT / "experiments" / f"{name}.toml").read_text()) for name in names}
    seeds = {name: file["run"].get("seed", 1) for name, file in files.items()}
    assert {name: seed for name, seed in seeds.items() if f"{name} {seed}" not in PUBLISHED["runs"]} == {}


def test_the_list_of_champions_states_the_measured_scores() -> None:
    listed = (CHAMPIONS / "README.md").read_text()
    assert len(PUBLISHED["champions"]) > 5
    for name, test in PUBLISHED["champions"].items():
        low, high = test["ci95"]
        assert f"`{name}.h5` | {test['mean']:.2f} ({low:.2f} to {high:.2f})" in listed
