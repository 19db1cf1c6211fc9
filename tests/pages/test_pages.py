"""The page of a champion plays with the bits of the trainer, and holds nothing but what it should."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evo
from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError
from evo.kernels import lanes
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.randomness import streams
from evo.randomness.streams import seeds_of_test_episodes
from evo.report.champion import Scripts, checksum, page, playable, refuse_inference, scripts_of
from evo.report.html import DAMAGED, REPLAYS, Markup, digests, whole_page
from evo.store.run import Run
from tests.helpers.calling import ROOT, SMALL, called
from tests.helpers.networks import random_observations, random_weights
from tests.helpers.sampling import sampled
from tests.pages.pages import (
    assert_equal,
    bits_of,
    core_of,
    data_of,
    hexed,
    in_node,
    needs_node,
    played,
    said_of_damage,
)

FEW = 12  # episodes to verify, where the default would take long
SHORTER = (
    "run.generations=4", "ga.population=48", "ga.parents=8", "ga.elites=8", "ga.episodes=4", "workers.backend=serial",
    "validation.episodes=16", "validation.finalists=2", "test.episodes=16", "test.block=3",
)  # fmt: skip
KINDS = ("window", "local", "ego", "planes", "frame")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of ga_snake.toml, whose champion is as large as that of the whole one."""
    where = tmp_path_factory.mktemp("ga")
    list(evo.train(Experiment.load(ROOT / "experiments" / "ga_snake.toml", *SHORTER), where / "ga_snake"))
    return where / "ga_snake"


@pytest.fixture(scope="module")
def written(run: Path) -> str:
    out, _ = called(run.parent, "export", "ga_snake", "--to", "html", "--episodes", FEW, program="evo")
    assert f"with {FEW} games to verify" in out
    return (run.parent / "ga_snake.html").read_text()


