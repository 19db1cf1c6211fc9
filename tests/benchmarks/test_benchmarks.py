"""The benchmarks measure what they say, and a smoke run fails on a bad ratio and on nothing else."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import comparison, game, gpu, gymnax_games, report, rollout, scaling, simulation, startup
from benchmarks.__main__ import RATIOS, RESULTS, SECTIONS, SMOKE, main, measured
from benchmarks.costs import Master, master_of_a_run
from benchmarks.peers import ENVIRONMENTS, Peer, searches
from benchmarks.pool_model import simulate
from benchmarks.report import Measured
from benchmarks.steadiness import Steadiness
from benchmarks.tables import Form, Limit, Table, failing, grid, number
from evo.config.experiment import Experiment
from evo.plugins.registry import load
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Task
from evo.rollouts.rollout import Rollout
from evo.run import train
from evo.workers import hardware
from snake.rules import Game

ROOT = Path(__file__).parents[2]


def test_a_smoke_run_fails_on_a_ratio_far_below_what_it_was_and_never_on_an_absolute_figure() -> None:
    def fails(limit: Limit, **stored: float) -> bool:
        return failing([Table("title", "note", ("a",), [["b"]], [limit])], stored) == [limit]

    assert not fails(Limit("ours", 3.6, 5.0, ratio=True))
    assert fails(Limit("ours", 3.4, 5.0, ratio=True))
    assert not fails(Limit("ours", 3.4, 5.0, ratio=True), ours=4.8)
    assert fails(Limit("ours", 6.0, 5.0, ratio=True), ours=9.0)
    assert fails(Limit("ours", 3.4, 5.0, ratio=True), others=4.8)
    assert not fails(Limit("ours", 1.0, 5.0), ours=9.0)
    assert not fails(Limit("memory", 0.6, 0.5, most=True, ratio=True), memory=0.1)
    assert fails(Limit("memory", 0.8, 0.5, most=True, ratio=True))


def test_tables_are_markdown_with_every_figure_in_its_column() -> None:
    assert grid(("what", "x"), [["speed", "1,000"]]).split("\n") == [
        "| what  |     x |",
        "|-------|------:|",
        "| speed | 1,000 |",
    ]
    assert [number(value) for value in (0.01234, 12.34, 1234.0, 7654321.0)] == ["0.0123", "12.3", "1,230", "7,650,000"]


@pytest.mark.parametrize(
    ("value", "best", "most", "verdict"),
    [
        (5.0, None, False, "met"),
        (4.0, None, False, "not met"),
        (4.0, 4.9, False, "not met"),
        (4.0, 5.1, False, "met in the best round"),
        (6.0, 4.0, True, "met in the best round"),
        (5.0, 4.0, True, "met"),
    ],
)
def test_a_median_below_its_target_is_told_from_a_best_round_that_reached_it(
    value: float, best: float | None, most: bool, verdict: str
) -> None:
    assert Limit("speed", value, 5.0, most=most, best=best).row()[-1] == verdict


def test_a_column_of_best_rounds_is_there_where_a_figure_has_one() -> None:
    limits = [Limit("speed", 4.0, 5.0, best=6.0), Limit("memory", 1.0, 2.0, most=True)]
    text = Table("Both", "", ("what",), limits=limits).markdown()
    assert "| speed  |        4 |          6 |   >= 5 | met in the best round |" in text
    assert "best round" not in Table("One", "", ("what",), limits=limits[1:]).markdown()


def test_the_closed_path_wins_every_game() -> None:
    table = game.closed_path(6)
    for seed in range(5):
        played, over = Game(size=6, seed=seed), False
        while not over:
            row, column = played.body[0]
            _, over, _ = played.step(int(table[row * 6 + column, 0]))
        assert played.won


def test_the_two_networks_are_the_ones_that_are_spoken_of() -> None:
    sizes = {case.name: case.network.size for case in rollout.cases()}
    assert sizes == {"tiny": 27_460, "seed": 1_182_904}


def test_arithmetic_that_only_meets_padding_is_not_counted() -> None:
    tiny, seed = (case.network for case in rollout.cases())
    assert rollout.needed_flops(seed) == seed.flops  # valid convolutions have no padding
    same = 2 * 28 * 28 * 5 * 8  # a 3 x 3 convolution of a 10 x 10 board loses two taps at either border
    assert rollout.needed_flops(tiny) == tiny.flops - 2 * 30 * 30 * 5 * 8 + same - _stride_two_loss()


def _stride_two_loss() -> int:
    return 2 * (15 * 15 - 14 * 14) * 8 * 16  # a border of one row and column is beyond the end


@pytest.mark.long
def test_kernels_that_are_in_the_cache_are_loaded_and_not_compiled(tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text('[environment]\nsize = 5\nwindow = 5\n[policy]\nkind = "linear"\n')
    cache = str(tmp_path / "cache")
    (cold, compiled), (warm, again) = startup.kernels(cache, small), startup.kernels(cache, small)
    assert compiled > 20
    assert again == 0
    assert 0 < warm < cold / 4


@pytest.mark.long
def test_the_usual_way_plays_the_same_game() -> None:
    code = (
        "import numpy as np\n"
        "from benchmarks import rollout, seed_way\n"
        "from evo.randomness.streams import Purpose, episode_keys\n"
        "from evo.networks.candidates import Rebuilder\n"
        "case = rollout.cases()[0]\n"
        "peer, weights = seed_way.SeedWay(case.network, case.environment), np.empty(case.network.size, np.float32)\n"
        "parents = np.empty((0, case.network.size), np.float32)\n"
        "Rebuilder(case.network).rebuild(parents, rollout.fresh(1, 0), 0, weights)\n"
        "peer.set_weights(weights)\n"
        "print(peer.play(episode_keys(0, Purpose.TRAINING, 0, 8), 10_000_000))\n"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    case = rollout.cases()[0]
    seeds = episode_keys(0, Purpose.TRAINING, 0, 8)
    parents = np.empty((0, case.network.size), np.float32)
    result = Rollout(case.network, case.environment).play(Task(rollout.fresh(1, 0), Episodes(seeds)), parents)
    assert child.stdout.strip() == repr((result.episode_metrics[0, :, 0].tolist(), result.frames))


def test_every_section_of_the_benchmarks_is_a_module_and_every_module_that_measures_a_section() -> None:
    folder = ROOT / "benchmarks"
    measuring = {path.stem for path in folder.glob("*.py") if "\ndef run(form: Form" in path.read_text()}
    assert measuring == set(SECTIONS)
    assert set(SMOKE) <= measuring


def test_a_section_that_breaks_is_told_of_and_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(form: Form) -> Table:
        raise RuntimeError("no peer")

    monkeypatch.setattr(game, "run", broken)
    monkeypatch.setattr(rollout, "run", lambda form: Table("Played", "well", ("a",), [["b"]]))
    tables, why = measured(("game", "rollout"), Form())
    assert [table.title for table in tables] == ["Played"]
    assert why == {"game": "RuntimeError: no peer"}
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--smoke", "--only", "game"])
    assert main() == 1


@pytest.mark.long
def test_the_smoke_form_measures_the_game_in_seconds_and_fails_where_a_ratio_has_fallen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--smoke", "--only", "game"])
    monkeypatch.setattr("benchmarks.__main__.RATIOS", tmp_path / "ratios.json")
    (tmp_path / "ratios.json").write_text('{"times plain Python": 0.001}')
    assert main() == 0
    assert "| times plain Python" in capsys.readouterr().out
    (tmp_path / "ratios.json").write_text('{"times plain Python": 1e9}')
    assert main() == 1
    told = capsys.readouterr().err
    assert told.count("game: once more, for a ratio is bad") == 2
    assert "too slow: times plain Python is" in told
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--smoke", "--only", "game", "--keep"])
    assert main() == 0
    (kept,) = json.loads((tmp_path / "ratios.json").read_text()).values()
    assert kept > 1


def test_a_section_is_written_into_the_results_and_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def table(cell: str) -> Table:
        return Table(f"Of {cell}", "A note.", ("a",), [[cell]])

    results, page = tmp_path / "RESULTS.md", tmp_path / "comparison.md"
    page.write_text(f"before\n{comparison.BEGIN}\n{comparison.END}\nafter\n")
    monkeypatch.setattr("benchmarks.__main__.RESULTS", results)
    monkeypatch.setattr("benchmarks.__main__.COMPARISON", page)
    monkeypatch.setattr("benchmarks.__main__.keep", lambda names: 0)
    monkeypatch.setattr("benchmarks.steadiness.spin", lambda processes: processes)
    steadiness = Steadiness([1, 1], [2, 2])
    found = {name: Measured([table(name)], steadiness, 1, 1.0) for name in ("game", "ppo")}
    results.write_text(report.written("", tmp_path, found, SECTIONS))
    assert list(report.sections(results.read_text())) == ["game", "ppo"]
    before = report.sections(results.read_text())

    monkeypatch.setattr(game, "run", lambda form: table("anew"))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "game", "--peers", str(tmp_path)])
    assert main() == 0
    after = report.sections(results.read_text())
    assert after["ppo"] == before["ppo"]
    assert "## Of anew" in after["game"]
    assert re.search(r"measured on \d{4}-\d\d-\d\d at \d\d:\d\d UTC on [^,]+, .*, commit [0-9a-f]+", after["game"])

    def broken(form: Form) -> Table:
        raise RuntimeError("no peer")

    monkeypatch.setattr(game, "run", broken)
    assert main() == 1
    assert report.sections(results.read_text()) == after  # what was measured before stays

    other = results.read_text().replace("# Results", "# Results of other versions")
    results.write_text(other)
    monkeypatch.setattr(game, "run", lambda form: table("elsewhere"))
    assert main() == 0
    assert results.read_text() == other
    assert "of other versions, so nothing is written" in capsys.readouterr().err


def test_results_stay_when_a_peer_is_new_and_not_when_one_has_another_version(tmp_path: Path) -> None:
    old = report.head(tmp_path, ENVIRONMENTS[:-1])
    assert ENVIRONMENTS[-1] not in old
    assert report.same_head(old, tmp_path)
    assert report.same_head(report.head(tmp_path), tmp_path)
    assert not report.same_head(old.replace(f"{ENVIRONMENTS[0]} (not there)", f"{ENVIRONMENTS[0]} (a 1)"), tmp_path)
    assert not report.same_head("", tmp_path)


@pytest.mark.long
def test_steps_of_games_alone_are_those_that_play_and_without_the_peer_nothing_is_measured(tmp_path: Path) -> None:
    speed, length = gymnax_games.Versus("catch", "Catch-bsuite", frames=4 * 100).ours(4)
    assert length == 9  # and a step that begins the next episode
    assert speed > 0
    table = gymnax_games.run(Form(True, tmp_path))
    assert not table.rows
    assert "Without gymnax: its environment" in table.note


def test_the_comparison_is_that_of_the_results_and_the_readme_has_rows_of_it() -> None:
    page, results = (ROOT / "docs" / "comparison.md").read_text(), RESULTS.read_text()
    assert comparison.replaced(page, results) == page
    rows = comparison.comparison(results).splitlines()
    assert len(rows) >= 8
    section = (ROOT / "README.md").read_text().split("\n## How it compares\n")[1].split("\n## ")[0]
    shown = [line for line in section.splitlines() if line.startswith("|")]
    assert len(shown) > 4
    assert [line for line in shown if line not in rows] == []


def test_the_comparison_shows_a_peer_in_its_fastest_form() -> None:
    rows = [
        ["tiny, ours", "900", "1,000", "", "", ""],
        ["tiny, EvoTorch, vmap", "10", "20", "90.0", "45.00", ""],
        ["tiny, EvoTorch, loop", "30", "50", "30.0", "18.00", ""],
        ["tiny, mutated, EvoTorch, loop", "90", "95", "10.0", "9.50", ""],
    ]
    columns = ("network, library", "useful frames/s", "computed/s", "ratio", "of computed", "of limit")
    text = f"evotorch 0.6.1\n\n{Table(comparison.POPULATION, '', columns, rows).markdown()}"
    first, second = comparison.comparison(text).splitlines()[2:]
    assert first.endswith("one core, useful frames/s | 900 | EvoTorch 0.6.1 | 30 | 30.0 |")
    assert second == "|  |  | EvoTorch 0.6.1, with frames after the end | 50 | 18.00 |"


def test_kept_ratios_are_the_short_form_of_figures_of_the_results() -> None:
    text = RESULTS.read_text()
    for what, kept in json.loads(RATIOS.read_text()).items():
        (figure,) = re.findall(rf"^\| {re.escape(what)} +\| +([0-9.,]+) \|", text, re.MULTILINE)
        full = float(figure.replace(",", ""))
        assert full / 3 < kept < full, (what, kept, full)  # seconds of measuring, on the slowest machine


def test_requirements_of_peers_are_pinned_and_name_no_place() -> None:
    for name in ENVIRONMENTS:
        lines = (ROOT / "benchmarks" / "peers" / f"{name}.txt").read_text().splitlines()
        wanted = [line for line in lines if not line.startswith("#")]
        assert wanted
        assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line) for line in wanted)


def test_a_peer_that_ends_says_so_and_one_that_waits_is_let_go() -> None:
    with Peer(sys.executable, "deap_way") as peer, pytest.raises(RuntimeError, match="deap_way ended with code 1"):
        peer.ask(nothing=0)


def test_a_peer_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.TIMEOUT", 0.0)
    with Peer(sys.executable, "deap_way") as peer, pytest.raises(RuntimeError, match="no answer after 0 seconds"):
        peer.ask()


def test_the_simulated_pool_keeps_the_laws() -> None:
    free = Master(0.0, 0.0, 0.0, 0.0)
    tasks = np.full(64, 0.5)
    assert simulate(tasks, 1, free, 0.0) == (32.0, 0.0)
    assert simulate(tasks, 64, free, 0.0)[0] == 0.5
    assert simulate(np.array([1.0, 1.0, 4.0]), 2, free, 0.0)[0] == 5.0  # the last one is played alone
    # Whoever has its next task already waits for the first one and the last two, which are left for anyone.
    assert simulate(tasks, 1, free, 0.25)[0] == pytest.approx(32 + 3 * 0.25)
    assert simulate(tasks, 64, free, 0.25)[0] == 0.75
    slow = Master(0.01, 0.001, 0.0001, 0.0)
    took = [simulate(tasks, workers, slow, 0.0) for workers in (1, 4, 64)]
    assert took[0][0] > took[1][0] > took[2][0] > 64 * slow.task  # nobody is faster than the master
    assert took[0][1] < took[1][1] < took[2][1] <= 1


@pytest.mark.long
def test_the_simulation_predicts_pools_that_are_measured_too(tmp_path: Path) -> None:
    ran, empty = simulation.run(Form(True, tmp_path, None))
    predicted = [limit for limit in ran.limits if "prediction off by" in limit.what]
    assert len(predicted) == len(ran.rows) == len(simulation.CHECKED)
    assert all(limit.value < 0.5 for limit in predicted), predicted  # 0.15 on a quiet machine, and at length
    assert len(empty.limits) == len(simulation.EMPTY)
    assert all(limit.reached(limit.value) for limit in empty.limits), empty.limits


@pytest.mark.long
def test_a_master_that_costs_twenty_times_as_much_as_measured_does_not_pass_the_check() -> None:
    tasks = scaling.tasks(rollout.cases()[0], 200)
    rounds = simulation.idle_rounds(Form(True), tasks)

    def dearer(master: Master) -> Master:
        return Master(20 * master.task, 20 * master.loop, 20 * master.slot, master.transit)

    true = simulation.empty(rounds, len(tasks), clock=False)
    wrong = simulation.empty([replace(x, master=dearer(x.master)) for x in rounds], len(tasks), clock=False)
    assert all(limit.reached(limit.value) for limit in true.limits), true.limits
    assert not any(limit.reached(limit.value) for limit in wrong.limits), wrong.limits


@pytest.mark.long
def test_every_part_of_a_generation_costs_the_master_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    costs = master_of_a_run("ga_snake", 64, 2, turns=1)
    assert len(costs) == 4
    assert min(costs.values()) > 0


def test_without_a_gpu_the_benchmark_of_gpus_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu"])
    monkeypatch.setattr(hardware, "found", list)
    assert gpu.main() == 0
    assert capsys.readouterr().out.startswith("no GPU here")


@pytest.mark.long
def test_the_benchmark_of_gpus_runs_on_a_core_and_tells_of_a_gpu_that_tensorflow_does_not_see(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["gpu", "--candidates", "4"]
    monkeypatch.setattr(sys, "argv", [*small, "--cpu"])
    assert gpu.main() == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| tiny ", "| seed "))]
    assert [row.split(" | ")[0][2:].strip() for row in rows] == ["tiny", "seed"]
    monkeypatch.setattr(hardware, "found", lambda: [hardware.Gpu(63, "Stand-in", "GPU-63")])
    monkeypatch.setattr(sys, "argv", small)
    assert gpu.main() == 5
    assert "must see 1 GPU, but TensorFlow sees none" in capsys.readouterr().err


@pytest.mark.long
def test_a_smoke_run_measures_every_section_and_fails_on_nothing_but_ratios() -> None:
    child = subprocess.run([sys.executable, "-m", "benchmarks", "--smoke"], capture_output=True, text=True, timeout=600)
    titles = {line for line in child.stdout.splitlines() if line.startswith("## ")}  # some are measured once more
    assert len(titles) == len(SMOKE), child.stdout + child.stderr
    assert "Traceback" not in child.stderr, child.stderr
    assert child.returncode == int("too slow: " in child.stderr), child.stderr  # other tests may run beside it


@pytest.mark.long
def test_a_search_of_another_library_is_trained_as_an_algorithm(tmp_path: Path) -> None:
    asked = ("run.algorithm=searches", "searches.library=deap", "searches.population=32", "searches.sigma=0.5")
    load([searches])
    experiment = Experiment.load(ROOT / "experiments" / "games" / "ga_catch.toml", *asked, "test.every=0")
    fitness = [row.metrics["mean"] for row in train(experiment, tmp_path / "run", plugins=[searches])][:20]
    assert fitness[-1] > fitness[0]
