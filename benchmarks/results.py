"""Measure every published score again: `python -m benchmarks.results` trains each experiment with each of its seeds.

Runs stand in runs/results and go on where they stopped, so this may be interrupted. Scores are of a block of test
episodes that was drawn at random when results were measured for the first time, and that no training and no choice of
settings looks at; an experiment whose settings were chosen later has a block of its own, drawn afterwards. They are
written to docs/experiments/results.json, and as tables to docs/experiments/results.md. A champion that ships is
replaced by that of seed 1 where this one has the higher validation return.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llvmlite import binding

from benchmarks.peers import ROOT
from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.files.durable import replace_file
from evo.numbers import percentage
from evo.store.champion import LAST_BLOCK, encode_champion, read_champion
from evo.training.testing import baselines

# What is published: with which seeds, and scored on how many episodes. The short ones come first.
EXPERIMENTS: dict[str, tuple[Sequence[int], int]] = {
    "ga_snake_6x6": (range(511, 521), 5000),
    "ppo_snake_6x6": ((1, 2, 3), 5000),
    "a2c_snake_6x6": ((1, 2, 3), 5000),
    "dqn_snake_6x6": ((1, 2, 3), 5000),
    "pqn_snake_6x6": ((1, 2, 3), 5000),
    "ppo_cartpole": ((1, 2, 3), 1000),
    **{
        f"games/{method}_{game}": (seeds, 5000)
        for game in ("catch", "cartpole", "acrobot", "pendulum", "swingup")
        for method, seeds in (("ga", range(411, 416)), ("ppo", (1, 2, 3)))
    },
    **{
        f"games/{method}_{game}": ((1, 2, 3), 5000)
        for game in ("breakout", "freeway", "asterix", "space_invaders", "2048")
        for method in ("cma", "ppo")
    },
    "games/cma_swingup": ((1, 2, 3), 5000),
    "games/cma_swingup_harder": ((1, 2, 3), 5000),
    "games/sac_pendulum": ((21, 22, 23), 5000),
    "games/erl_cartpole": ((1, 2, 3), 5000),
    "games/gp_cartpole": ((1, 2, 3), 5000),
    "games/gp_acrobot": ((1, 2, 3), 5000),
    "gymnasium/cma_mountaincar": ((1, 2, 3), 1000),
    "gymnasium/ppo_pendulum": ((1, 2, 3), 1000),
    "gymnasium/cma_lunarlander": ((1, 2, 3), 1000),
    "gymnasium/ppo_lunarlander": ((1, 2, 3), 1000),
    "erl_snake_6x6": ((1, 2, 3), 5000),
    "gp_snake": ((1, 2, 3), 5000),
    "cma_snake_6x6": (range(71, 81), 5000),
    "cma_snake": (range(106, 111), 5000),
    "openai_es_snake": ((1, 2, 3), 5000),
    "a2c_snake": ((1, 2, 3), 5000),
    "ga_snake": (range(321, 326), 5000),
    "ppo_snake": ((6, 7, 8, 9, 10), 5000),
    "ga_snake_seed": ((1,), 5000),
    "a2c_snake_seed": ((1,), 5000),
    "ppo_snake_seed": ((1,), 5000),
    "dqn_snake_seed": ((1,), 5000),
    "cma_snake_seed": ((1,), 5000),
    "pqn_snake": ((1, 2, 3), 5000),
    "dqn_snake": ((1, 2, 3), 5000),
    "dqn_snake_long": ((1, 2, 3), 5000),
    "reinforce_snake": ((1, 2, 3), 5000),
    "ppo_snake_full": ((21, 22, 23), 5000),
    "ppo_snake_12x12": ((1,), 5000),
    "ppo_snake_16x16": ((1,), 5000),
    "ppo_snake_20x20": ((1,), 5000),
    "ppo_snake_sizes": ((1,), 5000),
    "ppo_snake_local": ((1, 2, 3), 5000),
}
HEIRS = {"dqn_snake_long": "dqn_snake"}  # begin with the champion of the same seed; that of seed 1 ships
CHAMPION_EPISODES = 5000
USUAL = "znver5"  # the processor of results that name none
BASELINES = {"ga_snake": 1000, "ga_snake_6x6": 1000}  # in whose environment, and on how many episodes
RUNS = ROOT / "runs" / "results"
KEPT, PAGE = ROOT / "docs" / "experiments" / "results.json", ROOT / "docs" / "experiments" / "results.md"
CHAMPIONS = ROOT / "champions"


def main() -> None:
    """Train and measure what is asked for, and write the page after every result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*EXPERIMENTS, "champions", "baselines"], metavar="NAME")
    parser.add_argument(
        "--missing", action="store_true", help="leave out runs whose result of this arithmetic is there"
    )
    arguments = parser.parse_args()
    chosen = arguments.only or ["baselines", "champions", *EXPERIMENTS]
    results = json.loads(KEPT.read_text())
    results["block"] = results["block"] or 1 + secrets.randbelow(LAST_BLOCK)
    for name in chosen:
        if name == "champions":
            measure_champions(results)
        elif name == "baselines":
            measure_baselines(results)
        else:
            measure_runs(results, name, arguments.missing)


