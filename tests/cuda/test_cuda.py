"""Kernels of GPUs give the bits of the CPU's kernel: in Numba's simulator, and as PTX that a CPU runs."""

from __future__ import annotations

import importlib
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import NumbaError

import evo.cuda
from benchmarks.gpu_bits import LAYERS, played
from evo.compiled import cache as kernel_cache
from evo.config.experiment import Experiment
from evo.cuda import rollout
from evo.cuda.launch import Source, source_of_game
from evo.cuda.table import COLUMNS, END, FIRST, GROUP, PLACE, ROWS, START, table_of
from evo.errors import ConfigurationError
from evo.games import sin
from evo.games.faults import inexact_in, powers_in
from evo.networks.network import Network, Options
from evo.plugins.mistakes import compiling_line
from tests.cuda.comparing import Case, compare
from tests.cuda.simulated import ONE, OTHERS, TINY

ROOT = Path(__file__).parents[2]
needs_cuda = pytest.mark.skipif(find_spec("numba_cuda") is None, reason="the extra `cuda` is not installed")
MINATAR = {"conv": [[16, 3, 1]], "dense": [32]}
REMEMBERING = ["conv 3 3 2", "gru 9", "norm", "lstm 5", "relu"]
PLANES = {"observation": "planes", "actions": "absolute", "starvation": 100}
ALL = (
    *(Case("cartpole", {}, {"kind": "mlp", "dense": [16]}, rule) for rule in ("greedy", "softmax", "epsilon_greedy")),
    Case("cartpole", {}, {"kind": "mlp", "dense": [33, 9], "norm": "layer", "activation": "tanh"}, crossover="layers"),
    Case("catch", {}, {"conv": [[5, 3, 1]], "dense": [16]}, scale=3),
    Case("swingup", {"max_steps": 60}, {"kind": "mlp", "dense": [24]}, "gaussian", extra=2),
    Case("pendulum", {"max_steps": 60}, {"kind": "mlp", "dense": [24], "norm": "layer"}),
    Case("acrobot", {"max_steps": 100}, {"kind": "mlp", "dense": [16]}),
    Case("game_2048", {}, {"kind": "mlp", "dense": [16]}, "softmax"),
    Case("breakout", {"max_steps": 200}, MINATAR),
    Case("asterix", {"max_steps": 200}, MINATAR, "softmax"),
    Case("freeway", {"max_steps": 100}, {"conv": [[8, 3, 1]], "dense": [16]}),
    Case("space_invaders", {"max_steps": 200}, {"conv": [[8, 3, 1]], "dense": [16]}),
    Case("snake", {"starvation": 100}, {"conv": [[8, 3, 3]]}, threads=128),
    Case("snake", PLANES, {"conv": [[8, 3, 1], [16, 3, 2]], "dense": [64]}, "softmax", threads=128),
    Case(
        "snake", {"size": 6, "observation": "ego", "mask": "fatal"}, {"conv": [[12, 3, 1]], "norm": "layer"}, "softmax"
    ),
    Case(
        "snake", {"size": 12, "observation": "local", "window": 9, "mask": "fatal", "start_length": 3, "starvation": 60}
    ),
    Case("snake", {"size": 8, "observation": "features", "mask": "reverse"}, {"kind": "linear"}, "epsilon_greedy"),
    Case("snake", {"observation": "frame", "actions": "absolute", "tail": "fatal"}, {"layers": LAYERS}, extra=1),
    Case("snake", {"size": 6, "mask": "fatal", "starvation": 50}, {"layers": REMEMBERING}, "softmax", "layers"),
    Case("tmaze", {}, {"layers": ["lstm 6", "dense 5", "gru 4"]}, "epsilon_greedy", scale=3, threads=32),
    *(
        Case("pendulum", {"max_steps": 20}, {"kind": "linear"}, rule, extra=1)
        for rule in ("squashed", "noisy", "uniform")
    ),
    Case("snake", {"starvation": 10}, {"conv": [[8, 3, 3]], "dense": []}, threads=0),  # of ga_snake.toml
    Case(
        "snake", {"starvation": 10}, {"conv": [[16, 3, 2], [32, 3, 2]], "dense": [256]}, "softmax", threads=0, extra=1
    ),
)
SEGMENTS = (1, 5, 10, 15, 18, 19, 20, 21, 22, 23)  # of the cases: every action rule, with masks and without
RECORDED = (1, 6, 19)  # discrete and continuous actions, truncated episodes, a mask, memory


