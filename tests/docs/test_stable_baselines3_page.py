"""The tables of docs/from_stable_baselines3.md name options that exist, with their defaults, and its example learns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evo.mistakes import unknown_key
from evo.options import AlgorithmOptions
from evo.plugins import registry

PAGE = (Path(__file__).parents[2] / "docs" / "from_stable_baselines3.md").read_text()
NAME = re.compile(r"`([a-z_]+)`")
ALGORITHMS = ("ppo", "dqn", "sac", "td3")


def rows(algorithm: str) -> list[tuple[str, str]]:
    """Return both columns of the table of policy gradients and DQN, or of that of SAC and TD3."""
    table = PAGE.split("\n## Options\n")[1].split("|---|---|\n")[1 if algorithm == "ppo" else 2]
    found = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return [(left, right) for left, right in found]


def options(algorithm: str) -> type[AlgorithmOptions]:
    found: type[AlgorithmOptions] = registry.find("algorithms", algorithm).Options
    return found


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_what_is_named_here_exists_and_has_the_default_in_brackets(algorithm: str) -> None:
    known = {name for one in ALGORITHMS for name in options(one).model_fields}
    for _, right in rows(algorithm):
        assert set(NAME.findall(right)) <= known, right
        for name, default in re.findall(r"`([a-z_]+)` \(([\d.,e-]*\d)", right):
            assert options(algorithm).model_fields[name].default == float(default.replace(",", "")), name


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_who_types_a_name_of_theirs_is_told_the_one_of_its_row(algorithm: str) -> None:
    for left, right in rows(algorithm):
        for name in NAME.findall(left):
            told = []
            for one in ALGORITHMS:
                known = list(options(one).model_fields)
                told.append(f"`{name}`" if name in known else unknown_key(name, known).split("; known are")[0])
            here = NAME.findall(right.replace("the same", left))
            assert any(re.search(rf"\b{each}\b", text) for each in here for text in told), (name, told)


@pytest.mark.long
def test_the_example_learns_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (experiment,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    Path("my_cartpole.toml").write_text(experiment + '\n[workers]\nbackend = "serial"\n')
    names: dict[str, object] = {}
    exec(example, names)
    assert names["run"].score.mean > 450  # type: ignore[attr-defined]
    assert names["row"].generation < 390  # type: ignore[attr-defined]