def measure_runs(results: dict[str, Any], name: str, missing: bool) -> None:
    """Train an experiment with each of its seeds, and measure the champions; or only where that is `missing`."""
    seeds, episodes = EXPERIMENTS[name]
    for seed in seeds:
        if missing and results["runs"].get(f"{name} {seed}", {}).get("arithmetic") == arithmetic(name):
            continue
        results["runs"][f"{name} {seed}"] = measured(name, seed, episodes, block_of(results, name))
        shipped, found = CHAMPIONS / f"{name}.h5", RUNS / f"{name}-seed{seed}" / "champion.h5"
        if shipped.exists() and seed == min(seeds) and fitness(found) > fitness(shipped):
            replace_file(shipped, found.read_bytes())
        write(results)


def block_of(results: dict[str, Any], name: str) -> int:
    """Return the block of test episodes on which an experiment is scored."""
    block: int = results["blocks"].get(name, results["block"])
    return block


def measured(name: str, seed: int, episodes: int, block: int) -> dict[str, Any]:
    """Train an experiment, or go on with it, and return what it played and scores."""
    run = RUNS / f"{name}-seed{seed}"
    words = [f"experiments/{name}.toml", "--seed", str(seed), "--run-dir", str(run)]
    if name in HEIRS and seed > 1:
        words += ["--set", f"run.init_from={RUNS / f'{HEIRS[name]}-seed{seed}'}"]
    summary = called("evo.run", *(["--resume", str(run)] if run.exists() else words), "--quiet")
    return {
        "arithmetic": arithmetic(name),
        "generations": summary["generations"],
        "frames": summary["frames"],
        "processor": binding.get_host_cpu_name(),
        "cpu_seconds": json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["cpu_seconds_so_far"],
        "state_hash": summary["state_hash"],
        "test": called("evo", "evaluate", str(run), "--episodes", str(episodes), "--block", str(block)),
    }


def fitness(champion: Path) -> float:
    """Return the mean validation return of a champion's file."""
    return float(read_champion(champion).about["fitness"])


def arithmetic(name: str) -> str:
    """Return what computes the updates of an experiment."""
    experiment = Experiment.load(ROOT / "experiments" / f"{name}.toml")
    return "TensorFlow" if experiment.learns_in_tensorflow else "exact"


def measure_baselines(results: dict[str, Any]) -> None:
    """Measure the players that need no learning."""
    for name, episodes in BASELINES.items():
        environment = environment_of(Experiment.load(ROOT / "experiments" / f"{name}.toml").environment)
        played = baselines(environment, episodes, results["block"])
        results["baselines"][name] = {player: asdict(baseline) for player, baseline in played.items()}
        write(results)


def measure_champions(results: dict[str, Any]) -> None:
    """Measure the champions that ship with the project, and write the score into their files."""
    for file in sorted(CHAMPIONS.glob("*.h5")):
        words = ["--episodes", str(CHAMPION_EPISODES), "--block", str(results["block"])]
        score = called("evo", "evaluate", str(file), *words)
        results["champions"][file.stem] = score
        champion = read_champion(file)
        test = {name: value for name, value in score.items() if name != "mode"}
        data, _ = encode_champion(champion.weights, champion.layers, {**champion.about, "test": test})
        replace_file(file, data)
        write(results)