@pytest.mark.parametrize(
    ("which", "lines"),  # of the others, a line is of updates
    [
        pytest.param("tiny", len(TINY), marks=pytest.mark.long),
        pytest.param("one", len(ONE) + 1, marks=pytest.mark.long),
        pytest.param("others", len(OTHERS) + 1, marks=pytest.mark.long),
    ],
    ids=["tiny", "one", "others"],
)
def test_a_few_cases_in_the_simulator(which: str, lines: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cuda.simulated", which],
        cwd=ROOT, env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == lines


def test_the_cases_are_of_every_game_of_one_player_and_of_the_networks_of_experiments() -> None:
    assert {case.game for case in ALL} == {name.partition(",")[0] for name, *_ in played()}
    sizes = {Network.of(Options(**case.policy), case.environment(), case.extra).size for case in ALL}
    for name in ("ga_snake", "ppo_snake"):
        assert Experiment.load(ROOT / "experiments" / f"{name}.toml").network().size in sizes


def keep_programs() -> None:
    """Let Numba read its environment now, which it does before it compiles where that has changed, and not later."""
    kernel_cache.config.reload_config()
    kernel_cache.use("evo")


@needs_cuda
@pytest.mark.long
@pytest.mark.parametrize("case", ALL, ids=str)
def test_ptx_that_a_cpu_runs_in_both_orders_of_threads(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from evo.cuda import compiling
    from tests.cuda.ptx_on_cpu import PtxOnCpu

    keep_programs()
    number = ALL.index(case)
    envs, recorded = 40 * (number in SEGMENTS), number in RECORDED
    assert compare(case, PtxOnCpu(), envs=envs, steps=30, recorded=recorded) > 500
    monkeypatch.setattr(compiling, "ptx_of", None)  # nothing is compiled again
    compare(case, PtxOnCpu(reverse=True), envs=envs, steps=30, recorded=recorded)


@needs_cuda
@pytest.mark.long
def test_the_network_of_1_2_million_weights() -> None:
    from tests.cuda.ptx_on_cpu import PtxOnCpu

    case = Case("snake", {**PLANES, "observation": "frame", "tail": "fatal"}, {"preset": "seed"}, threads=256)
    compare(case, PtxOnCpu(), candidates=2, episodes=34, envs=0)


@needs_cuda
def test_what_could_change_a_bit_is_found_in_ptx() -> None:
    from evo.cuda.compiling import forbidden_in

    exact = (
        "\tmul.rn.f32 \t%f3, %f1, %f2;",
        "\tsqrt.rn.f32 %f1, %f2;",
        "\tmad.lo.s32 %r1, %r2, %r3, %r4;",
        "// fma.rn",
    )
    for line in exact:
        assert forbidden_in(line) == []
    inexact = (
        "\tfma.rn.f32 %f4, %f1, %f2, %f3;", "\tadd.rn.ftz.f32 %f3, %f1, %f2;", "\tdiv.full.f32 %f3, %f1, %f2;",
        "\tsqrt.approx.f32 %f1, %f2;", "\tex2.approx.ftz.f32 %f1, %f2;", "\tcall.uni (retval0), sinf, (param0);",
    )  # fmt: skip
    for line in inexact:
        assert len(forbidden_in(line)) == 1, line


def sine_of_libm(x: float) -> float:
    return math.sin(x)


def exponential_of_libm(x: float) -> Any:
    return np.exp(sine_of_libm(x))


def exact(x: float) -> float:
    return math.floor(math.sqrt(x)) + sin(x)


def powers(x: float) -> float:
    x **= 0.3
    return x**2 + pow(x, 3) + x**x


def test_powers_that_may_be_inexact_are_found_with_their_lines() -> None:
    assert powers_in([exact]) == ""
    line = powers.__code__.co_firstlineno
    assert powers_in([powers]) == f"test_cuda.py:{line + 1}, test_cuda.py:{line + 2}"


def test_a_function_of_a_library_with_other_bits_is_found_with_its_line() -> None:
    assert inexact_in([exact]) == ""
    line = sine_of_libm.__code__.co_firstlineno + 1
    assert inexact_in([exact, sine_of_libm]) == f"sin (test_cuda.py:{line})"
    assert inexact_in([exponential_of_libm]).startswith("exp (test_cuda.py:")


@needs_cuda
@pytest.mark.long
def test_a_game_with_a_sine_of_libm_is_refused_and_a_kernel_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evo.cuda import compiling
    from tests.cuda.ptx_on_cpu import PtxOnCpu

    case = ALL[0]
    compare(case, PtxOnCpu(), 2, 2, 0)  # imports what sets the directory
    keep_programs()
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(tmp_path))
    compare(case, PtxOnCpu(), 2, 2, 0)
    (program,) = tmp_path.glob("play_episodes.ptx-*")
    monkeypatch.setattr(compiling, "ptx_of", None)
    compare(case, PtxOnCpu(), 2, 2, 0)
    program.unlink()
    monkeypatch.setattr(
        rollout, "source_of_game", lambda *how: replace(source_of_game(*how), functions=(sine_of_libm,))
    )
    with pytest.raises(ConfigurationError, match=r"workers.kind: game .*cartpole uses sin \(test_cuda.py:"):
        compare(case, PtxOnCpu(), 2, 2, 0)


def test_numba_finds_what_numpy_no_longer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "row_stack", raising=False)
    importlib.reload(evo.cuda)
    assert vars(np)["row_stack"] is np.vstack