@needs_node
def test_random_numbers_are_those_of_the_trainer(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    keys = [0, (1 << 64) - 1, *map(int, random.integers(0, 1 << 64, 60, np.uint64))]
    counters = [[0] * 4, [0xFFFFFFFF] * 4, *random.integers(0, 1 << 32, (60, 4)).tolist()]
    belows = [1, 2, 3, (1 << 31) + 1, 1 << 32, *random.integers(1, 400, 57).tolist()]  # the fourth rejects half
    numbers = [0, 1, 999_999, 3_909_000_000, 4_000_999_999]
    words = list(zip(hexed(np.array(keys, np.uint64)), counters, strict=True))
    draws = [[key, counter[1], below] for (key, counter), below in zip(words, belows, strict=True)]
    asked = {"philox": words, "draw": draws, "seeds": numbers}
    got = in_node(tmp_path, *({"kind": kind, "items": items} for kind, items in asked.items()))
    assert got[0] == [list(streams.philox(key, tuple(c))) for key, c in zip(keys, counters, strict=True)]  # type: ignore[arg-type]
    assert got[1] == [streams.draw(key, int(d[1]), int(d[2])) for key, d in zip(keys, draws, strict=True)]
    assert [low | high << 32 for low, high in got[2]] == [int(seeds_of_test_episodes(1, n)[0]) for n in numbers]


@pytest.mark.long
@needs_node
def test_every_bit_of_every_output_of_a_champion_is_the_kernel_s(run: Path, written: str, tmp_path: Path) -> None:
    found, data = Run(run), data_of(written)
    network, seeds = found.config.network(), seeds_of_test_episodes(FEW, 3_000_000)
    result = played(network, environment_of(found.config.environment), found.champion.weights, seeds)
    jobs = ({"kind": "episodes", "champion": data, "items": hexed(seeds)},)
    tests = {"kind": "test", "champion": data, "items": [data["first"] + k for k in range(FEW)]}
    answers, verified = in_node(tmp_path, *jobs, tests, core=core_of(written))
    assert_equal(result, answers, network.outputs)
    recorded = data["recorded"]
    assert recorded["scores"] == [each["score"] for each in verified] == result.episode_metrics[0, :, 0].tolist()
    assert recorded["steps"] == [each["steps"] for each in verified] == result.lengths[0].tolist()
    assert recorded["checksums"] == [each["checksum"] for each in verified]
    assert [each["outputs"] for each in verified] == [steps * network.outputs for steps in recorded["steps"]]
    assert max(recorded["scores"]) > 0


@pytest.mark.long
def test_a_page_is_small_and_self_contained(written: str) -> None:
    assert len(written.encode()) < 150_000
    assert not re.search(r"https?:|src=|@import|url\(", written)
    policy = re.findall(r'content="(default-src[^"]*)"', written)[0]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


@pytest.mark.long
def test_equal_champions_have_equal_pages(run: Path, written: str, tmp_path: Path) -> None:
    words = ("export", run, "--to", "html", "--episodes", FEW, "--output", tmp_path / "other.html")
    called(tmp_path, *words, program="evo")
    assert (tmp_path / "other.html").read_text() == written
    assert str(run.parent) not in written  # folders are nobody's business


@pytest.mark.long
def test_a_page_states_facts_of_the_champion_s_file(run: Path, written: str) -> None:
    about = Run(run).champion.about
    assert about["state_hash"] in written
    assert f"{about['test']['mean']:.2f} of 99 fruits" in written
    assert "on 16 test episodes of block 3" in written
    assert "1,547 weights" in written
    assert f"python -m evo export ga_snake --to html --episodes {FEW}" in written


@pytest.mark.long
def test_a_hostile_name_is_inert(run: Path, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script><!--<img src=x onerror=alert(2)>"
    told = page(hostile, hostile, [(hostile, hostile)], {"name": hostile}, Scripts("", (), ()))
    assert hostile not in told
    assert "<img" not in told
    assert told.count("<script") == 4
    assert told.count("</script>") == 4
    assert data_of(told) == {"name": hostile}
    bad = tmp_path / "<script>x$core&amp;"
    run.rename(bad)
    try:
        called(tmp_path, "export", bad, "--to", "html", "--episodes", 1, program="evo")
    finally:
        bad.rename(run)
    (file,) = tmp_path.glob("*.html")
    assert file.name == "<script>x$core&amp;.html"
    assert "<title>&lt;script&gt;x$core&amp;amp;</title>" in file.read_text()


@pytest.mark.long
def test_scripts_hold_nothing_that_ends_or_comments_out_their_element(written: str) -> None:
    parts = re.findall(r"<script[^>]*>(.*?)</script>", written, re.DOTALL)
    assert parts
    for part in parts:
        assert not re.search(r"<!--|<script|</", part)


@needs_node
@pytest.mark.parametrize("name", sampled(["snake", "duel", "connect_four", ""]))
def test_a_page_that_is_cut_off_or_was_changed_says_so_in_a_line(name: str) -> None:
    told = whole_page("", Markup(), {"replays": []}, REPLAYS).decode()
    if name:
        experiment = Experiment.build(environment={"id": name})
        network, environment = experiment.network(), experiment.make_environment()
        data, scripts = playable(environment, network, np.zeros(network.size, np.float32)), scripts_of(environment)
        assert scripts is not None
        data |= {"first": 0, "moves": [[0]], "recorded": {"scores": [0], "steps": [1], "checksums": [0]}}
        told = page(name, "", [], data, scripts)
    for part in re.findall(r'<script(?: id="core")?>(.*?)</script>', told, re.DOTALL):
        assert digests(part) in html.unescape(told)  # its security policy lets it run
    begin = told.index('id="data">') + len('id="data">')
    assert said_of_damage(told) == ""
    for broken in (
        told[: begin + 9],
        told[:begin] + told[begin + 9 :],
        told[: told.rindex("</script>")],
        told.replace('"weights":"AAAA', '"weights":"') if name else told[:begin],
    ):
        assert said_of_damage(broken) == f"{DAMAGED}\n"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"environment": {"id": "catch"}}, "a page cannot play catch, only show it"),
        ({"environment": {"id": "snake", "observation": "features"}}, 'the champion sees "features" alone'),
        ({"policy": {"layers": ["max_pool 2", "dense 4"]}}, "the network has max_pool; only convolutions, dense and"),
        ({"policy": {"layers": ["norm", "dense 4"]}}, "the network has identity; only"),
        ({"policy": {"inference": "tensorflow"}}, 'policy.inference is "tensorflow"'),
    ],
)
def test_what_a_browser_cannot_repeat_is_refused(changes: dict[str, Any], told: str) -> None:
    experiment = Experiment.build(**changes)
    network = experiment.network()
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        playable(environment_of(experiment.environment), network, np.zeros(network.size, np.float32))