def called(module: str, *words: str) -> Any:
    """Return the object that a command ends with."""
    print("python -m", module, *words, file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", module, *words, "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def write(results: dict[str, Any]) -> None:
    """Write results.json and results.md."""
    KEPT.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


def page(results: dict[str, Any]) -> str:
    """Return the tables of all results."""
    runs = [
        f"| {name.split()[0]}.toml | {name.split()[1]} | {score(run['test'])} | {run['test']['mean_length']:.0f} "
        f"| {run['frames'] / 1e6:.1f} M | {duration(run)} | {run['arithmetic']} |"
        for name, run in sorted(results["runs"].items(), key=lambda item: list(EXPERIMENTS).index(item[0].split()[0]))
    ]
    players = [
        f"| {name}.toml | {player} | {mean_of(baseline)} | {baseline['episodes']:,} |"
        for name, found in results["baselines"].items()
        for player, baseline in found.items()
    ]
    later = [f"{block} for {name}.toml" for name, block in results["blocks"].items()]
    champions = [f"| {name}.h5 | {score(test)} |" for name, test in sorted(results["champions"].items())]
    return "\n".join(
        [
            "# Results",
            "",
            f"Scores on test episodes of block {results['block']}, which was drawn at random. No training and no",
            "choice of settings looks at it; settings were chosen on block 0 and on validation episodes. Blocks that",
            f"were drawn later, when settings were final: {', '.join(later)}.",
            "`make results` measures them again. Intervals are at 95 %; those of means hold for skewed scores too.",
            "Runs whose arithmetic is exact are repeated bit for bit on every machine. *Processor time* is that of",
            "training and validation, of all threads and processes together, on one core of an AMD EPYC (Zen 5) with",
            "other work, or of the processor that is named (znver3: a shared AMD EPYC, a quarter as fast; rocketlake:",
            "a shared Intel Xeon). Two cores take about half as long. Short runs of a first seed that took longer than",
            "those of the others also compiled kernels, which was counted when they were measured, and is not now.",
            "",
            "| experiment | seed | mean score (95 % interval) | episodes | full boards | steps an episode | frames "
            "| processor time | arithmetic |",
            "|---|--:|---|--:|---|--:|--:|--:|---|",
            *runs,
            "",
            "The champions in `champions/`. Each is of a run of its first seed, by this version or an earlier one,",
            "whichever has the higher validation return; `ppo_snake_full_early.h5` is of the first 2,600 generations:",
            "",
            "| file | mean score (95 % interval) | episodes | full boards |",
            "|---|---|--:|---|",
            *champions,
            "",
            "Players that need no learning, in the environment of an experiment:",
            "",
            "| experiment | player | mean score (95 % interval) | episodes |",
            "|---|---|---|--:|",
            *players,
            "",
        ]
    )


def duration(run: dict[str, Any]) -> str:
    """Return the processor time of a run, where it is known, and its processor if that is another than usual."""
    seconds, processor = run.get("cpu_seconds", 0.0), run.get("processor", USUAL)
    taken, unit = (seconds, "s") if seconds < 60 else (seconds / 60, "min")
    where = "" if processor == USUAL else f" ({processor})"
    return "-" if not taken else f"{taken:.1f} {unit}{where}" if taken < 10 else f"{taken:.0f} {unit}{where}"


def score(test: dict[str, Any]) -> str:
    """Return the cells of a score: mean and interval, episodes, wins and interval."""
    wins = "-"
    if test["win_rate"] is not None:
        least, most = test["win_ci95"]
        rate, low, high = (percentage(share, ".1f") for share in (test["win_rate"], least, most))
        wins = f"{rate} % ({low} to {high} %)"
    return f"{mean_of(test)} | {test['episodes']:,} | {wins}"


def mean_of(test: dict[str, Any]) -> str:
    """Return a mean and its interval."""
    low, high = test["ci95"]
    return f"{test['mean']:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