@needs_cuda
def test_a_library_of_nvidia_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from evo.cuda import compiling

    def fails(*_: Any) -> str:
        raise RuntimeError('Failure finding "libnvrtc.so.13"')  # as NVIDIA's own library does

    monkeypatch.setattr(compiling, "ptx_of", fails)
    with pytest.raises(ConfigurationError, match='the learner cannot be compiled for GPUs: Failure finding "libnvrtc'):
        compiling.exact_ptx(Source(exact), ())


def adds_a_text(out: Any) -> None:
    out[0] = "one" + 1


def test_what_cannot_be_compiled_is_named_in_a_line() -> None:
    with pytest.raises(NumbaError) as raised:
        numba.njit(adds_a_text)(np.zeros(1))
    assert str(raised.value).count("\n") > 5
    assert re.fullmatch(
        r'test_cuda.py:\d+: Numba cannot compile `out\[0\] = "one" \+ 1`; .*: No implementation of function Function\('
        r"<built-in function add>\) found for signature: add\(.*\)",
        compiling_line(raised.value),
    )
    assert compiling_line(RuntimeError("no driver\nsee the manual")) == "no driver"


def test_padded_weights_of_layers_do_not_overlap() -> None:
    network = Network.build(
        Options(layers=["one_hot 4", "conv 5 3 1", "norm", "tree 3", "gru 5", "lstm 3", "norm", "dense 9", "norm"]),
        (6, 6, 1), 3,
    )  # fmt: skip
    table, parts, size = table_of(network, 128)
    assert np.all(table[:, FIRST] % 4 == 0)
    assert parts[0, START] == 0
    np.testing.assert_array_equal(parts[1:, START], parts[:-1, END])
    assert parts[-1, END] == network.size
    places = []
    for part in parts:
        at = np.arange(part[END] - part[START])
        n, f = np.divmod(at, part[COLUMNS])
        places += (part[PLACE] + f // GROUP * GROUP * part[ROWS] + n * GROUP + f % GROUP).tolist()
    assert len({*places}) == network.size
    assert max(places) < size