def test_weights_that_are_not_finite_are_refused() -> None:
    experiment = Experiment.build()
    network = experiment.network()
    for wrong in (np.nan, np.inf):
        weights = np.zeros(network.size, np.float32)
        weights[5] = wrong
        with pytest.raises(ConfigurationError, match="not finite"):
            playable(environment_of(experiment.environment), network, weights)


def test_a_linear_network_has_no_inference_to_refuse() -> None:
    refuse_inference(Policy(kind="linear", activation="tanh").resolved())


@pytest.mark.long
def test_mistakes_of_the_command_are_a_line_and_write_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "tanh.toml").write_text(SMALL.replace("dense = [4]", 'dense = [4]\nactivation = "tanh"'))
    (tmp_path / "there.html").write_text("mine")
    for words, told in (
        (("--to", "html", "--output", "there.html"), "is there already"),
        (("--to", "html", "page.htm"), "ends with .html"),
        (("--to", "html", "a.html", "--output", "b.html"), "name the file to write once"),
        (("--to", "npz", "a.npz", "--episodes", 3), "--episodes goes with --to html"),
        (("--to", "html", "--episodes", 0), "--episodes: must be a whole number from 1"),
        (("--to", "npz"), "name the file to write"),
    ):
        _, error = called(tmp_path, "export", run, *words, program="evo", code=2)
        assert told in error
        assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tanh.toml", "there.html"]


def test_a_checksum_depends_on_every_bit_and_on_the_order() -> None:
    outputs = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    outputs[1, 1] = outputs[3, 0] = 0
    changed = []
    for place in np.ndindex(outputs.shape):
        other = outputs.view(np.uint32).copy()
        other[place] ^= np.uint32(1 << 31)
        changed.append(checksum(other.view(np.float32)))
        other[0, 0] ^= np.uint32(1 << 31)  # two wrong signs, which must not cancel
        changed.append(checksum(other.view(np.float32)))
    changed += [checksum(outputs[::-1]), checksum(outputs[:-1])]
    assert checksum(outputs) not in changed[2:]
    assert len(set(changed)) == len(changed)


@needs_node
@pytest.mark.long
def test_a_missing_rounding_would_be_found(run: Path, written: str, tmp_path: Path) -> None:
    """The comparison of outputs can fail: without one rounding, or with fused sums, hardly an output is equal."""
    data, core = data_of(written), core_of(written)
    job = {"kind": "test", "champion": data, "items": [data["first"] + k for k in range(FEW)]}
    sums = "round(sum0 + round(weights[row] * value))"
    assert sums in core
    (answers,) = in_node(tmp_path, job, core=core.replace(sums, "sum0 + weights[row] * value"))
    same = [each["checksum"] for each in answers]
    assert sum(map(int.__eq__, same, data["recorded"]["checksums"])) < FEW / 2


def random_experiment(random: np.random.Generator) -> tuple[Experiment, Network]:
    """Return an experiment of random rules, observation and layers."""
    while True:
        size, kind = int(random.integers(4, 18)), str(random.choice(KINDS))
        window = int(random.integers(0, size)) * 2 + 1 if kind in ("window", "local") and random.random() < 0.6 else 0
        turned = kind in ("window", "local", "ego")
        rules = {
            "size": size,
            "observation": kind,
            "window": window,
            "actions": "relative" if turned else str(random.choice(["relative", "absolute"])),
            "mask": str(random.choice(["none", "reverse", "fatal"])),
            "tail": str(random.choice(["legal", "fatal"])),
            "starvation": int(random.choice([0, 7, 40, 1000])),
            "max_steps": int(random.integers(1, 120)),
            "start_length": int(random.integers(1, size + 1)),
        }
        layer = [[int(n) for n in random.integers(1, (20, 6, 4))] for _ in range(random.integers(1, 3))]
        policy = {
            "kind": str(random.choice(["cnn", "cnn", "mlp", "linear"])),
            "conv": layer,
            "dense": [int(n) for n in random.integers(1, 24, random.integers(0, 3))],
            "padding": str(random.choice(["same", "valid"])),
            "norm": str(random.choice(["none", "layer"])),
            "activation": str(random.choice(["relu", "relu", "tanh"])),
            "memory": str(random.choice(["", "", "gru:5", "lstm:4"])),
        }
        if random.random() < 0.2:  # several recurrent layers, each with its part of the state
            policy = {"layers": ["conv 5 3 2", "relu", "gru 5", "norm", "tanh", "dense 4", "lstm 3"]}
        algorithm = "ga" if policy.get("memory", True) else str(random.choice(["ga", "ppo", "dqn"]))
        try:
            experiment = Experiment.build(run={"algorithm": algorithm}, environment=rules, policy=policy)
            return experiment, experiment.network()
        except ConfigurationError:  # too small for a valid convolution
            continue


def odd_weights(network: Network, seed: int) -> np.ndarray:
    """Return random weights, among which are -0, 0, subnormals and large ones.  # [P]"""
    random, weights = np.random.default_rng(seed), random_weights(network, seed)
    strange = np.array([-0.0, 0.0, 1e-45, -1e-40, 1e-38, -3e4, 1e-20], np.float32)
    places = random.random(network.size) < random.choice([0.0, 0.02, 0.3])
    weights[places] = random.choice(strange, int(places.sum()))
    if random.random() < 0.3:
        for layer in network.layers:  # biases, and what follows them
            weights[layer.offset + layer.fan_in * layer.filters :][: layer.filters] = -0.0
    return weights


@needs_node
@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_random_games_of_random_networks_have_the_bits_of_the_kernel(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    for k in range(6):
        experiment, network = random_experiment(random)
        weights, seeds = odd_weights(network, 100 * seed + k), random.integers(0, 1 << 64, 8, np.uint64)
        data = playable(environment_of(experiment.environment), network, weights)
        episodes = {"kind": "episodes", "champion": data, "items": hexed(seeds)}
        (answers,) = in_node(tmp_path, episodes)
        assert_equal(played(network, environment_of(experiment.environment), weights, seeds), answers, network.outputs)


@needs_node
@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_have_the_bits_of_the_kernel_on_any_input(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    for k in range(6):
        experiment, network = random_experiment(random)
        weights = odd_weights(network, 1000 + 100 * seed + k)
        seen = random_observations(network, 5, seed, zeros=float(random.choice([0.0, 0.5])))
        seen[random.random(seen.shape) < 0.1] = random.choice(np.array([-0.0, 1e-44, -1e30], np.float32))
        job = {
            "kind": "outputs",
            "champion": playable(environment_of(experiment.environment), network, weights),
            "items": [base64.b64encode(x.tobytes()).decode() for x in seen],
        }
        (answers,) = in_node(tmp_path, job)
        expected = lanes.scores(network, weights, seen)
        got = np.concatenate([bits_of(answer, network.outputs) for answer in answers]).view(np.float32)
        finite = np.isfinite(expected)  # a NaN may have any bits
        np.testing.assert_array_equal(np.isfinite(got), finite)
        np.testing.assert_array_equal(got.view(np.uint32)[finite], expected.view(np.uint32)[finite])


@needs_node
@pytest.mark.long
@pytest.mark.parametrize("name", ["ppo_snake_full", "pqn_snake", "dqn_snake", "a2c_snake", "reinforce_snake"])
def test_champions_that_ship_play_with_the_kernel_s_bits(name: str, tmp_path: Path) -> None:
    file = ROOT / "champions" / f"{name}.h5"
    called(tmp_path, "export", file, "--to", "html", "--episodes", 20, program="evo")
    written = (tmp_path / f"{name}.html").read_text()
    assert len(written.encode()) < 2_500_000
    found, data = Run(file), data_of(written)
    network, seeds = found.config.network(), seeds_of_test_episodes(20, 3909 * 1_000_000)
    result = played(network, environment_of(found.config.environment), found.champion.weights, seeds)
    jobs = ({"kind": "episodes", "champion": data, "items": hexed(seeds)},)
    (answers,) = in_node(tmp_path, *jobs, core=core_of(written))
    assert_equal(result, answers, network.outputs)
    assert [answer["checksum"] for answer in answers] == data["recorded"]["checksums"]
